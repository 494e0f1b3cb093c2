// When a rank's communication happened, operation by operation: raw material of traces.
//
// A device that was given a log adds a record for every operation that one of its streams completes and for every wait of the host for
// a stream. Records go into memory that is reserved between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trident {

class Stream;

struct OperationRecord {
  enum class Kind : std::uint8_t {
    kOperation,  // issued: handed to the stream; start: at the head of its queue; end: seen complete
    kWait,       // the host waited for `stream` from start to end; issued = start
  } kind = Kind::kOperation;
  const Stream* stream = nullptr;
  double issued = 0, start = 0, end = 0;  // monotonic_seconds
};

// Used by one thread.
class OperationLog {
 public:
  // Sets what add() does until the next call; kCount needs no memory.
  enum class Mode : std::uint8_t { kCount, kRecord };
  void set_mode(Mode mode) { mode_ = mode; }

  // Room for `records` more. A log that is full grows, which inside a NoAllocationScope is an error.
  void reserve(std::size_t records) { records_.reserve(records_.size() + records); }
  void add(const OperationRecord& record) {
    ++count_;
    if (mode_ == Mode::kRecord) records_.push_back(record);
  }

  std::span<const OperationRecord> records() const { return records_; }
  std::size_t count() const { return count_; }  // calls of add() so far, in either mode
  void clear() { records_.clear(); }            // keeps the memory

 private:
  Mode mode_ = Mode::kCount;
  std::size_t count_ = 0;
  std::vector<OperationRecord> records_;
};

}  // namespace trident
