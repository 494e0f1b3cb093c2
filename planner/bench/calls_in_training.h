// Times of calls while models train, where their operands lie as they do there, and tables of calls alone brought to that.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "planner/bench/metered_device.h"
#include "planner/price/cpu_rates.h"

namespace trident {

// Calls of one operation that are alike.
struct CallTimes {
  std::string operation;
  double bytes = 0;                                                 // of one call, as Work has them
  std::variant<std::monostate, MatmulShape, AttentionShape> shape;  // likewise
  std::vector<double> seconds;                                      // one for each call
};

// A call adds this to a step; the least would say what it took when its operands happened to be at hand. With one thread, whose
// CPU time was measured, the mean, a call that took more than three times the median one counting as that; of several, which the
// clock measured, the median, because other programs stretch single calls as they stretch single steps. `seconds` is not empty.
double typical_seconds(std::vector<double> seconds, int threads);

// Keeps every call. Not for concurrent use.
class CallMeter final : public WorkListener {
 public:
  void start() { measures_ = true; }
  void add(const Work& one) override { add({std::string(one.operation), one.bytes, one.shape, {one.seconds}}); }
  void add(const CallTimes& calls);
  std::vector<CallTimes> calls() const;

 private:
  std::map<std::pair<std::string, double>, std::vector<CallTimes>> calls_;
};

// Keeps the calls of divided models, whose ranks had `threads` each, that count beside calls of models `alone` on the machine. Of
// one thread, whose CPU time was measured, all; of several, which the clock measured while ranks took the cores from each other,
// those of operations that no other model has.
std::vector<CallTimes> calls_beside(std::span<const CallTimes> alone, std::span<const CallTimes> of_divided, int threads);

// Points no closer than a third: each is the mean, in logarithms, of those near it. `points` (size, value) ascend by size.
std::pair<std::vector<double>, std::vector<double>> merged(std::span<const std::pair<double, double>> points);

// Multiplies the tables of products and attention of `threads` threads and this dtype by what such `calls` took over what the
// tables say: a curve over the bytes of a product, over length x head_dim of attention. Weights' gradients that are added up count
// for the table of those. `clock`: what reading it takes, part of each call. A table without a call stays.
void fit_to_training(std::span<const CallTimes> calls, double clock, int threads, DType compute, CpuRates& rates);

}  // namespace trident
