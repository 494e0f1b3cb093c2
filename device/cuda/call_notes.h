// What a stretch of work would do, operation by operation: names and arguments, exactly.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/tensor_view.h"
#include "device/cuda/kernels/kernels.h"
#include "device/ops.h"

namespace trident {

// Equal words: the same operations with the same arguments, in the same order. AdamW's numbers are kept beside the words, for they change
// with every update. Memory grows only while work is longer than any before.
class CallNotes {
 public:
  // `operation` is a literal; of one place in the program, so that its address names it.
  template <class... Args>
  void add(const char* operation, const Args&... args) {
    append(operation);
    (append(args), ...);
    ++calls_;
  }
  // Arguments of `operation` are new each time it is called.
  void add_unrepeatable() { repeatable_ = false; }
  void clear();

  const std::vector<std::uint64_t>& words() const { return words_; }
  const std::vector<AdamWStep>& steps() const { return steps_; }
  std::size_t calls() const { return calls_; }
  bool repeatable() const { return repeatable_; }

 private:
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>) void append(const T& value) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    add_word(word);
  }
  void add_word(std::uint64_t word);
  void append(ConstTensorView view);
  void append(TensorView view) { append(ConstTensorView(view)); }
  void append(const AttentionShape& shape);
  void append(const FusedMatmul& fused);
  void append(const VocabularyShard& shard);
  void append(const cuda_kernels::Scratch& scratch);
  void append(const RoundedElements& elements);
  void append(const AdamWStep& step);

  std::vector<std::uint64_t> words_;
  std::vector<AdamWStep> steps_;
  std::size_t calls_ = 0;
  bool repeatable_ = true;
};

}  // namespace trident
