#!/usr/bin/env bash
# gpu_libraries_test.sh SOURCES: where the scripts and CMake look for NVIDIA's libraries, in made-up toolkits and wheels of either layout, what they
# take, and what they say of what is not there.
set -euo pipefail
cd "$1"
export LC_ALL=C
command -v python3 >/dev/null || { echo "SKIPPED: there is no python3"; exit 77; }
. tests/scripts/card_stand_ins.sh
. scripts/gpu_libraries.sh
unset CUDACXX CUDA_HOME CUDA_PATH CUDNN_PATH NCCL_PATH CUBLAS_PATH NVTX_PATH CUDAToolkit_ROOT

# A toolkit of nothing but nvcc, and another place per test.
toolkit_in="$place/a toolkit"
mkdir -p "$toolkit_in/bin" "$place/system"
cp "$place/bin/nvcc" "$toolkit_in/bin/"
system_places=("$place/system")
export PYTHON=python3

# look [SITE...]: what is found with these folders as Python's, in $place/out.
look() {
  PATH="$toolkit_in/bin:/usr/bin:/bin" PYTHONPATH=$(IFS=:; echo "$*") PYTHONNOUSERSITE=1
  export PYTHONPATH PYTHONNOUSERSITE
  find_nvidia
  { printf 'found %s\n' "${cuda_found[@]}"; printf 'missing %s\n' "${cuda_missing[@]}"; printf 'option %s\n' "${cuda_options[@]}"; } >"$place/out"
  PATH=$whole_path
}
whole_path=$PATH
# Where everything is in the system's places nothing is put before what the environment names.
for case in '||' '|/a|/a' '/n||/n' '/n:/m|/a:/b|/n:/m:/a:/b' '|/a::/b:|/a:/b'; do
  IFS='|' read -r cuda_folders LD_LIBRARY_PATH expected <<<"$case"
  [[ $(library_path) == "$expected" ]] || fail "with cuda_folders=$cuda_folders LD_LIBRARY_PATH=$LD_LIBRARY_PATH: $(library_path)"
done
unset LD_LIBRARY_PATH
cuda_folders=/n
[[ $(library_path) == /n ]] || fail "without LD_LIBRARY_PATH: $(library_path)"
says() { grep -qxF -- "$1" "$place/out" || fail "does not say: $1"; }
none_missing() { ((${#cuda_missing[@]} == 0)) || fail "misses something"; }

# CUDA 12's wheels: a folder each.
site="$place/python 12"
library "$site/nvidia/cublas" cuBLASLt 12.9.1 libcublasLt.so.12
library "$site/nvidia/cudnn" cuDNN 9.10.2 libcudnn.so.9
library "$site/nvidia/nccl" NCCL 2.27.5 libnccl.so.2
library "$site/nvidia/nvtx" NVTX 3
FAKE_CUDA=12.9 look "$site"
none_missing
says "found cuBLASLt 12.9.1: $site/nvidia/cublas/lib/libcublasLt.so.12"
says "found cuDNN 9.10.2: $site/nvidia/cudnn/lib/libcudnn.so.9"
says "found NCCL 2.27.5: $site/nvidia/nccl/lib/libnccl.so.2"
says "found NVTX: $site/nvidia/nvtx/include"
says "option -DcuDNN_INCLUDE_DIR=$site/nvidia/cudnn/include"
says "option -DcuDNN_LIBRARY=$site/nvidia/cudnn/lib/libcudnn.so.9"
says "option -DcuBLASLt_LIBRARY=$site/nvidia/cublas/lib/libcublasLt.so.12"
says "option -DTRIDENT_NVTX_INCLUDE_DIR=$site/nvidia/nvtx/include"
says "option -DTRIDENT_NVCC=$toolkit_in/bin/nvcc"
[[ $cuda_folders == "$site/nvidia/nccl/lib:$site/nvidia/cudnn/lib:$site/nvidia/cublas/lib" ]] || fail "folders to load from: $cuda_folders"

# CUDA 13's: one folder for its own. A second folder of Python's, as of a user, has the rest.
both="$place/python 13" user="$place/user"
library "$both/nvidia/cu13" cuBLASLt 13.4.1 libcublasLt.so.13
library "$both/nvidia/cu13" NVTX 3
library "$both/nvidia/cudnn" cuDNN 9.26.0 libcudnn.so.9
library "$user/nvidia/nccl" NCCL 2.30.7 libnccl.so.2
look "$both" "$user"
none_missing
says "found cuBLASLt 13.4.1: $both/nvidia/cu13/lib/libcublasLt.so.13"
says "found NCCL 2.30.7: $user/nvidia/nccl/lib/libnccl.so.2"
says "found NVTX: $both/nvidia/cu13/include"
# Those of another CUDA are not taken for the toolkit's own.
look "$site" "$user"
says "missing cuBLASLt 13 or later ($site/nvidia/cublas/include has 12.9.1; CUBLAS_PATH says where)"
FAKE_CUDA=12.9 CUBLAS_PATH="$both/nvidia/cu13" look "$site"
says "missing cuBLASLt 12 or later ($both/nvidia/cu13/include has 13.4.1, for another CUDA; CUBLAS_PATH says where)"

# Nothing at all, and too old a toolkit.
look
says "missing cuDNN 9.10.2 or later (no cudnn_version.h in $toolkit_in $place/system; CUDNN_PATH says where)"
says "missing NVTX 3 or later (no nvtx3/nvToolsExt.h in $toolkit_in $place/system; NVTX_PATH says where)"
((${#cuda_missing[@]} == 4)) || fail "not four things missing"
FAKE_CUDA=12.2 look "$site"
says "missing CUDA toolkit 12.4 or later ($toolkit_in/bin/nvcc is of 12.2.88; CUDA_HOME says where)"

# What is too old, or has no library, is said and passed over for what is right.
library "$place/system" cuDNN 9.10.1 libcudnn.so.9
library "$toolkit_in" NCCL 2.28.9
look "$both"
((${#cuda_missing[@]} == 1)) || fail "something else is missing"
says "found cuDNN 9.26.0: $both/nvidia/cudnn/lib/libcudnn.so.9"
says "missing NCCL 2.27 or later ($toolkit_in/include has the headers of 2.28.9, but there is no libnccl.so.2; NCCL_PATH says where)"
look
says "missing cuDNN 9.10.2 or later ($place/system/include has 9.10.1; CUDNN_PATH says where)"

# The toolkit goes first; what the environment names goes before it, alone.
library "$toolkit_in" cuBLASLt 13.1.0 libcublasLt.so.13
library "$toolkit_in" cuDNN 9.19.0 libcudnn.so.9
library "$toolkit_in" NCCL 2.28.9 libnccl.so.2
library "$toolkit_in" NVTX 3
look "$both" "$user"
none_missing
says "found cuDNN 9.19.0: $toolkit_in/lib/libcudnn.so.9"
says "found NCCL 2.28.9: $toolkit_in/lib/libnccl.so.2"
says "found NVTX: $toolkit_in/include"
CUDNN_PATH="$both/nvidia/cudnn" NCCL_PATH="$place/nowhere" look
says "found cuDNN 9.26.0: $both/nvidia/cudnn/lib/libcudnn.so.9"
says "missing NCCL 2.27 or later (no nccl.h in $place/nowhere; NCCL_PATH says where)"

# The same through CMake, whose message names what is wrong; the program's oldest cuDNN is its own, too.
mkdir "$place/project"
cat >"$place/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(wheels LANGUAGES NONE)
set(CMAKE_FIND_LIBRARY_PREFIXES lib)
set(CMAKE_FIND_LIBRARY_SUFFIXES .so)
set(CMAKE_SYSTEM_PREFIX_PATH "")
list(APPEND CMAKE_MODULE_PATH ${SOURCES}/cmake)
include(TridentCuda)
foreach(variable cuBLASLt_LIBRARY cuDNN_INCLUDE_DIR cuDNN_LIBRARY NCCL_LIBRARY TRIDENT_NVTX_INCLUDE_DIR)
  message(STATUS "${variable} = ${${variable}}")
endforeach()
CMAKE
: >"$toolkit_in/include/cuda_runtime.h"
: >"$toolkit_in/lib/libcudart.so"
# configure NAME=VALUE...: what TRIDENT_CUDA=AUTO says, in $place/out.
configure() {
  env "$@" cmake --fresh -S "$place/project" -B "$place/configured" -DSOURCES="$PWD" "-DTRIDENT_NVCC=$toolkit_in/bin/nvcc" \
    "-DCUDAToolkit_ROOT=$toolkit_in" -DCMAKE_MAKE_PROGRAM=true -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF -DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF >"$place/out" 2>&1 || true
}
configured_says() { grep -F -- "-- CUDA: no (missing " "$place/out" | grep -qF -- "$1" || fail "CMake does not say: $1"; }
configure FAKE_CUDA=12.2
configured_says "CUDA toolkit 12.4 or later ($toolkit_in/bin/nvcc has 12.2.88)"
rm "$toolkit_in"/include/nccl.h "$toolkit_in"/lib/libnccl*
: >"$toolkit_in/lib/libcudnn.so"
: >"$toolkit_in/lib/libcublasLt.so"
# A wheel that is named goes before a toolkit whose library has the better name.
configure CUDNN_PATH="$both/nvidia/cudnn" NVTX_PATH="$both/nvidia/cu13" CUBLAS_PATH="$both/nvidia/cu13"
says "-- cuDNN_LIBRARY = $both/nvidia/cudnn/lib/libcudnn.so.9"
says "-- cuDNN_INCLUDE_DIR = $both/nvidia/cudnn/include"
says "-- cuBLASLt_LIBRARY = $both/nvidia/cu13/lib/libcublasLt.so.13"
says "-- TRIDENT_NVTX_INCLUDE_DIR = $both/nvidia/cu13/include"
rm "$toolkit_in"/include/cudnn_version.h "$toolkit_in"/lib/libcudnn*
configure CUDNN_PATH="$site/nvidia/cudnn"
configured_says 'NCCL 2.27 or later'
configure CUDNN_PATH="$place/system" NCCL_PATH="$user/nvidia/nccl"
configured_says "cuDNN 9.10.2 or later ($place/system/include has 9.10.1)"
rm "$site/nvidia/cudnn/lib/libcudnn.so.9"
configure CUDNN_PATH="$site/nvidia/cudnn" NCCL_PATH="$user/nvidia/nccl"
configured_says "the library of cuDNN 9.10.2 ($site/nvidia/cudnn/include has its headers)"
rm "$toolkit_in"/lib/libcublasLt* "$toolkit_in"/include/{cublasLt,cublas_api}.h
configure CUDNN_PATH="$both/nvidia/cudnn" CUBLAS_PATH="$both/nvidia/cu13"
configured_says 'NCCL 2.27 or later'
configure CUDNN_PATH="$both/nvidia/cudnn" NCCL_PATH="$user/nvidia/nccl"
configured_says "cuBLASLt 13 or later"
echo "NVIDIA's libraries are found where they are, and what is missing is named"
