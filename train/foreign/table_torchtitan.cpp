#include <array>

#include "train/foreign/tables.h"

namespace trident {
namespace {

using enum Verdict;

constexpr ForeignKey kTitanParallelism[] = {
    {"parallelism.data_parallel_replicate_degree", kMapped, "@replicate"},
    {"parallelism.data_parallel_shard_degree", kMapped, "@shard", {}, "-1 is all ranks that the other degrees leave", "-1"},
    {"parallelism.fsdp_reshard_after_forward = always", kMapped, "parallel.zero", "\"zero3\""},
    {"parallelism.fsdp_reshard_after_forward = never", kMapped, "parallel.zero", "\"shard_grad_op\""},
    {"parallelism.fsdp_reshard_after_forward = default", kMapped, "@titan.reshard", {},
     "parameters are freed after the forward pass unless there is a pipeline", "\"default\""},
    {"parallelism.tensor_parallel_degree", kMapped, "parallel.tensor", {}, "with parallel.sequence_parallel, as there"},
    {"parallelism.disable_loss_parallel", kAlways, {}, {}, "the loss is taken over a vocabulary that stays divided"},
    {"parallelism.enable_async_tensor_parallel", kNotBuilt, "parallel.tensor_overlap", "\"chunked\""},
    {"parallelism.pipeline_parallel_degree", kMapped, "parallel.pipeline"},
    {"parallelism.pipeline_parallel_schedule = 1F1B", kMapped, "parallel.schedule", "\"1f1b\"", {}, "\"1F1B\""},
    {"parallelism.pipeline_parallel_schedule = GPipe", kMapped, "parallel.schedule", "\"gpipe\""},
    {"parallelism.pipeline_parallel_schedule = Interleaved1F1B", kMapped, "parallel.schedule", "\"interleaved\"",
     "two stages for each rank unless pipeline_parallel_layers_per_stage says otherwise"},
    {"parallelism.pipeline_parallel_schedule = LoopedBFS", kDiffers, "parallel.schedule", "\"interleaved\"",
     "backward passes begin before all forward passes have ended, which takes less memory"},
    {"parallelism.pipeline_parallel_schedule = InterleavedZeroBubble", kNotBuilt, "parallel.schedule", "\"zb-h1\""},
    {"parallelism.pipeline_parallel_schedule = ZBVZeroBubble", kNotBuilt, "parallel.schedule", "\"zb-v\""},
    {"parallelism.pipeline_parallel_schedule = DualPipeV", kNotBuilt, "parallel.schedule", "\"dualpipe-v\""},
    {"parallelism.pipeline_parallel_schedule = PipelineScheduleSingle, PipelineScheduleMulti, _PipelineScheduleRuntime", kNotBuilt,
     "parallel.schedule", "\"csv\""},
    {"parallelism.pipeline_parallel_schedule", kRefused, "1F1B, GPipe or Interleaved1F1B", {}, "there is no such schedule"},
    {"parallelism.pipeline_parallel_schedule_csv", kNotBuilt, "parallel.schedule", "\"csv\""},
    {"parallelism.pipeline_parallel_microbatch_size", kMapped, "@titan.pipeline_micro", {}, "counts where there is a pipeline", "1"},
    {"parallelism.pipeline_parallel_layers_per_stage", kMapped, "@titan.layers_per_stage"},
    {"parallelism.pipeline_parallel_first_stage_less_layers, parallelism.pipeline_parallel_last_stage_less_layers", kAlways, {}, {},
     "layers are balanced by cost, embedding and head counted, unless parallel.layers says otherwise"},
    {"parallelism.module_fqns_per_model_part", kDiffers, {}, {}, "layers of each stage are counts: give them as parallel.layers"},
    {"parallelism.pipeline_parallel_expert_parallel_overlap, parallelism.expert_parallel_comm_backend", kAlways, {}, {},
     "it goes with experts, which dense models have none of"},
    {"parallelism.expert_parallel_degree, parallelism.expert_tensor_parallel_degree = 1", kAlways, {}, {}, "1 is none"},
    {"parallelism.expert_parallel_degree, parallelism.expert_tensor_parallel_degree", kRefused, {}, {}, "there are no experts here"},
    {"parallelism.context_parallel_degree = 1", kAlways, {}, {}, "1 is none"},
    {"parallelism.context_parallel_degree", kNotBuilt, "parallel.context"},
    {"parallelism.context_parallel_load_balancer, parallelism.context_parallel_rotate_method", kAlways, {}, {},
     "it goes with parallel.context"},
};

constexpr ForeignKey kTitanTraining[] = {
    {"training.local_batch_size", kMapped, "@titan.local", {}, "batch.micro, but with a pipeline the micro-batches of one pass", "8"},
    {"training.global_batch_size", kMapped, "@titan.global", {}, "-1 is one local batch on each data-parallel rank", "-1"},
    {"training.seq_len", kMapped, "batch.sequence", {}, {}, "2048"},
    {"training.steps", kMapped, "run.steps", {}, {}, "10000"},
    {"training.max_norm", kMapped, "optimizer.grad_clip", {}, {}, "1.0"},
    {"training.dtype = bfloat16", kDiffers, "precision.compute", "\"bf16\"",
     "master weights, sums of gradients and moments stay fp32 here"},
    {"training.dtype = float32", kAlways, {}, {}, "master weights are fp32"},
    {"training.mixed_precision_param", kMapped, "precision.compute", {}, {}, "\"bfloat16\""},
    {"training.mixed_precision_reduce", kAlways, {}, {}, "gradients are summed in fp32"},
    {"training.enable_cpu_offload", kNotBuilt, "offload.parameters", "\"host\"", "with offload.optimizer and offload.gradients"},
    {"training.dataset", kDiffers, {}, {},
     "it names a loader of texts: trident data prepare makes token files of them, which are given as data.train"},
    {"training.dataset_path", kMapped, "@dataset"},
    {"training.gc_freq, training.gc_debug", kAlways, {}, {}, "there is no garbage collector"},
    {"training.dataloader, training.dataloader.*, validation.dataloader, validation.dataloader.*", kAlways, {}, {},
     "token files are mapped into memory and read ahead; there are no loader processes"},
    {"debug.seed", kMapped, "run.seed"},
    {"debug.deterministic", kMapped, "cuda.deterministic"},
    {"debug.deterministic_warn_only", kAlways, {}, {}, "every product has a form of its own that repeats its bits"},
    {"debug.moe_force_load_balance", kRefused, {}, {}, "there are no experts here"},
};

constexpr ForeignKey kTitanModel[] = {
    {"model.name = llama4, deepseek_v3, gpt_oss, flux, vlm", kRefused, "a dense model of text", {},
     "mixtures of experts and models of images are not trained here"},
    {"model.name", kMapped, "@titan.name", {}, "initial weights of all layers have one width of their own, which there shrinks with the depth",
     "\"llama3\""},
    {"model.flavor", kMapped, "@titan.flavor", {}, "of llama3 and qwen3, the dense ones", "\"debugmodel\""},
    {"model.hf_assets_path, model.tokenizer_path", kMapped, "@titan.assets", {},
     "texts become tokens before the run: trident data prepare --tokenizer takes this folder"},
    {"model.converters = [\"quantize.linear.float8\"], [\"float8\"]", kNotBuilt, "@titan.fp8", "\"tensorwise\""},
    {"model.converters = [\"quantize.linear.mx\"], [\"mx\"]", kNotBuilt, "precision.fp8", "\"mxfp8\""},
    {"model.converters", kRefused, {}, {}, "converters other than quantize.linear.float8 and quantize.linear.mx have no counterpart"},
    {"model.print_after_conversion", kAlways, "trident plan", {}, "the layers are listed before the run"},
    {"quantize.linear.float8.recipe_name", kMapped, "@titan.fp8_recipe", {}, "counts where model.converters asks for it"},
    {"quantize.linear.mx.recipe_name, quantize.linear.mx.mxfp8_dim1_cast_kernel_choice", kAlways, {}, {}, "precision.fp8 \"mxfp8\" names the recipe"},
    {"quantize.linear.float8.*, quantize.linear.mx.filter_fqns", kAlways, {}, {}, "it goes with precision.fp8"},
    {"quantize.grouped_mm.*", kAlways, {}, {}, "it goes with experts, which dense models have none of"},
};

constexpr ForeignKey kTitanOptimizer[] = {
    {"optimizer.name = AdamW", kMapped, "optimizer.type", "\"adamw\"", {}, "\"AdamW\""},
    {"optimizer.name = Adam", kDiffers, "optimizer.type", "\"adamw\"", "weight decay is apart from the gradient here, and part of it there"},
    {"optimizer.name", kRefused, "AdamW", {}, "there is no such update rule"},
    {"optimizer.lr", kMapped, "optimizer.lr", {}, {}, "8e-4"},
    {"optimizer.beta1", kMapped, "@beta1", {}, {}, "0.9"},
    {"optimizer.beta2", kMapped, "@beta2", {}, {}, "0.95"},
    {"optimizer.eps", kMapped, "optimizer.eps", {}, {}, "1e-8"},
    {"optimizer.weight_decay", kMapped, "optimizer.weight_decay", {}, "norms and biases are not decayed here, and are there", "0.1"},
    {"optimizer.implementation", kAlways, {}, {}, "one pass over each shard makes the update"},
    {"optimizer.early_step_in_backward", kRefused, "parallel.zero zero2 or zero3", {},
     "updates come after the whole backward pass, because clipping needs the norm"},
    {"lr_scheduler.warmup_steps", kMapped, "lr_schedule.warmup_steps", {}, {}, "200"},
    {"lr_scheduler.total_steps", kMapped, "@titan.total_steps"},
    {"lr_scheduler.decay_ratio", kMapped, "@titan.decay_ratio", {}, "of all steps, at the end: lr_schedule.type \"wsd\""},
    {"lr_scheduler.decay_type = linear, cosine, sqrt", kMapped, "@titan.decay_type", {},
     "the last step has the lowest rate here, which there the step behind it would have", "\"linear\""},
    {"lr_scheduler.decay_type", kRefused, "linear, cosine or sqrt", {}, "there is no such course"},
    {"lr_scheduler.min_lr_factor", kMapped, "@min_lr_ratio", {}, {}, "0.0"},
};

constexpr ForeignKey kTitanMemory[] = {
    {"activation_checkpoint.mode = full", kMapped, "recompute.policy", "\"full\""},
    {"activation_checkpoint.mode = none", kMapped, "recompute.policy", "\"none\""},
    {"activation_checkpoint.mode = selective", kDiffers, "recompute.policy", "\"selective\"",
     "attention is computed again in every layer, and not every n-th layer or every second product", "\"selective\""},
    {"activation_checkpoint.mode", kRefused, "selective", {}, "no compiler weighs memory against time here; trident plan compares policies"},
    {"activation_checkpoint.*", kAlways, {}, {}, "what is computed again has the same bits, and its policy is recompute.policy alone"},
    {"compile, compile.*", kAlways, {}, {}, "nothing is compiled while a run starts"},
    {"memory_estimation.*", kAlways, "trident plan", {}, "the memory of every rank is known before the run"},
};

constexpr ForeignKey kTitanCheckpoints[] = {
    {"checkpoint.enable", kMapped, "@titan.saves", {}, {}, "false"},
    {"checkpoint.interval", kMapped, "@save_steps", {}, "counts where checkpoint.enable is true", "500"},
    {"checkpoint.folder", kMapped, "@titan.folder", {}, "within job.dump_folder"},
    {"checkpoint.keep_latest_k", kMapped, "checkpoint.keep_last", {}, {}, "10"},
    {"checkpoint.last_save_model_only", kDiffers, {}, {}, "the last checkpoint has all that the others have, and can be gone on from"},
    {"checkpoint.last_save_in_hf, checkpoint.export_dtype", kAlways, "trident convert", {}, "it makes a Hugging Face folder of any checkpoint"},
    {"checkpoint.async_mode", kAlways, {}, {}, "training goes on while a checkpoint is written"},
    {"checkpoint.initial_load_path", kMapped, "@titan.load_path", {}, "read where initial_load_in_hf is true"},
    {"checkpoint.initial_load_in_hf", kMapped, "@titan.load_in_hf"},
    {"checkpoint.initial_load_model_only = true", kAlways, {}, {}, "model.init_from takes the weights alone"},
    {"checkpoint.initial_load_model_only", kRefused, {}, {}, "optimizer states of a torch checkpoint are not read"},
    {"checkpoint.initial_load_in_hf_quantized", kRefused, {}, {}, "weights that are read are not quantized; start from the unquantized ones"},
    {"checkpoint.load_step = -1", kAlways, {}, {}, "the newest is gone on from"},
    {"checkpoint.load_step", kDiffers, {}, {}, "give the folder of that step as checkpoint.resume"},
    {"checkpoint.exclude_from_loading", kRefused, "model.init_from", {}, "a checkpoint that a run goes on from is read whole"},
    {"checkpoint.enable_first_step_checkpoint", kDiffers, {}, {}, "no checkpoint is written after the first step"},
    {"checkpoint.create_seed_checkpoint", kAlways, {}, {}, "initial weights do not depend on the layout"},
    {"checkpoint.load_only = false", kAlways, {}, {}, "checkpoints are written"},
    {"checkpoint.load_only", kMapped, "checkpoint.every", "0"},
    {"checkpoint.enable_ft_dataloader_checkpoints", kAlways, {}, {}, "where a run is in its data follows from its step"},
};

constexpr ForeignKey kTitanLogs[] = {
    {"job.dump_folder", kMapped, "run.dir"},
    {"job.description, job.config_file", kAlways, {}, {}, "a remark"},
    {"job.print_config, job.save_config_file", kAlways, "trident train --print-config", {}, "every run writes config.resolved.json"},
    {"job.custom_config_module, experimental.*", kRefused, {}, {}, "no Python is run"},
    {"metrics.log_freq", kMapped, "log.every", {}, {}, "10"},
    {"metrics.enable_tensorboard", kMapped, "log.tensorboard"},
    {"metrics.enable_wandb", kDiffers, {}, {}, "nothing is sent anywhere; metrics.jsonl and TensorBoard's events are in the run directory"},
    {"metrics.*", kAlways, {}, {}, "rank 0 logs for all, into the run directory"},
    {"profiling.enable_profiling", kMapped, "@titan.profiles"},
    {"profiling.profile_freq", kMapped, "@titan.profile_every", {}, "the first of its traces is written, as log.trace_steps", "10"},
    {"profiling.profiler_active", kMapped, "@titan.profile_steps", {}, {}, "1"},
    {"profiling.enable_memory_snapshot, profiling.*", kAlways, {}, {}, "traces and memory.json are in the run directory, without warm-up"},
    {"validation.enable", kMapped, "@titan.validates"},
    {"validation.freq", kMapped, "@eval_steps", {}, "counts where validation.enable is true", "10"},
    {"validation.steps = -1", kDiffers, {}, {}, "validation takes eval.steps batches, not all there are"},
    {"validation.steps", kMapped, "eval.steps"},
    {"validation.dataset, validation.dataset_path", kDiffers, {}, {}, "give token files of it as data.valid"},
    {"validation.local_batch_size, validation.seq_len", kAlways, {}, {}, "validation takes batches of the training's form"},
    {"comm.init_timeout_seconds, comm.train_timeout_seconds", kAlways, {}, {},
     "a group without any progress ends the run after cuda.nccl_timeout"},
    {"comm.mode = default", kAlways, {}, {}, "ranks talk to one another"},
    {"comm.mode", kAlways, "trident plan", {}, "it computes memory and time without ranks; threads of one process are ranks, too"},
    {"comm.*", kAlways, {}, {}, "what ranks waited for is said when a run ends with an error"},
    {"fault_tolerance.enable", kRefused, "trident supervise", {}, "ranks that fail are started again with all the others, from a checkpoint"},
    {"fault_tolerance.*", kAlways, {}, {}, "it goes with fault_tolerance.enable"},
};

constexpr std::array kTitanSections{
    ForeignSection{ForeignSystem::kTorchtitan, "Parallelism", kTitanParallelism},
    ForeignSection{ForeignSystem::kTorchtitan, "Training", kTitanTraining},
    ForeignSection{ForeignSystem::kTorchtitan, "Model", kTitanModel},
    ForeignSection{ForeignSystem::kTorchtitan, "Optimizer and learning rate", kTitanOptimizer},
    ForeignSection{ForeignSystem::kTorchtitan, "Memory", kTitanMemory},
    ForeignSection{ForeignSystem::kTorchtitan, "Checkpoints", kTitanCheckpoints},
    ForeignSection{ForeignSystem::kTorchtitan, "Logs, validation, communication", kTitanLogs},
};

}  // namespace

std::span<const ForeignSection> torchtitan_sections() { return kTitanSections; }

}  // namespace trident
