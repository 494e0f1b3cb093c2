// torchtitan up to 0.2.2: TOML, and JSON of a later Config.
system("torchtitan", "torchtitan's default"),
heading("Parallelism"),
{"parallelism.data_parallel_replicate_degree", kMapped, "parallel.shard_group@replicate", {}, "whole copies of what is sharded"},
{"parallelism.data_parallel_shard_degree, training.data_parallel_degree = 1", kMapped, "parallel.zero", "\"ddp\""},
{"parallelism.data_parallel_shard_degree, training.data_parallel_degree = 1", kMapped, "parallel.data@shard"},
{"parallelism.data_parallel_shard_degree, training.data_parallel_degree", kMapped, "parallel.data@shard", {}, "-1 is all ranks "
 "that the other degrees leave", "-1"},
{"training.data_parallel_type = ddp", kMapped, "parallel.zero"},
always("training.data_parallel_type = fsdp", "parallel.zero is zero3"),
refused("training.data_parallel_type", "there is no such type", "fsdp or ddp"),
{"parallelism.fsdp_reshard_after_forward = always", kMapped, "parallel.zero", "\"zero3\"", {}, {}, kUnlessSaid},
{"parallelism.fsdp_reshard_after_forward = never", kMapped, "parallel.zero", "\"shard_grad_op\"", {}, {}, kUnlessSaid},
{"parallelism.fsdp_reshard_after_forward = default", kMapped, "parallel.zero@titan.reshard", {}, "parameters are freed after the "
 "forward pass unless there is a pipeline", "\"default\"", kUnlessSaid},
refused("parallelism.fsdp_reshard_after_forward", "there is no such policy", "always, never or default"),
{"parallelism.tensor_parallel_degree, training.sequence_parallel_degree", kMapped, "parallel.tensor", {}, "with "
 "parallel.sequence_parallel, as there"},
{"parallelism.tensor_parallel_degree, training.sequence_parallel_degree = 1", kMapped, "parallel.tensor"},
{"parallelism.tensor_parallel_degree, training.sequence_parallel_degree", kMapped, "parallel.sequence_parallel", "true", {}, {},
 kUnlessSaid},
always("parallelism.enable_sequence_parallel = true", "with parallel.tensor, as there"),
{"parallelism.enable_sequence_parallel", kMapped, "parallel.sequence_parallel"},
always("parallelism.disable_loss_parallel, training.enable_loss_parallel", "the loss is taken over a vocabulary that stays "
 "divided"),
{"parallelism.enable_async_tensor_parallel, compile.enable_async_tensor_parallel", kNotBuilt, "parallel.tensor_overlap",
 "\"chunked\""},
{"parallelism.pipeline_parallel_degree, training.pipeline_parallel_degree", kMapped, "parallel.pipeline"},
{"parallelism.pipeline_parallel_schedule = 1F1B", kMapped, "parallel.schedule", "\"1f1b\"", {}, "\"1F1B\""},
{"parallelism.pipeline_parallel_schedule = GPipe", kMapped, "parallel.schedule", "\"gpipe\""},
{"parallelism.pipeline_parallel_schedule = Interleaved1F1B, interleaved_1f1b", kMapped, "parallel.schedule", "\"interleaved\"",
 "two stages for each rank unless pipeline_parallel_layers_per_stage says otherwise"},
{"parallelism.pipeline_parallel_schedule = LoopedBFS", kDiffers, "parallel.schedule", "\"interleaved\"", "backward passes begin "
 "before all forward passes have ended, which takes less memory"},
{"parallelism.pipeline_parallel_schedule = InterleavedZeroBubble", kNotBuilt, "parallel.schedule", "\"zb-h1\""},
{"parallelism.pipeline_parallel_schedule = ZBVZeroBubble", kNotBuilt, "parallel.schedule", "\"zb-v\""},
{"parallelism.pipeline_parallel_schedule = DualPipeV", kNotBuilt, "parallel.schedule", "\"dualpipe-v\""},
{"parallelism.pipeline_parallel_schedule = PipelineScheduleSingle, PipelineScheduleMulti, _PipelineScheduleRuntime", kNotBuilt,
 "parallel.schedule", "\"csv\""},
refused("parallelism.pipeline_parallel_schedule", "there is no such schedule", "1F1B, GPipe or Interleaved1F1B"),
{"parallelism.pipeline_parallel_schedule_csv", kNotBuilt, "parallel.schedule", "\"csv\""},
{"parallelism.pipeline_parallel_microbatch_size", kMapped, "batch.micro@titan.pipeline_micro", {}, "counts where there is a "
 "pipeline", "1"},
{"parallelism.pipeline_parallel_microbatches", kMapped, "batch.micro@titan.pipeline_count", {}, "the local batch in so many parts "
 "where there is a pipeline"},
{"parallelism.pipeline_parallel_layers_per_stage", kMapped, "parallel.virtual_stages@titan.layers_per_stage"},
always("parallelism.pipeline_parallel_first_stage_less_layers", "layers are balanced by cost, embedding and head counted, unless "
 "parallel.layers says otherwise", "@titan.first_less"),
always("parallelism.pipeline_parallel_last_stage_less_layers", "layers are balanced by cost, embedding and head counted, unless "
 "parallel.layers says otherwise", "@titan.last_less"),
differs("parallelism.module_fqns_per_model_part, parallelism.pipeline_parallel_split_points", "layers of each stage are counts: "
 "give them as parallel.layers"),
always("parallelism.pipeline_parallel_expert_parallel_overlap, parallelism.expert_parallel_comm_backend", "it goes with experts, "
 "which dense models have none of"),
always("parallelism.context_parallel_degree, parallelism.expert_parallel_degree, parallelism.expert_tensor_parallel_degree = 1",
 "1 is none"),
refused("parallelism.expert_parallel_degree, parallelism.expert_tensor_parallel_degree", "there are no experts here"),
{"parallelism.context_parallel_degree", kNotBuilt, "parallel.context"},
always("parallelism.context_parallel_rotate_method, parallelism.context_parallel_load_balancer, "
 "parallelism.context_parallel_ptrr_mask_key", "it goes with parallel.context"),
always("parallelism.enable_fsdp_symm_mem, parallelism.spmd_backend", "it changes how ranks communicate, not what"),
heading("Training"),
{"training.local_batch_size, training.batch_size", kMapped, "batch.micro@titan.local", {}, "batch.micro, but with a pipeline the "
 "micro-batches of one pass", "8"},
{"training.global_batch_size", kMapped, "batch.global@titan.global", {}, "-1 is one local batch on each data-parallel rank", "-1"},
{"training.seq_len", kMapped, "batch.sequence", {}, {}, "2048"},
{"training.steps", kMapped, "run.steps", {}, {}, "10000"},
{"training.max_norm", kMapped, "optimizer.grad_clip", {}, {}, "1.0"},
{"training.dtype = bfloat16", kDiffers, "precision.compute", "\"bf16\"", "master weights, sums of gradients and moments stay fp32 "
 "here"},
always("training.dtype = float32", "master weights are fp32"),
refused("training.dtype", "weights have no such format", "bfloat16 or float32"),
{"training.mixed_precision_param", kMapped, "precision.compute", {}, {}, "\"bfloat16\""},
always("training.mixed_precision_reduce = float32", "gradients are summed in fp32"),
differs("training.mixed_precision_reduce", "gradients are summed in fp32"),
{"training.enable_cpu_offload", kNotBuilt, "offload.parameters@fsdp_offload", "\"host\"", kFsdpOffload},
differs("training.dataset, training.data.name, dataloader.dataset", "it names a loader of texts: trident data prepare makes token "
 "files of them, which are given as data.train"),
{"training.dataset_path, dataloader.dataset_path", kMapped, "data.train@dataset"},
always("training.gc_freq, training.gc_debug", "there is no garbage collector"),
always("training.dataloader, training.dataloader.*, validation.dataloader, validation.dataloader.*, dataloader.*", "token files "
 "are mapped into memory and read ahead; there are no loader processes"),
{"debug.seed, training.seed", kMapped, "run.seed"},
{"debug.deterministic, training.deterministic", kMapped, "cuda.deterministic"},
{"training.disable_cuda_graphs = true", kMapped, "cuda.graphs", "false"},
always("training.disable_cuda_graphs", "cuda.graphs captures them"),
always("debug.deterministic_warn_only, debug.spmd_typechecking, debug.detect_anomaly, debug.batch_invariant", "every product "
 "repeats its bits, and a step with a gradient that is not finite is not applied"),
refused("debug.moe_force_load_balance, training.debug_moe_force_load_balance", "there are no experts here"),
heading("Model"),
refused("model.name, model_spec.name = llama4, deepseek_v3, gpt_oss, flux, vlm", "mixtures of experts and models of images are not "
 "trained here", "a dense model of text"),
{"model.name, model_spec.name", kDiffers, "model.preset@titan.name", {}, "initial weights have the same width in every layer here, "
 "and there a smaller one in deeper layers", "\"llama3\""},
{"model.flavor, model_spec.flavor", kMapped, "model.preset@titan.flavor", {}, "of llama2, llama3 and qwen3, the dense ones",
 "\"debugmodel\""},
{"model_spec.model", kMapped, "model.preset@titan.spec", {}, "name and flavor beside it say which model it is"},
always("model.norm_type = rmsnorm, fused_rmsnorm, compiled_rmsnorm, null", "norms are RMS norms in fp32"),
refused("model.norm_type", "Llama's norms are RMS norms", "rmsnorm"),
{"model.attn_mask_type = block_causal", kMapped, "data.reset_attention_mask", "true"},
always("model.attn_mask_type, model.use_flex_attn, loss.*", "attention never stores the scores, nor the loss its logits"),
differs("hf_transformers.model", "give its folder as model.hf_config"),
{"model.hf_assets_path, model.tokenizer_path, hf_assets_path", kMapped, "model.init_from@titan.assets", {}, "texts become tokens "
 "before the run: trident data prepare --tokenizer takes this folder"},
{"model.converters = quantize.linear.float8, float8", kNotBuilt, "precision.fp8@fp8", "\"tensorwise\""},
{"float8.enable_float8_linear, training.enable_float8_linear, training.enable_fp8_linear, training.fp8_linear", kNotBuilt,
 "precision.fp8@fp8", "\"tensorwise\""},
{"model.converters = quantize.linear.mx, mx", kNotBuilt, "precision.fp8", "\"mxfp8\""},
refused("model.converters", "converters other than quantize.linear.float8 and quantize.linear.mx have no counterpart"),
always("model.print_after_conversion", "the layers are listed before the run", "trident plan"),
{"quantize.linear.float8.recipe_name, float8.recipe_name", kMapped, "precision.fp8@fp8_recipe", {}, "counts where model.converters "
 "asks for it"},
always("quantize.linear.mx.recipe_name, quantize.linear.mx.mxfp8_dim1_cast_kernel_choice", "precision.fp8 \"mxfp8\" names the "
 "recipe"),
always("quantize.linear.float8.*, float8.*, quantize.linear.mx.filter_fqns, mx.*, quantize.dense.*, quantize.float8.*, "
 "training.enable_fsdp_float8_all_gather, training.enable_fsdp_fp8_all_gather, training.float8_*, "
 "training.precompute_float8_dynamic_scale_for_fsdp", "it goes with precision.fp8"),
always("quantize.grouped_mm.*, quantize.moe.*", "it goes with experts, which dense models have none of"),
heading("Optimizer and learning rate"),
{"optimizer.name, optimizer.param_groups.optimizer_name = AdamW", kMapped, "optimizer.type", "\"adamw\"", {}, "\"AdamW\""},
{"optimizer.name, optimizer.param_groups.optimizer_name = Adam", kDiffers, "optimizer.type", "\"adamw\"", "weight decay is apart "
 "from the gradient here, and part of it there"},
refused("optimizer.name, optimizer.param_groups.optimizer_name", "there is no such update rule", "AdamW"),
{"optimizer.lr, optimizer.param_groups.optimizer_kwargs.lr", kMapped, "optimizer.lr", {}, {}, "8e-4"},
{"optimizer.beta1", kMapped, "optimizer.betas@beta1", {}, {}, "0.9"},
{"optimizer.beta2", kMapped, "optimizer.betas@beta2", {}, {}, "0.95"},
{"optimizer.param_groups.optimizer_kwargs.betas", kMapped, "optimizer.betas"},
{"optimizer.eps, optimizer.param_groups.optimizer_kwargs.eps", kMapped, "optimizer.eps", {}, {}, "1e-8"},
{"optimizer.weight_decay, optimizer.param_groups.optimizer_kwargs.weight_decay", kDiffers, "optimizer.weight_decay", {}, "norms "
 "and biases are not decayed here, and are there", "0.1"},
always("optimizer.param_groups.pattern = .*", "one rule for all parameters"),
refused("optimizer.param_groups.pattern, optimizer.param_groups, optimizer.optimizer_factory_kwargs_by_name.*", "all matrices have "
 "one rule and its numbers"),
always("optimizer.implementation, optimizer.fused", "one pass over each shard makes the update"),
refused("optimizer.early_step_in_backward", "updates come after the whole backward pass, because clipping needs the norm",
 "parallel.zero zero2 or zero3"),
{"lr_scheduler.warmup_steps, training.warmup_steps", kMapped, "lr_schedule.warmup_steps", {}, {}, "200"},
{"lr_scheduler.total_steps", kMapped, "lr_schedule.decay_steps@titan.total_steps"},
{"lr_scheduler.decay_ratio", kMapped, "lr_schedule.wsd_decay_steps@titan.decay_ratio", {}, "of all steps, at the end: "
 "lr_schedule.type \"wsd\""},
{"lr_scheduler.decay_type = linear, cosine, sqrt", kDiffers, "lr_schedule.type@titan.decay_type", {}, "the last step has the "
 "lowest rate here, which there the step behind it would have", "\"linear\""},
refused("lr_scheduler.decay_type", "there is no such course", "linear, cosine or sqrt"),
{"lr_scheduler.min_lr_factor, lr_scheduler.lr_min", kMapped, "lr_schedule.min_lr@min_lr_ratio", {}, {}, "0.0"},
heading("Memory"),
{"activation_checkpoint.mode = full, none", kMapped, "recompute.policy"},
{"activation_checkpoint = null", kMapped, "recompute.policy", "\"none\""},
{"activation_checkpoint.mode = selective", kDiffers, "recompute.policy", "\"selective\"", "attention is computed again in every "
 "layer, and not every n-th layer or every second product", "\"selective\""},
refused("activation_checkpoint.mode", "no compiler weighs memory against time here; trident plan compares policies", "selective"),
{"activation_checkpoint.force_recompute_mm_shapes_by_fqns", kDiffers, "recompute.policy", "\"selective\"", "attention is computed "
 "again in every layer, and not every second product"},
always("activation_checkpoint.memory_budget", "it goes with that mode", "@titan.budget"),
always("activation_checkpoint.*", "what is computed again has the same bits, and its policy is recompute.policy alone"),
always("compile, compile.*, training.compile, parallelism.enable_compiled_autograd", "nothing is compiled while a run starts"),
always("memory_estimation.*, estimate.*", "the memory of every rank is known before the run", "trident plan"),
heading("Checkpoints"),
{"checkpoint.enable, checkpoint.enable_checkpoint", kMapped, "checkpoint.every@titan.saves", {}, {}, "false"},
{"checkpoint.interval", kMapped, "checkpoint.every@save_steps", {}, "counts where checkpoint.enable is true", "500"},
differs("training.checkpoint_interval, training.checkpoint_interval_type, training.checkpoint_folder, training.warmup_pct, "
 "training.enable_selective_ac", "a key of before April 2024: write checkpoint.interval, checkpoint.folder, "
 "lr_scheduler.warmup_steps and activation_checkpoint.mode"),
always("checkpoint.interval_type = steps", "checkpoint.every counts steps"),
refused("checkpoint.interval_type", "checkpoint.every counts steps", "steps"),
{"checkpoint.folder", kMapped, "checkpoint.dir@titan.folder", {}, "within job.dump_folder"},
{"checkpoint.keep_latest_k", kMapped, "checkpoint.keep_last", {}, {}, "10"},
differs("checkpoint.last_save_model_only, checkpoint.last_save_model_weights_only, checkpoint.model_weights_only", "the last "
 "checkpoint has all that the others have, and can be gone on from"),
always("checkpoint.last_save_in_hf, checkpoint.last_save_in_safetensors_format, checkpoint.export_dtype", "trident convert makes a "
 "Hugging Face folder of any checkpoint", "trident convert"),
always("checkpoint.async_mode", "training goes on while a checkpoint is written"),
{"checkpoint.initial_load_path", kMapped, "model.init_from@titan.load_path", {}, "read where initial_load_in_hf is true"},
{"checkpoint.initial_load_in_hf", kMapped, "model.init_from@titan.load_in_hf"},
always("checkpoint.initial_load_model_only, checkpoint.initial_load_model_weights_only = true", "model.init_from takes the weights "
 "alone"),
refused("checkpoint.initial_load_model_only, checkpoint.initial_load_model_weights_only", "optimizer states of a torch checkpoint "
 "are not read"),
refused("checkpoint.initial_load_in_hf_quantized", "weights that are read are not quantized; start from the unquantized ones"),
always("checkpoint.load_step = -1", "the newest is gone on from"),
differs("checkpoint.load_step", "give the folder of that step as checkpoint.resume"),
refused("checkpoint.exclude_from_loading", "a checkpoint that a run goes on from is read whole", "model.init_from"),
differs("checkpoint.enable_first_step_checkpoint", "no checkpoint is written after the first step"),
always("checkpoint.create_seed_checkpoint", "initial weights do not depend on the layout"),
always("checkpoint.load_only = false", "checkpoints are written"),
{"checkpoint.load_only", kMapped, "checkpoint.every", "0"},
always("checkpoint.enable_ft_dataloader_checkpoints", "where a run is in its data follows from its step"),
heading("Logs, validation, communication"),
{"job.dump_folder, dump_folder", kMapped, "run.dir"},
always("job.description, job.use_for_integration_test", "a remark"),
always("job.config_file", "its file is read"),
always("job.print_config, job.print_args, job.save_config_file, job.save_config_folder, debug.print_config, "
 "debug.save_config_file, debug.enable_structured_logging", "every run writes config.resolved.json", "trident train "
 "--print-config"),
refused("job.custom_config_module, experimental.*, override.*", "no Python is run"),
{"metrics.log_freq", kMapped, "log.every", {}, {}, "10"},
{"metrics.enable_tensorboard", kMapped, "log.tensorboard"},
differs("metrics.enable_wandb", kSendsNothing),
always("metrics.*", "rank 0 logs for all, into the run directory"),
{"profiling.enable_profiling", kMapped, "log.trace_steps@titan.profiles"},
{"profiling.profile_freq", kMapped, "log.trace_steps@titan.profile_every", {}, "the first of its traces is written, as "
 "log.trace_steps", "10"},
{"profiling.profiler_active", kMapped, "log.trace_steps@titan.profile_steps", {}, {}, "1"},
always("profiling.*", "traces and memory.json are in the run directory, and steps are traced without a warm-up"),
{"validation.enable, validation.enabled", kMapped, "eval.every@titan.validates"},
{"validation.freq", kMapped, "eval.every@eval_steps", {}, "counts where validation.enable is true", "10"},
differs("validation.steps = -1", "validation takes eval.steps batches, not all there are"),
{"validation.steps", kMapped, "eval.steps", {}, "counts where validation.enable is true"},
differs("validation.dataset, validation.data.name, validation.dataset_path, validator.dataloader.dataset, "
 "validator.dataloader.dataset_path", "give token files of it as data.valid"),
always("validation.local_batch_size, validation.seq_len, validator.*", "validation takes batches of the training's form"),
always("comm.init_timeout_seconds, comm.train_timeout_seconds", "a group without any progress ends the run after "
 "cuda.nccl_timeout"),
always("comm.mode = default", "ranks talk to one another"),
always("comm.mode", "it computes memory and time without ranks; threads of one process are ranks, too", "trident plan"),
always("comm.*", "what ranks waited for is said when a run ends with an error"),
refused("fault_tolerance.enable", "ranks that fail are started again with all the others, from a checkpoint", "trident supervise"),
always("fault_tolerance.*", "it goes with fault_tolerance.enable"),
