#include "planner/bench/bench_report.h"

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

std::string rates_text(const CollectiveRates& way) {
  if (!way.skipped.empty()) return fmt::format("collectives of {}: SKIPPED: {}\n", way.way, way.skipped);
  std::string text = fmt::format("collectives of {} {}; {} reach {:.1f} GB/s\n", way.ranks, way.way, way.floor_of, 1e-9 * way.floor_rate);
  for (const CollectiveRate& rate : way.rates)
    text += fmt::format("  {:<20} of {:.1f} MB: {:>9.3f} ms, {:.2f} GB/s of the operand, floor {:>9.3f} ms, {:>5.1f} % of the time\n", rate.operation,
                        1e-6 * rate.bytes, 1e3 * rate.seconds, 1e-9 * rate.bytes / rate.seconds, 1e3 * way.floor_seconds(rate),
                        100 * way.floor_seconds(rate) / rate.seconds);
  return text;
}

JsonValue rates_json(const CollectiveRates& way) {
  JsonValue json;
  json.set("way", way.way);
  if (!way.skipped.empty()) {
    json.set("skipped", way.skipped);
    return json;
  }
  json.set("ranks", way.ranks);
  json.set("floor_of", way.floor_of);
  json.set("floor_bytes_per_s", way.floor_rate);
  JsonValue::Array rates;
  for (const CollectiveRate& rate : way.rates) {
    JsonValue item;
    item.set("operation", rate.operation);
    item.set("bytes", rate.bytes);
    item.set("bytes_per_s", rate.bytes / rate.seconds);
    item.set("ms", 1e3 * rate.seconds);
    item.set("floor_ms", 1e3 * way.floor_seconds(rate));
    rates.push_back(std::move(item));
  }
  json.set("rates", std::move(rates));
  return json;
}

}  // namespace

std::string_view to_string(WorkKind kind) {
  switch (kind) {
    case WorkKind::kMatmuls: return "products";
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
  for (const CollectiveRates& way : report.collectives) text += rates_text(way);

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
  JsonValue::Array collectives, kinds, operations;
  for (const CollectiveRates& way : report.collectives) collectives.push_back(rates_json(way));
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
