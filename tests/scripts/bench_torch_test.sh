#!/usr/bin/env bash
# bench_torch_test.sh BENCH_TORCH: it trains tiny models on the CPU and prints what gpu_bench.sh reads. PYTHON says which Python has PyTorch.
set -euo pipefail
python=${PYTHON:-python3}
"$python" -c 'import torch' 2>/dev/null || { echo "SKIPPED: $python has no PyTorch"; exit 77; }
export OMP_NUM_THREADS=1
for model in tiny-gpt2 tiny-llama; do
  output=$("$python" "$1" $model --device cpu --sequence 16 --tokens 128 --steps 2 --warmup 1 --probe 1 --micro 4 --minutes 0)
  (($(grep -c '^{"tried": "'$model'", ' <<<"$output") == 2 && $(grep -c '^{"not_tried": "'$model'", .*"micro": 2}' <<<"$output") == 2 &&
    $(grep -c 'failed' <<<"$output") == 0)) || { echo "expected two trials, and two that no time was left for: $output"; exit 1; }
  for precision in bf16 autocast; do
    line=$(grep '^{"timed": "'$model'", "precision": "'$precision'", ' <<<"$output") || { echo "no times in $precision: $output"; exit 1; }
    # Of 250 random tokens, or rather 256.
    grep -qE '"first_loss": 5\.5[2-9][0-9]*, "last_loss": [0-9.]+, ' <<<"$line" || { echo "unexpected losses: $line"; exit 1; }
    grep -qE '"micro": 4, .*"tokens_per_step": 128, "step_ms": [0-9.]+, "tokens_per_s": [0-9.]+, "peak_bytes": 0' <<<"$line" || { echo "unexpected: $line"; exit 1; }
  done
done
echo "bench_torch.py trains tiny models"
