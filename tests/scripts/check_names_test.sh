#!/usr/bin/env bash
# check_names_test.sh CHECK_NAMES: plants bodies without headers and pages that name what is not there, and expects both named.
set -euo pipefail
. "$(dirname "$0")/planted_tree.sh"

write core/check.h '' && write core/check.cpp '' && write core/check_text.cpp ''
write parallel/mpi/wire.h '' && write parallel/mpi/wire.cpp ''
write parallel/no_mpi/wire.cpp '' && write parallel/mpi_loader/wire.cpp ''
write app/subcommands.h '' && write app/train_command.cpp '' && write app/main.cpp ''
write tests/core/check_test.cpp ''
write docs/design/architecture.md '# The Map' 'core/check and core/, check.cpp, [here](#the-map)' 'parallel/mpi/*.h, core/check_'
write README.md '[map](docs/design/architecture.md#the-map), core/check.h, [far](https://example.org/x.md), core/Regex.*'
accepted "a tree in order is refused"
grep -qx 'check_names: 7 bodies stand with their headers, and what 2 pages name is there' "$tree/log" ||
  { cat "$tree/log"; exit 1; }

# refused FILE LINE EXPECTED: with this line in addition the check fails and says EXPECTED, and nothing else.
refused() {
  planted "$1" "$2" -F -- "$3"
  grep -qx 'check_names: 1 violations' "$tree/log" || { cat "$tree/log"; exit 1; }
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
