// Where host operations of a device communicator follow one another: one lane for its collectives, one for the messages to each
// peer and one for those from it. At most one operation of a lane is under way, so lanes own what such an operation needs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/int_math.h"
#include "device/buffer.h"
#include "device/host/cpu_stream.h"
#include "parallel/cuda/call_record.h"

namespace trident {

class Lane {
 public:
  // Room for the records of `ranks` ranks and for `data_bytes` bytes behind them, in memory that peers reach.
  Lane(const std::string& name, int ranks, std::int64_t data_bytes, const HostAllocator& allocate, Progress& progress)
      : stream_(name, CpuStream::Mode::kQueue, progress),
        ranks_(ranks),
        data_offset_(round_up((1 + ranks) * kRecordWords * 8, std::int64_t{4096})),
        memory_(allocate(round_up(data_offset_ + data_bytes, std::int64_t{4096}), name)) {}  // whole pages can be locked

  CpuStream& stream() { return stream_; }
  TensorView mine() { return {memory_.data(), DType::kI64, {kRecordWords}}; }
  TensorView all() { return {memory_.data() + kRecordWords * 8, DType::kI64, {ranks_ * kRecordWords}}; }
  std::byte* data() { return memory_.data() + data_offset_; }
  std::int64_t data_bytes() const { return memory_.num_bytes() - data_offset_; }
  const Buffer& memory() const { return memory_; }

  // Operations take turns in the order in which they drew tickets.
  std::uint64_t draw() { return drawn_++; }
  bool is_turn_of(std::uint64_t ticket) const { return done_ == ticket; }
  void end_turn() { ++done_; }

 private:
  CpuStream stream_;
  std::int64_t ranks_, data_offset_;
  Buffer memory_;
  std::uint64_t drawn_ = 0, done_ = 0;
};

}  // namespace trident
