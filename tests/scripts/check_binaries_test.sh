#!/usr/bin/env bash
# check_binaries_test.sh CHECK_BINARIES: builds tiny programs with one violation each and expects each to be named.
set -euo pipefail
check=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir "$place/a bin"
cat >"$place/main.cpp" <<'CPP'
#include <cstdio>
#include <cstring>
int main(int argc, char** argv) {
  char text[64];
  std::strcpy(text, argv[argc - 1]);
  return std::puts(text);
}
CPP
fail() { echo "check_binaries_test: $*"; cat "$place/log"; exit 1; }
hardened=(-O2 -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -Wl,-z,now,-z,relro)
compile() { g++ "${hardened[@]}" "$place/main.cpp" "${@:2}" -o "$place/a bin/$1"; }
exits() {
  local status=0
  "$check" "${@:2}" >"$place/log" 2>&1 || status=$?
  ((status == $1)) || fail "exit status $status, expected $1: ${*:2}"
}

# In order, with everything that may stand in a run path, beside what is no binary.
compile trident '-Wl,-rpath,/usr/lib:$ORIGIN:$ORIGIN/../lib:${ORIGIN}/x'
printf '#!/bin/sh\n' >"$place/a bin/script"
chmod +x "$place/a bin/script"
g++ -c "$place/main.cpp" -o "$place/a bin/object.so"
exits 0 "$place/a bin"
grep -qx 'check_binaries: 1 programs and libraries are in order' "$place/log" || fail "counts wrongly"

# refused NAME EXPECTED OPTION...: a program compiled so is refused in one line that says EXPECTED.
refused() {
  compile "$1" "${@:3}"
  exits 1 "$place/a bin"
  [[ $(wc -l <"$place/log") == 2 ]] && grep -qE "^$place/a bin/$1: $2" "$place/log" || fail "$1 with ${*:3}: expected one line with \"$2\""
  rm "$place/a bin/$1"
}
empty='an empty element in its run path .*means the working directory'
for tags in --enable-new-dtags --disable-new-dtags; do
  refused program "$empty" "-Wl,$tags,-rpath,/usr/lib:"
  refused program "$empty" "-Wl,$tags,-rpath,:/usr/lib"
  refused program "$empty" "-Wl,$tags,-rpath,/usr/lib::/lib"
  refused program '"lib" in its run path \[/usr/lib:lib\] is relative' "-Wl,$tags,-rpath,/usr/lib:lib"
done
refused program '"\$ORIGINAL/x" in its run path' '-Wl,-rpath,$ORIGINAL/x'
refused program 'has an executable stack' -Wl,-z,execstack
refused program 'binds functions late' -Wl,-z,lazy
refused program 'leaves its tables of functions writable' -Wl,-z,norelro
refused program 'has no guarded stack' -fno-stack-protector
refused trident_cuda.so 'has no guarded stack' -fno-stack-protector -shared -fPIC
refused trident_cuda.so 'has no checked copies' -U_FORTIFY_SOURCE -shared -fPIC
compile program -U_FORTIFY_SOURCE  # which is for the two alone
compile trident
exits 0 "$place/a bin"

# A library without a name of its own is needed under the path that the linker was given.
mkdir "$place/lib"
g++ -shared -fPIC -x c++ /dev/null -o "$place/lib/part.so"
(cd "$place" && compile program -Wl,--no-as-needed lib/part.so)
exits 1 "$place/a bin"
grep -q 'program: needs lib/part.so, which is relative' "$place/log" || fail "a library with a relative path passes"

# Others' files in a package are under the first two rules, ours under all.
rm "$place"/a\ bin/*
compile libother.so -Wl,-z,lazy -fno-stack-protector -shared -fPIC
exits 1 "$place/a bin"
exits 0 --packed "$place/a bin"
compile trident -Wl,-z,lazy
exits 1 --packed "$place/a bin"
compile libother.so -Wl,-z,lazy -shared -fPIC -Wl,-rpath,.
exits 1 --packed "$place/a bin/libother.so"

exits 2
exits 2 "$place/nowhere"
exits 2 "$place/main.cpp"
mkdir "$place/empty"
exits 2 "$place/empty"
echo "check_binaries names every planted violation"
