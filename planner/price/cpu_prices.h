// Prices of a run on processors, by interpolation of what was measured there.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "planner/price/cpu_rates.h"
#include "planner/price/work_prices.h"

namespace trident {

// How a run lies on the machine.
struct CpuPlace {
  int ranks = 1;             // that share the cores
  int threads_per_rank = 1;  // that compute
  DType compute{};           // of the model
};

// A rank that computes on one thread is priced by tables of one thread, with the other cores at work; on as many as there are
// cores, by those of all; between them, by both.
class CpuPrices final : public WorkPrices {
 public:
  // ConfigError that names the table where one of the compute dtype's products is missing; other tables
  // are missed, likewise, when a call asks for them.
  CpuPrices(CpuRates rates, const CpuPlace& place);
  CpuPrices(const CpuPrices&) = delete;  // it points into its tables
  CpuPrices& operator=(const CpuPrices&) = delete;

  double device_seconds(const RecordedOperation& operation) const override;
  double issue_seconds(const RecordedOperation&) const override { return 0; }
  // CPU seconds of one rank; of a message, of both sides together.
  double seconds(const RecordedCollective& call, const GroupPlace& group) const override;
  // The differences of many calls add up as those of a random walk do. Where ranks share cores, CPU seconds that work takes longer:
  // the more a rank did before it slept, the more of it lay in caches, up to what these hold.
  double waiting_seconds(double worked) const override {
    return (shares_cores() ? rates_.constants.shared_root_seconds : rates_.constants.skew_root_seconds) * std::sqrt(worked);
  }
  // A rank's thread moves its data, too: what runs beside computing takes as much longer as computing does.
  OverlapSlowdown slowdown() const override { return {2, 2}; }
  double step_seconds() const override { return rates_.constants.step_seconds; }

  const CpuPlace& place() const { return place_; }
  int cores() const { return rates_.cores; }
  int threads_at_once() const { return std::min(place_.threads_per_rank, rates_.cores); }  // of a rank
  // More threads that compute than cores.
  bool shares_cores() const { return place_.ranks * place_.threads_per_rank > rates_.cores; }
  // The ranks of so many pipeline stages.
  SharedCores shared_cores(int stages) const;

  // Resident memory of a process whose threads `ranks` ranks are, with arenas of `arena_bytes` together.
  double resident_bytes(double arena_bytes, int ranks) const;

 private:
  template <class Table>
  double over_threads(const std::vector<const Table*>& tables, const auto& seconds) const;

  CpuRates rates_;
  CpuPlace place_;
  using ProductKind = std::tuple<Transpose, Transpose, Accumulate>;
  // Tables by number of threads. A call that adds and has no table takes as long as one that overwrites, and the other way round.
  const std::vector<const ProductTimes*>& products_like(const MatmulShape& shape) const;
  std::map<ProductKind, std::vector<const ProductTimes*>> products_;
  std::map<std::string, std::vector<const OperationTimes*>, std::less<>> attention_, operations_;
};

// CPU seconds of all ranks in a step of which `records` are one rank of each pipeline stage, with `ranks_of_a_stage` alike.
double cpu_seconds_of_step(std::span<const StepRecord> records, int ranks_of_a_stage, const CpuPrices& prices);

}  // namespace trident
