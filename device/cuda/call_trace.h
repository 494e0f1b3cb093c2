// A trace of a stretch of work, operation by operation: names and arguments, exactly.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "core/tensor_view.h"
#include "device/cuda/kernels/kernels.h"
#include "device/ops.h"

namespace trident {

// An argument that is new each time work comes: a value without padding, of 8-byte alignment at most. One of an operation.
template <class T>
struct PerLaunchArg {
  const T& value;
};

// Equal words: the same operations with the same arguments, in the same order, but for those that are PerLaunchArg, which are kept beside the
// words. Memory grows only while work is longer than any before.
class CallTrace {
 public:
  // `operation` is a literal; of one place in the program, so that its address names it.
  template <class... Args>
  void add(const char* operation, const Args&... args) {
    append(operation);
    (append(args), ...);
    ++calls_;
  }
  void clear();

  const std::vector<std::uint64_t>& words() const { return words_; }
  // The values of PerLaunchArg, each from the beginning of a word on.
  const std::vector<std::uint64_t>& numbers() const { return numbers_; }
  // Where the last of them begins.
  std::size_t last_number() const { return last_number_; }
  std::size_t calls() const { return calls_; }

 private:
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>) void append(const T& value) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    push(words_, word);
  }
  template <class T>
  void append(const PerLaunchArg<T>& argument) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= sizeof(std::uint64_t));
    last_number_ = numbers_.size();
    for (std::size_t at = 0; at < sizeof(T); at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, reinterpret_cast<const std::byte*>(&argument.value) + at, std::min(sizeof word, sizeof(T) - at));
      push(numbers_, word);
    }
  }
  static void push(std::vector<std::uint64_t>& all, std::uint64_t word);
  void append(ConstTensorView view);
  void append(TensorView view) { append(ConstTensorView(view)); }
  void append(const AttentionShape& shape);
  void append(std::span<const std::int64_t> values);
  void append(const FusedMatmul& fused);
  void append(const VocabularyShard& shard);
  void append(const cuda_kernels::Scratch& scratch);
  void append(const UpdateStates& states);
  void append(const RoundedElements& elements);

  std::vector<std::uint64_t> words_, numbers_;
  std::size_t last_number_ = 0, calls_ = 0;
};

}  // namespace trident
