#!/usr/bin/env python3
"""PyTorch's strongest training step of a model, to stand beside trident's: compiled, fused AdamW, attention by cuDNN or FlashAttention.

    bench_torch.py MODEL --sequence T [--tokens 524288] [--steps 20] [--warmup 10] [--minutes 30] [--most 99] [--device cuda]

Pure bf16 and fp32 weights under autocast, which is the precision trident trains in, each have their search, in turn: a few micro-batches with
either attention, either mode of torch.compile, and the micro-batch that fits, its half and its double. What differs least from the fastest so far
goes first; a search is over when nothing that near is left, or at --minutes or --most. The fastest of each precision makes the timed steps: random tokens
that lie on the card, accumulation up to --tokens, clipping, one fused update. Prints JSON lines: {"tried": ...} for each, {"not_tried": ...} for
what the minutes were not enough for, {"timed": ...} with the median step and the losses of the first step and the last.
"""
import argparse
import contextlib
import functools
import gc
import json
import math
import statistics
import sys
import time

import torch
import torch._inductor.config
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench_search import OUT_OF_MEMORY, search

# layers, hidden, heads, key-value heads, feed-forward, vocabulary, rope base; the vocabulary is padded to a multiple of 128.
GPT2, LLAMA, QWEN2 = "gpt2", "llama", "qwen2"
MODELS = {
    "gpt2-124m": (GPT2, 12, 768, 12, 12, 3072, 50257, 0),
    "gpt2-1.5b": (GPT2, 48, 1600, 25, 25, 6400, 50257, 0),
    "llama3.2-1b": (LLAMA, 16, 2048, 32, 8, 8192, 128256, 500000.0),
    "qwen2.5-0.5b": (QWEN2, 24, 896, 14, 2, 4864, 151936, 1000000.0),
    "qwen2.5-1.5b": (QWEN2, 28, 1536, 12, 2, 8960, 151936, 1000000.0),
    "tiny-gpt2": (GPT2, 2, 64, 4, 4, 256, 250, 0),  # for the test of this script
    "tiny-llama": (LLAMA, 2, 64, 4, 2, 96, 250, 10000.0),
}
ATTENTION = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}


class Block(nn.Module):
    def __init__(self, family, hidden, heads, kv_heads, wide):
        super().__init__()
        self.gpt2, self.heads, self.kv_heads, self.width = family == GPT2, heads, kv_heads, hidden // heads
        norm = nn.LayerNorm if self.gpt2 else nn.RMSNorm
        self.norm1, self.norm2 = norm(hidden), norm(hidden)
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.width, bias=family != LLAMA)
        self.out = nn.Linear(hidden, hidden, bias=self.gpt2)
        self.up = nn.Linear(hidden, wide if self.gpt2 else 2 * wide, bias=self.gpt2)
        self.down = nn.Linear(wide, hidden, bias=self.gpt2)

    def forward(self, x, rope):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split([n * self.width for n in (self.heads, self.kv_heads, self.kv_heads)], -1)
        q, k, v = (y.view(b, t, -1, self.width).transpose(1, 2) for y in (q, k, v))
        if rope is not None:
            q, k = rotate(q, *rope), rotate(k, *rope)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        h = self.up(self.norm2(x))
        if self.gpt2:
            return x + self.down(F.gelu(h, approximate="tanh"))
        gate, h = h.chunk(2, -1)
        return x + self.down(F.silu(gate) * h)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return (torch.cat([a * cos - b * sin, b * cos + a * sin], -1)).to(x.dtype)


class Model(nn.Module):
    def __init__(self, name, sequence):
        super().__init__()
        family, layers, hidden, heads, kv_heads, wide, vocabulary, base = MODELS[name]
        self.vocabulary, padded = vocabulary, -(-vocabulary // 128) * 128
        self.tokens = nn.Embedding(padded, hidden)
        self.positions = nn.Embedding(sequence, hidden) if family == GPT2 else None
        self.blocks = nn.ModuleList(Block(family, hidden, heads, kv_heads, wide) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden) if family == GPT2 else nn.RMSNorm(hidden)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        self.rotary = family != GPT2
        if self.rotary:
            width = hidden // heads
            angle = torch.outer(torch.arange(sequence), base ** (-torch.arange(0, width, 2) / width))
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens, targets):  # the loss inside, so that the compiler fuses the cross-entropy
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, (self.cos, self.sin) if self.rotary else None)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Trial:
    """One configuration with its model, optimizer and tokens on the device."""

    def __init__(self, args, precision, mode, attention, micro):
        self.device, self.micro, self.attention, self.precision, self.losses = args.device, micro, attention, precision, []
        torch.manual_seed(0)
        model = Model(args.model, args.sequence).to(args.device, torch.bfloat16 if precision == "bf16" else torch.float32)
        self.parameters = list(model.parameters())
        for parameter in self.parameters:  # gradients of micro-batches are added here, not in memory that a CUDA graph will write again
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.model = torch.compile(model, mode=mode) if mode != "eager" else model
        generator = torch.Generator(args.device).manual_seed(1)
        self.batch = torch.randint(model.vocabulary, (max(micro, 64), args.sequence + 1), device=args.device, generator=generator)

    def micro_batch(self, i, of):
        rows = self.batch[(i * self.micro) % (len(self.batch) - self.micro + 1):][: self.micro]
        cast = torch.autocast(self.device, torch.bfloat16) if self.precision == "autocast" else contextlib.nullcontext()
        with cast, sdpa_kernel(ATTENTION[self.attention]):
            loss = self.model(rows[:, :-1], rows[:, 1:])
        (loss / of).backward()
        return loss

    def step(self, micro_batches):
        loss = torch.zeros((), device=self.device)
        for i in range(micro_batches):
            if self.device == "cuda":
                torch.compiler.cudagraph_mark_step_begin()
            loss += self.micro_batch(i, micro_batches).detach() / micro_batches
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        return loss

    def seconds(self, steps, micro_batches):
        times = []
        for _ in range(steps):  # the losses are read when the clock stands
            synchronize(self.device)
            start = time.perf_counter()
            loss = self.step(micro_batches)
            synchronize(self.device)
            times.append(time.perf_counter() - start)
            self.losses.append(loss.item())
        if not all(map(math.isfinite, self.losses)):
            raise RuntimeError(f"loss {self.losses} is not finite")
        return times


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def release():
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def attempt(args, precision, mode, attention, micro):
    """How fast one configuration is, or why it does not work: what is listed under "tried"."""
    release()
    tried = {"tried": args.model, "precision": precision, "compile": mode, "attention": attention, "micro": micro}
    trial = None
    try:
        trial = Trial(args, precision, mode, attention, micro)
        trial.seconds(args.probe, 2)
        seconds = statistics.median(trial.seconds(args.probe, 4))
        return tried | {"tokens_per_s": 4 * micro * args.sequence / seconds}
    except Exception as error:  # a backend that does not take the shape, a compiler that gives up: the others are tried
        if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error):
            return tried | {"failed": OUT_OF_MEMORY}
        return tried | {"failed": str(error).splitlines()[0][:200] if str(error) else type(error).__name__}
    finally:
        trial = None


def measure(args, choice):
    release()
    micro_batches = max(1, args.tokens // (args.sequence * choice["micro"]))
    trial = Trial(args, choice["precision"], choice["compile"], choice["attention"], choice["micro"])
    trial.seconds(args.warmup, micro_batches)
    seconds = statistics.median(trial.seconds(args.steps, micro_batches))
    peak = torch.cuda.max_memory_allocated() if args.device == "cuda" else 0
    tokens = micro_batches * choice["micro"] * args.sequence
    return {"timed": args.model} | {k: choice[k] for k in ("precision", "compile", "attention", "micro")} | {
        "first_loss": trial.losses[0], "last_loss": trial.losses[-1], "tokens_per_step": tokens, "step_ms": 1e3 * seconds, "tokens_per_s": tokens / seconds, "peak_bytes": peak,
        "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--tokens", type=int, default=524288, help="of a step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--probe", type=int, default=3, help="steps of a few micro-batches by which configurations are chosen")
    parser.add_argument("--micro", type=int, help="sequences of the largest micro-batch tried")
    parser.add_argument("--minutes", type=float, default=30, help="after which no further configuration is tried, once each precision has one")
    parser.add_argument("--most", type=int, default=99, help="configurations tried, all precisions together, likewise")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("bench_torch.py: PyTorch sees no card")
    torch.set_float32_matmul_precision("high")
    torch._inductor.config.coordinate_descent_tuning = True
    cuda = args.device == "cuda"
    attentions = ("cudnn", "flash") if cuda else ("math",)
    tries = (args.model, functools.partial(attempt, args), args.micro or max(1, 65536 // args.sequence), args.minutes, args.most)
    chosen = search(*tries, ("max-autotune-no-cudagraphs", "max-autotune"), attentions) if cuda else []
    # Where the compiler cannot work, for want of Python's headers, say, the table says "eager".
    chosen = chosen or search(*tries, ("eager",), attentions)
    if not chosen:
        sys.exit("bench_torch.py: no configuration works")
    failed = 0
    for choice in chosen:
        try:
            print(json.dumps(measure(args, choice)), flush=True)
        except Exception as error:  # the other one is still timed
            failed += 1
            print(f"bench_torch.py: {choice['precision']}, {choice['compile']}, {choice['attention']}: {str(error).splitlines()[:1]}", file=sys.stderr)
    sys.exit(failed)


if __name__ == "__main__":
    main()
