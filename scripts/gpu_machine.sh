# Read by gpu_check.sh and gpu_bench.sh: the card, what building with CUDA needs on a machine that may have little and no network, the table.
#
# Sets, when find_card succeeds: card (as nvidia-smi names it), slug (for file names), capability (9.0), architecture (90a-real), driver.

# Debian's packages of the libraries and of Open MPI: 15 MB. What else Open MPI's packages ask for only concerns networks.
machine_packages=(nlohmann-json3-dev libfmt-dev libfmt9 libcli11-dev libgtest-dev libgmock-dev zlib1g-dev zlib1g libzstd-dev libzstd1
  libdnnl-dev libdnnl2 ocl-icd-opencl-dev ocl-icd-libopencl1 opencl-c-headers
  openmpi-bin openmpi-common libopenmpi3 libopenmpi-dev libhwloc15 libevent-core-2.1-7 libevent-pthreads-2.1-7 libpmix2 libmunge2 libltdl7
  libnl-3-200 libnl-route-3-200 libudev1 libnuma1)

say() { echo "${0##*/}: $*" >&2; }

# Exit status 77 with one line where there is no card.
find_card() {
  local found
  command -v nvidia-smi >/dev/null || { echo "SKIPPED: no NVIDIA card here: there is no nvidia-smi"; exit 77; }
  found=$(nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader 2>&1 | head -n 1) || true
  if [[ $found != *,*,* ]]; then echo "SKIPPED: no NVIDIA card here: nvidia-smi says: ${found:-nothing}"; exit 77; fi
  IFS=, read -r card capability driver <<<"$found"
  capability=${capability// /} driver=${driver// /}
  slug=$(tr 'A-Z' 'a-z' <<<"${card#NVIDIA }" | tr -cs 'a-z0-9' '-' | sed 's/-$//')
  architecture=$(architecture_of "$capability")
}

# 9.0 has instructions of its own kind ("a"); every other card takes its plain number.
architecture_of() { case $1 in 9.0) echo 90a-real ;; *) echo "${1/./}-real" ;; esac; }

# prepare_packages DIR: downloads what unpack_packages takes, on a Debian 12 with network.
prepare_packages() {
  mkdir -p "$1"
  (cd "$1" && apt-get -q download "${machine_packages[@]}" >download.log 2>&1) || {
    tail -n 3 "$1/download.log" >&2
    say "apt-get download failed, see $1/download.log; on a Debian 12 with network, run apt-get update first"
    return 1
  }
  rm -f "$1/download.log"
  echo "$1: ${#machine_packages[@]} packages, $(du -sh --apparent-size "$1" | cut -f1)"
}

# unpack_packages DIR TREE: into TREE, with bin/mpirun and bin/mpicc that work from there.
unpack_packages() {
  local deb lib=$2/usr/lib/x86_64-linux-gnu
  compgen -G "$1/*.deb" >/dev/null || { say "--packages $1: no packages there; make them with ${0##*/} --prepare DIR"; return 1; }
  mkdir -p "$2/bin"
  for deb in "$1"/*.deb; do dpkg-deb -x "$deb" "$2" || return 1; done
  # Debian 12 has some of them in /lib.
  if [[ -d $2/lib/x86_64-linux-gnu ]]; then cp -a -n "$2/lib/x86_64-linux-gnu/." "$lib/"; fi
  [[ -e $lib/openmpi ]] || return 0
  cat >"$2/bin/mpicc" <<SH
#!/bin/sh
case \$1 in
  *showme:compile) echo "-I$lib/openmpi/include" ;;
  *showme:link) echo "-L$lib/openmpi/lib -lmpi" ;;
  *showme:incdirs) echo "$lib/openmpi/include" ;;
  *showme:libdirs) echo "$lib/openmpi/lib" ;;
  *) exec cc "-I$lib/openmpi/include" "\$@" "-L$lib/openmpi/lib" -lmpi ;;
esac
SH
  cat >"$2/bin/mpirun" <<SH
#!/bin/sh
export OPAL_PREFIX=$2/usr OPAL_BINDIR=$2/usr/bin OPAL_LIBDIR=$lib OPAL_PKGLIBDIR=$lib/openmpi/lib/openmpi3 OPAL_DATADIR=$2/usr/share
export OPAL_PKGDATADIR=$2/usr/share/openmpi OPAL_SYSCONFDIR=$2/etc/openmpi OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_plm=isolated OMPI_MCA_mca_base_component_show_load_errors=0
export LD_LIBRARY_PATH=$lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
exec $2/usr/bin/mpirun "\$@"
SH
  ln -sf orterun "$2/usr/bin/mpirun"  # which says who it is by its own name
  chmod +x "$2/bin/mpicc" "$2/bin/mpirun"
}

# The folders of cuDNN and NCCL where they came with Python's wheels, unless the environment names them.
find_cuda_wheels() {
  local site
  site=$("${PYTHON:-python3}" -c 'import nvidia, os; print("\n".join(os.path.abspath(p) for p in nvidia.__path__))' 2>/dev/null | head -n 1) || true
  [[ -n $site ]] || return 0
  if [[ -z ${CUDNN_PATH:-} && -e $site/cudnn/include/cudnn.h ]]; then export CUDNN_PATH=$site/cudnn; fi
  if [[ -z ${NCCL_PATH:-} && -e $site/nccl/include/nccl.h ]]; then export NCCL_PATH=$site/nccl; fi
}

# can_include HEADER [FOLDER...]
can_include() { printf '#include <%s>\n' "$1" | g++ -std=c++20 -E -x c++ $(printf -- '-I%s ' "${@:2}") - >/dev/null 2>&1; }

# name_missing TREE: everything that is not here, one line; status 1 if something is.
name_missing() {
  local missing=() nvcc cuda
  nvcc=$(command -v nvcc || compgen -G '/usr/local/cuda/bin/nvcc' || true)
  [[ -n $nvcc ]] || missing+=('nvcc (CUDA toolkit 12.4 or later)')
  command -v cmake >/dev/null || missing+=('cmake 3.25 or later')
  if command -v g++ >/dev/null; then
    cuda=$(dirname "$(dirname "$(readlink -f "${nvcc:-/usr/local/cuda/bin/nvcc}")")")/include
    local header
    for header in fmt/core.h:libfmt-dev nlohmann/json.hpp:nlohmann-json3-dev CLI/CLI.hpp:libcli11-dev gtest/gtest.h:libgtest-dev zlib.h:zlib1g-dev \
      zstd.h:libzstd-dev oneapi/dnnl/dnnl.hpp:libdnnl-dev cublasLt.h:'cuBLAS of the CUDA toolkit' cudnn.h:'cuDNN 9, say where with CUDNN_PATH' \
      nccl.h:'NCCL, say where with NCCL_PATH'; do
      can_include "${header%%:*}" "$1/usr/include" "$cuda" ${CUDNN_PATH:+"$CUDNN_PATH/include"} ${NCCL_PATH:+"$NCCL_PATH/include"} ||
        missing+=("${header%%:*} (${header#*:})")
    done
  else
    missing+=('g++ 12 or later')
  fi
  ((${#missing[@]} == 0)) && return 0
  say "missing here: $(printf '%s; ' "${missing[@]}" | sed 's/; $//'). The Debian packages need no installing: on a Debian 12 with network" \
    "run ${0##*/} --prepare DIR, bring DIR here, add --packages DIR"
  return 1
}

# build_for_card TREE FOLDER TARGET...: the CUDA build of this checkout, for this card only.
build_for_card() {
  local tree=$1 folder=$2 lib=$1/usr/lib/x86_64-linux-gnu options=()
  shift 2
  options=(-DCMAKE_BUILD_TYPE=Release -DTRIDENT_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$architecture")
  if command -v ninja >/dev/null; then options+=(-G Ninja); fi
  if [[ -d $tree/usr ]]; then
    # An old-style run path also serves the libraries' libraries.
    options+=("-DCMAKE_PREFIX_PATH=$tree/usr" "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags,-rpath,$lib,-rpath-link,$lib")
    if [[ -x $tree/bin/mpicc ]]; then options+=("-DMPI_C_COMPILER=$tree/bin/mpicc"); fi
  fi
  if ! cmake -S . -B "$folder" "${options[@]}" >"$folder.log" 2>&1; then
    grep -A4 -E 'CMake Error|Could NOT find' "$folder.log" | head -n 12 >&2
    say "configuring failed, all of it is in $folder.log"
    return 1
  fi
  if ! cmake --build "$folder" --parallel "$(nproc)" --target "$@" >>"$folder.log" 2>&1; then
    grep -E 'error|Error|undefined' "$folder.log" | head -n 12 >&2
    say "building failed, all of it is in $folder.log"
    return 1
  fi
}

# The libraries that a program is linked with, as "CUDA 13.0, cuDNN 9.19.0, NCCL 2.28.9", from the configuration's log $1.
library_versions() { sed -n 's/^-- CUDA: \([^ ]*\) for [^,]*,\(.*\)/CUDA \1,\2/p' "$1" | head -n 1; }

# What the report begins with: date, card, driver, libraries, commit.
report_head() {
  printf '%s, %s (compute capability %s), driver %s, %s, commit %s\n' "$(date -u +%Y-%m-%d)" "$card" "$capability" "$driver" "$1" \
    "$(git describe --always --dirty 2>/dev/null || echo unknown)"
}

# write_report FILE: standard input becomes FILE, a second one of the same day a numbered one; prints its name.
write_report() {
  local file=$1 n=2
  mkdir -p "$(dirname "$file")"
  while [[ -e $file ]]; do file=${1%.md}-$n.md; n=$((n + 1)); done
  cat >"$file"
  echo "$file"
}
