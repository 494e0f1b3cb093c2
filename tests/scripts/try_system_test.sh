#!/usr/bin/env bash
# try_system_test.sh TRY_SYSTEM: what scripts/try_system.sh refuses, and which mirror it takes; stand-ins for apt and debootstrap.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"
mkdir "$place/tree" "$place/tree/scripts" "$place/bin"
cp "$1" "$place/tree/scripts/"
try=$place/tree/scripts/try_system.sh
fail() { echo "try_system_test: $*"; cat "$place/log"; exit 1; }
# exits STATUS EXPECTED COMMAND...: ends so and says EXPECTED.
exits() {
  local status=0
  "${@:3}" >"$place/log" 2>&1 || status=$?
  ((status == $1)) && grep -qE -- "$2" "$place/log" || fail "exit status $status, expected $1 and \"$2\": ${*:3}"
}
exits 64 '^usage: ' "$try"
exits 64 '^usage: ' "$try" --steps
exits 64 '^usage: ' "$try" --steps 'build nothing' trixie
exits 64 '^usage: ' "$try" --fast trixie
exits 64 '^usage: ' "$try" ../trixie
exits 64 '^usage: ' "$try" --packages
exits 64 '^usage: ' "$try" --packages "$place" --steps build trixie

as_user=()
if ((EUID == 0)); then as_user=(setpriv --reuid 65534 --regid 65534 --clear-groups); fi
exits 77 'needs root' "${as_user[@]}" "$try" trixie
((EUID == 0)) || { echo "the rest needs root"; exit 0; }

# stand_in NAME LINE...: a program of these lines, found before all others.
stand_in() { printf '%s\n' '#!/bin/sh' "${@:2}" >"$place/bin/$1"; chmod +x "$place/bin/$1"; }
for tool in bash env dirname mkdir rm grep head tail flock; do ln -s "$(command -v $tool)" "$place/bin/$tool"; done
exits 77 'debootstrap is not installed; run scripts/install_packages.sh debootstrap' env PATH="$place/bin" "$try" trixie
stand_in debootstrap "echo \"\$*\" >>$place/called" 'echo "E: no such suite"' 'exit 1'
stand_in apt-get 'exit 0'
exits 77 'no package lists of Debian; run apt-get update' env PATH="$place/bin:$PATH" "$try" trixie
stand_in apt-get 'echo http://mirror/debian-security/' 'echo http://mirror/debian/' 'echo http://later/debian/'
exits 77 'debootstrap failed, see .*debootstrap.log: E: no such suite' env PATH="$place/bin:$PATH" "$try" trixie
grep -qx -- "--variant=minbase trixie $place/tree/build/systems/trixie http://mirror/debian/" "$place/called" ||
  fail "debootstrap was called with $(cat "$place/called")"

exec 8>"$place/tree/build/systems/trixie.lock"
flock 8
exits 77 'another call uses .*; wait for it' env PATH="$place/bin:$PATH" "$try" trixie
echo "try_system.sh refuses what it cannot do"
