#!/usr/bin/env bash
# install_packages.sh [PACKAGE...]: installs what building, testing and the demo need on Debian 12, and the packages named.
#
# What is there already is left alone; then neither root nor network is needed. Otherwise it runs apt-get, through sudo if not root.
# scripts/prepare_corpus.sh needs nothing more than a bare Debian.
set -euo pipefail
header() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
for argument; do
  case $argument in
    --help | -h) header; exit 0 ;;
    -* | "") header >&2; exit 64 ;;
  esac
done

# Debian's oneDNN is built with OpenCL, and its CMake files ask for OpenCL's; libdnnl-dev only recommends them.
packages=(g++ cmake ninja-build ccache libdnnl-dev ocl-icd-opencl-dev nlohmann-json3-dev libfmt-dev libcli11-dev libgtest-dev
  libgmock-dev openmpi-bin libopenmpi-dev zlib1g-dev libzstd-dev zstd
  libxxhash-dev libyaml-cpp-dev libtomlplusplus-dev "$@")

missing=()
for package in "${packages[@]}"; do
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
done
((${#missing[@]})) || { echo "install_packages.sh: all ${#packages[@]} packages are there"; exit 0; }

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || {
    echo "install_packages.sh: not installed: ${missing[*]}; install sudo, or run as root: $0 $*" >&2
    exit 1
  }
  as_root=(sudo)
fi
echo "installing ${missing[*]}"
# sudo hands no environment on.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
# Old package lists may do as well; if they do not, the installation says so.
"${apt[@]}" update || echo "install_packages.sh: package lists could not be refreshed" >&2
"${apt[@]}" install -y --no-install-recommends "${missing[@]}"
