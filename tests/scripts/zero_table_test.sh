#!/usr/bin/env bash
# zero_table_test.sh SOURCE TRIDENT: scripts/zero_table takes the table of docs/zero.md only as plans say it, and says if none is.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
mkdir "$folder/scripts" "$folder/docs"
cp "$1/scripts/zero_table" "$folder/scripts/"
cp -r "$1/configs" "$folder/"
cp "$1/docs/zero.md" "$folder/docs/"
"$folder/scripts/zero_table" --check "$2"
sed -i '/^| `zero3` | [0-9]/s/[1-8]/9/' "$folder/docs/zero.md"
said=$("$folder/scripts/zero_table" --check "$2" 2>&1) && { echo "a changed number was accepted"; exit 1; }
[[ $said == *"docs/zero.md has another table"* ]] || { echo "not named: $said"; exit 1; }
"$folder/scripts/zero_table" false >"$folder/out" 2>&1 && { echo "no plan, and no error"; exit 1; }
[[ $(<"$folder/out") == *"exit status 1"* ]] || { echo "not named: $(<"$folder/out")"; exit 1; }
