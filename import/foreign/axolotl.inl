// axolotl 0.19's YAML, beyond what Hugging Face's arguments say.
system("axolotl", "axolotl's default", R"({"sequence_len": 512, "optimizer": "adamw_torch_fused", "lr_scheduler": "cosine",
 "warmup_ratio": 0.03, "logging_steps": 10, "save_strategy": "epoch", "save_total_limit": 4})"),
heading("Training and adapters"),
always("program", "the YAML says what trains", "@program"),
{"rl = null, none, false", kMapped, "loss.type@stage", "\"sft\"", {}, "null"},
{"rl = dpo, ipo", kMapped, "loss.type@stage"},
refused("rl", "DPO and IPO are what learns from preferences", "dpo, or leave the key out"),
{"pretraining_dataset, pretraining_dataset.*", kMapped, "loss.type@stage", "\"pt\"", "trident data prepare writes it; data.train "
 "is the prefix"},
{"micro_batch_size", kMapped, "batch.micro", {}, {}, "1"},
differs("batch_size", "it counts for nothing there: batch.global is micro_batch_size x gradient_accumulation_steps, whose default "
 "is 1, of all ranks"),
{"num_epochs", kMapped, "run.epochs", {}, "in the place of run.steps", "1"},
refused("optimizer = optimi_adamw, flash_adamw, adopt_adamw, adamc, came_pytorch, dion", "adamw_torch and lion_32bit are there"),
{"bf16 = auto", kMapped, "precision.compute", "\"auto\"", "bf16 where the processor multiplies it faster than fp32", "\"auto\"",
 kUnlessImplied},
{"float32", kMapped, "precision.compute", "\"fp32\""},
{"saves_per_epoch = 1", kMapped, "checkpoint.every", "\"epoch\""},
{"evals_per_epoch = 1", kMapped, "eval.every", "\"epoch\""},
{"evals_per_epoch = 0", kMapped, "eval.every", "0"},
{"evals_per_epoch", kDiffers, "eval.every", "\"epoch\"", "once an epoch here; for more, eval.every is the steps of an epoch, "
 "samples / batch.global, over this"},
{"saves_per_epoch", kDiffers, "checkpoint.every", "\"epoch\"", "once an epoch here; for more, checkpoint.every is the steps of an "
 "epoch, samples / batch.global, over this"},
always("auto_resume_from_checkpoints", "a run goes on from the newest checkpoint of its folder"),
differs("save_first_step, early_stopping_patience, loss_watchdog_threshold, loss_watchdog_patience, dynamic_checkpoint*", "a run "
 "ends after its steps, and ten non-finite steps in a row end it; SIGUSR1 saves and ends"),
{"adapter = lora, qlora", kMapped, "adapter.type", "\"lora\"", "with adapter.r; load_in_4bit says that the weights beside it have "
 "4 bits"},
refused("adapter", "adapters are LoRA"),
always("lora_on_cpu, lora_fan_in_fan_out, peft_autocast_adapter_dtype, peft_ensure_weight_tying, qlora_sharded_model_loading, "
 "merge_method, lora_mlp_kernel, lora_qkv_kernel, lora_o_kernel, lora_embedding_kernel, peft_layers_pattern, merge_lora", "masters "
 "of adapters are fp32; trident convert merges them", "trident convert"),
{"lora_target_linear", kMapped, "adapter.target_modules@all_linear", "true", "all linear layers, beside those that are named"},
{"unfrozen_parameters", kMapped, "train.only", {}, "regular expressions of whole names of tensors"},
{"trl.beta", kMapped, "loss.beta"},
{"dpo_norm_loss", kMapped, "loss.length_normalized", "true"},
refused("relora, relora_steps, peft_use_relora, gptq, load_4bit, use_eaft, use_pose, lr_groups, lr_quadratic_warmup, "
 "cosine_constant_lr_ratio, embedding_lr, embedding_lr_scale, loraplus_lr_ratio, lora_rank_pattern, lora_alpha_pattern, "
 "peft_layer_replication, peft_trainable_token_indices, peft_init_lora_weights, peft, peft.*, jagged_restart_steps, lisa_n_layers, "
 "trainer_cls, lr_div_factor, adam_beta3, adam_epsilon2, torchdistx_path, use_onebitllms, model_quantization_config, qat*, "
 "quantization*, freeze_mm_modules, use_mora, mora*, kd_*, llmcompressor*, diffusion*, grokfast_*, spectrum_*, dense_mixer, "
 "hatchery*", kNoSuchMethod),
refused("expert_parallel_size", "there are no experts here"),
refused("reward_model, process_reward_model, num_labels, center_rewards_coefficient, curriculum_sampling, scaling_softmax, "
 "noisy_embedding_alpha, dpo_loss_weights, dpo_use_weighting, trl*, vllm*, ebft*, nemo_gym*, do_causal_lm_eval, do_bench_eval",
 "the loss is the cross-entropy of the next token, or DPO's"),
differs("model_config*, overrides_of_model_config*, overrides_of_model_kwargs*, reinit_weights, shrink_embeddings, "
 "resize_token_embeddings_to_32x, s2_attention", "the folder's config.json is the model; keys of the model block change it"),
always("special_tokens.pad_token", "padding has no part in the loss"),
differs("special_tokens*, tokens*, added_tokens_overrides*", kMoreTokens),
always("scaling_softmax_factor, scaling_softmax_bias, gemma4_hybrid_attn_impl, ple_cpu_offload, experts_implementation, "
 "role_boundaries, llama4_linearized_experts, quantize_moe_experts, expert_parallel_*, dsv4_*, use_dsv4_kernels, "
 "use_glm_dsa_kernels, gemma4_*, nvfp4_merge_aware*, moe_grouped_backend, moe_dequant_chunk_size, moe_bnb_fast, expert_backend, "
 "nonexpert_quantization, lm_eval_*, processor_type, processor_kwargs*, cls_model_config, bench_dataset, bench_split, "
 "use_sonicmoe, use_scattermoe, gptq_*, eval_causal_lm_metrics, bnb_config_kwargs*, model_quantization_config_kwargs*", "of a "
 "method that is not asked for"),
heading("Parallelism and memory"),
{"dp_shard_size", kMapped, "parallel.data@shard"},
{"dp_replicate_size", kMapped, "parallel.shard_group@replicate"},
{"tensor_parallel_size", kMapped, "parallel.tensor"},
{"gradient_checkpointing = offload, offload_disk", kNotBuilt, "offload.activations", "\"host\""},
{"gradient_checkpointing = offload, offload_disk", kMapped, "recompute.policy", "\"full\""},
{"selective_checkpointing*", kMapped, "recompute.policy", "\"selective\"", "attention is computed again, all else is kept"},
{"layer_offloading", kNotBuilt, "offload.parameters", "\"host\""},
always("heads_k_stride, ring_attn_func", "of context parallelism"),
always("flash_attention, xformers_attention, sdp_attention, flex_attention, flex_attn_compile_kwargs*, sage_attention, "
 "eager_attention, flash_attn_cross_entropy, flash_attn_fuse_mlp, flash_attn_rms_norm, flash_optimum, large_head_attention, "
 "flash_attn_d512, sdpa_varlen, fused_attn_kernel, chunked_cross_entropy, chunked_cross_entropy_num_chunks, tiled_mlp, "
 "tiled_mlp_num_shards, tiled_mlp_use_original_mlp, use_kernels, torch_compile_options, deepcompile, fp32_norms, "
 "fp32_norm_classes, dpo_use_liger_kernel, plugins, liger_*, attention, flash_attn_fuse_qkv, unsloth_*, use_cut_cross_entropy, "
 "cut_cross_entropy*", "attention never stores the scores, and there is one implementation of each operation"),
always("fsdp_version, fsdp_final_state_dict_type, ddp, device, device_map, world_size, max_memory, gpu_memory_limit, gc_steps, "
 "gc_collect_steps, experimental_skip_move_to_device, fp8_config*, fp8_enable_fsdp_float8_all_gather, resources_per_worker*, ray_*",
 "memory is planned before the start, and the launcher says how many ranks there are"),
launcher("use_ray, launcher", "mpirun or srun starts the ranks"),
heading("Model and data"),
{"datasets.path", kMapped, "data.train@dataset"},
always("datasets.type, datasets.roles_to_train, datasets.train_on_eos, datasets.train_on_inputs = chat_template, assistant, turn, "
 "false", "the answers count, each with its end", "trident data prepare --chat --loss assistant"),
differs("datasets.type, datasets.roles_to_train, datasets.train_on_eos, datasets.train_on_inputs", "trident data prepare reads "
 "messages with --chat and pairs of answers with --preference; its --loss chooses what counts"),
always("sample_packing_*, eval_sample_packing, eval_sequence_len, min_sample_len, max_prompt_len, max_packed_sequence_len, "
 "pad_to_sequence_len, multipack_real_batches, batch_flattening, pretrain_multipack_buffer_size, pretrain_multipack_attn, "
 "pretraining_sample_concatenation, dpo_padding_free, streaming_multipack_buffer_size, shuffle_merged_datasets, "
 "shuffle_before_merging_datasets, dataset_prepared_path, dataset_shard_num, dataset_shard_idx, skip_prepare_dataset, "
 "num_dataset_shards_to_save, dataset_processes, dataset_exact_deduplication, dataset_keep_in_memory, is_preprocess, "
 "preprocess_iterable, total_num_tokens, total_supervised_tokens, push_dataset_to_hub", "trident data prepare and pack make the "
 "samples, once and for all runs", "trident data prepare"),
differs("chat_template_kwargs*, eot_tokens", kTextOfTemplate, "trident data prepare --chat --template FILE"),
differs("fix_untrained_tokens", "rows of the folder stay as they are; those of more tokens are their mean"),
always("mean_resizing_embeddings, embeddings_skip_upcast", "rows of tokens that only data.tokenizer has begin as the mean of the "
 "folder's"),
always("base_model_config, type_of_model, revision_of_model, tokenizer_type, tokenizer_use_fast, tokenizer_legacy, "
 "tokenizer_use_mistral_common, tokenizer_save_jinja_files, is_falcon_derived_model, is_llama_derived_model, "
 "is_mistral_derived_model, is_qwen_derived_model, hf_use_auth_token, strict, axolotl_config_path, model_kwargs*, "
 "base_model_ignore_patterns, use_safetensors", "the model's folder says what it is; no code and no file of a hub is loaded"),
always("eval_batch_size, dpo_use_logits_to_keep, dpo_generate_during_eval, eval_table_size, eval_table_max_new_tokens, "
 "eval_max_new_tokens, include_tkps", "an evaluation takes batch.micro sequences at a time"),
always("generate_samples, num_generation_samples, generation_*", "eval.samples continues texts while a run goes on"),
always("eta_min, adam_eps, test_value, exact_deduplication, collator_pad_to_longest, full_finetune", "axolotl reads no such key"),
{"use_tensorboard", kMapped, "log.tensorboard", "true"},
differs("use_wandb, use_mlflow, mlflow_*, hf_mlflow_log_artifacts, use_comet, comet_*, gradio_*, use_otel_metrics, otel_*, "
 "use_trackio", kSendsNothing),
