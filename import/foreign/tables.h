// The tables, one function a file; foreign_sections() takes them apart by their headings.
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

// Begins a section of docs/coming_from.md.
constexpr ForeignKey heading(std::string_view title) { return {title, Verdict::kAlways, "#"}; }
inline bool is_heading(const ForeignKey& row) { return row.to == "#"; }
// These make rows that become no key of ours. `instead` is a command, or what to write there.
constexpr ForeignKey always(std::string_view names, std::string_view note, std::string_view instead = {}) {
  return {names, Verdict::kAlways, instead, {}, note};
}
constexpr ForeignKey differs(std::string_view names, std::string_view note, std::string_view instead = {}) {
  return {names, Verdict::kDiffers, instead, {}, note};
}
constexpr ForeignKey refused(std::string_view names, std::string_view note, std::string_view instead = {}) {
  return {names, Verdict::kRefused, instead, {}, note};
}
constexpr ForeignKey launcher(std::string_view names, std::string_view note) {
  return {names, Verdict::kLauncher, {}, {}, note};
}

std::span<const ForeignKey> accelerate_rows();
std::span<const ForeignKey> deepspeed_rows();
std::span<const ForeignKey> hugging_face_rows();
std::span<const ForeignKey> swift_rows();
std::span<const ForeignKey> axolotl_rows();
std::span<const ForeignKey> llama_factory_rows();
std::span<const ForeignKey> megatron_rows();
std::span<const ForeignKey> torchtitan_rows();
std::span<const ForeignKey> olmo_rows();
std::span<const ForeignKey> launcher_rows();
std::span<const ForeignKey> other_rows();

}  // namespace trident
