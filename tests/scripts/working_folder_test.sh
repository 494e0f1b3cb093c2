#!/usr/bin/env bash
# working_folder_test.sh TRIDENT: what lies in the working directory under a library's name is not loaded, neither at start nor later on.
set -euo pipefail
trident=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
fail() { echo "working_folder_test: $*"; tail -n 3 log 2>/dev/null || true; exit 1; }

# A library that notes that it was loaded, under the names of what trident needs, and of what it opens by name.
cat >planted.cpp <<'CPP'
#include <cstdio>
__attribute__((constructor)) static void note() {
  if (std::FILE* file = std::fopen("loaded", "a")) std::fclose(file);
}
CPP
g++ -shared -fPIC planted.cpp -o planted.so
mapfile -t names < <(readelf --wide --dynamic "$trident" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' | grep -v '^ld-linux')
((${#names[@]} >= 2)) || fail "trident needs no libraries: ${names[*]}"
for name in "${names[@]}" libcuda.so.1 trident_cuda.so libnvToolsExt.so.1; do cp planted.so "$name"; done

# runs ARGUMENT...: trident ends well, with nothing planted loaded.
runs() {
  env -u LD_LIBRARY_PATH "$trident" "$@" >log 2>&1 || fail "trident $* fails with libraries planted in the working directory"
  [[ ! -e loaded ]] || fail "trident $* loads a library from the working directory"
}
printf 'In the beginning was the word.\n%.0s' {1..40} >text.txt
cat >config.json <<'JSON'
{ "run": { "steps": 1, "dir": "run" },
  "model": { "model_type": "llama", "vocab_size": 50257, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
             "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 10000.0 },
  "batch": { "global": 1, "micro": 1, "sequence": 16 }, "data": { "train": "text" },
  "optimizer": { "lr": 1e-3 }, "lr_schedule": { "type": "constant" }, "device": "cpu", "log": { "tensorboard": false } }
JSON
runs --version
runs data prepare --input text.txt --tokenizer gpt2 --append-eod --output text
runs data inspect text
runs train --config config.json

# Where a card is asked for, the driver and the module are opened by name: there is none here, or they come from their own places.
env -u LD_LIBRARY_PATH "$trident" train --config config.json --set device=auto --set run.dir=run2 >log 2>&1 || true
[[ ! -e loaded ]] || fail "device = auto loads a library from the working directory"

# The planted library does note that it is loaded, where a path asks for it.
LD_PRELOAD=./planted.so /bin/true
[[ -e loaded ]] || fail "the planted library does not show that it is loaded"
echo "nothing was loaded from the working directory: ${#names[@]} libraries of trident's, and CUDA's"
