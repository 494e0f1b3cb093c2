#!/usr/bin/env python3
"""What lm-evaluation-harness says of multiple-choice questions: a tiny random model, its own HFLM and its own task, fp32, on a CPU.

Writes OUT (default tests/app/goldens/choices), see README.md:
  config.json, generation_config.json, model.safetensors   by save_pretrained
  vocab.json, merges.txt                                   the first 44 merges of GPT-2's, so that texts are split in unlike ways
  NAME.jsonl      questions: context, choices, answer
  NAME.json       of each question the log-likelihood of every choice; acc, acc_norm of all; max_length
Sets: "usual", "spaces" (white space at ends), "unicode" (lengths in code points are not those in bytes), "long" (contexts beyond
max_length, which are cut on the left), "empty" (no context).

    pip install -r scripts/oracle/requirements.txt
"""

import argparse
import json
import pathlib
import random

import torch
import transformers
from lm_eval import simple_evaluate
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.huggingface import HFLM
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
MERGES, POSITIONS = 44, 40
WORDS = "the sky is blue and there are not many trees in this other town where one can see the hills on a day without rain".split()
WIDE = ["\u00e9t\u00e9", "na\u00efve", "\u4f60\u597d\u4e16\u754c", "\U0001f30d", "\u043c\u0438\u0440", "stra\u00dfe", "e\u0301"]


def write_tokenizer(out):
    gpt2 = ROOT / "data/gpt2"
    merges = [m for m in (gpt2 / "merges.txt").read_text(encoding="utf-8").split("\n")[1:] if m][:MERGES]
    order = sorted(json.loads((gpt2 / "vocab.json").read_text(encoding="utf-8")).items(), key=lambda entry: entry[1])
    tokens = [token for token, _ in order[:256]] + [m.replace(" ", "") for m in merges] + ["<|endoftext|>"]
    (out / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    tokenizer = Tokenizer(models.BPE.from_file(str(out / "vocab.json"), str(out / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    end = "<|endoftext|>"
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, bos_token=end, unk_token=end), len(tokens)


def write_model(out, vocab_size):
    torch.manual_seed(11)
    config = transformers.GPT2Config(vocab_size=vocab_size, n_positions=POSITIONS, n_embd=16, n_layer=2, n_head=4, resid_pdrop=0.0,
                                     embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=vocab_size - 1, eos_token_id=vocab_size - 1)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(0.0 if p.ndim >= 2 or name.endswith("bias") else 1.0, 0.3)
    model.save_pretrained(out)
    return model


def questions(name, rng):
    def words(low, high, more=()):
        return " ".join(rng.choice(WORDS + list(more)) for _ in range(rng.randint(low, high)))
    rows = []
    for _ in range(12):
        context, choices = words(2, 4), [words(1, 3) for _ in range(rng.randint(2, 4))]
        if name == "spaces":
            context += rng.choice([" ", "  ", "\n", " \n ", "\t", "\u3000", "\u00a0"])
            choices = [rng.choice(["", " ", "\n"]) + c + rng.choice(["", " "]) for c in choices]
        elif name == "unicode":
            context = words(1, 2, WIDE * 3)
            choices = [words(1, 2, WIDE * 5)[:9] for _ in range(3)]
        elif name == "long":
            context, choices = words(9, 16), [words(1, 3), words(2, 4)]
        elif name == "empty":
            context = ""  # white space alone ends that program with an assertion
        rows.append(dict(context=context, choices=choices, answer=rng.randrange(len(choices))))
    return rows


def judged(path, lm):
    task = ConfigurableTask(config=dict(
        task=path.stem, dataset_path="json", dataset_kwargs=dict(data_files=dict(test=str(path))), test_split="test",
        output_type="multiple_choice", doc_to_text="context", doc_to_choice="choices", doc_to_target="answer", target_delimiter=" ",
        metric_list=[dict(metric=m, aggregation="mean", higher_is_better=True) for m in ("acc", "acc_norm")]))
    result = simple_evaluate(model=lm, tasks=[task], num_fewshot=0, log_samples=True, bootstrap_iters=0)
    samples = sorted(result["samples"][path.stem], key=lambda s: s["doc_id"])
    scores = result["results"][path.stem]
    return dict(acc=scores["acc,none"], acc_norm=scores["acc_norm,none"], max_length=lm.max_length,
                log_likelihoods=[[r[0] for r in s["filtered_resps"]] if isinstance(s["filtered_resps"][0][0], (list, tuple))
                                 else [r[0] for r in s["filtered_resps"]] for s in samples],
                acc_of=[s["acc"] for s in samples], acc_norm_of=[s["acc_norm"] for s in samples])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/app/goldens/choices")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    tokenizer, vocab_size = write_tokenizer(out)
    lm = HFLM(pretrained=write_model(out, vocab_size), tokenizer=tokenizer, batch_size=1)
    rng = random.Random(5)
    for name in ("usual", "spaces", "unicode", "long", "empty"):
        path = out / f"{name}.jsonl"
        path.write_text("".join(json.dumps(q) + "\n" for q in questions(name, rng)))
        golden = judged(path, lm)
        (out / f"{name}.json").write_text(json.dumps(golden) + "\n")
        print(name, golden["acc"], golden["acc_norm"], golden["log_likelihoods"][0])


if __name__ == "__main__":
    main()
