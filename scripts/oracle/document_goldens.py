#!/usr/bin/env python3
"""What PyTorch computes where attention sees a document at a time: tiny random models, masks of four dimensions, in fp32 on a CPU.

Writes OUT/<case>/ (default tests/model/goldens/documents), see README.md:
  config.json, model.safetensors   by save_pretrained
  oracle.safetensors    text i32[STEPS * BATCH * SEQ + 1]: sample n has tokens n * SEQ .. n * SEQ + SEQ - 1, and those one further as
                        targets; losses, grad_norms f32[STEPS]: of each AdamW step, norms before clipping; counted i32[STEPS]:
                        targets
  gradients.safetensors d loss / d parameter of step 1, before clipping

A document ends with its EOD. A token sees the tokens of its document up to itself, in layers with a window the last of them;
positions begin at 0 in each document and in each sample; the target behind an EOD does not count.
"""

import argparse
import pathlib

import torch
import transformers
from safetensors.torch import save_file

from family_goldens import LLAMA3_ROPE, SIZES, VOCAB
from make_goldens import build, clip_, optimizer_of

STEPS, BATCH, SEQ, EOD = 6, 6, 24, 1

CASES = {
    "gpt2": transformers.GPT2Config(vocab_size=VOCAB, n_positions=32, n_embd=16, n_layer=2, n_head=4, resid_pdrop=0.0,
                                    embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=1),
    "llama": transformers.LlamaConfig(**SIZES, rms_norm_eps=1e-5, rope_parameters=LLAMA3_ROPE),
    # The second layer has a window, the first has none.
    "qwen2": transformers.Qwen2Config(**SIZES, tie_word_embeddings=True, use_sliding_window=True, sliding_window=6,
                                      max_window_layers=1, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    "mistral": transformers.MistralConfig(**SIZES, sliding_window=5),
    "llama_softcapped": transformers.LlamaConfig(**SIZES, rms_norm_eps=1e-5, attn_logit_softcapping=0.25,
                                                 final_logit_softcapping=0.5),
}


def text_of(seed):
    """Documents of many lengths; in every step a sample begins with an EOD, one ends with it, one has two in a row, one has none."""
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(EOD + 1, VOCAB, (STEPS * BATCH * SEQ + 1,), generator=generator)
    text[torch.rand(text.shape, generator=generator) < 0.1] = EOD
    samples = text[:-1].view(STEPS, BATCH, SEQ)
    samples[:, 0, 0] = EOD
    samples[:, 1, SEQ - 1] = EOD
    samples[:, 2, 11:13] = EOD
    samples[:, 3][samples[:, 3] == EOD] = EOD + 1
    return text


def documents_of(tokens):
    """i64[batch, seq]: the place of each token's first neighbour, the first token of its document in the sample."""
    places = torch.arange(tokens.shape[1]).expand_as(tokens)
    begins = torch.zeros_like(tokens)
    begins[:, 1:] = torch.where(tokens[:, :-1] == EOD, places[:, 1:], 0)
    return begins.cummax(dim=1).values


def mask_of(first):
    """f32[batch, 1, seq, seq], added to scores: query q sees keys first[b, q] .. q."""
    places = torch.arange(first.shape[1])
    sees = (places[None, None, :] <= places[None, :, None]) & (places[None, None, :] >= first[:, :, None])
    return torch.where(sees, 0.0, torch.finfo(torch.float32).min)[:, None]


def logits_of(model, tokens):
    begins, places = documents_of(tokens), torch.arange(tokens.shape[1])
    window = getattr(model.config, "sliding_window", None)
    masks = dict(full_attention=mask_of(begins))
    masks["sliding_attention"] = mask_of(torch.maximum(begins, places - window + 1)) if window else None
    kinds = set(getattr(model.config, "layer_types", None) or ["sliding_attention" if window else "full_attention"])
    mask = masks if len(kinds) > 1 else masks[kinds.pop()]
    return model(input_ids=tokens, attention_mask=mask, position_ids=places - begins, use_cache=False).logits


def write_case(folder, name, config, seed):
    folder.mkdir(parents=True, exist_ok=True)
    model = build(config, seed)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    text = text_of(seed + 1)
    optimizer, losses, norms, counted = optimizer_of(model), [], [], []
    samples = zip(text[:-1].view(STEPS, BATCH, SEQ), text[1:].view(STEPS, BATCH, SEQ))
    for step, (tokens, following) in enumerate(samples):
        targets = torch.where(tokens == EOD, -100, following)
        optimizer.zero_grad()
        logits = logits_of(model, tokens)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))
        loss.backward()
        if step == 0:
            save_file({n: p.grad.clone().contiguous() for n, p in model.named_parameters()}, folder / "gradients.safetensors",
                      metadata=dict(format="pt"))
        losses.append(loss.item())
        norms.append(clip_(model))
        counted.append((targets >= 0).sum().item())
        optimizer.step()
    oracle = dict(text=text.to(torch.int32), losses=torch.tensor(losses), grad_norms=torch.tensor(norms),
                  counted=torch.tensor(counted, dtype=torch.int32))
    save_file(oracle, folder / "oracle.safetensors", metadata=dict(format="pt"))
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {size} bytes, losses {losses[0]:.6f} -> {losses[-1]:.6f}, norm {norms[0]:.6f}, counted {counted}")


def check_alone(model):
    """Documents of a packed sample give the logits that each has alone."""
    tokens = text_of(5)[:-1].view(-1, SEQ)[4:5]
    packed, begins = logits_of(model, tokens)[0], documents_of(tokens)[0]
    for begin in begins.unique().tolist():
        own = (begins == begin).nonzero()[:, 0]
        alone = model(input_ids=tokens[:, own], use_cache=False).logits[0]
        assert (packed[own] - alone).abs().max() < 1e-5 * packed.abs().max(), begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests/model/goldens/documents")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for i, (name, config) in enumerate(CASES.items()):
        check_alone(build(config, 1))
        write_case(out / name, name, config, 9000 + 10 * i)


if __name__ == "__main__":
    main()
