// DeepSpeed 0.19: keys of its JSON. "auto" says nothing: other inputs or a default do.
#include "import/foreign/tables.h"

namespace trident {
namespace {

using enum Verdict;

constexpr std::string_view kWarmsUp = "its warm-up is logarithmic unless warmup_type is linear, here it is linear";

constexpr ForeignKey kDeepspeedRows[] = {
    heading("Batch"),
    {"train_batch_size", kMapped, "batch.global"},
    {"train_micro_batch_size_per_gpu", kMapped, "batch.micro"},
    {"gradient_accumulation_steps", kMapped, "batch.global@accumulation", {}, "1 where two of the three sizes are left out"},
    {"gradient_clipping", kMapped, "optimizer.grad_clip", {}, "since 0.19 its default is 1.0, before it was none", "1.0"},
    always("managed_gradient_accumulation = true", "an update takes batch.global sequences"),
    refused("managed_gradient_accumulation", "an update takes batch.global sequences"),
    always("dataloader_drop_last, vocabulary_size", "batches are always full"),
    {"steps_per_print", kMapped, "log.every@steps_per_print", {}, "log.every, unless the program's own arguments say it"},
    refused("elasticity.enabled", "batch.global is constant; elastic lists the layouts of fewer ranks"),
    always("elasticity.*", "batch.global is constant"),
    heading("ZeRO"),
    {"zero_optimization.stage = 0, 1", kMapped, "parallel.zero", {}, kStages, "0"},
    {"zero_optimization = false, 0", kMapped, "parallel.zero", "\"ddp\""},
    {"zero_optimization = true, 1", kMapped, "parallel.zero", "\"zero1\""},
    {"zero_optimization.stage = 2, 3", kMapped, "parallel.zero", {}, kReducesOften},
    refused("zero_optimization.stage", "stages are 0 to 3"),
    {"zero_optimization.reduce_bucket_size", kMapped, "parallel.bucket_mb", {}, "elements there, MB here: 4 bytes each", {},
     Convert::kElementsToMb},
    {"zero_optimization.overlap_comm", kMapped, "parallel.overlap"},
    always("zero_optimization.mics_shard_size = -1", "all data-parallel ranks share one copy"),
    {"zero_optimization.mics_shard_size", kNotBuilt, "parallel.shard_group"},
    always("zero_optimization.zero_hpz_partition_size = 0, 1", "no second copy of the weights"),
    {"zero_optimization.zero_hpz_partition_size", kNotBuilt, "parallel.secondary_shards"},
    {"zero_optimization.zero_quantized_weights", kNotBuilt, "parallel.quantized_weights", "true"},
    {"zero_optimization.zero_quantized_gradients", kNotBuilt, "parallel.quantized_gradients", "true"},
    refused("zero_optimization.zero_quantized_nontrainable_weights", "model.quantize.type quantizes frozen weights"),
    refused("zero_optimization.zeropp_loco_param.*", "quantized gradients have no error feedback"),
    {"zero_optimization.offload_optimizer.device, zero_optimization.cpu_offload = cpu, true", kNotBuilt, "offload.optimizer",
     "\"host\""},
    {"zero_optimization.offload_optimizer.device = nvme", kNotBuilt, "offload.optimizer", "\"disk\""},
    {"zero_optimization.offload_param.device, zero_optimization.cpu_offload_params, zero_optimization.cpu_offload_param = cpu, "
     "true", kNotBuilt, "offload.parameters", "\"host\""},
    {"zero_optimization.offload_param.device = nvme", kNotBuilt, "offload.parameters", "\"disk\""},
    {"zero_optimization.offload_optimizer.nvme_path, zero_optimization.offload_param.nvme_path", kNotBuilt, "offload.path"},
    always("zero_optimization.offload_optimizer.ratio = 1", "all of it or nothing"),
    differs("zero_optimization.offload_optimizer.ratio", "all states go, not a share of them"),
    refused("zero_optimization.offload_optimizer.device, zero_optimization.offload_param.device, zero_optimization.cpu_offload, "
     "zero_optimization.cpu_offload_params, zero_optimization.cpu_offload_param", "devices are none, cpu and nvme"),
    always("zero_optimization.offload_optimizer.*, zero_optimization.offload_param.*, zero_optimization.offload_optimizer, "
     "zero_optimization.offload_param, zero_optimization.cpu_offload_use_pin_memory, aio.*",
     "buffers are planned beforehand and pinned"),
    refused("zero_optimization.zenflow.*", "an update takes all gradients"),
    always("zero_optimization.allgather_bucket_size, zero_optimization.allgather_partitions, "
     "zero_optimization.contiguous_gradients, zero_optimization.reduce_scatter, zero_optimization.use_multi_rank_bucket_allreduce, "
     "zero_optimization.round_robin_gradients, zero_optimization.grad_hooks, zero_optimization.legacy_stage1, "
     "zero_optimization.elastic_checkpoint, zero_optimization.load_from_fp32_weights, zero_optimization.ignore_unused_parameters, "
     "zero_optimization.pipeline_loading_checkpoint, zero_optimization.sub_group_size, disable_allgather",
     "each bucket is divided evenly, so that one reduce-scatter and one gather on contiguous memory do"),
    always("zero_optimization.stage3_prefetch_bucket_size, zero_optimization.prefetch_bucket_size, "
     "zero_optimization.stage3_param_persistence_threshold, zero_optimization.param_persistence_threshold, "
     "zero_optimization.stage3_model_persistence_threshold, zero_optimization.model_persistence_threshold, "
     "zero_optimization.stage3_max_live_parameters, zero_optimization.max_live_parameters, "
     "zero_optimization.stage3_max_reuse_distance, zero_optimization.max_reuse_distance, "
     "zero_optimization.stage3_module_granularity_threshold, zero_optimization.module_granularity_threshold, "
     "zero_optimization.stage3_use_all_reduce_for_fetch_params, zero_optimization.use_all_reduce_for_fetch_params, "
     "zero_optimization.stage3_allgather_sequential, zero_optimization.allgather_sequential, "
     "zero_optimization.mics_hierarchical_params_gather, zero_optimization.memory_efficient_linear, "
     "zero_optimization.override_module_apply, zero_optimization.log_trace_cache_warnings, zero_optimization.enable_sanity_checks, "
     "zero_optimization.leaf_module, zero_optimization.leaf_module.*", "when each block is gathered and freed is decided before "
     "the run, and its memory with it"),
    always("zero_optimization.stage3_gather_16bit_weights_on_model_save, zero_optimization.gather_16bit_weights_on_model_save, "
     "zero_optimization.stage3_gather_fp16_weights_on_model_save", "it writes one folder of whole weights from any checkpoint",
     "trident convert"),
    always("zero_optimization.save_muon_momentum_buffer_in_memory, zero_allow_untested_optimizer, zero_force_ds_cpu_optimizer",
     "every optimizer here is sharded alike"),
    heading("Precision"),
    {"bf16.enabled, bfloat16.enabled", kMapped, "precision.compute", "\"bf16\""},
    {"fp16.enabled", kMapped, "precision.compute", "\"fp16\""},
    always("fp16.loss_scale = 0", "found while training"),
    {"fp16.loss_scale", kMapped, "precision.loss_scale@loss_scale", {}, "with fp16 only; a power of two"},
    differs("fp16.initial_scale_power", "the scale begins at 2^32 and is halved until gradients are finite"),
    always("fp16.loss_scale_window = 1000", "the scale doubles after 1000 clean steps"),
    always("fp16.hysteresis = 2", "the second overflow halves the scale"),
    always("fp16.min_loss_scale = 1", "the lowest scale is 1"),
    differs("fp16.loss_scale_window, fp16.hysteresis, fp16.min_loss_scale, fp16.consecutive_hysteresis",
     "with fp16 the scale doubles after 1000 clean steps, the second overflow halves it, and 1 is the lowest"),
    refused("fp16.fp16_master_weights_and_grads, bf16.bf16_master_weights_and_grads, bf16.bf16_optimizer_states, "
     "bfloat16.bf16_master_weights_and_grads, bfloat16.bf16_optimizer_states",
     "master weights, gradients and optimizer states are fp32"),
    always("fp16.auto_cast, bf16.*, bfloat16.*", "gradients are summed in fp32, and a step with one that is not finite is not "
     "applied"),
    {"torch_autocast.enabled", kMapped, "precision.compute@autocast", "true"},
    {"torch_autocast.dtype", kMapped, "precision.compute@autocast_dtype", {}, "counts where torch_autocast is enabled"},
    always("torch_autocast.*", "each operation has its format: sums and norms are fp32"),
    refused("amp.enabled", "fp16.enabled or bf16.enabled names the format"),
    always("amp.*", "precision.compute says it"),
    always("data_types.grad_accum_dtype, communication_data_type, seq_parallel_communication_data_type = fp32, null",
     "gradients are summed in fp32"),
    differs("data_types.grad_accum_dtype, communication_data_type, seq_parallel_communication_data_type",
     "gradients are summed in fp32"),
    differs("data_types.param_dtype, data_types.buffer_dtype", "precision.compute is the format of all weights"),
    refused("gradient_allreduce_op = sum", "gradients are of the mean over all targets"),
    always("prescale_gradients, gradient_predivide_factor, gradient_allreduce_op, ddp_bf16",
     "the loss divides gradients once, and communication only sums"),
    differs("sparse_gradients", "gradients of embeddings are whole"),
    heading("Optimizer and learning rate"),
    {"optimizer.type = Adam, AdamW", kMapped, "optimizer.type@deepspeed_optimizer", "\"adamw\"",
     "DeepSpeed's Adam is AdamW, too, unless adam_w_mode is false"},
    {"optimizer.type = Lion", kMapped, "optimizer.type@deepspeed_optimizer", "\"lion\""},
    refused("optimizer.type", "rules are adamw and lion"),
    {"optimizer.params.lr, scheduler.params.warmup_max_lr", kMapped, "optimizer.lr"},
    {"optimizer.params.betas", kMapped, "optimizer.betas"},
    {"optimizer.params.eps", kMapped, "optimizer.eps"},
    {"optimizer.params.weight_decay", kMapped, "optimizer.weight_decay", {},
     "biases and one-dimensional parameters are not decayed"},
    refused("optimizer.params.adam_w_mode = false", "weight decay is decoupled from the gradient: set it to 0, or train AdamW"),
    refused("optimizer.params.bias_correction = false", "moments are corrected"),
    refused("optimizer.params.amsgrad", "the second moment has no maximum"),
    always("optimizer.params.adam_w_mode, optimizer.params.bias_correction, optimizer.params.torch_adam, "
     "optimizer.params.fp32_optimizer_states, optimizer.params.set_grad_none, optimizer.legacy_fusion",
     "one update rule: AdamW with corrected fp32 moments"),
    refused("optimizer.params.*", "adamw and lion have no such number; gradient_clipping and scheduler have keys of their own"),
    {"scheduler.type = WarmupLR", kDiffers, "lr_schedule.type@deepspeed_scheduler", "\"constant\"", kWarmsUp},
    {"scheduler.type = WarmupDecayLR", kDiffers, "lr_schedule.type@deepspeed_scheduler", "\"linear\"", kWarmsUp},
    {"scheduler.type = WarmupCosineLR", kDiffers, "lr_schedule.type@deepspeed_scheduler", "\"cosine\"", kWarmsUp},
    refused("scheduler.type", "schedules are WarmupLR, WarmupDecayLR and WarmupCosineLR"),
    {"scheduler.params.warmup_num_steps", kMapped, "lr_schedule.warmup_steps"},
    {"scheduler.params.total_num_steps", kMapped, "lr_schedule.decay_steps"},
    {"scheduler.params.cos_min_ratio", kMapped, "lr_schedule.min_lr@min_lr_ratio"},
    always("scheduler.params.warmup_type = linear", "the warm-up is linear"),
    differs("scheduler.params.warmup_type", "the warm-up is linear"),
    always("scheduler.params.warmup_min_lr, scheduler.params.warmup_min_ratio = 0, auto", "the warm-up begins at 0"),
    differs("scheduler.params.warmup_min_lr, scheduler.params.warmup_min_ratio", "the warm-up begins at 0"),
    always("scheduler.params.last_batch_iteration", "a checkpoint knows its step"),
    refused("scheduler.params.*", "no schedule here has such a number"),
    heading("Parallelism and recomputation"),
    always("tensor_parallel.autotp_size = 0", "layers are whole on a rank"),
    {"tensor_parallel.autotp_size, tensor_parallel.tp.tp_size, tensor_parallel.tensor_parallel.tp_size", kMapped,
     "parallel.tensor"},
    {"tensor_parallel.tp_overlap_comm", kNotBuilt, "parallel.tensor_overlap", "\"chunked\""},
    always("tensor_parallel.*", "the program knows how the layers of its models are split"),
    always("sequence_parallel_size = 1", "sequences are whole on a rank"),
    {"sequence_parallel_size", kNotBuilt, "parallel.context"},
    {"pipeline.stages", kMapped, "parallel.pipeline"},
    {"pipeline.activation_checkpoint_interval", kMapped, "recompute.policy", "\"full\"", "each block by itself"},
    always("pipeline.*", "layers are balanced by cost and seeded by name"),
    refused("expert_parallel.enabled", "dense models only"),
    always("expert_parallel.*, use_data_before_expert_parallelism", "dense models only"),
    differs("activation_checkpointing.*", "the block says how, not whether: recompute.policy says what is computed again"),
    {"compile.offload_opt_states", kNotBuilt, "offload.optimizer", "\"host\""},
    {"compile.offload_parameters", kNotBuilt, "offload.parameters", "\"host\""},
    {"activation_checkpointing.cpu_checkpointing, compile.offload_activation", kNotBuilt, "offload.activations", "\"host\""},
    always("compile.*", "there is nothing to compile: the order of a step is decided beforehand"),
    {"graph_harvesting", kMapped, "cuda.graphs"},
    heading("Reports and checkpoints"),
    {"tensorboard.enabled", kMapped, "log.tensorboard"},
    differs("tensorboard.*", "events are written into run.dir"),
    differs("wandb.enabled, comet.enabled = true", kSendsNothing),
    differs("csv_monitor.enabled = true", "prints the numbers of a run", "trident report --csv"),
    always("wandb.*, comet.*", kSendsNothing),
    always("csv_monitor.*", "metrics.jsonl has every number"),
    always("wall_clock_breakdown, memory_breakdown, dump_state, timers.*, comms_logger.*, flops_profiler.*",
     "metrics.jsonl always has times, bytes, memory and MFU; log.trace_steps traces steps", "trident report"),
    always("log_level", "log.verbose shows all opening lines"),
    always("comms_config.*, monitor_config.*, num_machines, num_processes, low_cpu_mem_usage, allgather_size, fp32_allreduce, "
     "swap_tensor.*, cuda_visible_devices", "DeepSpeed reads no such key"),
    differs("autotuning.enabled = true", "it compares layouts before a run", "trident plan search"),
    always("autotuning.*", "it compares layouts before a run", "trident plan search"),
    always("checkpoint.*, datastates_ckpt, datastates_ckpt.*, nebula.*, session_params.*",
     "each rank writes its part at its own time, and any layout reads it"),
    heading("Not offered"),
    refused("data_efficiency.enabled, curriculum_learning.enabled, progressive_layer_drop.enabled, eigenvalue.enabled, "
     "hybrid_engine.enabled", "every step trains the whole model on whole samples"),
    always("data_efficiency.*, curriculum_learning.*, progressive_layer_drop.*, eigenvalue.*, hybrid_engine.*",
     "every step trains the whole model on whole samples"),
    refused("sparse_attention.*, compression_training.*, quantize_training.*, weight_quantization.*",
     "every step trains the whole model on whole samples"),
};

}  // namespace

std::span<const ForeignKey> deepspeed_rows() { return kDeepspeedRows; }

}  // namespace trident
