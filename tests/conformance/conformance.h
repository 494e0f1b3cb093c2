// The operations' conformance suite: cases on any device, judged by the scalar reference and by what every operation promises.
//
// A case passes on a device if
// - every output is within its tolerance of the reference (op_case.h), and every element of it was written;
// - nothing beside the outputs was written: not the inputs, not the guard bytes around operands and workspace;
// - a second call on other memory, with another workspace content and with nothing allocated, gives the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "tests/conformance/op_case.h"

namespace trident::conformance {

enum class Outcome : std::uint8_t { kPassed, kFailed, kRefused };
std::string_view to_string(Outcome outcome);

struct CaseResult {
  std::string name;
  Outcome outcome = Outcome::kPassed;
  // The element is the one nearest to (or furthest beyond) what is allowed.
  double max_error = 0, allowed = 0;
  // The text says what is wrong, or has the message with which the device refused.
  std::string what;
  // max_error / allowed; an exact result that is missed: infinite.
  double share() const;
};

// "a:b-c:d": the names that match a or b and neither c nor d. Patterns as a shell's; one without '/' means the operation. "": all.
bool matches(std::string_view filter, const std::string& name);

CaseResult run_case(Device& device, const OpCase& c, std::uint64_t seed);
// The cases of the table whose names match, on inputs drawn anew for every seed.
std::vector<CaseResult> run_cases(Device& device, std::string_view filter, std::uint64_t seed);

// The same calls on two devices: results differ by at most twice the tolerance, as each may be off by one.
CaseResult compare_case(Device& device, Device& other, const OpCase& c, std::uint64_t seed);
std::vector<CaseResult> compare_devices(Device& device, Device& other, std::string_view filter, std::uint64_t seed);

// Fused operations against those that they stand for, called one by one on the same device:
// the same bits, on a device that does not fuse.
std::vector<CaseResult> compare_one_by_one(Device& device, std::string_view filter, std::uint64_t seed);

// Returns which cases the device takes (kPassed: not judged) and which it refuses.
std::vector<CaseResult> find_support(Device& device, std::string_view filter);

}  // namespace trident::conformance
