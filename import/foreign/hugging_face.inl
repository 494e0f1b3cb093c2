// transformers 5.23's TrainingArguments and 4's old names; TRL 1.16's SFTConfig, DPOConfig, ModelConfig, ScriptArguments; PEFT's
// LoraConfig; the arguments of open-r1's scripts, run_clm.py and qlora.py, and those that ms-swift, axolotl and others share.
system("Hugging Face: Trainer, TRL, PEFT", "TrainingArguments' default"),
heading("Batch, run and precision"),
always("program", "its name says whose defaults count: sft.py and dpo.py have TRL's, others Trainer's", "@program"),
always("config, deepspeed_config, accelerate_config", "its file is read"),
{"output_dir", kMapped, "run.dir"},
{"overwrite_output_dir", kMapped, "run.overwrite"},
always("do_train, do_predict", "trident train trains, and evaluates where eval.every says so", "trident eval"),
differs("do_eval", "run_clm.py and run_mlm.py set 5 % of data without a validation file aside (--validation_split_percentage), and "
 "evaluate at the end: --set data.split=95,5 --set eval.every=epoch does so"),
{"max_steps, max_train_steps", kMapped, "run.steps@max_steps", {}, "updates; where it is above 0 num_train_epochs does not count"},
{"num_train_epochs, epochs", kMapped, "run.epochs", {}, "in the place of run.steps", "3"},
{"per_device_train_batch_size, per_gpu_train_batch_size", kMapped, "batch.micro", {}, {}, "8"},
always("per_device_eval_batch_size, per_gpu_eval_batch_size, eval_accumulation_steps", "an evaluation takes batch.micro sequences "
 "at a time"),
{"gradient_accumulation_steps, accelerator_config.gradient_accumulation_kwargs.num_steps", kMapped, "batch.global@accumulation", {},
 "batch.micro x parallel.data x N", "1"},
{"accelerator_config.gradient_accumulation_kwargs.sync_each_batch", kMapped, "parallel.grad_sync", "{\"every\": 1}"},
differs("auto_find_batch_size", "no batch size is searched for; trident plan says which batch.micro fits"),
differs("max_epochs, early_stop_interval, early_stopping_steps", "run.epochs or run.steps ends a run"),
refused("split_batches, accelerator_config.split_batches", "batch.micro is the size of one rank's pass, not of all ranks' "
 "together"),
{"seed", kMapped, "run.seed", {}, {}, "42"},
differs("data_seed", "the order of samples is drawn from run.seed"),
{"full_determinism", kMapped, "cuda.deterministic", "true"},
{"no_cuda, use_cpu", kMapped, "device", "\"cpu\""},
{"bf16, bfloat16", kMapped, "precision.compute", "\"bf16\"", {}, "false"},
{"bf16 = false, no, 0", kMapped, "precision.compute", "\"fp32\"", "unless another key says otherwise", {}, kUnlessImplied},
{"fp16, float16", kMapped, "precision.compute", "\"fp16\""},
{"mixed_precision = bf16, fp16", kMapped, "precision.compute"},
{"mixed_precision = no", kMapped, "precision.compute", "\"fp32\""},
{"fp8", kNotBuilt, "precision.fp8", "true"},
always("dtype, torch_dtype, model_init_kwargs.dtype, model_init_kwargs.torch_dtype = float32, torch.float32, fp32", "the format of "
 "weights; bf16 and fp16 say that of products"),
{"dtype, torch_dtype, model_init_kwargs.dtype, model_init_kwargs.torch_dtype", kMapped, "precision.compute", {}, "where bf16 and "
 "fp16 are not given; master weights stay fp32 here", {}, kUnlessSaid},
{"tf32", kMapped, "cuda.tf32", "true"},
always("fp16_full_eval, bf16_full_eval, half_precision_backend, fp16_backend, fp16_opt_level", "evaluation computes in "
 "precision.compute, and there is one implementation"),
{"gradient_checkpointing, activation_checkpointing", kMapped, "recompute.policy", "\"full\""},
{"gradient_checkpointing, activation_checkpointing = false, no, 0", kMapped, "recompute.policy", "\"none\"", "unless another key "
 "says otherwise", {}, kUnlessSaid},
{"no_gradient_checkpointing", kMapped, "recompute.policy", "\"none\"", {}, {}, kUnlessSaid},
always("gradient_checkpointing_kwargs*, activation_checkpointing_kwargs*, gradient_checkpointing_use_reentrant, use_reentrant",
 "whole blocks are computed again, in one way"),
{"activation_offloading", kNotBuilt, "offload.activations", "\"host\""},
heading("Optimizer and learning rate"),
{"learning_rate", kMapped, "optimizer.lr", {}, {}, "5e-5"},
{"weight_decay", kMapped, "optimizer.weight_decay", {}, "biases and norms are not decayed, as in Trainer", "0"},
{"adam_beta1", kMapped, "optimizer.betas@beta1", {}, {}, "0.9"},
{"adam_beta2", kMapped, "optimizer.betas@beta2", {}, {}, "0.999"},
{"adam_epsilon", kMapped, "optimizer.eps", {}, {}, "1e-8"},
{"max_grad_norm = null, none", kMapped, "optimizer.grad_clip", "0"},
{"max_grad_norm", kMapped, "optimizer.grad_clip", {}, {}, "1.0"},
{"optim, optimizer = adamw_torch_fused, adamw_torch, adamw_hf, adamw_torch_xla, adamw_torch_npu_fused, adamw_apex_fused, adamw",
 kMapped, "optimizer.type", "\"adamw\""},
{"optim, optimizer = paged_adamw, paged_adamw_32bit, paged_adamw_8bit, paged_lion_32bit, paged_lion_8bit", kNotBuilt,
 "offload.optimizer", "\"host\""},
{"optim, optimizer = lion, lion_32bit", kMapped, "optimizer.type", "\"lion\""},
{"optim, optimizer = adamw_bnb_8bit, adamw_8bit, adamw_torch_8bit, adamw_torch_4bit, ao_adamw_4bit, ao_adamw_8bit, ao_adamw_fp8",
 kDiffers, "optimizer.type", "\"adamw\"", kMoreBits},
{"optim, optimizer = lion_8bit", kDiffers, "optimizer.type", "\"lion\"", kMoreBits},
{"optim, optimizer = adafactor", kNotBuilt, "optimizer.type", "\"adafactor\""},
{"adafactor", kNotBuilt, "optimizer.type", "\"adafactor\""},
{"optim, optimizer = sgd", kNotBuilt, "optimizer.type", "\"sgd\""},
{"optim, optimizer = muon", kNotBuilt, "optimizer.type", "\"muon\""},
refused("optim, optimizer", "adamw_torch and lion_32bit are there, whose states have 32 bits"),
refused("optim_args, optim_target_modules", "adam_beta1, adam_beta2, adam_epsilon and weight_decay say all there is"),
{"lr_scheduler_type, lr_scheduler = linear", kDiffers, "lr_schedule.type", "\"linear\"", kStepAhead, "\"linear\""},
{"lr_scheduler_type, lr_scheduler = cosine, cosine_with_min_lr, cosine_with_restarts", kDiffers, "lr_schedule.type", "\"cosine\"",
 kStepAhead},
{"lr_scheduler_type, lr_scheduler = constant", kMapped, "lr_schedule.type", "\"constant\"", "without a warm-up, whatever "
 "warmup_steps says; constant_with_warmup has one"},
{"lr_scheduler_type, lr_scheduler = constant", kMapped, "lr_schedule.warmup_steps@no_warmup", "true", "lr_schedule.warmup_steps is "
 "0"},
{"lr_scheduler_type, lr_scheduler = constant_with_warmup", kDiffers, "lr_schedule.type", "\"constant\"", kStepAhead},
{"lr_scheduler_type, lr_scheduler = polynomial", kDiffers, "lr_schedule.type", "\"linear\"", "the lowest rate is 1e-7 there, one "
 "step later"},
{"lr_scheduler_type, lr_scheduler = inverse_sqrt", kDiffers, "lr_schedule.type", "\"inverse_sqrt\"", kStepAhead},
{"lr_scheduler_type, lr_scheduler = warmup_stable_decay", kDiffers, "lr_schedule.type", "\"wsd\"", kStepAhead},
{"lr_scheduler_kwargs.min_lr", kMapped, "lr_schedule.min_lr"},
{"lr_scheduler_kwargs.min_lr_rate, lr_scheduler_kwargs.min_lr_ratio, cosine_min_lr_ratio", kMapped,
 "lr_schedule.min_lr@min_lr_ratio"},
{"lr_scheduler_kwargs.num_decay_steps", kMapped, "lr_schedule.wsd_decay_steps"},
{"lr_scheduler_kwargs.decay_type = linear, cosine", kMapped, "lr_schedule.wsd_decay_type"},
{"lr_scheduler_kwargs.decay_type = 1-sqrt", kMapped, "lr_schedule.wsd_decay_type", "\"minus_sqrt\""},
always("lr_scheduler_kwargs.warmup_type = linear", "the warm-up is linear"),
always("lr_scheduler_type, lr_scheduler = cosine_with_restarts", "one cycle, without a restart", "@restarts"),
always("lr_scheduler_kwargs.num_cycles", "the rate falls once, from the highest to the lowest: 0.5, or 1 of "
 "cosine_with_restarts", "@num_cycles"),
refused("lr_scheduler_type, lr_scheduler, lr_scheduler_kwargs*", "linear, polynomial, cosine, cosine_with_min_lr, "
 "cosine_with_restarts, constant, constant_with_warmup, inverse_sqrt and warmup_stable_decay are there"),
{"warmup_steps, num_warmup_steps", kMapped, "lr_schedule.warmup_steps", {}, "below 1 it is a share of the run's steps"},
{"warmup_ratio", kMapped, "lr_schedule.warmup_steps@warmup_ratio", {}, "a share of run.steps"},
differs("no_average_tokens_across_devices", "the loss is the mean over the targets of all ranks, not the mean of their means"),
differs("average_tokens_across_devices = false", "the loss is the mean over the targets of all ranks, not the mean of their means"),
always("average_tokens_across_devices", "the loss is the mean over the targets of all ranks"),
refused("label_smoothing_factor, neftune_noise_alpha, router_aux_loss_coef", "the loss is the cross-entropy of the next token, "
 "without additions"),
heading("Parallelism and memory"),
{"deepspeed = zero0", kMapped, "parallel.zero", "\"ddp\"", kPresetFile},
{"deepspeed = zero1", kMapped, "parallel.zero", "\"zero1\"", kPresetFile},
{"deepspeed = zero2, zero2_offload", kMapped, "parallel.zero", "\"zero2\"", kPresetFile},
{"deepspeed = zero3, zero3_offload", kMapped, "parallel.zero", "\"zero3\"", kPresetFile},
{"deepspeed = zero2_offload, zero3_offload", kNotBuilt, "offload.optimizer", "\"host\""},
{"deepspeed = zero3_offload", kNotBuilt, "offload.parameters", "\"host\""},
{"deepspeed = null", kMapped, "parallel.zero", "\"ddp\"", "unless another key says otherwise", "null", kUnlessImplied},
always("deepspeed", "its file is read as one of DeepSpeed's; ddp, zero1, zero2, zero3 are its stages", "trident import FILE"),
{"accelerate_config = zero1, zero2, zero3", kMapped, "parallel.zero", {}, "TRL's own file of that name, without its number of "
 "processes: give trident import --ranks N"},
{"accelerate_config = fsdp1, fsdp2", kMapped, "parallel.zero", "\"zero3\"", "likewise"},
{"accelerate_config = multi_gpu, single_gpu", kMapped, "parallel.zero", "\"ddp\"", "likewise"},
{"fsdp = full_shard, hybrid_shard, true, fsdp2", kMapped, "parallel.zero", "\"zero3\"", {}, {}, kUnlessSaid},
{"fsdp = fsdp2", kMapped, "recompute.policy", "\"full\"", "ms-swift's file of that name has it", {}, kUnlessImplied},
{"fsdp = shard_grad_op, hybrid_shard_zero2", kMapped, "parallel.zero", "\"shard_grad_op\"", {}, {}, kUnlessSaid},
{"fsdp = no_shard", kMapped, "parallel.zero", "\"ddp\"", {}, {}, kUnlessSaid},
{"fsdp = hybrid_shard, hybrid_shard_zero2", kNotBuilt, "parallel.shard_group", "\"node\""},
{"fsdp = offload", kNotBuilt, "offload.parameters@fsdp_offload", "\"host\"", kFsdpOffload},
always("fsdp = auto_wrap, no, none, false, null", "each block is a unit"),
{"fsdp", kMapped, "parallel.zero", {}, "SHARD_GRAD_OP is shard_grad_op, NO_SHARD is ddp", {}, kWords},
always("fsdp_config, parallelism_config, fsdp_min_num_params, fsdp_transformer_layer_cls_to_wrap", "each block is a unit; keys "
 "within are Accelerate's"),
always("accelerator_config*, dispatch_batches", "samples are drawn by run.seed, the same in every layout, and read ahead"),
{"ddp_bucket_cap_mb", kMapped, "parallel.bucket_mb"},
differs("ddp_timeout", "cuda.nccl_timeout, at most 590 s, is how long a group of NCCL may stand still"),
always("context_parallel_size, sequence_parallel_size, sequence_parallel_degree = 1, null", "one rank has a whole sequence"),
{"context_parallel_size, sequence_parallel_size, sequence_parallel_degree", kNotBuilt, "parallel.context"},
always("ddp_*, xpu_backend, local_rank, tpu_num_cores, mp_parameters, sharded_ddp, use_mps_device, use_ipex, jit_mode_eval, "
 "ray_scope, tpu_metrics_debug", "ranks are threads or MPI processes, and every parameter's gradient is known before the start"),
always("torch_compile*, torchdynamo, use_liger_kernel, use_liger, use_liger_loss, use_unsloth, liger_kernel_config*, use_cache, "
 "torch_empty_cache_steps, enable_jit_checkpoint", "there is nothing to compile or to patch; memory is planned before the start"),
always("attn_implementation, use_flash_attention_2, use_flash_attn, model_init_kwargs.attn_implementation", "attention never "
 "stores the scores"),
heading("Checkpoints, evaluation, logs"),
{"save_strategy = no, false", kMapped, "checkpoint.every", "\"end\"", "the last step alone is saved, as TRL's scripts do"},
{"save_strategy", kMapped, "checkpoint.every@save_strategy", {}, "steps between checkpoints, or epoch"},
{"save_steps, checkpointing_steps", kMapped, "checkpoint.every@save_steps", {}, {}, "500"},
{"checkpointing_steps = epoch", kMapped, "checkpoint.every", "\"epoch\""},
{"save_total_limit = null, none, -1", kMapped, "checkpoint.keep_last", "0", "all are kept", "null"},
{"save_total_limit", kMapped, "checkpoint.keep_last"},
{"save_only_model", kMapped, "checkpoint.content", "\"weights\"", "a run cannot go on from them"},
{"load_best_model_at_end, load_best_model", kMapped, "checkpoint.keep_best", "true", "trident ckpt ls shows what is kept"},
always("metric_for_best_model = loss, eval_loss", "the validation loss says which checkpoint is best"),
differs("metric_for_best_model", "the validation loss says which checkpoint is best"),
always("greater_is_better, save_safetensors, save_on_each_node, restore_callback_states_from_checkpoint, past_index, "
 "max_shard_size", "a checkpoint is one folder of all ranks; trident convert makes safetensors of it"),
{"resume_from_checkpoint = true", kMapped, "checkpoint.resume", "\"auto\"", "auto: the newest in checkpoint.dir"},
always("resume_from_checkpoint = null, none", "a run goes on from the checkpoints of its folder"),
differs("resume_from_checkpoint = false", "a run goes on from the checkpoints of its folder; checkpoint.resume never "
 "begins anew"),
differs("resume_from_checkpoint", "auto: the newest in checkpoint.dir; Trainer's folders are read by model.init_from, without "
 "their optimizer", "checkpoint.resume"),
always("ignore_data_skip", "a run that goes on takes the samples behind those it has seen"),
{"eval_strategy, evaluation_strategy", kMapped, "eval.every@eval_strategy", {}, "steps between evaluations, or epoch; 0: none",
 "\"no\""},
{"eval_steps", kMapped, "eval.every@eval_steps"},
differs("eval_delay, eval_on_start", "evaluations are at multiples of eval.every and at the end"),
always("eval_do_concat_batches, no_eval_do_concat_batches, eval_use_gather_object, prediction_loss_only, include_for_metrics, "
 "include_inputs_for_metrics, batch_eval_metrics, label_names, predict_with_generate, generation_max_length, generation_num_beams, "
 "generation_config, sortish_sampler, use_legacy_prediction_loop", "an evaluation is the loss on the validation data"),
always("do_sample, temperature, top_k, top_p, num_beams, eval_num_beams, max_new_tokens, repetition_penalty, length_penalty, "
 "skip_special_tokens, min_p, cache_implementation, generation_kwargs*, chat_template_kwargs*, use_transformers_*, "
 "transformers_continuous_batching_config*", "eval.samples continues texts while a run goes on", "trident generate"),
{"logging_strategy", kMapped, "log.every@logging_strategy", {}, "steps between lines"},
{"logging_steps", kMapped, "log.every@logging_steps", {}, {}, "500"},
always("logging_first_step, log_on_each_node, log_level, log_level_replica, disable_tqdm, include_num_input_tokens_seen, "
 "include_tokens_per_second, logging_nan_inf_filter, no_logging_nan_inf_filter, no_log_on_each_node, no_skip_memory_metrics, "
 "logging_dir, run_name, skip_memory_metrics, debug", "run.dir has run.log and metrics.jsonl, with tokens/s, memory and every loss "
 "as it is"),
{"report_to = none", kMapped, "log.tensorboard", "false", "metrics.jsonl has every number"},
{"report_to = tensorboard", kMapped, "log.tensorboard", "true"},
{"report_to", kDiffers, "log.tensorboard", "true", "the only system; ten lines in docs/logs.md send metrics.jsonl to others"},
differs("with_tracking, wandb_*, project, trackio_*, use_swanlab, swanlab_*, hub_model_revision, overwrite_hub_revision, "
 "push_to_hub_revision, benchmarks, callbacks", kSendsNothing),
always("push_to_hub*, hub_*, hf_hub_token, ms_hub_token, om_hub_token", "nothing is sent anywhere; trident convert makes the "
 "folder"),
launcher("env.*", "variables are set where the ranks start"),
always("enable_torch_profiler, profiler_*, profile_modules", "log.trace_steps traces steps"),
heading("Model and data"),
{"model_name_or_path, base_model, model", kMapped, "model.init_from@model", {}, "must be a local folder: nothing is downloaded"},
{"model_name", kMapped, "model.preset@model", {}, "or model.init_from, a local folder of Hugging Face's form"},
{"dataset_name, dataset_path, data_path, train_file, train_files, dataset, dataset_id_or_path", kMapped, "data.train@dataset"},
{"validation_file, validation_files, test_datasets, val_dataset, cached_val_dataset, eval_dataset, eval_on_each_dataset", kDiffers,
 "data.valid@valid_data", "true", kPreparesValid},
always("eval_dataset_size, val_set_size, val_size, split_dataset_ratio = 0", "nothing is set aside"),
{"eval_dataset_size, val_set_size, val_size, split_dataset_ratio", kDiffers, "data.split@valid_share", {}, kSetAside},
{"tokenizer_name, tokenizer_name_or_path, tokenizer_config", kMapped, "data.tokenizer", {}, "a name, a local folder or a file"},
{"max_length, max_seq_length, max_seq_len, seq_length, model_max_length, cutoff_len, sequence_len, block_size, packing_length",
 kMapped, "batch.sequence"},
{"packing, sample_packing = true", kMapped, "data.samples@packing", "\"packed\"", "after trident data pack"},
{"packing, sample_packing", kMapped, "data.samples@packing", "\"one\"", "each conversation is a sample by itself, padded, without "
 "trident data pack"},
{"packing_strategy = bfd, ffd", kMapped, "data.samples@packing_strategy", {}, "trident data pack puts the longest first, each "
 "where least room is left; --overflow truncate"},
{"packing_strategy = bfd_split, bfd-requeue", kMapped, "data.samples@packing_strategy", {}, "trident data pack --overflow split"},
{"packing_strategy = wrapped, fixed", kMapped, "data.samples@packing_strategy", {}, "the stream of tokens is cut at every "
 "batch.sequence"},
refused("packing_strategy", "bfd, bfd_split and wrapped are there"),
always("padding_free, eval_packing, pad_to_multiple_of, shuffle_dataset, dataset_kwargs*, dataset_batch_size, num_of_sequences, "
 "chars_per_token, train_sampling_strategy, group_by_length, length_column_name, remove_unused_columns, no_remove_unused_columns, "
 "pad_token, truncation_mode, max_prompt_length, max_completion_length, max_target_length, label_pad_token_id, padding_value",
 "trident data prepare and pack make the samples; an order is drawn from run.seed, and padding has no part in the loss", "trident "
 "data prepare"),
differs("eos_token", "answers end with the eos_token of the tokenizer that data.tokenizer names: save it there"),
always("dataset_text_field", "trident data prepare --json-key NAME reads such a field", "trident data prepare --json-key NAME"),
always("assistant_only_loss = true", kWithData, "trident data prepare --chat --loss assistant"),
always("completion_only_loss = true", kWithData, "trident data prepare --chat --loss completion"),
differs("completion_only_loss = false", kWithData, "trident data prepare --chat --loss all"),
differs("train_on_inputs = true", kWithData, "trident data prepare --chat --loss all"),
always("chat_template = tokenizer_default", kOwnTemplate),
always("chat_template, chat_template_format, template = chatml, llama3", kBuiltIn, "@template"),
differs("chat_template, template = qwen, qwen2_5, qwen_25", kQwens, kPrepareByTemplate),
{"chat_template, template = qwen, qwen2_5, qwen_25", kAlways, "@template", "\"chatml\"", "--template chatml"},
differs("chat_template, chat_template_path, chat_template_format, template, chat_template_jinja", kTemplateOfData,
 kPrepareByTemplate),
always("assistant_only_loss, completion_only_loss, train_on_inputs", kWithData),
differs("system_prompt, system, default_system, default_system_message, datasets.default_system_message, datasets.system_prompt",
 kSystemMessage),
always("truncation_strategy, excess_length_strategy", "trident data pack --overflow truncate or split; longer ones are refused "
 "without", "trident data pack --overflow truncate"),
differs("agent_template, response_prefix, enable_thinking, preserve_thinking, add_non_thinking_prefix, tool_format",
 kTextOfTemplate, "trident data prepare --chat --template FILE"),
differs("max_train_samples, max_eval_samples, max_samples", "trident data prepare takes all lines of a file: cut it before"),
differs("source_max_len, target_max_len", "batch.sequence is the length of question and answer together"),
always("dataset_train_split, dataset_test_split, dataset_config, dataset_config_name, dataset_streaming, streaming, datasets*, "
 "dataset_configs, text_column, truncation_side, auto_insert_empty_system_msg, preprocessed_path, splits, add_special_tokens, "
 "append_concat_token, dataset_mixture*, dataset_mixer*, dataset_splits, dataset_prompt_column, test_split_size, "
 "validation_split_percentage, keep_linebreaks, lazy_preprocess, dataset_num_proc, preprocessing_num_workers, overwrite_cache, "
 "cache_dir, tools, buffer_size, mix_strategy, interleave_probs, preprocessing_batch_size, tokenized_path, eval_tokenized_path, "
 "dataset_shards, cache_path, reserved_label_len, data_shared_file_system, ignore_pad_token_for_loss, load_from_cache_file, "
 "dataset_shuffle, val_dataset_shuffle, train_dataloader_shuffle, interleave_prob, stopping_strategy, shuffle_buffer_size, "
 "download_mode, columns*, disable_auto_column_mapping, custom_dataset_info, lazy_tokenize, decision_*", "data.train and "
 "data.valid name files that trident data prepare wrote, with weights where there are several", "trident data prepare"),
differs("strict = false", "trident data prepare ends at a line that is wrong, it leaves none out"),
always("strict", "trident data prepare ends at a line that is wrong"),
always("dataloader_drop_last", "a last batch that is not full takes samples of the next epoch"),
always("dataloader_*, no_dataloader_*", "samples are read ahead"),
always("model_revision, base_model_revision, trust_remote_code, token, use_auth_token, use_fast_tokenizer, use_slow_tokenizer, "
 "low_cpu_mem_usage, model_type, model_code_revision, ignore_bias_buffers", "no code and no file of a hub is loaded"),
differs("config_name", "a model of new weights by this config.json: give its folder as model.hf_config, in place of "
 "model.init_from"),
differs("model_init_kwargs*, config_overrides, rope_scaling*", "the folder's config.json is the model; keys of the model block "
 "change it"),
heading("Adapters and quantization"),
{"use_peft, use_peft_lora, peft, use_lora, adapter", kMapped, "adapter.type", "\"lora\"", "with adapter.r, adapter.alpha, "
 "adapter.target_modules"},
{"peft_type = lora", kMapped, "adapter.type", "\"lora\""},
refused("peft_type", "adapters are LoRA"),
{"lora_r, lora_rank, peft_lora_r, r", kMapped, "adapter.r"},
{"lora_alpha, peft_lora_alpha", kMapped, "adapter.alpha"},
{"lora_dropout", kMapped, "adapter.dropout"},
{"lora_target_modules, lora_target, lora_modules, target_modules = all, all-linear", kMapped, "adapter.target_modules",
 "[\"all-linear\"]"},
{"lora_target_modules, lora_target, lora_modules, target_modules", kMapped, "adapter.target_modules", {}, "all linear layers but "
 "lm_head where the key is left out", {}, kList},
{"exclude_modules", kMapped, "adapter.exclude_modules", {}, {}, {}, kList},
{"layers_to_transform, peft_layers_to_transform", kMapped, "adapter.layers", {}, {}, {}, kList},
{"use_rslora, peft_use_rslora", kMapped, "adapter.rslora", "true"},
{"use_dora, peft_use_dora", kMapped, "adapter.type@use_dora", "\"dora\""},
{"adapter_name_or_path, lora_model_dir", kMapped, "adapter.init_from"},
{"lora_modules_to_save, modules_to_save, additional_target", kMapped, "adapter.modules_to_save", {}, {}, {}, kList},
always("lora_task_type, task_type, bias = causal_lm, none", "the next token is predicted, and biases stay as they are"),
always("init_lora_weights = true, kaiming, default", "A begins uniform at random, B as zeros"),
refused("init_lora_weights = false", "B begins as zeros"),
refused("lora_task_type, task_type, bias, lora_bias, init_lora_weights, rank_pattern, alpha_pattern, layers_pattern, "
 "lora_target_parameters, target_parameters, trainable_token_indices, layer_replication, loftq_config*, eva_config*, "
 "corda_config*, lora_ga_config*, velora_config*, arrow_config*, kasa_config*, monteclora_config*, use_qalora, use_bdlora*, "
 "alora_invocation_tokens, megatron_config*", "an adapter is A and B of one rank beside each module, begun as PEFT begins them"),
always("fan_in_fan_out, megatron_core, inference_mode, auto_mapping, peft_version, base_model_name_or_path, revision, "
 "runtime_config*, ensure_weight_tying, qalora_group_size", "the model's folder says so, or it changes nothing"),
always("relora_*, dion_*, galore_*, qgalore_*, apollo_*, badam_*, oft_*, ppo_*, kto_*, asft_*, eaft_*, pose_*, pissa_*, jagged_*, "
 "lisa_*, adalora_*, boft_*, vera_*, fourier_*, llamapro_*, reft_*, vllm_*, sglang_*, image_*, video_*, orpo_alpha, simpo_gamma, "
 "cpo_alpha, sft_alpha, desirable_weight, undesirable_weight, center_rewards_coefficient, loraplus_lr_embedding, ref_model_type, "
 "ref_model_revision", "of a method that is not asked for, or of images"),
{"bits, load_in_bits, quantization_bit, quant_bits = 4", kNotBuilt, "model.quantize.type", "\"nf4\""},
always("bits, load_in_bits = 16, 32", "frozen weights have the bits of precision.compute"),
{"load_in_4bit, use_4bit, use_4bit_quantization, qlora, q_lora", kNotBuilt, "model.quantize.type", "\"nf4\"", "leave it out: lora "
 "trains beside weights in 16 bits"},
always("bnb_4bit_quant_type, quant_type, quantization_type = nf4", "the format of load_in_4bit"),
{"use_bnb_nested_quant, use_nested_quant, bnb_4bit_use_double_quant, double_quant, double_quantization", kNotBuilt,
 "model.quantize.double", "true"},
always("bnb_4bit_quant_storage, bnb_4bit_quant_storage_dtype, bnb_4bit_compute_dtype", "products are in precision.compute"),
differs("load_in_8bit, use_8bit_quantization, bits, load_in_bits, quantization_bit, quant_bits", "frozen weights have 16 bits, "
 "those of precision.compute, unless model.quantize.type is nf4"),
refused("bnb_4bit_quant_type, quant_type, quantization_type, quantization_config*", "frozen weights have 4 bits as nf4, or those "
 "of precision.compute"),
heading("DeepSpeed-Chat"),
{"zero_stage = 0, 1", kMapped, "parallel.zero", {}, kStages},
{"zero_stage = 2, 3", kMapped, "parallel.zero", {}, kReducesOften},
{"zero_stage", kMapped, "parallel.zero"},
{"data_split, zero_stage, lora_dim, sft_only_data_path", kAlways, "@deepspeed_chat", "true", "an argument of DeepSpeed-Chat, whose "
 "defaults count"},
{"zero_stage = 0, 1, 2, 3", kAlways, "@deepspeed_chat", "true", "an argument of DeepSpeed-Chat, whose defaults count"},
{"lora_dim = 0", kAlways, "@deepspeed_chat", "true", "all weights train, and DeepSpeed-Chat's defaults count"},
{"lora_dim", kDiffers, "adapter.r", {}, "the other weights stay as they are, as with only_optimize_lora there"},
{"lora_dim", kMapped, "adapter.type", "\"lora\""},
{"lora_dim", kMapped, "adapter.target_modules@all_linear", "true"},
differs("lora_module_name, lora_learning_rate", "adapter.target_modules names what has adapters, and there is one learning rate"),
{"dropout", kMapped, "model.dropout"},
{"offload", kNotBuilt, "offload.optimizer", "\"host\""},
differs("offload_reference_model", "reference says where it comes from"),
refused("num_padding_at_beginning = 0, 1", "no model of rewards is trained", "sft or dpo"),
{"enable_tensorboard", kMapped, "log.tensorboard", "true"},
differs("add_eot_token, eot_token", kMoreTokens),
always("only_optimize_lora, data_output_path, tensorboard_path, print_loss, compute_fp32_loss", "the loss is summed in fp32 and "
 "logged, and run.dir has all that a run writes"),
heading("Preferences"),
{"beta, rl_beta, dpo_beta, pref_beta", kMapped, "loss.beta"},
{"ref_model", kMapped, "reference", {}, "a checkpoint, a folder of them, or a Hugging Face folder"},
{"loss_type, dpo_loss_type, pref_loss, dpo_loss = sigmoid, ipo, hinge", kMapped, "loss.variant"},
always("loss_type = nll, chunked_nll", "the cross-entropy of the next token"),
refused("num_generations*, reward_funcs, reward_weights, use_vllm, epsilon, epsilon_high, delta, num_iterations, "
 "steps_per_generation, generation_batch_size, scale_rewards, importance_sampling_level, log_completions*, "
 "num_completions_to_print, mask_truncated_completions, top_entropy_quantile, entropy_*, use_adaptive_entropy, "
 "normalize_advantages, reward_clip_range, reward_model_path, use_bias_correction_kl, off_policy_mask_threshold, sapo_*, vespo_*, "
 "max_tool_calling_iterations, multi_objective_aggregation, cast_lm_head_to_fp32, log_multimodal, log_unique_prompts, log_entropy, "
 "num_ppo_epochs, num_mini_batches, total_episodes, sft_model_path, missing_eos_penalty, response_length, whiten_rewards, kl_coef, "
 "cliprange*, vf_coef, lam, local_rollout_forward_batch_size, num_sample_generations, judge, cosine_*, repetition_n_grams, "
 "repetition_max_penalty, code_*, soft_punish_cache", "answers are not drawn while training: no GRPO or PPO; take sft, "
 "pre-training or dpo"),
refused("loss_type, dpo_loss_type, pref_loss, dpo_loss", "cross-entropy, and of preferences sigmoid, ipo and hinge"),
{"label_smoothing, dpo_label_smoothing", kMapped, "loss.label_smoothing"},
{"rpo_alpha, pref_ftx, dpo_ftx", kMapped, "loss.nll_weight"},
{"disable_dropout = false, no, 0", kMapped, "model.dropout@keeps_dropout", "true", kKeepsDropout},
{"disable_dropout", kMapped, "model.dropout", "0", "adapter.dropout is 0, too"},
{"no_disable_dropout", kMapped, "model.dropout@keeps_dropout", "true", kKeepsDropout},
always("f_divergence_type = reverse_kl", "the divergence of DPO"),
refused("f_divergence_type, loss_weights, ld_alpha, use_weighting, sync_ref_model, reference_free", "DPO with one loss, and a "
 "reference that stays as it is"),
always("f_alpha_divergence_coef, discopop_tau, ref_model_mixup_alpha, ref_model_sync_steps, precompute_ref_log_probs, "
 "precompute_ref_batch_size, generate_during_eval, model_adapter_name, ref_adapter_name, force_use_ref_model, "
 "ref_model_init_kwargs, use_logits_to_keep, use_num_logits_to_keep, base_model_attribute_name, ds3_gather_for_generation, "
 "is_encoder_decoder", "the reference is asked once, before the first step"),
