// Which call of a library a thread stands in, for another thread to see: a call that never returns says nothing of itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace trident {

enum class MarkedCall : std::uint8_t { kNone, kIsend, kIrecv, kTest, kIprobe, kIbarrier, kFinalize };

inline std::string_view to_string(MarkedCall call) {
  switch (call) {
    case MarkedCall::kNone: break;
    case MarkedCall::kIsend: return "MPI_Isend";
    case MarkedCall::kIrecv: return "MPI_Irecv";
    case MarkedCall::kTest: return "MPI_Test";
    case MarkedCall::kIprobe: return "MPI_Iprobe";
    case MarkedCall::kIbarrier: return "MPI_Ibarrier";
    case MarkedCall::kFinalize: return "MPI_Finalize";
  }
  return "no call";
}

// One writer; entering and leaving cost one relaxed store each.
class CallMark {
 public:
  // Runs `call()` as what `kind` says.
  template <class F>
  auto during(MarkedCall kind, F&& call) {
    const Leave leave{enter(kind)};
    return call();
  }

  // Every call has another number, so that two looks tell whether it is still the same.
  struct Look {
    std::uint64_t number = 0;
    MarkedCall call = MarkedCall::kNone;
  };
  Look look() const {
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    return {word >> kBits, static_cast<MarkedCall>(word & ((1u << kBits) - 1))};
  }

 private:
  static constexpr int kBits = 8;
  struct Leave {
    CallMark& mark;
    ~Leave() { mark.word_.store(mark.count_ << kBits, std::memory_order_relaxed); }
  };
  CallMark& enter(MarkedCall kind) {
    word_.store(++count_ << kBits | static_cast<std::uint64_t>(kind), std::memory_order_relaxed);
    return *this;
  }

  std::uint64_t count_ = 0;  // the writer's
  std::atomic<std::uint64_t> word_{0};
};

}  // namespace trident
