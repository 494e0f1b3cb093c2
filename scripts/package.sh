#!/usr/bin/env bash
# package.sh [--cpu] [--build DIR] [--output DIR] [--folder]: makes DIR/trident-<version>-linux-x86_64.tar.gz, which runs from wherever it is
# unpacked, with nothing installed, on x86-64 Linux with glibc 2.36 or later: on CPUs, and on NVIDIA cards where their libraries are. Beside it,
#   DIR/trident-....deb            is the same as a Debian package: /usr/lib/trident and /usr/bin/trident
#   DIR/trident-....Containerfile  makes an image of the archive, without the network
#   DIR/SHA256SUMS                 has the sums of all packages in DIR
# scripts/try_system.sh --packages DIR SUITE tries them where nothing else is installed.
#
#   --cpu          without CUDA; the name ends with -cpu
#   --build DIR    packs what is built there, instead of building build/package for every kind of card
#   --output DIR   where to (build)
#   --folder       stops at the folder DIR/trident-..., without archives
#
# Runs on Debian 12 with what scripts/install_packages.sh patchelf installs. Last, scripts/package/check tries the folder.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

limit_mb=60  # compressed
cards='80-real;90a-real;100-real;120'
. scripts/package/names.sh
outside="^($glibc|$nvidia)\\.so"
# Parts of Open MPI for other networks, other launchers, files and shared-memory programs: nothing here calls them.
unneeded='^mca_(atomic|fbtl|fcoll|fs|io|memheap|scoll|sharedfp|spml|sshmem|vprotocol)_|_(ucx|ofi|openib|psm2?|monitoring|flux|jsm|simulator|netlink)\.so$'

origins=()

die() { echo "package.sh: $*" >&2; exit 1; }
say() { printf '== %s (%d s)\n' "$1" "$SECONDS"; }

cuda=yes build='' output=build archive=yes
while (($#)); do
  case $1 in
    --cpu) cuda=no ;;
    --folder) archive=no ;;
    --build | --output)
      (($# >= 2)) || die "$1 needs a folder"
      declare "${1#--}=$2"
      shift ;;
    *) sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 64 ;;
  esac
  shift
done

name() {
  local version suffix=''
  version=$(git describe --tags --exact-match 2>/dev/null || git describe --always --dirty 2>/dev/null ||
    sed -n 's/^project(trident VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
  [[ $cuda == yes ]] || suffix=-cpu
  echo "trident-${version#v}-linux-x86_64$suffix"
}

need_tools() {
  local tool missing=()
  for tool in cmake patchelf dpkg-deb dpkg-query objdump ompi_info; do command -v "$tool" >/dev/null || missing+=("$tool"); done
  ((${#missing[@]} == 0)) || die "not installed: ${missing[*]}; run scripts/install_packages.sh patchelf"
  [[ $(ompi_info --version) == *"Open MPI v4."* ]] || die "packs Open MPI 4, and here is $(ompi_info --version | head -n 1); run it on Debian 12"
}

# ---- what goes in ----------------------------------------------------------------------------------------------------------------

build_program() {
  local options=(-DCMAKE_BUILD_TYPE=Release -DTRIDENT_TESTS=OFF -DTRIDENT_MPI=ON)
  if [[ $cuda == yes ]]; then options+=(-DTRIDENT_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$cards"); else options+=(-DTRIDENT_CUDA=OFF); fi
  build=build/package$([[ $cuda == yes ]] || echo -cpu)
  mkdir -p "$build"
  cmake -S . -B "$build" -G Ninja "${options[@]}" >"$build/configure.log" 2>&1 || {
    grep -A4 'CMake Error' "$build/configure.log" | head -n 8 >&2
    die "configuring failed, see $build/configure.log; without CUDA: package.sh --cpu"
  }
  cmake --build "$build" --parallel "$(nproc)" --target trident
}

need_build() {
  [[ -x $build/bin/trident ]] || die "$build has no bin/trident; build the target trident there, or leave --build out"
  objdump -p "$build/bin/trident" | grep 'NEEDED  *libmpi\.so' >/dev/null || die "$build was built without MPI; configure it with -DTRIDENT_MPI=ON"
  [[ $cuda == no || -e $build/bin/trident_cuda.so ]] || die "$build was built without CUDA; add --cpu, or configure it with -DTRIDENT_CUDA=ON"
}

add_program() {
  cmake --install "$build" --component trident --prefix "$folder" --strip >/dev/null
  if [[ $cuda == no ]]; then rm -f "$folder/lib/trident_cuda.so"; fi
  mkdir -p "$folder"/{libexec,lib,data,etc,licenses,scripts}
  mv "$folder/bin/trident" "$folder/libexec/trident"
  cp scripts/mpirun_local "$folder/bin/"
  cp -r configs docs README.md LICENSE "$folder/"
  cp -r data/excerpt "$folder/data/"
  cp -r scripts/slurm "$folder/scripts/"
  mkdir -p "$folder"/licenses/{gpt2,cl100k}
  cp data/gpt2/LICENSE* data/gpt2/README.md "$folder/licenses/gpt2/"
  cp data/cl100k/LICENSE* data/cl100k/README.md "$folder/licenses/cl100k/"
  mkdir -p "$folder/licenses/uplot"
  cp report/assets/LICENSE.uPlot "$folder/licenses/uplot/LICENSE"
}

# Debian's Open MPI: its launcher and the daemon for other nodes, the parts that are loaded by name, what its messages say.
add_open_mpi() {
  local part pmix
  cp -L "$(command -v orterun)" "$folder/libexec/mpirun"  # which says who it is by its own name
  cp -L "$(command -v orted)" "$folder/libexec/orted"
  mkdir -p "$folder"/{lib,share}/{openmpi,pmix}
  for part in "$(open_mpi_path pkglibdir)"/mca_*.so; do
    if [[ ${part##*/} =~ $unneeded ]]; then continue; fi
    cp -L "$part" "$folder/lib/openmpi/"
    note "lib/openmpi/${part##*/}" "$part"
  done
  cp "$(open_mpi_path pkgdatadir)"/help-*.txt "$folder/share/openmpi/"
  cp scripts/package/openmpi-mca-params.conf "$folder/etc/"
  note libexec/mpirun "$(command -v orterun)"
  note libexec/orted "$(command -v orted)"

  pmix=$(ldd "$folder"/lib/openmpi/mca_pmix_ext*.so | sed -n 's/.*libpmix\.so[^ ]* => \([^ ]*\).*/\1/p')
  pmix=$(dirname "$(readlink -f "${pmix:?package.sh: Open MPI without PMIx; run it on Debian 12}")")
  for part in "$pmix"/pmix/pmix_mca_*.so; do
    cp -L "$part" "$folder/lib/pmix/"
    note "lib/pmix/${part##*/}" "$part"
  done
  cp "$pmix"/../share/pmix/help-*.txt "$folder/share/pmix/"
}
open_mpi_path() { ompi_info --path "$1" --parsable | sed -n "s/^path:$1://p"; }

# Every library that a file of the folder asks for, and those ask for, but glibc's and NVIDIA's.
add_libraries() {
  local file library path
  for file in "$folder"/libexec/* "$folder"/lib/{*.so,openmpi/*,pmix/*}; do
    if [[ ! -e $file ]]; then continue; fi
    while read -r library _ path _; do
      if [[ $library =~ $outside || $library == linux-vdso* || $library == /* || -e $folder/lib/$library ]]; then continue; fi
      [[ $path == /* ]] || die "${file#"$folder/"} needs $library, which is not on this machine; install the package that has it"
      cp -L "$path" "$folder/lib/$library"
      chmod 755 "$folder/lib/$library"
      note "lib/$library" "$path"
    done < <(LD_TRACE_LOADED_OBJECTS=1 /lib64/ld-linux-x86-64.so.2 "$file")
  done
}

# The old kind of run path, which goes before LD_LIBRARY_PATH: a cluster's environment may name other versions of the same libraries.
# shellcheck disable=SC2016  # $ORIGIN is the dynamic linker's
set_run_paths() {
  patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$folder"/libexec/*
  patchelf --force-rpath --set-rpath '$ORIGIN/..' "$folder"/lib/{openmpi,pmix}/*.so
  patchelf --force-rpath --set-rpath '$ORIGIN' "$folder"/lib/*.so*
}

add_starters() {
  local program
  for program in trident mpirun orted; do
    cp scripts/package/start "$folder/bin/$program"
    chmod 755 "$folder/bin/$program"
  done
}

# ---- licences --------------------------------------------------------------------------------------------------------------------

# note FILE ORIGIN: FILE of the folder has come from ORIGIN of this machine, so that ORIGIN's licence goes in, too.
note() { origins+=("$1	$(readlink -f "$2")"); }

# licenses/FILES: file, package, version; licenses/<package>/copyright.
add_debian_licences() {
  local origin real package
  local -A package_of version_of
  while IFS=$'\t' read -r package origin; do version_of[$package]=$origin; done < <(dpkg-query -W -f '${Package}\t${Version}\n')
  # Debian 12 has /lib in /usr, and some packages still say /lib.
  while IFS=' ' read -r package origin; do package_of[${origin#/usr}]=${package%%:*}; done < <(
    printf '%s\n' "${origins[@]#*	}" | sed 'p;s,^/usr,,' | sort -u | xargs -d '\n' dpkg-query -S 2>/dev/null || true)
  for origin in "${origins[@]}"; do
    real=${origin#*	}
    package=${package_of[${real#/usr}]:-}
    [[ -n $package ]] || die "$real is of no Debian package, so that its licence is unknown; build with what scripts/install_packages.sh installs"
    printf '%s\t%s\t%s\n' "${origin%	*}" "$package" "${version_of[$package]}"
    if [[ -e $folder/licenses/$package ]]; then continue; fi
    mkdir "$folder/licenses/$package"
    cp -L "/usr/share/doc/$package/copyright" "$folder/licenses/$package/copyright"
  done | sort -u >"$folder/licenses/FILES"
}

add_licences() {
  local text nvcc
  note libexec/trident /usr/include/CLI/CLI.hpp
  note libexec/trident /usr/include/xxhash.h
  note libexec/trident /usr/include/yaml-cpp/parser.h
  note libexec/trident /usr/include/toml++/toml.h
  add_debian_licences
  if [[ $cuda == yes ]]; then
    nvcc=$(sed -n 's/^TRIDENT_NVCC:FILEPATH=//p' "$build/CMakeCache.txt")
    mkdir -p "$folder/licenses/cuda-runtime"
    cp scripts/package/cuda-runtime.txt "$folder/licenses/cuda-runtime/copyright"
    text=$(dirname "$(dirname "$(readlink -f "$nvcc")")")/EULA.txt
    if [[ -e $text ]]; then cp "$text" "$folder/licenses/cuda-runtime/"; fi
    printf 'lib/trident_cuda.so\tcuda-runtime\t%s\n' "$("$nvcc" --version | sed -n 's/.*, V//p')" >>"$folder/licenses/FILES"
  fi
  # Debian's files refer to them.
  mkdir -p "$folder/licenses/common"
  while read -r text; do
    if [[ -e /usr/share/common-licenses/$text ]]; then cp -L "/usr/share/common-licenses/$text" "$folder/licenses/common/"; fi
  done < <(grep -rhoE '/usr/share/common-licenses/[A-Za-z0-9.+-]*[A-Za-z0-9]' "$folder/licenses" | sed 's,.*/,,' | sort -u)
  cp scripts/package/licenses.md "$folder/licenses/README.md"
}

# ---- Debian package and image ----------------------------------------------------------------------------------------------------

# A later commit has a later version.
debian_version() {
  local number tag
  number=$(sed -n 's/^project(trident VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
  if tag=$(git describe --tags --exact-match 2>/dev/null); then echo "${tag#v}"; else
    echo "$number$(git log -1 --format=+git%cd.%h --date=format:%Y%m%d%H%M%S 2>/dev/null || true)"
  fi
}

# Nothing is run when it is installed or removed.
make_debian_package() {
  local stage
  stage=$(mktemp -d)
  mkdir -p "$stage"/{DEBIAN,usr/bin,usr/lib,usr/share/doc/trident}
  cp -a "$folder" "$stage/usr/lib/trident"
  ln -s ../lib/trident/bin/trident "$stage/usr/bin/trident"
  { cat "$folder/LICENSE"; echo "Licences of the libraries: /usr/lib/trident/licenses"; } >"$stage/usr/share/doc/trident/copyright"
  cat >"$stage/DEBIAN/control" <<CONTROL
Package: trident
Version: $(debian_version)
Architecture: amd64
Maintainer: The Trident project
Installed-Size: $(du -sk "$stage/usr" | cut -f1)
Depends: libc6 (>= $newest_glibc)
Section: science
Priority: optional
Description: trains language models in parallel
 Tensor, pipeline and data parallelism with ZeRO, on CPUs$([[ $cuda == no ]] || echo ' and NVIDIA GPUs').
 Its own mpirun is /usr/lib/trident/bin/mpirun.
CONTROL
  chmod -R u=rwX,go=rX "$stage"
  SOURCE_DATE_EPOCH=$made dpkg-deb --root-owner-group -Zgzip --build "$stage" "$folder.deb" >/dev/null
  rm -rf "$stage"
}

write_containerfile() {
  local name=${folder##*/}
  cat >"$folder.Containerfile" <<FILE
# podman build --network none -f $name.Containerfile .
# in the folder of $name.tar.gz. Any base with a shell and glibc $newest_glibc does.
ARG BASE=docker.io/library/debian:12-slim
FROM \$BASE
ADD $name.tar.gz /opt/
ENV PATH=/opt/$name/bin:\$PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
RUN trident --version
WORKDIR /work
ENTRYPOINT ["trident"]
CMD ["help"]
FILE
}

# ---- from nothing to the archive -------------------------------------------------------------------------------------------------

need_tools
if [[ -z $build ]]; then say "building"; build_program; fi
need_build
folder=$output/$(name)
say "gathering $folder"
rm -rf "$folder"
mkdir -p "$folder"
folder=$(realpath "$folder")
add_program
add_open_mpi
add_libraries
set_run_paths
add_starters
add_licences

say "checking"
scripts/package/check "$folder"
[[ $archive == yes ]] || exit 0

say "packing"
made=$(git log -1 --format=%ct 2>/dev/null || echo 0)
tar -C "${folder%/*}" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$made" -c "${folder##*/}" |
  gzip -9n >"$folder.tar.gz"
size=$(stat -c %s "$folder.tar.gz")
((size <= limit_mb * 1000000)) || die "$folder.tar.gz has $size bytes, more than $limit_mb MB; look at du -a $folder | sort -n"
make_debian_package
write_containerfile
scripts/package/sums "${folder%/*}"
echo "$folder.tar.gz: $size bytes; beside it .deb, .Containerfile and SHA256SUMS"
