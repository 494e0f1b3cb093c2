// LLaMA-Factory 0.9.5's arguments of train, beyond those of Hugging Face.
system("LLaMA-Factory", "LLaMA-Factory's default", R"({"lora_rank": 8, "cutoff_len": 2048})"),
heading("Training and adapters"),
always("program", "stage says what trains", "@program"),
{"stage = sft, pt, dpo", kMapped, "loss.type@stage", {}, "it says whose defaults count", "\"sft\""},
refused("stage", "there is no such training here", "sft, pt or dpo"),
always("export_dir", "with it nothing is trained: trident convert --from peft BASE ADAPTER --to hf DIR merges", "@export_dir"),
refused("infer_backend", "with it nothing is trained", "trident generate"),
always("do_train", "stage says what trains", "@trains"),
always("do_predict", "it measures a checkpoint: trident eval", "@predicts"),
refused("task, task_dir, lang, n_shot, save_dir", "of llamafactory-cli eval, with which nothing is trained", "trident eval"),
{"finetuning_type = lora", kMapped, "adapter.type", "\"lora\"", {}, "\"lora\""},
{"finetuning_type = full", kMapped, "adapter.type", "null", "all weights train"},
refused("finetuning_type = freeze", "train.only names the tensors that train, such as model\\.layers\\.(30|31)\\..*"),
{"lora_alpha", kMapped, "adapter.alpha", {}, "twice adapter.r where it is left out"},
{"packing, sft_packing = true", kMapped, "data.samples@packing", "\"stream\"", "the stream of tokens is cut at every "
 "batch.sequence; neat_packing keeps conversations apart"},
{"neat_packing", kMapped, "data.samples@packing_strategy", "\"neat\"", "after trident data pack"},
{"pure_bf16", kDiffers, "precision.compute", "\"bf16\"", "master weights stay fp32 here"},
{"disable_gradient_checkpointing = true", kMapped, "recompute.policy", "\"none\"", {}, {}, kUnlessSaid},
{"disable_gradient_checkpointing", kMapped, "recompute.policy", "\"full\"", {}, "false"},
always("quantization_method, quantization_device_map", "the one that quantization_bit names"),
{"use_muon", kNotBuilt, "optimizer.type", "\"muon\""},
refused("use_galore, use_apollo, use_badam, use_llama_pro, use_adam_mini, use_dft_loss, use_asft_loss, use_eaft_loss, "
 "use_hyper_parallel, pissa_init, loraplus_lr_ratio, mixture_of_depths, shift_attn, pref_bco_weight, freeze_language_model, "
 "use_kt, ref_model_adapters, finetuning_type, loftq_init", kNoSuchMethod),
refused("reward_model", "nothing is rewarded here, and stage is sft, pt or dpo"),
refused("moe_aux_loss_coef", "there are no experts here"),
refused("model, model_class, kernel_config*, dist_config*, peft_config*, quant_config*, train_dataset, micro_batch_size, "
 "optim_config*, init_config*, sample_backend, custom_chat_template, cp_mode, cp_size", "keys of LLaMA-Factory's files of version "
 "1: write those of version 0.9, model_name_or_path and its like"),
differs("train_from_scratch", "model.hf_config names the folder whose config.json new weights are made for", "model.hf_config"),
{"disable_shuffling", kMapped, "data.shuffle", "false"},
differs("resize_vocab, add_tokens, add_special_tokens, new_special_tokens, new_special_tokens_config, init_special_tokens, "
 "split_special_tokens", kMoreTokens),
always("freeze_*, module_dropout, hyper_parallel_args, hyper_parallel_cp_size, reward_model_*, ref_model_quantization_bit, "
 "adapter_folder, create_new_adapter, kt_*, export_*, infer_*, fp8_*, crop_to_patches, use_audio_in_video, audio_sampling_rate, "
 "media_dir, visual_inputs, tune_mm_proj, train_mm_proj_only, use_mllm, num_layer_trainable, name_module_trainable, cpu_infer, "
 "chunk_size, orpo_beta, download_mode", "of a method that is not asked for, or of images, export and inference"),
heading("Model and data"),
differs("train_on_prompt = true", kWithData, "trident data prepare --chat --loss all"),
differs("mask_history = true", kWithData, "trident data prepare --chat --loss last"),
always("train_on_prompt, mask_history", kWithData),
always("dataset_dir", "its dataset_info.json says which file a data set is", "@data_folder"),
always("flash_attn, attn, use_unsloth, use_unsloth_gc, enable_liger_kernel, use_v1_kernels, use_kernels, use_reentrant_gc, "
 "upcast_layernorm, upcast_lmhead_output, use_kv_cache, block_diag_attn, compute_dtype, device_map, offload_folder, "
 "model_max_length, print_param_status", "attention never stores the scores, norms and the loss are in fp32, and there is one "
 "implementation"),
always("plot_loss, compute_accuracy, include_effective_tokens_per_second", "report.html draws the loss, metrics.jsonl has every "
 "number"),
heading("Megatron-LM, by use_mca or use_megatron_bridge"),
always("use_mca, use_megatron_bridge, megatron_bridge_args", "parallel.* says how layers are divided"),
{"tensor_model_parallel_size", kMapped, "parallel.tensor"},
{"pipeline_model_parallel_size", kMapped, "parallel.pipeline"},
{"virtual_pipeline_model_parallel_size", kMapped, "parallel.virtual_stages"},
{"sequence_parallel", kMapped, "parallel.sequence_parallel"},
{"use_distributed_optimizer = true", kMapped, "parallel.zero", "\"zero1\""},
{"use_distributed_optimizer", kMapped, "parallel.zero", "\"ddp\""},
{"recompute_granularity = full", kMapped, "recompute.policy", "\"full\"", "every block"},
{"recompute_granularity", kMapped, "recompute.policy"},
{"mixed_precision = bf16_mixed", kMapped, "precision.compute", "\"bf16\""},
{"mixed_precision = 16_mixed", kMapped, "precision.compute", "\"fp16\""},
differs("recompute_method, recompute_num_layers", "recompute.policy holds for every block"),
always("expert_model_parallel_size = 1", "1 is none"),
refused("expert_model_parallel_size, moe_grouped_gemm, moe_token_dispatcher_type", "dense models only"),
always("bias_activation_fusion, apply_rope_fusion, masked_softmax_fusion, cross_entropy_loss_fusion, overlap_*, account_for_*, "
 "calculate_per_token_loss, use_packed_sequences", "the default here, or one form of an operation"),
differs("megatron_pretrained_checkpoint, extra_config", "model.init_from is a folder of Hugging Face's form, and keys are "
 "Trident's"),
heading("Ranks"),
always("checkpoint_dir, resume_lora_training, max_source_length, dev_ratio, prompt_template, ref_model_checkpoint, neft_alpha, "
 "dpo_ref_model, dpo_ref_model_checkpoint, hf_auth_token, padding_side, lora_bf16_mode, disable_version_checking, "
 "aqlm_optimization, use_adammini, efficient_packing, system_message", "LLaMA-Factory 0.9 reads no such key"),
launcher("ray_num_workers, ray_run_name, ray_storage_*, resources_per_worker*, placement_strategy, ray_init_kwargs*, master_addr, "
 "master_port", "mpirun or srun starts the ranks"),
