// LLaMA-Factory 0.9.5's arguments of train, beyond those of Hugging Face.
#include "import/foreign/tables.h"

namespace trident {
namespace {

using enum Verdict;

constexpr ForeignKey kLlamaFactoryRows[] = {
    heading("Training and adapters"),
    always("program", "stage says what trains"),
    {"stage = sft, pt, dpo", kMapped, "loss.type@stage", {}, "it says whose defaults count", "\"sft\""},
    refused("stage", "sft, pt and dpo are there"),
    refused("export_dir", "with it nothing is trained", "trident convert"),
    refused("infer_backend", "with it nothing is trained", "trident generate"),
    {"finetuning_type = lora", kMapped, "adapter.type", "\"lora\"", {}, "\"lora\""},
    {"finetuning_type = full", kMapped, "adapter.type", "null", "all weights train"},
    refused("finetuning_type = freeze", "train.only names the tensors that train, such as model\\.layers\\.(30|31)\\..*"),
    {"lora_rank", kMapped, "adapter.r", {}, {}, "8"},
    {"lora_alpha", kMapped, "adapter.alpha", {}, "twice adapter.r where it is left out"},
    {"additional_target", kMapped, "adapter.modules_to_save", {}, {}, {}, Convert::kList},
    {"adapter_name_or_path", kMapped, "adapter.init_from"},
    {"cutoff_len", kMapped, "batch.sequence", {}, {}, "2048"},
    {"packing = true", kMapped, "data.samples@packing", "\"stream\"",
     "the stream of tokens is cut at every batch.sequence; neat_packing keeps conversations apart"},
    {"neat_packing", kMapped, "data.samples@packing_strategy", "\"neat\"", "after trident data pack"},
    {"pure_bf16", kDiffers, "precision.compute", "\"bf16\"", "master weights stay fp32 here"},
    {"disable_gradient_checkpointing = true", kMapped, "recompute.policy", "\"none\"", {}, {}, Convert::kUnlessSaid},
    {"disable_gradient_checkpointing", kMapped, "recompute.policy", "\"full\"", {}, "false"},
    {"quantization_bit = 4", kNotBuilt, "model.quantize.type", "\"nf4\""},
    {"double_quantization", kNotBuilt, "model.quantize.double", "true"},
    always("quantization_type = nf4", "the format of quantization_bit 4"),
    always("quantization_method, quantization_device_map", "the one that quantization_bit names"),
    {"fp8", kNotBuilt, "precision.fp8", "true"},
    {"use_muon", kNotBuilt, "optimizer.type", "\"muon\""},
    {"pref_beta", kMapped, "loss.beta"},
    {"pref_loss = sigmoid, ipo, hinge", kMapped, "loss.variant"},
    {"pref_ftx", kMapped, "loss.nll_weight"},
    {"dpo_label_smoothing", kMapped, "loss.label_smoothing"},
    {"ref_model", kMapped, "reference", {}, "a checkpoint, a folder of them, or a Hugging Face folder"},
    refused("use_galore, use_apollo, use_badam, use_llama_pro, use_adam_mini, use_dft_loss, use_asft_loss, use_eaft_loss, use_mca, "
     "use_hyper_parallel, pissa_init, loraplus_lr_ratio, quantization_bit, quantization_type, mixture_of_depths, shift_attn, "
     "tensor_model_parallel_size, pref_loss, pref_bco_weight, freeze_language_model, moe_aux_loss_coef, use_kt, reward_model, "
     "ref_model_adapters, finetuning_type", kNoSuchMethod),
    refused("model, model_class, kernel_config*, dist_config*, peft_config*, quant_config*, train_dataset, micro_batch_size",
     "keys of LLaMA-Factory's files of version 1: write those of version 0.9, model_name_or_path and its like"),
    differs("train_from_scratch", "model.hf_config names the folder whose config.json new weights are made for", "model.hf_config"),
    {"disable_shuffling", kMapped, "data.shuffle", "false"},
    differs("rope_scaling", "the folder's config.json is the model; keys of the model block change it"),
    differs("resize_vocab, add_tokens, add_special_tokens, new_special_tokens_config, init_special_tokens, split_special_tokens",
     kMoreTokens),
    differs("early_stopping_steps", "a run ends after its steps or epochs"),
    always("freeze_*, module_dropout, hyper_parallel_args, reward_model_*, ref_model_quantization_bit, adapter_folder, "
     "create_new_adapter, kt_*, export_*, infer_*, fp8_*, crop_to_patches, use_audio_in_video, audio_sampling_rate, media_dir",
     "of a method that is not asked for, or of images, export and inference"),
    heading("Model and data"),
    {"dataset", kMapped, "data.train@dataset"},
    differs("eval_dataset, eval_on_each_dataset", kPreparesValid),
    {"val_size", kMapped, "data.split@valid_share", {}, kSetAside},
    differs("train_on_prompt = true", kWithData, "trident data prepare --chat --loss all"),
    differs("mask_history = true", kWithData, "trident data prepare --chat --loss last"),
    differs("template", kTemplateOfData, kPrepareByTemplate),
    always("train_on_prompt, mask_history, tool_format, default_system, enable_thinking, preserve_thinking", kOwnTemplate,
     "trident data prepare --chat --template FILE --loss assistant"),
    differs("max_samples", "trident data prepare takes all lines of a file: cut it before"),
    always("dataset_dir, buffer_size, mix_strategy, interleave_probs, preprocessing_batch_size, tokenized_path, "
     "data_shared_file_system, ignore_pad_token_for_loss", "data.train names files that trident data prepare wrote, with weights "
     "where there are several", "trident data prepare"),
    always("flash_attn, use_unsloth, use_unsloth_gc, enable_liger_kernel, use_v1_kernels, use_reentrant_gc, upcast_layernorm, "
     "upcast_lmhead_output, use_kv_cache, block_diag_attn, compute_dtype, device_map, offload_folder, model_max_length, "
     "print_param_status", "attention never stores the scores, norms and the loss are in fp32, and there is one implementation"),
    always("hf_hub_token, ms_hub_token, om_hub_token", "nothing is sent anywhere; trident convert makes the folder"),
    always("plot_loss, compute_accuracy, include_effective_tokens_per_second",
     "report.html draws the loss, metrics.jsonl has every number"),
    always("enable_torch_profiler, profiler_*, profile_modules", "log.trace_steps traces steps"),
    launcher("ray_num_workers, ray_init_kwargs*, master_addr, master_port", "mpirun or srun starts the ranks"),
};

}  // namespace

std::span<const ForeignKey> llama_factory_rows() { return kLlamaFactoryRows; }

}  // namespace trident
