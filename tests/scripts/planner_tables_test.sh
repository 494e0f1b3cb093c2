#!/usr/bin/env bash
# planner_tables_test.sh SOURCE TRIDENT: scripts/planner_tables takes the page only as the program says it, and
# says when there is none.
set -euo pipefail
. "$(dirname "$0")/answers_again.sh"
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
mkdir "$folder/scripts" "$folder/docs"
cp "$1/scripts/planner_tables" "$folder/scripts/"
cp "$1/docs/planner-tables.md" "$folder/docs/"
cp -r "$1/configs" "$folder/"
again "$2" "$folder/trident"
cd "$folder"
"$folder/scripts/planner_tables" --check "$folder/trident"
sed -i '0,/^| Llama 2 7B | [0-9]/s/| Llama 2 7B | ./| Llama 2 7B | 9/' "$folder/docs/planner-tables.md"
said=$("$folder/scripts/planner_tables" --check "$folder/trident" 2>&1) && { echo "a changed number was accepted"; exit 1; }
[[ $said == *"planner-tables.md is another page"* ]] || { echo "not named: $said"; exit 1; }
"$folder/scripts/planner_tables" false >"$folder/out" 2>&1 && { echo "no plan, and no error"; exit 1; }
[[ $(<"$folder/out") == *"exit status 1"* ]] || { echo "not named: $(<"$folder/out")"; exit 1; }
