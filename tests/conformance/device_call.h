// A case called once on a device: operands between guard bytes in the device's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "tests/conformance/op_case.h"

namespace trident::conformance {

class DeviceCall {
 public:
  // Announces the call and writes the operands: `initial`, repeated until full. Outputs hold bytes 0xff, the first 64 KB of the
  // workspace `workspace_fill`. What the device refuses is thrown here or by run(), as its error.
  DeviceCall(Device& device, const OpCase& c, const std::vector<Values>& initial, std::byte workspace_fill);

  // Enqueues the operation on the compute stream.
  void run();
  // The same, where nothing may be allocated. (An error's text would be: refusals are asked for by run().)
  void run_in_step();
  // Fetches what the memory holds once everything enqueued is done: what the following tell of.
  void read_back();

  std::span<const std::byte> bytes(std::size_t operand) const;
  // Whether nothing beside an operand was written; for the workspace, number operands.size().
  bool guards_intact(std::size_t operand) const;

 private:
  TensorView stretch(std::int64_t first, std::int64_t count) const;
  std::int64_t first_byte(std::size_t operand) const { return views_[operand].data() - memory_.data(); }

  Device& device_;
  const OpCase& case_;
  Buffer memory_;                       // one piece: guard, operand, guard, ..., workspace, guard
  std::vector<TensorView> views_;       // of the operands and, last, the workspace
  std::int64_t head_bytes_ = 0;         // of memory_ up to where the workspace is no longer looked at
  std::vector<std::byte> head_, tail_;  // read back: those, and the guard behind the workspace
};

}  // namespace trident::conformance
