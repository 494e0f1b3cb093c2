#include "train/bench_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace trident {
namespace {

struct KindSum {
  double seconds = 0, floor = 0;
};

std::array<KindSum, kNumWorkKinds> sums_by_kind(const BenchReport& report) {
  std::array<KindSum, kNumWorkKinds> sums{};
  for (const Work& work : report.work) {
    KindSum& sum = sums[static_cast<std::size_t>(work.kind)];
    sum.seconds += work.seconds;
    sum.floor += report.floor_seconds(work);
  }
  return sums;
}

KindSum total(const std::array<KindSum, kNumWorkKinds>& sums) {
  KindSum all;
  for (const KindSum& sum : sums) all.seconds += sum.seconds, all.floor += sum.floor;
  return all;
}

std::vector<Work> slowest_first(std::vector<Work> work) {
  std::ranges::stable_sort(work, std::ranges::greater{}, &Work::seconds);
  return work;
}

std::string kind_line(std::string_view name, const KindSum& sum, double all) {
  return fmt::format("  {:<20} {:>9.2f} ms {:>5.1f} % of the work, floor {:>9.2f} ms, {:>5.1f} % of the time\n", name,
                     1e3 * sum.seconds, 100 * sum.seconds / all, 1e3 * sum.floor, 100 * sum.floor / sum.seconds);
}

}  // namespace

std::string_view to_string(WorkKind kind) {
  switch (kind) {
    case WorkKind::kProducts: return "products";
    case WorkKind::kAttention: return "attention";
    case WorkKind::kHeads: return "heads";
    case WorkKind::kRows: return "rows";
    case WorkKind::kEmbedding: return "embedding";
    case WorkKind::kLoss: return "loss";
    case WorkKind::kCopies: return "copies";
    case WorkKind::kOptimizer: break;
  }
  return "optimizer";
}

double BenchReport::floor_seconds(const Work& one) const { return std::max(one.flops / matmul_flops, one.bytes / copy_bytes); }

std::string to_text(const BenchReport& report) {
  std::string text = fmt::format("{} ({})\n", report.device, report.why);
  text += fmt::format("a large product in {} reaches {:.2f} TFLOP/s, a copy {:.1f} GB/s (read and written)\n",
                      to_string(report.compute), 1e-12 * report.matmul_flops, 1e-9 * report.copy_bytes);
  if (!report.collectives.empty())
    text += fmt::format("{} ranks as threads copy {:.1f} GB/s together\n", report.collective_ranks, 1e-9 * report.collective_copy_bytes);
  for (const CollectiveRate& rate : report.collectives)
    text += fmt::format("  {:<20} of {:.1f} MB: {:>9.3f} ms, {:.2f} GB/s of the operand, floor {:>9.3f} ms, {:>5.1f} % of the time\n", rate.operation,
                        1e-6 * rate.bytes, 1e3 * rate.seconds, 1e-9 * rate.bytes / rate.seconds, 1e3 * report.floor_seconds(rate),
                        100 * report.floor_seconds(rate) / rate.seconds);

  const auto sums = sums_by_kind(report);
  const KindSum all = total(sums);
  text += fmt::format(
      "\none step of {} tokens on one rank: {:.1f} ms, {:.0f} tokens/s; {:.1f} ms with every operation waited for, {:.1f} ms of "
      "them in "
      "operations\n",
      report.tokens, 1e3 * report.step_seconds, static_cast<double>(report.tokens) / report.step_seconds,
      1e3 * report.metered_seconds, 1e3 * all.seconds);
  for (std::size_t k = 0; k < kNumWorkKinds; ++k)
    if (sums[k].seconds > 0) text += kind_line(to_string(static_cast<WorkKind>(k)), sums[k], all.seconds);
  if (all.seconds > 0) text += kind_line("all", all, all.seconds);

  text += fmt::format("\n  {:<24} {:>7} {:>10} {:>10} {:>8} {:>10} {:>8}\n", "operation", "calls", "ms", "GB/s", "of copy",
                      "GFLOP/s", "of peak");
  for (const Work& work : slowest_first(report.work)) {
    const double bytes = work.bytes / work.seconds, flops = work.flops / work.seconds;
    text += fmt::format("  {:<24} {:>7} {:>10.3f} {:>10.1f} {:>6.1f} %", work.operation, work.calls, 1e3 * work.seconds,
                        1e-9 * bytes, 100 * bytes / report.copy_bytes);
    text += work.flops > 0 ? fmt::format(" {:>10.1f} {:>6.1f} %\n", 1e-9 * flops, 100 * flops / report.matmul_flops) : "\n";
  }
  return text;
}

JsonValue to_json(const BenchReport& report) {
  JsonValue json;
  json.set("device", report.device);
  json.set("why", report.why);
  json.set("compute", to_string(report.compute));
  json.set("matmul_flops_per_s", report.matmul_flops);
  json.set("copy_bytes_per_s", report.copy_bytes);
  json.set("collective_ranks", report.collective_ranks);
  json.set("collective_copy_bytes_per_s", report.collective_copy_bytes);
  JsonValue::Array collectives, kinds, operations;
  for (const CollectiveRate& rate : report.collectives) {
    JsonValue item;
    item.set("operation", rate.operation);
    item.set("bytes", rate.bytes);
    item.set("bytes_per_s", rate.bytes / rate.seconds);
    item.set("ms", 1e3 * rate.seconds);
    item.set("floor_ms", 1e3 * report.floor_seconds(rate));
    collectives.push_back(std::move(item));
  }
  const auto sums = sums_by_kind(report);
  for (std::size_t k = 0; k < kNumWorkKinds; ++k) {
    if (sums[k].seconds == 0) continue;
    JsonValue item;
    item.set("kind", to_string(static_cast<WorkKind>(k)));
    item.set("ms", 1e3 * sums[k].seconds);
    item.set("floor_ms", 1e3 * sums[k].floor);
    kinds.push_back(std::move(item));
  }
  for (const Work& work : slowest_first(report.work)) {
    JsonValue item;
    item.set("operation", work.operation);
    item.set("kind", to_string(work.kind));
    item.set("calls", work.calls);
    item.set("ms", 1e3 * work.seconds);
    item.set("floor_ms", 1e3 * report.floor_seconds(work));
    item.set("flops", work.flops);
    item.set("bytes", work.bytes);
    operations.push_back(std::move(item));
  }
  json.set("collectives", std::move(collectives));
  json.set("tokens", report.tokens);
  json.set("step_ms", 1e3 * report.step_seconds);
  json.set("metered_ms", 1e3 * report.metered_seconds);
  json.set("kinds", std::move(kinds));
  json.set("operations", std::move(operations));
  return json;
}

}  // namespace trident
