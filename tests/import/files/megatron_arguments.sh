#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=1 --gres=gpu:8
# A script in the manner of Pai-Megatron-Patch and Megatron-DeepSpeed: sizes by argument, DeepSpeed's file written on the way.
set -- cluster 1B 4
PLACE=$1
SIZE=$2
MICRO=$3
shift 3
LR=${1:-3e-4}
if [ $PLACE = cluster ]; then
  GPUS=8
else
  GPUS=1
fi
case $SIZE in
  1B) LAYERS=16; HIDDEN=2048; HEADS=32; FFN=8192 ;;
  8B) LAYERS=32; HIDDEN=4096; HEADS=32; FFN=14336 ;;
esac

config="./ds_config.$SLURM_JOB_ID.json"
cat <<EOT > $config
{
  "train_micro_batch_size_per_gpu": $MICRO,
  "train_batch_size": 512,
  "zero_optimization": {"stage": 1},
  "bf16": {"enabled": true}
}
EOT

MODEL="--num-layers $LAYERS --hidden-size $HIDDEN --num-attention-heads $HEADS --ffn-hidden-size $FFN --swiglu \
  --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --max-position-embeddings 4096 --vocab-size 128256"
export LAUNCHER="torchrun --nproc_per_node $GPUS --nnodes $SLURM_NNODES --rdzv_endpoint $(hostname):6000"
export CMD="`pwd`/pretrain_gpt.py $MODEL --tensor-model-parallel-size 2 --seq-length 4096 --train-samples 1000000 \
  --micro-batch-size $MICRO --global-batch-size 512 --lr $LR --lr-decay-style cosine --lr-warmup-samples 20000 --bf16 \
  --attention-dropout 0 --hidden-dropout 0 --deepspeed --deepspeed_config $config --zero-stage 1 --kill-switch-path /tmp/stop \
  --save $SCRATCH/checkpoints --data-path $DATA_PATH --train-weighted-split-paths-path $(cat where) --num-workers $WORKERS"
srun --jobid $SLURM_JOB_ID bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD'
