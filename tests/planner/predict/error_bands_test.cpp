// The bands beside predicted times are what the published rows say.
#include "planner/predict/error_bands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/file_io.h"
#include "planner/published/case_answers.h"
#include "planner/published/published_book.h"

namespace trident {
namespace {

double or_zero(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  return value != nullptr && value->is_number() ? value->as_number() : 0;
}

// Seconds of a step, as scripts/planner_accuracy takes them; nothing for rows that ran out of memory or were told by their MFU.
std::optional<double> measured_seconds(const JsonValue& row) {
  const JsonValue& measured = *row.find("measured");
  const JsonValue* derived = row.find("derived");
  if (const JsonValue* oom = measured.find("oom"); oom != nullptr && oom->is_bool() && oom->as_bool()) return std::nullopt;
  if (derived != nullptr && derived->find("iter_time_s_if_full_attn_mfu") != nullptr) return std::nullopt;
  if (const double seconds = or_zero(measured, "iter_time_s"); seconds > 0) return seconds;
  if (derived != nullptr && or_zero(*derived, "iter_time_s") > 0) return or_zero(*derived, "iter_time_s");
  const double rate = or_zero(measured, "tokens_per_s_per_gpu");
  if (rate <= 0) return std::nullopt;
  return or_zero(*row.find("batch"), "global") * or_zero(*row.find("model"), "seq") /
         (rate * or_zero(*row.find("cluster"), "gpus"));
}

bool is_16_bit(const JsonValue& row) {
  const std::string& precision = row.find("precision")->as_string();
  return precision.find("fp8") == precision.npos && precision.find("FP8") == precision.npos &&
         precision.find("fp4") == precision.npos && precision.find("FP4") == precision.npos;
}

// Not a row of calibration, and its table was read, not remembered.
bool is_judged(const JsonValue& row) {
  const std::string& split = row.find("split")->as_string();
  const JsonValue* confidence = row.find("confidence");
  const bool remembered = confidence != nullptr && confidence->is_string() && confidence->as_string() == "memory";
  return split == "validate" || split == "other" || (split == "blind" && !remembered);
}

struct Ratio {
  std::string hardware, stack;
  bool gathers;
  std::int64_t gpus;
  double measured_over_predicted;
};

// The rows of both files, each beside the case that is made of it.
std::vector<std::pair<JsonValue, CaseRow>> published_rows() {
  std::vector<std::pair<JsonValue, CaseRow>> all;
  for (const char* name : {"/published_rows.json", "/other_rows.json"}) {
    const std::string path = TRIDENT_TRUTH_DIR + std::string(name);
    const JsonValue file = read_json_file(path, {.max_bytes = 1 << 24});
    const JsonValue::Array& rows = file.is_array() ? file.items() : file.find("entries")->items();
    const std::vector<CaseRow> cases = read_case_rows(path);
    for (std::size_t i = 0; i < rows.size(); ++i) all.emplace_back(rows[i], cases.at(i));
  }
  return all;
}

const std::vector<Ratio>& ratios() {
  static const std::vector<Ratio> all = [] {
    std::vector<Ratio> list;
    const PublishedBook book = shipped_published_book();
    for (const auto& [row, made] : published_rows()) {
      if (!is_judged(row) || !is_16_bit(row)) continue;
      const std::optional<double> seconds = measured_seconds(row);
      const GpuRates* gpu = find_profile(book.hardware, row.find("cluster")->find("gpu")->as_string());
      if (!seconds || gpu == nullptr) continue;
      const JsonValue &said = *row.find("stack"), &parallel = *row.find("parallel");
      const std::string zero = to_json_text(*parallel.find("zero"));
      const bool gathers = zero == "2" || zero == "3" || zero == R"("FSDP")";
      if (gathers && (or_zero(parallel, "tp") > 1 || or_zero(parallel, "pp") > 1)) continue;  // one run, which is no band
      // The first ZeRO 3 of DeepSpeed is priced with a network of its own, which plans of this program do not have.
      if (said.find("framework")->as_string() == "deepspeed") continue;
      const TrainingStack* stack =
          find_stack(book.stacks, said.find("framework")->as_string(), static_cast<int>(or_zero(said, "year")));
      const double predicted = or_zero(answer_case(made, book), "step_time_s");
      if (predicted > 0 && stack != nullptr)
        list.push_back({gpu->file, stack->frameworks.front(), gathers, std::llround(or_zero(*row.find("cluster"), "gpus")),
                        *seconds / predicted});
    }
    return list;
  }();
  return all;
}

// Between neighbours in order.
double quantile(std::vector<double> values, double at) {
  std::sort(values.begin(), values.end());
  const double place = at * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const double next = values[std::min(below + 1, values.size() - 1)];
  return values[below] + (place - static_cast<double>(below)) * (next - values[below]);
}

// "33 pytorch_fsdp1, 12 megatron_core_te": the most first.
std::string runs_by_stack(const ErrorBand& band) {
  std::map<std::string, int> counts;
  for (const Ratio& ratio : ratios())
    if (ratio.hardware == band.hardware && ratio.gathers == band.gathers) ++counts[ratio.stack];
  std::vector<std::pair<std::string, int>> list(counts.begin(), counts.end());
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [stack, count] : list) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + stack;
  return text;
}

TEST(ErrorBands, HoldEightOfTenPublishedRows) {
  for (const ErrorBand& band : error_bands()) {
    std::vector<double> values;
    std::int64_t most_gpus = 0;
    for (const Ratio& ratio : ratios()) {
      if (ratio.gathers != band.gathers || (!band.hardware.empty() && ratio.hardware != band.hardware)) continue;
      values.push_back(ratio.measured_over_predicted);
      most_gpus = std::max(most_gpus, ratio.gpus);
    }
    ASSERT_FALSE(values.empty()) << band.hardware;
    EXPECT_EQ(static_cast<int>(values.size()), band.runs) << band.hardware;
    EXPECT_EQ(most_gpus, band.most_gpus) << band.hardware;
    if (!band.hardware.empty()) {
      EXPECT_EQ(runs_by_stack(band), band.of) << band.hardware;
    }
    // Rounded outwards, and no further than prices may move by a hundredth until the table is written anew.
    const double low = quantile(values, 0.1), high = quantile(values, 0.9);
    EXPECT_LE(band.low, low) << band.hardware;
    EXPECT_GE(band.low, low - 0.02) << band.hardware;
    EXPECT_GE(band.high, high) << band.hardware;
    EXPECT_LE(band.high, high + 0.02) << band.hardware << ": " << low << " to " << high;
  }
}

// Measured over predicted, of a column of the page that scripts/cpu_accuracy wrote.
std::vector<double> ratios_of_page(std::size_t measured, std::size_t predicted, bool judged_alone) {
  std::istringstream page(read_file(TRIDENT_SOURCE_DIR "/docs/benchmarks/2026-11-25-cpu-prediction.md"));
  std::vector<double> list;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| ") || line.starts_with("| model")) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(1));
    for (std::string cell; std::getline(row, cell, '|');) cells.push_back(cell);
    if (judged_alone && cells.at(2).find("not judged") != std::string::npos) continue;
    list.push_back(std::stod(cells.at(measured)) / std::stod(cells.at(predicted)));
  }
  return list;
}

TEST(ErrorBands, OfProcessorsHoldEightOfTenMeasuredRuns) {
  const auto hold = [](const ErrorBand& band, const std::vector<double>& values) {
    EXPECT_EQ(static_cast<int>(values.size()), band.runs);
    const double low = quantile(values, 0.1), high = quantile(values, 0.9);
    EXPECT_NEAR(band.low, std::floor(100 * low) / 100, 1e-9) << "from " << low;
    EXPECT_NEAR(band.high, std::ceil(100 * high) / 100, 1e-9) << "to " << high;
  };
  hold(processor_band(), ratios_of_page(3, 5, true));
  hold(resident_band(), ratios_of_page(7, 8, false));
}

// Ten runs make a band of their own; fewer, or none, have that of all GPUs.
TEST(ErrorBands, FewerThanTenRunsHaveThatOfAll) {
  std::map<std::pair<std::string, bool>, int> runs{{{"b200_sxm", false}, 0}, {{"", true}, 0}};
  for (const Ratio& ratio : ratios()) ++runs[{ratio.hardware, ratio.gathers}];
  for (const auto& [kind, count] : runs)
    EXPECT_EQ(error_band(kind.first, {.gathers = kind.second})->hardware, count >= 10 ? kind.first : "") << kind.first;
}

TEST(ErrorBands, ARunThatNoPublishedOneResemblesHasNone) {
  EXPECT_EQ(error_band("h100_sxm", {.gathers = true, .gpus = 512})->runs, 33);
  EXPECT_FALSE(error_band("h100_sxm", {.gathers = true, .gpus = 513}));
  EXPECT_EQ(error_band("a100_sxm_40gb", {.gathers = true, .gpus = 128})->runs, 33);
  EXPECT_EQ(error_band("a100_sxm_40gb", {.gathers = true, .gpus = 129})->runs, 72) << "other GPUs' runs reach that far";
  EXPECT_EQ(error_band("a100_sxm_40gb", {.gathers = true, .gpus = 512})->runs, 72);
  EXPECT_FALSE(error_band("a100_sxm_40gb", {.gathers = true, .gpus = 513}));
  EXPECT_EQ(error_band("v100_sxm_16gb", {.gpus = 33})->runs, 178);
  EXPECT_FALSE(error_band("a100_sxm_80gb", {.gathers = true, .gpus = 1536}));
  EXPECT_FALSE(error_band("h100_sxm", {.gathers = true, .splits_model = true, .gpus = 8}));
  EXPECT_EQ(error_band("a100_sxm_80gb", {.splits_model = true, .gpus = 12288})->runs, 150);
  EXPECT_EQ(error_band("a100_sxm_80gb", {.splits_model = true, .gpus = 12289})->runs, 178);
  EXPECT_FALSE(error_band("a100_sxm_80gb", {.splits_model = true, .gpus = 16385}));
}

// Nine of ten published peaks are below. Tables do not say what a GB is: each source has the unit in which its rows are closer.
TEST(ErrorBands, TensorsAreOffAsPublishedPeaksAre) {
  const PublishedBook book = shipped_published_book();
  std::map<std::string, std::array<std::vector<double>, 2>> peaks;  // measured over predicted, in 2^30 and 10^9 bytes
  for (const auto& [row, made] : published_rows()) {
    const JsonValue& measured = *row.find("measured");
    const double gib = or_zero(measured, "memory_gib_peak"), either = or_zero(measured, "memory_gb_peak");
    if (gib + either == 0) continue;
    const double predicted = or_zero(answer_case(made, book), "peak_allocated_bytes");
    if (predicted == 0) continue;
    const std::string& source = row.find("source")->as_string();
    auto& [binary, decimal] = peaks[source.substr(0, source.find(','))];
    binary.push_back((gib + either) * (1 << 30) / predicted);
    if (gib == 0) decimal.push_back(either * 1e9 / predicted);
  }
  std::vector<double> all;
  const auto off = [](const std::vector<double>& list) {
    double sum = 0;
    for (const double it : list) sum += std::abs(it - 1);
    return list.empty() ? 1e9 : sum / static_cast<double>(list.size());
  };
  for (const auto& [source, units] : peaks) {
    const std::vector<double>& closer = off(units[0]) < off(units[1]) ? units[0] : units[1];
    all.insert(all.end(), closer.begin(), closer.end());
  }
  EXPECT_EQ(all.size(), 73u);
  EXPECT_NEAR(tensors_off(1), std::ceil(100 * quantile(all, 0.9)) / 100 - 1, 1e-9);
}

}  // namespace
}  // namespace trident
