#include "tests/conformance/device_call.h"

#include <algorithm>
#include <cstdint>

#include "core/int_math.h"
#include "device/no_allocation.h"

namespace trident::conformance {

namespace {

constexpr std::int64_t kGuard = 256;  // bytes on each side: the alignment that an arena gives stays
constexpr std::int64_t kFilledWorkspace = 64 << 10;
constexpr std::byte kGuardByte{0xA5};
constexpr std::byte kOutputByte{0xFF};  // NaN in every floating type

// `content` as often as it takes.
void fill(std::span<std::byte> to, std::span<const std::byte> content) {
  for (std::size_t at = 0; at < to.size(); at += content.size())
    std::copy_n(content.begin(), std::min(content.size(), to.size() - at), to.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

TensorView DeviceCall::stretch(std::int64_t first, std::int64_t count) const {
  return {memory_.data() + first, DType::kU8, {count}, memory_.where()};
}

DeviceCall::DeviceCall(Device& device, const OpCase& c, const std::vector<Values>& initial, std::byte workspace_fill)
    : device_(device), case_(c) {
  const std::int64_t workspace = c.prepare ? c.prepare(device.ops()) : 0;
  std::vector<std::int64_t> first;
  std::int64_t end = 0;  // of what is placed so far
  for (const Operand& o : c.operands) {
    first.push_back(round_up(end, kGuard) + kGuard + (o.dtype == c.dtype ? c.shift * size_of(o.dtype) : 0));
    end = first.back() + o.shape.num_elements() * size_of(o.dtype);
  }
  first.push_back(round_up(end, kGuard) + kGuard);
  memory_ = device.allocate(first.back() + workspace + kGuard, c.op);
  head_bytes_ = first.back() + std::min(workspace, kFilledWorkspace);

  head_.assign(static_cast<std::size_t>(head_bytes_), kGuardByte);
  tail_.assign(kGuard, kGuardByte);
  const std::span<std::byte> head(head_);
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    const Operand& o = c.operands[i];
    views_.emplace_back(memory_.data() + first[i], o.dtype, o.shape, memory_.where());
    fill(head.subspan(static_cast<std::size_t>(first[i]), static_cast<std::size_t>(views_[i].num_bytes())),
         o.role == Role::kOutput ? std::vector<std::byte>{kOutputByte} : encode(o.dtype, initial[i]));
  }
  views_.push_back(stretch(first.back(), workspace));
  fill(head.subspan(static_cast<std::size_t>(first.back())), std::vector<std::byte>{workspace_fill});
  device.write(device.compute_stream(), stretch(0, head_bytes_), head_.data());
  device.write(device.compute_stream(), stretch(first.back() + workspace, kGuard), tail_.data());
}

void DeviceCall::run() {
  const std::span<const TensorView> views(views_);
  case_.run(device_.ops(), device_.compute_stream(), views.first(case_.operands.size()), views.back());
}

void DeviceCall::run_in_step() {
  const NoAllocationScope step(case_.op);
  run();
}

void DeviceCall::read_back() {
  device_.read(device_.compute_stream(), head_.data(), stretch(0, head_bytes_));
  device_.read(device_.compute_stream(), tail_.data(),
               stretch(first_byte(case_.operands.size()) + views_.back().num_bytes(), kGuard));
}

std::span<const std::byte> DeviceCall::bytes(std::size_t operand) const {
  return std::span(head_).subspan(static_cast<std::size_t>(first_byte(operand)),
                                  static_cast<std::size_t>(views_[operand].num_bytes()));
}

bool DeviceCall::guards_intact(std::size_t operand) const {
  const auto guards = [](std::span<const std::byte> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == kGuardByte; });
  };
  const auto between = [&](std::int64_t begin, std::int64_t end) {
    return std::span(head_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  };
  const auto end_of = [&](std::size_t i) { return first_byte(i) + views_[i].num_bytes(); };
  const bool before = guards(between(operand == 0 ? 0 : end_of(operand - 1), first_byte(operand)));
  return before && guards(operand + 1 < views_.size() ? between(end_of(operand), first_byte(operand + 1))
                                                      : std::span<const std::byte>(tail_));
}

}  // namespace trident::conformance
