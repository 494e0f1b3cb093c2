// How the threads of a block take turns. Everything here runs under the simulation's lock.
#include "tests/cuda/simulated/simt.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "tests/cuda/simulated/block_run.h"
#include "tests/cuda/simulated/fiber.h"
#include "tests/cuda/simulated/launched_kernels.h"
#include "tests/cuda/simulated/shared_memory.h"

namespace trident::simulated {

RunningThread running;

namespace {

constexpr unsigned kWarp = 32;

enum class State : std::uint8_t { kReady, kAtBarrier, kInWarp, kExited };

struct Lane {
  State state = State::kReady;
  unsigned mask = 0;                // of the warp operation it waits in
  const char* operation = nullptr;  // that operation
  unsigned met = 0;                 // lanes of its last meeting
  unsigned parity = 0;              // of the number of its warp operations
};

struct Warp {
  unsigned alive = 0, waiting = 0;  // lanes
  // Values brought to meetings, by parity: a lane is at most one operation ahead of those that still read the last one's.
  std::array<std::array<std::uint64_t, kWarp>, 2> values{};
};

// The block that runs now.
struct Block {
  const char* kernel = "";
  const std::function<void()>* body = nullptr;
  std::vector<Lane> lanes;
  std::vector<Warp> warps;
  std::vector<std::unique_ptr<Fiber>> fibers;  // kept from launch to launch
  std::size_t current = 0, exited = 0, at_barrier = 0;
};

Block& block() {
  static Block* const it = new Block;  // fibers are never unwound
  return *it;
}

thread_local bool runs_kernel = false;

std::string text_of(const char* what, unsigned x, unsigned y, unsigned z) {
  return std::string(", ") + what + " (" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
}

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "simulated CUDA: %s: %s\n", describe_running().c_str(), what.c_str());
  std::abort();
}

void wait_as(State state) {
  Block& b = block();
  const std::size_t me = b.current;
  b.lanes[me].state = state;
  b.fibers[me]->suspend();
}

// Lets the lanes of `mask` that wait in it go on if all that have not exited are there.
void try_to_meet(std::size_t warp_index, unsigned mask) {
  Block& b = block();
  Warp& warp = b.warps[warp_index];
  const unsigned expected = mask & warp.alive;
  if ((warp.waiting & expected) != expected || expected == 0) return;
  const char* operation = nullptr;
  for (unsigned left = expected; left != 0; left &= left - 1) {
    const Lane& lane = b.lanes[warp_index * kWarp + static_cast<unsigned>(std::countr_zero(left))];
    if (lane.mask != mask) return;  // waits for others
    if (operation == nullptr) operation = lane.operation;
    if (operation != lane.operation && std::strcmp(operation, lane.operation) != 0)
      fail(std::string("lanes of one warp meet in ") + operation + " and in " + lane.operation);
  }
  for (unsigned left = expected; left != 0; left &= left - 1) {
    Lane& lane = b.lanes[warp_index * kWarp + static_cast<unsigned>(std::countr_zero(left))];
    lane.met = expected;
    lane.state = State::kReady;
  }
  warp.waiting &= ~expected;
}

void exit_thread() {
  Block& b = block();
  const std::size_t me = b.current;
  b.lanes[me].state = State::kExited;
  ++b.exited;
  Warp& warp = b.warps[me / kWarp];
  warp.alive &= ~(1u << me % kWarp);
  for (unsigned left = warp.waiting; left != 0; left &= left - 1)
    try_to_meet(me / kWarp, b.lanes[me / kWarp * kWarp + static_cast<unsigned>(std::countr_zero(left))].mask);
}

void run_thread() {
  (*block().body)();
  exit_thread();
}

std::string where_threads_are() {
  const Block& b = block();
  std::size_t in_warp = 0;
  const char* operation = "";
  for (const Lane& lane : b.lanes) {
    if (lane.state != State::kInWarp) continue;
    ++in_warp;
    operation = lane.operation;
  }
  return std::to_string(b.lanes.size()) + " threads: " + std::to_string(b.exited) + " exited, " + std::to_string(b.at_barrier) +
         " at __syncthreads(), " + std::to_string(in_warp) + " in warp operations" +
         (in_warp > 0 ? std::string(" (") + operation + ")" : "");
}

// Opens the barrier if all threads are there.
void try_to_open() {
  Block& b = block();
  if (b.at_barrier == 0 || b.at_barrier + b.exited < b.lanes.size()) return;
  if (b.exited > 0)
    fail("__syncthreads() not reached by " + std::to_string(b.exited) + " of " + std::to_string(b.lanes.size()) +
         " threads, which exited");
  b.at_barrier = 0;
  for (Lane& lane : b.lanes) lane.state = State::kReady;
}

void set_running(std::size_t thread) {
  Block& b = block();
  b.current = thread;
  const auto t = static_cast<unsigned>(thread);
  running.thread = {t % running.threads.x, t / running.threads.x % running.threads.y, t / running.threads.x / running.threads.y};
  running.lane = t % kWarp;
}

// Runs those of `threads` that are ready, each until it waits; whether there were any.
bool take_turns(std::span<const unsigned> threads) {
  Block& b = block();
  bool any = false;
  for (const unsigned thread : threads) {
    if (b.lanes[thread].state != State::kReady) continue;
    any = true;
    set_running(thread);
    b.fibers[thread]->resume();
  }
  return any;
}

// Threads that take turns: all of them, or the lanes of one warp, which goes on alone until its lanes wait for others.
enum class Together : std::uint8_t { kBlock, kWarp };

void run_block(std::span<const unsigned> order, Together together) {
  Block& b = block();
  const std::size_t threads = b.lanes.size();
  std::fill(b.lanes.begin(), b.lanes.end(), Lane());
  for (std::size_t w = 0; w < b.warps.size(); ++w) {
    const std::size_t lanes = std::min<std::size_t>(kWarp, threads - w * kWarp);
    b.warps[w].alive = lanes == kWarp ? ~0u : (1u << lanes) - 1;
    b.warps[w].waiting = 0;
  }
  b.exited = b.at_barrier = 0;
  while (b.exited < threads) {
    bool any = false;
    for (std::size_t first = 0, end = 0; first < threads; first = end) {
      const auto goes_along = [&](unsigned thread) {
        return together == Together::kBlock || thread / kWarp == order[first] / kWarp;
      };
      while (end < threads && goes_along(order[end])) ++end;
      while (take_turns(order.subspan(first, end - first))) any = true;
    }
    try_to_open();
    if (!any && std::none_of(b.lanes.begin(), b.lanes.end(), [](const Lane& lane) { return lane.state == State::kReady; }))
      fail("deadlock of a divergent barrier or warp operation; of its " + where_threads_are());
  }
}

// Sorts threads by warp, warps in the order of their first threads; the lanes of a warp stay in theirs.
void gather_warps(std::vector<unsigned>& order) {
  std::vector<std::size_t> place((order.size() + kWarp - 1) / kWarp, order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i] / kWarp] = std::min(place[order[i] / kWarp], i);
  std::ranges::stable_sort(order, {}, [&](unsigned thread) { return place[thread / kWarp]; });
}

}  // namespace

void block_barrier() {
  ++block().at_barrier;
  wait_as(State::kAtBarrier);
}

WarpMeeting warp_meeting(unsigned mask, const char* operation, std::uint64_t value) {
  Block& b = block();
  const std::size_t me = b.current;
  const unsigned bit = 1u << me % kWarp;
  Lane& lane = b.lanes[me];
  Warp& warp = b.warps[me / kWarp];
  if ((mask & bit) == 0) fail(std::string(operation) + " called by a lane that its mask does not name");
  lane.mask = mask;
  lane.operation = operation;
  lane.parity ^= 1u;
  warp.values[lane.parity][me % kWarp] = value;
  warp.waiting |= bit;
  lane.state = State::kInWarp;
  try_to_meet(me / kWarp, mask);
  if (lane.state == State::kInWarp) b.fibers[me]->suspend();
  return {warp.values[lane.parity].data(), lane.met};
}

std::string describe_running() {
  if (!runs_kernel) return {};
  return std::string("kernel ") + block().kernel + text_of("block", running.block.x, running.block.y, running.block.z) +
         text_of("thread", running.thread.x, running.thread.y, running.thread.z);
}

std::uint64_t garbage() { return ~std::uint64_t{0}; }  // not a number, or -1

void run_kernel(const KernelLaunch& launch, const std::function<void()>& body, FiberOrder fiber_order, std::uint64_t seed) {
  note_kernel(launch.function);
  Block& b = block();
  const std::size_t threads = std::size_t{launch.threads.x} * launch.threads.y * launch.threads.z;
  b.kernel = launch.name;
  b.body = &body;
  b.lanes.resize(threads);
  b.warps.resize((threads + kWarp - 1) / kWarp);
  while (b.fibers.size() < threads) b.fibers.push_back(std::make_unique<Fiber>(run_thread));
  running.threads = launch.threads;
  running.blocks = launch.blocks;
  running.dynamic_shared = dynamic_shared_memory(launch.shared_bytes);
  std::vector<unsigned> order(threads);
  std::iota(order.begin(), order.end(), 0u);
  if (fiber_order == FiberOrder::kReverse) std::reverse(order.begin(), order.end());
  const Together together = fiber_order == FiberOrder::kWarpByWarp ? Together::kWarp : Together::kBlock;
  std::minstd_rand random(static_cast<std::minstd_rand::result_type>(seed % 2147483646u + 1));
  unsigned fill = 0;
  runs_kernel = true;
  for (running.block.z = 0; running.block.z < launch.blocks.z; ++running.block.z) {
    for (running.block.y = 0; running.block.y < launch.blocks.y; ++running.block.y) {
      for (running.block.x = 0; running.block.x < launch.blocks.x; ++running.block.x) {
        if (fiber_order == FiberOrder::kRandom || fiber_order == FiberOrder::kWarpByWarp)
          std::shuffle(order.begin(), order.end(), random);
        if (fiber_order == FiberOrder::kWarpByWarp) gather_warps(order);
        fill_shared_memory(launch.shared_bytes, fill++ % 2 == 0 ? 0xFF : 0x7F);  // not a number; huge
        run_block(order, together);
      }
    }
  }
  runs_kernel = false;
}

}  // namespace trident::simulated
