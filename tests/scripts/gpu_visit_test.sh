#!/usr/bin/env bash
# gpu_visit_test.sh SCRIPTS: what a visit to a card runs, in which order, and that whatever ends it leaves what was known by then;
# the card, the programs, the check and the benchmark are stand-ins.
set -euo pipefail
scripts=$(realpath "$1")
. "$(dirname "$0")/card_stand_ins.sh"

# A checkout with the real gpu_visit.sh, and its bag.
tree=$place/tree
mkdir -p "$tree/scripts" "$tree/bag/packages" "$place/pack/programs/bin" "$tree/device/cuda"
cp "$scripts"/gpu_{visit,libraries}.sh "$tree/scripts/"
cp -r "$scripts/../cmake" "$tree/"
cp "$scripts/../device/cuda/cudnn_attention_rules.cpp" "$tree/device/cuda/"
sed -i "s|^kept=.*|kept=$place/kept|" "$tree/scripts/gpu_visit.sh"
echo 'the trainer' >"$place/pack/programs/bin/trident"
echo '90a-real CUDA 13' >"$place/pack/programs/brought"
tar -C "$place/pack" -czf "$tree/bag/programs.tar.gz" programs
for name in check bench; do
  cat >"$tree/scripts/gpu_$name.sh" <<'SH'
#!/bin/bash
echo "${0##*/} $*" >>"$FAKE_PLACE/calls"
all=" $*"
report=${all##* --report } report=${report%% *}
echo "begun: $*" >"$report"
cat "$FAKE_PLACE/kept/build/bin/trident" || exit 1
[[ -z ${FAKE_SLOW:-} || ${0##*/} != "$FAKE_SLOW" ]] || sleep 60
echo done >>"$report"
exit ${FAKE_STATUS:-0}
SH
  chmod +x "$tree/scripts/gpu_$name.sh"
done
printf '#!/bin/sh\necho "ncu $*" >>"$FAKE_PLACE/calls"\n' | stand_in bin/ncu
# visit EXPECTED_STATUS NAME=VALUE... -- ARGUMENT...
visit() {
  local expected=$1 status=0 values=()
  shift
  while [[ $1 != -- ]]; do values+=("$1"); shift; done
  rm -rf "$place/calls" "$place/results"
  env PATH="$place/bin:$PATH" FAKE_PLACE="$place" "${values[@]}" "$tree/scripts/gpu_visit.sh" "${@:2}" \
    >"$place/out" 2>&1 || status=$?
  ((status == expected)) || fail "$*: status $status, expected $expected"
}
called() { grep -qE -- "$1" "$place/calls" || { cat "$place/calls"; fail "not called: $1"; }; }

visit 0 -- checks "$tree/bag" "$place/results"
called "^gpu_check.sh --packages $tree/bag/packages --build $place/kept/build .*--only !memcheck"
called '^gpu_bench.sh .* --only trident .* gpt2-124m$'
called '^gpu_bench.sh .* --only torch .* gpt2-124m$'
for result in facts.log check.md bench-gpt2-124m.md; do [[ -s $place/results/$result ]] || fail "$result is missing"; done
(($(find "$place/results" -type f | wc -l) <= 8)) || fail "more than eight files come back"
visit 0 -- models "$tree/bag" "$place/results"
called '^gpu_bench.sh .* qwen2.5-0.5b$'
called '^gpu_bench.sh .* llama3.2-1b$'
(($(find "$place/results" -type f | wc -l) <= 8)) || fail "more than eight files come back"
visit 0 -- rest "$tree/bag" "$place/results"
called '^gpu_check.sh .*--only memcheck'
called '^ncu '

# Programs are not taken from a folder that somebody else may have made.
mv "$place/kept" "$place/elsewhere"
ln -s "$place/elsewhere" "$place/kept"
visit 1 -- checks "$tree/bag" "$place/results"
grep -q 'kept is not a folder of this user; remove it' "$place/out" || fail "programs are taken through a link"
rm -r "$place/kept" "$place/elsewhere"

# What fails does not keep the next from being tried, and decides the exit status; what was not reached in time is no failure.
visit 1 FAKE_STATUS=1 -- checks "$tree/bag" "$place/results"
called '^gpu_bench.sh .* --only torch'
visit 75 FAKE_STATUS=75 -- checks "$tree/bag" "$place/results"

# Killed in the midst of each of its two programs: what was known lies there, and the same part starts again from nothing.
for slow in gpu_check.sh gpu_bench.sh; do
  rm -rf "$place/calls" "$place/results" "$place/kept"
  PATH="$place/bin:$PATH" FAKE_PLACE="$place" FAKE_SLOW=$slow setsid \
    "$tree/scripts/gpu_visit.sh" checks "$tree/bag" "$place/results" >"$place/out" 2>&1 &
  visitor=$!
  for ((i = 0; i < 3000; ++i)); do
    if grep -qs '^begun' "$place/results/$([[ $slow == gpu_check.sh ]] && echo check || echo bench-gpt2-124m).md"; then break; fi
    sleep 0.01
  done
  pkill -KILL -s "$visitor" || true
  wait "$visitor" || true
  [[ -s $place/results/facts.log ]] || fail "killed in $slow: no facts"
  grep -q '^begun' "$place/results/check.md" || fail "killed in $slow: no report of the checks"
  [[ $slow == gpu_check.sh ]] || grep -q '^done' "$place/results/check.md" || fail "killed in $slow: the checks were not done"
done
rm -rf "$place/kept"
visit 0 -- models "$tree/bag" "$place/results"

visit 77 PATH=/usr/bin:/bin -- checks "$tree/bag" "$place/results"
visit 64 -- checks
visit 64 -- models "$tree/bag" "$place/results" gpt2-124m qwen2.5-0.5b llama3.2-1b
visit 1 -- checks "$place/empty" "$place/results"
grep -qF "$place/empty has no programs.tar.gz; make it with gpu_visit.sh pack" "$place/out" || fail "an empty bag is not named"
stand_in bin/patchelf </dev/null
visit 1 -- pack "$place/new_bag" --build "$place/empty"
grep -qF "$place/empty has no bin/trident; build with CUDA first" "$place/out" || fail "what was not built is not named"
# What is documented can be called there.
commands=$(grep -h '^scripts/gpu_visit.sh' "$scripts/../docs/gpu.md")
(($(wc -l <<<"$commands") == 3)) || fail "not three commands are documented"
if grep -qE '.{2001}' <<<"$commands"; then fail "a command of more than 2,000 characters is documented"; fi
# A checkout that is too large is not taken along; its size is git's list of files.
command -v git >/dev/null || { echo "SKIPPED: git is not installed, so that no bag is packed; all before it passed"; exit 77; }
(cd "$tree" && git init -q . && git add scripts && git -c user.name=a -c user.email=a@b commit -qm one)
mkdir -p "$place/built/bin"
sed -i 's/^programs=(.*/programs=(bin\/trident/; s/^  tests\/cuda\/gpu.*/)/' "$tree/scripts/gpu_visit.sh"
echo trainer >"$place/built/bin/trident"
echo 'CMAKE_CUDA_ARCHITECTURES:STRING=90a-real' >"$place/built/CMakeCache.txt"
printf '#!/bin/sh\ncp "$3" "$2"\n' | stand_in bin/strip
printf '#!/bin/sh\n[ "$1" = --prepare ] || exit 1\nmkdir -p "$2"\ntruncate -s "$FAKE_PACKAGES" "$2/a.deb"\n' \
  >"$tree/scripts/gpu_check.sh"
visit 0 FAKE_PACKAGES=60M -- pack "$place/new_bag" --build "$place/built"
grep -qE 'with this checkout 6[0-3] of 64 MiB; programs for 90a-real$' "$place/out" ||
  fail "the size of what goes along is not said"
visit 1 FAKE_PACKAGES=64M -- pack "$place/new_bag" --build "$place/built"
grep -qF '64 can be taken along' "$place/out" || fail "too large a bag is not refused"
echo "gpu_visit.sh runs its parts, within their times, and leaves what is known"
