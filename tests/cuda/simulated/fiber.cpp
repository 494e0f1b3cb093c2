#include "tests/cuda/simulated/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

// Saves what a call must preserve on the running stack, notes its top in *save and goes on where `to` was saved. x86-64, System V.
extern "C" void trident_switch_stack(void** save, void* to);
asm(R"(
.text
.globl trident_switch_stack
.type trident_switch_stack, @function
trident_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size trident_switch_stack, . - trident_switch_stack
)");

namespace trident::simulated {

namespace {

constexpr std::size_t kPage = 4096;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStack = 256 << 10;  // sanitized frames are large
#else
constexpr std::size_t kStack = 64 << 10;
#endif
constexpr std::size_t kSavedRegisters = 6;

// The resumer's saved stack, and the fiber that starts: one thread at a time runs fibers (the simulation's lock).
void* resumer = nullptr;
Fiber* starting = nullptr;
#if defined(__SANITIZE_THREAD__)
void* resumer_in_tsan = nullptr;
#endif

}  // namespace

Fiber::Fiber(Body body) : body_(body) {
  void* mapped =
      mmap(nullptr, kPage + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapped == MAP_FAILED || mprotect(mapped, kPage, PROT_NONE) != 0) {
    std::fprintf(stderr, "simulated CUDA: no memory for the stack of another thread of a block\n");
    std::abort();
  }
  mapping_ = static_cast<std::byte*>(mapped);
  // As if enter() had been called and had switched away at its first instruction: its return address would lie above an aligned
  // slot.
  auto* top = reinterpret_cast<std::uintptr_t*>(mapping_ + kPage + kStack) - 2;
  *top = reinterpret_cast<std::uintptr_t>(&Fiber::enter);
  stack_pointer_ = top - kSavedRegisters;
#if defined(__SANITIZE_THREAD__)
  fiber_shadow_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(fiber_shadow_);
#endif
  munmap(mapping_, kPage + kStack);
}

void Fiber::enter() {
  Fiber& self = *starting;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self.resumer_stack_, &self.resumer_stack_bytes_);
#endif
  for (;;) {
    self.body_();
    self.suspend();
  }
}

void Fiber::resume() {
  starting = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&resumer_shadow_, mapping_ + kPage, kStack);
#endif
#if defined(__SANITIZE_THREAD__)
  resumer_in_tsan = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber_shadow_, 0);
#endif
  trident_switch_stack(&resumer, stack_pointer_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(resumer_shadow_, nullptr, nullptr);
#endif
}

void Fiber::suspend() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fiber_shadow_, resumer_stack_, resumer_stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(resumer_in_tsan, 0);
#endif
  trident_switch_stack(&stack_pointer_, resumer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fiber_shadow_, &resumer_stack_, &resumer_stack_bytes_);
#endif
}

}  // namespace trident::simulated
