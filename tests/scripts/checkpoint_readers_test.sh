#!/usr/bin/env bash
# checkpoint_readers_test.sh TRIDENT PROJECT numpy|torch: what the program saved, read by others: the reader that
# docs/checkpoints.md shows, as it stands there, beside Python's safetensors; with `torch` also PyTorch's distributed checkpoints.
# PYTHON says which Python has the packages.
#
# A learning rate of 1e-30 moves no weight, so that every layout saves the same ones; a single rank's files, which cut nothing, say
# which.
set -euo pipefail
trident=$1 project=$2 kind=$3 python=${PYTHON:-python3}
needed="import numpy, safetensors"
[[ $kind == torch ]] && needed+="; from torch.distributed.checkpoint import HuggingFaceStorageReader"
"$python" -c "$needed" 2>/dev/null || { echo "SKIPPED: not in $python: $needed"; exit 77; }
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export PYTHONDONTWRITEBYTECODE=1

"$trident" data prepare --input "$project/data/excerpt/valid.txt" --tokenizer gpt2 --output "$place/text" --append-eod >"$place/log"
sed -n '/^```python$/,/^```$/{/^```/!p}' "$project/docs/checkpoints.md" >"$place/page"
awk -v place="$place" '/^import/ && !/numpy/ { file = place "/example_" ++n ".py" } { print > file }' "$place/page"
lines=$(wc -l <"$place/example_1.py")
((lines <= 40)) || { echo "docs/checkpoints.md promises 40 lines, the example has $lines"; exit 1; }

# Sizes that no number of ranks divides into rows: shards begin and end within them, and ranks have up to three boxes of a tensor.
rest="\"batch\": {\"global\": 6, \"micro\": 1, \"sequence\": 16}, \"data\": {\"train\": \"$place/text\"}"
cat >"$place/llama.json" <<END
{"model": {"model_type": "llama", "vocab_size": 50257, "hidden_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2,
           "num_key_value_heads": 2, "intermediate_size": 36, "max_position_embeddings": 16}, $rest}
END
cat >"$place/gpt2.json" <<END
{"model": {"model_type": "gpt2", "vocab_size": 50257, "n_embd": 20, "n_layer": 2, "n_head": 2, "n_positions": 16}, $rest}
END

# train RUN LAYOUT: $model in $compute; the checkpoint of one step in place/RUN/ckpt.
train() {
  local setting settings=()
  for setting in "run.dir=$place/$1" "parallel=$2" "precision.compute=$compute" run.steps=1 run.threads_per_rank=1 \
    checkpoint.every=1 optimizer.lr=1e-30; do
    settings+=(--set "$setting")
  done
  "$trident" train --config "$place/$model.json" "${settings[@]}" >"$place/log" 2>&1 || { cat "$place/log"; exit 1; }
}

for model in llama gpt2; do
  for compute in fp32 bf16; do
    [[ $kind == torch && $model-$compute != @(llama-bf16|gpt2-fp32) ]] && continue  # PyTorch takes seconds to start
    train one 1DP
    train many "3DP x 2PP x 2TP"
    "$trident" ckpt show "$place/many/ckpt" >"$place/shown"
    "$python" "$project/tests/scripts/checkpoint_readers.py" "$kind" "$place" "$place"/{one,many}/ckpt/step-00000001
    rm -rf "$place/one" "$place/many"
  done
done
