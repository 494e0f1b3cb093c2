// DeepSpeed 0.19: keys of its JSON. "auto" says nothing: other inputs or a default do.
#include "import/foreign/tables.h"

namespace trident {
namespace {

using enum Verdict;

constexpr std::string_view kWarmsUp = "its warm-up is logarithmic unless warmup_type is linear, here it is linear; without "
                                      "warmup_max_lr it climbs to 0.001, here to optimizer.lr";

constexpr ForeignKey kDeepSpeedBatch[] = {
    {"train_batch_size", kMapped, "batch.global"},
    {"train_micro_batch_size_per_gpu", kMapped, "batch.micro"},
    {"gradient_accumulation_steps", kMapped, "batch.global@accumulation", {}, "1 where two of the three sizes are left out"},
    {"gradient_clipping", kMapped, "optimizer.grad_clip", {}, "since 0.19 its default is 1.0, before it was none", "1.0"},
    {"managed_gradient_accumulation = true", kAlways, {}, {}, "an update takes batch.global sequences"},
    {"managed_gradient_accumulation", kRefused, {}, {}, "an update takes batch.global sequences"},
    {"dataloader_drop_last, vocabulary_size", kAlways, {}, {}, "batches are always full"},
    {"steps_per_print", kMapped, "log.every@steps_per_print", {}, "log.every, unless the program's own arguments say it"},
    {"elasticity.enabled", kRefused, {}, {}, "batch.global is constant; elastic lists the layouts of fewer ranks"},
    {"elasticity.*", kAlways, {}, {}, "batch.global is constant"},
};

constexpr ForeignKey kDeepSpeedZero[] = {
    {"zero_optimization.stage = 0, 1", kMapped, "parallel.zero", {}, kStages, "0"},
    {"zero_optimization = false", kMapped, "parallel.zero", "\"ddp\""},
    {"zero_optimization = true", kMapped, "parallel.zero", "\"zero1\""},
    {"zero_optimization.stage = 2, 3", kMapped, "parallel.zero", {}, kReducesOften},
    {"zero_optimization.stage", kRefused, {}, {}, "stages are 0 to 3"},
    {"zero_optimization.reduce_bucket_size", kMapped, "parallel.bucket_mb", {}, "elements there, MB here: 4 bytes each", {},
     Convert::kElementsToMb},
    {"zero_optimization.overlap_comm", kMapped, "parallel.overlap"},
    {"zero_optimization.mics_shard_size = -1", kAlways, {}, {}, "all data-parallel ranks share one copy"},
    {"zero_optimization.mics_shard_size", kNotBuilt, "parallel.shard_group"},
    {"zero_optimization.zero_hpz_partition_size = 0, 1", kAlways, {}, {}, "no second copy of the weights"},
    {"zero_optimization.zero_hpz_partition_size", kNotBuilt, "parallel.secondary_shards"},
    {"zero_optimization.zero_quantized_weights", kNotBuilt, "parallel.quantized_weights", "true"},
    {"zero_optimization.zero_quantized_gradients", kNotBuilt, "parallel.quantized_gradients", "true"},
    {"zero_optimization.zero_quantized_nontrainable_weights", kRefused, {}, {}, "model.quantize.type quantizes frozen weights"},
    {"zero_optimization.zeropp_loco_param.*", kRefused, {}, {}, "quantized gradients have no error feedback"},
    {"zero_optimization.offload_optimizer.device, zero_optimization.cpu_offload = cpu, true", kNotBuilt, "offload.optimizer",
     "\"host\""},
    {"zero_optimization.offload_optimizer.device = nvme", kNotBuilt, "offload.optimizer", "\"disk\""},
    {"zero_optimization.offload_param.device, zero_optimization.cpu_offload_params, zero_optimization.cpu_offload_param = cpu, "
     "true", kNotBuilt, "offload.parameters", "\"host\""},
    {"zero_optimization.offload_param.device = nvme", kNotBuilt, "offload.parameters", "\"disk\""},
    {"zero_optimization.offload_optimizer.nvme_path, zero_optimization.offload_param.nvme_path", kNotBuilt, "offload.path"},
    {"zero_optimization.offload_optimizer.ratio = 1", kAlways, {}, {}, "all of it or nothing"},
    {"zero_optimization.offload_optimizer.ratio", kDiffers, {}, {}, "all states go, not a share of them"},
    {"zero_optimization.offload_optimizer.device, zero_optimization.offload_param.device, zero_optimization.cpu_offload, "
     "zero_optimization.cpu_offload_params, zero_optimization.cpu_offload_param", kRefused, {}, {},
     "devices are none, cpu and nvme"},
    {"zero_optimization.offload_optimizer.*, zero_optimization.offload_param.*, zero_optimization.offload_optimizer, "
     "zero_optimization.offload_param, zero_optimization.cpu_offload_use_pin_memory, aio.*", kAlways, {}, {},
     "buffers are planned beforehand and pinned"},
    {"zero_optimization.zenflow.*", kRefused, {}, {}, "an update takes all gradients"},
    {"zero_optimization.allgather_bucket_size, zero_optimization.allgather_partitions, zero_optimization.contiguous_gradients, "
     "zero_optimization.reduce_scatter, zero_optimization.use_multi_rank_bucket_allreduce, "
     "zero_optimization.round_robin_gradients, zero_optimization.grad_hooks, zero_optimization.legacy_stage1, "
     "zero_optimization.elastic_checkpoint, zero_optimization.load_from_fp32_weights, zero_optimization.ignore_unused_parameters, "
     "zero_optimization.pipeline_loading_checkpoint, zero_optimization.sub_group_size, disable_allgather", kAlways, {}, {},
     "each bucket is divided evenly, so that one reduce-scatter and one gather on contiguous memory do"},
    {"zero_optimization.stage3_prefetch_bucket_size, zero_optimization.prefetch_bucket_size, "
     "zero_optimization.stage3_param_persistence_threshold, zero_optimization.param_persistence_threshold, "
     "zero_optimization.stage3_model_persistence_threshold, zero_optimization.model_persistence_threshold, "
     "zero_optimization.stage3_max_live_parameters, zero_optimization.max_live_parameters, "
     "zero_optimization.stage3_max_reuse_distance, zero_optimization.max_reuse_distance, "
     "zero_optimization.stage3_module_granularity_threshold, zero_optimization.module_granularity_threshold, "
     "zero_optimization.stage3_use_all_reduce_for_fetch_params, zero_optimization.use_all_reduce_for_fetch_params, "
     "zero_optimization.stage3_allgather_sequential, zero_optimization.allgather_sequential, "
     "zero_optimization.mics_hierarchical_params_gather, zero_optimization.memory_efficient_linear, "
     "zero_optimization.override_module_apply, zero_optimization.log_trace_cache_warnings, zero_optimization.enable_sanity_checks, "
     "zero_optimization.leaf_module, zero_optimization.leaf_module.*", kAlways, {}, {},
     "when each block is gathered and freed is decided before the run, and its memory with it"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save, zero_optimization.gather_16bit_weights_on_model_save, "
     "zero_optimization.stage3_gather_fp16_weights_on_model_save", kAlways, "trident convert", {},
     "it writes one folder of whole weights from any checkpoint"},
    {"zero_optimization.save_muon_momentum_buffer_in_memory, zero_allow_untested_optimizer, zero_force_ds_cpu_optimizer", kAlways,
     {}, {}, "every optimizer here is sharded alike"},
};

constexpr ForeignKey kDeepSpeedPrecision[] = {
    {"bf16.enabled, bfloat16.enabled", kMapped, "precision.compute", "\"bf16\""},
    {"fp16.enabled", kMapped, "precision.compute", "\"fp16\""},
    {"fp16.loss_scale = 0", kAlways, {}, {}, "found while training"},
    {"fp16.loss_scale", kMapped, "precision.loss_scale@loss_scale", {}, "with fp16 only; a power of two"},
    {"fp16.initial_scale_power", kDiffers, {}, {}, "the scale begins at 2^32 and is halved until gradients are finite"},
    {"fp16.loss_scale_window = 1000", kAlways, {}, {}, "the scale doubles after 1000 clean steps"},
    {"fp16.hysteresis = 2", kAlways, {}, {}, "the second overflow halves the scale"},
    {"fp16.min_loss_scale = 1", kAlways, {}, {}, "the lowest scale is 1"},
    {"fp16.loss_scale_window, fp16.hysteresis, fp16.min_loss_scale, fp16.consecutive_hysteresis", kDiffers, {}, {},
     "with fp16 the scale doubles after 1000 clean steps, the second overflow halves it, and 1 is the lowest"},
    {"fp16.fp16_master_weights_and_grads, bf16.bf16_master_weights_and_grads, bf16.bf16_optimizer_states, "
     "bfloat16.bf16_master_weights_and_grads, bfloat16.bf16_optimizer_states", kRefused, {}, {},
     "master weights, gradients and optimizer states are fp32"},
    {"fp16.auto_cast, bf16.*, bfloat16.*", kAlways, {}, {},
     "gradients are summed in fp32, and a step with one that is not finite is not applied"},
    {"torch_autocast.enabled", kMapped, "precision.compute@autocast", "true"},
    {"torch_autocast.dtype", kMapped, "precision.compute@autocast_dtype", {}, "counts where torch_autocast is enabled"},
    {"torch_autocast.*", kAlways, {}, {}, "each operation has its format: sums and norms are fp32"},
    {"amp.enabled", kRefused, {}, {}, "fp16.enabled or bf16.enabled names the format"},
    {"amp.*", kAlways, {}, {}, "precision.compute says it"},
    {"data_types.grad_accum_dtype, communication_data_type, seq_parallel_communication_data_type = fp32, null", kAlways, {}, {},
     "gradients are summed in fp32"},
    {"data_types.grad_accum_dtype, communication_data_type, seq_parallel_communication_data_type", kDiffers, {}, {},
     "gradients are summed in fp32"},
    {"data_types.param_dtype, data_types.buffer_dtype", kDiffers, {}, {}, "precision.compute is the format of all weights"},
    {"gradient_allreduce_op = sum", kRefused, {}, {}, "gradients are of the mean over all targets"},
    {"prescale_gradients, gradient_predivide_factor, gradient_allreduce_op, ddp_bf16", kAlways, {}, {},
     "the loss divides gradients once, and communication only sums"},
    {"sparse_gradients", kDiffers, {}, {}, "gradients of embeddings are whole"},
};

constexpr ForeignKey kDeepSpeedOptimizer[] = {
    {"optimizer.type = Adam, AdamW", kMapped, "optimizer.type@deepspeed_optimizer", "\"adamw\"",
     "DeepSpeed's Adam is AdamW, too, unless adam_w_mode is false"},
    {"optimizer.type = Lion", kMapped, "optimizer.type@deepspeed_optimizer", "\"lion\""},
    {"optimizer.type", kRefused, {}, {}, "rules are adamw and lion"},
    {"optimizer.params.lr, scheduler.params.warmup_max_lr", kMapped, "optimizer.lr"},
    {"optimizer.params.betas", kMapped, "optimizer.betas"},
    {"optimizer.params.eps", kMapped, "optimizer.eps"},
    {"optimizer.params.weight_decay", kMapped, "optimizer.weight_decay", {},
     "biases and one-dimensional parameters are not decayed"},
    {"optimizer.params.adam_w_mode = false", kRefused, {}, {},
     "weight decay is decoupled from the gradient: set it to 0, or train AdamW"},
    {"optimizer.params.bias_correction = false", kRefused, {}, {}, "moments are corrected"},
    {"optimizer.params.amsgrad", kRefused, {}, {}, "the second moment has no maximum"},
    {"optimizer.params.adam_w_mode, optimizer.params.bias_correction, optimizer.params.torch_adam, "
     "optimizer.params.fp32_optimizer_states, optimizer.params.set_grad_none, optimizer.legacy_fusion", kAlways, {}, {},
     "one update rule: AdamW with corrected fp32 moments"},
    {"optimizer.params.*", kRefused, {}, {},
     "adamw and lion have no such number; gradient_clipping and scheduler have keys of their own"},
    {"scheduler.type = WarmupLR", kDiffers, "lr_schedule.type@deepspeed_scheduler", "\"constant\"", kWarmsUp},
    {"scheduler.type = WarmupDecayLR", kDiffers, "lr_schedule.type@deepspeed_scheduler", "\"linear\"", kWarmsUp},
    {"scheduler.type = WarmupCosineLR", kDiffers, "lr_schedule.type@deepspeed_scheduler", "\"cosine\"",
     "its warm-up is logarithmic unless warmup_type is linear, here it is linear"},
    {"scheduler.type", kRefused, {}, {}, "schedules are WarmupLR, WarmupDecayLR and WarmupCosineLR"},
    {"scheduler.params.warmup_num_steps", kMapped, "lr_schedule.warmup_steps"},
    {"scheduler.params.total_num_steps", kMapped, "lr_schedule.decay_steps"},
    {"scheduler.params.cos_min_ratio", kMapped, "lr_schedule.min_lr@min_lr_ratio"},
    {"scheduler.params.warmup_type = linear", kAlways, {}, {}, "the warm-up is linear"},
    {"scheduler.params.warmup_type", kDiffers, {}, {}, "the warm-up is linear"},
    {"scheduler.params.warmup_min_lr, scheduler.params.warmup_min_ratio = 0, auto", kAlways, {}, {}, "the warm-up begins at 0"},
    {"scheduler.params.warmup_min_lr, scheduler.params.warmup_min_ratio", kDiffers, {}, {}, "the warm-up begins at 0"},
    {"scheduler.params.last_batch_iteration", kAlways, {}, {}, "a checkpoint knows its step"},
    {"scheduler.params.*", kRefused, {}, {}, "no schedule here has such a number"},
};

constexpr ForeignKey kDeepSpeedParallel[] = {
    {"tensor_parallel.autotp_size = 0", kAlways, {}, {}, "layers are whole on a rank"},
    {"tensor_parallel.autotp_size, tensor_parallel.tp.tp_size, tensor_parallel.tensor_parallel.tp_size", kMapped,
     "parallel.tensor"},
    {"tensor_parallel.tp_overlap_comm", kNotBuilt, "parallel.tensor_overlap", "\"chunked\""},
    {"tensor_parallel.*", kAlways, {}, {}, "the program knows how the layers of its models are split"},
    {"sequence_parallel_size = 1", kAlways, {}, {}, "sequences are whole on a rank"},
    {"sequence_parallel_size", kNotBuilt, "parallel.context"},
    {"pipeline.stages", kMapped, "parallel.pipeline"},
    {"pipeline.activation_checkpoint_interval", kMapped, "recompute.policy", "\"full\"", "each block by itself"},
    {"pipeline.*", kAlways, {}, {}, "layers are balanced by cost and seeded by name"},
    {"expert_parallel.enabled", kRefused, {}, {}, "dense models only"},
    {"expert_parallel.*, use_data_before_expert_parallelism", kAlways, {}, {}, "dense models only"},
    {"activation_checkpointing.cpu_checkpointing", kNotBuilt, "offload.activations", "\"host\""},
    {"activation_checkpointing.*", kDiffers, {}, {},
     "the block says how, not whether: recompute.policy says what is computed again"},
    {"compile.offload_opt_states", kNotBuilt, "offload.optimizer", "\"host\""},
    {"compile.offload_parameters", kNotBuilt, "offload.parameters", "\"host\""},
    {"compile.offload_activation", kNotBuilt, "offload.activations", "\"host\""},
    {"compile.*", kAlways, {}, {}, "there is nothing to compile: the order of a step is decided beforehand"},
    {"graph_harvesting", kMapped, "cuda.graphs"},
};

constexpr ForeignKey kDeepSpeedReports[] = {
    {"tensorboard.enabled", kMapped, "log.tensorboard"},
    {"tensorboard.*", kDiffers, {}, {}, "events are written into run.dir"},
    {"wandb.enabled, comet.enabled = true", kDiffers, {}, {}, kSendsNothing},
    {"csv_monitor.enabled = true", kDiffers, "trident report --csv", {}, "prints the numbers of a run"},
    {"wandb.*, comet.*", kAlways, {}, {}, kSendsNothing},
    {"csv_monitor.*", kAlways, {}, {}, "metrics.jsonl has every number"},
    {"wall_clock_breakdown, memory_breakdown, dump_state, timers.*, comms_logger.*, flops_profiler.*", kAlways, "trident report",
     {}, "metrics.jsonl always has times, bytes, memory and MFU; log.trace_steps traces steps"},
    {"log_level", kAlways, {}, {}, "log.verbose shows all opening lines"},
    {"autotuning.enabled = true", kDiffers, "trident plan search", {}, "it compares layouts before a run"},
    {"autotuning.*", kAlways, "trident plan search", {}, "it compares layouts before a run"},
    {"checkpoint.*, datastates_ckpt, datastates_ckpt.*, nebula.*, session_params.*", kAlways, {}, {},
     "each rank writes its part at its own time, and any layout reads it"},
};

// Each trains something else than the model and data that are given.
constexpr ForeignKey kDeepSpeedOther[] = {
    {"data_efficiency.enabled, curriculum_learning.enabled, progressive_layer_drop.enabled, eigenvalue.enabled, "
     "hybrid_engine.enabled", kRefused, {}, {}, "every step trains the whole model on whole samples"},
    {"data_efficiency.*, curriculum_learning.*, progressive_layer_drop.*, eigenvalue.*, hybrid_engine.*", kAlways, {}, {},
     "every step trains the whole model on whole samples"},
    {"sparse_attention.*, compression_training.*, quantize_training.*, weight_quantization.*", kRefused, {}, {},
     "every step trains the whole model on whole samples"},
};

constexpr ForeignSection kDeepSpeedSections[] = {
    {ForeignSystem::kDeepSpeed, "Batch", kDeepSpeedBatch},
    {ForeignSystem::kDeepSpeed, "ZeRO", kDeepSpeedZero},
    {ForeignSystem::kDeepSpeed, "Precision", kDeepSpeedPrecision},
    {ForeignSystem::kDeepSpeed, "Optimizer and learning rate", kDeepSpeedOptimizer},
    {ForeignSystem::kDeepSpeed, "Parallelism and recomputation", kDeepSpeedParallel},
    {ForeignSystem::kDeepSpeed, "Reports and checkpoints", kDeepSpeedReports},
    {ForeignSystem::kDeepSpeed, "Not offered", kDeepSpeedOther},
};

}  // namespace

std::span<const ForeignSection> deepspeed_sections() { return kDeepSpeedSections; }

}  // namespace trident
