#!/usr/bin/env bash
# mpirun_local_test.sh MPIRUN_LOCAL: what it asks of mpirun commands of several versions, which only say who they are.
set -euo pipefail
mpirun_local=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# fake VERSION_TEXT: the mpirun that the script finds.
fake() {
  mkdir -p "$tree/bin"
  printf '#!/bin/sh\nif [ "$1" = --version ]; then printf "%s"; exit 0; fi\nfor a in "$@"; do echo "argument: $a"; done\nexit 5\n' "$1" >"$tree/bin/mpirun"
  chmod +x "$tree/bin/mpirun"
}
# run ARGUMENT...: status and log of the script.
run() { status=0; PATH=$tree/bin:$PATH "$mpirun_local" "$@" >"$tree/log" 2>&1 || status=$?; }
fail() { echo "$1; status $status, said:"; cat "$tree/log"; exit 1; }
expect_status() { ((status == $1)) || fail "expected status $1"; }
expect() { grep -qxF -- "$1" "$tree/log" || fail "expected the line: $1"; }
refuse() { ! grep -qF -- "$1" "$tree/log" || fail "unexpected: $1"; }

fake 'mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n'
run 3 ./program 'two words' --flag
expect_status 5
for a in -np 3 --oversubscribe --bind-to none mpi_yield_when_idle ./program 'two words' --flag; do expect "argument: $a"; done
refuse OVERSUBSCRIBE
if ((EUID == 0)); then expect "argument: --allow-run-as-root"; else refuse root; fi

fake 'mpirun (Open MPI) 5.0.7\n\nReport bugs to https://www.open-mpi.org/community/help/\n'
run 12 ./program
expect_status 5
for a in 12 --map-by :OVERSUBSCRIBE --bind-to none mpi_yield_when_idle ./program; do expect "argument: $a"; done
refuse '--oversubscribe'
run --print 12 ./program 'two words'
expect_status 0
grep -qE '^mpirun -np 12 --map-by :OVERSUBSCRIBE .*\./program two\\ words $' "$tree/log" || fail "expected the command"

# A warning comes first, and much after it.
fake "[host:1] unable to find network interfaces.\\nmpirun (Open MPI) 4.1.4\\n$(printf '%0100000d' 0)\\n"
run 2 ./program
expect_status 5
expect 'argument: --oversubscribe'

fake 'HYDRA build details:\n    Version: 4.0.2\n'
run 2 ./program
expect_status 69
grep -qF "$tree/bin/mpirun is neither Open MPI 4 nor 5, but: HYDRA build details:" "$tree/log" || fail "expected what it found"

for arguments in '' 2 '0 ./program' 'two ./program' '-1 ./program'; do
  # shellcheck disable=SC2086  # several words
  run $arguments
  expect_status 64
done

status=0
PATH=$tree/nothing "$BASH" "$mpirun_local" 2 ./program >"$tree/log" 2>&1 || status=$?
expect_status 77
expect "SKIPPED: there is no mpirun; install openmpi-bin"
echo "mpirun_local speaks to every version it knows"
