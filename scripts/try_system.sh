#!/usr/bin/env bash
# try_system.sh [--full] [--fresh] [--steps "NAME..."] SUITE: tries this tree on another release of Debian (trixie) in a folder.
# try_system.sh --packages DIR [--fresh] [--steps "NAME..."] SUITE: tries what scripts/package.sh put into DIR, one of a kind.
#
# Makes build/systems/SUITE with debootstrap from the mirror that this machine's apt is configured with, copies the tree in and there runs
#   packages   scripts/install_packages.sh
#   headers    every header compiles alone
#   build      the program, release preset; warnings are counted, and are no errors (TRIDENT_WERROR)
#   checks     scripts/check_layers, check_binaries, check_isa
#   nodes      one job on two nodes (scripts/nodes.sh), over IPv4 and over IPv6
#   demo       scripts/demo.sh with its whole corpus
#   tests      builds and runs the tests of the folders in which systems differ; with --full all tests
# With --packages, in build/systems/SUITE.bare, where nothing but Debian's minimum is installed:
#   tarball    sums; unpacked, the program prepares tokens and trains, as threads and under its own mpirun
#   debian     installed, the same as an ordinary user; removed, every file is as it was
#   container  the steps of the Containerfile, and the same in what they made
# and where there is podman or buildah, that builds the image without the network.
# A step that fails does not stop the others. --steps runs those named; --fresh makes the folder anew. Compiled objects are kept in
# build/systems/ccache, the last log of a step in build/systems/SUITE.logs.
#
# Needs root, debootstrap and the network. Processes and mounts live in namespaces of this call, which end with it, whatever ends it.
# Exit status: 0 every step passed, 1 one did not, 64 wrong usage, 77 such a folder cannot be made here, with the reason.
set -euo pipefail

all_steps='packages headers build checks nodes demo tests'
# Those with the compiler's, oneDNN's, Open MPI's and the C library's parts; scripts are the same text everywhere.
some_tests='core device data mpi nodes app'

package_steps='tarball debian container'

usage() {
  echo "usage: try_system.sh [--full] [--fresh] [--packages DIR] [--steps \"NAME...\"] SUITE; steps: $all_steps; with --packages:" \
    "$package_steps" >&2
  exit 64
}
cannot() { echo "try_system.sh: SKIPPED: $1" >&2; exit 77; }

full=no fresh=no steps='' inside=no packages=''
while (($#)); do
  case $1 in
    --full) full=yes; shift ;;
    --fresh) fresh=yes; shift ;;
    --packages) packages=${2-}; [[ $packages ]] || usage; all_steps=$package_steps; shift 2 ;;
    --steps) steps=${2-}; [[ $steps ]] || usage; shift 2 ;;
    --inside) inside=yes; shift ;;  # this script calls itself so, in the new root
    -*) usage ;;
    *) break ;;
  esac
done
[[ $# == 1 && $1 =~ ^[a-z]+$ ]] || usage
steps=${steps:-$all_steps}
for step in $steps; do [[ " $all_steps " == *" $step "* ]] || usage; done
suite=$1

# ---- outside: the folder, its mounts, its processes ------------------------------------------------------------------------------

# Debian's mirror, as apt of this machine knows it.
mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null | grep -v -- '-security/*$' | head -n 1
}

make_root() {
  local site
  if [[ $fresh == yes ]]; then rm -rf "$root" "$root.made"; fi
  if [[ -e $root.made ]]; then return; fi
  command -v debootstrap >/dev/null || cannot "debootstrap is not installed; run scripts/install_packages.sh debootstrap"
  site=$(mirror) || true
  [[ -n $site ]] || cannot "apt has no package lists of Debian; run apt-get update"
  rm -rf "$root"
  mkdir -p "$root"
  echo "== debootstrap $suite"
  debootstrap --variant=minbase "$suite" "$root" "$site" >"$logs/debootstrap.log" 2>&1 ||
    cannot "debootstrap failed, see $logs/debootstrap.log: $(tail -n 1 "$logs/debootstrap.log")"
  # How this machine reaches its mirror.
  apt-config dump | grep -E '^Acquire::(https?|Check-[A-Za-z-]*|Retries)(::[A-Za-z-]+)* "[^"]' >"$root/etc/apt/apt.conf.d/99machine" || true
  [[ -e $root/etc/hosts ]] || echo '127.0.0.1 localhost' >"$root/etc/hosts"
  : >"$root.made"
}

# What git would commit, without what git ignores; a build of an earlier call stays. Everything is as new as the copy: a file that is older
# than an object made from another one would pass as built (ccache knows better).
copy_tree() {
  mkdir -p "$root/trident"
  find "$root/trident" -mindepth 1 -maxdepth 1 -not -name build -exec rm -rf {} +
  git ls-files --cached --others --exclude-standard -z | xargs -0 ls -d 2>/dev/null | tar -c -T - | tar -x -m -C "$root/trident"
}

# The new folder is the image that it begins with.
build_image() {
  local engine
  engine=$(command -v podman || command -v buildah) || {
    echo "== $suite, image: SKIPPED: neither podman nor buildah is installed"
    return
  }
  local -x BUILDAH_ISOLATION=chroot  # runc and crun refuse some kernels' control groups
  if {
    tar -C "$root" --one-file-system -cf "$root.tar" . &&
      (cd "${root%/*}" && printf 'FROM scratch\nADD %s /\n' "${root##*/}.tar" | "$engine" build -t trident-base -f - .) &&
      (cd "$packages" &&
        "$engine" build --network none --build-arg BASE=localhost/trident-base -t trident -f trident-*.Containerfile .)
  } >"$logs/image" 2>&1; then
    echo "== $suite, image: passed, by ${engine##*/}"
  else
    echo "== $suite, image: FAILED: $(tail -n 1 "$logs/image")"
    return 1
  fi
}

if [[ $inside == no ]]; then
  cd "$(dirname "$0")/.."
  ((EUID == 0)) || cannot "changing the root folder needs root"
  place=$PWD/build/systems
  root=$place/$suite${packages:+.bare}
  logs=$root.logs
  if [[ $packages ]]; then packages=$(realpath "$packages"); fi
  mkdir -p "$place/ccache" "$logs"
  exec 9>"$root.lock"
  flock --nonblock 9 || cannot "another call uses $root; wait for it"
  make_root
  copy_tree
  if [[ $packages ]]; then
    rm -rf "$root/packages"
    mkdir "$root/packages"
    cp "$packages"/trident-*.{tar.gz,deb,Containerfile} "$packages/SHA256SUMS" "$root/packages/"
  fi
  mkdir -p "$root/ccache" "$root/logs"
  options=()
  [[ $full == no ]] || options=(--full)
  [[ -z $packages ]] || options+=(--packages /packages)
  # A root folder must be a mount point for nodes.sh to make mounts of its own in it. The first process of the process namespace ends with
  # this script, and all others with it; the mounts are the namespace's.
  # shellcheck disable=SC2016  # the inner shell's
  setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --propagation private sh -euc '
    root=$1 place=$2 logs=$3
    shift 3
    mount --bind "$root" "$root"
    cd "$root"
    mount -t proc proc proc
    mount -t sysfs sysfs sys
    mount --rbind /dev dev
    mount -t tmpfs tmpfs dev/shm
    mount -t tmpfs tmpfs tmp
    mount --bind "$place/ccache" ccache
    mount --bind "$logs" logs
    cp -L /etc/resolv.conf etc/resolv.conf
    exec chroot . "$@"' sh "$root" "$place" "$logs" \
    /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 CCACHE_DIR=/ccache \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
    /trident/scripts/try_system.sh --inside "${options[@]}" --steps "$steps" "$suite" <&0 &
  trap 'kill -KILL $!; exit 143' TERM
  trap 'kill -KILL $!; exit 130' INT
  status=0
  wait $! || status=$?
  if [[ $packages ]]; then build_image || status=1; fi
  exit $status
fi

# ---- inside the new root ---------------------------------------------------------------------------------------------------------

cd /trident
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

packages() { apt-get -q update && scripts/install_packages.sh iproute2 procps && dpkg-query -W g++ libdnnl-dev libopenmpi-dev; }

# Those that need a vendor's headers for cards are left to machines that have them.
headers() {
  local flags
  flags="-std=c++20 -fsyntax-only -w -I. $(mpicxx --showme:compile)"
  find . -name '*.h' -not -path './build*' -not -path './device/cuda/*' -not -path './parallel/cuda/*' -not -path './tests/cuda/*' -print0 |
    sort -z >/tmp/headers
  # shellcheck disable=SC2086  # one word per flag
  xargs -0 -P "$(nproc)" -n 1 g++ $flags -x c++ </tmp/headers || return 1
  echo "$(tr -dc '\0' </tmp/headers | wc -c) headers compile alone"
}

# Warnings are no errors from here on, in what later steps build, too.
build() {
  cmake --preset release -DTRIDENT_WERROR=OFF && scripts/build.sh release trident || return 1
  echo "$(grep -c ' warning: ' "$logs/build" || true) warnings"
}

tests() {
  local labels=() targets=() folder
  if [[ $full == no ]]; then
    labels=(--label-regex "^(${some_tests// /|})\$")
    for folder in $some_tests; do targets+=("tests/$folder/all"); done
  fi
  scripts/build.sh release "${targets[@]}" && ctest --preset release --parallel "$(nproc)" "${labels[@]}"
}

checks() { scripts/check_layers && scripts/check_binaries build/release/bin && scripts/check_isa build/release/bin/trident; }

demo() { scripts/demo.sh && grep '^corpus: pd22' corpus/manifest.txt; }

nodes() {
  local trident=build/release/bin/trident network networks=('')
  if scripts/nodes.sh --ipv6 1 mpirun -np 1 true; then networks+=(--ipv6); fi
  "$trident" data prepare --input data/excerpt/train.txt --separator-line '<|endoftext|>' --append-eod --tokenizer gpt2 \
    --output /tmp/text || return 1
  for network in "${networks[@]}"; do
    # shellcheck disable=SC2086  # one word or none
    scripts/nodes.sh $network --slots 4 2 mpirun "$trident" train --config configs/one_node_8.json --set model.preset=llama-1m \
      --set data.train=/tmp/text --set batch.sequence=128 --set run.steps=3 --set run.dir="/tmp/run$network" || return 1
  done
  if ((${#networks[@]} == 2)); then echo "over IPv4 and over IPv6"; else echo "over IPv4; without it mpirun itself fails, before any rank"; fi
}

# ---- packages --------------------------------------------------------------------------------------------------------------------

# runs HOME [COMMAND...]: what a user does first with the program on the path, by way of COMMAND; texts and settings lie in HOME.
runs() {
  local home=$1 as=("${@:2}") train
  cd "$(mktemp -d)" && chmod 777 . || return 1
  if command -v gcc g++ cmake; then echo "is here, and should not be"; return 1; fi
  train=(trident train --config "$home/configs/laptop.json" --set model.preset=llama-1m --set data.train=text
    --set batch.sequence=128 --set run.steps=3 --set parallel=2TP)
  "${as[@]}" trident --version && "${as[@]}" trident data prepare --input "$home/data/excerpt/train.txt" --append-eod \
    --separator-line '<|endoftext|>' --tokenizer gpt2 --output text &&
    "${as[@]}" "${train[@]}" --set run.dir=threads &&
    "${as[@]}" env PATH="$PATH:$home/bin" mpirun_local 2 "${train[@]}" --set run.dir=processes
}

tarball() {
  (cd /packages && sha256sum --check SHA256SUMS) && tar -C /tmp -xzf /packages/trident-*.tar.gz || return 1
  runs "$(echo /tmp/trident-*)" env PATH="$(echo /tmp/trident-*/bin):$PATH"
}

files() { find / -xdev \( -path /var/lib/dpkg -o -path /var/log \) -prune -o -printf '%y %p %l\n' | sort; }

debian() {
  local before
  dpkg --purge trident  # of a call that ended early
  before=$(files)
  dpkg -i /packages/trident-*.deb && [[ $(command -v trident) == /usr/bin/trident ]] &&
    runs /usr/lib/trident setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/nowhere && dpkg --purge trident || return 1
  diff <(echo "$before") <(files) && echo "removed, and nothing is left of it"
}

container() (
  local instruction words
  rm -rf /opt/trident-*
  cd /packages || return 1
  while read -r instruction words; do
    case $instruction in
      ADD) tar -C "${words##* }" -xzf "${words% *}" ;;
      ENV) eval "export $words" ;;
      RUN) sh -c "$words" ;;
      WORKDIR) mkdir -p "$words" && cd "$words" ;;
      ARG | FROM | ENTRYPOINT | CMD | '#' | '') ;;
      *) echo "not known here: $instruction"; false ;;
    esac || return 1
  done < <(cat /packages/*.Containerfile)
  runs "$(echo /opt/trident-*)" env
)

status=0 logs=/logs
for step in $steps; do
  begin=$SECONDS
  if "$step" >"$logs/$step" 2>&1 </dev/null; then said=passed; else said=FAILED status=1; fi
  echo "== $suite, $step: $said in $((SECONDS - begin)) s: $(grep -v '^ *$' "$logs/$step" | tail -n 1)"
done
exit $status
