#include "train/config/option_table.h"

#include <fmt/ranges.h>

#include "optim/update_rule.h"

namespace trident {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr Range kFromZero{0, kInf};
constexpr Range kFromOne{1, kInf};
constexpr Range kPositive{0, kInf, Range::Ends::kOpenLow};
constexpr Range kDegree{1, 65536};
constexpr Range kCount{1, 2147483647};  // products of two fit 64 bits
constexpr Range kProbability{0, 1, Range::Ends::kOpenHigh};
constexpr std::string_view kNoFp8 = "8 bits and fewer (precision.fp8) are not built yet; use bf16";

using enum Takes;

std::vector<OptionBlock> make_blocks() {
  return {
      {"run", "Where the run lives and how long it goes on."},
      {"model", "One of: `preset`, `hf_config`, or the keys of a Hugging Face config.json spelled out here (`model_type`, ...)."},
      {"model.quantize", "Frozen weights in few bits, beside adapters (QLoRA). Not built yet."},
      {"train",
       "Which parameters train. Patterns are regular expressions (ECMAScript) that match the whole name of a tensor in a Hugging "
       "Face folder of the model, as `re.fullmatch` of PEFT does. What does not train stays as it is: without master weights, "
       "gradients and optimizer states."},
      {"parallel", "How the ranks divide the work. A text like `\"2DP x 4PP x 4TP\"` (any order, missing axes are 1) stands for the degrees."},
      {"batch", "How many sequences make one step."},
      {"offload", "What stays in the memory of the host or on a disk between its uses. Not built yet."},
      {"adapter",
       "Low-rank adapters (LoRA) beside linear layers: they and adapter.modules_to_save train, all else stays as it is. Modules "
       "are named as Hugging Face names them."},
      {"precision", "Number formats."},
      {"recompute", "What the backward pass computes again instead of keeping it."},
      {"optimizer", "The update rule. One-dimensional parameters and biases are not decayed."},
      {"lr_schedule", "The learning rate of step n (first is 1): `lr * n / warmup_steps` while n <= warmup_steps, then the schedule."},
      {"loss", "What is minimised."},
      {"data", "Token files, as `trident data prepare` writes them: `PREFIX` stands for PREFIX.bin and PREFIX.idx."},
      {"eval", "Loss on the validation data."},
      {"checkpoint", "Saving and resuming. With `every` 0 the keys of saving have no effect."},
      {"log", "What is written while the run goes on."},
      {"cuda", "GPUs. On CPUs these keys are accepted and have no effect."},
      {"debug", "Checks that cost time."},
  };
}

std::vector<Option> run_options() {
  return {
      {.path = "$schema", .takes = kNull | kString, .fallback = "null", .doc = "For editors; not read."},
      {.path = "run.dir", .takes = kString, .fallback = "\"runs/default\"", .doc = "Run directory: resolved configuration, plan, metrics.",
       .aka = {"output_dir"}},
      {.path = "run.overwrite", .takes = kBool, .fallback = "false",
       .doc = "Start in a run directory that holds another run's files: they are moved into earlier-1, earlier-2, ... of it (a run with the same configuration moves them by itself). Without it such a directory is refused.",
       .aka = {"overwrite_output_dir"}},
      {.path = "run.seed", .takes = kInteger, .fallback = "1234",
       .doc = "Every random number follows from it: initial weights, sample order, dropout.", .range = kFromZero},
      {.path = "run.steps", .takes = kNull | kInteger, .fallback = "null",
       .doc = "Optimizer updates to make; this or run.epochs must be given.",
       .range = kFromOne, .unit = "steps", .aka = {"train_iters", "max_steps", "num_steps", "iterations"}},
      {.path = "run.epochs", .takes = kNull | kNumber, .fallback = "null",
       .doc = "In the place of run.steps: how often the run takes every sample of data.train, such as 3 or 0.5. A last batch that is "
              "not full takes samples of the next epoch.",
       .range = kPositive, .unit = "epochs", .aka = {"num_train_epochs", "num_epochs", "epochs", "max_epochs"}},
      {.path = "run.max_minutes", .takes = kNumber, .fallback = "0", .doc = "End after this time; 0: no limit.", .range = kFromZero,
       .unit = "minutes", .aka = {"exit_duration_in_mins"}},
      {.path = "run.threads_per_rank", .takes = kInteger | kString, .fallback = "\"auto\"",
       .doc = "Compute threads of each rank on the CPU; auto: the node's cores that its ranks may run on, over its ranks. With several, results are not bit for bit those of one.",
       .range = {1, 1024}, .choices = {"auto"}, .aka = {"omp_num_threads"}},
      {.path = "run.pin", .takes = kBool, .fallback = "true", .doc = "Bind ranks to cores where they need all that they may use."},
      {.path = "run.hardware_profile", .takes = kNull | kString, .fallback = "null",
       .doc = "File with the rates that the time of a step is predicted by, as trident bench --calibrate or configs/hardware have "
              "it; null: the one that trident bench --calibrate kept of this machine, else that of this kind of hardware which "
              "comes with the program; none: the latter. No number of the training depends on it."},
      {.path = "device", .takes = kString, .fallback = "\"auto\"",
       .doc = "Where ranks compute; auto takes CUDA GPUs if this program has CUDA and the machine has GPUs it can use.",
       .choices = {"auto", "cpu", "cuda"}, .aliases = {{"gpu", "cuda"}}},
  };
}

std::vector<Option> model_options() {
  return {
      {.path = "model.preset", .takes = kNull | kString, .fallback = "null", .doc = "A model by name, such as gpt2-124m or llama-60m, or as published (gpt2-medium, meta-llama/Llama-3.1-8B)."},
      {.path = "model.hf_config", .takes = kNull | kString, .fallback = "null", .doc = "Path of a Hugging Face config.json, or of the folder that has it."},
      {.path = "model.init_from", .takes = kNull | kString, .fallback = "null", .doc = "Weights that training begins with, at step 1 and with a fresh optimizer: a checkpoint, a folder of them (the newest), or a Hugging Face folder (config.json and safetensors). Its model is the run's unless this section names one. Tokens of the data that the folder lacks get rows (docs/finetuning.md). A run that has checkpoints of its own goes on from those.",
       .aka = {"pretrained"}},
      {.path = "model.dropout", .takes = kNull | kNumber, .fallback = "null",
       .doc = "Dropout probability on residuals and embeddings; null: what the model's own configuration says.", .range = kProbability,
       .aka = {"hidden_dropout"}},
      {.path = "model.quantize.type", .takes = kNull | kString, .fallback = "null",
       .doc = "Format of the frozen weights of linear layers; null: precision.compute.", .choices = {"nf4", "fp4"},
       .reserved = true},
      {.path = "model.quantize.block", .takes = kInteger, .fallback = "64", .doc = "Weights that share a scale.", .range = kFromOne,
       .reserved = true},
      {.path = "model.quantize.double", .takes = kBool, .fallback = "false", .doc = "Quantize the scales, too.",
       .reserved = true},
      {.path = "model.quantize.skip", .takes = kString | kTexts, .fallback = "[]", .doc = "Modules that stay in precision.compute.",
       .reserved = true},
  };
}

std::vector<Option> parallel_options() {
  return {
      {.path = "train.only", .takes = kString | kTexts, .fallback = "[]",
       .doc = "Patterns of the tensors that train; all others stay as they are. Empty: see train.freeze. `model\\.layers\\.1\\..*` "
              "is all of block 1.", .aka = {"unfrozen_parameters", "trainable_parameters"}},
      {.path = "train.freeze", .takes = kString | kTexts, .fallback = "[]",
       .doc = "Patterns of the tensors that stay as they are; all others train. Not beside train.only.",
       .aka = {"frozen_parameters", "freeze_parameters"}},
      {.path = "parallel.data", .takes = kInteger | kString, .fallback = "\"auto\"",
       .doc = "Data-parallel degree; auto: the world size over the other degrees (without a launcher: 1).", .range = kDegree,
       .choices = {"auto"}, .aka = {"dp", "data_parallel_size"}},
      {.path = "parallel.pipeline", .takes = kInteger, .fallback = "1", .doc = "Pipeline stages.", .range = kDegree,
       .aka = {"pp", "pipeline_model_parallel_size", "pipeline_parallel_degree"}},
      {.path = "parallel.tensor", .takes = kInteger, .fallback = "1", .doc = "Tensor-parallel degree.", .range = kDegree,
       .aka = {"tp", "tensor_model_parallel_size", "tensor_parallel_degree"}},
      {.path = "parallel.context", .takes = kNull | kInteger, .fallback = "1", .doc = "Context-parallel degree.", .range = {0, 65536},
       .reserved = true, .aka = {"cp", "context_parallel_size"}},
      {.path = "parallel.virtual_stages", .takes = kInteger, .fallback = "1", .doc = "Model chunks per pipeline rank; more than one needs the interleaved schedule.",
       .range = {1, 1024}, .aka = {"virtual_pipeline_model_parallel_size", "vpp"}},
      {.path = "parallel.schedule", .takes = kString, .fallback = "\"1f1b\"", .doc = "Order of forward and backward passes over the stages.",
       .choices = {"gpipe", "1f1b", "interleaved"},
       .reserved_values = {{"zb-h1", "not built yet; use 1f1b"}, {"zero_bubble", "not built yet; use 1f1b"},
                           {"zb1p", "not built yet; use 1f1b"}, {"zb-v", "not built yet; use interleaved"},
                           {"dualpipe-v", "not built yet; use interleaved"}, {"csv", "not built yet; use 1f1b or interleaved"}},
       .aka = {"pipeline_schedule"}},
      {.path = "parallel.sequence_parallel", .takes = kBool, .fallback = "false",
       .doc = "Split norms and residuals over the sequence inside a tensor-parallel group."},
      {.path = "parallel.zero", .takes = kString, .fallback = "\"zero1\"", .doc = "What data-parallel ranks share out: nothing (ddp), optimizer state (zero1), also gradients (zero2), also parameters (shard_grad_op, zero3).",
       .choices = {"ddp", "zero1", "zero2", "shard_grad_op", "zero3"},
       .aliases = {{"SHARD_GRAD_OP", "shard_grad_op"}, {"FULL_SHARD", "zero3"}, {"fsdp", "zero3"}, {"0", "ddp"}, {"1", "zero1"}, {"2", "zero2"}, {"3", "zero3"}},
       .reserved_values = {{"hybrid_shard", "not built yet (parallel.shard_group); use zero3"}},
       .aka = {"zero_stage", "stage", "zero_optimization"}},
      {.path = "parallel.grad_sync", .takes = kNull | kString | kEvery, .fallback = "null",
       .doc = "When gradients are reduced: once a step, every k micro-batches, or auto (step where the memory allows); null: the preset's own.",
       .range = kFromOne, .choices = {"step", "auto"}},
      {.path = "parallel.param_gather", .takes = kNull | kString, .fallback = "null",
       .doc = "How long gathered parameters live; null: the preset's own.", .choices = {"per_use", "per_micro_batch", "resident"}},
      {.path = "parallel.layers", .takes = kNull | kIntegers, .fallback = "null",
       .doc = "Layers of each stage, pipeline x virtual_stages counts in model order; null: balanced by cost.", .range = kFromOne},
      {.path = "parallel.order", .takes = kString, .fallback = "\"tp-cp-dp-pp\"", .doc = "Axes from fastest to slowest changing rank.",
       .form = TextForm::kAxisOrder, .aka = {"rank_order"}},
      {.path = "parallel.overlap", .takes = kBool, .fallback = "true", .doc = "Reduce and gather while computing.",
       .aka = {"overlap_grad_reduce", "overlap_comm"}},
      {.path = "parallel.bucket_mb", .takes = kNumber, .fallback = "25", .doc = "Size of gradient buckets.", .range = kPositive, .unit = "MB",
       .aka = {"reduce_bucket_size", "bucket_size"}},
      {.path = "parallel.shard_group", .takes = kNull | kInteger | kString, .fallback = "null",
       .doc = "Data-parallel ranks that share one copy of the state (hybrid sharding), a number or node; null: all of them.",
       .range = kDegree, .choices = {"node"}, .reserved = true},
      {.path = "parallel.secondary_shards", .takes = kNull | kInteger | kString, .fallback = "null",
       .doc = "Ranks that share a second copy of the weights, from which the backward pass gathers (hpZ), a number or node.",
       .range = kDegree, .choices = {"node"}, .reserved = true},
      {.path = "parallel.quantized_weights", .takes = kBool, .fallback = "false",
       .doc = "Gather weights in 8 bits (qwZ of ZeRO++).", .reserved = true},
      {.path = "parallel.quantized_gradients", .takes = kBool | kInteger, .fallback = "false",
       .doc = "Reduce gradients in 4 or 8 bits (qgZ of ZeRO++); true: 4.", .range = {4, 8}, .reserved = true},
      {.path = "parallel.tensor_overlap", .takes = kString, .fallback = "\"off\"",
       .doc = "What is computed while a layer's tensor-parallel collectives are under way.",
       .choices = {"off", "weight_gradients", "chunked"}, .reserved = true},
      {.path = "offload.optimizer", .takes = kString, .fallback = "\"none\"",
       .doc = "Where optimizer states and master weights stay.",
       .choices = {"none", "host", "disk"}, .aliases = {{"cpu", "host"}, {"nvme", "disk"}}, .reserved = true},
      {.path = "offload.parameters", .takes = kString, .fallback = "\"none\"", .doc = "Where working weights stay.",
       .choices = {"none", "host", "disk"}, .aliases = {{"cpu", "host"}, {"nvme", "disk"}}, .reserved = true},
      {.path = "offload.gradients", .takes = kString, .fallback = "\"none\"", .doc = "Where reduced gradients stay.",
       .choices = {"none", "host", "disk"}, .aliases = {{"cpu", "host"}, {"nvme", "disk"}}, .reserved = true},
      {.path = "offload.activations", .takes = kString, .fallback = "\"none\"",
       .doc = "Where the inputs of blocks stay until their backward pass.",
       .choices = {"none", "host", "disk"}, .aliases = {{"cpu", "host"}, {"nvme", "disk"}}, .reserved = true},
      {.path = "offload.path", .takes = kNull | kString, .fallback = "null",
       .doc = "Folder on a disk of this machine, for what stays there.", .reserved = true},
      {.path = "offload.depth", .takes = kInteger, .fallback = "2", .doc = "Units that are fetched ahead.", .range = kFromOne,
       .reserved = true},
      {.path = "offload.direct", .takes = kBool, .fallback = "true", .doc = "Read and write the disk past the page cache.",
       .reserved = true},
  };
}

std::vector<std::string_view> update_rules() {
  std::vector<std::string_view> names;
  for (const UpdateRule rule : kUpdateRules) names.emplace_back(to_string(rule));
  return names;
}

// These are not built, and their names look like misspellings of built ones.
std::vector<ReservedValue> other_update_rules() {
  static const std::string why = fmt::format("not built; use {}", fmt::join(update_rules(), " or "));
  std::vector<ReservedValue> rules;
  for (const std::string_view name : {"muon", "sgd", "adan", "nadam", "radam", "adafactor"})
    if (!parse_update_rule(name)) rules.push_back({name, why});
  return rules;
}

std::vector<Option> adapter_options() {
  return {
      {.path = "adapter.type", .takes = kNull | kString, .fallback = "null",
       .doc = "lora: y = W x + s B A x with A [r, in] and B [out, r], s = alpha / r; A begins uniform at random, B "
              "as zeros. dora: every output of that sum is multiplied by m / n, n the length of the row of "
              "W + s B A; m [out] begins as the lengths of W's rows. null: all weights train.", .choices = {"lora", "dora"},
       .reserved_values = {{"qlora",
                            "weights of 4 bits are not built yet (model.quantize); use lora, beside weights in "
                            "precision.compute"}}},
      {.path = "adapter.r", .takes = kInteger, .fallback = "8", .doc = "Rank: rows of A, columns of B.", .range = {1, 65536}},
      {.path = "adapter.alpha", .takes = kNumber, .fallback = "8", .doc = "B A is multiplied by alpha / r.", .range = kPositive},
      {.path = "adapter.dropout", .takes = kNumber, .fallback = "0", .doc = "Dropout probability of what A multiplies.",
       .range = kProbability},
      {.path = "adapter.target_modules", .takes = kString | kTexts, .fallback = "[\"all-linear\"]",
       .doc = "Linear layers with adapters: names such as q_proj, or ends of them; regular expressions of whole "
              "names; all-linear: all but lm_head. A layer that the model's folder has as one, such as Phi-3's "
              "qkv_proj, has one."},
      {.path = "adapter.exclude_modules", .takes = kString | kTexts, .fallback = "[]",
       .doc = "Likewise, of those the ones without."},
      {.path = "adapter.layers", .takes = kNull | kIntegers, .fallback = "null",
       .doc = "Blocks whose layers have adapters, the first is 0; null: all.", .range = kFromZero},
      {.path = "adapter.rslora", .takes = kBool, .fallback = "false", .doc = "s = alpha / sqrt(r) (Kalajdzievski 2023)."},
      {.path = "adapter.modules_to_save", .takes = kString | kTexts, .fallback = "[]",
       .doc = "Modules that train whole beside the adapters, by the ends of their names as PEFT takes them, such as "
              "[\"embed_tokens\", \"lm_head\"]. They have no adapters. A head that the model has in common with its embedding "
              "trains with it, as one (PEFT's ensure_weight_tying)."},
      {.path = "adapter.init_from", .takes = kNull | kString, .fallback = "null",
       .doc = "A PEFT folder whose adapters the run begins with, beside their base in model.init_from. It says the other keys of "
              "this block: leave them out, or give what it says. On the command line it takes the place of a file's block."},
      {.path = "adapter.dtype", .takes = kString, .fallback = "\"fp32\"",
       .doc = "Format of the adapters' master weights; products take them in precision.compute, as all weights.",
       .choices = {"fp32"}, .aliases = {{"float32", "fp32"}}}};
}

std::vector<Option> number_options() {
  return {
      {.path = "batch.global", .takes = kInteger, .fallback = "", .doc = "Sequences per optimizer update, over all ranks.", .range = kCount,
       .unit = "sequences", .aka = {"global_batch_size", "train_batch_size"}},
      {.path = "batch.micro", .takes = kInteger, .fallback = "1", .doc = "Sequences per forward pass of a rank.", .range = kCount,
       .unit = "sequences", .aka = {"micro_batch_size", "train_micro_batch_size_per_gpu", "local_batch_size"}},
      {.path = "batch.sequence", .takes = kInteger, .fallback = "", .doc = "Tokens per sequence.", .range = kCount, .unit = "tokens",
       .aka = {"seq_length", "seq_len", "sequence_length", "block_size"}},
      {.path = "precision.compute", .takes = kString, .fallback = "\"auto\"",
       .doc = "Format of activations and working weights; auto: bf16 where the processor multiplies it faster than fp32, else fp32. fp16 scales its loss.",
       .choices = {"auto", "bf16", "fp16", "fp32"},
       .aliases = {{"bfloat16", "bf16"}, {"float16", "fp16"}, {"half", "fp16"}, {"float32", "fp32"}, {"float", "fp32"},
                   {"torch.bfloat16", "bf16"}, {"torch.float16", "fp16"}, {"torch.float32", "fp32"}},
       .reserved_values = {{"fp8", kNoFp8}, {"mxfp8", kNoFp8}, {"nvfp4", kNoFp8}}, .aka = {"dtype"}},
      {.path = "precision.master", .takes = kString, .fallback = "\"fp32\"", .doc = "Format of master weights and moments.", .choices = {"fp32"},
       .aliases = {{"float32", "fp32"}}},
      {.path = "precision.reduce", .takes = kString, .fallback = "\"fp32\"", .doc = "Format in which gradients are summed.", .choices = {"fp32"},
       .aliases = {{"float32", "fp32"}}},
      {.path = "precision.loss_scale", .takes = kNull | kString | kNumber, .fallback = "null",
       .doc = "What the loss is multiplied by, for precision.compute fp16 only: dynamic (found while training) or a power of two; null: dynamic with fp16.",
       .range = {1, 4294967296}, .choices = {"dynamic"}, .aka = {"initial_loss_scale", "grad_scale"}},
      {.path = "precision.stochastic_rounding", .takes = kBool, .fallback = "false",
       .doc = "Round bf16 weights up or down at random after an update, in proportion to how near both are; false: to nearest. For precision.compute bf16.",
       .aka = {"bf16_stochastic_round"}},
      {.path = "precision.fp8", .takes = kBool | kString, .fallback = "false",
       .doc = "Products of linear layers in 8-bit floating point, by one of torchao's recipes; true: tensorwise.",
       .choices = {"tensorwise", "rowwise", "rowwise_with_gw_hp", "mxfp8"}, .reserved = true},
      {.path = "recompute.policy", .takes = kString, .fallback = "\"none\"", .doc = "none, attention only (selective), or whole blocks (full).",
       .choices = {"none", "selective", "full"}, .aka = {"recompute_granularity", "activation_checkpointing"}},
      {.path = "recompute.head_chunk", .takes = kInteger, .fallback = "0",
       .doc = "Tokens whose logits exist at a time, made in the backward pass; again in split backwards, and with dpo. 0: those of the micro-batch, kept; on CPUs, where targets may not count, made in the backward pass for those that do.",
       .range = {0, 2147483647}, .unit = "tokens"},
      {.path = "optimizer.type", .takes = kString, .fallback = "\"adamw\"",
       .doc = "Update rule; lion keeps one moment, not two, and wants a smaller rate and more decay.", .choices = update_rules(),
       .reserved_values = other_update_rules()},
      {.path = "optimizer.lr", .takes = kNumber, .fallback = "3e-4", .doc = "Highest learning rate.", .range = kPositive, .aka = {"learning_rate"}},
      {.path = "optimizer.betas", .takes = kNumbers, .fallback = "[0.9, 0.95]",
       .doc = "Decay of the first and second moment; lion: within the sign, and of its moment.",
       .range = kProbability, .length = 2, .aka = {"adam_beta1", "adam_beta2"}},
      {.path = "optimizer.eps", .takes = kNumber, .fallback = "1e-8",
       .doc = "AdamW: added to the root of the second moment.", .range = kPositive},
      {.path = "optimizer.weight_decay", .takes = kNumber, .fallback = "0.1", .doc = "Decoupled weight decay.", .range = kFromZero},
      {.path = "optimizer.grad_clip", .takes = kNumber, .fallback = "1.0", .doc = "Highest gradient norm; 0: no clipping.", .range = kFromZero,
       .aka = {"clip_grad", "gradient_clipping", "max_norm"}},
      {.path = "lr_schedule.type", .takes = kString, .fallback = "\"cosine\"", .doc = "Course after the warm-up.",
       .choices = {"constant", "linear", "cosine", "inverse_sqrt", "wsd"},
       .aliases = {{"inverse-sqrt", "inverse_sqrt"}, {"inverse-square-root", "inverse_sqrt"}, {"WSD", "wsd"}}, .aka = {"lr_decay_style"}},
      {.path = "lr_schedule.warmup_steps", .takes = kInteger | kShare, .fallback = "0",
       .doc = "Steps of linear warm-up; below 1 the share of the steps until the decay ends (lr_schedule.decay_steps), rounded up.",
       .range = kFromZero, .unit = "steps", .aka = {"lr_warmup_iters"}},
      {.path = "lr_schedule.min_lr", .takes = kNumber, .fallback = "0", .doc = "Lowest learning rate after the warm-up.", .range = kFromZero},
      {.path = "lr_schedule.decay_steps", .takes = kNull | kInteger, .fallback = "null",
       .doc = "Step at which min_lr is reached, warm-up included; null: run.steps, the largest that the run was started with.", .range = kFromOne, .unit = "steps", .aka = {"lr_decay_iters"}},
      {.path = "lr_schedule.wsd_decay_steps", .takes = kNull | kInteger | kShare, .fallback = "null",
       .doc = "Length of the final decay of wsd (warm-up, stable, decay); below 1 a share as of warmup_steps; required by wsd.",
       .range = kFromOne, .unit = "steps", .aka = {"lr_wsd_decay_iters"}},
      {.path = "lr_schedule.wsd_decay_type", .takes = kString, .fallback = "\"exponential\"", .doc = "Shape of the final decay of wsd.",
       .choices = {"linear", "cosine", "exponential", "minus_sqrt"}, .aka = {"lr_wsd_decay_style"}}};
}

std::vector<ReservedValue> other_preference_losses() {
  return {{"kto", "not built yet; loss.type dpo learns from pairs"},
          {"orpo", "not built yet; use loss.type dpo, with loss.nll_weight"},
          {"grpo", "not built yet: answers are not drawn while training; use loss.type dpo on pairs"}};
}
std::vector<Option> data_options() {
  return {
      {.path = "loss.type", .takes = kString, .fallback = "\"cross_entropy\"",
       .doc = "cross_entropy: of the next token; dpo: of pairs of a chosen and a rejected answer (trident data prepare "
              "--preference), against what reference says of them.", .choices = {"cross_entropy", "dpo"},
       .aliases = {{"sft", "cross_entropy"}}, .reserved_values = other_preference_losses()},
      {.path = "loss.normalize", .takes = kString, .fallback = "\"token\"",
       .doc = "What weighs the same in the loss of a step: token, every target that counts; sequence, every sequence (a document "
              "within a sample) with such targets, each of its n targets 1/n of it.", .choices = {"token", "sequence"}},
      {.path = "loss.beta", .takes = kNumber, .fallback = "0.1",
       .doc = "Of dpo: how strongly the model is held to the reference.", .range = kPositive},
      {.path = "loss.variant", .takes = kString, .fallback = "\"sigmoid\"",
       .doc = "Of dpo: the function of a pair's log-probability ratios; ipo takes means of their targets.",
       .choices = {"sigmoid", "ipo", "hinge"}, .reserved_values = other_preference_losses()},
      {.path = "loss.label_smoothing", .takes = kNumber, .fallback = "0",
       .doc = "Of dpo's sigmoid: the share of pairs that are taken to be labelled the wrong way round.",
       .range = {0, 0.5, Range::Ends::kOpenHigh}},
      {.path = "loss.nll_weight", .takes = kNumber, .fallback = "0",
       .doc = "Of dpo: weight of the chosen answer's cross-entropy (mean of its targets), added to the loss.", .range = kFromZero,
       .aka = {"rpo_alpha"}},
      {.path = "loss.length_normalized", .takes = kBool, .fallback = "false",
       .doc = "Of dpo: log-probabilities of answers are means of their targets in sigmoid and hinge, too."},
      {.path = "reference", .takes = kString, .fallback = "\"initial\"",
       .doc = "Of dpo: whose log-probabilities answers are compared with. initial: the weights before the first step; adapter_off: these "
              "without their adapters; else a checkpoint or folder as model.init_from takes it."},
      {.path = "data.train", .takes = kString | kSources, .fallback = "", .doc = "Training data: a prefix, or a list of prefixes or {\"path\", \"weight\"}.",
       .aka = {"data_path", "dataset", "train_data_path"}},
      {.path = "data.valid", .takes = kNull | kString | kSources, .fallback = "null", .doc = "Validation data, likewise; each file is a set with numbers of its own, beside their mean by weight. null: what split sets aside.",
       .aka = {"valid_data_path", "validation"}},
      {.path = "data.split", .takes = kNull | kString, .fallback = "null",
       .doc = "Shares of training, validation and test documents such as \"969,30,1\", when valid is null, parts of their sum (80,30 is 8/11 and 3/11); both null: everything trains. The third is read by nothing.",
       .form = TextForm::kSplit},
      {.path = "data.shuffle", .takes = kBool, .fallback = "true", .doc = "Take samples in an order drawn from run.seed; false: in file order."},
      {.path = "data.samples", .takes = kString, .fallback = "\"stream\"",
       .doc = "stream: a sample is batch.sequence tokens of the stream, whatever document they are of. packed: it is a document, "
              "padded, and each of its sequences in the .idx is by itself: trident data pack makes such files.",
       .choices = {"stream", "packed"}, .aka = {"packing"}},
      {.path = "data.tokenizer", .takes = kNull | kString, .fallback = "\"auto\"",
       .doc = "Tokenizer the data was prepared with: gpt2, cl100k, bytes, a folder or a file; null: none; auto: gpt2 for a "
              "vocabulary of 50257 (or up to 50304 with model_type gpt2), else the one that made the first of data.train, where "
              "its record's name finds it. Its end of a document counts only where it is named.", .aka = {"tokenizer_type"}},
      {.path = "data.reset_position_ids", .takes = kNull | kBool, .fallback = "false",
       .doc = "Positions begin again at 0 with each document of a sample."},
      {.path = "data.reset_attention_mask", .takes = kNull | kBool, .fallback = "false",
       .doc = "A token sees the tokens of its own document alone."},
      {.path = "data.eod_mask_loss", .takes = kNull | kBool, .fallback = "false",
       .doc = "No loss where the target belongs to another document than its input, as the first token of one does that follows an "
              "end of document; the loss is the mean over the targets that count."},
      {.path = "data.boundaries", .takes = kString, .fallback = "\"eod\"",
       .doc = "What ends a document within a sample, for the three keys above: eod, the token data.eod; index, the sequences of the "
              ".idx.", .choices = {"eod", "index"}},
      {.path = "data.eod", .takes = kNull | kInteger, .fallback = "null",
       .doc = "Id of the token that ends a document; null: data.tokenizer's.", .range = {0, 2147483647},
       .aka = {"eod_id", "eos_token_id"}},
      {.path = "data.mean_document", .takes = kNull | kNumber, .fallback = "null",
       .doc = "Mean length of the documents, by which predictions price attention under data.reset_attention_mask; null: measured "
              "from the .idx where that is there. No number of the training depends on it.", .range = kFromOne, .unit = "tokens"}};
}

std::vector<Option> eval_and_checkpoint_options() {
  return {
      {.path = "eval.every", .takes = kInteger | kString, .fallback = "0",
       .doc = "Evaluate after every so many steps; 0: never; epoch: in whose step an epoch of data.train ends.", .range = kFromZero,
       .choices = {"epoch"}, .unit = "steps", .aka = {"eval_interval"}},
      {.path = "eval.steps", .takes = kInteger, .fallback = "10", .doc = "Global batches per evaluation, of each validation set.", .range = kFromOne, .aka = {"eval_iters"}},
      {.path = "eval.samples", .takes = kString | kTexts | kMessages, .fallback = "[]",
       .doc = "Texts that the model continues at every evaluation, into samples.jsonl and TensorBoard's texts; data.tokenizer, "
              "else that of model.init_from, reads and writes them. A list of messages, or {\"messages\": [...]}, stands for the "
              "text that the chat template makes of them. The draws follow from run.seed and eval.sample_temperature, not from a "
              "generation_config.json, and are the same at every evaluation.",
       .aka = {"sample_prompts", "generate_prompts", "inference_prompts"}},
      {.path = "eval.sample_ids", .takes = kString | kTexts, .fallback = "[]",
       .doc = "The same of prompts that are token ids, such as \"5 17 2\"; they come behind the texts and need no "
              "tokenizer."},
      {.path = "eval.sample_tokens", .takes = kInteger, .fallback = "64", .doc = "New tokens of each continuation, at most.",
       .range = {1, 16777216}, .unit = "tokens"},
      {.path = "eval.sample_temperature", .takes = kNumber, .fallback = "1",
       .doc = "What logits are divided by before a token is drawn; 0: always the likeliest.", .range = kFromZero},
      {.path = "checkpoint.dir", .takes = kNull | kString, .fallback = "null", .doc = "Folder of the checkpoints, which all nodes see; null: ckpt in run.dir."},
      {.path = "checkpoint.every", .takes = kNull | kInteger | kString, .fallback = "\"end\"",
       .doc = "end: save where the run ends, at its last step or where a signal or run.max_minutes stops it; a number: also after every so many steps; epoch: also where an epoch of data.train ends; 0 or null: never.",
       .range = kFromZero, .choices = {"end", "epoch"}, .unit = "steps", .aka = {"save_interval", "save_steps"}},
      {.path = "checkpoint.keep_last", .takes = kNull | kInteger, .fallback = "2", .doc = "Newest checkpoints to keep; 0: all.", .range = kFromZero,
       .aka = {"most_recent_k", "save_total_limit"}},
      {.path = "checkpoint.keep_every", .takes = kNull | kInteger, .fallback = "0", .doc = "Also keep those of every so many steps; 0: none.", .range = kFromZero,
       .unit = "steps", .aka = {"save_retain_interval"}},
      {.path = "checkpoint.keep_best", .takes = kBool, .fallback = "false", .doc = "Also keep the one with the lowest validation loss, of steps that were evaluated and saved."},
      {.path = "checkpoint.content", .takes = kString, .fallback = "\"all\"", .doc = "all: what a run needs to go on; weights: the weights in the compute format alone.",
       .choices = {"all", "weights"}},
      {.path = "checkpoint.staging", .takes = kNumber | kString, .fallback = "\"auto\"",
       .doc = "Host memory of a rank through which its values go to the disk; auto: room for all of them where memory allows, else 256 MB.", .range = kFromZero,
       .choices = {"auto"}, .unit = "MB"},
      {.path = "checkpoint.on_error", .takes = kString, .fallback = "\"continue\"", .doc = "What a checkpoint that cannot be written does to the run: a warning, or the end.",
       .choices = {"continue", "stop"}},
      {.path = "checkpoint.resume", .takes = kNull | kString, .fallback = "\"auto\"",
       .doc = "auto: go on from the newest valid checkpoint of checkpoint.dir, if there is one; never; or the path of a checkpoint, or of a folder of them.",
       .aka = {"resume_from_checkpoint", "load"}},
      {.path = "checkpoint.allow", .takes = kString | kTexts, .fallback = "[]",
       .doc = "Keys or blocks that may differ from what the checkpoint was trained with; model.init_from consents to another base.",
       .choices = {"model", "model.init_from", "run", "run.seed", "train", "train.only", "train.freeze", "adapter.alpha",
                   "adapter.rslora", "loss", "loss.type", "loss.normalize", "loss.beta", "loss.variant", "loss.label_smoothing",
                   "loss.nll_weight", "loss.length_normalized", "batch", "batch.global", "batch.sequence", "data", "data.train",
                   "data.train.weights", "data.split", "data.shuffle", "data.samples", "data.reset_position_ids",
                   "data.reset_attention_mask", "data.eod_mask_loss", "data.boundaries", "data.eod",
                   "data.tokenizer"}, .form = TextForm::kConsent},
      {.path = "elastic", .takes = kLayouts, .fallback = "[]",
       .doc = "Layouts that trident supervise --nodes-from falls back on when hosts are gone: texts, or objects with the keys of parallel that they change. Nothing else uses them."},
  };
}

std::vector<Option> log_and_gpu_options() {
  return {
      {.path = "log.every", .takes = kInteger, .fallback = "10", .doc = "One line and one metrics record every so many steps.", .range = kFromOne,
       .unit = "steps", .aka = {"log_interval", "logging_steps"}},
      {.path = "log.tensorboard", .takes = kBool, .fallback = "true", .doc = "Write TensorBoard events into the run directory.", .aka = {"tensorboard_dir"}},
      {.path = "log.trace_steps", .takes = kNull | kIntegers, .fallback = "null",
       .doc = "First and last step that a Chrome trace in the run directory shows; null or []: none.", .range = kFromOne,
       .aka = {"profile_step_start", "profile_step_end"}},
      {.path = "log.report", .takes = kBool, .fallback = "true",
       .doc = "Write report.html into the run directory at the end, and last_step.json on the way, which trident report draws."},
      {.path = "log.prometheus", .takes = kNull | kString, .fallback = "null",
       .doc = "File that is replaced at each logged step, evaluation and checkpoint by where the run is, in Prometheus's text "
              "format (node_exporter's textfile collector reads names that end in .prom). null: none."},
      {.path = "log.verbose", .takes = kBool, .fallback = "false",
       .doc = "Show all opening lines; else those that a user needs. run.log in the run directory has all in any case."},
      {.path = "log.on_error", .takes = kString, .fallback = "\"continue\"",
       .doc = "What a line of the logs that cannot be written does to the run: a warning and a count at its end, or the end.",
       .choices = {"continue", "stop"}},
      {.path = "cuda.tf32", .takes = kBool, .fallback = "false",
       .doc = "Multiply fp32 matrices on tensor cores, with operands rounded to 10 bits of mantissa.", .aka = {"allow_tf32", "matmul_precision"}},
      {.path = "cuda.deterministic", .takes = kBool, .fallback = "true",
       .doc = "Products and attention give the same bits every time; false: also algorithms that add in any order, which may be faster.",
       .aka = {"deterministic_mode", "use_deterministic_algorithms"}},
      {.path = "cuda.autotune", .takes = kNull | kString, .fallback = "null",
       .doc = "File that keeps the fastest algorithm of every product; products that are not in it are timed once at the start. null: the library's first proposal.",
       .aka = {"max_autotune"}},
      {.path = "cuda.nccl_max_ctas", .takes = kInteger | kAxes, .fallback = "0",
       .doc = "Most thread blocks that an operation of NCCL may take from computation, along every axis or along each by itself; 0, or an axis left out: NCCL's own choice.",
       .range = {0, 64}, .aka = {"NCCL_MAX_CTAS", "nccl_communicator_config_path"}},
      {.path = "cuda.nccl_any_order", .takes = kBool, .fallback = "false",
       .doc = "Operations of different NCCL communicators start as each is ready (NCCL_LAUNCH_ORDER_IMPLICIT=0) and not in the "
              "order in which the host issued them. Only with cuda.nccl_max_ctas along every axis, so that all of them fit onto "
              "the GPU at once: one that finds no room while it is waited for never ends. Off until it has been measured.",
       .aka = {"NCCL_LAUNCH_ORDER_IMPLICIT"}},
      {.path = "cuda.spare_multiprocessors", .takes = kInteger, .fallback = "0",
       .doc = "Multiprocessors of the GPU that products leave to communication beside them (cuBLASLt's SM_COUNT_TARGET), best "
              "what cuda.nccl_max_ctas allows; 0, and off until it has been measured: none.",
       .range = {0, 128}, .aka = {"sm_margin", "SM_COUNT_TARGET"}},
      {.path = "cuda.nccl_register", .takes = kBool, .fallback = "false",
       .doc = "Take the memory of ranks from NCCL and register it with all communicators, so that it is read and written without copies where NVLink and network cards can; off, as in NCCL itself, until it has been measured: registering takes time and resources of the network cards.",
       .aka = {"use_nccl_ub", "nccl_ub", "NCCL_LOCAL_REGISTER"}},
      {.path = "cuda.nccl_timeout", .takes = kNumber, .fallback = "590",
       .doc = "Longest time without any operation of an NCCL group done while one is under way; then the run ends and names it.",
       .range = {0, 590, Range::Ends::kOpenLow}, .unit = "seconds", .aka = {"distributed_timeout_minutes", "nccl_timeout_sec"}},
      {.path = "cuda.epilogues", .takes = kBool, .fallback = "false",
       .doc = "Biases, GELU and their gradients in the kernels of the products they belong to; results are rounded once where they are otherwise rounded twice.",
       .aka = {"bias_gelu_fusion", "gelu_fusion"}},
      {.path = "cuda.graphs", .takes = kBool, .fallback = "false",
       .doc = "Capture the passes and updates of each unit once, and launch them as a whole from then on; takes memory beside the plan's.",
       .aka = {"enable_cuda_graph", "cuda_graph_impl", "external_cuda_graph"}},
      {.path = "debug.no_alloc", .takes = kBool, .fallback = "false", .doc = "A memory allocation inside a step is an error."},
      {.path = "debug.check_collectives", .takes = kBool, .fallback = "true", .doc = "Compare what ranks are about to communicate before they do."},
  };
}

}  // namespace

std::span<const OptionBlock> option_blocks() {
  static const std::vector<OptionBlock> blocks = make_blocks();
  return blocks;
}

std::span<const Option> option_table() {
  static const std::vector<Option> table = [] {
    std::vector<Option> all;
    for (auto* part : {run_options, model_options, parallel_options, adapter_options, number_options, data_options,
                       eval_and_checkpoint_options, log_and_gpu_options})
      for (Option& option : part()) all.push_back(std::move(option));
    return all;
  }();
  return table;
}

const Option* find_option(std::string_view path) {
  for (const Option& option : option_table())
    if (option.path == path) return &option;
  return nullptr;
}

const OptionBlock* find_block(std::string_view name) {
  for (const OptionBlock& block : option_blocks())
    if (block.name == name) return &block;
  return nullptr;
}

std::string_view block_of(const Option& option) {
  const auto dot = option.path.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : option.path.substr(0, dot);
}

std::string_view key_of(const Option& option) {
  return option.path.substr(option.path.rfind('.') + 1);
}

}  // namespace trident
