#!/usr/bin/env bash
# slurm_test.sh TRAIN_SBATCH: what the batch script starts, when it requeues, and that a signal reaches the ranks; srun, mpirun and scontrol are
# stand-ins that write down how they were called.
set -euo pipefail
script=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir "$place/bin"
log=$place/log

# A launcher that ends with $FAKE_STATUS; with "wait" only when SIGUSR1 comes, as the trainer does: 75.
cat >"$place/bin/srun" <<'SH'
#!/usr/bin/env bash
printf '%s%s\n' "${0##*/}" "$(printf '|%s' "$@")" >>"$FAKE_LOG"
if [[ $FAKE_STATUS == wait ]]; then
  trap 'echo signalled >>"$FAKE_LOG"; exit 75' USR1
  : >"$FAKE_LOG.ready"
  for ((i = 0; i < 3000; ++i)); do sleep 0.02; done
  FAKE_STATUS=99
fi
exit "$FAKE_STATUS"
SH
cp "$place/bin/srun" "$place/bin/mpirun"
printf '#!/usr/bin/env bash\necho "scontrol $*" >>"$FAKE_LOG"\n' >"$place/bin/scontrol"
chmod +x "$place/bin/"*
# A trainer whose configuration says checkpoint.every = $FAKE_EVERY; eval.every is another key. "refused": no configuration at all.
cat >"$place/trident" <<'SH'
#!/usr/bin/env bash
[[ $FAKE_EVERY != refused ]] || exit 64
printf '{\n  "eval": {\n    "every": 7,\n    "steps": 10\n  },\n  "checkpoint": {\n    "dir": null,\n    "every": %s,\n    "keep_every": 0\n  }\n}\n' "$FAKE_EVERY"
[[ ${*: -1} == --print-config ]] || echo "trident was started beside the launcher: $*" >>"$FAKE_LOG"
SH
chmod +x "$place/trident"
echo '{}' >"$place/c.json"

fail() { echo "$1"; echo "-- log:"; cat "$log" 2>/dev/null; echo "-- output:"; cat "$place/out"; exit 1; }

# batch EXPECTED_STATUS NAME=VALUE... -- ARGUMENT...: runs the script as Slurm would.
batch() {
  local expected=$1 status=0 settings=()
  shift
  while [[ $1 != -- ]]; do settings+=("$1"); shift; done
  shift
  rm -f "$log"
  env PATH="$place/bin:$PATH" FAKE_LOG="$log" FAKE_STATUS=0 FAKE_EVERY=100 SLURM_SUBMIT_DIR="$place" SLURM_JOB_ID=17 SLURM_NTASKS=32 SLURM_CPUS_PER_TASK=2 \
    TRIDENT=./trident "${settings[@]}" "$script" "$@" >"$place/out" 2>&1 || status=$?
  ((status == expected)) || fail "status $status, expected $expected (${settings[*]})"
}
logged() { [[ $(cat "$log") == "$1" ]] || fail "expected exactly: $1"; }

batch 0 -- c.json --set 'parallel=2DP x 4PP x 4TP'
logged 'srun|--mpi=pmix|--cpus-per-task=2|--kill-on-bad-exit=0|./trident|train|--config|c.json|--set|parallel=2DP x 4PP x 4TP'
batch 0 TRIDENT= PATH="$place:$place/bin:$PATH" -- c.json
logged "srun|--mpi=pmix|--cpus-per-task=2|--kill-on-bad-exit=0|$place/trident|train|--config|c.json"
batch 0 LAUNCHER=mpirun -- c.json
logged 'mpirun|-np|32|--map-by|slot:PE=2|--bind-to|core|./trident|train|--config|c.json'

for launcher in srun mpirun; do
  batch 75 LAUNCHER=$launcher FAKE_STATUS=75 -- c.json
  [[ $(tail -n 1 "$log") == 'scontrol requeue 17' ]] || fail "75 under $launcher does not requeue"
  for status in 0 1 64 65 70 74 76 93 137 138 143; do
    batch $status LAUNCHER=$launcher FAKE_STATUS=$status -- c.json
    ! grep -q scontrol "$log" || fail "$status under $launcher requeues"
    grep -q "ended with $status" "$place/out" || fail "does not say $status"
  done
done

batch 75 FAKE_STATUS=75 SLURM_RESTART_COUNT=3 MAX_REQUEUES=4 -- c.json
grep -q scontrol "$log" || fail "the fourth requeue of four is refused"
batch 75 FAKE_STATUS=75 SLURM_RESTART_COUNT=4 MAX_REQUEUES=4 -- c.json
! grep -q scontrol "$log" || fail "requeues more often than MAX_REQUEUES"
grep -q 'raise MAX_REQUEUES' "$place/out" || fail "does not say why it stays"

# Refused before anything is started.
batch 64 -- missing.json
grep -q 'CONFIG = "missing.json"' "$place/out" || fail "missing.json is not named"
batch 64 --
batch 64 TRIDENT=./nothing -- c.json
grep -q 'TRIDENT = "./nothing"' "$place/out" || fail "the program is not named"
batch 64 LAUNCHER=ssh -- c.json
[[ ! -e $log ]] || fail "something was started"

# A node failure: Slurm starts the job again, which goes on; not where nothing is saved.
grep -q '^#SBATCH --requeue$' "$script" || fail "does not let Slurm requeue after a node failure"
for every in 0 null; do
  batch 0 FAKE_EVERY=$every -- c.json
  [[ $(head -n 1 "$log") == 'scontrol update JobId=17 Requeue=0' ]] || fail "checkpoint.every $every: Slurm may requeue"
  grep -q "checkpoint.every is $every" "$place/out" || fail "does not say why it will not be requeued"
done
# Only the end is saved: to node failures that is nothing, and what a signal or the time limit saved is gone on from.
batch 137 FAKE_EVERY='"end"' FAKE_STATUS=137 -- c.json
[[ $(grep scontrol "$log") == 'scontrol update JobId=17 Requeue=0' ]] || fail "checkpoint.every end: Slurm may requeue"
batch 75 FAKE_EVERY='"end"' FAKE_STATUS=75 -- c.json
[[ $(tail -n 2 "$log") == $'scontrol update JobId=17 Requeue=1\nscontrol requeue 17' ]] || fail "checkpoint.every end: 75 stays"
for every in 1 100 refused; do
  batch 0 FAKE_EVERY=$every -- c.json
  ! grep -q scontrol "$log" || fail "checkpoint.every $every: Slurm may not requeue"
done

# USR1 to the batch shell, as --signal=B:USR1@300 sends it, goes to the launcher; its 75 requeues.
grep -q '^#SBATCH --signal=B:USR1@' "$script" || fail "asks for no signal"
for launcher in srun mpirun; do
  rm -f "$log" "$log.ready"
  env PATH="$place/bin:$PATH" FAKE_LOG="$log" FAKE_STATUS=wait FAKE_EVERY=100 LAUNCHER=$launcher SLURM_SUBMIT_DIR="$place" SLURM_JOB_ID=17 SLURM_NTASKS=2 \
    TRIDENT=./trident "$script" c.json >"$place/out" 2>&1 &
  job=$!
  for ((i = 0; i < 3000; ++i)); do [[ ! -e $log.ready ]] || break; sleep 0.02; done
  kill -USR1 $job
  status=0
  wait $job || status=$?
  ((status == 75)) || fail "after USR1 under $launcher: status $status, expected 75"
  grep -q signalled "$log" || fail "the signal did not reach $launcher"
  grep -q 'scontrol requeue 17' "$log" || fail "no requeue after USR1 under $launcher"
done
echo "train.sbatch starts, signals and requeues as it says"
