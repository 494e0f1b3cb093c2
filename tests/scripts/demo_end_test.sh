#!/usr/bin/env bash
# demo_end_test.sh TRIDENT SOURCE: scripts/demo.sh itself, but for packages, build and corpus, with a smaller model: it ends with
# text of the model that it trained and with a Hugging Face folder of it, the second time as the first.
set -euo pipefail
trident=$1 source=$2
command -v mpirun >/dev/null || { echo "SKIPPED: there is no mpirun"; exit 77; }
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{scripts,configs,corpus,bin,build/cpu/bin}
cp "$source/scripts/demo.sh" "$source/scripts/mpirun_local" "$tree/scripts/"
cp "$source/configs/demo_2dp_4pp_4tp.json" "$tree/configs/"
ln -s "$trident" "$tree/build/cpu/bin/trident"
printf '#!/bin/sh\nexit 0\n' >"$tree/scripts/install_packages.sh"
printf '#!/bin/sh\necho "$@" >"%s/built"\n' "$tree" >"$tree/scripts/build.sh"
printf '#!/bin/sh\ncat "%s/libraries"\n' "$tree" >"$tree/bin/ldconfig"  # whether there is a driver
chmod +x "$tree"/scripts/*.sh "$tree/bin/ldconfig"
cp "$source"/data/excerpt/{train,valid}.txt "$tree/corpus/"
echo 'corpus: pd22' >"$tree/corpus/manifest.txt"

model='{"model_type": "llama", "vocab_size": 50257, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 64, "max_position_embeddings": 64}'
fail() { echo "$1"; cat "$tree/out"; exit 1; }
demo() {  # STEPS
  PATH=$tree/bin:$PATH "$tree/scripts/demo.sh" --set "run.steps=$1" --set run.overwrite=true --set batch.sequence=32 \
    --set batch.global=4 \
    --set batch.micro=1 --set eval.steps=1 \
    --set "model=$model" --set model.preset=null --set=run.dir="$tree/its run" >"$tree/out" 2>&1 ||
    fail "the demo ended with code $?"
}
for steps in 3 2; do
  if [[ $steps == 3 ]]; then
    preset=cpu && echo libc.so.6 >"$tree/libraries"
  else
    preset=release && echo libcuda.so.1 >"$tree/libraries" && mv "$tree/build/cpu" "$tree/build/release"
  fi
  demo "$steps"
  [[ $(<"$tree/built") == "$preset trident" ]] || fail "not the preset $preset was built"
  [[ $preset == release ]] || grep -q 'no NVIDIA driver: Trident is built without CUDA' "$tree/out" || fail "it does not say so"
  text=$(sed -n '/^in its own words/,/ tensors of /p' "$tree/out" | sed '1d;$d')
  [[ $text == 'Once upon a time'?* ]] || fail "no text at the end"
  [[ $(tail -n 1 "$tree/out") == demo:* ]] || fail "no last line"
  for file in config.json model.safetensors; do
    [[ -s "$tree/its run/hf/$file" ]] || fail "no $file in the exported folder"
  done
  [[ $(wc -l <"$tree/its run/samples.jsonl") == 2 ]] || fail "no samples of the evaluations after 0 and $steps steps"
  # What was exported is what was trained, and not what an earlier demo left: it says the same.
  from_folder=$("$trident" generate --hf "$tree/its run/hf" --prompt "Once upon a time" --max-new-tokens 40 --temperature 0.8 \
    --top-p 0.95 --seed 1)
  [[ $text == "Once upon a time$from_folder" ]] || fail "the folder says something else: $from_folder"
  newest=$(find "$tree/its run/ckpt" -maxdepth 1 -name 'step-????????' | sort | tail -n 1)
  [[ $newest == *step-0000000$steps ]] || fail "$newest is newer than step $steps"
done
