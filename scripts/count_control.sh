#!/usr/bin/env bash
# count_control.sh [--build FOLDER] [--keep FOLDER] [--kill STEP] NODES SLOTS LAYOUT BATCH: what ranks exchange beside tensors, by phase, counted on
# nodes of scripts/nodes.sh.
#
#   scripts/count_control.sh 4 16 '8DP x 2PP x 4TP' 64
#   scripts/count_control.sh --kill 3 4 16 '8DP x 2PP x 4TP' 64
#
# Jobs of NODES x SLOTS ranks under mpirun train nothing, 2 steps, 4 steps, and 4 steps with a line of the log for each; a preloaded library
# (tests/mpi/mpi_counts.cpp, target mpi_counts) counts what each rank asks of MPI. Their differences are a step, a line, and what is left of the start and
# the end. Prints the most of any rank: messages and bytes sent on the world's and the statistics' communicators; what the start asks of MPI's own
# collectives, as calls and bytes held; TCP connections at the end; anonymous memory that a run takes after MPI_Init.
# --kill STEP: a failure instead. The last rank of one job is killed after STEP steps. Prints what the others said on the lifeline, by kind of word: rank 0,
# the deputy, the most of any other, and of all together. mpirun, which would end them a second after the kill, is told to leave them 20 s.
# --build: with bin/trident and tests/mpi/libmpi_counts.so, build/release by default. --keep: where the counts of each job stay.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { echo "usage: count_control.sh [--build FOLDER] [--keep FOLDER] [--kill STEP] NODES SLOTS LAYOUT BATCH" >&2; exit 64; }
build=build/release keep='' kill_at=''
while (($#)); do
  case $1 in
    --build) build=${2-}; shift 2 || usage ;;
    --keep) keep=${2-}; shift 2 || usage ;;
    --kill) kill_at=${2-}; shift 2 || usage ;;
    *) break ;;
  esac
done
(($# == 4)) && [[ -z $kill_at || $kill_at =~ ^[1-9][0-9]*$ ]] || usage
nodes=$1 slots=$2 layout=$3 batch=$4
trident=$(realpath "$build/bin/trident") counter=$(realpath "$build/tests/mpi/libmpi_counts.so")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ -z $keep ]] || { mkdir -p "$keep"; }

"$trident" data prepare --input data/excerpt/train.txt --separator-line '<|endoftext|>' --append-eod --tokenizer gpt2 --output "$work/text" >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; exit 1; }

# What runs beside the nodes: the job; where STEP is given, the process that VICTIM names is killed after so many steps.
cat >"$work/beside" <<'BESIDE'
step=$1 metrics=$2 victim=$3
shift 3
[[ -n $step ]] || exec "$@"
"$@" &
job=$!
until [[ -f $metrics && $(wc -l <"$metrics") -ge $step ]]; do
  kill -0 $job || exit 1
  sleep 0.05
done
kill -KILL "$(awk '$1 == "pid" { print $2 }' "$victim")"
wait $job
BESIDE

# job NAME EXIT_CODE SETTING...
job() {
  local name=$1 expected=$2 settings=() code=0
  shift 2
  for setting; do settings+=(--set "$setting"); done
  mkdir -p "$work/$name"
  scripts/nodes.sh --slots "$slots" "$nodes" bash "$work/beside" "$kill_at" "$work/$name.run/metrics.jsonl" "$work/$name/$((nodes * slots - 1)).lifeline" \
    mpirun -np $((nodes * slots)) --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca odls_base_sigkill_timeout 20 \
    -x LD_PRELOAD="$counter" -x MPI_COUNTS="$work/$name" "$trident" train --config configs/one_node_8.json --set model.preset=llama-1m \
    --set batch.sequence=64 --set batch.micro=1 --set eval.every=0 --set checkpoint.every=0 --set data.split=null --set parallel.zero=zero1 --set batch.global="$batch" \
    --set parallel="\"$layout\"" --set "data.train=\"$work/text\"" --set run.dir="$work/$name.run" "${settings[@]}" >"$work/log" 2>&1 || code=$?
  ((code == expected)) || { cat "$work/log" >&2; exit 1; }
  [[ -z $keep ]] || cp -r "$work/$name" "$keep"
}

if [[ -n $kill_at ]]; then
  job killed 137 run.steps=100000 log.every=1
  awk -v killed=$((nodes * slots - 1)) -v deputy=$((nodes > 1 ? slots : 1)) '
    {
      rank = FILENAME
      sub(/.*\//, "", rank)
      if (int(rank) == killed || $1 == "pid" || $2 == 0) next
      bytes[$1] = $3 / $2
      total[$1] += $2
      if (int(rank) == 0) hub[$1] = $2
      else if (int(rank) == deputy) second[$1] = $2
      else if ($2 > other[$1]) other[$1] = $2
    }
    END {
      for (word in bytes)
        printf "%-9s of %4d bytes: rank 0 %d times, the deputy %d, another rank %d at most; %d in all\n", word, bytes[word], hub[word], second[word], other[word],
               total[word] | "sort"
    }' "$work"/killed/*.lifeline
  grep -a 'error: rank' "$work/log" || true
  exit 0
fi

job nothing 0 run.steps=2 run.max_minutes=1e-9
job two 0 run.steps=2 log.every=1000
job four 0 run.steps=4 log.every=1000
job lines 0 run.steps=4 log.every=1

# Tags come in threes, in the order in which the trainer splits: 0 the world; 6 to 9 the statistics over tp, cp, dp, pp.
awk -v work="$work" '
  function control(what, group) {
    if (what !~ /^tag_/) return 0
    group = int(substr(what, 5) / 3)
    return group == 0 || (group >= 6 && group <= 9)
  }
  function most(phase, n, b) {
    if (n > messages[phase]) messages[phase] = n
    if (b > bytes[phase]) bytes[phase] = b
  }
  {
    split(FILENAME, path, "/")
    name = path[length(path) - 1]
    rank = path[length(path)]
    ranks[rank] = 1
    if (control($1)) { n[name, rank] += $2; b[name, rank] += $3 }
    else if ($1 ~ /^MPI_/) {
      if (name == "nothing" && $2 > calls[$1]) calls[$1] = $2
      if (name == "nothing" && $3 > held[$1]) held[$1] = $3
    } else if (name == "lines") other[$1, rank] = $3
  }
  END {
    for (r in ranks) {
      step_n = (n["four", r] - n["two", r]) / 2; step_b = (b["four", r] - b["two", r]) / 2
      line_n = (n["lines", r] - n["four", r]) / 2; line_b = (b["lines", r] - b["four", r]) / 2
      most("start", n["nothing", r], b["nothing", r])
      most("step", step_n, step_b)
      most("line", line_n, line_b)
      most("end", n["two", r] - n["nothing", r] - 2 * step_n - 2 * line_n, b["two", r] - b["nothing", r] - 2 * step_b - 2 * line_b)
      grown = other["anonymous_memory_at_end", r] - other["anonymous_memory_after_init", r]
      if (grown > growth) growth = grown
      if (other["connections", r] > connections) connections = other["connections", r]
      sum += other["connections", r]; ++count
    }
    for (i = 1; i <= split("start step line end", phases, " "); ++i) printf "%-6s %6d messages %10d bytes\n", phases[i], messages[phases[i]], bytes[phases[i]]
    for (what in calls) printf "start: %s %d calls, %d bytes\n", what, calls[what], held[what] | "sort"
    close("sort")
    printf "connections: %d at most, %.1f in the mean\n", connections, sum / count
    printf "anonymous memory after MPI_Init: %.1f MB more at most\n", growth / 1e6
  }' "$work"/{nothing,two,four,lines}/*.txt
