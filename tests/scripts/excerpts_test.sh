#!/usr/bin/env bash
# excerpts_test.sh SOURCE TRIDENT: what the pages print is what the program says; a digit that is not is named, and so is a mark
# that does not work.
set -euo pipefail
. "$(dirname "$0")/answers_again.sh"
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
mkdir -p "$folder/scripts" "$folder/docs/design"
cp "$1/scripts/excerpts" "$folder/scripts/"
cp "$1/README.md" "$folder/"
cp "$1"/docs/*.md "$folder/docs/"
cp "$1"/docs/design/*.md "$folder/docs/design/"
ln -s "$1/configs" "$1/data" "$1/planner" "$folder/"
trident=$folder/trident
again "$2" "$trident"
again "$2_cases" "${trident}_cases"
"$folder/scripts/excerpts" --check "$trident"

# One page alone from here on: the others were read.
mv "$folder/docs" "$folder/all"
mv "$folder/README.md" "$folder/all/"
mkdir -p "$folder/docs/design"

# refused PAGE SED STATUS SAID: with this change the check fails and says so.
refused() {
  local status=0 said
  rm -f "$folder"/docs/*.md "$folder"/docs/design/*.md
  sed "$2" "$folder/all/$1" >"$folder/docs/$1"
  ! cmp -s "$folder/all/$1" "$folder/docs/$1" || { echo "$2 changes nothing in $1"; exit 1; }
  said=$("$folder/scripts/excerpts" --check "$trident" 2>&1) || status=$?
  if ((status != $3)) || [[ $said != *"$4"* ]]; then
    echo "$1 with $2: status $status, expected $3 and \"$4\", said: $said"
    exit 1
  fi
}
# A digit of a table, of an excerpt's middle, a line that is left out, and one that is there too much.
refused studies.md '0,/^| 1,024 | 192, 12 | [0-9]/s/^| 1,024 | 192, 12 | ./| 1,024 | 192, 12 | 9/' 1 \
  'another excerpt of table: scaling'
refused studies.md 's/^| zero1 | ./| zero1 | 9/' 1 'another excerpt of table: olmo'
refused planner.md 's/^  parameters  *[0-9]/  parameters                        9/' 1 \
  'another excerpt of command: trident plan cluster'
refused planner.md '/^zero1  *4  *4/d' 1 'another excerpt of command: trident study'
refused planner.md 's/^faster would be$/&\n  nothing/' 1 '  now   --set'
refused learn.md 's/^| 1f1b, m = 24 | \(.*\) | 0/| 1f1b, m = 24 | \1 | 9/' 1 'another excerpt of table: schedules'
# The file that a command of the page reads, as the page prints it.
refused planner.md 's/^  "device_gb": {"value": 24,/  "device_gb": {"value": 25,/' 1 'another excerpt of command: trident study'
# A word that the code knows and the page does not, one that it does not know, a key that no table names.
refused design/cases.md 's/^| `stack.year` .*$//' 1 'does not name what planner/published/training_row.cpp read: stack.year'
refused design/cases.md 's/`optim_bytes`/optim_bytes/' 1 'read: optim_bytes'
refused design/cases.md 's/`nemo`/`nemo2`/' 1 'another excerpt of table: stacks'
refused design/cases.md 's/`vhalf`, //' 1 'another excerpt of table: words'
refused design/cases.md 's/^{"id":"2","params":./&1/' 1 'another excerpt of command: trident_cases kinds.json'
# Marks that do not work.
refused studies.md 's/^table: scaling$/table: scalling/' 2 'no table scalling'
refused studies.md 's/^table: scaling$/tables: scaling/' 2 'a mark says "tables: scaling"'
refused studies.md '0,/^<!-- -->$/s/^<!-- -->$//' 2 '2 marks, but 1 with an end'
refused planner.md 's|^lines: /^zero +GPUs/ +4$|lines: /^ones +GPUs/ +4|' 2 'no line matches /^ones +GPUs/'
refused planner.md 's/^command: trident study --config /command: trident study --no-config /' 2 'exit status 64'

# Written, a page is whole again, and nothing beside the marks is touched.
sed 's/^| 1,024 | 192, 12 | ./| 1,024 | 192, 12 | 9/' "$folder/all/studies.md" >"$folder/docs/studies.md"
rm -f "$folder/docs/planner.md"
"$folder/scripts/excerpts" "$trident" >/dev/null
cmp "$folder/all/studies.md" "$folder/docs/studies.md"
