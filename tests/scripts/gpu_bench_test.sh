#!/usr/bin/env bash
# gpu_bench_test.sh GPU_BENCH: what the benchmark of a card runs, takes for its medians and writes; the card, the build, the trainer and Python are
# stand-ins, whose figures are made up.
set -euo pipefail
script=$1
. "$(dirname "$0")/card_stand_ins.sh"

stand_in bin/cmake <<'SH'
#!/bin/sh
if [ "$1" = --build ]; then mkdir -p "$2/bin"; cp "$FAKE_PLACE/programs/trident" "$2/bin/"; exit; fi
if [ "$1" = --version ]; then echo "cmake version 3.25.1"; exit; fi
echo "-- CUDA: 13.0.88 for 90a-real, cuDNN 9.19.0, NCCL 2.28.9"
SH
# Micro-batches above $FAKE_FITS do not fit. Steps of warm-up take long, then 1010, 1020, ... ms; some configurations are faster.
stand_in programs/trident <<'SH'
#!/bin/bash
if [[ $1 == bench ]]; then echo "matmul 100 ms, floor 90 ms"; exit; fi
config=$3 micro=${5#batch.micro=} global=${9#batch.global=}
full=$(sed -n 's/.*"global": \([0-9]*\),.*/\1/p' "$config")
run=$(sed -n 's/.*"dir": "\([^"]*\)".*/\1/p' "$config")
cp "$config" "$FAKE_PLACE/config.json"
echo "$micro" >>"$FAKE_PLACE/tried"
if ((micro > FAKE_FITS)); then
  echo "trident: batch.micro = $micro: the arena of rank 0 needs 99.0 GB, 60.0 GB of it for activations, card 0 (a card) of here has 80.0 GB for arenas;" \
    "batch.micro = 17 would fit, or set recompute.policy to full, or take a smaller model"
  exit 64
fi
factor=1
if [[ $* == *cuda.deterministic=false* ]]; then factor+='*0.97'; fi
if [[ $* == *cuda.autotune=* ]]; then factor+='*0.98'; fi
if [[ $* == *cuda.epilogues=true* ]]; then factor+="*${FAKE_EPILOGUES:-1.01}"; fi
if [[ $* == *cuda.graphs=true* ]]; then factor+="*${FAKE_GRAPHS:-1.02}"; fi
if ((micro < FAKE_FITS)); then factor+="*${FAKE_HALF:-1.05}"; fi
if [[ $factor == *broken* ]]; then echo "trident: no graphs today"; exit 70; fi
factor=$(awk "BEGIN { print $factor }")
loss=${FAKE_LOSS:-$(grep -q gpt2-124m "$config" && echo 10.98 || echo 12.17)}
mkdir -p "$run"
steps=${7#run.steps=}
part=$(awk "BEGIN { print $global / $full }")
awk -v f="$factor" -v loss="$loss" -v n="$steps" -v part="$part" 'BEGIN { for (s = 1; s <= n; ++s) {
  ms = s <= n - 5 ? 9999 : part * f * (1000 + 10 * ((s - n + 7) * 3 % 7))
  printf "{\"step\":%d,\"loss\":%s,\"loss_scale\":null,\"step_ms\":%.3f,\"tokens_per_s\":%d,\"mfu\":%s,\"peak_bytes\":2147483648,\"comm_bytes\":{\"tp\":0}}\n", s, s == 1 ? loss : s == n ? "10.5" : "9", ms, 1e6 / ms, 0.4 * 1040 / ms } }' >"$run/metrics.jsonl"
echo '{"step": 7, "ms": {"forward": 1.5, "backward": 2.5}}' >"$run/timing.jsonl"
SH
stand_in bin/python <<'SH'
#!/bin/sh
if [ "$1" = -c ]; then [ "${FAKE_NO_TORCH:-0}" != 1 ]; exit; fi
echo "$*" >"$FAKE_PLACE/python"
echo '{"tried": "gpt2-124m", "precision": "bf16", "failed": "no"}'
echo '{"not_tried": "gpt2-124m", "precision": "autocast", "compile": "max-autotune", "attention": "flash", "micro": 16}'
if [ "${FAKE_NO_TORCH:-0}" = broken ]; then echo "bench_torch.py: no configuration works" >&2; exit 1; fi
loss=12.2
if [ "$2" = gpt2-124m ]; then loss=${FAKE_TORCH_LOSS:-11.01}; fi
echo '{"timed": "gpt2-124m", "first_loss": '$loss', "last_loss": 10.4, "precision": "bf16", "compile": "max-autotune", "attention": "cudnn", "micro": 32, "tokens_per_step": 524288, "step_ms": 2100.5, "tokens_per_s": 480.5, "peak_bytes": 4294967296, "torch": "2.11.0"}'
[ -z "${FAKE_HANGS:-}" ] || exec sleep 60
SH

# bench EXPECTED_STATUS NAME=VALUE... -- ARGUMENT...
bench() {
  local expected=$1 status=0 values=()
  shift
  while [[ $1 != -- ]]; do values+=("$1"); shift; done
  rm -f "$place"/report*.md "$place/tried" "$place/python"
  env PATH="$place/bin:$PATH" PYTHON=python FAKE_PLACE="$place" FAKE_FITS=16 "${values[@]}" "$script" --report "$place/report.md" --steps 5 --warmup 2 "${@:2}" \
    >"$place/out" 2>&1 || status=$?
  ((status == expected)) || fail "status $status, expected $expected"
}
reports() { grep -qF -- "$1" "$place/report.md" || fail "the report lacks: $1"; }

bench 77 FAKE_CARDS=no --
(($(wc -l <"$place/out") == 1)) || fail "more than one line without a card"

bench 0 -- gpt2-124m
tried=$(tr '\n' ' ' <"$place/tried")
[[ $tried == '64 32 16 8 16 16 16 16 16 ' ]] || fail "micro-batches are not halved until one fits: $tried"
reports 'driver 580.159.04, CUDA 13.0.88, cuDNN 9.19.0, NCCL 2.28.9, commit'
# The last five steps take 1020, 1050, 1010, 1040 and 1000 ms: the median is 1020, of the fastest configuration 0.97 x 0.98 of
# that. A sequence takes a 512th, whatever the batch.
reports '| gpt2-124m | trident, not deterministic, autotuned | 16 | 969.6 | 1031 | 42.9 % | 2.0 | 10.980 to 10.500 | - |'
reports '| gpt2-124m | PyTorch 2.11.0, bf16, max-autotune, cudnn | 32 | 2100.5 | 480 | 20.0 % | 4.0 | 11.010 to 10.400 | 2.146 |'
reports '- gpt2-124m, trident, defaults: 1.9922 ms a sequence, the median of 5 steps of 4 micro-batches of 16'
reports '- gpt2-124m, trident, half the micro-batch: 2.0918 ms a sequence'
reports '- gpt2-124m, trident, not deterministic, autotuned, graphs: 1.9317 ms a sequence'
reports '- gpt2-124m, no time was left for: `{"not_tried": "gpt2-124m", "precision": "autocast"'
reports 'matmul 100 ms, floor 90 ms'
reports 'forward: 1.5, backward: 2.5'
if grep -q 'Not finished' "$place/report.md"; then fail "a finished report says that it is not"; fi
grep -qF -- 'gpt2-124m --sequence 1024 --tokens 524288 --steps 5 --warmup 2' "$place/python" || fail "PyTorch is asked for something else"
grep -qF -- '"global": 512, "micro": 1, "sequence": 1024' "$place/config.json" || fail "not 524288 tokens a step"

for key in nccl_max_ctas spare_multiprocessors nccl_any_order nccl_register; do
  reports "| all | trident, cuda.$key | - | - | SKIPPED: needs two cards | - | - | - | - |"
done

# Seven steps of 512 sequences at 1.99 ms are 7 s, and 20 more are kept: in 26 s nothing but the defaults is tried. PyTorch is
# ended.
bench 0 -- --seconds 26 --only trident gpt2-124m
[[ $(tr '\n' ' ' <"$place/tried") == '64 32 16 16 ' ]] || fail "more is tried than there is time for"
reports '- gpt2-124m, trident: no time was left for: graphs'
reports '| gpt2-124m | trident, defaults | 16 |'
bench 0 -- --seconds 60 --only trident gpt2-124m
[[ $(wc -l <"$place/tried") == 9 ]] || fail "less is tried than there is time for"
bench 1 FAKE_HANGS=1 -- --seconds 8 --only torch gpt2-124m
reports '| gpt2-124m | PyTorch | - | - | failed: not done in 8 seconds; below is what was timed by then |'
reports '| gpt2-124m | PyTorch 2.11.0, bf16, max-autotune, cudnn | 32 |'

bench 0 FAKE_GRAPHS=0.9 FAKE_EPILOGUES=0.9 FAKE_HALF=0.9 -- llama3.2-1b
[[ $(head -n 1 "$place/tried") == 16 ]] || fail "65536 tokens are not tried first"
grep -qF -- '"global": 128, "micro": 1, "sequence": 4096' "$place/config.json" || fail "not 524288 tokens a step"
reports '| llama3.2-1b | trident, not deterministic, autotuned, epilogues, graphs | 8 | 706.8 |'
bench 0 FAKE_GRAPHS=broken FAKE_NO_TORCH=1 -- gpt2-124m
reports '- gpt2-124m, trident, not deterministic, autotuned, graphs: trident: no graphs today'
reports '| gpt2-124m | trident, not deterministic, autotuned | 16 | 969.6 |'
reports '| gpt2-124m | PyTorch | - | - | SKIPPED: no PyTorch | - | - | - | - |'

# Nothing fits: the reason is said and in the table, and PyTorch is measured all the same.
bench 1 FAKE_FITS=0 -- gpt2-124m
grep -qF 'gpu_bench.sh: gpt2-124m: trident: batch.micro = 1: the arena of rank 0 needs 99.0 GB' "$place/out" || fail "does not say why nothing fits"
reports '| gpt2-124m | trident | - | - | failed: trident: batch.micro = 1: the arena of rank 0 needs 99.0 GB'
reports '| gpt2-124m | PyTorch 2.11.0, bf16, max-autotune, cudnn | 32 | 2100.5 | 480 | - | 4.0 | 11.010 to 10.400 | - |'
[[ $(tr '\n' ' ' <"$place/tried") == '64 32 16 8 4 2 1 ' ]] || fail "one sequence is not the last that is tried"

# In two calls with the rows kept between them: neither side is measured twice, and the table is whole.
rm -rf "$place/rows"
bench 0 -- --rows "$place/rows" --only trident gpt2-124m
[[ ! -e $place/python ]] || fail "PyTorch is measured though ours alone was asked for"
bench 0 -- --rows "$place/rows" --only torch --most 3 gpt2-124m
[[ ! -e $place/tried ]] || fail "ours is measured again"
grep -qF -- '--most 3' "$place/python" || fail "PyTorch's search is not bounded"
reports '| gpt2-124m | trident, not deterministic, autotuned | 16 | 969.6 | 1031 | 42.9 % | 2.0 | 10.980 to 10.500 | - |'
reports '| gpt2-124m | PyTorch 2.11.0, bf16, max-autotune, cudnn | 32 | 2100.5 | 480 | 20.0 % | 4.0 | 11.010 to 10.400 | 2.146 |'
bench 0 -- --rows "$place/rows" gpt2-124m
[[ ! -e $place/tried && ! -e $place/python ]] || fail "what is done is measured again"
reports 'driver 580.159.04, CUDA 13.0.88, cuDNN 9.19.0, NCCL 2.28.9, commit'
bench 0 -- --rows "$place/rows" --only torch gpt2-124m
reports 'driver 580.159.04, CUDA 13.0.88, cuDNN 9.19.0, NCCL 2.28.9, commit'
# Of another card nothing is kept.
bench 0 FAKE_CARDS='0, GPU-cccc3333, NVIDIA H200, 9.0, 580.159.04' -- --rows "$place/rows" --only trident gpt2-124m
[[ -e $place/tried ]] || fail "rows of another card are taken"
if grep -q PyTorch.2.11 "$place/report.md"; then fail "rows of another card are in the table"; fi

# Losses that are not those of random tokens: ln 50257 + 768 * 0.0002 = 10.979.
bench 1 FAKE_LOSS=10.9 FAKE_TORCH_LOSS=11.04 -- gpt2-124m
reports '| WRONG: 10.900 to 10.500, the first ought to be 10.929 to 11.029 | - |'
reports '| WRONG: 11.040 to 10.400, the first ought to be 10.929 to 11.029 | 2.146 |'
bench 1 FAKE_LOSS=null FAKE_NO_TORCH=broken -- gpt2-124m
reports '| WRONG: null to 10.5 is not finite | - |'
reports '| gpt2-124m | PyTorch | - | - | failed: bench_torch.py: no configuration works | - | - | - | - |'
bench 64 -- gpt5
grep -qF 'gpt5: no such model; there are gpt2-124m' "$place/out" || fail "the models are not named"
echo "gpu_bench.sh measures, compares and reports as it says"
