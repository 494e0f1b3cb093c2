#!/usr/bin/env bash
# planted_bugs_test.sh SOURCE: every planted bug (docs/design/planted_bugs.md) still fits the code that it is planted in.
set -euo pipefail
command -v git >/dev/null || { echo "no git"; exit 77; }
cd "$1"
patches=(tests/mutants/*.patch)
((${#patches[@]} >= 30)) || { echo "only ${#patches[@]} patches"; exit 1; }
status=0
for patch in "${patches[@]}"; do
  git apply --check "$patch" || { echo "$patch no longer fits: make it anew"; status=1; }
done
exit $status
