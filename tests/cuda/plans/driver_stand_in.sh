#!/bin/sh
# driver_stand_in.sh NM DRIVER: prints the C++ source of a stand-in for the CUDA driver library DRIVER (the toolkit's stub will do), with
# which cuDNN makes plans where there is no driver. Planning compiles kernels and asks for a few handles, never runs anything: what it
# asks for succeeds, everything else says "stub library" (cudaErrorStubLibrary, 34).
set -eu
nm=$1
driver=$2

# Return codes only; a handle to give out; a number to give out.
succeed=' cuInit cuLibraryUnload cuKernelSetAttribute cuFuncSetAttribute cuModuleUnload cuKernelSetCacheConfig cuFuncLoad '
handle=' cuLibraryLoadData cuLibraryGetKernel cuLibraryGetModule cuKernelGetFunction cuModuleLoadData cuModuleLoadDataEx cuModuleGetFunction '

names=$("$nm" -D --defined-only "$driver" | awk '{print $3}' | sed 's/@.*//' | grep '^cu' | sort -u)
test -n "$names"
for name in $names; do
  case "$succeed" in *" $name "*) echo "extern \"C\" int $name() { return 0; }"; continue ;; esac
  case "$handle" in *" $name "*) echo "extern \"C\" int $name(void** given) { *given = reinterpret_cast<void*>(0x1000); return 0; }"; continue ;; esac
  case "$name" in
    cuDriverGetVersion) echo "extern \"C\" int $name(int* given) { *given = 13000; return 0; }" ;;
    cuKernelGetAttribute | cuFuncGetAttribute) echo "extern \"C\" int $name(int* given) { *given = 1; return 0; }" ;;
    *) echo "extern \"C\" int $name() { return 34; }" ;;
  esac
done
