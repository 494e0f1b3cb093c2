#!/usr/bin/env bash
# planner_accuracy_test.sh SOURCE TRIDENT_CASES: scripts/planner_accuracy --check accepts docs/design/planner-accuracy.md only if it
# is what the program answers. Measured results in the rows change the errors, and no answer.
set -euo pipefail
command -v python3 >/dev/null || { echo "SKIPPED: there is no python3"; exit 77; }
source=$1 cases=$2
rows=$source/tests/planner/published/truth/published_rows.json
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
accuracy() { "$source/scripts/planner_accuracy" --program "$cases" --output "$folder/page.md" "$@"; }

cp "$source/docs/design/planner-accuracy.md" "$folder/page.md"
accuracy --check
sed -i 's/| rows | | /| rows | | 1/' "$folder/page.md"
if accuracy --check 2>"$folder/said"; then echo "a changed page was taken" >&2; exit 1; fi
grep -q 'says something else' "$folder/said"

# A measured time that is doubled is another error of that source, found in the page.
sed 's/"iter_time_s":26.5395/"iter_time_s":53.079/' "$rows" >"$folder/rows.json"
cmp -s "$rows" "$folder/rows.json" && { echo "the row to change is gone" >&2; exit 1; }
accuracy --rows "$folder/rows.json"
cmp -s "$source/docs/design/planner-accuracy.md" "$folder/page.md" && { echo "a doubled time changed nothing" >&2; exit 1; }
"$cases" "$folder/rows.json" --json >"$folder/changed"
"$cases" "$rows" --json | cmp - "$folder/changed"
