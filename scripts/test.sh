#!/usr/bin/env bash
# test.sh [--full]: installs what is needed, builds, and runs every check; exit status 0 only if all of them pass.
#
#   release        all tests
#   asan           unit tests under the address and undefined-behaviour sanitizers
#   tsan           tests of folders whose code runs on several threads, under the thread sanitizer
# and before them layers, error messages, sizes, instruction sets and how binaries are linked. --full runs all tests under both sanitizers,
# the communicators' suite on more ranks, clang-tidy on every file, and the tests against planted bugs (docs/planted_bugs.md).
# A failed test does not stop the others; a failed build does. The end says which tests were skipped and why (scripts/skipped_tests: all of
# those on several nodes may be, but only where the machine makes no network namespaces), and what failed (scripts/failed_tests).
# The last line is CTest's closing line over all runs together.
set -euo pipefail
cd "$(dirname "$0")/.."

full=no
case "${*:-}" in
  "") ;;
  --full) full=yes ;;
  *) echo "usage: test.sh [--full]" >&2; exit 64 ;;
esac

unit='support core device conformance cuda parallel tensor_parallel model pipeline optim data checkpoint app fuzz'
threads='core device parallel tensor_parallel pipeline'
# Kernels for one kind of card: those for the others are the same text, and triple the time.
export CUDAARCHS=${CUDAARCHS:-90a-real}
total=0 failed=0 status=0
report=()
logs=$(mktemp -d)  # of what failed, and of the runs of ctest
trap 'rm -rf "$logs"' EXIT

headline() { printf '\n== %s (%d min %d s)\n' "$1" $((SECONDS / 60)) $((SECONDS % 60)); }

# run_tests PRESET [CTEST_ARGUMENT...]: runs tests, adds their numbers to total and failed.
run_tests() {
  local preset=$1 begin=$SECONDS log=$logs/$1.ctest closing
  # Where the kernel randomizes addresses widely, gcc 12's thread sanitizer cannot place its shadow memory.
  local launcher=()
  if [[ $preset == tsan ]] && setarch "$(uname -m)" -R true 2>/dev/null; then launcher=(setarch "$(uname -m)" -R); fi
  # One more than there are cores: there is mostly a test that waits for a timer.
  "${launcher[@]}" ctest --preset "$preset" --parallel $(($(nproc) + 1)) "${@:2}" | tee "$log" || status=1
  # "98% tests passed, 2 tests failed out of 100"
  closing=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests? failed out of [0-9]+$' "$log" | tail -n 1 || true)
  if [[ -z $closing ]]; then
    echo "test.sh: $preset ran no tests" >&2
    exit 1
  fi
  cp "build/$preset/Testing/Temporary/LastTest.log" "$logs/$preset.outputs"
  [[ $closing =~ ([0-9]+)\ tests?\ failed\ out\ of\ ([0-9]+) ]]
  total=$((total + BASH_REMATCH[2]))
  failed=$((failed + BASH_REMATCH[1]))
  report+=("$preset: $closing in $((SECONDS - begin)) s")
}

# check COMMAND...: runs a check; if it fails, its output is kept for the end.
check() {
  local log=$logs/${1#scripts/}.check
  if "$@" 2>&1 | tee "$log"; then rm -f "$log"; else status=1; fi
}

# The targets that build the tests of folders: "core data" -> "tests/core/all tests/data/all".
targets() { local folder; for folder in $1; do [[ ! -e tests/$folder/CMakeLists.txt ]] || echo "tests/$folder/all"; done; }
labels() { echo "^(${1// /|})\$"; }

if [[ $full == yes ]]; then scripts/install_packages.sh clang-tidy-19; else scripts/install_packages.sh; fi

headline "layers, messages, sizes"
check scripts/check_layers
check scripts/troubleshooting --check
scripts/size_report

headline "release: all tests"
scripts/build.sh release
check scripts/check_isa build/release/bin/trident
check scripts/check_binaries build/release/bin build/release/tests
check scripts/zero_table --check
# -C Full: also those that take minutes.
if [[ $full == yes ]]; then run_tests release -C Full; else run_tests release; fi

if [[ $full == yes ]]; then
  headline "asan: all tests"
  scripts/build.sh asan
  run_tests asan
  headline "tsan: all tests"
  scripts/build.sh tsan
  run_tests tsan
  headline "clang-tidy: every file"
  check scripts/check_tidy build/release
  headline "planted bugs: every one is caught"
  check scripts/mutation_check
else
  headline "asan: unit tests"
  # shellcheck disable=SC2046  # one word per target
  scripts/build.sh asan $(targets "$unit") test_config test_shipped_configs
  run_tests asan --label-regex "$(labels "$unit config")"
  headline "tsan: folders with threads"
  # shellcheck disable=SC2046
  scripts/build.sh tsan $(targets "$threads")
  run_tests tsan --label-regex "$(labels "$threads")"
fi

headline "all checks"
printf '%s\n' "${report[@]}"
((failed == 0)) || status=1
shopt -s nullglob
check scripts/skipped_tests "$logs"/{release,asan,tsan}.ctest
scripts/failed_tests "$logs"/*.check "$logs"/{release,asan,tsan}.ctest || status=1
((status == 0)) || echo "test.sh: failed"
# A single failed check is never rounded away.
percent=$(((total - failed) * 100 / total))
echo "$percent% tests passed, $failed tests failed out of $total"
exit $status
