#!/usr/bin/env bash
# bench_checkpoint.sh [--repeats N] [--saves N] [--config FILE] [--set PATH=VALUE]... [--ranks N] [--directory DIR] [--trident PROGRAM]:
# how fast checkpoints are written and read beside `dd` on the same disk, and how long they hold training up. Prints one Markdown table.
#
#   write     bytes of a checkpoint over the seconds that its line says (copied, hashed, written, synced, committed), while nothing trains;
#             dd: the same bytes from memory, direct, in blocks of 4 MiB, one file after another, each synced
#   read      bytes over the seconds of `trident ckpt verify`, which reads and hashes every block, none of them in the page cache before;
#             dd: the same bytes, direct
#   held up   what training waited for a save: save_ms of timing.jsonl, summed from one save to the next; 50 saves in one run
#   memory    the largest resident size of a run that saves, less that of one that does not
#
# Both sides of a ratio are taken in turn, N times over; medians. The directory's disk is what is measured.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

usage() { sed -n '2,3s/^# //p' "$0" >&2; exit 64; }
repeats=5 saves=50 config=configs/overhead_32m.json ranks=2 directory=${TMPDIR:-/tmp} trident=build/release/bin/trident settings=()
while (($#)); do
  (($# >= 2)) || usage
  case $1 in
    --repeats) repeats=$2 ;;
    --saves) saves=$2 ;;
    --config) config=$2 ;;
    --set) settings+=(--set "$2") ;;
    --ranks) ranks=$2 ;;
    --directory) directory=$2 ;;
    --trident) trident=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[[ $repeats =~ ^[1-9][0-9]*$ && $saves =~ ^[1-9][0-9]*$ && $ranks =~ ^[1-9][0-9]*$ ]] || usage
[[ -x $trident ]] || { echo "bench_checkpoint.sh: $trident is missing; run scripts/build.sh release trident" >&2; exit 64; }

scratch=$(mktemp -d "$directory/bench_checkpoint.XXXXXX")
memory=$(mktemp -d /dev/shm/bench_checkpoint.XXXXXX)
trap 'rm -rf "$scratch" "$memory"' EXIT
trap 'exit 130' INT TERM

"$trident" data prepare --input data/excerpt/train.txt --separator-line '<|endoftext|>' --append-eod --tokenizer gpt2 \
  --output "$scratch/text" >"$scratch/prepare.log"

# train RUN [PATH=VALUE]...: trains in scratch/RUN from the beginning; standard output in scratch/RUN.log, the largest resident KiB in `kib`.
train() {
  local run=$1 arguments=() setting
  shift
  for setting; do arguments+=(--set "$setting"); done
  rm -rf "${scratch:?}/$run"
  /usr/bin/time -f '%M' -o "$scratch/kib" "$trident" train --config "$config" --set "parallel.data=$ranks" --set "run.dir=$scratch/$run" \
    --set "data.train=$scratch/text" --set log.every=1 "${settings[@]}" "${arguments[@]}" >"$scratch/$run.log" 2>&1 || {
      echo "bench_checkpoint.sh: trident train failed:" >&2
      tail -n 5 "$scratch/$run.log" >&2
      exit 1
    }
  kib=$(tail -n 1 "$scratch/kib")
}

seconds_of() { local begin=$EPOCHREALTIME; "$@" >/dev/null; awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }'; }
write_with_dd() { local file; for file in "$memory"/*; do dd if="$file" of="$scratch/dd_${file##*/}" bs=4M oflag=direct conv=fsync status=none; done; sync -f "$scratch"; }
read_with_dd() { local file; for file in "$scratch"/dd_*; do dd if="$file" of=/dev/null bs=4M iflag=direct status=none; done; }

# The pages of a folder's files leave the cache.
forget() { local file; find "$1" -type f | while read -r file; do dd if="$file" iflag=nocache count=0 status=none; done; }

# ---- throughput ------------------------------------------------------------------------------------------------------------------

for ((round = 1; round <= repeats; ++round)); do
  train saved run.steps=2 checkpoint.every=1000
  checkpoint=$(ls -d "$scratch"/saved/ckpt/step-*)
  bytes=$(du -sb --apparent-size "$checkpoint" | cut -f1)
  written=$(sed -n 's/^checkpoint of step 2: written within \([0-9.]*\) s.*/\1/p' "$scratch/saved.log")
  if ((round == 1)); then  # the same bytes, in files a multiple of direct I/O's blocks
    find "$checkpoint" -name '*.safetensors' | while read -r file; do
      cp "$file" "$memory/$(echo "${file#"$checkpoint"/}" | tr / _)"
      truncate -s %4096 "$memory/$(echo "${file#"$checkpoint"/}" | tr / _)"
    done
  fi
  dd_written=$(seconds_of write_with_dd)
  sync
  forget "$checkpoint"
  verified=$(seconds_of "$trident" ckpt verify "$checkpoint")
  dd_read=$(seconds_of read_with_dd)
  echo "$bytes $written $dd_written $verified $dd_read" >>"$scratch/throughput"
  echo "round $round: $bytes bytes written in $written s (dd $dd_written), read in $verified s (dd $dd_read)" >&2
  rm -f "$scratch"/dd_*
done

# ---- what training waits ---------------------------------------------------------------------------------------------------------

every=4
train plain "run.steps=$every" checkpoint.every=0
plain_kib=$kib
train often "run.steps=$((every * (saves + 1) + 1))" "checkpoint.every=$every" checkpoint.keep_last=1
often_kib=$kib
left_out=$(grep -c '^no checkpoint of step' "$scratch/often.log" || true)

printf '%s, %s cores, commit %s, %s%s, %s thread ranks; medians of %s rounds, %s saves (%s left out because one was in progress).\n\n' \
  "$(date -u +%Y-%m-%d)" "$(nproc)" "$(git describe --always --dirty 2>/dev/null || echo unknown)" "$config" "${settings[*]:+ ${settings[*]}}" "$ranks" "$repeats" \
  "$saves" "$left_out"
awk -v every="$every" -v extra=$((often_kib - plain_kib)) '
  function sort(values, n,   i, j, v) { for (i = 2; i <= n; ++i) { v = values[i]; for (j = i; j > 1 && values[j - 1] > v; --j) values[j] = values[j - 1]; values[j] = v } }
  function number(key,   text) { match($0, "\"" key "\": *[0-9.e+-]+"); text = substr($0, RSTART, RLENGTH); sub(/.*: */, "", text); return text + 0 }
  FILENAME ~ /throughput$/ { ++rounds; bytes = $1; ours_w[rounds] = bytes / $2 / 1e6; dd_w[rounds] = bytes / $3 / 1e6; ours_r[rounds] = bytes / $4 / 1e6; dd_r[rounds] = bytes / $5 / 1e6
    ratio_w[rounds] = $3 / $2; ratio_r[rounds] = $5 / $4; next }
  { step = number("step"); held += number("save_ms"); steps[++lines] = number("step_ms")
    if (step > every && step % every == 0) { held_up[++n] = held; held = 0 } else if (step == every) held = 0 }
  END {
    sort(ours_w, rounds); sort(dd_w, rounds); sort(ours_r, rounds); sort(dd_r, rounds); sort(ratio_w, rounds); sort(ratio_r, rounds); sort(held_up, n); sort(steps, lines)
    m = int((rounds + 1) / 2)
    print "| | checkpoint | dd | ratio |"
    print "|---|---|---|---|"
    printf "| write, MB/s (%.0f MB) | %.0f | %.0f | %.2f |\n", bytes / 1e6, ours_w[m], dd_w[m], ratio_w[m]
    printf "| read, MB/s | %.0f | %.0f | %.2f |\n", ours_r[m], dd_r[m], ratio_r[m]
    print "\n| | median | p95 | largest |"
    print "|---|---|---|---|"
    printf "| a save holds training up, ms | %.1f | %.1f | %.1f |\n", held_up[int((n + 1) / 2)], held_up[int(n * 0.95 + 0.999999)], held_up[n]
    printf "| a step, ms | %.1f | %.1f | %.1f |\n", steps[int((lines + 1) / 2)], steps[int(lines * 0.95 + 0.999999)], steps[lines]
    printf "\nMemory: %.0f MB more than without saving.\n", extra / 1e3 * 1.024
  }' "$scratch/throughput" "$scratch/often/timing.jsonl"
