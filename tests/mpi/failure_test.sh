#!/usr/bin/env bash
# failure_test.sh MPIRUN_LOCAL FAILING_RANK: what the ranks of a job say when one of them does something wrong, and what a killed job
# leaves behind.
set -euo pipefail
mpirun_local=$1 program=$2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
# Open MPI keeps a folder of its own for every job; the longest socket name in it has to fit 108 characters.
mkdir "$tree/tmp"
export TMPDIR=$tree/tmp

fail() {
  echo "$1"
  (cd "$tree" && head -n 20 log out/* 2>/dev/null) || true
  exit 1
}

# job RANKS WHAT: runs it; its status.
job() {
  rm -rf "$tree/out"
  mkdir "$tree/out"
  status=0
  "$mpirun_local" "$1" "$program" "$tree/out" "$2" >"$tree/log" 2>&1 || status=$?
  if ((status == 77)); then
    cat "$tree/log"
    exit 77
  fi
}
# said RANK PATTERN
said() { grep -qE "^$2" "$tree/out/$1" || fail "rank $1 did not end with: $2"; }

job 3 nothing
((status == 0)) || fail "status $status where all is well"
for r in 0 1 2; do said $r '0 finished$'; done

job 3 throws
((status != 0)) || fail "a rank threw and the job ended well"
said 1 '65 a file is damaged$'
for r in 0 2; do said $r '76 rank 1 failed: a file is damaged$'; done

job 3 is_late
((status != 0)) || fail "a rank was late and the job ended well"
grep -qE '^76 rank [02] waited [0-9.]+ s in all_reduce #2 over world: rank 1 has not arrived$' "$tree/out/0" "$tree/out/2" || fail "nobody named the late rank"
said 1 '76 rank [02] waited'

job 3 is_outside
((status == 0)) || fail "status $status where an operand lies in memory of the rank's own"
for r in 0 1 2; do said $r '0 finished$'; done

job 3 leaves
said 1 '0 left$'
for r in 0 2; do said $r '76 rank 1 ended$'; done

job 3 is_limited
for r in 0 1 2; do said $r '64 the ranks of a node share one segment of memory, which this system refuses: mapping 17592 GB .* raise ulimit -v$'; done

# A rank is killed: the launcher ends the others, and nothing of ours outlives them.
mpis='(vader|sm)_segment\.'  # Open MPI's own files, of 4 and of 5
ours() { { ls -A /dev/shm | grep -vE "^$mpis" || true; } && { ls -A "$tree/tmp" | grep -vE '^(ompi|prte|pmix)' || true; }; }
before=$(ours)
rm -rf "$tree/out"
mkdir "$tree/out"
"$mpirun_local" 4 "$program" "$tree/out" lives >"$tree/log" 2>&1 &
launcher=$!
for ((i = 0; i < 600; i++)); do
  (($(ls "$tree/out" | grep -cE '^[0-9]+$' || true) < 4)) || break
  sleep 0.1
done
pids=$(cat "$tree"/out/[0-3])
[[ $(wc -w <<<"$pids") == 4 ]] || fail "not all ranks came to life"
for pid in $pids; do
  grep -q '/memfd:trident (deleted)' "/proc/$pid/maps" || fail "process $pid has no segment"
  ! grep -E '/dev/shm/' "/proc/$pid/maps" | grep -vE "/dev/shm/$mpis" || fail "process $pid uses /dev/shm"
done
[[ $(ours) == "$before" ]] || fail "a running job has files: $(ours)"
kill -KILL "$(cat "$tree/out/2")"
status=0
wait "$launcher" || status=$?
((status != 0)) || fail "a rank was killed and the job ended well"
for pid in $pids; do
  for ((i = 0; i < 100; i++)); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  ! kill -0 "$pid" 2>/dev/null || fail "process $pid outlives its job"
done
[[ $(ours) == "$before" ]] || fail "a killed job leaves: $(ours)"
echo "every failure is named, and nothing stays behind"
