#!/usr/bin/env bash
# bench_overhead.sh [--repeats N] [--steps K] [--config FILE] [--set PATH=VALUE]... [--layouts "1 8 32"] [--only threads|mpi]
#                   [--warm-memory GIB] [--trident PROGRAM]:
# what it costs to spread one model over many ranks, as one Markdown table on standard output. Nothing is kept.
#
# The same model, batch and data run as one rank, as 2DP x 2PP x 2TP and as 2DP x 4PP x 4TP, the latter two as threads of one process
# and, where mpirun and an MPI build are there, as processes. All layouts run in turn, N times over; the table holds medians.
#
#   CPU          user + system time of the whole process tree, from the end of step 1 to the end of step K-1, per 1000 tokens: start-up
#                and first touch are outside. Read from /proc, so a step's end is seen within milliseconds.
#   step         median of the steps' own times in metrics.jsonl, steps 2 to K-1
#   start        from the launch to the end of step 1, less one such step; and the CPU time of the same, which other programs do not stretch
#                Many virtual machines get a page from their host when a program first touches it, at a third of a GiB per second and
#                core; --warm-memory fills and frees that many GiB before each run, so that the guest has its pages and the start
#                is the program's own
#   memory       sum over processes of the proportional set size, read during step K
#   switches     voluntary and involuntary context switches of all threads, per step
#   elsewhere    share of the machine's CPU time that other programs took meanwhile: CPU seconds bear it, step and start do not
#
# The targets in the table are those of configs/overhead_32m.json as it stands; other models are printed without.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

usage() { sed -n '2,5s/^# //p' "$0" >&2; exit 64; }
repeats=3 steps=8 config=configs/overhead_32m.json layouts='1 8 32' only='' warm_gib=0 trident=build/release/bin/trident settings=()
while (($#)); do
  (($# >= 2)) || usage
  case $1 in
    --repeats) repeats=$2 ;;
    --steps) steps=$2 ;;
    --config) config=$2 ;;
    --set) settings+=(--set "$2") ;;
    --layouts) layouts=$2 ;;
    --only) only=$2 ;;
    --warm-memory) warm_gib=$2 ;;
    --trident) trident=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[[ $repeats =~ ^[1-9][0-9]*$ && $steps =~ ^[0-9]+$ && $only =~ ^(threads|mpi|)$ && $warm_gib =~ ^[0-9]+$ ]] && ((steps >= 4)) || usage
[[ -x $trident ]] || { echo "bench_overhead.sh: $trident is missing; run scripts/build.sh release trident" >&2; exit 64; }

scratch=$(mktemp -d)
running=''
trap '[[ -z $running ]] || kill "$running" 2>/dev/null; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

"$trident" data prepare --input data/excerpt/train.txt --separator-line '<|endoftext|>' --append-eod --tokenizer gpt2 \
  --output "$scratch/text" >"$scratch/prepare.log"

# ---- one run ---------------------------------------------------------------------------------------------------------------------

# Process ids of $1 and all its descendants, into the array `tree`.
find_tree() {
  tree=("$1")
  local i=0 children
  while ((i < ${#tree[@]})); do
    for list in /proc/"${tree[i]}"/task/*/children; do
      read -r children 2>/dev/null <"$list" || true
      tree+=($children)
    done
    i=$((i + 1))
  done
}

# Clock ticks of user and system time that the processes of `tree` have used, into `ticks`.
count_ticks() {
  local pid line
  ticks=0
  for pid in "${tree[@]}"; do
    read -r line 2>/dev/null <"/proc/$pid/stat" || continue
    set -- ${line##*) }
    ticks=$((ticks + ${12} + ${13}))
  done
}

# Clock ticks that all programs of the machine have used, into `machine`.
count_machine() {
  local _ user nice system idle iowait irq softirq rest
  read -r _ user nice system idle iowait irq softirq rest </proc/stat
  machine=$((user + nice + system + irq + softirq))
}

context_switches() { cat $(printf '/proc/%s/task/*/status ' "${tree[@]}") 2>/dev/null | awk '/ctxt_switches/ { n += $2 } END { print n + 0 }'; }
proportional_kib() { cat $(printf '/proc/%s/smaps_rollup ' "${tree[@]}") 2>/dev/null | awk '/^Pss:/ { n += $2 } END { print n + 0 }'; }

# In huge pages, because those are what the run asks for.
warm_memory() {
  python3 -c '
import mmap, sys
memory = mmap.mmap(-1, int(sys.argv[1]) << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
for page in range(0, len(memory), 4096): memory[page] = 1' "$1"
}

# run_once NAME COMMAND...: appends "NAME cpu_per_1k step_s start_s pss_gib switches elsewhere start_cpu_s" to the results.
run_once() {
  local name=$1 launched first='' line output
  shift
  rm -rf "$scratch/run"
  ((warm_gib == 0)) || warm_memory "$warm_gib"
  launched=$EPOCHREALTIME
  exec {output}< <(exec "$@" 2>&1)
  running=$!
  : >"$scratch/log"
  while IFS= read -r line <&"$output"; do
    printf '%s\n' "$line" >>"$scratch/log"
    case $line in
      *"] step 1/"*)
        first=$EPOCHREALTIME
        find_tree "$running"; count_ticks; count_machine
        local ticks_1=$ticks machine_1=$machine switches_1
        switches_1=$(context_switches) ;;
      *"] step $((steps - 1))/"*)
        count_ticks; count_machine
        local ticks_2=$ticks machine_2=$machine switches_2 kib now=$EPOCHREALTIME
        switches_2=$(context_switches)
        kib=$(proportional_kib) ;;
    esac
  done
  exec {output}<&-
  local status=0
  wait "$running" || status=$?
  running=''
  if ((status != 0)); then
    echo "bench_overhead.sh: $name ended with status $status:" >&2
    tail -n 5 "$scratch/log" >&2
    exit 1
  fi
  awk -v name="$name" -v k="$steps" -v before="$ticks_1" -v ticks=$((ticks_2 - ticks_1)) -v machine=$((machine_2 - machine_1)) -v hz="$(getconf CLK_TCK)" \
    -v launched="$launched" -v first="$first" -v now="$now" -v switches=$((switches_2 - switches_1)) -v kib="$kib" -v cores="$(nproc)" '
    { match($0, /"step_ms": *[0-9.]+/); ms = substr($0, RSTART, RLENGTH); sub(/.*: */, "", ms); step[NR] = ms / 1000
      match($0, /"tokens": *[0-9]+/); tokens = substr($0, RSTART, RLENGTH); sub(/.*: */, "", tokens); total[NR] = tokens }
    END {
      n = 0
      for (i = 2; i < k; ++i) { v = step[i]; for (j = ++n; j > 1 && sorted[j - 1] > v; --j) sorted[j] = sorted[j - 1]; sorted[j] = v }
      median = n % 2 ? sorted[(n + 1) / 2] : (sorted[n / 2] + sorted[n / 2 + 1]) / 2
      printf "%s %.4f %.3f %.2f %.3f %.0f %.2f %.2f\n", name, ticks / hz / (total[k - 1] - total[1]) * 1000, median, first - launched - median,
        kib / 1048576, switches / (k - 2), (machine - ticks) / hz / cores / (now - first), (before - ticks / (k - 2)) / hz }' "$scratch/run/metrics.jsonl" >>"$scratch/results"
}

# run_layout RANKS threads|mpi
run_layout() {
  local name=$1-$2 degrees
  case $1 in
    1) degrees=(1 1 1) ;;
    8) degrees=(2 2 2) ;;
    32) degrees=(2 4 4) ;;
    *) usage ;;
  esac
  local launcher=()
  if [[ $2 == mpi ]]; then
    launcher=("$mpirun" --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np "$1")
    ((EUID != 0)) || launcher+=(--allow-run-as-root)
  fi
  run_once "$name" "${launcher[@]}" "$trident" train --config "$config" "${settings[@]}" \
    --set "parallel.data=${degrees[0]}" --set "parallel.pipeline=${degrees[1]}" --set "parallel.tensor=${degrees[2]}" \
    --set "run.steps=$steps" --set "run.dir=$scratch/run" --set "data.train=$scratch/text" \
    --set checkpoint.every=0 --set log.every=1
}

# ---- all of them -----------------------------------------------------------------------------------------------------------------

mpirun=$(command -v mpirun || true)
if [[ $only != threads && -n $mpirun ]] && [[ $(ldd "$trident") != *libmpi* ]]; then mpirun=''; fi
if [[ $only == mpi && -z $mpirun ]]; then echo "bench_overhead.sh: no mpirun here, or $trident is built without MPI" >&2; exit 64; fi
cases=()
for ranks in $layouts; do
  if ((ranks == 1)); then cases+=(1:threads); continue; fi
  [[ $only == mpi ]] || cases+=("$ranks:threads")
  [[ $only == threads || -z $mpirun ]] || cases+=("$ranks:mpi")
done
for ((round = 1; round <= repeats; ++round)); do
  for one in "${cases[@]}"; do
    run_layout "${one%:*}" "${one#*:}"
    echo "round $round: $(tail -n 1 "$scratch/results")" >&2
  done
done

commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
# The first line of /proc/cpuinfo that begins with $1, without that.
of_cpu() { sed -n "/^$1[[:space:]]*: /{s/^[^:]*: //p;q}" /proc/cpuinfo; }
tokens=$(awk 'NR == 1 { match($0, /"tokens": *[0-9]+/); t = substr($0, RSTART, RLENGTH); sub(/.*: */, "", t); print t }' "$scratch/run/metrics.jsonl")
printf '%s, %s cores of %s (family %s model %s), commit %s, %s%s: %s tokens a step, %s runs of each layout in turn, steps 2 to %s of %s.\n\n' \
  "$(date -u +%Y-%m-%d)" "$(nproc)" "$(of_cpu 'model name')" "$(of_cpu 'cpu family')" "$(of_cpu model)" \
  "$commit" "$config" "${settings[*]:+ ${settings[*]}}" "$tokens" "$repeats" \
  "$((steps - 1))" "$steps"
awk -v targets=$([[ $config == configs/overhead_32m.json && ${#settings[@]} == 0 ]] && echo 1 || echo 0) '
  function median(name, column,   n, i, j, v, sorted) {
    n = 0
    for (i = 1; i <= runs[name]; ++i) { v = value[name, i, column]; for (j = ++n; j > 1 && sorted[j - 1] > v; --j) sorted[j] = sorted[j - 1]; sorted[j] = v }
    return n % 2 ? sorted[(n + 1) / 2] : (sorted[n / 2] + sorted[n / 2 + 1]) / 2
  }
  function judged(text, number, target) { return targets && target ? sprintf("%s (%s %s)", text, number <= target ? "<=" : "**over**", target) : text }
  { if (!($1 in runs)) order[++count] = $1
    ++runs[$1]; for (c = 2; c <= NF; ++c) value[$1, runs[$1], c] = $c }
  END {
    ratio["8-threads"] = ratio["8-mpi"] = 1.00; ratio["32-threads"] = ratio["32-mpi"] = 1.05
    start["8-threads"] = 1.2; start["32-threads"] = 2; start["8-mpi"] = start["32-mpi"] = 3
    memory["32-threads"] = 1.2; memory["32-mpi"] = 1.7
    print "| ranks | as | CPU-s per 1k tokens | over one rank | step, s | start, s | start, CPU-s | memory, GiB | switches a step | elsewhere |"
    print "|---|---|---|---|---|---|---|---|---|---|"
    for (i = 1; i <= count; ++i) {
      name = order[i]; split(name, part, "-")
      own = median(name, 2); base = ("1-threads" in runs) ? median("1-threads", 2) : 0
      over = base && part[1] > 1 ? judged(sprintf("%.2f", own / base), own / base, ratio[name]) : "-"
      printf "| %s | %s | %s | %s | %.2f | %s | %.1f | %s | %d | %d %% |\n", part[1], (part[1] > 1 ? part[2] : "-"), sprintf("%.3f", own),
        over, median(name, 3), judged(sprintf("%.1f", median(name, 4)), median(name, 4), start[name]), median(name, 8),
        judged(sprintf("%.2f", median(name, 5)), median(name, 5), memory[name]), median(name, 6), 100 * median(name, 7)
    }
  }' "$scratch/results"
