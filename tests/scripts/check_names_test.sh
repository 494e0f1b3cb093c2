#!/usr/bin/env bash
# check_names_test.sh CHECK_NAMES: plants bodies without headers and pages that name what is not there, and expects both named.
set -euo pipefail
check=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# write FILE LINE...
write() { mkdir -p "$tree/$(dirname "$1")"; printf '%s\n' "${@:2}" >"$tree/$1"; }

write core/check.h '' && write core/check.cpp '' && write core/check_text.cpp ''
write parallel/mpi/wire.h '' && write parallel/mpi/wire.cpp ''
write parallel/no_mpi/wire.cpp '' && write parallel/mpi_loader/wire.cpp ''
write app/subcommands.h '' && write app/train_command.cpp '' && write app/main.cpp ''
write tests/core/check_test.cpp ''
write docs/design/architecture.md '# The Map' 'core/check and core/, check.cpp, [here](#the-map)' 'parallel/mpi/*.h, core/check_'
write README.md '[map](docs/design/architecture.md#the-map), core/check.h, [far](https://example.org/x.md), core/Regex.*'
"$check" "$tree" >"$tree/log" || { cat "$tree/log"; echo "a tree in order is refused"; exit 1; }
grep -qx 'check_names: 7 bodies stand with their headers, and what 2 pages name is there' "$tree/log" ||
  { cat "$tree/log"; exit 1; }

# refused FILE LINE EXPECTED: with this line in addition the check fails and says EXPECTED, and nothing else.
refused() {
  local file=$tree/$1 status=0
  [[ ! -e $file ]] || cp "$file" "$tree/kept"
  mkdir -p "$(dirname "$file")"
  printf '%s\n' "$2" >>"$file"
  "$check" "$tree" >"$tree/log" || status=$?
  if ((status != 1)) || ! grep -qF -- "$3" "$tree/log" || ! grep -qx 'check_names: 1 violations' "$tree/log"; then
    echo "$1 with $2: status $status, expected 1 and \"$3\", said:"
    cat "$tree/log"
    exit 1
  fi
  if [[ -e $tree/kept ]]; then mv "$tree/kept" "$file"; else rm "$file"; fi
}

refused core/other.cpp '' 'core/other.cpp: no header has its name'
refused core/checks.cpp '' 'core/checks.cpp: no header has its name'
refused data/check.cpp '' 'data/check.cpp: no header has its name'
refused parallel/no_cuda/wire.cpp '' 'parallel/no_cuda/wire.cpp: no header has its name'
refused model/config/hf_config.cpp '' 'model/config/hf_config.cpp: its header model/config/model_config.h is not there'
refused app/main.h '' 'the row of app/main.cpp is not needed'
refused README.md 'core/gone.h' 'README.md:2: names core/gone.h, which is not there'
refused README.md 'see gone.cpp' 'README.md:2: names gone.cpp, which is not there'
refused README.md '[x](docs/gone.md)' 'README.md:2: links to docs/gone.md, which is not there'
refused README.md '[x](docs/design/architecture.md#the-mop)' 'README.md:2: docs/design/architecture.md has no heading #the-mop'
refused docs/design/architecture.md 'core/gone' 'docs/design/architecture.md:4: names core/gone, which is not there'
refused docs/design/architecture.md 'parallel/mpi/*.cu' 'docs/design/architecture.md:4: names parallel/mpi/*.cu, which is not there'

rm -r "$tree"/{app,core,parallel}
status=0
"$check" "$tree" >"$tree/log" 2>&1 || status=$?
((status == 2)) || { echo "a tree without sources: status $status, expected 2"; cat "$tree/log"; exit 1; }
echo "bodies apart from their headers and names of nothing are found"
