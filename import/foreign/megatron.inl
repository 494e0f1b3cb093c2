// Flags of Megatron-LM: megatron/training/arguments.py and the dataclasses that it makes flags of, core 0.5 to 0.19, and those that
// Megatron-DeepSpeed (Microsoft's and BigScience's) and Pai-Megatron-Patch have beside them in their own scripts. A flag
// of another model or another loss is refused; one that trains the same model another way, such as a batch that grows, differs.
system("Megatron-LM", "Megatron-LM's default"),
heading("Parallelism"),
{"tensor_model_parallel_size, model_parallel_size", kMapped, "parallel.tensor"},
{"pipeline_model_parallel_size, pipe_parallel_size", kMapped, "parallel.pipeline"},
{"num_virtual_stages_per_pipeline_rank, virtual_pipeline_model_parallel_size", kMapped, "parallel.virtual_stages", "", "with "
 "parallel.schedule \"interleaved\""},
{"num_layers_per_virtual_pipeline_stage", kMapped, "parallel.virtual_stages@layers_per_virtual_stage", "",
 "it counts chunks of layers: layers / (parallel.pipeline x N), with parallel.schedule \"interleaved\""},
{"decoder_first_pipeline_num_layers", kMapped, "parallel.layers@first_stage_layers", "", "parallel.layers, where all stages are "
 "listed"},
{"decoder_last_pipeline_num_layers", kMapped, "parallel.layers@last_stage_layers", "", "parallel.layers, where all stages are "
 "listed"},
differs("pipeline_model_parallel_layout", "list the layers of each virtual stage in parallel.layers; embedding and head stay at "
 "the ends"),
always("account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split, standalone_embedding_stage, "
 "pp_partition_method", "layers are balanced by cost, embedding and head counted, unless parallel.layers says otherwise"),
differs("microbatch_group_size_per_virtual_pipeline_stage, microbatch_group_size_per_vp_stage", "always the number of pipeline "
 "ranks, Megatron-LM's default; no number of the training depends on it"),
{"sequence_parallel", kMapped, "parallel.sequence_parallel", "true"},
always("context_parallel_size, ds_sequence_parallel_size = 1", "sequences are whole on each rank"),
{"context_parallel_size, ds_sequence_parallel_size", kNotBuilt, "parallel.context"},
differs("cp_comm_type, cp_partition_mode, hierarchical_context_parallel_sizes, ds_sequence_parallel_fpdt*, "
 "force_ds_sequence_parallel", "goes with --context-parallel-size"),
refused("hybrid_context_parallel, max_seqlen_per_dp_cp_rank, sequence_packing_scheduler", "all ranks have sequences of one length"),
always("expert_model_parallel_size, expert_tensor_parallel_size, expert_tensor_parallel_num_weight_shards, "
 "moe_expert_parallel_size, num_experts = 1", "dense models have no experts"),
always("mlp_type = standard", "dense models have no experts"),
always("moe_*, disable_moe_*, topk, use_tutel, expert_interval, use_grouped_gemm_for_*, overlap_moe_expert_parallel_comm, "
 "overlap_dispatch_backward_with_experts_wgrad, ep_overlap_early_attn_memory_release, create_moe_param_group, "
 "enable_expert_tensor_parallelism", "dense models only, and it goes with --num-experts"),
refused("expert_model_parallel_size, expert_tensor_parallel_size, expert_tensor_parallel_num_weight_shards, num_experts, "
 "moe_expert_parallel_size, enable_gpt_oss, moe, mlp_type, num_experts_switch, num_experts_teacher, num_shared_experts, "
 "enable_shared_expert, shared_moe_ffn_hidden_size", "dense models only"),
refused("encoder_tensor_model_parallel_size, encoder_pipeline_model_parallel_size, pipeline_model_parallel_split_rank", "there are "
 "no encoders"),
refused("tensor_parallel_num_weight_shards, gtp_*", "weights are sharded over data-parallel ranks: parallel.zero=zero3"),
{"enable_zbh1_pipeline", kNotBuilt, "parallel.schedule", "\"zb-h1\""},
always("enable_zbh1_exact_semantics", "a step is made when the gradients of all ranks are finite"),
{"use_tp_pp_dp_mapping", kMapped, "parallel.order", "\"tp-cp-pp-dp\""},
{"use_distributed_optimizer", kMapped, "parallel.zero@distributed_optimizer", "true", "parallel.zero zero1; without it ddp"},
{"use_megatron_fsdp, use_custom_fsdp", kMapped, "parallel.zero@megatron_fsdp", "true", "parallel.zero, as "
 "--data-parallel-sharding-strategy says; without that zero3"},
{"data_parallel_sharding_strategy = no_shard", kMapped, "parallel.zero", "\"ddp\""},
{"data_parallel_sharding_strategy = optim", kMapped, "parallel.zero", "\"zero1\""},
{"data_parallel_sharding_strategy = optim_grads", kMapped, "parallel.zero", "\"zero2\"", "goes with pipelines here"},
{"data_parallel_sharding_strategy = optim_grads_params", kMapped, "parallel.zero", "\"zero3\"", "goes with pipelines here"},
{"zero_stage = 0, 1", kMapped, "parallel.zero", "", kStages},
{"zero_stage = 2, 3", kMapped, "parallel.zero", "", kReducesOften},
always("deepspeed, deepspeed_config, deepspeed_mpi, deepscale, deepscale_config, deepspeed_activation_checkpointing, "
 "no_pipeline_parallel, no_deepspeed", "flags of Megatron-DeepSpeed: the file of --deepspeed_config is read"),
{"use_torch_fsdp2", kMapped, "parallel.zero@torch_fsdp", "true", "parallel.zero zero3"},
{"torch_fsdp2_no_reshard_after_forward", kMapped, "parallel.zero", "\"shard_grad_op\""},
always("num_distributed_optimizer_instances = 1", "state is sharded over all data-parallel ranks"),
{"num_distributed_optimizer_instances", kNotBuilt, "parallel.shard_group@replicate", "", "parallel.shard_group: whole copies of "
 "what is sharded"},
always("outer_dp_sharding_strategy = no_shard", "shard groups have whole copies"),
refused("outer_dp_sharding_strategy, enable_full_sharding_in_hsdp, use_mics", "state is sharded over all data-parallel ranks, or "
 "within groups alone"),
{"overlap_grad_reduce, overlap_param_gather", kMapped, "parallel.overlap", "true"},
differs("overlap_param_gather_with_optimizer_step", "weights are gathered while the next step computes, after the whole update"),
{"ddp_bucket_size", kMapped, "parallel.bucket_mb", "", "in MB, not in elements: 4 bytes each", "", kElementsToMb},
differs("ddp_num_buckets", "parallel.bucket_mb is the size of one"),
always("ddp_pad_buckets_for_high_nccl_busbw, ddp_average_in_collective, no_gradient_reduce_div_fusion, no_align_grad_reduce, "
 "align_grad_reduce, align_param_gather, no_align_param_gather, no_delay_grad_reduce, delay_param_gather, "
 "use_contiguous_buffers_in_ddp, DDP_impl, no_contiguous_buffers_in_local_ddp, no_use_layer_wise_param_layout, "
 "suggested_communication_unit_size, create_all_gather_group, fsdp_double_buffer, fsdp_manual_registration, "
 "fsdp_db_use_persist_buf_on_alloc_fail, megatron_fsdp_version, megatron_fsdp_enable_fine_grained_param_gather, "
 "megatron_fsdp_max_pool_double_buffer, init_model_with_meta_device, zero_reduce_scatter, zero_contigious_gradients, "
 "zero_reduce_bucket_size, zero_allgather_bucket_size, no_strict_fsdp_dtensor_load", "buckets and gathers have one form"),
launcher("distributed_backend, local_rank, lazy_mpu_init, fake_process_group", "ranks are threads or MPI processes"),
differs("distributed_timeout_minutes, distributed_timeout_seconds_after_init", "cuda.nccl_timeout, in seconds and at most 590; a "
 "rank that fails ends the others at once"),
heading("Batch and run"),
{"micro_batch_size, batch_size", kMapped, "batch.micro"},
{"global_batch_size", kMapped, "batch.global", "", "of all ranks, in batch.global / (batch.micro x parallel.data) micro-batches of "
 "each; without it one of each"},
differs("rampup_batch_size, step_batch_size_schedule", "the batch does not grow: steps have batch.global sequences from the first "
 "on, so that as many steps see more of them"),
differs("decrease_batch_size_if_needed", "batches that do not divide are refused"),
{"seq_length, encoder_seq_length", kMapped, "batch.sequence"},
{"train_iters", kMapped, "run.steps"},
{"train_samples", kMapped, "run.steps@train_samples"},
{"train_tokens", kMapped, "run.steps@train_tokens", "", "tokens / (batch.global x batch.sequence)"},
{"lr_decay_tokens", kMapped, "lr_schedule.decay_steps@decay_tokens", "", "tokens / (batch.global x batch.sequence)"},
{"lr_warmup_tokens", kMapped, "lr_schedule.warmup_steps@warmup_tokens", "", "tokens / (batch.global x batch.sequence)"},
{"epochs", kMapped, "run.epochs", "", "in the place of run.steps"},
{"exit_duration_in_mins", kMapped, "run.max_minutes"},
differs("exit_interval", "run.steps ends a run, with lr_schedule.decay_steps for the length of the schedule"),
differs("kill_switch_path, kill_switch_file, trigger_path", "SIGUSR1 and SIGTERM end a run; no file does"),
always("exit_signal_handler, exit_signal_handler_for_training, exit_signal, exit_signal_handler_for_dataloader", "SIGUSR1 and "
 "SIGTERM end a run at the step boundary"),
{"seed", kMapped, "run.seed", "", "weights and order are the same in every layout, and other ones than Megatron-LM's"},
refused("iterations_to_skip, train_iters_to_skip, train_range_to_skip, skip_train_iteration_range, "
 "result_rejected_tracker_filename", "all steps are made"),
refused("phase_transition_iterations", "data and batch stay the same; go on from a checkpoint with others"),
refused("skip_train, test_mode, eval_only, no_train, inference, ds_inference, task, task_list, guess_file, answer_file, eval_dev, "
 "eval_fp32, adaptive_seq_len, num_fewshot, generation_length, input_len, repetition_penalty, temperature, top_k, top_p, "
 "online_evaluation_config, out_seq_length, sample_input_file, sample_output_file, text_generate_*", "evaluates without training",
 "trident eval"),
always("manual_gc, manual_gc_interval, manual_gc_steps, manual_gc_eval, no_manual_gc_eval, empty_unused_memory_level, "
 "train_sync_interval, no_barrier_with_level_1_timing", "no memory is collected or allocated within a step"),
refused("yaml_cfg", "import the flags themselves"),
heading("Model"),
{"num_layers, encoder_num_layers", kMapped, "model.num_hidden_layers", "", "n_layer for model_type gpt2"},
{"hidden_size", kMapped, "model.hidden_size", "", "n_embd for gpt2"},
{"ffn_hidden_size, intermediate_size", kMapped, "model.intermediate_size", "", "n_inner for gpt2; without it 4 x hidden, or 8/3 "
 "with --swiglu"},
{"num_attention_heads", kMapped, "model.num_attention_heads", "", "n_head for gpt2"},
{"group_query_attention", kMapped, "model.num_key_value_heads@grouped_queries", "true", "then --num-query-groups counts"},
{"num_query_groups, num_key_value_heads, n_head_kv", kMapped, "model.num_key_value_heads"},
{"num_key_value_heads, n_head_kv", kMapped, "model.num_key_value_heads@grouped_queries", "true", "Megatron-DeepSpeed's name"},
{"kv_channels", kMapped, "model.head_dim"},
{"max_position_embeddings", kMapped, "model.max_position_embeddings", "", "n_positions for gpt2"},
{"position_embedding_type = learned_absolute, rope", kMapped, "model.model_type@position_embedding", "", "rotary with llama, "
 "qwen2, qwen3, mistral; learned with gpt2"},
{"position_embedding_type = rotary", kMapped, "model.model_type@position_embedding", "\"rope\"", "Megatron-DeepSpeed's name"},
{"use_rotary_position_embeddings, use_mistral_rotary_position_embeddings, use_llama2_rotary_position_embeddings, "
 "no_position_embedding", kMapped, "model.model_type@position_embedding", "\"rope\""},
refused("position_embedding_type, rope_type = yarn, mrope, relative, none, alibi", "rotary or learned positions; model.hf_config "
 "takes a config.json with YaRN"),
always("rope_type = rope", "rotary positions without MLA are those"),
{"rotary_base, rotary_position_embeddings_theta", kMapped, "model.rope_theta"},
{"rotary_percent", kMapped, "model.partial_rotary_factor"},
always("rotary_scale_factor = 1", "positions are not scaled"),
{"rotary_seq_len_interpolation_factor, rotary_scale_factor", kMapped, "model.rope_scaling@rope_linear_factor", "",
 "model.rope_scaling, rope_type linear"},
{"use_rope_scaling", kMapped, "model.rope_scaling@rope_scaling", "true", "model.rope_scaling, rope_type llama3"},
{"rope_scaling_factor", kMapped, "model.rope_scaling@rope_llama3_factor"},
{"swiglu", kMapped, "model.model_type@swiglu", "true", "model_type llama and its kin; without it gpt2's GELU"},
always("openai_gelu", "GELU has its tanh form"),
{"glu_activation = swiglu", kMapped, "model.model_type@swiglu", "true", "Megatron-DeepSpeed's name"},
refused("glu_activation", "of gated activations SwiGLU alone is there"),
{"normalization = RMSNorm", kMapped, "model.model_type@normalization", "\"RMSNorm\""},
{"normalization", kMapped, "model.model_type@normalization", "", "RMSNorm with llama and its kin; layer norm with gpt2"},
{"norm_epsilon, layernorm_epsilon", kMapped, "model.rms_norm_eps", "", "layer_norm_epsilon for gpt2", "1e-5"},
always("apply_layernorm_1p", "norms keep their weights, not those less one: without decay on them the same training"),
{"qk_layernorm", kMapped, "model.model_type@qk_layernorm", "true", "model_type qwen3"},
{"disable_bias_linear", kMapped, "model.model_type@bias_linear", "false", "llama, qwen2, qwen3, mistral; gpt2 has all biases"},
{"add_qkv_bias", kMapped, "model.model_type@qkv_bias", "true", "with --disable-bias-linear: model_type qwen2"},
{"untie_embeddings_and_output_weights", kMapped, "model.tie_word_embeddings", "false"},
{"window_size", kMapped, "model.sliding_window@window", "", "model.sliding_window is one more: it counts the token itself; of "
 "mistral, qwen2, qwen3"},
{"hidden_dropout", kMapped, "model.dropout", "", "", "0.1"},
{"attention_dropout = 0", kAlways, "@attention_dropout", "0", "attention probabilities have no dropout"},
refused("attention_dropout", "attention probabilities have no dropout, not even the 0.1 that is Megatron-LM's default; "
 "--hidden-dropout is another one"),
{"init_method_std", kMapped, "model.initializer_range"},
differs("embedding_init_method_std, init_method_xavier_uniform, data_parallel_random_init, adjust_word_embedding_init, "
 "word_embedding_init_std", "all weights begin with --init-method-std, the same on every rank"),
always("use_cpu_initialization, no_initialization, perform_initialization", "initial weights do not depend on the layout"),
always("make_vocab_size_divisible_by, pad_vocab_size_to, extra_vocab_size, no_pad_vocab_size", "the table is padded for the tensor "
 "ranks; padding has no part in the loss"),
always("fp32_residual_connection, apply_query_key_layer_scaling, no_query_key_layer_scaling, attention_softmax_in_fp32", "scores "
 "and softmax are in fp32, residuals in precision.compute"),
differs("embedding_weights_in_fp32", "master weights are fp32, and products of all of them have precision.compute"),
always("softmax_type = vanilla", "softmax is plain"),
refused("mtp_*, multi_latent_attention, q_lora_rank, kv_lora_rank, qk_head_dim, qk_pos_emb_head_dim, v_head_dim, "
 "rotary_scaling_factor, mscale, mscale_all_dim, cache_mla_latents, mla_down_proj_fusion, qk_nope_head_dim, qk_rope_head_dim", "no "
 "multi-token prediction, no latent attention"),
refused("is_hybrid_model, hybrid_*, mamba_*, disable_mamba_mem_eff_path, gdp_*, linear_*, experimental_attention_variant, dsa_*, "
 "no_dsa_*", "attention alone: no state space, linear or sparse layers"),
refused("heterogeneous_*, no_rope_freq, window_attn_skip_freq", "all layers are alike; model.hf_config says otherwise of windows"),
refused("squared_relu, quick_geglu, glu_linear_offset, activation_func_clamp_value, use_fused_weighted_squared_relu, softmax_type, "
 "qk_l2_norm, qk_clip*, attention_output_gate, apply_residual_connection_post_layernorm, rotary_interleaved, relative_attention_*, "
 "mrope_section, yarn_*, no_yarn_*, use_mup, mup_*, enable_mhc_connections, mhc_*, spec, fused_residual_rmsnorm, use_alibi_mask, "
 "embed_layernorm, use_fused_mhc, csa_dense_mode, xielu, xiprelu, xiprelup, no_attn_layernorm, no_mlp_layernorm, "
 "no_final_layernorm, post_layer_norm, layernorm_init, input_embeddings_multiplier, attention_head_type, position_encoding_2d, "
 "transformer_type, use_normhead, disable_bias_linear_fc, disable_bias_attn_fc", "no model here has it; docs/models.md lists those "
 "that are"),
always("transformer_impl, use_mcore_models, use_legacy_models, onnx_safe, no_persist_layer_norm, model_provider, "
 "abort_on_unmet_fused_kernel_constraints, sync_tp_duplicated_parameters", kOneOf),
refused("vision_*, image_*, mm_*, tune_mm_mlp_adapter, freeze_clip_vision_tower, freeze_LM, freeze_ViT, freeze_llm, num_frames, "
 "use_tiling, use_thumbnail, max_num_tiles, cvcuda_image_processing, disable_vision_class_token, dataset_provider, dataset_config, "
 "dataloader_seq_length, allow_missing_vision_projection_checkpoint, language_model_type, tokenizer_prompt_format, prompt_path, "
 "faiss_use_gpu, num_classes, img_*, num_channels, patch_dim, classes_fraction, data_per_class_fraction, no_data_sharding, "
 "head_lr_mult, swin_backbone_type, mask_type, mask_factor, iter_per_epoch, dino_*, ict_*, biencoder_*, bert_*, titles_data_path, "
 "query_in_block_prob, use_one_sent_docs, evidence_data_path, retriever_*, retro_*, block_data_path, embedding_path, indexer_*, "
 "mask_prob, short_seq_prob, vocab_extra_ids, decoder_num_layers, decoder_seq_length, output_bert_embeddings, sample_rate",
 "decoders of text alone: no images, encoders or retrieval"),
heading("Optimizer and learning rate"),
{"optimizer = adam", kMapped, "optimizer.type", "\"adamw\"", "its adam decouples the decay, too"},
differs("use_bnb_optimizer", "the same rule, whose states have 32 bits here"),
{"optimizer = lion", kMapped, "optimizer.type", "\"lion\""},
{"optimizer = muon, dist_muon, adaptive_muon", kNotBuilt, "optimizer.type", "\"muon\""},
{"optimizer = sgd", kNotBuilt, "optimizer.type", "\"sgd\""},
refused("optimizer, sgd_momentum, muon_*, muonadamw_*, muonclip_*, sophiag_*, dshampooadamw_*, ademamix_*, schedulefree_*", "no "
 "other rule than those of optimizer.type"),
{"lion_beta1", kMapped, "optimizer.betas@lion_beta1", "", "optimizer.betas with lion", "0.95"},
{"lion_beta2", kMapped, "optimizer.betas@lion_beta2", "", "optimizer.betas with lion", "0.98"},
{"lr", kMapped, "optimizer.lr"},
{"min_lr", kMapped, "lr_schedule.min_lr"},
{"adam_beta1", kMapped, "optimizer.betas@beta1", "", "", "0.9"},
{"adam_beta2", kMapped, "optimizer.betas@beta2", "", "", "0.999"},
{"adam_eps", kMapped, "optimizer.eps"},
{"weight_decay", kMapped, "optimizer.weight_decay", "", "", "0.01"},
always("weight_decay_incr_style = constant", "weight decay is constant"),
refused("start_weight_decay, end_weight_decay, weight_decay_incr_style", "weight decay is constant"),
refused("apply_wd_to_qk_layernorm, no_weight_decay_cond_type", "one-dimensional parameters and biases are not decayed"),
{"clip_grad", kMapped, "optimizer.grad_clip", "", "", "1.0"},
{"lr_decay_style", kMapped, "lr_schedule.type", "", "", "\"linear\""},
{"lr_decay_iters", kMapped, "lr_schedule.decay_steps"},
{"lr_decay_samples", kMapped, "lr_schedule.decay_steps@decay_samples"},
{"lr_warmup_iters", kMapped, "lr_schedule.warmup_steps"},
{"lr_warmup_samples", kMapped, "lr_schedule.warmup_steps@warmup_samples"},
{"lr_warmup_fraction, warmup", kMapped, "lr_schedule.warmup_steps@warmup_fraction", "", "lr_schedule.warmup_steps = X x "
 "decay_steps"},
always("lr_warmup_init = 0", "the warm-up starts at 0"),
differs("lr_warmup_init", "the warm-up starts at 0"),
refused("lr_constant_*, lr_cooldown_*, constant_lr, lr_finder, timescale", "--lr-decay-style says the schedule, WSD one with a "
 "constant part"),
{"lr_wsd_decay_iters", kMapped, "lr_schedule.wsd_decay_steps"},
{"lr_wsd_decay_samples", kMapped, "lr_schedule.wsd_decay_steps@wsd_decay_samples", "", "lr_schedule.wsd_decay_steps = samples / "
 "batch.global"},
{"lr_wsd_decay_style", kMapped, "lr_schedule.wsd_decay_type"},
differs("decoupled_lr, decoupled_min_lr", "one learning rate for all parameters: embedding and head train with --lr"),
always("override_opt_param_scheduler, use_checkpoint_opt_param_scheduler, override_lr_scheduler, use_checkpoint_lr_scheduler",
 "the configuration decides; a checkpoint that was trained with another one is refused by key"),
refused("freeze_all_layers", "train.freeze says which parameters stay"),
heading("Precision and memory"),
{"bf16", kMapped, "precision.compute", "\"bf16\"", "without it and --fp16: fp32"},
{"fp16", kMapped, "precision.compute", "\"fp16\""},
{"loss_scale", kMapped, "precision.loss_scale"},
differs("initial_loss_scale, min_loss_scale, min_scale, loss_scale_window, hysteresis", "with fp16 the scale is found while "
 "training, from a start and in a window of its own"),
{"fp8_format", kNotBuilt, "precision.fp8@fp8", "true", "precision.fp8"},
{"fp8_recipe = tensorwise, mxfp8", kNotBuilt, "precision.fp8@fp8_recipe", "", "precision.fp8"},
differs("fp8_*, no_fp8_wgrad, fp4_*, first_last_layers_bf16, num_layers_at_start_in_bf16, num_layers_at_end_in_bf16, "
 "keep_fp8_transpose_cache, keep_fp8_transpose_cache_when_using_custom_fsdp, reuse_grad_buf_for_mxfp8_param_ag, "
 "te_precision_config_file, kitchen_*, use_kitchen_attention", "goes with --fp8-format: precision.fp8"),
{"accumulate_allreduce_grads_in_fp32, fp32_allreduce", kMapped, "precision.reduce", "\"fp32\"", "always"},
{"grad_reduce_in_bf16", kDiffers, "precision.reduce", "\"fp32\"", "gradients are summed in fp32"},
always("main_grads_dtype, main_params_dtype, exp_avg_dtype, exp_avg_sq_dtype = fp32", "master weights, gradients and moments are "
 "fp32"),
differs("main_grads_dtype, main_params_dtype, exp_avg_dtype, exp_avg_sq_dtype, use_precision_aware_optimizer, "
 "megatron_fsdp_main_params_dtype, megatron_fsdp_main_grads_dtype, megatron_fsdp_grad_comm_dtype", "master weights, gradients and "
 "moments are fp32"),
always("ddp_reduce_scatter_with_fp32_accumulation, ddp_param_name_patterns_for_fp32_local_accumulation, "
 "disable_bf16_reduced_precision_matmul", "sums are in fp32"),
differs("fp16_lm_cross_entropy, output_logit_dtype", "cross-entropy is computed in fp32"),
{"recompute_activations, recompute_granularity = true, selective", kMapped, "recompute.policy", "\"selective\""},
{"recompute_granularity = full", kMapped, "recompute.policy", "\"full\"", "every block"},
{"checkpoint_activations, activations_checkpoint_method", kMapped, "recompute.policy", "\"full\"", "Megatron-LM's old name"},
always("recompute_modules = core_attn", "selective is attention"),
differs("recompute_method, recompute_num_layers, recompute_modules, distribute_saved_activations, checkpoint_num_layers, "
 "activations_checkpoint_num_layers, distribute_checkpointed_activations, partition_activations, contigious_checkpointing, "
 "synchronize_each_layer, profile_backward", "one policy for all blocks, each by itself: memory differs, no number does"),
{"optimizer_cpu_offload, cpu_optimizer, offload_optimizer_states", kNotBuilt, "offload.optimizer", "\"host\""},
{"cpu_offloading_num_layers, cpu_offloading, checkpoint_in_cpu, fine_grained_activation_offloading", kNotBuilt,
 "offload.activations", "\"host\""},
differs("optimizer_offload_fraction, optimizer_offload_policy, use_torch_optimizer_for_cpu_offload, overlap_cpu_optimizer_d2h_h2d, "
 "no_pin_cpu_grads, no_pin_cpu_params, offload_modules, min_offloaded_tensor_size, delay_offload_until_cuda_graph, "
 "delta_offload_bytes_across_pp_ranks, activation_offload_fraction, optimizer_offload_chunk_size, "
 "optimizer_offload_auto_threshold, remote_device, use_pin_memory, fine_grained_offloading_max_inflight_offloads, "
 "cpu_offloading_retain_pinned_cpu_buffers", "goes with offloading: offload.optimizer, offload.activations"),
heading("Data"),
{"data_path", kMapped, "data.train", "", "PREFIX.bin and PREFIX.idx work as they are; W1 PREFIX1 W2 PREFIX2 is a blend"},
{"train_data_path", kMapped, "data.train@train_data_path", "", "data.train, all of it"},
{"valid_data_path", kMapped, "data.valid"},
differs("test_data_path", "nothing reads it while training: trident eval --data PREFIX"),
differs("data_args_path, per_split_data_args_path, data_file_list, train_weighted_split_paths, valid_weighted_split_paths, "
 "test_weighted_split_paths, train_weighted_split_paths_path, valid_weighted_split_paths_path, test_weighted_split_paths_path",
 "such a list is not read: give its weights and prefixes as data.train, and those of validation as data.valid"),
refused("train_desc_path, train_idx_path, train_sample_idx_path, train_doc_idx_path, train_shuffle_idx_path, "
 "data_efficiency_curriculum_learning, random_ltd", "samples are whole, in an order drawn from run.seed"),
differs("train_data, valid_data, data_dir, source_seq_len, target_seq_len", "texts are prepared first, and data.train names what "
 "it writes", "trident data prepare"),
refused("loss_on_targets_only, norm_target_loss, reweight_loss_based_on_position_frequency, noise_density, mean_noise_span_length, "
 "goldfish_*, z_loss_weight, bitfit", "the loss is the cross-entropy of the next token, without additions"),
differs("train_data_exact_num_epochs", "run.epochs counts passes over the data"),
always("train_mode = pretrain", "the next token is predicted"),
differs("train_mode = finetune", kWithData),
always("dataset, max_padding_length, patch_tokenizer_type, special_tokens, keep_last, time, verbosity, version", "token files are "
 "made already"),
{"split", kMapped, "data.split"},
{"padded_vocab_size", kMapped, "model.vocab_size@padded_vocabulary", "", "model.vocab_size, where nothing else says it"},
{"vocab_size", kMapped, "model.vocab_size", "", "without it that of --tokenizer-type, where one is known"},
{"tokenizer_type = GPT2BPETokenizer", kMapped, "data.tokenizer", "\"gpt2\"", "what pretrain_gpt.py takes without the flag"},
{"tokenizer_type = NullTokenizer", kDiffers, "data.tokenizer", "null", "before core 0.18 the model has one row more than "
 "--vocab-size, which ends documents: --set model.vocab_size says it"},
{"tokenizer_type = HuggingFaceTokenizer, SentencePieceTokenizer, GPTSentencePieceTokenizer, Llama2Tokenizer, TikTokenizer, "
 "MultimodalTokenizer, SFTTokenizer, PretrainedFromHF, HFTokenizer", kMapped, "data.tokenizer@tokenizer_type", "", "data.tokenizer "
 "is what --tokenizer-model names"},
refused("tokenizer_type", "no such tokenizer; data.tokenizer takes a name, a model's folder or a tokenizer's file"),
{"tokenizer_model, tokenizer_name_or_path", kMapped, "data.tokenizer", "", "a name, a model's folder or a tokenizer's file"},
always("vocab_file, merge_file, tokenizer_metadata, tokenizer_special_tokens, tiktoken_*, tokenizer_sentencepiece_legacy, "
 "no_tokenizer_sentencepiece_ignore_extra_whitespaces, tokenizer_hf_*, trust_remote_code, null_tokenizer_*, legacy_tokenizer, "
 "use_gigatoken, allow_ambiguous_pad_tokens", "token files are made already; data.tokenizer only reads and writes texts"),
refused("chat_template", "chats are rendered when data is prepared", "trident data prepare --chat --template FILE"),
refused("sft, sft_tokenizer_prompt_format, sft_mock_dataset_config_json", "and trident data pack, then data.samples=packed",
 "trident data prepare --chat"),
differs("mock_data", "no tokens are invented: give data.train, such as a small text that trident data prepare made"),
always("data_cache_path, no_mmap_bin_files, mmap_warmup, data_impl, s3_cache_path, object_storage_cache_path, enable_msc, "
 "disable_msc, dataloader_fast_cache_load, dataloader_defer_npy_index_mmap, per_dataset_sequences_path, mid_level_dataset_surplus, "
 "num_dataset_builder_threads, repeated_dataloader, data_sharding, return_data_index, use_dataset_only, aml_data_download_path, "
 "blend_sample_in_corpus, shuffle_sample_in_corpus, multiprocessing_context, dataloader_save, mlp_padding_free", "files are read "
 "by pread, the order of samples is computed: there is no cache"),
always("dataloader_type = single, cyclic", kReadAhead),
always("num_workers, valid_num_workers", kReadAhead),
refused("dataloader_type", "samples come from token files"),
{"reset_position_ids", kMapped, "data.reset_position_ids", "true"},
{"reset_attention_mask", kMapped, "data.reset_attention_mask", "true"},
{"eod_mask_loss", kMapped, "data.eod_mask_loss", "true"},
{"dataloader_inter_document_masking", kMapped, "data.reset_attention_mask@documents_apart", "true", "data.reset_attention_mask and "
 "data.reset_position_ids, with data.boundaries \"index\""},
always("no_create_attention_mask_in_dataloader", "masks are never tensors"),
always("calculate_per_token_loss", "the loss is the mean over the step's targets; Megatron-LM's own default is one of "
 "micro-batches"),
always("renormalize_blend_weights", "weights are relative to their sum"),
refused("fim_*", "texts are not cut for filling in"),
always("tools/preprocess_data.py, append_eod", "makes the same files", "trident data prepare --append-eod --workers N"),
always("tools/merge_datasets.py", "joins files", "trident data merge"),
heading("Checkpoints"),
{"save", kMapped, "checkpoint.dir", "", "and run.dir, unless it is given: logs lie beside the checkpoints"},
{"load", kMapped, "checkpoint.resume", "", "auto where it is --save's folder; a checkpoint of Trident, not of Megatron-LM"},
{"finetune", kMapped, "model.init_from@finetune", "true", "--load becomes model.init_from"},
differs("mcore_model, mcore_adapter, mcore_ref_model, mcore_ref_adapter", "weights in Megatron-LM's form are not read: the folder "
 "of Hugging Face's form that they were made of is model.init_from"),
{"pretrained_checkpoint", kMapped, "model.init_from", "", "a checkpoint of trident, a folder of them, or a Hugging Face folder"},
{"save_interval, persistent_save_interval", kMapped, "checkpoint.every"},
{"save_retain_interval", kMapped, "checkpoint.keep_every"},
{"most_recent_k", kMapped, "checkpoint.keep_last", "", "Megatron-LM keeps all: 0 here", "0"},
{"no_save_optim", kMapped, "checkpoint.content", "\"weights\""},
always("no_save_rng", "random numbers follow from run.seed and the step: none are saved"),
differs("no_load_optim, no_load_rng, no_load_lr_state, reset_progress, reset_iteration", "model.init_from begins with weights and "
 "a fresh optimizer"),
differs("ckpt_step, override_ckpt_iteration, load_tag", "name that checkpoint's folder in checkpoint.resume"),
differs("use_checkpoint_args, use_mp_args_from_checkpoint_args, no_use_tokenizer_model_from_checkpoint_args", "the configuration "
 "says it; a checkpoint of another model is refused"),
always("exit_on_missing_checkpoint", "a checkpoint.resume that names a path must have one"),
differs("non_persistent_*, replication*", "checkpoints have one kind, in checkpoint.dir"),
always("async_save, async_strategy, async_ckpt_*, use_persistent_ckpt_worker", "training goes on while a checkpoint is written"),
refused("convert_checkpoint_from_megatron_to_transformers, ckpt_convert_format, ckpt_convert_save, "
 "ckpt_convert_update_legacy_dist_opt_format", "turns checkpoints and Hugging Face folders into one another", "trident convert"),
always("ckpt_*, no_ckpt_*, auto_detect_ckpt_format, dist_ckpt_*, distrib_optim_fully_reshardable_mem_efficient, use_dist_ckpt, "
 "universal_checkpoint, load_main_params_from_ckpt, load_model_opt_format, no_save_tokenizer_assets, verify_integrity, "
 "bridge_backend, save_missing_weights, skip_megatron_init", "one format, read in any layout; checksums are compared"),
differs("save_params_interval, save_activations_interval, save_tokens_per_expert_interval, save_wgrads_interval, "
 "save_dgrads_interval", "no tensors are written but checkpoints"),
heading("Logging, evaluation, debugging"),
{"log_interval", kMapped, "log.every", "", "", "100"},
{"tensorboard_dir", kMapped, "log.tensorboard", "true", "in run.dir"},
differs("wandb_*, one_logger_*, no_one_logger, enable_one_logger, app_tag_run_*, otel_*, codecarbon_dir", kSendsNothing),
always("log_*, no_log_*, tensorboard_log_interval, tensorboard_queue_size, timing_log_level, timing_log_option, "
 "transformer_timers, report_topk_accuracies, trace_dir, logging_level, config_logger_dir, dump_param_to_param_group_map",
 "metrics.jsonl always has tokens/s, MFU, bytes and memory"),
{"eval_interval", kMapped, "eval.every"},
{"eval_iters = 0", kMapped, "eval.every@no_evaluation", "true", "nothing is evaluated: eval.every is 0"},
differs("eval_iters = -1", "ms-swift's word for the whole validation data: eval.steps says how many batches are taken"),
{"eval_iters", kMapped, "eval.steps", "", "", "100"},
differs("eval_global_batch_size, eval_micro_batch_size, start_eval_at_iter, full_validation", "evaluations take eval.steps batches "
 "of batch.global, every eval.every steps"),
always("multiple_validation_sets, validation_set_names", "each prefix of data.valid has numbers of its own"),
{"profile", kMapped, "log.trace_steps@profile", "true", "log.trace_steps"},
{"profile_step_start", kMapped, "log.trace_steps@profile_start", "", "log.trace_steps"},
{"profile_step_end", kMapped, "log.trace_steps@profile_end", "", "log.trace_steps"},
differs("profile_ranks, profile_steps, use_pytorch_profiler, pytorch_profiler_*, record_memory_history, memory_snapshot_path, "
 "record_shapes, nvtx_ranges", "log.trace_steps and memory.json in the run directory show all ranks"),
always("no_check_for_nan_in_loss_and_grad, check_for_nan_in_loss_and_grad, check_for_large_grads, check_for_spiky_loss, rerun_mode",
 "a step with a non-finite gradient is not applied; ten in a row end the run"),
{"deterministic_mode", kMapped, "cuda.deterministic", "true", "equal layouts give equal bits"},
differs("check_weight_hash_across_dp_replicas_interval, gpu_sniff_test_interval, straggler_*, disable_straggler_on_startup, "
 "flight_recorder_*, no_flight_recorder_*, enable_ft_package, calc_ft_timeouts, ft_num_warmup_iters, inprocess_*, "
 "adlr_autoresume*, run_workload_inspector_server, coordinator_*", "trident supervise starts a run again; timing.jsonl names the "
 "slowest rank"),
refused("error_injection_*, fault_injector_*", "tests inject faults, not runs"),
heading("Kernels and communication"),
always("use_flash_attn*, attention_backend, flash_attention_version", "attention never stores the scores"),
{"tp_comm_overlap", kNotBuilt, "parallel.tensor_overlap", "\"chunked\""},
differs("tp_comm_*, no_tp_comm_*, no_async_tensor_model_parallel_allreduce", "goes with --tp-comm-overlap"),
{"no_bias_gelu_fusion", kMapped, "cuda.epilogues", "false", "true leaves biases and GELU to cuBLASLt"},
always("masked_softmax_fusion, bias_dropout_fusion, bias_activation_fusion, apply_rope_fusion, apply_dsa_kernel_fusion, use_te, "
 "no_scaled_masked_softmax_fusion, scaled_upper_triang_masked_softmax_fusion, disable_te_fused_rope, disable_parallel_output, "
 "disable_mem_efficient_ln, cpu_torch_adam, ds_fused_adam, split_transformers, memory_centric_tiled_linear, tile_factor, "
 "scattered_embeddings, qknorm_impl, language_model_only, gradient_accumulation_fusion, no_gradient_accumulation_fusion, "
 "no_masked_softmax_fusion, no_bias_swiglu_fusion, no_bias_dropout_fusion, no_rope_fusion, use_te_activation_func, "
 "use_transformer_engine_op_fuser, use_flashinfer_fused_rope, cross_entropy_loss_fusion, cross_entropy_fusion_impl, "
 "disable_jit_fuser, no_clone_scatter_output_in_embedding, te_rng_tracker, inference_rng_tracker, defer_embedding_wgrad_compute, "
 "wgrad_deferral_limit, delay_wgrad_compute, batch_invariant_*, mlp_chunks_for_training, enable_experimental", kOneOf),
always("overlap_p2p_comm, batch_p2p_comm, overlap_p2p_communication, nccl_comm_warmup, initialize_socket_comms, "
 "no_overlap_p2p_communication, overlap_p2p_communication_warmup_flush, no_scatter_gather_tensors_in_pipeline, "
 "use_ring_exchange_p2p, pipeline_model_parallel_comm_backend, disable_gloo_process_groups, use_sharp, sharp_enabled_group, "
 "high_priority_*, symmetric_ar_type, disable_symmetric_registration", "activations are sent while the next pass computes, through "
 "NCCL as it is set up"),
{"use_nccl_ub", kMapped, "cuda.nccl_register", "true"},
differs("nccl_communicator_config_path", "cuda.nccl_max_ctas has thread blocks by axis"),
{"cuda_graph_impl = none", kMapped, "cuda.graphs", "false"},
{"cuda_graph_impl, enable_cuda_graph, external_cuda_graph", kMapped, "cuda.graphs", "true"},
always("cuda_graph_*, optimizer_cuda_graph", "cuda.graphs captures passes and updates of each unit"),
always("CUDA_DEVICE_MAX_CONNECTIONS", "no order of kernels depends on it"),
heading("Other programs"),
refused("perform_rl_step, rl_*, no_rl_*, grpo_*, langrl_*, refit_method", "answers are not drawn while training; loss.type=dpo "
 "learns from pairs"),
refused("logits_*, teacher_model_config, distill*, export_kd_*, kd, kd_*, mos, load_teacher, num_layers_teacher, "
 "hidden_size_teacher, num_attention_heads_teacher", "no distillation"),
always("inference_*, no_inference_*, max_tokens_to_oom, use_legacy_static_engine, decode_only_cuda_graphs, enable_chunked_prefill, "
 "disable_chunked_prefill, num_speculative_tokens, use_same_sampling_seed_across_dp_ranks, flash_decode, "
 "nccl_all_reduce_for_prefill, mlp_chunks_for_prefill", "has no part in training", "trident generate"),
refused("export_*, modelopt_enabled, finetune_hf_dataset, finetune_data_split, qad_train_target, freeze_base_for_mtp", "no "
 "quantisation after training"),
refused("flextron, flex_*, router_*, budget_*, enable_router, freeze_router, freeze_model", "one model is trained, not a family "
 "within it"),
