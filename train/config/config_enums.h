// Choices of the configuration that are train's own. Others are enums of whom they concern.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/checkpoint_content.h"
#include "core/named_enum.h"

namespace trident {

// device. kAuto: GPUs, if there is one for each rank.
enum class AskedDevice : std::uint8_t { kAuto, kCpu, kCuda };
template <>
inline constexpr std::array<std::string_view, 3> kNamesOf<AskedDevice>{"auto", "cpu", "cuda"};
// precision.compute. kAuto: as the machine multiplies fast.
enum class ComputeFormat : std::uint8_t { kAuto, kBf16, kFp16, kFp32 };
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<ComputeFormat>{"auto", "bf16", "fp16", "fp32"};
// loss.type: the nats of tokens, or what preference_loss.h makes of them (loss.variant).
enum class LossType : std::uint8_t { kCrossEntropy, kDpo };
template <>
inline constexpr std::array<std::string_view, 2> kNamesOf<LossType>{"cross_entropy", "dpo"};
enum class DpoVariant : std::uint8_t { kSigmoid, kIpo, kHinge };
template <>
inline constexpr std::array<std::string_view, 3> kNamesOf<DpoVariant>{"sigmoid", "ipo", "hinge"};
// loss.normalize: every target of a global batch weighs the same, or every sequence of it.
enum class LossNormalize : std::uint8_t { kToken, kSequence };
template <>
inline constexpr std::array<std::string_view, 2> kNamesOf<LossNormalize>{"token", "sequence"};
// checkpoint.on_error, log.on_error
enum class OnError : std::uint8_t { kContinue, kStop };
template <>
inline constexpr std::array<std::string_view, 2> kNamesOf<OnError>{"continue", "stop"};

// checkpoint.resume: the newest of checkpoint.dir, if there is one; none; or what a path names.
struct ResumeFrom {
  enum class Kind : std::uint8_t { kNewest, kNever, kPath } kind = Kind::kNewest;
  std::string path;  // for kPath
  bool operator==(const ResumeFrom&) const = default;
};
ResumeFrom parse_resume_from(std::string_view text);
std::string to_string(const ResumeFrom& from);  // "auto", "never", or the path

}  // namespace trident
