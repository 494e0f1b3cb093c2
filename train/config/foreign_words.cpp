#include "train/config/foreign_words.h"

#include <algorithm>
#include <vector>

#include "core/json_reader.h"
#include "optim/update_rule.h"
#include "train/config/option_table.h"

namespace trident {
namespace {

using enum ForeignWord::Kind;

constexpr std::string_view kParallel = "Parallelism", kBatch = "Batch and run", kModel = "Model", kOptimizer = "Optimizer and learning rate",
                           kDTypes = "Precision and memory", kData = "Data", kSaving = "Checkpoints",
                           kLogging = "Logging, evaluation, debugging", kKernels = "Kernels and communication",
                           kHuggingFace = kHuggingFaceWords, kOthers = kOtherWords;

#define TRIDENT_OR(rule, name, states) " or " name
constexpr std::string_view kBuiltRules = std::string_view(TRIDENT_UPDATE_RULES(TRIDENT_OR) "; no other rule is built").substr(4);
#undef TRIDENT_OR

// In the order of a pretraining script. Names of other systems only where they mean the same thing.
constexpr ForeignWord kFlags[] = {
    {kParallel, "--tensor-model-parallel-size T", kKey, "parallel.tensor", "", "", "tensor_parallel.autotp_size",
     "tensor_parallel_degree"},
    {kParallel, "--pipeline-model-parallel-size P", kKey, "parallel.pipeline", "", "", "", "pipeline_parallel_degree"},
    {kParallel, "--num-virtual-stages-per-pipeline-rank V", kKey, "parallel.virtual_stages", "",
     "with parallel.schedule \"interleaved\""},
    {kParallel, "--num-layers-per-virtual-pipeline-stage N", kKey, "parallel.virtual_stages", "",
     "layers / (P x N), with parallel.schedule \"interleaved\""},
    {kParallel, "--pipeline-model-parallel-layout TEXT", kKey, "parallel.layers", "",
     "layers of each virtual stage in model order; embedding and head stay at the ends"},
    {kParallel, "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers", kKey, "parallel.layers", "",
     "all stages are listed"},
    {kParallel, "--account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split", kImplied, "", "",
     "layers are balanced by cost, embedding and head counted, unless parallel.layers says otherwise"},
    {kParallel, "--microbatch-group-size-per-virtual-pipeline-stage N", kRefused, "", "",
     "always the number of pipeline ranks, Megatron-LM's default"},
    {kParallel, "--sequence-parallel", kKey, "parallel.sequence_parallel", "true"},
    {kParallel, "--context-parallel-size C", kKey, "parallel.context", "2", "", "sequence.sequence_parallel_size",
     "context_parallel_degree"},
    {kParallel, "--cp-comm-type TYPE", kRefused, "", "", "goes with context parallelism"},
    {kParallel, "--expert-model-parallel-size, --num-experts, --moe-*", kRefused, "", "", "dense models only"},
    {kParallel, "--use-tp-pp-dp-mapping", kKey, "parallel.order", "\"tp-cp-pp-dp\""},
    {kParallel, "data-parallel size (implied)", kKey, "parallel.data", "\"auto\"",
     "what remains of the ranks, or given and checked", "", "data_parallel_shard_degree"},
    {kParallel, "--use-distributed-optimizer", kKey, "parallel.zero", "\"zero1\"", "the default; without it: ddp",
     "zero_optimization.stage = 1"},
    {kParallel, "--data-parallel-sharding-strategy no_shard", kKey, "parallel.zero", "\"ddp\"", "", "zero_optimization.stage = 0"},
    {kParallel, "--data-parallel-sharding-strategy optim", kKey, "parallel.zero", "\"zero1\"", "", "zero_optimization.stage = 1"},
    {kParallel, "--data-parallel-sharding-strategy optim_grads", kKey, "parallel.zero", "\"zero2\"",
     "allowed with pipelines here", "zero_optimization.stage = 2"},
    {kParallel, "--data-parallel-sharding-strategy optim_grads_params", kKey, "parallel.zero", "\"zero3\"",
     "allowed with pipelines here", "zero_optimization.stage = 3", "fsdp_reshard_after_forward = \"always\""},
    {kParallel, "--use-torch-fsdp2", kKey, "parallel.zero", "\"zero3\"", "SHARD_GRAD_OP is shard_grad_op", "",
     "fsdp_reshard_after_forward = \"never\": shard_grad_op"},
    {kParallel, "--num-distributed-optimizer-instances N", kRefused, "", "", "state is sharded over all data-parallel ranks"},
    {kParallel, "--overlap-grad-reduce", kKey, "parallel.overlap", "true", "the default", "zero_optimization.overlap_comm"},
    {kParallel, "--overlap-param-gather", kKey, "parallel.overlap", "true", "the default"},
    {kParallel, "--ddp-bucket-size N", kKey, "parallel.bucket_mb", "", "in MB, not in elements",
     "zero_optimization.reduce_bucket_size (elements)"},
    {kParallel, "--distributed-backend nccl", kImplied, "", "", "ranks are threads or MPI processes; a rank that fails ends the others"},
    {kParallel, "--distributed-timeout-minutes N", kKey, "cuda.nccl_timeout", "", "in seconds; of NCCL's groups"},

    {kBatch, "--micro-batch-size B", kKey, "batch.micro", "", "", "train_micro_batch_size_per_gpu", "local_batch_size"},
    {kBatch, "--global-batch-size G", kKey, "batch.global", "", "", "train_batch_size", "global_batch_size"},
    {kBatch, "gradient accumulation (implied)", kImplied, "", "", "batch.global / (batch.micro x parallel.data) micro-batches",
     "gradient_accumulation_steps"},
    {kBatch, "--seq-length S", kKey, "batch.sequence", "", "", "", "seq_len"},
    {kBatch, "--train-iters N", kKey, "run.steps", "", "", "", "steps"},
    {kBatch, "--train-samples N", kKey, "run.steps", "", "samples / batch.global"},
    {kBatch, "--rampup-batch-size, --step-batch-size-schedule", kRefused, "", "", "the batch size is constant"},
    {kBatch, "--exit-duration-in-mins M", kKey, "run.max_minutes", ""},
    {kBatch, "--exit-interval N", kKey, "run.steps", "", "with lr_schedule.decay_steps for the length of the schedule"},
    {kBatch, "--exit-signal-handler", kImplied, "", "", "SIGUSR1 and SIGTERM end a run at the step boundary (docs/slurm.md)"},
    {kBatch, "--seed N", kKey, "run.seed", "", "weights and order are the same in every layout"},

    {kModel, "--num-layers L", kModelKey, "num_hidden_layers", "", "n_layer for model_type gpt2"},
    {kModel, "--hidden-size H", kModelKey, "hidden_size", "", "n_embd for gpt2"},
    {kModel, "--ffn-hidden-size F", kModelKey, "intermediate_size", "", "n_inner for gpt2"},
    {kModel, "--num-attention-heads A", kModelKey, "num_attention_heads", "", "n_head for gpt2"},
    {kModel, "--group-query-attention --num-query-groups K", kModelKey, "num_key_value_heads"},
    {kModel, "--kv-channels D", kModelKey, "head_dim"},
    {kModel, "--max-position-embeddings S", kModelKey, "max_position_embeddings", "", "n_positions for gpt2"},
    {kModel, "--position-embedding-type rope", kModelKey, "model_type", "\"llama\"",
     "rotary with llama, qwen2, qwen3, mistral, olmo, olmo2, phi3; learned with gpt2"},
    {kModel, "--rotary-base X", kModelKey, "rope_theta"},
    {kModel, "--rotary-percent X", kModelKey, "partial_rotary_factor"},
    {kModel, "--use-rope-scaling --rope-scaling-factor X", kModelKey, "rope_scaling", "{\"rope_type\": \"llama3\", ...}"},
    {kModel, "--swiglu", kModelKey, "model_type", "\"llama\"", "GELU with gpt2"},
    {kModel, "--normalization RMSNorm", kModelKey, "model_type", "\"llama\"", "layer norm with gpt2, without parameters with olmo"},
    {kModel, "--norm-epsilon X", kModelKey, "rms_norm_eps", "", "layer_norm_epsilon for gpt2"},
    {kModel, "--qk-layernorm", kModelKey, "model_type", "\"qwen3\""},
    {kModel, "--disable-bias-linear, --add-qkv-bias", kModelKey, "model_type", "\"qwen2\"",
     "biases of q, k, v only; llama has none, gpt2 has all"},
    {kModel, "--untie-embeddings-and-output-weights", kModelKey, "tie_word_embeddings", "false"},
    {kModel, "--hidden-dropout X", kKey, "model.dropout"},
    {kModel, "--attention-dropout X", kRefused, "", "", "residuals and embeddings only"},
    {kModel, "--init-method-std X", kModelKey, "initializer_range"},
    {kModel, "--make-vocab-size-divisible-by N", kImplied, "", "",
     "the table is padded for the tensor ranks; padding has no part in the loss"},
    {kModel, "--window-size W", kModelKey, "sliding_window", "",
     "W + 1, which counts the token itself; of mistral, phi3, qwen2 and qwen3"},
    {kModel, "--use-cpu-initialization", kImplied, "", "", "initial weights do not depend on the layout"},

    {kOptimizer, "--optimizer NAME", kKey, "optimizer.type", "", kBuiltRules},
    {kOptimizer, "--optimizer adam", kKey, "optimizer.type", "\"adamw\"", "Megatron-LM's adam is AdamW, too",
     "optimizer.type = \"AdamW\""},
    {kOptimizer, "--optimizer lion", kKey, "optimizer.type", "\"lion\""},
    {kOptimizer, "--lr X", kKey, "optimizer.lr", "", "", "optimizer.params.lr", "lr"},
    {kOptimizer, "--adam-beta1 X --adam-beta2 Y", kKey, "optimizer.betas", "[0.9, 0.95]", "Megatron-LM: 0.9, 0.999",
     "optimizer.params.betas"},
    {kOptimizer, "--adam-eps X", kKey, "optimizer.eps", "", "", "optimizer.params.eps"},
    {kOptimizer, "--weight-decay X", kKey, "optimizer.weight_decay", "", "default 0.1; Megatron-LM: 0.01",
     "optimizer.params.weight_decay"},
    {kOptimizer, "--start-weight-decay, --end-weight-decay", kRefused, "", "", "weight decay is constant"},
    {kOptimizer, "--clip-grad X", kKey, "optimizer.grad_clip", "", "", "gradient_clipping", "max_norm"},
    {kOptimizer, "--lr-decay-style NAME", kKey, "lr_schedule.type", "", "default cosine; Megatron-LM: linear", "scheduler.type"},
    {kOptimizer, "--lr-decay-iters N", kKey, "lr_schedule.decay_steps", "", "", "scheduler.params.total_num_steps"},
    {kOptimizer, "--lr-warmup-iters N", kKey, "lr_schedule.warmup_steps", "", "", "scheduler.params.warmup_num_steps",
     "warmup_steps"},
    {kOptimizer, "--lr-decay-samples N", kKey, "lr_schedule.decay_steps", "", "samples / batch.global"},
    {kOptimizer, "--lr-warmup-samples N", kKey, "lr_schedule.warmup_steps", "", "samples / batch.global"},
    {kOptimizer, "--lr-warmup-fraction X", kKey, "lr_schedule.warmup_steps", "", "X x decay_steps"},
    {kOptimizer, "--lr-warmup-init X", kRefused, "", "", "the warm-up starts at 0"},
    {kOptimizer, "--min-lr X", kKey, "lr_schedule.min_lr"},
    {kOptimizer, "--lr-wsd-decay-iters N", kKey, "lr_schedule.wsd_decay_steps"},
    {kOptimizer, "--lr-wsd-decay-samples N", kKey, "lr_schedule.wsd_decay_steps", "", "samples / batch.global"},
    {kOptimizer, "--lr-wsd-decay-style NAME", kKey, "lr_schedule.wsd_decay_type"},
    {kOptimizer, "--decoupled-lr X", kRefused, "", "", "one learning rate for all parameters"},

    {kDTypes, "--bf16", kKey, "precision.compute", "\"bf16\"", "auto takes it where it is faster than fp32", "bf16.enabled"},
    {kDTypes, "--fp16", kKey, "precision.compute", "\"fp16\"", "", "fp16.enabled"},
    {kDTypes, "--loss-scale, --initial-loss-scale, --loss-scale-window, --hysteresis", kKey, "precision.loss_scale",
     "\"dynamic\"", "", "fp16.loss_scale"},
    {kDTypes, "--fp8-format, --fp8-recipe", kRefused, "", "", "bf16 or fp32"},
    {kDTypes, "--accumulate-allreduce-grads-in-fp32", kKey, "precision.reduce", "\"fp32\"", "always",
     "data_types.grad_accum_dtype"},
    {kDTypes, "--grad-reduce-in-bf16", kRefused, "", "", "gradients are summed in fp32"},
    {kDTypes, "--attention-softmax-in-fp32", kImplied, "", "", "always"},
    {kDTypes, "--recompute-activations, --recompute-granularity selective", kKey, "recompute.policy", "\"selective\""},
    {kDTypes, "--recompute-granularity full", kKey, "recompute.policy", "\"full\"", "every block"},
    {kDTypes, "--recompute-method, --recompute-num-layers, --recompute-modules", kRefused, "", "", "one policy for all blocks"},
    {kDTypes, "--optimizer-cpu-offload, --cpu-offloading-num-layers", kRefused, "", "", "everything stays on the rank's device"},

    {kData, "--data-path PREFIX", kKey, "data.train", "", "PREFIX.bin and PREFIX.idx work as they are", "", "dataset"},
    {kData, "--data-path W1 PREFIX1 W2 PREFIX2", kKey, "data.train",
     "[{\"path\": \"a\", \"weight\": 0.7}, {\"path\": \"b\", \"weight\": 0.3}]"},
    {kData, "--train-data-path, --valid-data-path", kKey, "data.valid", "", "beside data.train"},
    {kData, "--split 969,30,1", kKey, "data.split", "\"969,30,1\"", "no default: all documents train unless it is given"},
    {kData, "--tokenizer-type, --tokenizer-model, --vocab-file, --merge-file", kKey, "data.tokenizer", "",
     "a name, a model's folder or a tokenizer's file"},
    {kData, "--vocab-size N", kModelKey, "vocab_size"},
    {kData, "--data-cache-path, --no-mmap-bin-files", kImplied, "", "",
     "files are read by pread, the order of samples is computed: there is no cache"},
    {kData, "--num-workers N, --dataloader-type", kImplied, "", "",
     "samples are read ahead, in an order drawn from run.seed"},
    {kData, "--reset-position-ids", kKey, "data.reset_position_ids", "true"},
    {kData, "--reset-attention-mask", kKey, "data.reset_attention_mask", "true"},
    {kData, "--eod-mask-loss", kKey, "data.eod_mask_loss", "true"},
    {kData, "--mock-data", kRefused, "", "", "prepare a small text"},
    {kData, "tools/preprocess_data.py --append-eod --workers N", kCommand, "trident data prepare --append-eod --workers N"},
    {kData, "tools/merge_datasets.py", kCommand, "trident data merge"},

    {kSaving, "--save DIR", kKey, "checkpoint.dir"},
    {kSaving, "--load DIR", kKey, "checkpoint.resume", "", "auto: the newest in checkpoint.dir"},
    {kSaving, "--save-interval N", kKey, "checkpoint.every", "100"},
    {kSaving, "--save-retain-interval N", kKey, "checkpoint.keep_every", "1000"},
    {kSaving, "--most-recent-k N", kKey, "checkpoint.keep_last", "2"},
    {kSaving, "--finetune, --pretrained-checkpoint DIR", kKey, "model.init_from", "",
     "a checkpoint of trident, a folder of them, or a Hugging Face folder"},

    {kLogging, "--log-interval N", kKey, "log.every", "", "", "steps_per_print"},
    {kLogging, "--tensorboard-dir DIR", kKey, "log.tensorboard", "true", "in run.dir", "tensorboard.enabled"},
    {kLogging, "--wandb-project NAME, --wandb-*", kRefused, "", "", "read metrics.jsonl"},
    {kLogging, "--log-throughput, --log-params-norm, --timing-log-level", kImplied, "", "",
     "metrics.jsonl always has tokens/s, MFU, bytes and memory"},
    {kLogging, "--eval-interval N", kKey, "eval.every"},
    {kLogging, "--eval-iters N", kKey, "eval.steps"},
    {kLogging, "--profile --profile-step-start A --profile-step-end B", kKey, "log.trace_steps", "[10, 12]"},
    {kLogging, "--check-for-nan-in-loss-and-grad", kImplied, "", "",
     "a step with a non-finite gradient is not applied; ten in a row end the run"},
    {kLogging, "--deterministic-mode", kImplied, "", "", "equal layouts give equal bits (docs/numerics.md)"},

    {kKernels, "--use-flash-attn, --attention-backend NAME", kImplied, "", "", "attention never stores the scores"},
    {kKernels, "--tp-comm-overlap", kRefused, "", "", "a layer's collectives wait for its products"},
    {kKernels,
     "--no-gradient-accumulation-fusion, --no-masked-softmax-fusion, --no-rope-fusion", kImplied, "", "", "there is one implementation"},
    {kKernels, "--no-bias-gelu-fusion", kKey, "cuda.epilogues", "false", "the default; true leaves biases and GELU to cuBLASLt"},
    {kKernels, "--no-overlap-p2p-communication", kImplied, "", "", "activations are sent while the next pass computes"},
    {kKernels, "--use-nccl-ub", kKey, "cuda.nccl_register", "true"},
    {kKernels, "--nccl-communicator-config-path FILE", kKey, "cuda.nccl_max_ctas", "", "thread blocks by axis"},
    {kKernels, "--cuda-graph-impl", kKey, "cuda.graphs", "true"},
    {kKernels, "--transformer-impl, CUDA_DEVICE_MAX_CONNECTIONS", kImplied, "", "", "no such switches"},

    {kHuggingFace, "--model_name NAME", kKey, "model.preset", "", "or model.init_from, a local folder of Hugging Face's form"},
    {kHuggingFace, "--model_name_or_path DIR", kKey, "model.init_from", "", "a local folder: nothing is downloaded"},
    {kHuggingFace, "--output_dir DIR", kKey, "run.dir"},
    {kHuggingFace, "--max_steps N", kKey, "run.steps"},
    {kHuggingFace, "--num_train_epochs N, --num_epochs N, --epochs N, --max_epochs N", kKey, "run.epochs", "",
     "in the place of run.steps"},
    {kHuggingFace, "--per_device_train_batch_size N", kKey, "batch.micro"},
    {kHuggingFace, "--batch_size N", kKey, "batch.global", "", "of all ranks in one update; batch.micro is what one pass takes"},
    {kHuggingFace, "--per_device_eval_batch_size N", kImplied, "", "", "an evaluation takes batch.micro sequences at a time"},
    {kHuggingFace, "--gradient_accumulation_steps N", kKey, "batch.global", "", "batch.micro x parallel.data x N"},
    {kHuggingFace, "--max_seq_length N", kKey, "batch.sequence"},
    {kHuggingFace, "--max_length N, --cutoff_len N, --sequence_len N", kKey, "batch.sequence"},
    {kHuggingFace, "--learning_rate X", kKey, "optimizer.lr"},
    {kHuggingFace, "--optim NAME", kKey, "optimizer.type", "", kBuiltRules},
    {kHuggingFace, "--adam_epsilon X", kKey, "optimizer.eps"},
    {kHuggingFace, "--max_grad_norm X", kKey, "optimizer.grad_clip"},
    {kHuggingFace, "--lr_scheduler_type NAME", kKey, "lr_schedule.type"},
    {kHuggingFace, "--warmup_steps N", kKey, "lr_schedule.warmup_steps"},
    {kHuggingFace, "--warmup_ratio X", kKey, "lr_schedule.warmup_steps", "", "X x run.steps"},
    {kHuggingFace, "--mixed_precision NAME", kKey, "precision.compute"},
    {kHuggingFace, "--torch_dtype NAME", kKey, "precision.compute"},
    {kHuggingFace, "--tf32", kKey, "cuda.tf32", "true"},
    {kHuggingFace, "--gradient_checkpointing", kKey, "recompute.policy", "\"full\""},
    {kHuggingFace, "--deepspeed FILE", kKey, "parallel.zero", "", "ddp, zero1, zero2, zero3 are its stages; no file of it is read"},
    {kHuggingFace, "--fsdp*", kKey, "parallel.zero", "\"zero3\"", "SHARD_GRAD_OP is shard_grad_op, NO_SHARD is ddp"},
    {kHuggingFace, "--attn_implementation NAME, --use_flash_attention_2", kImplied, "", "", "attention never stores the scores"},
    {kHuggingFace, "--eval_steps N", kKey, "eval.every"},
    {kHuggingFace, "--eval_strategy NAME, --evaluation_strategy NAME", kKey, "eval.every", "",
     "steps between evaluations, or epoch; 0: none"},
    {kHuggingFace, "--save_steps N", kKey, "checkpoint.every"},
    {kHuggingFace, "--save_strategy NAME", kKey, "checkpoint.every", "", "steps between checkpoints, or epoch"},
    {kHuggingFace, "--save_total_limit N", kKey, "checkpoint.keep_last"},
    {kHuggingFace, "--load_best_model_at_end", kKey, "checkpoint.keep_best", "true", "trident ckpt ls shows what is kept"},
    {kHuggingFace, "--resume_from_checkpoint DIR", kKey, "checkpoint.resume", "", "auto: the newest in checkpoint.dir"},
    {kHuggingFace, "--logging_steps N", kKey, "log.every"},
    {kHuggingFace, "--logging_strategy NAME", kKey, "log.every", "", "steps between lines"},
    {kHuggingFace, "--report_to NAME", kKey, "log.tensorboard", "true", "the only system; metrics.jsonl has every number"},
    {kHuggingFace, "--dataset_name NAME, --dataset_path NAME", kKey, "data.train", "",
     "the prefix that trident data prepare wrote"},
    {kHuggingFace, "--dataset_text_field NAME", kCommand, "trident data prepare --json-key NAME"},
    {kHuggingFace, "--dataloader_num_workers N", kImplied, "", "", "samples are read ahead"},
    {kHuggingFace, "--packing", kKey, "data.samples", "\"packed\"", "after trident data pack"},
    {kHuggingFace, "--chat_template NAME, --assistant_only_loss, --completion_only_loss, --train_on_inputs", kCommand,
     "trident data prepare --chat --template FILE --loss assistant", "",
     "the tokenizer's own template where none is named; --loss completion or all for the others"},
    {kHuggingFace, "--lora_r N, --lora_rank N", kKey, "adapter.r"},
    {kHuggingFace, "--lora_alpha X", kKey, "adapter.alpha"},
    {kHuggingFace, "--lora_dropout X", kKey, "adapter.dropout"},
    {kHuggingFace, "--lora_target_modules NAMES, --lora_target NAMES, --lora_target_linear", kKey, "adapter.target_modules", "",
     "all linear layers but lm_head where the key is left out"},
    {kHuggingFace, "--use_rslora", kKey, "adapter.rslora", "true"},
    {kHuggingFace, "--lora*, --use_lora, --peft*, --use_peft, --adapter", kKey, "adapter.type", "\"lora\"",
     "with adapter.r, adapter.alpha, adapter.target_modules"},
    {kHuggingFace, "--qlora*, --use_dora, --load_in_4bit, --load_in_8bit", kRefused, "", "",
     "adapters are LoRA, beside weights in precision.compute"},
    {kHuggingFace, "--push_to_hub", kRefused, "", "", "nothing is sent anywhere; trident convert makes the folder"},

    {kOthers, "--tensor_parallel_size T, --tp_size T, --tp_degree T", kKey, "parallel.tensor"},
    {kOthers, "--pipeline_parallel_size P, --pp_size P, --pp_degree P", kKey, "parallel.pipeline"},
    {kOthers, "--data_parallel_size D, --dp_size D, --dp_degree D", kKey, "parallel.data"},
    {kOthers, "--num_gpus N, --gpus N, --devices N, --num_nodes N, --nnodes N, --nproc_per_node N, --world_size N",
     kImplied, "", "", "mpirun or srun says how many ranks there are; without one the ranks of parallel are threads"},
    {kOthers, "--accelerator NAME", kKey, "device"},
    {kOthers, "--max_iters N, --total_steps N, --training_steps N", kKey, "run.steps"},
    {kOthers, "--out_dir DIR, --default_root_dir DIR", kKey, "run.dir"},
    {kOthers, "--accumulate_grad_batches N, --grad_accum N, --grad_accum_steps N, --batch_accumulation N", kKey, "batch.global", "",
     "batch.micro x parallel.data x N"},
    {kOthers, "--n_layer N", kModelKey, "n_layer", "", "with model_type gpt2; num_hidden_layers with others"},
    {kOthers, "--n_embd N", kModelKey, "n_embd", "", "with model_type gpt2; hidden_size with others"},
    {kOthers, "--n_head N", kModelKey, "n_head", "", "with model_type gpt2; num_attention_heads with others"},
    {kOthers, "--layers N, --n_layers N, --model_layers N", kModelKey, "num_hidden_layers", "", "n_layer for model_type gpt2"},
    {kOthers, "--d_model N", kModelKey, "hidden_size", "", "n_embd for gpt2"},
    {kOthers, "--heads N, --n_heads N, --num_heads N", kModelKey, "num_attention_heads", "", "n_head for gpt2"},
    {kOthers, "--model NAME", kKey, "model.preset", "", "or model.init_from, a local folder of Hugging Face's form"},
    {kOthers, "--compile", kImplied, "", "", "there is nothing to compile"},
    {kOthers, "--beta1 X --beta2 Y", kKey, "optimizer.betas", "[0.9, 0.95]"},
    {kOthers, "--gradient_clip_val X", kKey, "optimizer.grad_clip"},
    {kOthers, "--optimizer_name NAME", kKey, "optimizer.type", "", kBuiltRules},
    {kOthers, "--warmup N, --optimizer_warmup N, --warmup_iters N, --num_warmup_steps N", kKey, "lr_schedule.warmup_steps"},
    {kOthers, "--lr_schedule NAME, --lr_scheduler NAME, --optimizer_schedule NAME, --optimizer_scheduler NAME", kKey,
     "lr_schedule.type"},
    {kOthers, "--precision NAME", kKey, "precision.compute"},
    {kOthers, "--recompute NAME", kKey, "recompute.policy"},
    {kOthers, "--data PREFIX, --train_data PREFIX", kKey, "data.train", "", "the prefix that trident data prepare wrote"},
    {kOthers, "--valid_data PREFIX, --validation_data PREFIX, --val_data PREFIX, --eval_data PREFIX, --eval_dataset PREFIX",
     kKey, "data.valid", "",
     "the prefix that trident data prepare wrote"},
    {kOthers, "--test_data PREFIX", kRefused, "", "", "trident eval --data PREFIX measures a checkpoint on it"},
    {kOthers, "--tokenizer_path DIR, --tokenizer_name NAME", kKey, "data.tokenizer", "", "a name, a local folder or a file"},
    {kOthers, "--val_check_interval N, --val_interval N", kKey, "eval.every"},
    {kOthers, "--limit_val_batches N", kKey, "eval.steps", "", "in global batches"},
    {kOthers, "--save_every N, --checkpoint_interval N, --ckpt_interval N", kKey, "checkpoint.every"},
    {kOthers, "--always_save_checkpoint", kKey, "checkpoint.every", "", "steps between checkpoints"},
    {kOthers, "--resume, --resume_from DIR", kKey, "checkpoint.resume", "", "auto, the default: the newest in checkpoint.dir"},
    {kOthers, "--wandb, --log_wandb", kRefused, "", "", "read metrics.jsonl"},
};

std::string json_value(const ForeignWord& row) { return row.value.empty() ? "" : fmt::format(": {}", row.value); }

// Keys and values that are planned say so by themselves, from the option table.
std::string status(const ForeignWord& row) {
  const Option& option = *find_option(row.target);
  if (option.status == OptionStatus::kReserved) return "refused by name until built";
  for (const ReservedValue& value : option.reserved_values)
    if (in_quotes(value.value) == row.value) return "refused by name until built";
  return "";
}

std::string ours(const ForeignWord& row) {
  switch (row.kind) {
    case kKey: return fmt::format("`{}{}`", row.target, json_value(row));
    case kModelKey: return fmt::format("`model.{}{}`", row.target, json_value(row));
    case kCommand: return fmt::format("`{}`", row.target);
    case kImplied: return "implied";
    case kRefused: return "not offered";
  }
  return "";
}

std::string note_of(const ForeignWord& row) {
  std::string note = row.kind == kKey ? status(row) : "";
  if (!note.empty() && !row.note.empty()) note += "; ";
  return note + std::string(row.note);
}

std::string code(std::string_view text) { return text.empty() ? "" : fmt::format("`{}`", text); }

// A flag list "--a X, --b Y" as code, one flag at a time.
std::string flags_text(std::string_view flags) {
  if (!flags.starts_with("--")) return std::string(flags.substr(0, 6) == "tools/" ? code(flags) : std::string(flags));
  std::string out;
  while (!flags.empty()) {
    const std::size_t comma = flags.find(", ");
    out += (out.empty() ? "" : ", ") + code(flags.substr(0, comma));
    flags.remove_prefix(comma == flags.npos ? flags.size() : comma + 2);
  }
  return out;
}

// Hyphens, underscores and dots are one, and hyphens before a flag are none of it.
std::string plain_word(std::string_view name) {
  std::string text(name.substr(std::min(name.size(), name.find_first_not_of('-'))));
  for (char& c : text) c = c == '-' || c == '.' ? '_' : c;
  return text;
}

// How well a row fits a plain name: 0 not at all, 1 as a key of DeepSpeed or torchtitan, 2 as its flag, or such a key with just
// this value, 3 as its flag with just this value.
int fit(const ForeignWord& row, const std::string& name, std::string_view value) {
  const std::vector<std::string> words = words_of(row);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("--")) continue;
    const std::string flag = plain_word(words[i]);
    if (flag.ends_with('*') && name.starts_with(flag.substr(0, flag.size() - 1))) return 2;
    if (flag == name) return i + 1 < words.size() && words[i + 1] == value ? 3 : 2;
  }
  for (const std::string_view key : {row.deepspeed, row.torchtitan})
    if (!key.empty() && plain_word(key.substr(0, key.find_first_of(" :"))) == name)
      return !value.empty() && key.ends_with(fmt::format(" = {}", value)) ? 2 : 1;
  return 0;
}

}  // namespace

std::span<const ForeignWord> foreign_words() { return kFlags; }

std::vector<std::string> words_of(const ForeignWord& row) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < row.flag.size();) {
    const std::size_t end = std::min(row.flag.find_first_of(", ", at), row.flag.size());
    if (end > at) words.emplace_back(row.flag.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

const ForeignWord* find_foreign_word(std::string_view name, std::string_view value) {
  const std::string wanted = plain_word(name);
  const ForeignWord* best = nullptr;
  int best_fit = 0;
  for (const ForeignWord& row : kFlags)
    if (const int now = fit(row, wanted, value); now > best_fit) best = &row, best_fit = now;
  return best;
}

std::string remedy_without_key(const ForeignWord& row) {
  if (row.kind == kCommand) return fmt::format("see {}", row.target);
  if (row.kind == kImplied) return fmt::format("leave it out: {}", row.note);
  return fmt::format("leave it out, there is no such thing here: {}", row.note);
}

std::string megatron_flags_markdown() {
  std::string out =
      "# From other systems' words to Trident's keys\n\n"
      "Generated by `trident docs megatron-flags` from train/config/foreign_words.cpp and the option table; do not edit.\n\n"
      "Every flag of an ordinary GPT or Llama pretraining script of Megatron-LM, the keys of DeepSpeed's JSON and of torchtitan that mean\n"
      "the same, and what Hugging Face's Trainer, the programs around it and others call things. *Implied*:\n"
      "always so, or needless here. *Not offered*: there is no such thing, and no key that would silently ignore it. Keys stand in\n"
      "[configuration.md](configuration.md); `trident help KEY` explains one. Trident takes none of these names: a key like `seq_length` is\n"
      "answered with `batch.sequence`, and a flag like `--seq-length 4096` with `--set batch.sequence=4096`.\n";
  std::string_view section;
  for (const ForeignWord& row : kFlags) {
    if (row.section != section) {
      section = row.section;
      out += fmt::format("\n## {}\n\n| {} | Trident | | DeepSpeed | torchtitan |\n|---|---|---|---|---|\n", section,
                         section == kHuggingFace || section == kOthers ? "flag or key" : "Megatron-LM");
    }
    out += fmt::format("| {} | {} | {} | {} | {} |\n", flags_text(row.flag), ours(row), note_of(row), code(row.deepspeed), code(row.torchtitan));
  }
  return out;
}

}  // namespace trident
