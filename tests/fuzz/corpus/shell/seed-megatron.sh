#!/bin/bash
GPUS=8
N=$((GPUS * 2)); SAVE=${1:-ckpt} DATA=$2
D=(
  --nproc_per_node $GPUS # of each
)
M=(--num-layers 12 "--split '99,1,0'")
if [[ "$T" == "fp8" ]] || [ -n "$K" ]; then M+=(--fp8); else M+=(--bf16); fi
torchrun ${D[@]} --node_rank $RANK pretrain_gpt.py \
  "${M[@]}" --save "$SAVE" --data-path $DATA --lr 1e-4 2>&1 | tee log
