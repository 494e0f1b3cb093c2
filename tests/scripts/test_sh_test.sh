#!/usr/bin/env bash
# test_sh_test.sh SCRIPTS: the end of test.sh's output names every test that failed in any of its three builds, and shows why; and it says
# what was skipped. That all tests on several nodes are skipped is in order only where no network namespaces can be made.
# The builds are of a small project whose tests are shell commands; test.sh, build.sh, failed_tests and presets are the real ones.
set -euo pipefail
scripts=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/scripts"
cp "$scripts"/{test.sh,build.sh,failed_tests,skipped_tests,test_cases} "$tree/scripts"
cp "$scripts/../CMakePresets.json" "$tree"
for stand_in in install_packages.sh troubleshooting size_report check_layers check_names check_isa check_binaries zero_table; do
  printf '#!/bin/sh\ntrue\n' >"$tree/scripts/$stand_in"
  chmod +x "$tree/scripts/$stand_in"
done
cd "$tree"

# project TESTS: a build system without compilers; TESTS are lines for CTest. The target is the one that test.sh builds.
project() {
  cat >CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES NONE)
add_custom_target(ci)
get_filename_component(preset \${CMAKE_BINARY_DIR} NAME)
enable_testing()
$1
CMAKE
}
run() { scripts/test.sh >log 2>&1; }
fail() { echo "test_sh_test: $*"; tail -n 60 log; exit 1; }
# What a record that keeps only the end would show.
says() { grep -qE -- "$1" <(tail -n 201 log) || fail "the end does not say: $1"; }

fine='add_test(NAME core/Fine.Passes COMMAND sh -c "echo all is well")
set_tests_properties(core/Fine.Passes PROPERTIES LABELS ci)'
project "$fine"
run || fail "fails where nothing did"
[[ $(tail -n 1 log) == "100% tests passed, 0 tests failed out of 3" ]] || fail "the last line is not the sum"
if grep -q 'failed:' log; then fail "names failures where there are none"; fi

# One case of a suite fails in the thread sanitizer's build only, with more passed cases behind it than lines are shown, and one is
# skipped; one test cannot be started in release; one dies in asan; a check fails. Cases of a suite count each.
{
  echo '[ RUN      ] Suite.Broken'
  echo 'broken_test.cpp:7: Failure'
  echo '[  FAILED  ] Suite.Broken (3 ms)'
  for i in {1..60}; do printf '[ RUN      ] Suite.Good%d\nworking %d\n[       OK ] Suite.Good%d (0 ms)\n' "$i" "$i" "$i"; done
  printf '[ RUN      ] Suite.Absent\na_test.cpp:9: Skipped\nno card\n\n[  SKIPPED ] Suite.Absent (0 ms)\n'
  echo '[  FAILED  ] Suite.Broken'
} >says.txt
printf '#!/bin/sh\ncat says.txt\nexit 1\n' >test_core
chmod +x test_core
printf '#!/bin/sh\necho core/a.h:3: includes app/b.h\nexit 1\n' >scripts/check_layers
project "$fine"'
if(preset STREQUAL tsan)
  add_test(NAME "core/Suite" COMMAND ${CMAKE_SOURCE_DIR}/test_core --gtest_filter=Suite.* WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
elseif(preset STREQUAL asan)
  add_test(NAME "core/Dies/0  # GetParam() = 3 x 4" COMMAND sh -c "echo before the end; kill -SEGV $$")
else()
  add_test(NAME "core/Suite" COMMAND /nowhere/test_core)
endif()
get_property(tests DIRECTORY PROPERTY TESTS)
set_tests_properties(${tests} PROPERTIES LABELS ci)'
if run; then fail "succeeds where tests failed"; fi
[[ $(tail -n 1 log) == "95% tests passed, 3 tests failed out of 67" ]] || fail "the last line is not the sum"
says '^4 failed:$'
says '^  release: core/Suite \(Not Run\)$'
says '^  asan: core/Dies/0  # GetParam\(\) = 3 x 4 \((SEGFAULT|Failed)\)$'
says '^  tsan: core/Suite \(Failed\): Suite.Broken$'
says '^  check_layers: failed$'
says '^broken_test.cpp:7: Failure$'
says '^before the end$'
says '^  tsan: 1 of 63 of core/: no card$'
says '^core/a.h:3: includes app/b.h$'
if grep -q working <(sed -n '/^4 failed:$/,$p' log); then fail "the end shows cases that passed"; fi

# A test that starts processes and fails once is tried again, alone, and named. Not one of another kind, and not four of them. One
# that fails twice failed.
printf '#!/bin/sh\ntrue\n' >scripts/check_layers
# once NAME: fails the first time in release, and passes in what the sanitizers build.
once() {
  local fails="mkdir -p $tree/${1%/*}; touch $tree/$1; exit 1"
  echo "add_test(NAME $1 COMMAND sh -c \"test \${preset} != release || test -e $tree/$1 && exit 0; $fails\")
    set_tests_properties($1 PROPERTIES LABELS ci)"
}
project "$fine
$(once dying/Kills.Many)"
run || fail "a test of processes that failed once is not tried again"
[[ $(tail -n 1 log) == "100% tests passed, 0 tests failed out of 6" ]] || fail "the last line is not the sum"
says '^release: passed at the second try only: dying/Kills.Many$'
rm -rf dying
project "$fine
$(once core/Sums.Once)"
if run; then fail "a test of no processes is tried again"; fi
says '^  release: core/Sums.Once '
rm -rf core
project "$fine
$(for i in 1 2 3 4; do once dying/Kills.$i; done)"
if run; then fail "four are tried again"; fi
[[ $(tail -n 1 log) == "73% tests passed, 4 tests failed out of 15" ]] || fail "the last line is not the sum"
rm -rf dying
project "$fine
$(once dying/Kills.Once)
add_test(NAME dying/Kills.Always COMMAND sh -c \"test \${preset} != release\")"'
set_tests_properties(dying/Kills.Always PROPERTIES LABELS ci)'
if run; then fail "what fails twice passes"; fi
[[ $(tail -n 1 log) == "88% tests passed, 1 tests failed out of 9" ]] || fail "the last line is not the sum"
says '^release: passed at the second try only: dying/Kills.Once$'
says '^  release: dying/Kills.Always '
printf '#!/bin/sh\necho core/a.h:3: includes app/b.h\nexit 1\n' >scripts/check_layers

# More than fits: all that is shown is within 200 lines, and the number of the rest is said.
project 'foreach(i RANGE 1 150)
  add_test(NAME core/Many.${i} COMMAND sh -c "seq 100; echo the end of ${i}; exit 3")
  set_tests_properties(core/Many.${i} PROPERTIES LABELS ci)
endforeach()'
if run; then fail "succeeds where all tests failed"; fi
[[ $(tail -n 1 log) == "0% tests passed, 450 tests failed out of 450" ]] || fail "the last line is not the sum"
says '^451 failed:$'
says '^  and [0-9]+ more$'
says '^the end of '
rest=$(sed -n '/^451 failed:$/,$p' log | wc -l)
((rest <= 202)) || fail "$rest lines at the end"

# Tests on nodes in release: NUMBER of them skip, one runs.
nodes() {
  echo "$fine"'
if(preset STREQUAL release)
  add_test(NAME nodes/Script.Works COMMAND sh -c "echo nodes.sh: no nodes can be made here: no such thing; exit 77")
  add_test(NAME nodes/Layouts.Train/0 COMMAND sh -c "echo file.cpp:7: Skipped; echo nodes are not to be had; echo [  SKIPPED ] Layouts")
  '"$1"'
  get_property(tests DIRECTORY PROPERTY TESTS)
  set_tests_properties(${tests} PROPERTIES LABELS ci SKIP_RETURN_CODE 77 SKIP_REGULAR_EXPRESSION "SKIPPED")
endif()'
}
# namespaces SHELL_COMMAND: what unshare does from now on; its arguments are "--net sh -c COMMAND", for a user who is not root preceded by more.
mkdir stand_ins
PATH=$PWD/stand_ins:$PATH
namespaces() { printf '#!/bin/sh\n%s\n' "$1" >stand_ins/unshare; chmod +x stand_ins/unshare; }
# The command inside says by its exit status whether bridges can be made; where ip is missing it does not know, and succeeds.
ip_says() { printf '#!/bin/sh\nexit %d\n' "$1" >stand_ins/ip; chmod +x stand_ins/ip; }
printf '#!/bin/sh\ntrue\n' >scripts/check_layers

project "$(nodes '')"
namespaces 'echo Operation not permitted >&2; exit 1'
run || fail "fails where nodes cannot be made"
[[ $(tail -n 1 log) == "100% tests passed, 0 tests failed out of 5" ]] || fail "the last line is not the sum"
says '^  release: 2 of 2 of nodes/: nodes are not to be had; nodes.sh: no nodes can be made here: no such thing$'
says '^no test ran on several nodes: this machine makes no network namespaces'
namespaces 'while [ "$1" != -c ]; do shift; done; exec sh -c "$2"'
ip_says 2
run || fail "fails where bridges cannot be made"
ip_says 0
if run; then fail "succeeds though no test ran on nodes that can be made"; fi
[[ $(tail -n 1 log) == "100% tests passed, 0 tests failed out of 5" ]] || fail "the last line is not the sum"
says '^  skipped_tests: failed$'
says '^all 2 tests of nodes/ were skipped, yet this machine can make network namespaces'

# One that ran is enough; and what is skipped elsewhere is counted by itself.
project "$(nodes 'add_test(NAME nodes/Layouts.Train/1 COMMAND true)
  add_test(NAME cuda/Gpu.Works COMMAND sh -c "echo SKIPPED: no CUDA card; exit 77")')"
run || fail "fails though a test ran on nodes"
says '^  release: 1 of 1 of cuda/: no CUDA card$'
says '^  release: 2 of 3 of nodes/: '
project "$fine"
run || fail "fails where nothing did"
says '^skipped: none$'
# All tests pass, and ctest says that something went wrong.
printf '#!/bin/sh\n%s "$@"\nexit 8\n' "$(command -v ctest)" >stand_ins/ctest
chmod +x stand_ins/ctest
if run; then fail "what ctest itself ends with is lost"; fi
rm stand_ins/ctest
echo "test.sh names at its end what failed and what was skipped"
