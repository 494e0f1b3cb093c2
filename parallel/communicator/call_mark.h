// Which call of a library a thread stands in, for another thread to see: a call that never returns says nothing of itself.
#pragma once

#include <atomic>
#include <cstdint>

namespace trident {

// One writer; entering and leaving cost two or one relaxed stores.
class CallMark {
 public:
  // Runs `call()` as the call `name` of the library, a text that lives as long as the program.
  template <class F>
  auto during(const char* name, F&& call) {
    const Leave leave{enter(name)};
    return call();
  }

  // Every call has another number, so that two looks tell whether it is still the same. A look that falls on the moment between two
  // calls may see the number of one and the name of the other; a call that lasts is seen as it is.
  struct Look {
    std::uint64_t number = 0;
    const char* call = nullptr;  // null: in none
    bool operator==(const Look&) const = default;
  };
  Look look() const { return {number_.load(std::memory_order_relaxed), name_.load(std::memory_order_relaxed)}; }

 private:
  struct Leave {
    CallMark& mark;
    ~Leave() { mark.name_.store(nullptr, std::memory_order_relaxed); }
  };
  CallMark& enter(const char* name) {
    number_.store(++count_, std::memory_order_relaxed);
    name_.store(name, std::memory_order_relaxed);
    return *this;
  }

  std::uint64_t count_ = 0;  // the writer's
  std::atomic<std::uint64_t> number_{0};
  std::atomic<const char*> name_{nullptr};
};

}  // namespace trident
