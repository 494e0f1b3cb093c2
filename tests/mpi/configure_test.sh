#!/usr/bin/env bash
# configure_test.sh CMAKE REPOSITORY: what each value of TRIDENT_MPI decides, with MPI and without it.
set -euo pipefail
cmake=$1 repository=$2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# configure STATUS EXPECTED OPTION...: a fresh configuration ends with STATUS and says EXPECTED.
configure() {
  local status=0
  rm -rf "$tree/build"
  "$cmake" -S "$repository/tests/mpi/configure" -B "$tree/build" -G Ninja -DREPOSITORY="$repository" "${@:3}" >"$tree/log" 2>&1 || status=$?
  # CMake breaks the lines of its errors.
  if { ((status == 0)) && (($1 != 0)); } || { ((status != 0)) && (($1 == 0)); } || ! grep -qE "$2" <<<"$(tr -s '\n ' ' ' <"$tree/log")"; then
    echo "${*:3}: status $status, expected $1 and \"$2\", said:"
    cat "$tree/log"
    exit 1
  fi
}

without=-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON
configure 0 'Ranks as processes: no \(TRIDENT_MPI = OFF\) -- processes: FALSE ' -DTRIDENT_MPI=OFF
configure 0 'Ranks as processes: no \(MPI was not found; install libopenmpi-dev and openmpi-bin .*processes: FALSE ' "$without"
configure 1 'TRIDENT_MPI = ON: no MPI was found; install libopenmpi-dev and openmpi-bin' -DTRIDENT_MPI=ON "$without"
configure 1 'TRIDENT_MPI = maybe: not AUTO, ON or OFF' -DTRIDENT_MPI=maybe
if command -v mpicc >/dev/null; then
  configure 0 'Ranks as processes: over MPI [0-9.]+ .*processes: TRUE ' -DTRIDENT_MPI=ON
fi
echo "every value of TRIDENT_MPI does what it says"
