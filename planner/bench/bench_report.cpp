#include "planner/bench/bench_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/at.h"
#include "core/counted.h"
#include "report/table.h"

namespace trident {
namespace {

struct KindSum {
  double seconds = 0, floor = 0;
  bool is_of_bytes = true;  // the floor
};

std::array<KindSum, kNumWorkKinds> sums_by_kind(const BenchReport& report) {
  std::array<KindSum, kNumWorkKinds> sums{};
  for (const Work& work : report.work) {
    KindSum& sum = at(sums, work.kind);
    sum.seconds += work.seconds;
    sum.floor += report.floor_seconds(work);
    sum.is_of_bytes &= work.flops / report.peak_flops <= work.bytes / report.copy_bytes;
  }
  return sums;
}

double total_seconds(const std::array<KindSum, kNumWorkKinds>& sums) {
  double seconds = 0;
  for (const KindSum& sum : sums) seconds += sum.seconds;
  return seconds;
}

std::vector<Work> slowest_first(std::vector<Work> work) {
  std::ranges::stable_sort(work, std::ranges::greater{}, &Work::seconds);
  return work;
}

// A table of the work that takes a fiftieth of the step and more, and a line for all others.
template <class Row>
std::string slowest_text(Table table, const std::vector<Work>& work, double step, std::size_t columns, Row row_of) {
  double left = 0;
  std::int64_t others = 0;
  for (const Work& one : slowest_first(work)) {
    if (50 * one.seconds >= step) table.rows.push_back(row_of(one));
    else ++others, left += one.seconds;
  }
  const std::string text = '\n' + to_text(table, columns);
  return others == 0 ? text : text + fmt::format("  {}: {:.3f} ms; --json has each\n", counted(others, "other"), 1e3 * left);
}

std::string_view transposed(const MatmulShape& s) {
  const bool a = s.transpose_a == Transpose::kYes, b = s.transpose_b == Transpose::kYes;
  return a && b ? "a, b" : a ? "a" : b ? "b" : "-";
}

std::string percent_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string products_text(const BenchReport& report, double step, std::size_t columns) {
  if (report.products.empty()) return "";
  const Table table{
      "", {{"product", true}, {"m"}, {"n"}, {"k"}, {"transpose"}, {"calls"}, {"ms"}, {"GFLOP/s"}, {"of peak"}}, {}, 2};
  return slowest_text(table, report.products, step, columns, [&](const Work& work) {
    const auto& s = std::get<MatmulShape>(work.shape);
    const char* const added = s.accumulate == Accumulate::kYes ? ", added" : "";
    const double flops = work.flops / work.seconds;
    return std::vector{fmt::format("{} to {}{}", to_string(s.in), to_string(s.out), added), std::to_string(s.m),
                       std::to_string(s.n), std::to_string(s.k), std::string(transposed(s)), std::to_string(work.calls),
                       fmt::format("{:.3f}", 1e3 * work.seconds), fmt::format("{:.1f}", 1e-9 * flops),
                       percent_text(flops / report.peak_flops)};
  });
}

std::string rates_text(const CollectiveRates& way, std::size_t columns) {
  if (!way.skipped.empty()) return fmt::format("collectives of {}: SKIPPED: {}\n", way.way, way.skipped);
  Table table{"", {{"collective", true}, {"MB"}, {"ms"}, {"GB/s of the operand"}, {"floor ms"}}, {}, 2};
  for (const CollectiveRate& rate : way.rates)
    table.rows.push_back({rate.operation, fmt::format("{:.1f}", 1e-6 * rate.bytes), fmt::format("{:.3f}", 1e3 * rate.seconds),
                          fmt::format("{:.2f}", 1e-9 * rate.bytes / rate.seconds),
                          fmt::format("{:.3f}", 1e3 * way.floor_seconds(rate))});
  return fmt::format("collectives of {} {}; {} reach {:.1f} GB/s\n", way.ranks, way.way, way.floor_of, 1e-9 * way.floor_rate) +
         to_text(table, columns);
}

JsonValue rates_json(const CollectiveRates& way) {
  if (!way.skipped.empty()) return JsonValue::Object{{"way", way.way}, {"skipped", way.skipped}};
  JsonValue::Array rates;
  for (const CollectiveRate& rate : way.rates)
    rates.push_back(JsonValue::Object{{"operation", rate.operation},
                                      {"bytes", rate.bytes},
                                      {"bytes_per_s", rate.bytes / rate.seconds},
                                      {"ms", 1e3 * rate.seconds},
                                      {"floor_ms", 1e3 * way.floor_seconds(rate)}});
  return JsonValue::Object{{"way", way.way},
                           {"ranks", way.ranks},
                           {"floor_of", way.floor_of},
                           {"floor_bytes_per_s", way.floor_rate},
                           {"rates", std::move(rates)}};
}

}  // namespace

double BenchReport::floor_seconds(const Work& one) const { return std::max(one.flops / peak_flops, one.bytes / copy_bytes); }

double BenchReport::fastest_product() const {
  double most = matmul_flops;
  for (const Work& product : products) most = std::max(most, product.flops / product.seconds);
  return most;
}

void BenchReport::raise_peak() {
  constexpr double kAsNoiseHas = 1.02;
  const double most = fastest_product();
  if (most > kAsNoiseHas * peak_flops) disturbed_peak = peak_flops;
  peak_flops = std::max(peak_flops, most);
}

double BenchReport::optimizer_bytes() const {
  double bytes = 0;
  for (const Work& one : work)
    if (one.kind == WorkKind::kOptimizer) bytes += one.bytes;
  return bytes;
}

std::string to_text(const BenchReport& report, std::size_t columns) {
  std::string text = fmt::format("{} ({})\n", report.device, report.why);
  for (const MultiplyRate& rate : report.instructions)
    text += rate.skipped.empty() ? fmt::format("{} on registers reaches {:.3f} TFLOP/s\n", rate.instruction, 1e-12 * rate.flops)
                                 : fmt::format("{}: left out: {}\n", rate.instruction, rate.skipped);
  text += fmt::format("a large product in {} reaches {:.2f} TFLOP/s", to_string(report.compute), 1e-12 * report.matmul_flops);
  if (!report.instructions.empty()) text += fmt::format(", {:.1f} % of the peak", 100 * report.matmul_flops / report.peak_flops);
  text += fmt::format(", a copy {:.1f} GB/s (read and written)", 1e-9 * report.copy_bytes);
  text += report.read_bytes > 0 ? fmt::format(", reading {:.1f} GB/s\n", 1e-9 * report.read_bytes) : "\n";
  if (report.disturbed_peak > 0)
    text += fmt::format("disturbed: a product reached {:.3f} TFLOP/s, which counts as the peak in place of {:.3f}: other programs "
                        "had the cores while that was measured, and floors may be too long; measure again when nothing else runs\n",
                        1e-12 * report.peak_flops, 1e-12 * report.disturbed_peak);
  for (const CollectiveRates& way : report.collectives) text += rates_text(way, columns);

  const auto sums = sums_by_kind(report);
  const double all = total_seconds(sums);
  text += fmt::format(
      "\none step of {} tokens on one rank: {:.1f} ms, {:.0f} tokens/s; {:.1f} ms with every operation waited for, {:.1f} ms of "
      "them in operations\n",
      report.tokens, 1e3 * report.step_seconds, static_cast<double>(report.tokens) / report.step_seconds,
      1e3 * report.metered_seconds, 1e3 * all);
  text += fmt::format(
      "its floor is {:.1f} ms, {:.1f} GFLOP at the peak and the optimizer's {:.2f} GB at the copy's rate: {:.2f} x the floor\n"
      "by kind of work; floors count the bytes that its operations move:\n",
      1e3 * report.step_floor_seconds(), 1e-9 * report.step_flops, 1e-9 * report.optimizer_bytes(),
      report.step_seconds / report.step_floor_seconds());
  std::string in_caches;
  Table kinds{"", {{"work", true}, {"ms"}, {"share"}, {"floor ms"}, {"over floor"}}, {}, 2};
  for (std::size_t k = 0; k < kNumWorkKinds; ++k) {
    const std::string_view kind = to_string(static_cast<WorkKind>(k));
    if (sums[k].seconds > 0)
      kinds.rows.push_back({std::string(kind), fmt::format("{:.2f}", 1e3 * sums[k].seconds), percent_text(sums[k].seconds / all),
                            fmt::format("{:.2f}", 1e3 * sums[k].floor), fmt::format("{:.2f} x", sums[k].seconds / sums[k].floor)});
    if (sums[k].seconds < sums[k].floor && sums[k].is_of_bytes) (in_caches += in_caches.empty() ? "" : ", ") += kind;
  }
  text += to_text(kinds, columns);
  if (!in_caches.empty())
    text += fmt::format("  work faster than its floor ({}) had its operands in caches; those of the copy were not\n", in_caches);
  text += fmt::format("  rows and heads of a block move {:.1f} times H elements per token\n", report.row_units);
  const Table operations{"", {{"operation", true}, {"calls"}, {"ms"}, {"GB/s"}, {"of copy"}, {"GFLOP/s"}, {"of peak"}}, {}, 2};
  text += slowest_text(operations, report.work, all, columns, [&](const Work& work) {
    const double bytes = work.bytes / work.seconds, flops = work.flops / work.seconds;
    std::vector row{std::string(work.operation), std::to_string(work.calls), fmt::format("{:.3f}", 1e3 * work.seconds),
                    fmt::format("{:.1f}", 1e-9 * bytes), percent_text(bytes / report.copy_bytes), std::string(), std::string()};
    if (work.flops > 0) row[5] = fmt::format("{:.1f}", 1e-9 * flops), row[6] = percent_text(flops / report.peak_flops);
    return row;
  });
  return text + products_text(report, all, columns);
}

JsonValue to_json(const BenchReport& report) {
  JsonValue::Array instructions, collectives, kinds, operations, products;
  for (const MultiplyRate& rate : report.instructions)
    instructions.push_back(rate.skipped.empty() ? JsonValue::Object{{"instruction", rate.instruction}, {"flops_per_s", rate.flops}}
                                                : JsonValue::Object{{"instruction", rate.instruction}, {"skipped", rate.skipped}});
  for (const CollectiveRates& way : report.collectives) collectives.push_back(rates_json(way));
  const auto sums = sums_by_kind(report);
  for (std::size_t k = 0; k < kNumWorkKinds; ++k)
    if (sums[k].seconds > 0)
      kinds.push_back(JsonValue::Object{{"kind", to_string(static_cast<WorkKind>(k))},
                                        {"ms", 1e3 * sums[k].seconds},
                                        {"floor_ms", 1e3 * sums[k].floor},
                                        {"over_floor", sums[k].seconds / sums[k].floor}});
  for (const Work& work : slowest_first(report.work))
    operations.push_back(JsonValue::Object{{"operation", work.operation},
                                           {"kind", to_string(work.kind)},
                                           {"calls", work.calls},
                                           {"ms", 1e3 * work.seconds},
                                           {"floor_ms", 1e3 * report.floor_seconds(work)},
                                           {"flops", work.flops},
                                           {"bytes", work.bytes}});
  for (const Work& work : slowest_first(report.products)) {
    const auto& s = std::get<MatmulShape>(work.shape);
    products.push_back(JsonValue::Object{{"m", s.m},
                                         {"n", s.n},
                                         {"k", s.k},
                                         {"transposed", transposed(s)},
                                         {"in", to_string(s.in)},
                                         {"out", to_string(s.out)},
                                         {"accumulates", s.accumulate == Accumulate::kYes},
                                         {"calls", work.calls},
                                         {"ms", 1e3 * work.seconds},
                                         {"flops", work.flops}});
  }
  return JsonValue::Object{{"device", report.device},
                           {"why", report.why},
                           {"compute", to_string(report.compute)},
                           {"instructions", std::move(instructions)},
                           {"peak_flops_per_s", report.peak_flops},
                           {"disturbed", report.disturbed_peak > 0},
                           {"matmul_flops_per_s", report.matmul_flops},
                           {"copy_bytes_per_s", report.copy_bytes},
                           {"read_bytes_per_s", report.read_bytes},
                           {"collectives", std::move(collectives)},
                           {"tokens", report.tokens},
                           {"row_units_per_block", report.row_units},
                           {"step_ms", 1e3 * report.step_seconds},
                           {"step_floor_ms", 1e3 * report.step_floor_seconds()},
                           {"step_over_floor", report.step_seconds / report.step_floor_seconds()},
                           {"metered_ms", 1e3 * report.metered_seconds},
                           {"kinds", std::move(kinds)},
                           {"operations", std::move(operations)},
                           {"products", std::move(products)}};
}

}  // namespace trident
