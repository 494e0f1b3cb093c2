#!/usr/bin/env bash
# package_test.sh PACKAGE_SH BUILD: packs what is built in BUILD, then breaks the folder in every way that the check is for.
set -euo pipefail
export LC_ALL=C
package=$1
build=$2
check=$(dirname "$package")/package/check

for tool in patchelf ompi_info dpkg-query; do
  command -v "$tool" >/dev/null || { echo "SKIPPED: there is no $tool; install ${tool/ompi_info/openmpi-bin}"; exit 77; }
done
if [[ $(ompi_info --version) != *"Open MPI v4."* ]]; then echo "SKIPPED: packages are made with Debian 12's Open MPI"; exit 77; fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
place="$scratch/a place"
mkdir "$place"
fail() {
  echo "package_test: $1" >&2
  tail -n 15 "$place/out" >&2
  exit 1
}
says() { grep -qE -- "$1" "$place/out" || fail "does not say: $1"; }

options=(--build "$build" --output "$place" --folder)
if [[ ! -e $build/bin/trident_cuda.so ]]; then
  if "$package" "${options[@]}" >"$place/out" 2>&1; then fail "a build without CUDA was packed as one with it"; fi
  says 'was built without CUDA; add --cpu'
  options+=(--cpu)
fi
"$package" "${options[@]}" >"$place/out" 2>&1 || fail "the package is not made, or does not pass its own check"
says 'all from inside; glibc 2.36 is enough; licences there; runs after moving'
folder=$(compgen -G "$place/trident-*-linux-x86_64*")
[[ -x $folder/bin/mpirun && -e $folder/configs/laptop.json && -s $folder/licenses/libdnnl2/copyright && ! -e $folder.tar.gz ]] || fail "the folder lacks files"

# The sums of all packages of a folder, and of nothing else, also of the one that was made anew.
sums=$(dirname "$package")/package/sums
mkdir "$place/made"
if "$sums" "$place/made" >"$place/out" 2>&1; then fail "sums of no packages"; fi
says 'no package in .*; make one with'
for archive in trident-1-linux-x86_64.tar.gz trident-1-linux-x86_64-cpu.tar.gz other.tar.gz; do echo $archive >"$place/made/$archive"; done
"$sums" "$place/made"
echo new >"$place/made/trident-1-linux-x86_64-cpu.tar.gz"
if (cd "$place/made" && sha256sum --check --strict SHA256SUMS) >"$place/out" 2>&1; then fail "a changed package has the sum"; fi
"$sums" "$place/made"
(cd "$place/made" && sha256sum --check --strict SHA256SUMS) >"$place/out" 2>&1 || fail "the sums are wrong"
[[ $(cut -d' ' -f3 "$place/made/SHA256SUMS" | paste -sd' ') == "trident-1-linux-x86_64-cpu.tar.gz trident-1-linux-x86_64.tar.gz" ]] ||
  fail "sums of other files"

# breaks NAME...: the check fails.
check_fails() { if "$check" "$folder" >"$place/out" 2>&1; then fail "passes the check: $1"; fi; }

# At rest, all at once: each has its own line.
mkdir "$place/whole"
cp "$folder"/lib/libz.so.1 "$folder"/lib/openmpi/mca_coll_sm.so "$folder"/licenses/libgomp1/copyright "$folder/licenses/FILES" "$place/whole/"
mv "$folder/lib/libhwloc.so.15" "$place/whole/"
sed -i 's/GLIBC_2\.14/GLIBC_2.99/' "$folder/lib/libz.so.1"
patchelf --remove-rpath "$folder/lib/openmpi/mca_coll_sm.so"
cp "$folder"/lib/openmpi/mca_btl_tcp.so "$place/whole/"
patchelf --set-rpath '$ORIGIN/..:' "$folder/lib/openmpi/mca_btl_tcp.so"
: >"$folder/licenses/libgomp1/copyright"
sed -i '/libevent_core/d' "$folder/licenses/FILES"
check_fails 'a library missing, one too new, one found elsewhere, a run path with the working directory, a licence emptied, an unknown file'
says 'libexec/mpirun takes libhwloc.so.15 from /.*; it ought to lie in lib/'
says 'lib/libz.so.1 needs glibc 2.99, newer than 2.36'
says 'lib/openmpi/mca_coll_sm.so takes libmca_common_sm.so.40 from /'
says 'lib/openmpi/mca_btl_tcp.so: an empty element in its run path'
says 'licenses/libgomp1/copyright is missing or empty'
says 'lib/libevent_core-2.1.so.7 is not in licenses/FILES'
cp "$place/whole/libz.so.1" "$place/whole/libhwloc.so.15" "$folder/lib/"
cp "$place/whole/mca_coll_sm.so" "$place/whole/mca_btl_tcp.so" "$folder/lib/openmpi/"
cp "$place/whole/copyright" "$folder/licenses/libgomp1/"
cp "$place/whole/FILES" "$folder/licenses/"

# Running: bound to where it was made; without what mpirun speaks to its ranks with, and then taking this machine's.
cp "$folder/bin/mpirun" "$place/whole/"
sed -i "s,^root=.*,root='$folder'," "$folder/bin/trident"
sed -i '/^export OPAL_PREFIX/d' "$folder/bin/mpirun"
check_fails 'programs that look elsewhere'
says 'after moving, trident help fails'
says 'loads from outside: .*/openmpi'
[[ -d $folder ]] || fail "the folder was not moved back"

if "$check" "$place" >"$place/out" 2>&1; then fail "a folder without a package passes"; fi
says '^usage: '
if "$package" --cpu --build "$place/whole" --output "$place" >"$place/out" 2>&1; then fail "packs a folder without a build"; fi
says 'whole has no bin/trident; build the target trident there'
