#include "planner/price/cpu_prices.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <variant>

#include "core/check.h"
#include "core/int_math.h"
#include "device/operations.h"

namespace trident {
namespace {

[[noreturn]] void refuse(const CpuRates& rates, const std::string& table) {
  throw ConfigError(
      fmt::format("hardware profile \"{}\" has no table of {}; make one with trident bench --calibrate FILE", rates.name, table));
}

char letter(Transpose transpose) { return transpose == Transpose::kYes ? 't' : 'n'; }

std::string product_name(DType in, Transpose a, Transpose b) {
  return fmt::format("products {} ({}{})", to_string(in), letter(a), letter(b));
}

// Between two measured numbers of ranks, or beyond the last, linearly; what a group of one rank does is nothing.
double between(double low_ranks, double low, double high_ranks, double high, double ranks) {
  const double share = (ranks - low_ranks) / (high_ranks - low_ranks);
  return std::max(low + share * (high - low), std::min(low, high));
}

}  // namespace

CpuPrices::CpuPrices(CpuRates rates, const CpuPlace& place) : rates_(std::move(rates)), place_(place) {
  TRIDENT_CHECK(place.ranks >= 1 && place.threads_per_rank >= 1, "{} ranks of {} threads", place.ranks, place.threads_per_rank);
  for (const ProductTimes& t : rates_.products)
    if (t.in == place.compute) products_[{t.transpose_a, t.transpose_b, t.accumulate}].push_back(&t);
  for (const OperationTimes& t : rates_.attention)
    if (t.compute == place.compute) attention_[t.operation].push_back(&t);
  for (const OperationTimes& t : rates_.operations)
    if (t.compute == place.compute) operations_[t.operation].push_back(&t);
  using Pair = std::pair<Transpose, Transpose>;
  for (const auto& [a, b] :
       {Pair{Transpose::kNo, Transpose::kYes}, {Transpose::kNo, Transpose::kNo}, {Transpose::kYes, Transpose::kNo}})
    products_like({.transpose_a = a, .transpose_b = b});
}

const std::vector<const ProductTimes*>& CpuPrices::products_like(const MatmulShape& shape) const {
  for (const bool same : {true, false}) {
    const bool adds = (shape.accumulate == Accumulate::kYes) == same;
    const auto found = products_.find({shape.transpose_a, shape.transpose_b, adds ? Accumulate::kYes : Accumulate::kNo});
    if (found != products_.end()) return found->second;
  }
  refuse(rates_, product_name(place_.compute, shape.transpose_a, shape.transpose_b));
}

// By the logarithm of the number of threads between the two nearest measured ones.
template <class Table>
double CpuPrices::over_threads(const std::vector<const Table*>& tables, const auto& seconds) const {
  const Table *below = nullptr, *above = nullptr;
  for (const Table* t : tables) {
    if (t->threads <= place_.threads_per_rank && (below == nullptr || t->threads > below->threads)) below = t;
    if (t->threads >= place_.threads_per_rank && (above == nullptr || t->threads < above->threads)) above = t;
  }
  if (below == nullptr || above == nullptr) return seconds(below == nullptr ? *above : *below);
  if (below == above) return seconds(*below);
  const double share = std::log(static_cast<double>(place_.threads_per_rank) / below->threads) /
                       std::log(static_cast<double>(above->threads) / below->threads);
  return std::exp((1 - share) * std::log(seconds(*below)) + share * std::log(seconds(*above)));
}

double CpuPrices::device_seconds(const RecordedOperation& operation) const {
  const double call = rates_.constants.call_seconds;
  if (const auto* m = std::get_if<MatmulShape>(&operation.shape)) {
    const std::array sizes{static_cast<double>(m->m), static_cast<double>(m->n), static_cast<double>(m->k)};
    return call + over_threads(products_like(*m), [&](const ProductTimes& t) { return t.seconds.at(sizes); });
  }
  if (const auto* a = std::get_if<AttentionShape>(&operation.shape)) {
    const auto found = attention_.find(operation.name);
    if (found == attention_.end()) refuse(rates_, fmt::format("attention {} {}", operation.name, to_string(place_.compute)));
    const std::array sizes{std::sqrt(static_cast<double>(a->query_length) * static_cast<double>(a->key_length)),
                           priced_head_dim(a->head_dim)};
    const double heads = static_cast<double>(a->batch) * static_cast<double>(a->query_heads) * interval_share(*a);
    return call + heads * over_threads(found->second, [&](const OperationTimes& t) { return t.seconds.at(sizes); });
  }
  auto found = operations_.find(operation.name);
  // Calibration trains no DoRA, whose operation is as fast as what streams as many bytes.
  if (found == operations_.end() && operation.name == op::ScaleColumns::kName.name) found = operations_.find(op::Add::kName.name);
  if (found == operations_.end()) refuse(rates_, fmt::format("operations {} {}", operation.name, to_string(place_.compute)));
  return call + over_threads(found->second, [&](const OperationTimes& t) { return t.seconds.at(operation.bytes); });
}

double CpuPrices::seconds(const RecordedCollective& call, const GroupPlace&) const {
  if (call.size <= 1 || call.operation == CommOperation::kRecv || call.operation == CommOperation::kBarrier) return 0;
  const std::string_view name = call.operation == CommOperation::kSend ? "message" : to_string(call.operation);
  // Beside bytes of operands that are added up, dtypes do not matter to what moves them.
  const bool adds = call.operation == CommOperation::kAllReduce || call.operation == CommOperation::kReduceScatter;
  const DType dtype = adds && size_of(call.dtype) == 2 ? DType::kBF16 : DType::kF32;
  // Takes the smallest world with at least as many ranks, else the largest; there the nearest groups below and above.
  std::optional<int> world;
  for (const CollectiveTimes& t : rates_.collectives) {
    if (t.operation != name || t.dtype != dtype) continue;
    const bool fits = t.world >= place_.ranks, fitted = world && *world >= place_.ranks;
    if (!world || (fits && (!fitted || t.world < *world)) || (!fits && !fitted && t.world > *world)) world = t.world;
  }
  if (!world) refuse(rates_, fmt::format("collectives {} {}", name, to_string(dtype)));
  std::vector<const CollectiveTimes*> tables;
  for (const CollectiveTimes& t : rates_.collectives)
    if (t.operation == name && t.dtype == dtype && t.world == *world) tables.push_back(&t);
  std::ranges::sort(tables, {}, &CollectiveTimes::ranks);
  const auto bytes = static_cast<double>(call.operand_bytes);
  const int size = name == "message" ? 2 : call.size;
  std::size_t high = 0;
  while (high + 1 < tables.size() && tables[high]->ranks < size) ++high;
  const CollectiveTimes& upper = *tables[high];
  double seconds = upper.seconds.at(bytes);
  if (upper.ranks != size && high > 0) {
    const CollectiveTimes& lower = *tables[high - 1];
    seconds = between(lower.ranks, lower.seconds.at(bytes), upper.ranks, seconds, size);
  }
  return (shares_cores() ? rates_.constants.shared_seconds : rates_.constants.collective_seconds) + seconds;
}

SharedCores CpuPrices::shared_cores(int stages) const {
  if (!shares_cores()) return {};
  const int threads = place_.ranks / stages * threads_at_once();  // of a stage
  return {checked_cast<int>(ceil_div(rates_.cores, threads)), static_cast<double>(threads) / rates_.cores};
}

double CpuPrices::resident_bytes(double arena_bytes, int ranks) const {
  const auto found = std::ranges::find(rates_.memory, place_.compute, &CpuMemory::compute);
  if (found == rates_.memory.end()) refuse(rates_, fmt::format("memory {}", to_string(place_.compute)));
  return found->process_bytes + ranks * found->rank_bytes + arena_bytes;
}

double cpu_seconds_of_step(std::span<const StepRecord> records, int ranks_of_a_stage, const CpuPrices& prices) {
  double all = 0;
  for (const StepRecord& record : records) {
    const std::vector<std::int64_t> counts = record.counts();
    for (std::size_t pass = 0; pass < record.passes.size(); ++pass) {
      double once = 0, worked = 0;
      for (const auto& call : record.passes[pass].calls) {
        if (const auto* o = std::get_if<RecordedOperation>(&call)) {
          const double seconds = prices.device_seconds(*o);
          once += prices.threads_at_once() * seconds;
          worked += seconds;
        } else if (const auto& collective = std::get<RecordedCollective>(call); collective.size > 1) {
          once += prices.seconds(collective, {});
          if (prices.shares_cores()) once += prices.waiting_seconds(std::exchange(worked, 0.0));
        }
      }
      all += static_cast<double>(counts[pass]) * once;
    }
    all += prices.step_seconds();
  }
  return all * ranks_of_a_stage;
}

}  // namespace trident
