// Flags of Megatron-LM: megatron/training/arguments.py and the dataclasses that it makes flags of, core 0.5 to 0.19, and those that
// Megatron-DeepSpeed (Microsoft's and BigScience's) and Pai-Megatron-Patch have beside them in their own scripts. A flag
// of another model or another loss is refused; one that trains the same model another way, such as a batch that grows, differs.
#include "import/foreign/tables.h"

namespace trident {
namespace {

using enum Verdict;
using enum Convert;

constexpr std::string_view kMegatronReadAhead = "samples are read ahead, in an order drawn from run.seed";
constexpr std::string_view kMegatronOneOf = "one implementation, without such a switch";

constexpr ForeignKey kMegatronParallel[] = {
    {"tensor_model_parallel_size, model_parallel_size", kMapped, "parallel.tensor"},
    {"pipeline_model_parallel_size, pipe_parallel_size", kMapped, "parallel.pipeline"},
    {"num_virtual_stages_per_pipeline_rank", kMapped, "parallel.virtual_stages", "", "with parallel.schedule \"interleaved\""},
    {"num_layers_per_virtual_pipeline_stage", kMapped, "parallel.virtual_stages@layers_per_virtual_stage", "",
     "parallel.virtual_stages = layers / (stages x N), with parallel.schedule \"interleaved\""},
    {"decoder_first_pipeline_num_layers", kMapped, "parallel.layers@first_stage_layers", "",
     "parallel.layers, where all stages are listed"},
    {"decoder_last_pipeline_num_layers", kMapped, "parallel.layers@last_stage_layers", "",
     "parallel.layers, where all stages are listed"},
    {"pipeline_model_parallel_layout", kDiffers, "", "",
     "list the layers of each virtual stage in parallel.layers; embedding and head stay at the ends"},
    {"account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split, standalone_embedding_stage, "
     "pp_partition_method", kAlways, "", "",
     "layers are balanced by cost, embedding and head counted, unless parallel.layers says otherwise"},
    {"microbatch_group_size_per_virtual_pipeline_stage", kDiffers, "", "",
     "always the number of pipeline ranks, Megatron-LM's default; no number of the training depends on it"},
    {"sequence_parallel", kMapped, "parallel.sequence_parallel", "true"},
    {"context_parallel_size, ds_sequence_parallel_size = 1", kAlways, "", "", "sequences are whole on each rank"},
    {"context_parallel_size, ds_sequence_parallel_size", kNotBuilt, "parallel.context"},
    {"cp_comm_type, hierarchical_context_parallel_sizes", kDiffers, "", "", "goes with --context-parallel-size"},
    {"hybrid_context_parallel, max_seqlen_per_dp_cp_rank", kRefused, "", "", "all ranks have sequences of one length"},
    {"expert_model_parallel_size, expert_tensor_parallel_size, expert_tensor_parallel_num_weight_shards, moe_expert_parallel_size, "
     "num_experts = 1", kAlways, "", "", "dense models have no experts"},
    {"expert_model_parallel_size, expert_tensor_parallel_size, expert_tensor_parallel_num_weight_shards, num_experts, moe_*, "
     "overlap_moe_expert_parallel_comm, overlap_dispatch_backward_with_experts_wgrad, ep_overlap_early_attn_memory_release, "
     "use_grouped_gemm_for_*, enable_gpt_oss", kRefused, "", "", "dense models only"},
    {"encoder_tensor_model_parallel_size, encoder_pipeline_model_parallel_size, pipeline_model_parallel_split_rank", kRefused, "",
     "", "there are no encoders"},
    {"tensor_parallel_num_weight_shards, gtp_*", kRefused, "", "",
     "weights are sharded over data-parallel ranks: parallel.zero=zero3"},
    {"enable_zbh1_pipeline", kNotBuilt, "parallel.schedule", "\"zb-h1\""},
    {"enable_zbh1_exact_semantics", kAlways, "", "", "a step is made when the gradients of all ranks are finite"},
    {"use_tp_pp_dp_mapping", kMapped, "parallel.order", "\"tp-cp-pp-dp\""},
    {"use_distributed_optimizer", kMapped, "parallel.zero@distributed_optimizer", "true", "parallel.zero zero1; without it ddp"},
    {"use_megatron_fsdp, use_custom_fsdp", kMapped, "parallel.zero@megatron_fsdp", "true",
     "parallel.zero, as --data-parallel-sharding-strategy says; without that zero3"},
    {"data_parallel_sharding_strategy = no_shard", kMapped, "parallel.zero", "\"ddp\""},
    {"data_parallel_sharding_strategy = optim", kMapped, "parallel.zero", "\"zero1\""},
    {"data_parallel_sharding_strategy = optim_grads", kMapped, "parallel.zero", "\"zero2\"", "goes with pipelines here"},
    {"data_parallel_sharding_strategy = optim_grads_params", kMapped, "parallel.zero", "\"zero3\"", "goes with pipelines here"},
    {"zero_stage = 0, 1", kMapped, "parallel.zero", "", kStages},
    {"zero_stage = 2, 3", kMapped, "parallel.zero", "", kReducesOften},
    {"deepspeed, deepspeed_config, deepspeed_activation_checkpointing, no_pipeline_parallel, no_deepspeed", kAlways, "", "",
     "flags of Megatron-DeepSpeed: the file of --deepspeed_config is read"},
    {"use_torch_fsdp2", kMapped, "parallel.zero@torch_fsdp", "true", "parallel.zero zero3"},
    {"torch_fsdp2_no_reshard_after_forward", kMapped, "parallel.zero", "\"shard_grad_op\""},
    {"num_distributed_optimizer_instances = 1", kAlways, "", "", "state is sharded over all data-parallel ranks"},
    {"num_distributed_optimizer_instances", kNotBuilt, "parallel.shard_group@replicate", "",
     "parallel.shard_group: whole copies of what is sharded"},
    {"outer_dp_sharding_strategy = no_shard", kAlways, "", "", "shard groups have whole copies"},
    {"outer_dp_sharding_strategy, enable_full_sharding_in_hsdp", kRefused, "", "",
     "state is sharded over all data-parallel ranks, or within groups alone"},
    {"overlap_grad_reduce, overlap_param_gather", kMapped, "parallel.overlap", "true"},
    {"overlap_param_gather_with_optimizer_step", kDiffers, "", "",
     "weights are gathered while the next step computes, after the whole update"},
    {"ddp_bucket_size", kMapped, "parallel.bucket_mb", "", "in MB, not in elements: 4 bytes each", "", kElementsToMb},
    {"ddp_num_buckets", kDiffers, "", "", "parallel.bucket_mb is the size of one"},
    {"ddp_pad_buckets_for_high_nccl_busbw, ddp_average_in_collective, no_gradient_reduce_div_fusion, no_align_grad_reduce, "
     "disable_align_grad_reduce, no_align_param_gather, no_delay_grad_reduce, delay_param_gather, use_contiguous_buffers_in_ddp, "
     "DDP_impl, no_contiguous_buffers_in_local_ddp, no_use_layer_wise_param_layout, suggested_communication_unit_size, "
     "create_all_gather_group, fsdp_double_buffer, fsdp_manual_registration, fsdp_db_use_persist_buf_on_alloc_fail, "
     "megatron_fsdp_version, megatron_fsdp_enable_fine_grained_param_gather, megatron_fsdp_max_pool_double_buffer, "
     "init_model_with_meta_device, zero_reduce_scatter, zero_contigious_gradients, zero_reduce_bucket_size, "
     "zero_allgather_bucket_size, "
     "no_strict_fsdp_dtensor_load, disable_strict_fsdp_dtensor_load", kAlways, "", "", "buckets and gathers have one form"},
    {"distributed_backend, local_rank, lazy_mpu_init, fake_process_group", kLauncher, "", "", "ranks are threads or MPI processes"},
    {"distributed_timeout_minutes, distributed_timeout_seconds_after_init", kDiffers, "", "",
     "cuda.nccl_timeout, in seconds and at most 590; a rank that fails ends the others at once"},
};

constexpr ForeignKey kMegatronBatch[] = {
    {"micro_batch_size", kMapped, "batch.micro"},
    {"global_batch_size", kMapped, "batch.global", "",
     "of all ranks, in batch.global / (batch.micro x parallel.data) micro-batches of each; without it one of each"},
    {"rampup_batch_size, step_batch_size_schedule", kDiffers, "", "",
     "the batch does not grow: steps have batch.global sequences from the first on, so that as many steps see more of them"},
    {"decrease_batch_size_if_needed", kDiffers, "", "", "batches that do not divide are refused"},
    {"seq_length, encoder_seq_length", kMapped, "batch.sequence"},
    {"train_iters", kMapped, "run.steps"},
    {"train_samples", kMapped, "run.steps@train_samples"},
    {"train_tokens", kMapped, "run.steps@train_tokens", "", "tokens / (batch.global x batch.sequence)"},
    {"lr_decay_tokens", kMapped, "lr_schedule.decay_steps@decay_tokens", "", "tokens / (batch.global x batch.sequence)"},
    {"lr_warmup_tokens", kMapped, "lr_schedule.warmup_steps@warmup_tokens", "", "tokens / (batch.global x batch.sequence)"},
    {"exit_duration_in_mins", kMapped, "run.max_minutes"},
    {"exit_interval", kDiffers, "", "", "run.steps ends a run, with lr_schedule.decay_steps for the length of the schedule"},
    {"kill_switch_path", kDiffers, "", "", "SIGUSR1 and SIGTERM end a run; no file does"},
    {"exit_signal_handler, exit_signal_handler_for_training, exit_signal, exit_signal_handler_for_dataloader", kAlways, "", "",
     "SIGUSR1 and SIGTERM end a run at the step boundary"},
    {"seed", kMapped, "run.seed", "", "weights and order are the same in every layout, and other ones than Megatron-LM's"},
    {"iterations_to_skip, skip_train_iteration_range, result_rejected_tracker_filename", kRefused, "", "", "all steps are made"},
    {"phase_transition_iterations", kRefused, "", "", "data and batch stay the same; go on from a checkpoint with others"},
    {"skip_train, test_mode, eval_only, no_train", kRefused, "trident eval", "", "evaluates without training"},
    {"manual_gc, manual_gc_interval, no_manual_gc_eval, disable_manual_gc_eval, empty_unused_memory_level, train_sync_interval, "
     "no_barrier_with_level_1_timing", kAlways, "", "", "no memory is collected or allocated within a step"},
    {"yaml_cfg", kRefused, "", "", "import the flags themselves"},
};

constexpr ForeignKey kMegatronModel[] = {
    {"num_layers, encoder_num_layers", kMapped, "model.num_hidden_layers", "", "n_layer for model_type gpt2"},
    {"hidden_size", kMapped, "model.hidden_size", "", "n_embd for gpt2"},
    {"ffn_hidden_size, intermediate_size", kMapped, "model.intermediate_size", "",
     "n_inner for gpt2; without it 4 x hidden, or 8/3 with --swiglu"},
    {"num_attention_heads", kMapped, "model.num_attention_heads", "", "n_head for gpt2"},
    {"group_query_attention", kMapped, "model.num_key_value_heads@grouped_queries", "true", "then --num-query-groups counts"},
    {"num_query_groups, num_key_value_heads, n_head_kv", kMapped, "model.num_key_value_heads"},
    {"num_key_value_heads, n_head_kv", kMapped, "model.num_key_value_heads@grouped_queries", "true", "Megatron-DeepSpeed's name"},
    {"kv_channels", kMapped, "model.head_dim"},
    {"max_position_embeddings", kMapped, "model.max_position_embeddings", "", "n_positions for gpt2"},
    {"position_embedding_type = learned_absolute, rope", kMapped, "model.model_type@position_embedding", "",
     "rotary with llama, qwen2, qwen3, mistral; learned with gpt2"},
    {"position_embedding_type = rotary", kMapped, "model.model_type@position_embedding", "\"rope\"", "Megatron-DeepSpeed's name"},
    {"use_rotary_position_embeddings, use_llama2_rotary_position_embeddings, no_position_embedding", kMapped,
     "model.model_type@position_embedding", "\"rope\""},
    {"position_embedding_type, rope_type = yarn, mrope, relative, none, alibi", kRefused, "", "",
     "rotary or learned positions; model.hf_config takes a config.json with YaRN"},
    {"rope_type = rope", kAlways, "", "", "rotary positions without MLA are those"},
    {"use_alibi_mask, embed_layernorm", kRefused, "", "", "no model here has it; docs/models.md lists those that are"},
    {"rotary_base, rotary_position_embeddings_theta", kMapped, "model.rope_theta"},
    {"rotary_percent", kMapped, "model.partial_rotary_factor"},
    {"rotary_seq_len_interpolation_factor", kMapped, "model.rope_scaling@rope_linear_factor", "",
     "model.rope_scaling, rope_type linear"},
    {"use_rope_scaling", kMapped, "model.rope_scaling@rope_scaling", "true", "model.rope_scaling, rope_type llama3"},
    {"rope_scaling_factor", kMapped, "model.rope_scaling@rope_llama3_factor"},
    {"swiglu", kMapped, "model.model_type@swiglu", "true", "model_type llama and its kin; without it gpt2's GELU"},
    {"openai_gelu", kAlways, "", "", "GELU has its tanh form"},
    {"normalization = RMSNorm", kMapped, "model.model_type@normalization", "\"RMSNorm\""},
    {"normalization", kMapped, "model.model_type@normalization", "", "RMSNorm with llama and its kin; layer norm with gpt2"},
    {"norm_epsilon, layernorm_epsilon", kMapped, "model.rms_norm_eps", "", "layer_norm_epsilon for gpt2", "1e-5"},
    {"apply_layernorm_1p", kAlways, "", "",
     "norms keep their weights, not those less one: without decay on them the same training"},
    {"qk_layernorm", kMapped, "model.model_type@qk_layernorm", "true", "model_type qwen3"},
    {"disable_bias_linear", kMapped, "model.model_type@bias_linear", "false", "llama, qwen2, qwen3, mistral; gpt2 has all biases"},
    {"add_qkv_bias", kMapped, "model.model_type@qkv_bias", "true", "with --disable-bias-linear: model_type qwen2"},
    {"untie_embeddings_and_output_weights", kMapped, "model.tie_word_embeddings", "false"},
    {"window_size", kMapped, "model.sliding_window@window", "",
     "model.sliding_window is one more: it counts the token itself; of mistral, qwen2, qwen3"},
    {"hidden_dropout", kMapped, "model.dropout", "", "", "0.1"},
    {"attention_dropout = 0", kAlways, "@attention_dropout", "0", "attention probabilities have no dropout"},
    {"attention_dropout", kRefused, "", "",
     "attention probabilities have no dropout, not even the 0.1 that is Megatron-LM's default; --hidden-dropout is another one"},
    {"init_method_std", kMapped, "model.initializer_range"},
    {"embedding_init_method_std, init_method_xavier_uniform, data_parallel_random_init", kDiffers, "", "",
     "all weights begin with --init-method-std, the same on every rank"},
    {"use_cpu_initialization, no_initialization", kAlways, "", "", "initial weights do not depend on the layout"},
    {"make_vocab_size_divisible_by, pad_vocab_size_to, extra_vocab_size, no_pad_vocab_size, disable_pad_vocab_size", kAlways, "",
     "", "the table is padded for the tensor ranks; padding has no part in the loss"},
    {"fp32_residual_connection, apply_query_key_layer_scaling, no_query_key_layer_scaling, attention_softmax_in_fp32", kAlways, "",
     "", "scores and softmax are in fp32, residuals in precision.compute"},
    {"softmax_type = vanilla", kAlways, "", "", "softmax is plain"},
    {"mtp_*, multi_latent_attention, q_lora_rank, kv_lora_rank, qk_head_dim, qk_pos_emb_head_dim, v_head_dim, "
     "rotary_scaling_factor, mscale, mscale_all_dim, cache_mla_latents, mla_down_proj_fusion", kRefused, "", "",
     "no multi-token prediction, no latent attention"},
    {"is_hybrid_model, hybrid_*, mamba_*, disable_mamba_mem_eff_path, gdp_*, linear_*, experimental_attention_variant, dsa_*, "
     "no_dsa_*, disable_dsa_*", kRefused, "", "", "attention alone: no state space, linear or sparse layers"},
    {"heterogeneous_*, no_rope_freq, window_attn_skip_freq", kRefused, "", "",
     "all layers are alike; model.hf_config says otherwise of windows"},
    {"squared_relu, quick_geglu, glu_linear_offset, activation_func_clamp_value, use_fused_weighted_squared_relu, softmax_type, "
     "qk_l2_norm, qk_clip*, attention_output_gate, apply_residual_connection_post_layernorm, rotary_interleaved, "
     "relative_attention_*, mrope_section, yarn_*, no_yarn_*, use_mup, mup_*, enable_mhc_connections, mhc_*, spec, "
     "fused_residual_rmsnorm", kRefused, "", "", "no model here has it; docs/models.md lists those that are"},
    {"transformer_impl, use_mcore_models, use_legacy_models, onnx_safe, no_persist_layer_norm, model_provider, "
     "abort_on_unmet_fused_kernel_constraints, sync_tp_duplicated_parameters", kAlways, "", "",
     kMegatronOneOf},
    {"vision_*, num_classes, img_*, num_channels, patch_dim, classes_fraction, data_per_class_fraction, no_data_sharding, "
     "head_lr_mult, swin_backbone_type, mask_type, mask_factor, iter_per_epoch, dino_*, ict_*, biencoder_*, bert_*, "
     "titles_data_path, query_in_block_prob, use_one_sent_docs, evidence_data_path, retriever_*, retro_*, block_data_path, "
     "embedding_path, indexer_*, mask_prob, short_seq_prob, vocab_extra_ids, decoder_num_layers, decoder_seq_length, "
     "output_bert_embeddings, sample_rate", kRefused, "", "", "decoders of text alone: no images, encoders or retrieval"},
};

constexpr ForeignKey kMegatronOptimizer[] = {
    {"optimizer = adam", kMapped, "optimizer.type", "\"adamw\"", "its adam decouples the decay, too"},
    {"optimizer = lion", kMapped, "optimizer.type", "\"lion\""},
    {"optimizer = muon, dist_muon, adaptive_muon", kNotBuilt, "optimizer.type", "\"muon\""},
    {"optimizer = sgd", kNotBuilt, "optimizer.type", "\"sgd\""},
    {"optimizer, sgd_momentum, muon_*", kRefused, "", "", "no other rule than those of optimizer.type"},
    {"lion_beta1", kMapped, "optimizer.betas@lion_beta1", "", "optimizer.betas with lion", "0.95"},
    {"lion_beta2", kMapped, "optimizer.betas@lion_beta2", "", "optimizer.betas with lion", "0.98"},
    {"lr", kMapped, "optimizer.lr"},
    {"min_lr", kMapped, "lr_schedule.min_lr"},
    {"adam_beta1", kMapped, "optimizer.betas@beta1", "", "", "0.9"},
    {"adam_beta2", kMapped, "optimizer.betas@beta2", "", "", "0.999"},
    {"adam_eps", kMapped, "optimizer.eps"},
    {"weight_decay", kMapped, "optimizer.weight_decay", "", "", "0.01"},
    {"weight_decay_incr_style = constant", kAlways, "", "", "weight decay is constant"},
    {"start_weight_decay, end_weight_decay, weight_decay_incr_style", kRefused, "", "", "weight decay is constant"},
    {"apply_wd_to_qk_layernorm, no_weight_decay_cond_type", kRefused, "", "",
     "one-dimensional parameters and biases are not decayed"},
    {"clip_grad", kMapped, "optimizer.grad_clip", "", "", "1.0"},
    {"lr_decay_style", kMapped, "lr_schedule.type", "", "", "\"linear\""},
    {"lr_decay_iters", kMapped, "lr_schedule.decay_steps"},
    {"lr_decay_samples", kMapped, "lr_schedule.decay_steps@decay_samples"},
    {"lr_warmup_iters", kMapped, "lr_schedule.warmup_steps"},
    {"lr_warmup_samples", kMapped, "lr_schedule.warmup_steps@warmup_samples"},
    {"lr_warmup_fraction", kMapped, "lr_schedule.warmup_steps@warmup_fraction", "", "lr_schedule.warmup_steps = X x decay_steps"},
    {"lr_warmup_init = 0", kAlways, "", "", "the warm-up starts at 0"},
    {"lr_warmup_init", kDiffers, "", "", "the warm-up starts at 0"},
    {"lr_wsd_decay_iters", kMapped, "lr_schedule.wsd_decay_steps"},
    {"lr_wsd_decay_samples", kMapped, "lr_schedule.wsd_decay_steps@wsd_decay_samples", "",
     "lr_schedule.wsd_decay_steps = samples / batch.global"},
    {"lr_wsd_decay_style", kMapped, "lr_schedule.wsd_decay_type"},
    {"decoupled_lr, decoupled_min_lr", kDiffers, "", "",
     "one learning rate for all parameters: embedding and head train with --lr"},
    {"override_opt_param_scheduler, use_checkpoint_opt_param_scheduler, override_lr_scheduler, use_checkpoint_lr_scheduler",
     kAlways, "", "", "the configuration decides; a checkpoint that was trained with another one is refused by key"},
    {"freeze_all_layers", kRefused, "", "", "train.freeze says which parameters stay"},
};

constexpr ForeignKey kMegatronPrecision[] = {
    {"bf16", kMapped, "precision.compute", "\"bf16\"", "without it and --fp16: fp32"},
    {"fp16", kMapped, "precision.compute", "\"fp16\""},
    {"loss_scale", kMapped, "precision.loss_scale"},
    {"initial_loss_scale, min_loss_scale, loss_scale_window, hysteresis", kDiffers, "", "",
     "with fp16 the scale is found while training, from a start and in a window of its own"},
    {"fp8_format", kNotBuilt, "precision.fp8@fp8", "true", "precision.fp8"},
    {"fp8_recipe = tensorwise, mxfp8", kNotBuilt, "precision.fp8@fp8_recipe", "", "precision.fp8"},
    {"fp8_*, no_fp8_wgrad, disable_fp8_wgrad, fp4_*, first_last_layers_bf16, num_layers_at_start_in_bf16, "
     "num_layers_at_end_in_bf16, keep_fp8_transpose_cache, keep_fp8_transpose_cache_when_using_custom_fsdp, "
     "reuse_grad_buf_for_mxfp8_param_ag, te_precision_config_file, kitchen_*, use_kitchen_attention", kDiffers, "", "",
     "goes with --fp8-format: precision.fp8"},
    {"accumulate_allreduce_grads_in_fp32", kMapped, "precision.reduce", "\"fp32\"", "always"},
    {"grad_reduce_in_bf16", kDiffers, "precision.reduce", "\"fp32\"", "gradients are summed in fp32"},
    {"main_grads_dtype, main_params_dtype, exp_avg_dtype, exp_avg_sq_dtype = fp32", kAlways, "", "",
     "master weights, gradients and moments are fp32"},
    {"main_grads_dtype, main_params_dtype, exp_avg_dtype, exp_avg_sq_dtype, use_precision_aware_optimizer, "
     "megatron_fsdp_main_params_dtype, megatron_fsdp_main_grads_dtype, megatron_fsdp_grad_comm_dtype", kDiffers, "", "",
     "master weights, gradients and moments are fp32"},
    {"ddp_reduce_scatter_with_fp32_accumulation, ddp_param_name_patterns_for_fp32_local_accumulation, "
     "disable_bf16_reduced_precision_matmul", kAlways, "", "", "sums are in fp32"},
    {"fp16_lm_cross_entropy, output_logit_dtype", kDiffers, "", "", "cross-entropy is computed in fp32"},
    {"recompute_activations, recompute_granularity = true, selective", kMapped, "recompute.policy", "\"selective\""},
    {"recompute_granularity = full", kMapped, "recompute.policy", "\"full\"", "every block"},
    {"checkpoint_activations, activations_checkpoint_method", kMapped, "recompute.policy", "\"full\"", "Megatron-LM's old name"},
    {"recompute_modules = core_attn", kAlways, "", "", "selective is attention"},
    {"recompute_method, recompute_num_layers, recompute_modules, distribute_saved_activations, checkpoint_num_layers, "
     "activations_checkpoint_num_layers, distribute_checkpointed_activations, partition_activations, contigious_checkpointing, "
     "synchronize_each_layer, profile_backward", kDiffers, "", "",
     "one policy for all blocks, each by itself: memory differs, no number does"},
    {"optimizer_cpu_offload, cpu_optimizer", kNotBuilt, "offload.optimizer", "\"host\""},
    {"cpu_offloading_num_layers, cpu_offloading, checkpoint_in_cpu, fine_grained_activation_offloading", kNotBuilt,
     "offload.activations", "\"host\""},
    {"optimizer_offload_fraction, optimizer_offload_policy, use_torch_optimizer_for_cpu_offload, overlap_cpu_optimizer_d2h_h2d, "
     "no_pin_cpu_grads, no_pin_cpu_params, offload_modules, min_offloaded_tensor_size, delay_offload_until_cuda_graph, "
     "delta_offload_bytes_across_pp_ranks, activation_offload_fraction, fine_grained_offloading_max_inflight_offloads, "
     "cpu_offloading_retain_pinned_cpu_buffers", kDiffers, "", "", "goes with offloading: offload.optimizer, offload.activations"},
};

constexpr ForeignKey kMegatronData[] = {
    {"data_path", kMapped, "data.train", "", "PREFIX.bin and PREFIX.idx work as they are; W1 PREFIX1 W2 PREFIX2 is a blend"},
    {"train_data_path", kMapped, "data.train@train_data_path", "", "data.train, all of it"},
    {"valid_data_path", kMapped, "data.valid"},
    {"test_data_path", kDiffers, "", "", "nothing reads it while training: trident eval --data PREFIX"},
    {"data_args_path, per_split_data_args_path, data_file_list, train_weighted_split_paths, valid_weighted_split_paths, "
     "test_weighted_split_paths, train_weighted_split_paths_path, valid_weighted_split_paths_path, test_weighted_split_paths_path",
     kDiffers, "", "",
     "such a list is not read: give its weights and prefixes as data.train, and those of validation as data.valid"},
    {"train_sample_idx_path, train_doc_idx_path, train_shuffle_idx_path, data_efficiency_curriculum_learning, random_ltd", kRefused,
     "", "", "samples are whole, in an order drawn from run.seed"},
    {"train_mode = pretrain", kAlways, "", "", "the next token is predicted"},
    {"dataset, max_padding_length, patch_tokenizer_type", kAlways, "", "", "token files are made already"},
    {"split", kMapped, "data.split"},
    {"padded_vocab_size", kMapped, "model.vocab_size@padded_vocabulary", "", "model.vocab_size, where nothing else says it"},
    {"vocab_size", kMapped, "model.vocab_size", "", "without it that of --tokenizer-type, where one is known"},
    {"tokenizer_type = GPT2BPETokenizer", kMapped, "data.tokenizer", "\"gpt2\"", "what pretrain_gpt.py takes without the flag"},
    {"tokenizer_type = NullTokenizer", kMapped, "data.tokenizer", "null"},
    {"tokenizer_type = HuggingFaceTokenizer, SentencePieceTokenizer, GPTSentencePieceTokenizer, Llama2Tokenizer, TikTokenizer, "
     "MultimodalTokenizer, SFTTokenizer, PretrainedFromHF, HFTokenizer", kMapped, "data.tokenizer@tokenizer_type", "",
     "data.tokenizer is what --tokenizer-model names"},
    {"tokenizer_type", kRefused, "", "", "no such tokenizer; data.tokenizer takes a name, a model's folder or a tokenizer's file"},
    {"tokenizer_model, tokenizer_name_or_path", kMapped, "data.tokenizer", "", "a name, a model's folder or a tokenizer's file"},
    {"vocab_file, merge_file, tokenizer_metadata, tokenizer_special_tokens, tiktoken_*, tokenizer_sentencepiece_legacy, "
     "no_tokenizer_sentencepiece_ignore_extra_whitespaces, disable_tokenizer_sentencepiece_ignore_extra_whitespaces, "
     "tokenizer_hf_*, trust_remote_code, null_tokenizer_*, legacy_tokenizer, use_gigatoken, allow_ambiguous_pad_tokens", kAlways,
     "", "", "token files are made already; data.tokenizer only reads and writes texts"},
    {"chat_template", kRefused, "trident data prepare --chat --template FILE", "", "chats are rendered when data is prepared"},
    {"sft, sft_tokenizer_prompt_format", kRefused, "trident data prepare --chat", "",
     "and trident data pack, then data.samples=packed"},
    {"mock_data", kDiffers, "", "", "no tokens are invented: give data.train, such as a small text that trident data prepare made"},
    {"data_cache_path, no_mmap_bin_files, mmap_warmup, data_impl, s3_cache_path, object_storage_cache_path, enable_msc, "
     "disable_msc, dataloader_fast_cache_load, dataloader_defer_npy_index_mmap, per_dataset_sequences_path, "
     "mid_level_dataset_surplus, num_dataset_builder_threads", kAlways, "", "",
     "files are read by pread, the order of samples is computed: there is no cache"},
    {"dataloader_type = single, cyclic", kAlways, "", "", kMegatronReadAhead},
    {"num_workers, valid_num_workers", kAlways, "", "", kMegatronReadAhead},
    {"dataloader_type", kRefused, "", "", "samples come from token files"},
    {"reset_position_ids", kMapped, "data.reset_position_ids", "true"},
    {"reset_attention_mask", kMapped, "data.reset_attention_mask", "true"},
    {"eod_mask_loss", kMapped, "data.eod_mask_loss", "true"},
    {"dataloader_inter_document_masking", kMapped, "data.reset_attention_mask@documents_apart", "true",
     "data.reset_attention_mask and data.reset_position_ids, with data.boundaries \"index\""},
    {"no_create_attention_mask_in_dataloader", kAlways, "", "", "masks are never tensors"},
    {"calculate_per_token_loss", kAlways, "", "",
     "the loss is the mean over the step's targets; Megatron-LM's own default is one of micro-batches"},
    {"renormalize_blend_weights", kAlways, "", "", "weights are relative to their sum"},
    {"fim_*", kRefused, "", "", "texts are not cut for filling in"},
    {"tools/preprocess_data.py, append_eod", kAlways, "trident data prepare --append-eod --workers N", "", "makes the same files"},
    {"tools/merge_datasets.py", kAlways, "trident data merge", "", "joins files"},
};

constexpr ForeignKey kMegatronSaving[] = {
    {"save", kMapped, "checkpoint.dir", "", "and run.dir, unless it is given: logs lie beside the checkpoints"},
    {"load", kMapped, "checkpoint.resume", "", "auto where it is --save's folder; a checkpoint of Trident, not of Megatron-LM"},
    {"finetune", kMapped, "model.init_from@finetune", "true", "--load becomes model.init_from"},
    {"pretrained_checkpoint", kMapped, "model.init_from", "",
     "a checkpoint of trident, a folder of them, or a Hugging Face folder"},
    {"save_interval, persistent_save_interval", kMapped, "checkpoint.every"},
    {"save_retain_interval", kMapped, "checkpoint.keep_every"},
    {"most_recent_k", kMapped, "checkpoint.keep_last", "", "Megatron-LM keeps all: 0 here", "0"},
    {"no_save_optim", kMapped, "checkpoint.content", "\"weights\""},
    {"no_save_rng", kAlways, "", "", "random numbers follow from run.seed and the step: none are saved"},
    {"no_load_optim, no_load_rng, reset_progress", kDiffers, "", "", "model.init_from begins with weights and a fresh optimizer"},
    {"ckpt_step, override_ckpt_iteration", kDiffers, "", "", "name that checkpoint's folder in checkpoint.resume"},
    {"use_checkpoint_args, use_mp_args_from_checkpoint_args, no_use_tokenizer_model_from_checkpoint_args, "
     "disable_use_tokenizer_model_from_checkpoint_args", kDiffers, "", "",
     "the configuration says it; a checkpoint of another model is refused"},
    {"exit_on_missing_checkpoint", kAlways, "", "", "a checkpoint.resume that names a path must have one"},
    {"non_persistent_*, replication*", kDiffers, "", "", "checkpoints have one kind, in checkpoint.dir"},
    {"async_save, async_strategy, async_ckpt_*, use_persistent_ckpt_worker", kAlways, "", "",
     "training goes on while a checkpoint is written"},
    {"ckpt_convert_format, ckpt_convert_save, ckpt_convert_update_legacy_dist_opt_format", kRefused, "trident convert", "",
     "turns checkpoints and Hugging Face folders into one another"},
    {"ckpt_*, no_ckpt_*, disable_ckpt_*, auto_detect_ckpt_format, dist_ckpt_*, distrib_optim_fully_reshardable_mem_efficient, "
     "use_dist_ckpt, universal_checkpoint, load_main_params_from_ckpt, load_model_opt_format, no_save_tokenizer_assets, "
     "disable_save_tokenizer_assets, verify_integrity", kAlways, "", "", "one format, read in any layout; checksums are compared"},
    {"save_params_interval, save_activations_interval, save_tokens_per_expert_interval, save_wgrads_interval, save_dgrads_interval",
     kDiffers, "", "", "no tensors are written but checkpoints"},
};

constexpr ForeignKey kMegatronLogging[] = {
    {"log_interval", kMapped, "log.every", "", "", "100"},
    {"tensorboard_dir", kMapped, "log.tensorboard", "true", "in run.dir"},
    {"wandb_*, one_logger_*, no_one_logger, enable_one_logger, app_tag_run_*, otel_*, codecarbon_dir", kDiffers, "", "",
     kSendsNothing},
    {"log_*, no_log_*, disable_log_*, tensorboard_log_interval, tensorboard_queue_size, timing_log_level, timing_log_option, "
     "logging_level, config_logger_dir, dump_param_to_param_group_map", kAlways, "", "",
     "metrics.jsonl always has tokens/s, MFU, bytes and memory"},
    {"eval_interval", kMapped, "eval.every"},
    {"eval_iters", kMapped, "eval.steps", "", "", "100"},
    {"eval_global_batch_size, eval_micro_batch_size, start_eval_at_iter, full_validation", kDiffers, "", "",
     "evaluations take eval.steps batches of batch.global, every eval.every steps"},
    {"multiple_validation_sets, validation_set_names", kAlways, "", "", "each prefix of data.valid has numbers of its own"},
    {"profile", kMapped, "log.trace_steps@profile", "true", "log.trace_steps"},
    {"profile_step_start", kMapped, "log.trace_steps@profile_start", "", "log.trace_steps"},
    {"profile_step_end", kMapped, "log.trace_steps@profile_end", "", "log.trace_steps"},
    {"profile_ranks, use_pytorch_profiler, pytorch_profiler_*, record_memory_history, memory_snapshot_path, record_shapes, "
     "nvtx_ranges", kDiffers, "", "", "log.trace_steps and memory.json in the run directory show all ranks"},
    {"no_check_for_nan_in_loss_and_grad, check_for_nan_in_loss_and_grad, check_for_large_grads, check_for_spiky_loss, rerun_mode",
     kAlways, "", "", "a step with a non-finite gradient is not applied; ten in a row end the run"},
    {"deterministic_mode", kMapped, "cuda.deterministic", "true", "equal layouts give equal bits"},
    {"check_weight_hash_across_dp_replicas_interval, gpu_sniff_test_interval, straggler_*, disable_straggler_on_startup, "
     "flight_recorder_*, no_flight_recorder_*, disable_flight_recorder_*, enable_ft_package, calc_ft_timeouts, "
     "ft_num_warmup_iters, inprocess_*, adlr_autoresume*, run_workload_inspector_server, coordinator_*", kDiffers, "", "",
     "trident supervise starts a run again; timing.jsonl names the slowest rank"},
    {"error_injection_*, fault_injector_*", kRefused, "", "", "tests inject faults, not runs"},
};

constexpr ForeignKey kMegatronKernels[] = {
    {"use_flash_attn*, attention_backend, flash_attention_version", kAlways, "", "", "attention never stores the scores"},
    {"tp_comm_overlap", kNotBuilt, "parallel.tensor_overlap", "\"chunked\""},
    {"tp_comm_*, no_tp_comm_*, disable_tp_comm_*, no_async_tensor_model_parallel_allreduce", kDiffers, "", "",
     "goes with --tp-comm-overlap"},
    {"no_bias_gelu_fusion", kMapped, "cuda.epilogues", "false", "true leaves biases and GELU to cuBLASLt"},
    {"gradient_accumulation_fusion, no_gradient_accumulation_fusion, no_masked_softmax_fusion, no_bias_swiglu_fusion, "
     "no_bias_dropout_fusion, no_rope_fusion, use_te_activation_func, use_transformer_engine_op_fuser, "
     "use_flashinfer_fused_rope, cross_entropy_loss_fusion, cross_entropy_fusion_impl, disable_jit_fuser, "
     "no_clone_scatter_output_in_embedding, disable_clone_scatter_output_in_embedding, te_rng_tracker, inference_rng_tracker, "
     "defer_embedding_wgrad_compute, wgrad_deferral_limit, delay_wgrad_compute, batch_invariant_*, mlp_chunks_for_training, "
     "enable_experimental", kAlways, "", "", kMegatronOneOf},
    {"no_overlap_p2p_communication, overlap_p2p_communication_warmup_flush, no_scatter_gather_tensors_in_pipeline, "
     "use_ring_exchange_p2p, pipeline_model_parallel_comm_backend, disable_gloo_process_groups, use_sharp, sharp_enabled_group, "
     "high_priority_*, symmetric_ar_type, disable_symmetric_registration", kAlways, "", "",
     "activations are sent while the next pass computes, through NCCL as it is set up"},
    {"use_nccl_ub", kMapped, "cuda.nccl_register", "true"},
    {"nccl_communicator_config_path", kDiffers, "", "", "cuda.nccl_max_ctas has thread blocks by axis"},
    {"cuda_graph_impl = none", kMapped, "cuda.graphs", "false"},
    {"cuda_graph_impl, enable_cuda_graph, external_cuda_graph", kMapped, "cuda.graphs", "true"},
    {"cuda_graph_*, optimizer_cuda_graph", kAlways, "", "", "cuda.graphs captures passes and updates of each unit"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", kAlways, "", "", "no order of kernels depends on it"},
};

constexpr ForeignKey kMegatronPrograms[] = {
    {"perform_rl_step, rl_*, no_rl_*, grpo_*, langrl_*, refit_method", kRefused, "", "",
     "answers are not drawn while training; loss.type=dpo learns from pairs"},
    {"logits_*, teacher_model_config, distill*, export_kd_*", kRefused, "", "", "no distillation"},
    {"inference_*, no_inference_*, max_tokens_to_oom, use_legacy_static_engine, decode_only_cuda_graphs, enable_chunked_prefill, "
     "disable_chunked_prefill, num_speculative_tokens, use_same_sampling_seed_across_dp_ranks, flash_decode, "
     "nccl_all_reduce_for_prefill, mlp_chunks_for_prefill", kAlways, "trident generate", "", "has no part in training"},
    {"export_*, modelopt_enabled, finetune_hf_dataset, finetune_data_split, qad_train_target, freeze_base_for_mtp", kRefused, "",
     "", "no quantisation after training"},
    {"flextron, flex_*, router_*, budget_*, enable_router, freeze_router, freeze_model", kRefused, "", "",
     "one model is trained, not a family within it"},
};

constexpr ForeignSection kMegatronSections[] = {
    {ForeignSystem::kMegatron, "Parallelism", kMegatronParallel},
    {ForeignSystem::kMegatron, "Batch and run", kMegatronBatch},
    {ForeignSystem::kMegatron, "Model", kMegatronModel},
    {ForeignSystem::kMegatron, "Optimizer and learning rate", kMegatronOptimizer},
    {ForeignSystem::kMegatron, "Precision and memory", kMegatronPrecision},
    {ForeignSystem::kMegatron, "Data", kMegatronData},
    {ForeignSystem::kMegatron, "Checkpoints", kMegatronSaving},
    {ForeignSystem::kMegatron, "Logging, evaluation, debugging", kMegatronLogging},
    {ForeignSystem::kMegatron, "Kernels and communication", kMegatronKernels},
    {ForeignSystem::kMegatron, "Other programs", kMegatronPrograms},
};

}  // namespace

std::span<const ForeignSection> megatron_sections() { return kMegatronSections; }

}  // namespace trident
