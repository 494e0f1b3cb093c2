#!/usr/bin/env bash
# mutation_check_test.sh SOURCE: each planted bug's test runs in a flavour of scripts/test.sh, and one that runs in none is named.
set -euo pipefail
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
fail() { echo "mutation_check_test: $*"; cat "$tree/log"; exit 1; }
"$1/scripts/mutation_check" --ci >"$tree/log" || fail "a planted bug's test runs in no flavour"

mkdir -p "$tree"/{scripts,docs/design,tests/mutants,tests/data}
cp "$1/scripts/mutation_check" "$tree/scripts"
# planted TEST: what mutation_check says of a bug that TEST is to catch.
planted() {
  printf 'Bug: b\nTest: %s\n---\n' "$1" >"$tree/tests/mutants/01-bug.patch"
  "$tree/scripts/mutation_check" --ci >"$tree/log"
}
printf '| data | asan tsan | why |\n| away | never | |\n' >"$tree/docs/design/testing.md"
printf 'trident_test(data SOURCES a_test.cpp\n  b_test.cpp)\ntrident_test(away SOURCES c_test.cpp)\n' \
  >"$tree/tests/data/CMakeLists.txt"
printf 'TEST_P(Sums,\n       Add) {\nINSTANTIATE_TEST_SUITE_P(All, Sums,\n' >"$tree/tests/data/a_test.cpp"
printf 'TEST_F(Loader, Loads) {\n' | tee "$tree/tests/data/c_test.cpp" >"$tree/tests/data/b_test.cpp"
planted 'test_data Loader.Loads' || fail "a test that runs is missed"
planted 'test_data All/Sums.Add/3' || fail "a test with parameters is missed"
for none in 'test_away Loader.Loads' 'test_data Loader.Unloads' 'test_data Some/Sums.Add/3' 'test_data Full/Sums.Add/3' \
  'test_gone A.B'; do
  if planted "$none"; then fail "$none runs"; fi
  grep -qF "01-bug.patch: $none runs in no flavour" "$tree/log" || fail "$none is not named"
done
"$tree/scripts/mutation_check" --list >"$tree/log"
[[ $(<"$tree/log") == $'01 b\n   Test: test_gone A.B' ]] || fail "--list prints something else"
echo "every planted bug's test runs in some flavour"
