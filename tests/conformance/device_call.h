// A case called once on a device: operands between guard bytes in the device's memory.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "device/device.h"
#include "tests/conformance/op_case.h"

namespace trident::conformance {

class DeviceCall {
 public:
  // Announces the call, allocates and writes the operands: `initial`, repeated until full. Outputs hold bytes 0xff, the workspace
  // `workspace_fill`. What the device refuses is thrown here or by run(), as its error.
  DeviceCall(Device& device, const OpCase& c, const std::vector<Values>& initial, std::byte workspace_fill);

  // Enqueues the operation on the compute stream.
  void run();
  // The same, where nothing may be allocated. (An error's text would be: refusals are asked for by run().)
  void run_in_step();

  // What the device's memory holds once everything enqueued is done.
  std::vector<std::byte> bytes(std::size_t operand);
  // Whether nothing beside an operand was written; for the workspace, number operands.size().
  bool guards_intact(std::size_t operand);

 private:
  struct Placed {
    Buffer memory;
    TensorView view;   // of the operand
    TensorView whole;  // of the memory, as bytes
  };
  Placed place(const std::string& name, DType dtype, const Shape& shape, Index shift);

  Device& device_;
  const OpCase& case_;
  std::vector<Placed> placed_;  // operands and, last, the workspace
  std::vector<TensorView> views_;
};

}  // namespace trident::conformance
