#include "train/config/config_enums.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/at.h"

namespace trident {
namespace {

// In the order of the enums.
constexpr std::array<std::string_view, 3> kAskedDevices{"auto", "cpu", "cuda"};
constexpr std::array<std::string_view, 4> kComputeFormats{"auto", "bf16", "fp16", "fp32"};
constexpr std::array<std::string_view, 2> kContents{"all", "weights"};
constexpr std::array<std::string_view, 2> kLossTypes{"cross_entropy", "dpo"};
constexpr std::array<std::string_view, 3> kDpoVariants{"sigmoid", "ipo", "hinge"};
constexpr std::array<std::string_view, 2> kNormalizes{"token", "sequence"};
constexpr std::array<std::string_view, 2> kReactions{"continue", "stop"};

constexpr std::string_view kNewest = "auto", kNever = "never";

template <class Enum, std::size_t n>
std::optional<Enum> find_in(const std::array<std::string_view, n>& texts, std::string_view text) {
  const auto at = std::ranges::find(texts, text);
  return at == texts.end() ? std::nullopt : std::optional(static_cast<Enum>(at - texts.begin()));
}

}  // namespace

ResumeFrom parse_resume_from(std::string_view text) {
  if (text == kNewest) return {ResumeFrom::Kind::kNewest, ""};
  if (text == kNever) return {ResumeFrom::Kind::kNever, ""};
  return {ResumeFrom::Kind::kPath, std::string(text)};
}

std::string to_string(const ResumeFrom& from) {
  switch (from.kind) {
    case ResumeFrom::Kind::kNewest: return std::string(kNewest);
    case ResumeFrom::Kind::kNever: return std::string(kNever);
    case ResumeFrom::Kind::kPath: break;
  }
  return from.path;
}

std::optional<AskedDevice> parse_asked_device(std::string_view text) { return find_in<AskedDevice>(kAskedDevices, text); }
std::optional<ComputeFormat> parse_compute_format(std::string_view text) { return find_in<ComputeFormat>(kComputeFormats, text); }
std::optional<CheckpointContent> parse_checkpoint_content(std::string_view text) {
  return find_in<CheckpointContent>(kContents, text);
}
std::optional<LossType> parse_loss_type(std::string_view text) { return find_in<LossType>(kLossTypes, text); }
std::optional<DpoVariant> parse_dpo_variant(std::string_view text) { return find_in<DpoVariant>(kDpoVariants, text); }
std::optional<LossNormalize> parse_loss_normalize(std::string_view text) { return find_in<LossNormalize>(kNormalizes, text); }
std::optional<OnError> parse_on_error(std::string_view text) { return find_in<OnError>(kReactions, text); }

std::string_view to_string(AskedDevice device) { return at(kAskedDevices, device); }
std::string_view to_string(ComputeFormat format) { return at(kComputeFormats, format); }
std::string_view to_string(CheckpointContent content) { return at(kContents, content); }
std::string_view to_string(LossType type) { return at(kLossTypes, type); }
std::string_view to_string(DpoVariant variant) { return at(kDpoVariants, variant); }
std::string_view to_string(LossNormalize normalize) { return at(kNormalizes, normalize); }
std::string_view to_string(OnError reaction) { return at(kReactions, reaction); }

}  // namespace trident
