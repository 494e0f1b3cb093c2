#!/usr/bin/env bash
# fuzz.sh [TARGET [RUNS [SECONDS]]]: builds the fuzz targets (tests/fuzz) and runs one, or all of them one after the other, until RUNS inputs
# were tried (2000000), SECONDS have passed (360), or something is found. Exit status 0: nothing was.
#
# What is found stays in build/fuzz/found/TARGET-*: copy it to tests/fuzz/corpus/TARGET, whose files every test run replays. Inputs that
# reached new code are kept in build/fuzz/corpus/TARGET, where the next run begins. The last line of each target:
#   TARGET: INPUTS inputs in N s, COVERAGE edges, REST
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${2:-2000000} seconds=${3:-360}
command -v clang++-19 >/dev/null || scripts/install_packages.sh clang-19
scripts/install_packages.sh libclang-rt-19-dev libomp-19-dev  # configuring looks for OpenMP, though no target uses it

names=$(sed -n 's/.*NamedTarget{"\([a-z_]*\)".*/\1/p' tests/fuzz/fuzz_target.cpp)
targets=${1:-$names}
for target in $targets; do
  grep -qx "$target" <<<"$names" || { echo "fuzz.sh: no target $target; there are" $names >&2; exit 64; }
done
mapfile -t programs < <(printf "fuzz_%s\n" $targets)
scripts/build.sh fuzz "${programs[@]}" >/dev/null

# The words of a target's seeds in JSON, with their quotes, and numbers at the ends of what there is: libFuzzer puts them anywhere.
words_of() {
  { grep -aohE '"[A-Za-z0-9_.]{2,40}"' "tests/fuzz/corpus/$1/"seed-* || true
    printf '%s\n' null true -1 1.5 0.0 1e308 1e400 4294967296 9223372036854775807 9223372036854775808 '[]' '{}' '\u0000' '\ud800'
  } | sort -u | sed 's/[\"]/\\&/g; s/.*/"&"/'
}

status=0
for target in $targets; do
  kept=build/fuzz/corpus/$target found=build/fuzz/found log=build/fuzz/$target.log
  mkdir -p "$kept" "$found"
  dictionary=build/fuzz/$target.dict
  words_of "$target" >"$dictionary"
  begin=$SECONDS outcome="nothing found"
  # The time of an input is the clock's: a machine full of other work may hold a process up for ten seconds.
  # A frame of zstd may ask for 2 GiB: refused in plain words where there is no memory for it, which is what happens here.
  ASAN_OPTIONS=quarantine_size_mb=16:allocator_may_return_null=1:max_allocation_size_mb=512:detect_stack_use_after_return=0 UBSAN_OPTIONS=print_stacktrace=1 \
    "build/fuzz/tests/fuzz/fuzz_$target" -runs="$runs" -max_total_time="$seconds" -max_len=4096 -timeout=60 -malloc_limit_mb=4096 \
    -rss_limit_mb=4096 -print_final_stats=1 -print_funcs=0 -artifact_prefix="$found/$target-" -dict="$dictionary" "$kept" "tests/fuzz/corpus/$target" \
    >"$log" 2>&1 || { status=1 outcome="FOUND SOMETHING: see $log"; }
  inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  echo "$target: ${inputs:-?} inputs in $((SECONDS - begin)) s, ${edges:-?} edges, $outcome"
done
exit $status
