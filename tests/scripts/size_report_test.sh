#!/usr/bin/env bash
# size_report_test.sh SIZE_REPORT: counts of lines and types, ratio and both alarms on a small tree.
set -euo pipefail
report=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/core" "$tree/device/cpu" "$tree/tests/core" "$tree/build/core"

# lines COUNT TEXT
lines() { for ((i = 0; i < $1; i++)); do echo "$2"; done; }
{ lines 7 '// line'; echo 'struct A {'; echo '  enum class B : int { kOne };'; echo 'class C;'; } >"$tree/core/small.h"
mkdir -p "$tree/planner/published"
{ echo 'struct A {'; echo 'struct D {'; } >"$tree/planner/published/rows.h"
lines 501 '// line' >"$tree/device/cpu/large.cpp"
{ echo 'int long_one(int a) {'; lines 80 '  f();'; echo '}'; echo 'int short_one() {'; lines 78 '  f();'; echo '}'; } >"$tree/core/long.cpp"
lines 86 '// line' >"$tree/tests/core/small_test.cpp"
lines 999 '// line' >"$tree/build/core/generated.cpp"
"$report" "$tree" >"$tree/log"

expect() { grep -qE "$1" "$tree/log" || { echo "expected $1 in:"; cat "$tree/log"; exit 1; }; }
expect '^core +172 +86 +0.50 +2$'
expect '^device +501 +0 +0.00 +0$'
expect '^planner/published +2 +0 +0.00 +2$'
expect '^the rest +673 +86 +0.13 +2$'
expect '^large: device/cpu/large.cpp: 501 lines$'
expect '^large: core/long.cpp:1: a function of 82 lines: int long_one'
if [[ $(grep -c '^large' "$tree/log") != 2 ]]; then echo "a false alarm in:"; cat "$tree/log"; exit 1; fi
echo "size_report counts and warns"
