// Fibers: stacks between which one thread of the operating system switches. They may be resumed by different threads at different
// times.
#pragma once

#include <cstddef>

namespace trident::simulated {

// Runs `body` again and again: resume() runs it until it calls suspend() or returns; the resume() after a return starts it anew.
// Never destroyed while body is half way.
class Fiber {
 public:
  using Body = void (*)();
  explicit Fiber(Body body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void resume();
  // Called on this fiber: back to who resumed it.
  void suspend();

 private:
  static void enter();

  Body body_;
  std::byte* mapping_;
  void* stack_pointer_;
  // The sanitizers are told of every switch; these are their handles.
  void* fiber_shadow_ = nullptr;
  void* resumer_shadow_ = nullptr;
  const void* resumer_stack_ = nullptr;
  std::size_t resumer_stack_bytes_ = 0;
};

}  // namespace trident::simulated
