# Read by tests of scripts that want a card: $place, a folder that goes when the test ends, with a card, a toolkit and compilers in $place.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place"/{bin,programs,lib,include/nvtx3}

# stand_in NAME <<TEXT: a program.
stand_in() { cat >"$place/$1"; chmod +x "$place/$1"; }
fail() { echo "$1"; cat "$place/out"; cat "$place/report.md" 2>/dev/null; exit 1; }

# FAKE_CARDS: "no", or index, UUID, name, capability and driver of each; FAKE_PARTS: what nvidia-smi -L says in addition, after the first card.
stand_in bin/nvidia-smi <<'SH'
#!/bin/bash
cards=${FAKE_CARDS:-0, GPU-aaaa1111, NVIDIA H100 80GB HBM3, 9.0, 580.159.04}
if [[ $cards == no ]]; then echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"; exit 9; fi
case ${1:-} in
  --query-gpu*) echo "$cards" ;;
  -L)
    while IFS=, read -r index uuid name _; do
      echo "GPU $index:${name} (UUID:$uuid)"
      if [[ -n ${FAKE_PARTS:-} ]]; then echo "$FAKE_PARTS"; FAKE_PARTS=''; fi
    done <<<"$cards" ;;
  *) echo "| NVIDIA-SMI 580.159.04   Driver Version: 580.159.04   CUDA Version: ${FAKE_DRIVER_CUDA:-13.0}  |" ;;
esac
SH
# Asked for its version and whether a header can be included. Of the later ones only FAKE_GXX_LATER is there.
stand_in bin/g++ <<'SH'
#!/bin/sh
case $0 in *++-*) [ "${0##*-}" = "${FAKE_GXX_LATER:-}" ] || exit 127; FAKE_GXX=${0##*-} ;; esac
if [ "$1" = --version ]; then echo "g++ ${FAKE_GXX:-12}.2.0"; exit; fi
if [ "$1" = -dumpversion ]; then echo "${FAKE_GXX:-12}"; exit; fi
read -r line
case $line in *"<${FAKE_MISSING:-nothing}>"*) exit 1 ;; esac
SH
for later in 12 13 14 15; do ln -s g++ "$place/bin/g++-$later"; done
stand_in bin/nvcc <<'SH'
#!/bin/sh
echo "Cuda compilation tools, release ${FAKE_CUDA:-13.0}, V${FAKE_CUDA:-13.0}.88"
SH

# library FOLDER cuBLASLt|cuDNN|NCCL|NVTX VERSION [LIBRARY]: headers that say so in FOLDER/include, and in FOLDER/lib an empty library.
library() {
  local header prefix last=PATCH
  mkdir -p "$1"/{lib,include/nvtx3}
  case $2 in
    cuBLASLt) header=cublas_api.h prefix=CUBLAS_VER; : >"$1/include/cublasLt.h" ;;
    cuDNN) header=cudnn_version.h prefix=CUDNN last=PATCHLEVEL; : >"$1/include/cudnn.h" ;;
    NCCL) header=nccl.h prefix=NCCL ;;
    NVTX) : >"$1/include/nvtx3/nvToolsExt.h"; return ;;
  esac
  awk -v prefix="$prefix" -v last="$last" -v version="$3" 'BEGIN { split(version, part, ".")
    printf "#define %s_MAJOR %d\n#define %s_MINOR %d\n#define %s_%s %d\n", prefix, part[1], prefix, part[2], prefix, last, part[3] }' >"$1/include/$header"
  if [[ -n ${4:-} ]]; then : >"$1/lib/$4"; fi
}
export PYTHON=false  # no wheels
library "$place" cuBLASLt 13.1.0 libcublasLt.so
library "$place" cuDNN 9.19.0 libcudnn.so
library "$place" NCCL 2.28.9 libnccl.so
library "$place" NVTX 3
