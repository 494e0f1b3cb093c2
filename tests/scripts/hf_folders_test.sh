#!/usr/bin/env bash
# hf_folders_test.sh TRIDENT PROJECT: transformers loads every folder that trident convert writes, config.json made anew, and
# computes the logits of the folder that it came from. PYTHON says which Python has the packages.
set -euo pipefail
trident=$1 project=$2 python=${PYTHON:-python3}
needed="import torch, transformers, safetensors"
"$python" -c "$needed" 2>/dev/null || { echo "SKIPPED: not in $python: $needed"; exit 77; }
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error

for folder in "$project"/tests/model/goldens/families/*/; do
  name=$(basename "$folder")
  mkdir -p "$place/in"
  rm -rf "${place:?}/in/$name" && mkdir "$place/in/$name"
  cp "$folder"/{config.json,generation_config.json,model.safetensors} "$place/in/$name"
  "$trident" convert --from hf "$place/in/$name" --to ckpt "$place/ckpt-$name" >"$place/log"
  rm -r "$place/ckpt-$name/hf"  # nothing carried along: config.json is made anew
  "$trident" convert --from ckpt "$place/ckpt-$name" --to hf "$place/out-$name" --shard-size 20KB >"$place/log"
done
"$python" "$project/tests/scripts/hf_folders.py" "$place"
