#!/usr/bin/env bash
# package_start_test.sh START: where the starter of a package lets libraries be searched for; never in the working directory.
set -euo pipefail
start=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
mkdir -p package/{bin,libexec} "nv idia/nccl/lib"
: >"nv idia/nccl/lib/libnccl.so.2"
cp "$start" package/bin/trident
printf '#!/bin/sh\necho "[${LD_LIBRARY_PATH-unset}]"\n' >package/libexec/trident
chmod +x package/bin/trident package/libexec/trident

# searches EXPECTED VARIABLE=VALUE...: in an environment of nothing else.
searches() {
  local said
  said=$(env -i PATH="$PATH" "${@:2}" package/bin/trident)
  # /usr/local/cuda of this machine may be found, too.
  said=$(sed -E 's,:?/usr/local/cuda[^]:]*,,g; s,/usr/local/cuda-[^]:]*,,g' <<<"$said")
  [[ $said == "[$1]" || ($1 == unset && $said == "[]") ]] || { echo "package_start_test: with ${*:2} searches $said, expected [$1]"; exit 1; }
}
searches unset
searches '' LD_LIBRARY_PATH=
searches '' LD_LIBRARY_PATH=:
searches /a LD_LIBRARY_PATH=/a
searches /a LD_LIBRARY_PATH=/a:
searches /a LD_LIBRARY_PATH=:/a
searches '/a:/b c' 'LD_LIBRARY_PATH=::/a::/b c::'
searches "$(pwd -P)/nv idia/nccl/lib" 'TRIDENT_NVIDIA=nv idia'
searches "/a:$(pwd -P)/nv idia/nccl/lib" 'TRIDENT_NVIDIA=nv idia' LD_LIBRARY_PATH=/a:
searches "$(pwd -P)/nv idia/nccl/lib" "TRIDENT_NVIDIA=$(pwd -P)/nv idia/nccl"
echo "the starter names no place relative to the working directory"
