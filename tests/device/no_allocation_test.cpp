// The guard against allocation inside a step: it is linked in, it throws, it can be lifted.
#include "device/no_allocation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "core/check.h"
#include "device/buffer.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

// Not inlined and opaque, so that the compiler cannot leave the allocation out.
[[gnu::noinline]] void allocate_some() {
  auto p = std::make_unique<int[]>(100);
  asm volatile("" : : "g"(p.get()) : "memory");
}

// Returns what `f` throws inside a scope, or "". It is collected before the scope closes and compared after it.
template <class F>
std::string thrown_in_scope(F&& f) {
  std::string message;
  message.reserve(1000);
  const NoAllocationScope scope("step 7");
  try {
    f();
  } catch (const InternalError& e) {
    message = e.what();
  }
  return message;
}

TEST(NoAllocation, OperatorNewThrowsWithTheNameOfTheScope) {
  const std::string message = thrown_in_scope([] { allocate_some(); });
  expect_parts(message, {"step 7: operator new allocates 400 bytes"});
  EXPECT_NO_THROW(allocate_some());
}

TEST(NoAllocation, GrowingAContainerThrows) {
  std::vector<int> v(4);
  EXPECT_NE(thrown_in_scope([&] { v.resize(1000); }), "");
  EXPECT_EQ(v.size(), 4u);
}

TEST(NoAllocation, AlignedNewThrows) {
  struct alignas(128) Wide {
    char bytes[128];
  };
  EXPECT_NE(thrown_in_scope([] {
              auto p = std::make_unique<Wide>();
              asm volatile("" : : "g"(p.get()) : "memory");
            }),
            "");
  const auto p = std::make_unique<Wide>();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p.get()) % 128, 0u);
}

TEST(NoAllocation, NothrowNewGivesNull) {
  void* p = nullptr;
  {
    const NoAllocationScope scope("step");
    p = ::operator new(16, std::nothrow);
  }
  EXPECT_EQ(p, nullptr);
  p = ::operator new(16, std::nothrow);
  EXPECT_NE(p, nullptr);
  ::operator delete(p, std::nothrow);
}

TEST(NoAllocation, BuffersThrowWithTheirName) {
  const std::string name = "a name that is longer than a string holds without allocating";
  const std::string message = thrown_in_scope([&] { allocate_host(4096, name); });
  expect_parts(message, {name + " allocates 4096 bytes"});
}

TEST(NoAllocation, AnExemptionLiftsIt) {
  EXPECT_EQ(thrown_in_scope([] {
              const AllocationExemption exemption;
              allocate_some();
            }),
            "");
  EXPECT_NE(thrown_in_scope([] {
              { const AllocationExemption exemption; }
              allocate_some();
            }),
            "");
}

TEST(NoAllocation, ScopesNestAndNameTheInnermost) {
  std::string inner, outer;
  inner.reserve(1000);
  outer.reserve(1000);
  {
    const NoAllocationScope a("outer");
    {
      const NoAllocationScope b("inner");
      try {
        allocate_some();
      } catch (const InternalError& e) {
        inner = e.what();
      }
    }
    try {
      allocate_some();
    } catch (const InternalError& e) {
      outer = e.what();
    }
  }
  EXPECT_EQ(inner.find("inner:"), 0u) << inner;
  EXPECT_EQ(outer.find("outer:"), 0u) << outer;
}

TEST(NoAllocation, OtherThreadsAreFree) {
  bool ran = false, go = false;
  std::atomic<bool> start{false};
  std::thread other([&] {
    while (!start) std::this_thread::yield();
    allocate_some();
    ran = true;
  });
  {
    const NoAllocationScope scope("step");
    start = true;
    other.join();
    go = true;
  }
  EXPECT_TRUE(ran && go);
}

}  // namespace
}  // namespace trident
