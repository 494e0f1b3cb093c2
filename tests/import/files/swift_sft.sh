#!/bin/bash
# Two cards, LoRA.
export CUDA_VISIBLE_DEVICES=0,1
NPROC_PER_NODE=2 \
swift sft \
    --model models/qwen \
    --tuner_type lora \
    --dataset corpus/chats \
    --torch_dtype bfloat16 \
    --num_train_epochs 1 \
    --per_device_train_batch_size 1 \
    --learning_rate 1e-4 \
    --lora_rank 8 \
    --lora_alpha 32 \
    --target_modules all-linear \
    --gradient_accumulation_steps 8 \
    --eval_steps 50 \
    --save_steps 50 \
    --save_total_limit 2 \
    --logging_steps 5 \
    --max_length 2048 \
    --output_dir output \
    --warmup_ratio 0.05 \
    --dataloader_num_workers 4 \
    --deepspeed zero2
