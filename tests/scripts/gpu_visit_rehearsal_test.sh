#!/usr/bin/env bash
# gpu_visit_rehearsal_test.sh SCRIPTS: a visit to a card by a clock of its own. gpu_visit.sh and gpu_bench.sh are the real ones;
# the trainer, PyTorch, the checks and ncu are stand-ins that take as long as the real ones may be expected to: the trainer at the
# rates that are wanted of it on an H200, PyTorch at 1 / 1.15 of them. These are assumptions, not measurements. Every part has to
# end within nine minutes, also where everything takes ten times as long, and a part that is killed in the midst of any of its
# stages leaves what was known and goes on with the rows it has.
set -euo pipefail
scripts=$(realpath "$1")
. "$(dirname "$0")/card_stand_ins.sh"
most_seconds=540 most_files=8 most_bytes=$((16 << 20))

tree=$place/tree
mkdir -p "$tree/scripts" "$tree/bag/packages" "$place/pack/programs/bin" "$tree/device/cuda"
cp "$scripts"/gpu_{visit,libraries,machine,bench}.sh "$tree/scripts/"
cp -r "$scripts/../cmake" "$tree/"
cp "$scripts/../device/cuda/cudnn_attention_rules.cpp" "$tree/device/cuda/"
sed -i "s|^kept=.*|kept=$place/kept|" "$tree/scripts/gpu_visit.sh"
: >"$tree/bag/packages/one.deb"
stand_in bin/dpkg-deb </dev/null
stand_in bin/cmake <<'SH'
#!/bin/sh
echo "cmake version 3.25.1"
SH
stand_in bin/perl </dev/null  # random tokens, which nobody reads

# ---- the clock: seconds in $place/clock
# spend SECONDS STAGE: they pass, up to the first end of a `timeout` around; then this waits to be ended. In the stage $FAKE_KILL
# the whole visit dies half-way, as its machine may.
cat >"$place/spend" <<'SH'
spend() {
  local now until pair flag='' seconds=$(($1 * ${FAKE_SLOWNESS:-1}))
  now=$(<"$FAKE_PLACE/clock")
  until=$((now + seconds))
  for pair in ${FAKE_ENDS:-}; do if ((${pair%%:*} < until)); then until=${pair%%:*} flag=${pair#*:}; fi; done
  echo "$2" >>"$FAKE_PLACE/stages"
  if [[ ${FAKE_KILL:-} == "$2" ]]; then
    echo $((now + (until - now) / 2)) >"$FAKE_PLACE/clock"
    pkill -KILL -s "$(ps -o sid= -p $$ | tr -d ' ')"
  fi
  echo "$until" >"$FAKE_PLACE/clock"
  if [[ -n $flag ]]; then : >"$flag"; exec sleep 120; fi
}
SH
stand_in bin/timeout <<'SH'
#!/bin/bash
if [[ $1 == -k ]]; then shift 2; fi
flag=$(mktemp -u "$FAKE_PLACE/over.XXXXXX")
exec {nothing}<> <(:)  # to wait for
FAKE_ENDS="${FAKE_ENDS:-} $(($(<"$FAKE_PLACE/clock") + $1)):$flag" "${@:2}" &
child=$!
trap 'kill -TERM $child 2>/dev/null' TERM
status=0
while kill -0 $child 2>/dev/null; do
  if [[ -e $flag ]]; then kill -TERM $child; wait $child; exit 124; fi
  read -rt 0.02 -u "$nothing" || true
done
wait $child || status=$?
exit $status
SH
stand_in bin/date <<'SH'
#!/bin/sh
if [ "$*" = +%s ]; then cat "$FAKE_PLACE/clock"; else exec /bin/date "$@"; fi
SH

# ---- what takes time
cat >"$place/pack/programs/bin/trident" <<'SH'
#!/bin/bash
. "$FAKE_PLACE/spend"
case $1 in
  --version) echo trident; exit ;;
  bench) spend 15 floors; echo "matmul 100 ms"; exit ;;
esac
config=$3 steps=${7#run.steps=} global=${9#batch.global=} micro=${5#batch.micro=}
model=$(sed -n 's/.*"preset": "\([^"]*\)".*/\1/p' "$config")
sequence=$(sed -n 's/.*"sequence": \([0-9]*\).*/\1/p' "$config")
run=$(sed -n 's/.*"dir": "\([^"]*\)".*/\1/p' "$config")
case $model in gpt2-124m) rate=550000 loss=10.98 ;; qwen2.5-0.5b) rate=165000 loss=12.11 ;; *) rate=64000 loss=12.17 ;; esac
stage=probe
if ((global * sequence == 524288)); then stage=timed; fi
spend $((6 + steps * global * sequence / rate)) "$stage $model"
mkdir -p "$run"
for ((s = 1; s <= steps; ++s)); do
  printf '{"step":%d,"loss":%s,"step_ms":%d.0,"tokens_per_s":%d,"mfu":0.4,"peak_bytes":2147483648,"comm_bytes":{"tp":0}}\n' \
    "$s" "$loss" $((1000 * global * sequence / rate)) "$rate"
done >"$run/metrics.jsonl"
SH
chmod +x "$place/pack/programs/bin/trident"
echo '90a-real CUDA 13' >"$place/pack/programs/brought"
echo 0123abc >"$place/pack/programs/commit"
tar -C "$place/pack" -czf "$tree/bag/programs.tar.gz" programs
stand_in bin/python <<'SH'
#!/bin/bash
. "$FAKE_PLACE/spend"
if [[ $1 == -c && $2 =~ (import|,)\ torch ]]; then spend 8 "importing torch"; echo "torch 2.11.0"; exit; fi
if [[ $1 == -c ]]; then spend 1 "looking for wheels"; exit 1; fi
model=$2 sequence=$4 tokens=$6 steps=$8 warmup=${10} most=${14}
case $model in gpt2-124m) rate=480000 loss=10.98 ;; qwen2.5-0.5b) rate=143000 loss=12.11 ;; *) rate=56000 loss=12.17 ;; esac
for ((i = 0; i < most; ++i)); do spend 35 "torch search $model"; done
for precision in bf16 autocast; do
  spend $((5 + (warmup + steps) * tokens / rate)) "torch timed $model"
  printf '{"timed": "%s", "first_loss": %s, "last_loss": 10.4, "precision": "%s", "compile": "default", "attention": "cudnn", ' \
    "$model" "$loss" "$precision"
  printf '"micro": 32, "step_ms": 1000.0, "tokens_per_s": %d, "peak_bytes": 4294967296, "torch": "2.11.0"}\n' "$rate"
done
SH
cat >"$tree/scripts/gpu_check.sh" <<'SH'
#!/bin/bash
. "$FAKE_PLACE/spend"
all=" $* " report=${all##* --report } stage=checks checks=30 each=6
report=${report%% *}
if [[ $all == *'--only memcheck'* ]]; then stage=sanitizers checks=4 each=70; fi
for ((i = 0; i < checks; ++i)); do
  echo "| check $i | passed |" >>"$report"
  spend $each "$stage"
done
SH
chmod +x "$tree/scripts/gpu_check.sh"
stand_in bin/ncu <<'SH'
#!/bin/bash
. "$FAKE_PLACE/spend"
all=" $* " log=${all##* --log-file }
head -c 20M /dev/zero | tr '\0' 'k' >"${log%% *}"
spend 150 ncu
SH

# ---- a part of the visit, in a session of its own
# part EXPECTED_STATUS PART NAME=VALUE...: from an empty folder of results.
part() {
  local expected=$1 name=$2 status=0 begun
  shift 2
  rm -rf "$place/results" "$place"/over.* "$place/stages"
  begun=$(<"$place/clock")
  { PATH="$place/bin:$PATH" PYTHON=python FAKE_PLACE="$place" env "$@" setsid -w \
    "$tree/scripts/gpu_visit.sh" "$name" "$tree/bag" "$place/results" >"$place/out" 2>&1 || status=$?; } 2>/dev/null
  took=$(($(<"$place/clock") - begun))
  ((status == expected)) || fail "$name $*: status $status, expected $expected"
  ((took <= most_seconds)) || fail "$name $*: $took s, more than $most_seconds"
  (($(find "$place/results" -type f | wc -l) <= most_files)) || fail "$name: more than $most_files files come back"
  if ((expected != 137)); then
    [[ -z $(find "$place/results" -type f -size +"$most_bytes"c) ]] || fail "$name: a file comes back that is too large"
  fi
}
row_of() { grep -qE "^\| $1 \| $2.* \| [0-9.]+ \| [0-9]+ \| " "$place/results/bench-$1.md"; }
models_of() { case $1 in checks) echo gpt2-124m ;; models) echo qwen2.5-0.5b llama3.2-1b ;; esac; }

echo 0 >"$place/clock"
total=0
for name in checks models rest; do
  rm -rf "$place/kept"  # each from nothing
  part 0 "$name"
  echo "$name: $took s"
  total=$((total + took))
  sort -u "$place/stages" >"$place/stages.$name"
  for model in $(models_of $name); do
    row_of "$model" trident || fail "$name: no row of ours for $model"
    [[ $model == llama* ]] || row_of "$model" PyTorch || fail "$name: no row of PyTorch's for $model"
  done
  [[ $name != models ]] || ((total <= 780)) || fail "what is worth most takes $total s"
done
[[ $(wc -l <"$place/stages.models") -ge 8 ]] || fail "not all stages were rehearsed: $(cat "$place/stages.models")"

# Everything ten times as slow: parts are cut, not the visit.
for name in checks models rest; do
  rm -rf "$place/kept"
  part 75 "$name" FAKE_SLOWNESS=10
  echo "$name, ten times as slow: $took s"
done

# Killed half-way through each stage: what was done is there, and the part goes on with it.
for name in checks models rest; do
  while IFS= read -r stage; do
    rm -rf "$place/kept"
    part 137 "$name" FAKE_KILL="$stage"
    [[ $name != checks || $stage == 'importing torch' || -s $place/results/facts.log ]] || fail "killed in $stage: no facts"
    find "$place/kept/rows" -name '*.done' 2>/dev/null | sort >"$place/done" || true
    for done in $(<"$place/done"); do
      side=${done%.done} side=${side##*.} model=$(basename "${done%.*.done}")
      if [[ $side == trident && -e $place/results/bench-$model.md ]]; then
        row_of "$model" trident || fail "killed in $stage: a row that is done is not in the results"
      fi
    done
    part 0 "$name"
    for done in $(<"$place/done"); do
      side=${done%.done} side=${side##*.} model=$(basename "${done%.*.done}")
      timed="timed $model"
      if [[ $side == torch ]]; then timed="torch timed $model"; fi
      if grep -qx "$timed" "$place/stages"; then fail "killed in $stage: $model by $side is measured again"; fi
    done
    for model in $(models_of $name); do
      row_of "$model" trident && { [[ $model == llama* ]] || row_of "$model" PyTorch; } ||
        fail "killed in $stage: rows are missing for $model in the end"
    done
    echo "$name, killed in $stage with $(wc -l <"$place/done") rows kept: goes on in $took s"
  done <"$place/stages.$name"
done
echo "a visit ends in time, and goes on where it was killed"
