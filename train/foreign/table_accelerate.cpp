// Accelerate 1.15: files that `accelerate config` writes, flags of `accelerate launch`, and its classes' arguments.
#include "train/foreign/tables.h"

namespace trident {
namespace {

using enum Verdict;

// Names of one setting: in the file, and as a flag. Accelerate itself takes the keys of fsdp_config with and without their prefix.
#define TRIDENT_DEEPSPEED(name) "deepspeed_config." name ", " name
#define TRIDENT_FSDP(name) "fsdp_config.fsdp_" name ", fsdp_config." name ", fsdp_" name
#define TRIDENT_RESHARD_FSDP TRIDENT_FSDP("sharding_strategy") ", " TRIDENT_FSDP("reshard_after_forward")
#define TRIDENT_MEGATRON(name) "megatron_lm_config.megatron_lm_" name ", megatron_lm_" name
#define TRIDENT_PARALLELISM(name) \
  "parallelism_config.parallelism_config_" name ", parallelism_config." name ", parallelism_config_" name

constexpr std::string_view kMeansWhole =
                               "data-parallel ranks with whole copies (ddp), unless DeepSpeed or FSDP is asked for elsewhere",
                           kMeansFsdp = "zero3 where fsdp_config says nothing else",
                           kMeansDeepSpeed = "zero2 where no stage is named",
                           kMeansMegatron = "zero1 with use_distributed_optimizer, ddp without";

constexpr ForeignKey kAccelerateRun[] = {
    {"distributed_type = NO, false", kMapped, "@distributed_type", "\"NO\"", "one process, whatever num_processes says"},
    {"distributed_type = MULTI_GPU, MULTI_CPU", kMapped, "@distributed_type", "\"MULTI_GPU\"", kMeansWhole},
    {"distributed_type = FSDP", kMapped, "@distributed_type", "\"FSDP\"", kMeansFsdp},
    {"distributed_type = DEEPSPEED", kMapped, "@distributed_type", "\"DEEPSPEED\"", kMeansDeepSpeed},
    {"distributed_type = MEGATRON_LM", kMapped, "@distributed_type", "\"MEGATRON_LM\"", kMeansMegatron},
    {"distributed_type", kRefused, {}, {}, "ranks compute on CPUs and CUDA GPUs"},
    {"multi_gpu", kMapped, "@distributed_type", "\"MULTI_GPU\"", kMeansWhole},
    {"use_fsdp", kMapped, "@distributed_type", "\"FSDP\"", kMeansFsdp},
    {"use_deepspeed", kMapped, "@distributed_type", "\"DEEPSPEED\"", kMeansDeepSpeed},
    {"use_megatron_lm", kMapped, "@distributed_type", "\"MEGATRON_LM\"", kMeansMegatron},
    {"use_parallelism_config", kAlways, {}, {}, "degrees count where they are given"},
    {"num_processes = -1", kLauncher, {}, {}, "the launcher or import --ranks says how many there are"},
    {"num_processes", kMapped, "@ranks"},
    {"num_machines", kMapped, "@nodes", {}, "num_processes counts the ranks of all of them"},
    {"mixed_precision = bf16", kMapped, "precision.compute", "\"bf16\""},
    {"mixed_precision = fp16", kMapped, "precision.compute", "\"fp16\""},
    {"mixed_precision = no, false", kMapped, "@mixed_precision", "\"no\"",
     "fp32, unless the program's own arguments name a format"},
    {"mixed_precision = fp8", kNotBuilt, "precision.fp8", "true"},
    {"mixed_precision", kRefused, {}, {}, "formats are no, fp16, bf16 and fp8"},
    {"fp16", kMapped, "precision.compute", "\"fp16\"", "the old form of mixed_precision"},
    {"use_cpu, cpu", kMapped, "device", "\"cpu\""},
    {"enable_cpu_affinity", kAlways, {}, {}, "run.pin binds ranks to cores unless it is false"},
    {"num_cpu_threads_per_process", kMapped, "run.threads_per_rank"},
    {"debug", kAlways, {}, {}, "debug.check_collectives compares what ranks are about to communicate unless it is false"},
    {"downcast_bf16, main_training_function", kAlways, {}, {}, "a matter of TPUs"},
    {"compute_environment = LOCAL_MACHINE", kAlways, {}, {}, "ranks start where you start them"},
    {"compute_environment, ec2_instance_type, iam_role_name, image_uri, profile, region, base_job_name, pytorch_version, "
     "transformers_version, py_version, sagemaker_inputs_file, sagemaker_metrics_file, additional_args, aws_access_key_id, "
     "aws_secret_access_key", kRefused, {}, {}, "no service starts machines: start mpirun or srun on them"},
    {"tpu, tpu_use_cluster, tpu_cluster", kRefused, {}, {}, "ranks compute on CPUs and CUDA GPUs"},
    {"no_tpu_cluster, tpu_use_sudo, tpu_name, tpu_zone, tpu_vm, tpu_env, vm, env, commands, command_file", kLauncher, {}, {},
     "a matter of TPUs"},
    {"machine_rank, main_process_ip, main_process_port, rdzv_backend, rdzv_conf, same_network, gpu_ids, max_restarts, "
     "monitor_interval, tee, t, log_dir, role, quiet, q, module, m, no_python, mpirun_config.*, mpirun_hostfile", kLauncher, {}, {},
     "mpirun or srun starts the ranks, CUDA_VISIBLE_DEVICES names the GPUs, and trident supervise restarts"},
    {"config_file, deepspeed_config.deepspeed_config_file, deepspeed_config_file, deepspeed_config.hf_ds_config", kAlways, {}, {},
     "its keys are listed by themselves"},
    {"deepspeed_config, fsdp_config, megatron_lm_config, parallelism_config, mpirun_config", kAlways, {}, {},
     "an empty block says nothing"},
    {"dynamo_*", kAlways, {}, {}, "there is nothing to compile"},
    {"fp8_*", kNotBuilt, "precision.fp8", "true", "scaling is by tensor unless precision.fp8 names another recipe"},
};

constexpr ForeignKey kAccelerateDeepSpeed[] = {
    {TRIDENT_DEEPSPEED("zero_stage") " = 0", kMapped, "parallel.zero", "\"ddp\""},
    {TRIDENT_DEEPSPEED("zero_stage") " = 1", kMapped, "parallel.zero", "\"zero1\""},
    {TRIDENT_DEEPSPEED("zero_stage") " = 2", kMapped, "parallel.zero", "\"zero2\"",
     kReducesOften},
    {TRIDENT_DEEPSPEED("zero_stage") " = 3", kMapped, "parallel.zero", "\"zero3\"",
     kReducesOften},
    {TRIDENT_DEEPSPEED("zero_stage"), kRefused, {}, {}, "stages are 0 to 3"},
    {TRIDENT_DEEPSPEED("gradient_accumulation_steps") " = auto", kAlways, {}, {}, "the program's arguments say it"},
    {TRIDENT_DEEPSPEED("gradient_accumulation_steps"), kMapped, "@accumulation"},
    {TRIDENT_DEEPSPEED("gradient_clipping") " = auto, none", kAlways, {}, {}, "the program's arguments say it"},
    {TRIDENT_DEEPSPEED("gradient_clipping"), kMapped, "optimizer.grad_clip"},
    {TRIDENT_DEEPSPEED("offload_optimizer_device") " = cpu", kNotBuilt, "offload.optimizer", "\"host\""},
    {TRIDENT_DEEPSPEED("offload_optimizer_device") " = nvme", kNotBuilt, "offload.optimizer", "\"disk\""},
    {TRIDENT_DEEPSPEED("offload_param_device") " = cpu", kNotBuilt, "offload.parameters", "\"host\""},
    {TRIDENT_DEEPSPEED("offload_param_device") " = nvme", kNotBuilt, "offload.parameters", "\"disk\""},
    {"deepspeed_config.offload_optimizer_nvme_path, deepspeed_config.offload_param_nvme_path, offload_optimizer_nvme_path, "
     "offload_param_nvme_path", kNotBuilt, "offload.path"},
    {"deepspeed_config.offload_optimizer_device, deepspeed_config.offload_param_device, offload_optimizer_device, "
     "offload_param_device", kRefused, {}, {}, "devices are none, cpu and nvme"},
    {TRIDENT_DEEPSPEED("zero3_init_flag"), kAlways, {}, {}, "a rank never holds more than its own part of the weights"},
    {TRIDENT_DEEPSPEED("zero3_save_16bit_model"), kAlways, "trident convert", {},
     "it writes one folder of whole weights from any checkpoint"},
    {TRIDENT_DEEPSPEED("deepspeed_moe_layer_cls_names") ", deepspeed_config.transformer_moe_cls_names", kRefused, {}, {},
     "dense models only"},
    {"deepspeed_config.is_train_batch_min", kAlways, {}, {}, "batch.micro says it"},
    {"deepspeed_config.enable_msamp", kNotBuilt, "precision.fp8", "true"},
    {"deepspeed_config.msamp_opt_level", kAlways, {}, {}, "a matter of MS-AMP"},
    {"deepspeed_config.deepspeed_hostfile, deepspeed_config.deepspeed_exclusion_filter, "
     "deepspeed_config.deepspeed_inclusion_filter, deepspeed_config.deepspeed_multinode_launcher, deepspeed_hostfile, "
     "deepspeed_exclusion_filter, deepspeed_inclusion_filter, deepspeed_multinode_launcher", kLauncher, {}, {},
     "mpirun or srun starts the ranks"},
};

constexpr ForeignKey kAccelerateFsdp[] = {
    {TRIDENT_FSDP("version"), kAlways, {}, {}, "both versions have the same presets here"},
    {TRIDENT_RESHARD_FSDP " = FULL_SHARD, HYBRID_SHARD, true, 1, 4", kMapped, "parallel.zero", "\"zero3\"",
     "true is of version 2, FULL_SHARD of version 1"},
    {TRIDENT_RESHARD_FSDP " = SHARD_GRAD_OP, HYBRID_SHARD_ZERO2, false, 2, 5", kMapped, "parallel.zero", "\"shard_grad_op\"",
     "false is of version 2, SHARD_GRAD_OP of version 1"},
    {TRIDENT_RESHARD_FSDP " = NO_SHARD, 3", kMapped, "parallel.zero", "\"ddp\""},
    {TRIDENT_RESHARD_FSDP " = HYBRID_SHARD, HYBRID_SHARD_ZERO2, 4, 5", kNotBuilt, "parallel.shard_group", "\"node\"",
     "whole copies across nodes"},
    {TRIDENT_RESHARD_FSDP, kRefused, {}, {},
     "strategies are FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD and HYBRID_SHARD_ZERO2"},
    {TRIDENT_FSDP("offload_params") ", fsdp_config.cpu_offload", kNotBuilt, "@fsdp_offload", "\"host\"", kFsdpOffload},
    {TRIDENT_FSDP("activation_checkpointing"), kMapped, "recompute.policy", "\"full\""},
    {TRIDENT_FSDP("activation_checkpointing_offload"), kNotBuilt, "offload.activations", "\"host\""},
    {TRIDENT_FSDP("auto_wrap_policy") " = NO_WRAP", kDiffers, {}, {},
     "one unit is the whole model there and nothing overlaps; here each block is a unit"},
    {TRIDENT_FSDP("auto_wrap_policy") ", " TRIDENT_FSDP("transformer_layer_cls_to_wrap") ", " TRIDENT_FSDP("min_num_params")
     ", fsdp_config.transformer_cls_names_to_wrap", kAlways, {}, {}, "each block of the model is a unit"},
    {TRIDENT_FSDP("backward_prefetch") ", " TRIDENT_FSDP("forward_prefetch") ", fsdp_config.limit_all_gathers", kAlways, {}, {},
     "the next unit is gathered while one computes, unless parallel.overlap is false; memory is planned beforehand"},
    {TRIDENT_FSDP("state_dict_type") ", fsdp_config.state_dict_config, fsdp_config.optim_state_dict_config", kAlways,
     "trident convert", {}, "each rank saves its part and any layout reads it; convert writes whole weights"},
    {TRIDENT_FSDP("use_orig_params"), kAlways, {}, {}, "frozen and trainable parameters mix freely"},
    {TRIDENT_FSDP("cpu_ram_efficient_loading") ", " TRIDENT_FSDP("sync_module_states") ", fsdp_config.param_init_fn", kAlways, {},
     {}, "each rank reads or draws its part of the weights alone, and all layouts begin with the same"},
    {TRIDENT_FSDP("ignored_modules"), kRefused, {}, {}, "every module is sharded"},
    {"fsdp_config.mixed_precision_policy", kDiffers, {}, {},
     "precision.compute is the format of weights and activations; gradients are always reduced in fp32"},
};

constexpr ForeignKey kAccelerateParallelism[] = {
    {TRIDENT_PARALLELISM("dp_replicate_size"), kMapped, "@replicate"},
    {TRIDENT_PARALLELISM("dp_shard_size"), kMapped, "@shard"},
    {TRIDENT_PARALLELISM("tp_size") ", torch_tp_plugin.tp_size", kMapped, "parallel.tensor"},
    {TRIDENT_PARALLELISM("cp_size") ", " TRIDENT_PARALLELISM("sp_size") " = 1", kAlways, {}, {}, "sequences are whole on a rank"},
    {TRIDENT_PARALLELISM("cp_size") ", " TRIDENT_PARALLELISM("sp_size"), kNotBuilt, "parallel.context"},
    {TRIDENT_PARALLELISM("cp_backend") ", " TRIDENT_PARALLELISM("cp_comm_strategy") ", " TRIDENT_PARALLELISM("sp_backend") ", "
     TRIDENT_PARALLELISM("sp_attn_implementation") ", parallelism_config.cp_handler, parallelism_config.sp_handler", kAlways, {},
     {}, "goes with parallel.context, which leaves no choice of it"},
    {TRIDENT_PARALLELISM("sp_seq_length") ", " TRIDENT_PARALLELISM("sp_seq_length_is_variable"), kAlways, {}, {},
     "batch.sequence says it"},
    {"parallelism_config.enable_async_tp", kNotBuilt, "parallel.tensor_overlap", "\"chunked\""},
    {"parallelism_config.tp_handler, torch_tp_plugin.torch_device_mesh", kAlways, {}, {},
     "the grid of ranks follows from the degrees"},
};

constexpr ForeignKey kAccelerateMegatron[] = {
    {TRIDENT_MEGATRON("tp_degree"), kMapped, "parallel.tensor"},
    {TRIDENT_MEGATRON("pp_degree"), kMapped, "parallel.pipeline"},
    {TRIDENT_MEGATRON("num_micro_batches"), kMapped, "@accumulation"},
    {TRIDENT_MEGATRON("sequence_parallelism"), kMapped, "parallel.sequence_parallel"},
    {TRIDENT_MEGATRON("recompute_activations"), kMapped, "recompute.policy", "\"selective\""},
    {TRIDENT_MEGATRON("recompute_granularity"), kMapped, "recompute.policy"},
    {TRIDENT_MEGATRON("recompute_method") ", " TRIDENT_MEGATRON("recompute_num_layers"), kDiffers, {}, {},
     "recompute.policy holds for every block"},
    {TRIDENT_MEGATRON("use_distributed_optimizer") " = true", kMapped, "parallel.zero", "\"zero1\""},
    {TRIDENT_MEGATRON("use_distributed_optimizer"), kMapped, "parallel.zero", "\"ddp\""},
    {TRIDENT_MEGATRON("gradient_clipping"), kMapped, "optimizer.grad_clip"},
    {TRIDENT_MEGATRON("hidden_dropout"), kMapped, "model.dropout"},
    {TRIDENT_MEGATRON("context_parallel_size") ", " TRIDENT_MEGATRON("expert_model_parallel_size") ", "
     TRIDENT_MEGATRON("expert_tensor_parallel_size") " = 1", kAlways, {}, {}, "sequences and blocks are whole on a rank"},
    {TRIDENT_MEGATRON("context_parallel_size"), kNotBuilt, "parallel.context"},
    {TRIDENT_MEGATRON("expert_model_parallel_size") ", " TRIDENT_MEGATRON("expert_tensor_parallel_size"), kRefused, {}, {},
     "dense models only"},
    {TRIDENT_MEGATRON("optimizer_cpu_offload"), kNotBuilt, "offload.optimizer", "\"host\""},
    {TRIDENT_MEGATRON("eod_mask_loss"), kMapped, "data.eod_mask_loss"},
    {TRIDENT_MEGATRON("no_save_optim"), kMapped, "checkpoint.content", "\"weights\""},
    {TRIDENT_MEGATRON("no_load_optim"), kRefused, {}, {}, "model.init_from begins with weights alone"},
    {TRIDENT_MEGATRON("use_custom_fsdp"), kRefused, {}, {}, "parallel.zero says what is sharded"},
    {TRIDENT_MEGATRON("use_precision_aware_optimizer"), kRefused, {}, {}, "optimizer states are fp32"},
    {TRIDENT_MEGATRON("lr_mult") " = 1", kAlways, {}, {}, "one learning rate for all parameters"},
    {TRIDENT_MEGATRON("calculate_per_token_loss") " = false", kDiffers, {}, {},
     "the mean is over the targets of the global batch, not over micro-batches"},
    {TRIDENT_MEGATRON("overlap_cpu_optimizer_d2h_h2d") ", " TRIDENT_MEGATRON("attention_backend") ", "
     TRIDENT_MEGATRON("attention_softmax_in_fp32") ", " TRIDENT_MEGATRON("use_rotary_position_embeddings") ", "
     TRIDENT_MEGATRON("calculate_per_token_loss"), kAlways, {}, {}, "the default here, or the model's own configuration says it"},
    {TRIDENT_MEGATRON("train_iters"), kMapped, "run.steps"},
    {TRIDENT_MEGATRON("train_samples"), kMapped, "@train_samples"},
    {TRIDENT_MEGATRON("seq_length"), kMapped, "batch.sequence"},
    {TRIDENT_MEGATRON("lr_decay_style"), kMapped, "lr_schedule.type"},
    {TRIDENT_MEGATRON("lr_decay_iters"), kMapped, "lr_schedule.decay_steps"},
    {TRIDENT_MEGATRON("lr_decay_samples"), kMapped, "@decay_samples"},
    {TRIDENT_MEGATRON("lr_warmup_iters"), kMapped, "lr_schedule.warmup_steps"},
    {TRIDENT_MEGATRON("lr_warmup_samples"), kMapped, "@warmup_samples"},
    {TRIDENT_MEGATRON("lr_warmup_fraction"), kMapped, "@warmup_ratio"},
    {TRIDENT_MEGATRON("min_lr"), kMapped, "lr_schedule.min_lr"},
    {TRIDENT_MEGATRON("eval_iters"), kMapped, "eval.steps"},
    {TRIDENT_MEGATRON("eval_interval"), kMapped, "eval.every"},
    {TRIDENT_MEGATRON("tensorboard_dir") ", " TRIDENT_MEGATRON("set_all_logging_options") ", "
     TRIDENT_MEGATRON("megatron_dataset_flag") ", " TRIDENT_MEGATRON("consumed_samples") ", "
     TRIDENT_MEGATRON("is_train_batch_min"), kAlways, {}, {},
     "log.tensorboard writes into run.dir, data are Megatron-LM's files, and a checkpoint knows what it has seen"},
    {TRIDENT_MEGATRON("decoder_last_pipeline_num_layers") ", " TRIDENT_MEGATRON("num_layers_per_virtual_pipeline_stage") ", "
     TRIDENT_MEGATRON("pipeline_model_parallel_split_rank"), kRefused, {}, {},
     "parallel.layers and parallel.virtual_stages say it"},
    {TRIDENT_MEGATRON("attention_dropout") ", " TRIDENT_MEGATRON("weight_decay_incr_style") ", "
     TRIDENT_MEGATRON("start_weight_decay") ", " TRIDENT_MEGATRON("end_weight_decay") ", " TRIDENT_MEGATRON("no_wd_decay_cond") ", "
     TRIDENT_MEGATRON("scale_lr_cond") ", " TRIDENT_MEGATRON("lr_mult") ", " TRIDENT_MEGATRON("encoder_seq_length") ", "
     TRIDENT_MEGATRON("decoder_seq_length") ", " TRIDENT_MEGATRON("return_logits") ", " TRIDENT_MEGATRON("custom_*") ", "
     TRIDENT_MEGATRON("other_megatron_args"), kRefused, {}, {},
     "a decoder, one learning rate and one decay: other flags of Megatron-LM are imported as a command"},
};

// Names of Python classes before a dot: no file has these.
constexpr ForeignKey kAcceleratePython[] = {
    {"GradientAccumulationPlugin.num_steps", kMapped, "@accumulation"},
    {"GradientAccumulationPlugin.sync_each_batch", kMapped, "parallel.grad_sync", "{\"every\": 1}"},
    {"DistributedDataParallelKwargs.bucket_cap_mb", kMapped, "parallel.bucket_mb"},
    {"DistributedDataParallelKwargs.comm_hook, DistributedDataParallelKwargs.comm_wrapper", kRefused, {}, {},
     "gradients are reduced in fp32"},
    {"InitProcessGroupKwargs.timeout", kMapped, "cuda.nccl_timeout"},
    {"InitProcessGroupKwargs.*", kLauncher, {}, {}, "mpirun or srun starts the ranks"},
    {"GradScalerKwargs.*", kDiffers, {}, {},
     "with fp16 the loss scale begins at 2^32, doubles after 1000 clean steps and is halved at overflows"},
    {"AORecipeKwargs.*, TERecipeKwargs.*, MSAMPRecipeKwargs.*, FP8RecipeKwargs.*", kNotBuilt, "precision.fp8", "true"},
    {"ProfileKwargs.*", kDiffers, {}, {}, "log.trace_steps traces a range of steps"},
    {"DataLoaderConfiguration.split_batches", kRefused, {}, {}, "batch.micro is of a rank, batch.global of all"},
    {"DataLoaderConfiguration.data_seed", kMapped, "run.seed"},
    {"ProjectConfiguration.project_dir", kMapped, "run.dir"},
    {"ProjectConfiguration.total_limit", kMapped, "checkpoint.keep_last"},
    {"BnbQuantizationConfig.bnb_4bit_quant_type", kNotBuilt, "model.quantize.type"},
    {"BnbQuantizationConfig.bnb_4bit_use_double_quant", kNotBuilt, "model.quantize.double"},
    {"BnbQuantizationConfig.skip_modules, BnbQuantizationConfig.keep_in_fp32_modules", kNotBuilt, "model.quantize.skip"},
    {"BnbQuantizationConfig.load_in_8bit", kRefused, {}, {}, "4 bits only: model.quantize.type"},
    {"GradientAccumulationPlugin.*, DistributedDataParallelKwargs.*, AutocastKwargs.*, DataLoaderConfiguration.*, "
     "ProjectConfiguration.*, TorchDynamoPlugin.*, BnbQuantizationConfig.*, TensorInformation.*", kAlways, {}, {},
     "the order of a step, its samples and its memory are decided beforehand"},
};

#undef TRIDENT_DEEPSPEED
#undef TRIDENT_FSDP
#undef TRIDENT_RESHARD_FSDP
#undef TRIDENT_MEGATRON
#undef TRIDENT_PARALLELISM

constexpr ForeignSection kAccelerateSections[] = {
    {ForeignSystem::kAccelerate, "Processes, precision, devices", kAccelerateRun},
    {ForeignSystem::kAccelerate, "DeepSpeed", kAccelerateDeepSpeed},
    {ForeignSystem::kAccelerate, "Fully sharded data parallelism", kAccelerateFsdp},
    {ForeignSystem::kAccelerate, "Parallelism", kAccelerateParallelism},
    {ForeignSystem::kAccelerate, "Megatron-LM", kAccelerateMegatron},
    {ForeignSystem::kAccelerate, "Classes of Python", kAcceleratePython},
};

}  // namespace

std::span<const ForeignSection> accelerate_sections() { return kAccelerateSections; }

}  // namespace trident
