// Choices of the configuration that are train's own. Others are enums of whom they concern.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/checkpoint_content.h"

namespace trident {

// device. kAuto: GPUs, if there is one for each rank.
enum class AskedDevice : std::uint8_t { kAuto, kCpu, kCuda };
// precision.compute. kAuto: as the machine multiplies fast.
enum class ComputeFormat : std::uint8_t { kAuto, kBf16, kFp16, kFp32 };
// checkpoint.content
// loss.type: the nats of tokens, or what preference_loss.h makes of them (loss.variant).
enum class LossType : std::uint8_t { kCrossEntropy, kDpo };
enum class DpoVariant : std::uint8_t { kSigmoid, kIpo, kHinge };
// loss.normalize: every target of a global batch weighs the same, or every sequence of it.
enum class LossNormalize : std::uint8_t { kToken, kSequence };
// checkpoint.on_error, log.on_error
enum class OnError : std::uint8_t { kContinue, kStop };

// checkpoint.resume: the newest of checkpoint.dir, if there is one; none; or what a path names.
struct ResumeFrom {
  enum class Kind : std::uint8_t { kNewest, kNever, kPath } kind = Kind::kNewest;
  std::string path;  // for kPath
  bool operator==(const ResumeFrom&) const = default;
};
ResumeFrom parse_resume_from(std::string_view text);
std::string to_string(const ResumeFrom& from);  // "auto", "never", or the path

// The texts of option_table's choices.
std::optional<AskedDevice> parse_asked_device(std::string_view text);
std::optional<ComputeFormat> parse_compute_format(std::string_view text);
std::optional<CheckpointContent> parse_checkpoint_content(std::string_view text);
std::optional<LossType> parse_loss_type(std::string_view text);
std::optional<DpoVariant> parse_dpo_variant(std::string_view text);
std::optional<LossNormalize> parse_loss_normalize(std::string_view text);
std::optional<OnError> parse_on_error(std::string_view text);
std::string_view to_string(AskedDevice device);
std::string_view to_string(ComputeFormat format);
std::string_view to_string(CheckpointContent content);
std::string_view to_string(LossType type);
std::string_view to_string(DpoVariant variant);
std::string_view to_string(LossNormalize normalize);
std::string_view to_string(OnError reaction);

}  // namespace trident
