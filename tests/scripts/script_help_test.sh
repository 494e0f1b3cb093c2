#!/usr/bin/env bash
# script_help_test.sh SCRIPTS: --help of the scripts that a newcomer starts prints what their first lines say and does nothing
# else; arguments that they do not know print the same and end with 64. Stand-ins for the programs that they would start.
set -euo pipefail
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/scripts" "$tree/bin"
cp "$1"/{demo,build,install_packages,prepare_corpus,test}.sh "$tree/scripts"
for program in cmake apt-get sudo dpkg-query ctest; do
  printf '#!/bin/sh\necho "$0 $*" >>"%s/started"\nexit 42\n' "$tree" >"$tree/bin/$program"
  chmod +x "$tree/bin/$program"
done
export PATH=$tree/bin:$PATH
cd "$tree/scripts"
fail() { echo "script_help_test: $*"; cat "$tree/out" "$tree/err"; exit 1; }
# ends STATUS COMMAND...: with it, and without having started or made anything.
ends() {
  local status=0
  "${@:2}" >"$tree/out" 2>"$tree/err" || status=$?
  ((status == $1)) || fail "exit status $status, expected $1: ${*:2}"
  [[ ! -e $tree/started ]] || fail "${*:2} started $(head -n 1 "$tree/started")"
  [[ $(ls "$tree" | tr '\n' ' ') == "bin err out scripts " ]] || fail "${*:2} made $(ls "$tree")"
}
# explained FILE SCRIPT: the first comment of the script is in FILE, to its end, and no line of its code.
explained() {
  grep -q "^$2.sh .*: " "$1" || fail "$2.sh is not explained"
  [[ $(wc -l <"$1") == $(awk 'NR > 1 && !/^#/ { print NR - 2; exit }' "$2.sh") ]] ||
    fail "$2.sh: other lines than its first comment"
}
for script in demo build install_packages prepare_corpus test; do
  for help in --help -h; do
    ends 0 ./$script.sh $help
    explained "$tree/out" $script
    [[ ! -s $tree/err ]] || fail "$script.sh $help prints an error"
  done
  ends 64 ./$script.sh --bogus
  explained "$tree/err" $script
done
for arguments in 'train' '--set' '--set run.steps' '--set run.steps=2 now'; do
  # shellcheck disable=SC2086  # several words
  ends 64 ./demo.sh $arguments
done
ends 64 ./build.sh release --target
ends 64 ./build.sh ''
ends 64 ./install_packages.sh g++ --yes
ends 64 ./prepare_corpus.sh
ends 64 ./prepare_corpus.sh ''
ends 64 ./prepare_corpus.sh one two
ends 64 ./test.sh --full --help

# What they do know, they take.
goes_on() {
  "$@" >"$tree/out" 2>"$tree/err" || true
  [[ -e $tree/started ]] || fail "$* started nothing"
  rm -rf "$tree/started"
}
goes_on ./demo.sh --set run.steps=2 --set=run.dir=x=y
goes_on ./build.sh release tests/core/all
goes_on ./install_packages.sh clang-19
echo "the scripts say what they are for"
