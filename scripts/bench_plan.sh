#!/usr/bin/env bash
# bench_plan.sh [--runs N] [--build FOLDER]:
# what it costs to know what a job will do, as one Markdown table on standard output, with what is allowed. Nothing is kept.
#
# Ends with 1 where more is taken than is allowed: 1 s and 200 MB for the plan of 175B parameters on 1,024 ranks with 512
# micro-batches, and 5 ms of CPU time for each process of the demo to know whether it fits. Medians of N runs (11); the time by the
# clock is of a machine that does nothing else.
set -euo pipefail
header() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
runs=11 build=build/release
while (($#)); do
  case $1 in
    --help | -h) header; exit 0 ;;
    --runs) runs=${2:?} ;;
    --build) build=${2:?} ;;
    *) header >&2; exit 64 ;;
  esac
  shift 2
done
[[ $runs =~ ^[1-9][0-9]*$ ]] || { header >&2; exit 64; }
cd "$(dirname "$0")/.."
trident=$build/bin/trident fit=$build/tests/contracts/fit_cost
for program in "$trident" "$fit"; do
  [[ -x $program ]] && continue
  echo "bench_plan.sh: $program is missing; run scripts/build.sh ${build##*/} trident fit_cost" >&2
  exit 64
done

measures=$(mktemp)
trap 'rm -f "$measures"' EXIT
for ((i = 0; i < runs; ++i)); do
  /usr/bin/time -a -o "$measures" -f '%e %U %S %M' \
    "$trident" plan --config configs/gpt3_175b_tp8_pp8.json --set batch.global=8192 >/dev/null
done
median() { sort -n | sed -n "$(((runs + 1) / 2))p"; }
seconds=$(awk '{print $1}' "$measures" | median)
cpu=$(awk '{print $2 + $3}' "$measures" | median)
megabytes=$(awk '{print $4 * 1024 / 1e6}' "$measures" | median)
milliseconds=$("$fit" configs/demo_2dp_4pp_4tp.json | sed 's/.* to \([0-9.]*\)).*/\1/')

over=0
row() {  # what, measured, unit, allowed
  local verdict=yes
  awk -v a="$2" -v b="$4" 'BEGIN { exit !(a > b) }' && { verdict=no; over=1; }
  printf '| %s | %s %s | %s %s | %s |\n' "$1" "$2" "$3" "$4" "$3" "$verdict"
}
echo '| what | measured | allowed | within |'
echo '|---|---|---|---|'
row "plan of 175B parameters, 512 micro-batches, by the clock ($cpu s of CPU time)" "$seconds" s 1
row 'its resident memory' "$megabytes" MB 200
row 'whether the demo fits, CPU time of a process (the dearest of 101)' "$milliseconds" ms 5
exit "$over"
