#!/usr/bin/env bash
# test.sh [--full]: installs what is needed, builds, and runs every check; exit status 0 only if all of them pass.
#
#   release        whole programs, and numbers from optimized code
#   asan           what reads foreign bytes or owns memory, under the address and undefined-behaviour sanitizers
#   tsan           what runs on several threads, under the thread sanitizer
# and before them layers, error messages, sizes, instruction sets and how binaries are linked. A table of
# docs/design/testing.md says which tests are built and run in which of these. --full builds and runs all tests in all three, the
# communicators' suite on more ranks, clang-tidy on every file, and the tests against planted bugs (docs/design/planted_bugs.md).
# A failed test does not stop the others; a failed build does. Up to three failed tests that start jobs of several processes are
# tried once more, alone, because a launcher may hang by itself; the end names those that passed then.
# The end says which tests were skipped and why (scripts/skipped_tests: all of
# those on several nodes may be, but only where the machine makes no network namespaces), and what failed (scripts/failed_tests).
# The last line is CTest's closing line over all test cases of all runs together.
set -euo pipefail
header() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
full=no
case "${*:-}" in
  "") ;;
  --full) full=yes ;;
  --help | -h) header; exit 0 ;;
  *) header >&2; exit 64 ;;
esac
cd "$(dirname "$0")/.."

# Kernels for one kind of card: those for the others are the same text, and triple the time.
export CUDAARCHS=${CUDAARCHS:-90a-real}
# Names of tests that start jobs of several processes.
jobs='^(mpi|mpi_[a-z]+|nodes|dying|program[a-z_]*|supervise[a-z_]*|bench_processes|demo)/'
total=0 failed=0 status=0
report=()
logs=$(mktemp -d)  # of what failed, and of the runs of ctest
trap 'rm -rf "$logs"' EXIT

headline() { printf '\n== %s (%d min %d s)\n' "$1" $((SECONDS / 60)) $((SECONDS % 60)); }

# run_tests PRESET [CTEST_ARGUMENT...]: runs tests, adds their numbers to total and failed.
run_tests() {
  local preset=$1 begin=$SECONDS log=$logs/$1.ctest
  # Where the kernel randomizes addresses widely, gcc 12's thread sanitizer cannot place its shadow memory.
  local launcher=()
  if [[ $preset == tsan ]] && setarch "$(uname -m)" -R true 2>/dev/null; then launcher=(setarch "$(uname -m)" -R); fi
  # One more than there are cores: there is mostly a test that waits for a timer.
  local ended=0
  "${launcher[@]}" ctest --preset "$preset" --parallel $(($(nproc) + 1)) "${@:2}" | tee "$log" || ended=$?
  count_tests "$logs/$preset" || { echo "test.sh: $preset ran no tests" >&2; exit 1; }
  if ((ended != 0 && wrong == 0)); then status=1; fi  # of something that it does not count
  local tests=$ran
  if ((wrong > 0)) && may_be_tried_again "$log"; then
    echo "== $preset: $wrong failed of those that start jobs; once more, alone"
    mkdir -p "$logs/again"
    "${launcher[@]}" ctest --preset "$preset" --rerun-failed --parallel 1 | tee "$logs/again/$preset.ctest" || true
    count_tests "$logs/again/$preset" || true
    comm -23 <(failed_cases "$logs/$preset") <(failed_cases "$logs/again/$preset") |
      sed "s|^|$preset: passed at the second try only: |" >>"$logs/second"
  fi
  total=$((total + tests))
  failed=$((failed + wrong))
  report+=("$preset: $wrong of $tests tests failed in $((SECONDS - begin)) s")
}

# count_tests LOGS: of LOGS.ctest, which ctest has just written, the cases into LOGS.cases, their numbers into ran and wrong.
# Status 1 if there are none.
count_tests() {
  cp "build/${1##*/}/Testing/Temporary/LastTest.log" "$1.outputs" && scripts/test_cases "$1.ctest" >"$1.cases" || return 1
  ran=$(wc -l <"$1.cases") wrong=$(failed_cases "$1" | wc -l)
  ((ran > 0))
}
failed_cases() { awk -F '\t' '$2 == "failed" { print $3 }' "$1.cases" | sort; }
failed_names() { sed -n '/^The following tests FAILED:$/,/^[[:space:]]*$/s/^[[:space:]]*[0-9]* - \(.*\) (.*$/\1/p' "$1"; }
may_be_tried_again() { ((wrong <= 3)) && ! failed_names "$1" | grep -qvE "$jobs"; }

# check COMMAND...: runs a check; if it fails, its output is kept for the end.
check() {
  local log=$logs/${1#scripts/}.check
  if "$@" 2>&1 | tee "$log"; then rm -f "$log"; else status=1; fi
}

if [[ $full == yes ]]; then scripts/install_packages.sh clang-tidy-19; else scripts/install_packages.sh; fi
# Tests of nodes and scripts say SKIPPED without them.
scripts/install_packages.sh iproute2 procps python3 || echo "test.sh: the end says what is skipped without them"

headline "layers, messages, sizes"
check scripts/check_layers
check scripts/check_names
check scripts/troubleshooting --check
scripts/size_report

headline "release"
if [[ $full == yes ]]; then scripts/build.sh release; else scripts/build.sh release ci; fi
check scripts/check_isa build/release/bin/trident
check scripts/check_binaries build/release/bin build/release/tests
check scripts/zero_table --check
# -C Full: also those that take minutes.
if [[ $full == yes ]]; then run_tests release -C Full; else run_tests release --label-exclude '^elsewhere$'; fi
for preset in asan tsan; do
  headline "$preset"
  if [[ $full == yes ]]; then scripts/build.sh $preset; else scripts/build.sh $preset ci; fi
  if [[ $full == yes ]]; then run_tests $preset; else run_tests $preset --label-regex '^ci$'; fi
done
if [[ $full == yes ]]; then
  headline "clang-tidy: every file"
  check scripts/check_tidy build/release
  headline "planted bugs: every one is caught"
  check scripts/mutation_check
fi

headline "all checks"
printf '%s\n' "${report[@]}"
((failed == 0)) || status=1
shopt -s nullglob
cat "$logs"/*.cases >"$logs/all"
check scripts/skipped_tests "$logs/all"
last=()
for preset in release asan tsan; do
  if [[ -e $logs/again/$preset.ctest ]]; then last+=("$logs/again/$preset.ctest"); else last+=("$logs/$preset.ctest"); fi
done
cat "$logs"/second 2>/dev/null || true
scripts/failed_tests "$logs"/*.check "${last[@]}" || status=1
((status == 0)) || echo "test.sh: failed"
# A single failed check is never rounded away.
percent=$(((total - failed) * 100 / total))
echo "$percent% tests passed, $failed tests failed out of $total"
exit $status
