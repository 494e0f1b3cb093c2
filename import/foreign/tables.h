// The tables, one function a file; foreign_sections() puts them together.
#pragma once

#include <span>

#include "import/foreign/foreign_key.h"

namespace trident {

// Sentences of several tables.
inline constexpr std::string_view kFsdpOffload =
    "offload.parameters, offload.optimizer and offload.gradients, which FSDP keeps together";
inline constexpr std::string_view kStages = "0 is ddp, and stage N is zeroN";
inline constexpr std::string_view kReducesOften =
    "stage N is zeroN; gradients are reduced after every micro-batch, as DeepSpeed does, though in fp32; parallel.grad_sync "
    "\"step\" reduces once a step";
inline constexpr std::string_view kWithData = "the targets that count are chosen with the data";
inline constexpr std::string_view kNoSuchMethod = "a method that is not there: all weights or LoRA's train, by AdamW or Lion";
inline constexpr std::string_view kMoreTokens =
    "data.tokenizer names a tokenizer that has them, and rows are added; beside adapters adapter.modules_to_save trains them";
inline constexpr std::string_view kSetAside = "the last documents of each file are set aside; there they are drawn at random";
inline constexpr std::string_view kSendsNothing =
    "nothing is sent anywhere; ten lines in docs/logs.md send metrics.jsonl to Weights & Biases or MLflow";
inline constexpr std::string_view kPreparesValid = "data.valid names what trident data prepare writes of each";
inline constexpr std::string_view kTemplateOfData =
    "a template is named, or given as a file, when data are prepared; the tokenizer's own is taken otherwise";
inline constexpr std::string_view kPrepareByTemplate = "trident data prepare --chat --template NAME";
inline constexpr std::string_view kOwnTemplate = "the tokenizer's own template where none is named";

std::span<const ForeignSection> accelerate_sections();
std::span<const ForeignSection> deepspeed_sections();
std::span<const ForeignSection> launcher_sections();
std::span<const ForeignSection> hugging_face_sections();
std::span<const ForeignSection> swift_sections();
std::span<const ForeignSection> axolotl_sections();
std::span<const ForeignSection> llama_factory_sections();
std::span<const ForeignSection> megatron_sections();
std::span<const ForeignSection> torchtitan_sections();
std::span<const ForeignSection> olmo_sections();
std::span<const ForeignSection> other_sections();

}  // namespace trident
