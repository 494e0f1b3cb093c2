#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/at.h"
#include "core/clock.h"
#include "planner/bench/calibrate.h"
#include "planner/bench/calibrate_ranks.h"

namespace trident {
namespace {

constexpr int kCalls = 4;
constexpr double kBudgets = 7.5;        // of options.seconds, for a point, where nothing else computes
constexpr int kFewest = 8, kMost = 60;  // batches
// All ranks together exchange more than the caches of cores hold, less than what these share. What is exchanged in training was
// written a while ago.
constexpr std::int64_t kOperandBytes = std::int64_t{16} << 20;

// Operands of calls, round and round in a window; the same places on all ranks.
class Operands {
 public:
  Operands(Device& device, std::int64_t largest, int ranks)
      : half_(std::max(largest, kOperandBytes / 2 / ranks)), memory_(device.allocate(2 * half_, "operands")) {
    std::memset(memory_.data(), 0, static_cast<std::size_t>(2 * half_));  // pages that nobody wrote are one page
  }
  void next(std::int64_t bytes) {  // before each call
    begin_ = end_ + bytes > half_ ? 0 : end_;
    end_ = begin_ + bytes;
  }
  TensorView view(bool second, DType dtype, std::int64_t bytes) const {
    return {memory_.data() + (second ? half_ : 0) + begin_, dtype, {bytes / size_of(dtype)}};
  }

 private:
  std::int64_t half_, begin_ = 0, end_ = 0;
  Buffer memory_;
};

// One rank of a group does this again and again with an operand of `bytes`.
struct Exchange {
  const char* name;
  DType dtype;
  std::function<void(Communicator& group, Stream& stream, TensorView whole, TensorView other)> call;
};

std::vector<Exchange> exchanges() {
  const auto all_reduce = [](Communicator& group, Stream& stream, TensorView whole, TensorView) {
    group.all_reduce(stream, whole, ReduceOp::kSum);
  };
  const auto reduce_scatter = [](Communicator& group, Stream& stream, TensorView whole, TensorView other) {
    group.reduce_scatter(stream, other.range(0, whole.num_elements() / group.size()), whole, ReduceOp::kSum);
  };
  const auto all_gather = [](Communicator& group, Stream& stream, TensorView whole, TensorView other) {
    group.all_gather(stream, whole, other.range(0, whole.num_elements() / group.size()));
  };
  const auto message = [](Communicator& group, Stream& stream, TensorView whole, TensorView other) {  // each rank one, to the next
    const GroupScope together(group);
    group.send(stream, whole, (group.rank() + 1) % group.size());
    group.recv(stream, other, (group.rank() + group.size() - 1) % group.size());
  };
  return {{"all_reduce", DType::kF32, all_reduce},         {"all_reduce", DType::kBF16, all_reduce},
          {"reduce_scatter", DType::kF32, reduce_scatter}, {"reduce_scatter", DType::kBF16, reduce_scatter},
          {"all_gather", DType::kF32, all_gather},         {"message", DType::kF32, message}};
}

// CPU seconds of one rank in a call: least over batches of the mean over ranks.
double time_exchange(const MeasuringRank& rank, Communicator& group, const Exchange& exchange, Operands& operands,
                     std::int64_t bytes, double seconds, std::vector<double>& of_ranks) {
  Stream& stream = rank.device.compute_stream();
  double least = 0;
  double spent = 0;  // the same on all ranks: they end together
  for (int batch = 0; batch < kFewest || (batch < kMost && spent < seconds); ++batch) {
    rank.all.barrier();
    const double before = thread_cpu_seconds();
    for (int i = 0; i < kCalls; ++i) {
      operands.next(bytes);
      exchange.call(group, stream, operands.view(false, exchange.dtype, bytes), operands.view(true, exchange.dtype, bytes));
    }
    stream.synchronize();
    at(of_ranks, rank.rank) = (thread_cpu_seconds() - before) / kCalls;
    rank.all.barrier();
    double sum = 0;
    for (const double seconds : of_ranks) sum += seconds;
    const double mean = sum / static_cast<double>(of_ranks.size());
    spent += kCalls * sum / 2;
    if (batch > 0) least = least == 0 ? mean : std::min(least, mean);
  }
  return least;
}

std::vector<int> consecutive(int first, int count) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(first + i);
  return numbers;
}

}  // namespace

void measure_collectives(const CalibrateOptions& options, int most_ranks, const std::string& source, CpuRates& rates) {
  std::vector<double> sizes;
  const std::int64_t largest = options.largest * options.largest;  // bytes of an operand
  for (std::int64_t bytes = 128; bytes <= largest; bytes *= bytes < 4096 ? 8 : 4) sizes.push_back(static_cast<double>(bytes));
  if (sizes.empty()) sizes.push_back(128);
  for (int world = 2; world <= most_ranks; world *= 2) {
    options.check();
    for (int size = 2; size <= world; size *= 2) {
      std::vector<double> of_ranks(static_cast<std::size_t>(world));
      std::vector<std::vector<double>> seconds(exchanges().size());
      on_measuring_ranks(world, 1, [&](const MeasuringRank& rank) {
        Operands operands(rank.device, static_cast<std::int64_t>(sizes.back()), world);
        const std::unique_ptr<Communicator> group = rank.all.split(consecutive(rank.rank / size * size, size), "dp");
        std::size_t at = 0;
        for (const Exchange& exchange : exchanges()) {
          for (const double of : sizes) {
            const double one = time_exchange(rank, *group, exchange, operands, static_cast<std::int64_t>(of),
                                             kBudgets * options.seconds, of_ranks);
            if (rank.rank == 0) seconds[at].push_back(one);
          }
          ++at;
        }
        rank.all.barrier();
      });
      for (std::size_t i = 0; i < seconds.size(); ++i) {
        fall_to_larger({sizes}, seconds[i]);
        rates.collectives.push_back(
            {exchanges()[i].name, exchanges()[i].dtype, size, world, LogTable({sizes}, std::move(seconds[i]), {1}), source});
      }
    }
  }
}

}  // namespace trident
