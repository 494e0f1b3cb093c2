#!/usr/bin/env bash
# bench_search_test.sh SCRIPTS: what of PyTorch's configurations is tried, in which order, and what is said of the rest; the figures are made up.
set -euo pipefail
command -v python3 >/dev/null || { echo "SKIPPED: there is no python3"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$1 exec python3 - <<'PYTHON'
import contextlib
import io
import json

from bench_search import OUT_OF_MEMORY, search

MODES, ATTENTIONS = ("plain", "graphs"), ("cudnn", "flash")


def run(speed, minutes=60, seconds_each=0, micro=64, most=99):
    """(the fastest of each precision, what was tried, what was not); speed(precision, mode, attention, micro): tokens/s, or why not."""
    now, tried = [0], []

    def attempt(precision, mode, attention, size):
        now[0] += seconds_each
        tried.append((precision, mode, attention, size))
        told = speed(precision, mode, attention, size)
        result = {"tried": "m", "precision": precision, "compile": mode, "attention": attention, "micro": size}
        return result | ({"failed": told} if isinstance(told, str) else {"tokens_per_s": told})

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        chosen = search("m", attempt, micro, minutes, most, MODES, ATTENTIONS, clock=lambda: now[0])
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [tuple(t[k] for k in ("precision", "compile", "attention", "micro")) for t in lines if "tried" in t] == tried, lines
    assert len(set(tried)) == len(tried), tried
    return [(c["precision"], c["compile"], c["attention"], c["micro"]) for c in chosen], tried, [n for n in lines if "not_tried" in n]


# Each precision has its own fastest, which no other's is near.
def two_peaks(precision, mode, attention, micro):
    if precision == "bf16":
        return 1000 + 50 * (mode == "graphs") + 50 * (attention == "flash") + (30 if micro == 16 else 20 if micro == 32 else 0)
    return 500 + 50 * (attention == "cudnn") + 10 * (micro == 64)


chosen, tried, left = run(two_peaks)
assert chosen == [("bf16", "graphs", "flash", 16), ("autocast", "plain", "cudnn", 64)], chosen
assert left == [], left
assert tried[:2] == [("bf16", "plain", "cudnn", 64), ("autocast", "plain", "cudnn", 64)], tried
# All around the fastest was tried.
for mode in MODES:
    for attention in ATTENTIONS:
        assert all(("bf16", mode, attention, micro) in tried for micro in (32, 16, 8)), tried
        assert all(("autocast", mode, attention, micro) in tried for micro in (64, 32)), tried

# No more attempts than are allowed, but at least one that works of each precision.
chosen, tried, left = run(two_peaks, most=3)
assert len(tried) == 3 and len(chosen) == 2 and left, (tried, chosen)

# What does not fit is halved; what was too large is not tried with the other attention; a mode that needs more has its own limit.
def tight(precision, mode, attention, micro):
    limit = {("bf16", "plain"): 32, ("bf16", "graphs"): 16, ("autocast", "plain"): 8, ("autocast", "graphs"): 4}[precision, mode]
    return OUT_OF_MEMORY if micro > limit else 1000 + micro


chosen, tried, left = run(tight)
assert chosen == [("bf16", "plain", "cudnn", 32), ("autocast", "plain", "cudnn", 8)], chosen
assert ("bf16", "plain", "flash", 64) not in tried and ("bf16", "graphs", "cudnn", 16) in tried, tried
assert left == [], left

# A backend that fails is left alone, at every size.
chosen, tried, left = run(lambda precision, mode, attention, micro: "no kernel" if attention == "cudnn" else 1000 + micro)
assert chosen == [("bf16", "plain", "flash", 64), ("autocast", "plain", "flash", 64)], chosen
assert sum(t[2] == "cudnn" for t in tried) == 4, tried

# Nothing works: every choice was tried once, and the search ends, minutes or no minutes.
for minutes in (0, 60):
    chosen, tried, left = run(lambda *c: "broken", minutes=minutes)
    assert chosen == [] and len(tried) == 8 and left == [], (chosen, tried)

# Six minutes, of two each: both precisions have one and the nearest alternatives; the rest is named.
chosen, tried, left = run(two_peaks, minutes=6, seconds_each=120)
assert len(tried) == 3 and {t[0] for t in tried} == {"bf16", "autocast"}, tried
assert chosen == [("bf16", "plain", "flash", 64), ("autocast", "plain", "cudnn", 64)], chosen
assert {"not_tried": "m", "precision": "bf16", "compile": "graphs", "attention": "flash", "micro": 64} in left and len(left) > 8, left
# Late, and autocast has not worked yet: it alone goes on until it does.
chosen, tried, left = run(lambda p, mode, attention, micro: OUT_OF_MEMORY if p == "autocast" and micro > 8 else 1, minutes=1, seconds_each=120)
assert [t for t in tried if t[0] == "bf16"] == [("bf16", "plain", "cudnn", 64)], tried
assert chosen[1][3] == 8, chosen
# One sequence is the least.
chosen, tried, left = run(lambda p, mode, attention, micro: micro, micro=1)
assert len(tried) == 8 and all(t[3] == 1 for t in tried), tried
print("PyTorch's configurations are tried in order, and what is left is named")
PYTHON
