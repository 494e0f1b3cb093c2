#!/usr/bin/env bash
# How fast `trident generate` reads a prompt and makes tokens, beside what the machine does at the same moments.
#   scripts/bench_generate.sh [PROGRAM] [PRESET]     build/release/bin/trident, llama3.2-1b
# Weights are drawn at random, which takes most of the time; fp32 of the default needs 6 GB of memory. Numbers go with
# docs/benchmarks/2026-11-24-generate.md; on a machine that does something else "in processor time" is what to look at.
set -euo pipefail
program=${1:-build/release/bin/trident} preset=${2:-llama3.2-1b}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cat > "$folder/config.json" <<JSON
{ "run": {"dir": "$folder/none", "steps": 1}, "model": {"preset": "$preset"}, "batch": {"global": 1, "sequence": 1},
  "optimizer": {"lr": 1}, "data": {"train": "none"} }
JSON
tokens() { seq 1 "$1" | awk '{ print ($1 * 7919) % 32000 }' | tr '\n' ' '; }
run() {  # precision, tokens of the prompt, samples, batch, new tokens
  echo "== $preset $1, prompt of $2, batch $4, $5 new tokens"
  "$program" generate --config "$folder/config.json" --random-weights --set "precision.compute=$1" --prompt-ids "$(tokens "$2")" \
    -n "$3" --batch "$4" --max-new-tokens "$5" --greedy --ignore-end --print-ids --timings | grep -E '^(prompts|steps): '
}
for precision in bf16 fp32; do
  run $precision 512 3 1 128
  run $precision 8 8 8 33
  run $precision 8 16 16 33
done
for tokens in 32 64 100 300 448; do run bf16 $tokens 3 1 1; done
