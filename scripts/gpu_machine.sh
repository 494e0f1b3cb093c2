# Read by gpu_check.sh and gpu_bench.sh: the card, what building with CUDA needs on a machine that may have little and no network, the report.
#
# Sets, when find_card succeeds: card (as nvidia-smi names it), slug (for file names), capability (9.0), architecture (90a-real), driver.
# Reads: scratch, a folder that goes; deadline, the shell's second by which all ends (0: none).
. "${BASH_SOURCE[0]%/*}/gpu_libraries.sh"

# Debian's packages of the libraries and of Open MPI: 15 MB. What else Open MPI's packages ask for only concerns networks.
machine_packages=(nlohmann-json3-dev libfmt-dev libfmt9 libcli11-dev libgtest-dev libgmock-dev zlib1g-dev zlib1g libzstd-dev libzstd1 libxxhash-dev
  libyaml-cpp-dev libtomlplusplus-dev
  libdnnl-dev libdnnl2 ocl-icd-opencl-dev ocl-icd-libopencl1 opencl-c-headers
  openmpi-bin openmpi-common libopenmpi3 libopenmpi-dev libhwloc15 libevent-core-2.1-7 libevent-pthreads-2.1-7 libpmix2 libmunge2 libltdl7
  libnl-3-200 libnl-route-3-200 libudev1 libnuma1)

say() { echo "${0##*/}: $*" >&2; }

# The first card that CUDA_VISIBLE_DEVICES shows, which alone is shown from then on; nvidia-smi lists all. Exit status 77 with one line if none is.
find_card() {
  local cards wanted index uuid
  command -v nvidia-smi >/dev/null || no_card "there is no nvidia-smi"
  cards=$(nvidia-smi --query-gpu=index,uuid,name,compute_cap,driver_version --format=csv,noheader 2>&1) || true
  [[ $cards =~ ^[0-9]+,.*,.*,.*, ]] || no_card "nvidia-smi says: $(head -n 1 <<<"${cards:-nothing}")"
  wanted=${CUDA_VISIBLE_DEVICES-${cards%%,*}} wanted=${wanted%%,*}
  [[ -n $wanted ]] || no_card "CUDA_VISIBLE_DEVICES is empty and so hides them all; unset it"
  IFS='|' read -r index uuid card capability driver <<<"$(choose_card "$cards" "$wanted")"
  [[ -n $index ]] || no_card "CUDA_VISIBLE_DEVICES = $CUDA_VISIBLE_DEVICES names none, or several, of $(sed 's/, */ = /;s/,.*//' <<<"$cards" | paste -sd ';' | sed 's/;/; /g')"
  export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=$wanted  # as nvidia-smi counts
  # Of a card in parts, the first is shown when the whole is asked for.
  if [[ $uuid == MIG-* ]]; then CUDA_VISIBLE_DEVICES=$uuid; fi
  slug=$(tr 'A-Z' 'a-z' <<<"${card#NVIDIA }" | tr -cs 'a-z0-9' '-' | sed 's/-$//')
  architecture=$(architecture_of "$capability")
}
no_card() { echo "SKIPPED: no NVIDIA card here: $1"; exit 77; }

# choose_card CARDS WANTED: "index|UUID|name|capability|driver" of the card or MIG part whose index is, or whose UUID begins with, WANTED; nothing
# if there is none or more than one.
choose_card() {
  { echo "$1"; echo; nvidia-smi -L; } | awk -v wanted="$2" '
    function take(uuid, name) { ++taken; line = index_of "|" uuid "|" name "|" capability[index_of] "|" driver[index_of] }
    !listing && NF == 0 { listing = 1; next }
    !listing { split($0, field, / *, */); i = field[1]; uuid_of[i] = field[2]; name_of[i] = field[3]; capability[i] = field[4]; driver[i] = field[5]; next }
    { uuid = $0; sub(/.*UUID: */, "", uuid); sub(/\).*/, "", uuid) }
    $1 == "GPU" { index_of = $2; sub(/:/, "", index_of); parts[index_of] = 0; order[++cards] = index_of; next }
    $1 == "MIG" {
      if (++parts[index_of] == 1) { first[index_of] = uuid; kind[index_of] = $2 }
      if (wanted ~ /^MIG-/ && index(uuid, wanted) == 1) take(uuid, name_of[index_of] " MIG " $2) }
    END {
      for (c = 1; c <= cards; ++c) {
        index_of = order[c]
        if (wanted != index_of && !(wanted ~ /^GPU-/ && index(uuid_of[index_of], wanted) == 1)) continue
        if (parts[index_of]) take(first[index_of], name_of[index_of] " MIG " kind[index_of]); else take(uuid_of[index_of], name_of[index_of])
      }
      if (taken == 1) print line }'
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

# unpack_packages DIR TREE: into TREE, with bin/mpirun and bin/mpicc that work from there. What was unpacked from the same packages stays.
unpack_packages() {
  local deb lib=$2/usr/lib/x86_64-linux-gnu
  compgen -G "$1/*.deb" >/dev/null || { say "--packages $1: no packages there; make them with ${0##*/} --prepare DIR"; return 1; }
  command -v dpkg-deb >/dev/null || { say "--packages $1: there is no dpkg-deb to unpack them with; install dpkg"; return 1; }
  local libc
  libc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d ' ' -f 2)
  at_least "${libc:-0}" 2.36 || { say "--packages $1: Debian 12's, which need glibc 2.36, and here is ${libc:-another C library}"; return 1; }
  if [[ $2 == *[[:space:]]* ]]; then say "--packages cannot be unpacked in $2: compilers would split its name; take a --build without spaces"; return 1; fi
  if [[ $(cat "$2/unpacked" 2>/dev/null) == "$(cd "$1" && ls -- *.deb)" ]]; then return; fi
  mkdir -p "$2/bin"
  for deb in "$1"/*.deb; do dpkg-deb -x "$deb" "$2" || return 1; done
  # Debian 12 has some of them in /lib.
  if [[ -d $2/lib/x86_64-linux-gnu ]]; then cp -a -n "$2/lib/x86_64-linux-gnu/." "$lib/"; fi
  if [[ -e $lib/openmpi ]]; then add_open_mpi "$2" "$lib"; fi
  (cd "$1" && ls -- *.deb) >"$2/unpacked"
}

# add_open_mpi TREE LIBRARIES: mpicc and mpirun that know where the rest is.
add_open_mpi() {
  local tree=$1 lib=$2
  cat >"$tree/bin/mpicc" <<SH
#!/bin/sh
case \$1 in
  *showme:compile) echo "-I$lib/openmpi/include" ;;
  *showme:link) echo "-L$lib/openmpi/lib -lmpi" ;;
  *showme:incdirs) echo "$lib/openmpi/include" ;;
  *showme:libdirs) echo "$lib/openmpi/lib" ;;
  *) exec cc "-I$lib/openmpi/include" "\$@" "-L$lib/openmpi/lib" -lmpi ;;
esac
SH
  cat >"$tree/bin/mpirun" <<SH
#!/bin/sh
export OPAL_PREFIX=$tree/usr OPAL_BINDIR=$tree/usr/bin OPAL_LIBDIR=$lib OPAL_PKGLIBDIR=$lib/openmpi/lib/openmpi3 OPAL_DATADIR=$tree/usr/share
export OPAL_PKGDATADIR=$tree/usr/share/openmpi OPAL_SYSCONFDIR=$tree/etc/openmpi OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_plm=isolated OMPI_MCA_mca_base_component_show_load_errors=0
export LD_LIBRARY_PATH=$lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
exec $tree/usr/bin/mpirun "\$@"
SH
  ln -sf orterun "$tree/usr/bin/mpirun"  # which says who it is by its own name
  chmod +x "$tree/bin/mpicc" "$tree/bin/mpirun"
}

# Into cxx the first compiler that will do, or nothing: where the system's own is older, a later one may lie beside it.
find_compiler() {
  for cxx in ${CXX:+"$CXX"} g++ g++-15 g++-14 g++-13 g++-12; do
    if at_least "$("$cxx" -dumpversion 2>/dev/null || echo 0)" 12; then return; fi
  done
  cxx=''
}

# can_include HEADER [FOLDER]
can_include() { printf '#include <%s>\n' "$1" | "$cxx" -std=c++20 -E -x c++ ${2:+-I"$2"} - >/dev/null 2>&1; }

# name_missing TREE FOLDER: everything that building needs and is not here, one line; status 1 if something is. Programs that were
# brought to FOLDER and start here need a driver and NVIDIA's libraries alone.
name_missing() {
  local missing=() header driver_cuda version
  find_nvidia
  version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p') || true
  at_least "${version:-0}" 3.25 || missing+=("cmake 3.25 or later (${version:+here is $version; }pip has it)")
  find_compiler
  if [[ -n $cxx ]]; then
    for header in fmt/core.h:libfmt-dev nlohmann/json.hpp:nlohmann-json3-dev CLI/CLI.hpp:libcli11-dev gtest/gtest.h:libgtest-dev zlib.h:zlib1g-dev \
      zstd.h:libzstd-dev yaml-cpp/parser.h:libyaml-cpp-dev toml++/toml.h:libtomlplusplus-dev xxhash.h:libxxhash-dev oneapi/dnnl/dnnl.hpp:libdnnl-dev; do
      can_include "${header%%:*}" "$1/usr/include" || missing+=("${header%%:*} (${header#*:})")
    done
  else
    missing+=("g++ 12 or later (here is $(g++ -dumpversion 2>/dev/null || echo none); CXX says which)")
  fi
  # A driver serves later toolkits of its own major version, and all before.
  driver_cuda=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9][0-9.]*\).*/\1/p' | head -n 1) || true
  if [[ -n $driver_cuda && -n $cuda_version ]] && ((${cuda_version%%.*} > ${driver_cuda%%.*})); then
    cuda_missing+=("a driver for CUDA ${cuda_version%%.*} (driver $driver is for $driver_cuda), or a CUDA ${driver_cuda%%.*} toolkit: CUDA_HOME says where")
  fi
  if ((${#cuda_missing[@]} == 0)) && brought "$2"; then return; fi
  missing=("${cuda_missing[@]}" "${missing[@]}")
  ((${#missing[@]} == 0)) && return 0
  say "missing here: $(printf '%s; ' "${missing[@]}" | sed 's/; $//'). The Debian packages need no installing: on a Debian 12 with network" \
    "run ${0##*/} --prepare DIR, bring DIR here, add --packages DIR"
  return 1
}

# bounded SECONDS COMMAND...: not beyond `deadline`, after which $scratch/cut is there. The process is named for stop_bounded.
bounded() {
  local limit=$1 left=$((deadline - SECONDS)) status=0
  if ((deadline > 0 && left < limit)); then limit=$((left > 1 ? left : 1)); fi
  timeout -k 5 "$limit" "${@:2}" &
  echo $! >"$scratch/running"
  wait $! || status=$?
  rm -f "$scratch/running"
  if ((limit < $1 && (status == 124 || status == 137))); then touch "$scratch/cut"; fi
  return $status
}
stop_bounded() { if [[ -e $scratch/running ]]; then kill "$(<"$scratch/running")" 2>/dev/null || true; fi; }

# As many compilers as there are cores, and as memory lets: each may take 2 GB. Containers may have less of it than their machine.
jobs_at_once() {
  local jobs bytes limit
  jobs=$(nproc)
  bytes=$(awk '/^MemAvailable:/ { printf "%.0f", 1024 * $2 }' /proc/meminfo)
  limit=$(cat "${memory_limit:-/sys/fs/cgroup/memory.max}" 2>/dev/null || true)
  if [[ $limit =~ ^[0-9]+$ ]] && ((limit < bytes)); then bytes=$limit; fi
  if ((bytes / 2000000000 < jobs)); then jobs=$((bytes / 2000000000)); fi
  echo $((jobs > 1 ? jobs : 1))
}

# Whether FOLDER has programs that were built elsewhere (gpu_visit.sh pack) and start here, on this card, with the CUDA found here;
# if not, why_built says why.
brought() {
  local folder=$1
  why_built=''
  [[ -e $folder/brought ]] || return 1
  local cards toolkit_of
  read -r cards toolkit_of <"$folder/brought"
  if [[ ";$cards;" != *";$architecture;"* || $toolkit_of != "CUDA ${cuda_version%%.*}" ]]; then
    why_built="built here: those brought are for $(<"$folder/brought"), here is $architecture CUDA ${cuda_version%%.*}"
    return 1
  fi
  if ! "$folder/bin/trident" --version >"$folder.log" 2>&1; then
    why_built="built here: those brought do not start: $(tail -n 1 "$folder.log")"
    return 1
  fi
  local found lacks
  lacks=$(LD_LIBRARY_PATH=$(library_path) ldd "$folder/bin/trident_cuda.so" 2>/dev/null | sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/\1/p' | paste -sd ' ')
  if [[ -n $lacks ]]; then why_built="built here: those brought do not find $lacks"; return 1; fi
  found=$(printf '%s\n' "${cuda_found[@]}" | sed -n 's/^\(cuBLASLt\|cuDNN\|NCCL\) \([0-9.]*\):.*/\1 \2/p' | paste -sd ',')
  printf '%s\n' "-- CUDA: $cuda_version for $architecture, ${found//,/, }" '-- Ranks as processes: over MPI' >>"$folder.log"
}

# build_for_card TREE FOLDER TARGET...: the CUDA build of this checkout, for this card only; goes on with what FOLDER has of the same build.
build_for_card() {
  local tree=$1 folder=$2 lib=$1/usr/lib/x86_64-linux-gnu options=() like status=0
  shift 2
  if brought "$folder"; then return; fi
  rm -f "$folder/brought"
  options=(-DCMAKE_BUILD_TYPE=Release -DTRIDENT_CUDA=ON -DTRIDENT_WERROR=OFF "-DCMAKE_CUDA_ARCHITECTURES=$architecture" "-DCMAKE_CXX_COMPILER=$(command -v "$cxx")"
    "-DCMAKE_CUDA_HOST_COMPILER=$(command -v "$cxx")" "${cuda_options[@]}")
  if command -v ninja >/dev/null; then options+=(-G Ninja); fi
  if [[ -d $tree/usr ]]; then
    # An old-style run path also serves the libraries' libraries.
    options+=("-DCMAKE_PREFIX_PATH=$tree/usr" "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags,-rpath,$lib,-rpath-link,$lib")
    if [[ -x $tree/bin/mpicc ]]; then options+=("-DMPI_C_COMPILER=$tree/bin/mpicc"); fi
  fi
  mkdir -p "$folder"
  like=$(printf '%s\n' "$PWD" "$("$nvcc" --version 2>/dev/null | tail -n 1)" "$("$cxx" --version 2>/dev/null | head -n 1)" "${options[@]}")
  # What was configured for another checkout, card or toolchain is configured from nothing.
  if [[ -e $folder/CMakeCache.txt && $(cat "$folder/made_for" 2>/dev/null) != "$like" ]]; then options+=(--fresh); fi
  printf '%s\n' "$like" >"$folder/made_for"
  bounded 300 cmake -S . -B "$folder" "${options[@]}" >"$folder.log" 2>&1 || status=$?
  if ((status == 124 || status == 137)); then echo "configuring was not done in time"; return $status; fi
  if ((status != 0)); then
    grep -A4 -E 'CMake Error|Could NOT find' "$folder.log" | head -n 12 >&2
    say "configuring failed, all of it is in $folder.log"
    return 1
  fi
  bounded 36000 cmake --build "$folder" --parallel "$(jobs_at_once)" --target "$@" >>"$folder.log" 2>&1 || status=$?
  if ((status == 124 || status == 137)); then echo "building came to: $(grep '^\[' "$folder.log" | tail -n 1 | cut -c 1-120)"; return $status; fi
  if ((status != 0)); then
    grep -E 'error|Error|undefined' "$folder.log" | head -n 12 >&2
    say "building failed, all of it is in $folder.log"
    return 1
  fi
}

# The libraries that a program is linked with, as "CUDA 13.0, cuDNN 9.19.0, NCCL 2.28.9", from the configuration's log $1.
library_versions() { sed -n 's/^-- CUDA: \([^ ]*\) for [^,]*,\(.*\)/CUDA \1,\2/p' "$1" | head -n 1; }

# Of this checkout, or where that is none, of the programs brought.
commit_of_build() { git describe --always --dirty 2>/dev/null || cat "$build/commit" 2>/dev/null || echo unknown; }

# What the report begins with: date, card, driver, libraries, commit.
report_head() {
  printf '%s, %s (compute capability %s), driver %s, %s, commit %s\n' "$(date -u +%Y-%m-%d)" "$card" "$capability" "$driver" "$1" \
    "$(commit_of_build)"
}

# free_report FILE: its name or, if there is one of that name already, a numbered one; says so and fails where nothing can be written.
free_report() {
  local file=$1 n=2
  while [[ -e $file ]]; do file=${1%.md}-$n.md; n=$((n + 1)); done
  mkdir -p "$(dirname "$file")" 2>/dev/null && : 2>/dev/null >"$file" || { say "$file cannot be written; say where to with --report FILE"; return 1; }
  echo "$file"
}
