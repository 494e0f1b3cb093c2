# Read by gpu_machine.sh: where nvcc and NVIDIA's libraries lie. The toolkit comes first, then the system's places, then Python's wheels, which
# PyTorch brings: nvidia/cudnn, nvidia/nccl, nvidia/cublas, nvidia/nvtx, or all of CUDA 13's own in nvidia/cu13, libraries as lib...so.N only.
#
# find_nvidia sets nvcc, toolkit and cuda_version, what CMake is told (cuda_options), one line for each thing found (cuda_found) and for each that is
# not (cuda_missing), and cuda_folders, where the libraries found outside the system's places are.

system_places=(/usr /usr/local)

# The folders "nvidia" that Python sees, one a line.
wheel_places() {
  "${PYTHON:-python3}" -c 'import nvidia, os; print("\n".join(os.path.abspath(p) for p in nvidia.__path__))' 2>/dev/null || true
}

# The first nvcc that there is.
find_nvcc() {
  local candidate real
  for candidate in "$(command -v nvcc || true)" "${CUDACXX:-}" ${CUDA_HOME:+"$CUDA_HOME/bin/nvcc"} ${CUDA_PATH:+"$CUDA_PATH/bin/nvcc"} \
    /usr/local/cuda/bin/nvcc $(compgen -G '/usr/local/cuda-*/bin/nvcc' | sort -rV || true); do
    real=$(readlink -f "$candidate" || true)
    if [[ -x $real && ${real##*/} == nvcc ]]; then echo "$real"; return; fi  # and no compiler cache's link
  done
}

# library_facts NAME: into `facts` header, header with the version, how its version is defined, library, the variable that says where, wheel folders,
# the oldest that will do.
library_facts() {
  local major=${cuda_version%%.*}
  case $1 in
    cuBLASLt) facts="cublasLt.h cublas_api.h CUBLAS_VER libcublasLt.so.$major CUBLAS_PATH cublas,cu$major $major" ;;
    cuDNN) facts="cudnn_version.h cudnn_version.h CUDNN libcudnn.so.9 CUDNN_PATH cudnn,cu$major $(oldest_cudnn)" ;;
    NCCL) facts="nccl.h nccl.h NCCL libnccl.so.2 NCCL_PATH nccl,cu$major $(oldest NCCL)" ;;
    NVTX) facts="nvtx3/nvToolsExt.h - - - NVTX_PATH nvtx,cu$major 3" ;;
  esac
}
oldest() { sed -n "s/^set(TRIDENT_OLDEST_$1 \([0-9.]*\))/\1/p" cmake/TridentCuda.cmake; }
oldest_cudnn() {
  local number
  number=$(sed -n 's/.*kOldestCudnn = \([0-9]*\);.*/\1/p' device/cuda/cudnn_attention_rules.cpp)
  echo "$((number / 10000)).$((number / 100 % 100)).$((number % 100))"
}

# at_least VERSION OLDEST: of up to three numbers each.
at_least() {
  local -a is may
  local i
  IFS=. read -ra is <<<"$1"
  IFS=. read -ra may <<<"$2"
  for i in 0 1 2; do
    if ((10#${is[i]:-0} != 10#${may[i]:-0})); then ((10#${is[i]:-0} > 10#${may[i]:-0})); return; fi
  done
}

# header_version FILE PREFIX: MAJOR.MINOR.PATCH as that header defines them.
header_version() {
  awk -v name="^$2_(MAJOR|MINOR|PATCH|PATCHLEVEL)$" '$1 == "#define" && $2 ~ name { text = text (text == "" ? "" : ".") $3; if (++n == 3) exit }
    END { print text }' "$1" 2>/dev/null
}

# first_of FILE...: into `found` the first that exists, or nothing.
first_of() {
  for found in "$@"; do if [[ -e $found ]]; then return; fi; done
  found=''
}

# look_for NAME: adds to cuda_options and cuda_found, or to cuda_missing.
look_for() {
  local name=$1 facts header version_header prefix file variable folders oldest place site folder places=() why=''
  library_facts "$name"
  read -r header version_header prefix file variable folders oldest <<<"$facts"
  if [[ -n ${!variable:-} ]]; then
    places=("${!variable}")
  else
    places=("$toolkit" "${system_places[@]}")
    while read -r site; do
      for folder in ${site:+${folders//,/ }}; do places+=("$site/$folder"); done
    done <<<"$wheel_sites"
  fi
  for place in "${places[@]}"; do
    if try_place "$place"; then return; fi
  done
  cuda_missing+=("$name $oldest or later (${why:-no $header in ${places[*]}}; $variable says where)")
}

# Of look_for: takes what lies in $1, or says in `why` what is wrong with it.
try_place() {
  local found include library='' version=''
  first_of "$1/include/$header" "$1/include/x86_64-linux-gnu/$header" "$1/targets/x86_64-linux/include/$header" "$1/$header"
  [[ -n $found ]] || return 1
  include=${found%"/$header"}
  if [[ $prefix != - ]]; then
    version=$(header_version "$include/$version_header" "$prefix")
    if ! at_least "${version:-0}" "$oldest"; then why+="${why:+, }$include has ${version:-an unknown version}"; return 1; fi
    # The toolkit's own major version: the header is read together with the toolkit's.
    if [[ $name == cuBLASLt && ${version%%.*} != "$oldest" ]]; then why+="${why:+, }$include has $version, for another CUDA"; return 1; fi
    first_of "$1"/{lib64,lib,lib/x86_64-linux-gnu,targets/x86_64-linux/lib}/{"${file%.so.*}.so","$file"}
    library=$found
    if [[ -z $library ]]; then why+="${why:+, }$include has the headers of $version, but there is no $file"; return 1; fi
    cuda_options+=("-D${name}_INCLUDE_DIR=$include" "-D${name}_LIBRARY=$library")
    if [[ " ${system_places[*]} " != *" $1 "* ]]; then cuda_folders=${library%/*}${cuda_folders:+:$cuda_folders}; fi
  else
    cuda_options+=("-DTRIDENT_${name}_INCLUDE_DIR=$include")
  fi
  cuda_found+=("$name${version:+ $version}: ${library:-$include}")
}

# For LD_LIBRARY_PATH: the folders that were found, then those of the environment. An empty element would mean the working directory.
library_path() { printf '%s' "$cuda_folders:${LD_LIBRARY_PATH-}" | sed 's/::*/:/g; s/^://; s/:$//'; }

find_nvidia() {
  local name wheel_sites
  nvcc=$(find_nvcc) toolkit='' cuda_version='' cuda_options=() cuda_found=() cuda_missing=() cuda_folders=''
  if [[ -z $nvcc ]]; then cuda_missing=("nvcc (CUDA toolkit $(oldest CUDA) or later; CUDA_HOME says where)"); return; fi
  toolkit=$(dirname "$(dirname "$nvcc")")
  cuda_version=$("$nvcc" --version | sed -n 's/.* V\([0-9][0-9.]*\).*/\1/p')
  if ! at_least "${cuda_version:-0}" "$(oldest CUDA)"; then
    cuda_missing=("CUDA toolkit $(oldest CUDA) or later ($nvcc is of ${cuda_version:-an unknown version}; CUDA_HOME says where)")
    return
  fi
  cuda_options=("-DTRIDENT_NVCC=$nvcc" "-DCMAKE_CUDA_COMPILER=$nvcc" "-DCUDAToolkit_ROOT=$toolkit")
  wheel_sites=$(wheel_places)
  for name in cuBLASLt cuDNN NCCL NVTX; do look_for "$name"; done
}
