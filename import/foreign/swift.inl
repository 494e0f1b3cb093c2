// ms-swift 4.6's arguments of sft, pt and rlhf, beyond those of Hugging Face.
system("ms-swift", "ms-swift's default", R"({"learning_rate": 1e-4, "per_device_train_batch_size": 1, "weight_decay": 0.1,
 "adam_beta1": 0.9, "adam_beta2": 0.95, "lr_scheduler_type": "cosine", "logging_steps": 5, "gradient_checkpointing": true,
 "torch_dtype": "bfloat16", "lora_rank": 8, "lora_alpha": 32, "lora_dropout": 0.05})"),
heading("Training and adapters"),
always("program", "its name says what trains: sft, pt or rlhf", "@program"),
{"rlhf_type = dpo, kto, orpo, simpo, cpo, rm, ppo, grpo, gkd", kMapped, "loss.type@stage", {}, "dpo alone is there"},
refused("rlhf_type", "DPO is what learns from preferences"),
{"tuner_type, train_type, sft_type = full", kMapped, "adapter.type", "null", "all weights train"},
{"tuner_type, train_type, sft_type = lora", kMapped, "adapter.type", "\"lora\"", {}, "\"lora\""},
always("lora_bias = none", "biases stay as they are"),
differs("lora_bias, target_regex", "adapter.target_modules takes regular expressions of whole names, and biases stay as they are"),
always("lora_dtype", "masters of adapters are fp32, products in precision.compute"),
always("init_weights = true", "A begins uniform at random, B as zeros"),
always("quant_method = bnb", "with quant_bits 4"),
always("merge_lora", "it merges adapters into their weights", "trident convert"),
always("packing_strategy, packing_num_proc", "trident data pack puts the longest first, each where least room is left", "trident "
 "data pack"),
always("loss_scale = default", kWithData, "trident data prepare --chat --loss assistant"),
always("loss_scale = last_round", kWithData, "trident data prepare --chat --loss last"),
always("loss_scale = all", kWithData, "trident data prepare --chat --loss all"),
refused("loss_scale", "a target counts or does not; it has no weight of its own"),
differs("freeze_parameters, freeze_parameters_regex, freeze_parameters_ratio, trainable_parameters, trainable_parameters_regex",
 "train.only and train.freeze take regular expressions of whole names of tensors"),
differs("resume_only_model", "model.init_from begins with weights alone"),
refused("use_galore, lisa_activated_layers, lorap_lr_ratio, enable_dft_loss, enable_channel_loss, callbacks, external_plugins, "
 "custom_register_path, quant_method, freeze_llm, init_weights, mrl_dims, use_swift_lora, adapters, ref_adapters, tuner_type, "
 "train_type, sft_type", kNoSuchMethod),
always("task_type = causal_lm", "the next token is predicted"),
refused("task_type, num_labels, problem_type", "the next token is predicted: no classes, embeddings or rankings"),
refused("advantage_*, async_generate, calculate_KL, chord_*, completion_length_limit_scope, cosine_m*, dynamic_sample, "
 "enable_flattened_weight_sync, fipo_*, gym_env, use_gym_env, kl_in_reward, log_rollout_offpolicy_metrics, max_resample_times, "
 "max_turns, move_model_batches, multi_turn_scheduler, off_policy_sequence_mask_delta, offload_model, offload_optimizer, "
 "offload_bridge, offload_teacher_model, overlong_filter, real_tau, repetition_max_penalty, repetition_n_grams, reward_adapters, "
 "reward_model_plugin, reward_model_revision, reward_model_type, reward_template, rlsd_*, rollout_*, sdar_*, sleep_level, "
 "soft_cache_length, soft_max_length, tau_neg, tau_pos, teacher_*, gamma", "answers are not drawn while training: no GRPO, GKD or "
 "PPO; take sft, pt or dpo"),
always("adapter_act, adapter_length, hqq_axis, lora_ga_*, lmbda, seq_kd, gkd_logits_topk, reward_model", "of a method that is not "
 "asked for"),
always("freeze_vit, freeze_aligner, vit_lr, aligner_lr, vit_gradient_checkpointing, vit_gradient_checkpointing_kwargs*, "
 "vit_attn_impl, max_pixels, norm_bbox, experts_impl, rope_scaling", "models of texts alone: there is no tower for images"),
heading("Parallelism and memory"),
{"parallel_method = ddp", kMapped, "parallel.zero", "\"ddp\"", "ms-swift has no such argument: without --deepspeed and --fsdp it "
 "is DDP there"},
{"parallel_method = zero1, zero2, zero3", kMapped, "parallel.zero", {}, "ms-swift has no such argument: --deepspeed with this word "
 "is what it takes"},
{"parallel_method = fsdp, fsdp2", kMapped, "parallel.zero", "\"zero3\"", "ms-swift has no such argument: --fsdp fsdp2 is what it "
 "takes"},
refused("parallel_method", "ms-swift has no such argument; ddp, fsdp, zero1, zero2 and zero3 are understood"),
{"zero_hpz_partition_size", kNotBuilt, "parallel.secondary_shards"},
{"deepspeed_autotp_size", kMapped, "parallel.tensor"},
refused("tensor_model_parallel_size, pipeline_model_parallel_size, context_parallel_size, micro_batch_size, global_batch_size, "
 "train_iters, recompute_granularity, lr_warmup_fraction, min_lr, mcore_model, use_distributed_optimizer", "an argument of "
 "megatron sft: import it as flags of Megatron-LM (--from megatron)"),
refused("expert_model_parallel_size", "mixtures of experts are not built yet, dense models only"),
{"device_groups.nproc_per_node", kMapped, "parallel.data@ranks_per_node", {}, "of one machine"},
launcher("ENV*, use_ray, device_groups*", "variables are set, and ranks started, by mpirun or srun"),
always("device_map, max_memory, ds3_gather_for_generation, use_logits_to_keep, use_flash_ckpt, enable_npu_model_patch", "memory is "
 "planned before the start; recompute.head_chunk bounds that of logits"),
heading("Model and data"),
differs("max_model_len", "the folder's config.json says how long; batch.sequence is what a sample has"),
differs("cached_dataset", "data.train names what trident data prepare writes of it"),
differs("use_chat_template = false, no, 0", "without --chat trident data prepare takes texts as they are", "trident data prepare"),
always("use_chat_template, padding_side, template_backend, disable_ignore_empty_think, is_binary_loss_scale", kOwnTemplate,
 "trident data prepare --chat --template FILE --loss assistant"),
differs("new_special_tokens", kMoreTokens),
always("tuner_backend, model_type, model_name, model_author, model_kwargs*, megatron_extra_kwargs*, local_repo_path, "
 "init_strategy, attn_impl, use_hf, load_args, load_data_args, ignore_args_error, add_version, create_checkpoint_symlink, "
 "safe_serialization, check_model, acc_strategy, eval_metric, load_safetensors", "the model's folder says what it is, and run.dir "
 "has all that a run writes"),
always("stream, stop_words, logprobs, top_logprobs, structured_outputs_regex, eval_use_evalscope, eval_dataset, "
 "eval_dataset_args*, eval_limit, eval_generation_config*, extra_eval_args*", "eval.samples continues texts while a run goes on",
 "trident generate"),
