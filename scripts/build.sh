#!/usr/bin/env bash
# build.sh [PRESET [TARGET...]]: configures and builds build/PRESET (release by default; all targets by default).
#
# A TARGET may be a folder: tests/core/all builds what lies in tests/core and nothing else.
# In a build folder that is new some thirty sources are compiled as one (TRIDENT_JOIN_SOURCES), because all of them are compiled. In
# one that `cmake --preset PRESET` made before, a change to a source compiles that source alone.
set -euo pipefail
header() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
for argument; do
  case $argument in
    --help | -h) header; exit 0 ;;
    -* | "") header >&2; exit 64 ;;
  esac
done
cd "$(dirname "$0")/.."

preset=${1:-release}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
new=()
# fuzz: a few programs of another compiler, with which joined sources were not tried.
[[ $preset == fuzz || -e build/$preset/CMakeCache.txt ]] || new=(-DTRIDENT_JOIN_SOURCES=ON)
# CMake's chatter is shown when it fails.
cmake --preset "$preset" "${new[@]}" >"$log" 2>&1 || {
  cat "$log" >&2
  echo "build.sh: configuring failed, see above; what is missing scripts/install_packages.sh installs" >&2
  exit 1
}
cmake --build "build/$preset" --parallel "$(nproc)" ${2:+--target "${@:2}"}
[[ -n ${2-} && " ${*:2} " != *" trident "* ]] ||
  echo "built build/$preset/bin/trident; so that a shell finds it: export PATH=$PWD/build/$preset/bin:\$PATH"
