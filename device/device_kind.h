// The kind of device that computes for a rank.
#pragma once

#include <cstdint>
#include <string_view>

namespace trident {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

// As the key `device` has it.
constexpr std::string_view to_string(DeviceKind kind) { return kind == DeviceKind::kCuda ? "cuda" : "cpu"; }
// Messages call the device so.
constexpr std::string_view multiplier_name(DeviceKind kind) { return kind == DeviceKind::kCuda ? "GPU" : "processor"; }

}  // namespace trident
