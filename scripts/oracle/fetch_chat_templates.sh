#!/usr/bin/env bash
# fetch_chat_templates.sh [FOLDER]: puts the chat templates of models, from the package trl 1.16.0, into FOLDER
# (build/fetched/chat_templates), where ChatTemplates.OfModelsRenderAsTransformersDoes finds them. They are never committed.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-build/fetched/chat_templates}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m pip download --quiet --no-deps --dest "$scratch" trl==1.16.0
mkdir -p "$folder"
python3 -m zipfile -e "$scratch"/trl-*.whl "$scratch"
cp "$scratch"/trl/chat_templates/*.jinja "$folder"
echo "fetch_chat_templates.sh: $(find "$folder" -name '*.jinja' | wc -l) templates in $folder"
