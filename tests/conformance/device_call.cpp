#include "tests/conformance/device_call.h"

#include <algorithm>
#include <cstring>

#include "device/no_allocation.h"

namespace trident::conformance {

namespace {

constexpr std::int64_t kGuard = 256;  // bytes on each side: the alignment that an arena gives stays
constexpr std::byte kGuardByte{0xA5};
constexpr std::byte kOutputByte{0xFF};  // NaN in every floating type

}  // namespace

DeviceCall::Placed DeviceCall::place(const std::string& name, DType dtype, const Shape& shape, Index shift) {
  const std::int64_t first = kGuard + shift * size_of(dtype), size = shape.num_elements() * size_of(dtype);
  Placed placed;
  placed.memory = device_.allocate(first + size + kGuard, name);
  const MemoryKind where = placed.memory.where();
  placed.whole = TensorView(placed.memory.data(), DType::kU8, {placed.memory.num_bytes()}, where);
  placed.view = TensorView(placed.memory.data() + first, dtype, shape, where);
  return placed;
}

DeviceCall::DeviceCall(Device& device, const OpCase& c, const std::vector<Values>& initial, std::byte workspace_fill)
    : device_(device), case_(c) {
  Stream& stream = device.compute_stream();
  // A copy between guards, as often as it takes to fill what lies between them.
  const auto write = [&](const Placed& placed, std::span<const std::byte> content) {
    std::vector<std::byte> all(static_cast<std::size_t>(placed.whole.num_bytes()), kGuardByte);
    const std::span<std::byte> inside(all.data() + (placed.view.data() - placed.whole.data()),
                                      static_cast<std::size_t>(placed.view.num_bytes()));
    for (std::size_t at = 0; at < inside.size(); at += content.size())
      std::copy_n(content.begin(), std::min(content.size(), inside.size() - at), inside.begin() + static_cast<std::ptrdiff_t>(at));
    device.write(stream, placed.whole, all.data());
  };
  const std::int64_t workspace = c.prepare ? c.prepare(device.ops()) : 0;
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    const Operand& o = c.operands[i];
    placed_.push_back(place(o.name, o.dtype, o.shape, o.dtype == c.dtype ? c.shift : 0));
    views_.push_back(placed_.back().view);
    write(placed_.back(), o.role == Role::kOutput ? std::vector<std::byte>{kOutputByte} : encode(o.dtype, initial[i]));
  }
  placed_.push_back(place("workspace", DType::kU8, {workspace}, 0));
  write(placed_.back(), std::vector<std::byte>{workspace_fill});
}

void DeviceCall::run() { case_.run(device_.ops(), device_.compute_stream(), views_, placed_.back().view); }

void DeviceCall::run_in_step() {
  const NoAllocationScope step(case_.op);
  run();
}

std::vector<std::byte> DeviceCall::bytes(std::size_t operand) {
  const TensorView view = placed_[operand].view;
  std::vector<std::byte> result(static_cast<std::size_t>(view.num_bytes()));
  device_.read(device_.compute_stream(), result.data(), view);
  return result;
}

bool DeviceCall::guards_intact(std::size_t operand) {
  const Placed& placed = placed_[operand];
  std::vector<std::byte> all(static_cast<std::size_t>(placed.whole.num_bytes()));
  device_.read(device_.compute_stream(), all.data(), placed.whole);
  const auto first = all.begin() + (placed.view.data() - placed.whole.data());
  const auto guards = [](auto begin, auto end) { return std::all_of(begin, end, [](std::byte b) { return b == kGuardByte; }); };
  return guards(all.begin(), first) && guards(first + placed.view.num_bytes(), all.end());
}

}  // namespace trident::conformance
