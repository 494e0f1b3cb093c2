// Words that people type from systems whose files are not read: nanoGPT, Lightning, nanotron and programs of their own.
#include "import/foreign/tables.h"

namespace trident {
namespace {

using enum Verdict;

constexpr std::string_view kOtherPrefix = "the prefix that trident data prepare wrote";

constexpr ForeignKey kOtherRun[] = {
    {"max_iters, total_steps, training_steps, train_steps, num_train_steps", kMapped, "run.steps"},
    {"max_epochs", kMapped, "run.epochs", "", "in the place of run.steps"},
    {"out_dir, default_root_dir, save_dir", kMapped, "run.dir"},
    {"max_time", kMapped, "run.max_minutes", "", "in minutes"},
    {"min_steps, min_epochs, limit_train_batches, overfit_batches, fast_dev_run", kRefused, "", "",
     "run.steps or run.epochs is the length of the run"},
    {"accelerator", kMapped, "device"},
    {"gpus, devices, n_gpus", kLauncher, "", "",
     "mpirun or srun says how many ranks there are; without one the ranks of parallel are threads"},
    {"backend", kLauncher, "", "", "GPUs talk through NCCL, processes through MPI"},
    {"compile, use_compile", kAlways, "", "", "there is nothing to compile"},
    {"deterministic, benchmark", kMapped, "cuda.deterministic"},
};

constexpr ForeignKey kOtherLayout[] = {
    {"tp_size, tp_degree, tensor_parallel, n_tensor_parallel", kMapped, "parallel.tensor"},
    {"pipeline_parallel_size, pp_size, pp_degree, pipeline_parallel", kMapped, "parallel.pipeline"},
    {"data_parallel_size, dp_size, dp_degree, data_parallel", kMapped, "parallel.data"},
    {"context_parallel, cp_size, cp_degree", kNotBuilt, "parallel.context"},
    {"pp_engine = afab", kMapped, "parallel.schedule", "\"gpipe\"", "all forward, then all backward passes"},
    {"pp_engine", kMapped, "parallel.schedule"},
    {"tp_mode = REDUCE_SCATTER", kMapped, "parallel.sequence_parallel", "true"},
    {"tp_mode = ALL_REDUCE", kMapped, "parallel.sequence_parallel", "false"},
    {"tp_linear_async_communication", kNotBuilt, "parallel.tensor_overlap", "\"chunked\""},
    {"tp_recompute_allgather", kDiffers, "", "", "recompute.policy says what is kept"},
    {"strategy = ddp, ddp_find_unused_parameters_false, ddp_find_unused_parameters_true", kMapped, "parallel.zero", "\"ddp\""},
    {"strategy = deepspeed_stage_1", kMapped, "parallel.zero", "\"zero1\""},
    {"strategy = deepspeed, deepspeed_stage_2", kMapped, "parallel.zero", "\"zero2\""},
    {"strategy = fsdp, deepspeed_stage_3", kMapped, "parallel.zero", "\"zero3\"",
     "SHARD_GRAD_OP is shard_grad_op, NO_SHARD is ddp"},
    {"strategy = deepspeed_stage_2_offload, deepspeed_stage_3_offload", kNotBuilt, "offload.optimizer", "\"host\"",
     "beside parallel.zero"},
    {"strategy", kRefused, "", "", "parallel.zero is ddp, zero1, zero2, shard_grad_op or zero3"},
    {"bucket_cap_mb", kMapped, "parallel.bucket_mb"},
    {"expert_parallel_size, ep_size, expert_parallel, experts, parallel.expert, parallel.experts, parallel.expert_parallel, "
     "parallel.ep", kRefused, "", "", "mixtures of experts are not built yet, dense models only"},
    {"hybrid_shard, hsdp, parallel.hybrid_shard, parallel.hsdp", kNotBuilt, "parallel.shard_group", "\"node\""},
};

constexpr ForeignKey kOtherModel[] = {
    {"model", kMapped, "model.preset", "", "or model.init_from, a local folder of Hugging Face's form"},
    {"init_from = scratch", kAlways, "", "", "without model.init_from weights begin at random"},
    {"init_from = resume", kMapped, "checkpoint.resume", "\"auto\""},
    {"init_from", kMapped, "model.init_from"},
    {"n_layer", kMapped, "model.n_layer", "", "with model_type gpt2; num_hidden_layers with others"},
    {"n_embd", kMapped, "model.n_embd", "", "with model_type gpt2; hidden_size with others"},
    {"n_head", kMapped, "model.n_head", "", "with model_type gpt2; num_attention_heads with others"},
    {"layers, n_layers, model_layers, num_hidden_layers", kMapped, "model.num_hidden_layers", "", "n_layer for model_type gpt2"},
    {"d_model, dim, n_hidden", kMapped, "model.hidden_size", "", "n_embd for gpt2"},
    {"heads, n_heads, num_heads", kMapped, "model.num_attention_heads", "", "n_head for gpt2"},
    {"kv_heads, n_kv_heads, num_kv_heads", kMapped, "model.num_key_value_heads", "", "gpt2 has as many as heads"},
    {"d_ff, ffn_dim, intermediate_size", kMapped, "model.intermediate_size", "", "n_inner for gpt2"},
    {"dropout, resid_pdrop, embd_pdrop", kMapped, "model.dropout"},
    {"bias", kAlways, "", "", "model_type decides: gpt2 has biases, llama has none"},
    {"context_length, sequence_length, seq_len, max_seq_len, ctx_len", kMapped, "batch.sequence"},
};

constexpr ForeignKey kOtherTraining[] = {
    {"global_batch, effective_batch_size", kMapped, "batch.global", "",
     "of all ranks in one update; batch.micro is what one pass takes"},
    {"micro_batch, mbs, device_batch_size", kMapped, "batch.micro"},
    {"batch_size", kMapped, "batch.micro", "", "of one pass of a rank; batch.global is of all ranks in one update"},
    {"accumulate_grad_batches, grad_accum, grad_accum_steps, batch_accumulation, batch_accumulation_per_replica", kMapped,
     "batch.global@accumulation", "", "batch.global = batch.micro x parallel.data x N"},
    {"beta1", kMapped, "optimizer.betas@beta1", "", "optimizer.betas: [0.9, 0.95]"},
    {"beta2", kMapped, "optimizer.betas@beta2", "", "optimizer.betas: [0.9, 0.95]"},
    {"gradient_clip_val, clip_grad_norm, max_norm", kMapped, "optimizer.grad_clip"},
    {"gradient_clip_algorithm = norm", kAlways, "", "", "the norm is clipped"},
    {"gradient_clip_algorithm", kRefused, "", "", "the norm is clipped, not each value"},
    {"optimizer_name, opt", kMapped, "optimizer.type"},
    {"warmup, optimizer_warmup, warmup_iters, num_warmup_steps, lr_warmup_steps", kMapped, "lr_schedule.warmup_steps"},
    {"lr_warmup_style = linear", kAlways, "", "", "the warm-up is linear"},
    {"lr_decay_steps", kMapped, "lr_schedule.decay_steps", "",
     "nanotron counts it from the end of the warm-up, here the warm-up is part of it"},
    {"min_decay_lr, lr_min, eta_min", kMapped, "lr_schedule.min_lr"},
    {"decay_lr", kDiffers, "", "", "lr_schedule.type=constant is a rate without decay"},
    {"lr_schedule, lr_scheduler, optimizer_schedule, optimizer_scheduler", kMapped, "lr_schedule.type"},
    {"precision, dtype = bf16-mixed, bf16-true, bf16", kMapped, "precision.compute", "\"bf16\"", "masters stay fp32"},
    {"precision, dtype = 16-mixed, 16-true, 16", kMapped, "precision.compute", "\"fp16\"", "masters stay fp32"},
    {"precision, dtype = 32-true, 32", kMapped, "precision.compute", "\"fp32\""},
    {"precision, dtype", kMapped, "precision.compute"},
    {"accumulate_grad_in_fp32", kAlways, "", "", "gradients are summed in fp32"},
    {"recompute, grad_checkpointing", kMapped, "recompute.policy", "", "none, selective or full"},
    {"recompute_layer, use_checkpointing, activation_checkpoint", kMapped, "recompute.policy", "\"full\""},
    {"adapter.rank, adapter.lora_rank, adapter.lora_r", kMapped, "adapter.r"},
    {"lora", kMapped, "adapter.type", "\"lora\"", "with adapter.r, adapter.alpha, adapter.target_modules"},
    {"use_qlora, quantize", kNotBuilt, "model.quantize.type", "\"nf4\""},
};

constexpr ForeignKey kOtherData[] = {
    {"data, train_data, training_data", kMapped, "data.train", "", kOtherPrefix},
    {"valid_data, validation_data, val_data, eval_data, eval_dataset, val_file", kMapped, "data.valid", "", kOtherPrefix},
    {"test_data, test_file", kRefused, "trident eval --data PREFIX", "", "measures a checkpoint on it"},
    {"tokenizer, tokenizer_path", kMapped, "data.tokenizer", "", "a name, a local folder or a file"},
    {"num_loading_workers, num_dataset_workers", kAlways, "", "", "samples are read ahead"},
};

constexpr ForeignKey kOtherOutput[] = {
    {"val_check_interval, val_interval, eval_every, check_val_every_n_epoch", kMapped, "eval.every", "", "in steps, or \"epoch\""},
    {"limit_val_batches, eval_batches", kMapped, "eval.steps", "", "in global batches"},
    {"num_sanity_val_steps, limit_test_batches", kDiffers, "", "", "trident eval measures a checkpoint"},
    {"eval_only", kRefused, "trident eval", "", "evaluates without training"},
    {"save_every, checkpoint_interval, ckpt_interval, every_n_train_steps", kMapped, "checkpoint.every"},
    {"always_save_checkpoint", kMapped, "checkpoint.every", "", "steps between checkpoints"},
    {"save_initial_state", kRefused, "", "", "trident convert makes a checkpoint of step 0"},
    {"checkpoints_path", kMapped, "checkpoint.dir"},
    {"save_top_k", kMapped, "checkpoint.keep_best", "true", "the best one, beside the newest checkpoint.keep_last"},
    {"save_last", kMapped, "checkpoint.keep_last"},
    {"resume, resume_from, ckpt_path, resume_checkpoint_path", kMapped, "checkpoint.resume", "",
     "auto, the default: the newest in checkpoint.dir"},
    {"log_every, log_every_n_steps, iteration_step_info_interval, log_steps", kMapped, "log.every"},
    {"wandb, log_wandb, wandb_log, log_wandb_project, mlflow, log_mlflow, comet, log_comet, neptune, log_neptune, logger, "
     "log_logger",
     kDiffers, "", "", kSendsNothing},
    {"enable_progress_bar, enable_model_summary", kAlways, "", "", "one line every log.every steps"},
    {"profiler", kMapped, "log.trace_steps", "[10, 12]"},
    {"detect_anomaly", kAlways, "", "", "a step with a non-finite gradient is not applied; ten in a row end the run"},
};

constexpr ForeignSection kOtherSections[] = {
    {ForeignSystem::kOthers, "Run and ranks", kOtherRun}, {ForeignSystem::kOthers, "Layout", kOtherLayout},
    {ForeignSystem::kOthers, "Model", kOtherModel},       {ForeignSystem::kOthers, "Training", kOtherTraining},
    {ForeignSystem::kOthers, "Data", kOtherData},         {ForeignSystem::kOthers, "Evaluation, checkpoints, logs", kOtherOutput},
};

}  // namespace

std::span<const ForeignSection> other_sections() { return kOtherSections; }

}  // namespace trident
