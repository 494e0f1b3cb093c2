#include "planner/bench/calibrate_ranks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "core/clock.h"
#include "core/int_math.h"
#include "core/philox.h"
#include "parallel/shared_memory/thread_world.h"

namespace trident {
namespace {

constexpr double kShortestBatch = 40e-6;  // seconds: a clock is read in a few tenths of a microsecond
constexpr std::int64_t kAlignment = 64;
// A call of so many seconds, and of so many budgets, is its own warm-up: what a first call does besides is little of it, and slow
// processors would take minutes for more of them.
constexpr double kLongCall = 0.05, kLongCallBudgets = 12;

}  // namespace

void on_measuring_ranks(int ranks, int threads, const std::function<void(const MeasuringRank& rank)>& body) {
  ThreadWorld world(ranks);
  run_thread_ranks(world, [&](int rank) {
    CpuDeviceOptions options;
    options.threads_per_rank = threads;
    options.first_core = core_for_rank(rank, ranks, threads);
    CpuDevice device(world.doorbell(rank), options);
    const std::unique_ptr<Communicator> all = world.communicator(rank, device.progress());
    body({rank, device, *all, threads == 1 ? thread_cpu_seconds : monotonic_seconds});
    all->barrier();
  });
}

double least_seconds(double (*clock)(), double budget, const std::function<void()>& call) {
  const double start = clock();
  call();
  if (const double first = clock() - start; first > std::max(kLongCall, kLongCallBudgets * budget)) return first;
  int calls = 1;
  double least = 0;
  const double begin = monotonic_seconds();
  for (int batch = 0; batch < 2 || monotonic_seconds() - begin < budget; ++batch) {
    const double before = clock();
    for (int i = 0; i < calls; ++i) call();
    const double seconds = clock() - before;
    if (seconds < kShortestBatch && calls < 1 << 16) {  // too short to be counted
      calls *= seconds > 0 ? std::clamp(static_cast<int>(1.5 * kShortestBatch / seconds), 2, 16) : 16;
      batch = -1;
      continue;
    }
    least = least == 0 ? seconds / calls : std::min(least, seconds / calls);
  }
  return least;
}

OperandPool::OperandPool(Device& device, std::int64_t window, DType dtype) : device_(device), window_(window), dtype_(dtype) {
  fill(window);
}

void OperandPool::fill(std::int64_t bytes) {
  std::array<float, 2048> values{};
  std::array<std::uint16_t, 2048> halves{};
  for (std::size_t i = 0; i < values.size(); i += 4) {
    const PhiloxCounter words = philox4x32({static_cast<std::uint32_t>(i), 0, 0, 0}, random_key(0, RandomPurpose::kBench, 0));
    for (std::size_t w = 0; w < 4; ++w) values[i + w] = static_cast<float>(words[w]) * 0x1p-31F - 1.0F;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &values[i], sizeof bits);
    halves[i] = static_cast<std::uint16_t>(bits >> 16U);  // bf16, cut
  }
  memory_ = device_.allocate(bytes, "operands");
  const void* const from = dtype_ == DType::kF32 ? static_cast<const void*>(values.data()) : halves.data();
  const auto piece = static_cast<std::int64_t>(dtype_ == DType::kF32 ? sizeof values : sizeof halves);
  for (std::int64_t at = 0; at < bytes; at += piece)
    std::memcpy(memory_.data() + at, from, static_cast<std::size_t>(std::min(piece, bytes - at)));
}

void OperandPool::next_call(std::int64_t bytes) {
  if (bytes > memory_.num_bytes()) fill(bytes);
  if (at_ + bytes > std::max(window_, bytes)) at_ = 0;
}

TensorView OperandPool::next(Shape shape) {
  const std::int64_t bytes = shape.num_elements() * size_of(dtype_);
  TRIDENT_CHECK(at_ + bytes <= memory_.num_bytes(), "an operand of {} bytes at {} of {}", bytes, at_, memory_.num_bytes());
  const TensorView view(memory_.data() + at_, dtype_, shape, memory_.where());
  at_ += round_up(bytes, kAlignment);
  return view;
}

}  // namespace trident
