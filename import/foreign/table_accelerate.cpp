// Accelerate 1.15: files that `accelerate config` writes, flags of `accelerate launch`, and its classes' arguments.
#include "import/foreign/tables.h"

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

constexpr ForeignKey kAccelerateRows[] = {
    heading("Processes, precision, devices"),
    {"distributed_type = NO, false", kMapped, "parallel.zero@distributed_type", "\"NO\"",
     "one process, whatever num_processes says"},
    {"distributed_type = MULTI_GPU, MULTI_CPU", kMapped, "parallel.zero@distributed_type", "\"MULTI_GPU\"", kMeansWhole},
    {"distributed_type = FSDP", kMapped, "parallel.zero@distributed_type", "\"FSDP\"", kMeansFsdp},
    {"distributed_type = DEEPSPEED", kMapped, "parallel.zero@distributed_type", "\"DEEPSPEED\"", kMeansDeepSpeed},
    {"distributed_type = MEGATRON_LM", kMapped, "parallel.zero@distributed_type", "\"MEGATRON_LM\"", kMeansMegatron},
    {"multi_gpu", kMapped, "parallel.zero@distributed_type", "\"MULTI_GPU\"", kMeansWhole},
    {"use_fsdp", kMapped, "parallel.zero@distributed_type", "\"FSDP\"", kMeansFsdp},
    {"use_deepspeed", kMapped, "parallel.zero@distributed_type", "\"DEEPSPEED\"", kMeansDeepSpeed},
    {"use_megatron_lm", kMapped, "parallel.zero@distributed_type", "\"MEGATRON_LM\"", kMeansMegatron},
    always("use_parallelism_config, use_tp, tp_config", "degrees count where they are given"),
    launcher("num_processes = -1", "the launcher or import --ranks says how many there are"),
    {"num_processes", kMapped, "parallel.data@ranks"},
    {"num_machines", kMapped, "parallel.data@nodes", {}, "num_processes counts the ranks of all of them"},
    {"mixed_precision = bf16, fp16", kMapped, "precision.compute"},
    {"mixed_precision = no, false", kMapped, "precision.compute@mixed_precision", "\"no\"",
     "fp32, unless the program's own arguments name a format"},
    {"mixed_precision = fp8", kNotBuilt, "precision.fp8", "true"},
    refused("mixed_precision", "formats are no, fp16, bf16 and fp8"),
    {"fp16", kMapped, "precision.compute", "\"fp16\"", "the old form of mixed_precision"},
    {"use_cpu, cpu", kMapped, "device", "\"cpu\""},
    always("enable_cpu_affinity", "run.pin binds ranks to cores unless it is false"),
    {"num_cpu_threads_per_process", kMapped, "run.threads_per_rank"},
    always("debug", "debug.check_collectives compares what ranks are about to communicate unless it is false"),
    always("downcast_bf16, main_training_function", "a matter of TPUs"),
    always("compute_environment = LOCAL_MACHINE", "ranks start where you start them"),
    refused("compute_environment, ec2_instance_type, iam_role_name, image_uri, profile, region, base_job_name, pytorch_version, "
     "transformers_version, py_version, sagemaker_inputs_file, sagemaker_metrics_file, additional_args, aws_access_key_id, "
     "aws_secret_access_key", "no service starts machines: start mpirun or srun on them"),
    refused("distributed_type, tpu, tpu_use_cluster, tpu_cluster", "ranks compute on CPUs and CUDA GPUs"),
    launcher("no_tpu_cluster, tpu_use_sudo, tpu_name, tpu_zone, tpu_vm, tpu_env, vm, env, commands, command, command_file", "a "
     "matter of TPUs"),
    launcher("machine_rank, main_process_ip, main_process_port, rdzv_backend, rdzv_conf, same_network, gpu_ids, max_restarts, "
     "monitor_interval, tee, t, log_dir, role, quiet, q, module, m, no_python, mpirun_config.*, mpirun_hostfile",
     "mpirun or srun starts the ranks, CUDA_VISIBLE_DEVICES names the GPUs, and trident supervise restarts"),
    always("config_file, deepspeed_config.deepspeed_config_file, deepspeed_config_file, deepspeed_config.hf_ds_config",
     "its keys are listed by themselves"),
    always("deepspeed_config, fsdp_config, megatron_lm_config, parallelism_config, mpirun_config", "an empty block says nothing"),
    always("dynamo_*, ipex_config.*, ipex_config, ipex, use_xpu, xpu_config, ipex_enabled, xpu_enabled", "there is nothing to "
     "compile"),
    refused("kt_config.enabled", kNoSuchMethod),
    always("kt_config.*", "it goes with kt_config.enabled"),
    {"fp8_*", kNotBuilt, "precision.fp8", "true", "scaling is by tensor unless precision.fp8 names another recipe"},
    heading("DeepSpeed"),
    {TRIDENT_DEEPSPEED("zero_stage") " = 0, 1", kMapped, "parallel.zero", {}, kStages},
    {TRIDENT_DEEPSPEED("zero_stage") " = 2, 3", kMapped, "parallel.zero", {}, kReducesOften},
    refused(TRIDENT_DEEPSPEED("zero_stage"), "stages are 0 to 3"),
    always(TRIDENT_DEEPSPEED("gradient_accumulation_steps") " = auto", "the program's arguments say it"),
    {TRIDENT_DEEPSPEED("gradient_accumulation_steps"), kMapped, "batch.global@accumulation"},
    always(TRIDENT_DEEPSPEED("gradient_clipping") " = auto, none", "the program's arguments say it"),
    {TRIDENT_DEEPSPEED("gradient_clipping"), kMapped, "optimizer.grad_clip"},
    {TRIDENT_DEEPSPEED("offload_optimizer_device") " = cpu", kNotBuilt, "offload.optimizer", "\"host\""},
    {TRIDENT_DEEPSPEED("offload_optimizer_device") " = nvme", kNotBuilt, "offload.optimizer", "\"disk\""},
    {TRIDENT_DEEPSPEED("offload_param_device") " = cpu", kNotBuilt, "offload.parameters", "\"host\""},
    {TRIDENT_DEEPSPEED("offload_param_device") " = nvme", kNotBuilt, "offload.parameters", "\"disk\""},
    {"deepspeed_config.offload_optimizer_nvme_path, deepspeed_config.offload_param_nvme_path, offload_optimizer_nvme_path, "
     "offload_param_nvme_path", kNotBuilt, "offload.path"},
    refused("deepspeed_config.offload_optimizer_device, deepspeed_config.offload_param_device, offload_optimizer_device, "
     "offload_param_device", "devices are none, cpu and nvme"),
    always(TRIDENT_DEEPSPEED("zero3_init_flag"), "a rank never holds more than its own part of the weights"),
    always(TRIDENT_DEEPSPEED("zero3_save_16bit_model"), "it writes one folder of whole weights from any checkpoint",
     "trident convert"),
    refused(TRIDENT_DEEPSPEED("deepspeed_moe_layer_cls_names") ", deepspeed_config.transformer_moe_cls_names", "dense models only"),
    always("deepspeed_config.seq_parallel_communication_data_type", "it goes with parallel.context"),
    always("deepspeed_config.is_train_batch_min", "batch.micro says it"),
    {"deepspeed_config.enable_msamp", kNotBuilt, "precision.fp8", "true"},
    always("deepspeed_config.msamp_opt_level", "a matter of MS-AMP"),
    launcher("deepspeed_config.deepspeed_hostfile, deepspeed_config.deepspeed_exclusion_filter, "
     "deepspeed_config.deepspeed_inclusion_filter, deepspeed_config.deepspeed_multinode_launcher, deepspeed_hostfile, "
     "deepspeed_exclusion_filter, deepspeed_inclusion_filter, deepspeed_multinode_launcher", "mpirun or srun starts the ranks"),
    heading("Fully sharded data parallelism"),
    always(TRIDENT_FSDP("version"), "both versions have the same presets here"),
    {TRIDENT_RESHARD_FSDP " = FULL_SHARD, HYBRID_SHARD, true, 1, 4", kMapped, "parallel.zero", "\"zero3\"",
     "true is of version 2, FULL_SHARD of version 1"},
    {TRIDENT_RESHARD_FSDP " = SHARD_GRAD_OP, HYBRID_SHARD_ZERO2, false, 2, 5", kMapped, "parallel.zero", "\"shard_grad_op\"",
     "false is of version 2, SHARD_GRAD_OP of version 1"},
    {TRIDENT_RESHARD_FSDP " = NO_SHARD, 3", kMapped, "parallel.zero", "\"ddp\""},
    {TRIDENT_RESHARD_FSDP " = HYBRID_SHARD, HYBRID_SHARD_ZERO2, 4, 5", kNotBuilt, "parallel.shard_group", "\"node\"",
     "whole copies across nodes"},
    refused(TRIDENT_RESHARD_FSDP, "strategies are FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD and HYBRID_SHARD_ZERO2"),
    refused("fsdp_config.xla", "ranks compute on CPUs and CUDA GPUs"),
    {TRIDENT_FSDP("offload_params") ", fsdp_config.cpu_offload", kNotBuilt, "offload.parameters@fsdp_offload", "\"host\"",
     kFsdpOffload},
    {TRIDENT_FSDP("activation_checkpointing") ", fsdp_config.xla_fsdp_grad_ckpt", kMapped, "recompute.policy", "\"full\""},
    {TRIDENT_FSDP("activation_checkpointing_offload") ", fsdp_config.activation_cpu_offload", kNotBuilt, "offload.activations",
     "\"host\""},
    differs(TRIDENT_FSDP("auto_wrap_policy") " = NO_WRAP",
     "one unit is the whole model there and nothing overlaps; here each block is a unit"),
    always(TRIDENT_FSDP("auto_wrap_policy") ", " TRIDENT_FSDP("transformer_layer_cls_to_wrap") ", " TRIDENT_FSDP("min_num_params")
     ", fsdp_config.transformer_cls_names_to_wrap, fsdp_config.fsdp_transformer_cls_names_to_wrap", "each block of the model is a "
     "unit"),
    always(TRIDENT_FSDP("backward_prefetch") ", " TRIDENT_FSDP("backward_prefetch_policy") ", " TRIDENT_FSDP("forward_prefetch")
     ", " TRIDENT_FSDP("limit_all_gathers"), "the next unit is gathered while one computes, unless parallel.overlap is false; "
     "memory is planned beforehand"),
    always(TRIDENT_FSDP("state_dict_type") ", " TRIDENT_FSDP("final_state_dict_type")
     ", fsdp_config.state_dict_config, fsdp_config.optim_state_dict_config",
     "each rank saves its part and any layout reads it; convert writes whole weights", "trident convert"),
    always(TRIDENT_FSDP("use_orig_params")
     ", fsdp_config.xla_fsdp_v2, fsdp_config.xla_fsdp_settings, fsdp_config.cpu_offload_pin_memory",
     "frozen and trainable parameters mix freely, and memory is planned beforehand"),
    always(TRIDENT_FSDP("cpu_ram_efficient_loading") ", " TRIDENT_FSDP("sync_module_states") ", fsdp_config.param_init_fn",
     "each rank reads or draws its part of the weights alone, and all layouts begin with the same"),
    refused(TRIDENT_FSDP("ignored_modules"), "every module is sharded"),
    differs("fsdp_config.mixed_precision_policy", "precision.compute is the format of weights and activations; gradients are "
     "always reduced in fp32"),
    heading("Parallelism"),
    {TRIDENT_PARALLELISM("dp_replicate_size"), kMapped, "parallel.shard_group@replicate"},
    {TRIDENT_PARALLELISM("dp_shard_size"), kMapped, "parallel.data@shard"},
    {TRIDENT_PARALLELISM("tp_size") ", torch_tp_plugin.tp_size, tp_config.tp_size, tp_size", kMapped, "parallel.tensor"},
    always(TRIDENT_PARALLELISM("cp_size") ", " TRIDENT_PARALLELISM("sp_size") " = 1", "sequences are whole on a rank"),
    {TRIDENT_PARALLELISM("cp_size") ", " TRIDENT_PARALLELISM("sp_size"), kNotBuilt, "parallel.context"},
    always(TRIDENT_PARALLELISM("cp_backend") ", " TRIDENT_PARALLELISM("cp_comm_strategy") ", " TRIDENT_PARALLELISM("sp_backend")
     ", " TRIDENT_PARALLELISM("sp_attn_implementation") ", parallelism_config.cp_handler, parallelism_config.sp_handler",
     "goes with parallel.context, which leaves no choice of it"),
    always(TRIDENT_PARALLELISM("sp_seq_length") ", " TRIDENT_PARALLELISM("sp_seq_length_is_variable"), "batch.sequence says it"),
    {"parallelism_config.enable_async_tp", kNotBuilt, "parallel.tensor_overlap", "\"chunked\""},
    always("parallelism_config.tp_handler, torch_tp_plugin.torch_device_mesh", "the grid of ranks follows from the degrees"),
    heading("Megatron-LM"),
    {TRIDENT_MEGATRON("tp_degree"), kMapped, "parallel.tensor"},
    {TRIDENT_MEGATRON("pp_degree"), kMapped, "parallel.pipeline"},
    {TRIDENT_MEGATRON("num_micro_batches"), kMapped, "batch.global@accumulation"},
    {TRIDENT_MEGATRON("sequence_parallelism"), kMapped, "parallel.sequence_parallel"},
    {TRIDENT_MEGATRON("recompute_activations"), kMapped, "recompute.policy", "\"selective\""},
    {TRIDENT_MEGATRON("recompute_granularity"), kMapped, "recompute.policy"},
    differs(TRIDENT_MEGATRON("recompute_method") ", " TRIDENT_MEGATRON("recompute_num_layers"),
     "recompute.policy holds for every block"),
    {TRIDENT_MEGATRON("use_distributed_optimizer") " = true", kMapped, "parallel.zero", "\"zero1\""},
    {TRIDENT_MEGATRON("use_distributed_optimizer"), kMapped, "parallel.zero", "\"ddp\""},
    {TRIDENT_MEGATRON("gradient_clipping"), kMapped, "optimizer.grad_clip"},
    {TRIDENT_MEGATRON("hidden_dropout"), kMapped, "model.dropout"},
    always(TRIDENT_MEGATRON("context_parallel_size") ", " TRIDENT_MEGATRON("expert_model_parallel_size") ", "
     TRIDENT_MEGATRON("expert_tensor_parallel_size") " = 1", "sequences and blocks are whole on a rank"),
    {TRIDENT_MEGATRON("context_parallel_size"), kNotBuilt, "parallel.context"},
    refused(TRIDENT_MEGATRON("expert_model_parallel_size") ", " TRIDENT_MEGATRON("expert_tensor_parallel_size"),
     "dense models only"),
    {TRIDENT_MEGATRON("optimizer_cpu_offload"), kNotBuilt, "offload.optimizer", "\"host\""},
    {TRIDENT_MEGATRON("eod_mask_loss"), kMapped, "data.eod_mask_loss"},
    {TRIDENT_MEGATRON("no_save_optim"), kMapped, "checkpoint.content", "\"weights\""},
    refused(TRIDENT_MEGATRON("no_load_optim"), "model.init_from begins with weights alone"),
    refused(TRIDENT_MEGATRON("use_custom_fsdp"), "parallel.zero says what is sharded"),
    refused(TRIDENT_MEGATRON("use_precision_aware_optimizer"), "optimizer states are fp32"),
    differs(TRIDENT_MEGATRON("calculate_per_token_loss") " = false",
     "the mean is over the targets of the global batch, not over micro-batches"),
    always(TRIDENT_MEGATRON("overlap_cpu_optimizer_d2h_h2d") ", " TRIDENT_MEGATRON("attention_backend") ", "
     TRIDENT_MEGATRON("attention_softmax_in_fp32") ", " TRIDENT_MEGATRON("use_rotary_position_embeddings") ", "
     TRIDENT_MEGATRON("calculate_per_token_loss"), "the default here, or the model's own configuration says it"),
    refused(TRIDENT_MEGATRON("decoder_last_pipeline_num_layers"), "parallel.layers lists the layers of all stages"),
    refused(TRIDENT_MEGATRON("attention_dropout"), "attention probabilities have no dropout"),
    refused(TRIDENT_MEGATRON("*"), "an argument of MegatronLMPlugin in Python, which no file has: import Megatron-LM's flags"),
    heading("Classes of Python"),
    refused("GradientAccumulationPlugin.*, DistributedDataParallelKwargs.*, AutocastKwargs.*, GradScalerKwargs.*, ProfileKwargs.*, "
     "InitProcessGroupKwargs.*, DataLoaderConfiguration.*, ProjectConfiguration.*, TorchDynamoPlugin.*, BnbQuantizationConfig.*, "
     "AORecipeKwargs.*, TERecipeKwargs.*, MSAMPRecipeKwargs.*, FP8RecipeKwargs.*, TensorInformation.*", "an argument in Python, "
     "which no file has: batch.global, parallel.grad_sync, parallel.bucket_mb, cuda.nccl_timeout, log.trace_steps, run.dir, "
     "checkpoint.keep_last and precision.fp8 say here what such arguments say there"),
};

#undef TRIDENT_DEEPSPEED
#undef TRIDENT_FSDP
#undef TRIDENT_RESHARD_FSDP
#undef TRIDENT_MEGATRON
#undef TRIDENT_PARALLELISM

}  // namespace

std::span<const ForeignKey> accelerate_rows() { return kAccelerateRows; }

}  // namespace trident
