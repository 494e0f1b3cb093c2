"""hf_folders.py PLACE: PLACE/out-NAME computes what PLACE/in/NAME does, for every NAME, by transformers."""
import pathlib
import sys

import torch
import transformers

place = pathlib.Path(sys.argv[1])
torch.set_num_threads(1)


def load(folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info.get(kind), f"{folder}: {kind} {info[kind]}"
    return model.eval()


names = sorted(path.name for path in (place / "in").iterdir())
assert len(names) >= 11, names
for name in names:
    expected, found = load(place / "in" / name), load(place / f"out-{name}")
    assert type(expected) is type(found), name
    ids = torch.arange(2 * 12).reshape(2, 12) * 7 % expected.config.vocab_size
    with torch.no_grad():
        difference = (expected(ids).logits - found(ids).logits).abs().max().item()
    assert difference <= 1e-5, f"{name}: logits differ by {difference}"
    print(f"{name}: logits differ by {difference}")
