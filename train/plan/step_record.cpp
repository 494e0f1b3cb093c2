#include "train/plan/step_record.h"

#include <cstddef>
#include <map>
#include <tuple>

namespace trident {

std::vector<std::int64_t> StepRecord::counts() const {
  std::vector<std::int64_t> counts(passes.size());
  if (!counts.empty()) counts[0] = 1;
  for (const std::int32_t pass : pass_of) ++at(counts, pass);
  return counts;
}

std::array<double, kNumAxes> StepRecord::bytes_sent() const {
  std::map<std::tuple<Axis, std::string_view, int>, std::int64_t> times_n;  // whole numbers, divided once
  const std::vector<std::int64_t> counts = this->counts();
  for (std::size_t p = 0; p < passes.size(); ++p) {
    for (const auto& call : passes[p].calls) {
      if (const auto* c = std::get_if<RecordedCollective>(&call))
        times_n[{c->axis, c->group, c->size}] += counts[p] * c->sent_bytes_times_n;
    }
  }
  std::array<double, kNumAxes> bytes{};
  for (const auto& [key, sum] : times_n) at(bytes, std::get<Axis>(key)) += static_cast<double>(sum) / std::get<int>(key);
  return bytes;
}

std::vector<OperationTotal> StepRecord::operations() const {
  std::map<std::string_view, OperationTotal> totals;
  const std::vector<std::int64_t> counts = this->counts();
  for (std::size_t p = 0; p < passes.size(); ++p) {
    for (const auto& call : passes[p].calls) {
      const auto* const o = std::get_if<RecordedOperation>(&call);
      if (o == nullptr) continue;
      OperationTotal& total = totals[o->name];
      const auto times = static_cast<double>(counts[p]);
      total = {o->name, o->kind, total.calls + counts[p], total.flops + times * o->flops, total.bytes + times * o->bytes};
    }
  }
  std::vector<OperationTotal> list;
  for (const auto& [name, total] : totals) list.push_back(total);
  return list;
}

}  // namespace trident
