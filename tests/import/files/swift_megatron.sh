# ms-swift's megatron sft: its own flags beside those of Megatron-LM
NPROC_PER_NODE=8 \
megatron sft \
    --model Qwen/Qwen2.5-7B-Instruct \
    --dataset chats.jsonl \
    --split_dataset_ratio 0.01 \
    --tensor_model_parallel_size 4 \
    --sequence_parallel true \
    --micro_batch_size 4 \
    --global_batch_size 16 \
    --packing true \
    --lr 1e-5 \
    --lr_warmup_fraction 0.05 \
    --min_lr 1e-6 \
    --num_train_epochs 2 \
    --max_length 4096 \
    --save_steps 200 \
    --finetune true \
    --no_save_optim true \
    --attention_backend flash \
    --output_dir out
