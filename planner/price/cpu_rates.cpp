#include "planner/price/cpu_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

#include "core/check.h"
#include "planner/price/sourced_object.h"

namespace trident {
namespace {

constexpr double kMostMicroseconds = 1e10, kMostFlops = 1e18;
constexpr int kMostCores = 4096;
constexpr std::array kDTypes{DType::kF32, DType::kBF16, DType::kF16};

// An object of a profile: its numbers need no source, its tables have one.
class ProfileObject : public SourcedObject {
 public:
  ProfileObject(const JsonValue& json, std::string where)
      : SourcedObject(json, std::move(where), kCalibrated) {}

  using SourcedObject::where;
  int count(std::string_view key, int most) {
    const JsonValue& value = member(key);
    if (!value.is_integer() || value.as_integer() < 1 || value.as_integer() > most)
      refuse(key, fmt::format("must be a whole number from 1 to {}", most));
    return static_cast<int>(value.as_integer());
  }
  // In [0, most].
  double number(std::string_view key, double most) {
    const JsonValue& value = member(key);
    if (!value.is_number() || !(value.as_number() >= 0 && value.as_number() <= most))
      refuse(key, fmt::format("must be a number from 0 to {}", most));
    return value.as_number();
  }
  DType dtype(std::string_view key) {
    const std::string name = text(key);
    const auto* const found = std::ranges::find_if(kDTypes, [&](DType one) { return to_string(one) == name; });
    if (found == kDTypes.end()) refuse(key, fmt::format("{} is no dtype of a table; write f32, bf16 or f16", in_quotes(name)));
    return *found;
  }
  bool flag(std::string_view key) {
    const JsonValue& value = member(key);
    if (!value.is_bool()) refuse(key, "must be true or false");
    return value.as_bool();
  }
  Transpose transpose(std::string_view key) { return flag(key) ? Transpose::kYes : Transpose::kNo; }
  // `axes` name lists of ascending sizes; `values` microseconds, one for each point.
  LogTable table(std::span<const std::string_view> axes, std::string_view values, std::vector<double> beyond) {
    std::vector<std::vector<double>> sizes;
    std::size_t points = 1;
    for (const std::string_view axis : axes) {
      sizes.push_back(numbers(axis));
      if (std::ranges::adjacent_find(sizes.back(), std::greater_equal<>()) != sizes.back().end()) refuse(axis, "must ascend");
      points *= sizes.back().size();
    }
    std::vector<double> seconds = numbers(values);
    if (seconds.size() != points)
      refuse(values, fmt::format("has {} values for {} points; write one for each", seconds.size(), points));
    for (double& value : seconds) value *= 1e-6;
    return {std::move(sizes), std::move(seconds), std::move(beyond)};
  }
  const JsonValue::Array& list(std::string_view key) {
    const JsonValue& value = member(key);
    if (!value.is_array()) refuse(key, "must be a list of tables");
    return value.items();
  }
  ProfileObject object(std::string_view key) { return {member(key), fmt::format("{}.{}", where(), key)}; }

 private:
  std::vector<double> numbers(std::string_view key) {
    const JsonValue& value = member(key);
    if (!value.is_array() || value.items().empty()) refuse(key, "must be a list of numbers");
    std::vector<double> result;
    for (const JsonValue& item : value.items()) {
      if (!item.is_number() || !(item.as_number() > 0 && item.as_number() <= kMostMicroseconds))
        refuse(key, fmt::format("its numbers must be above 0 and at most {}", kMostMicroseconds));
      result.push_back(item.as_number());
    }
    return result;
  }
  [[noreturn]] void refuse(std::string_view key, const std::string& what) const {
    throw ConfigError(fmt::format("{}.{}: {}", where(), key, what));
  }
};

template <class Table, class Read>
std::vector<Table> read_tables(ProfileObject& file, std::string_view key, const Read& read) {
  std::vector<Table> tables;
  for (const JsonValue& item : file.list(key)) {
    ProfileObject object(item, fmt::format("{}.{}[{}]", file.where(), key, tables.size()));
    tables.push_back(read(object));
    tables.back().source = object.text("source");
    object.finish();
  }
  return tables;
}

CpuConstants read_constants(ProfileObject object, std::string& source) {
  CpuConstants constants;
  constants.step_seconds = 1e-6 * object.number("step_us", kMostMicroseconds);
  constants.call_seconds = 1e-6 * object.number("call_us", kMostMicroseconds);
  constants.collective_seconds = 1e-6 * object.number("collective_us", kMostMicroseconds);
  constants.skew_root_seconds = 1e-3 * object.number("skew_root_us", kMostMicroseconds);
  constants.shared_seconds = 1e-6 * object.number("shared_collective_us", kMostMicroseconds);
  constants.shared_root_seconds = 1e-3 * object.number("shared_root_us", kMostMicroseconds);
  source = object.text("source");
  object.finish();
  return constants;
}

// Four digits: more of a time nobody measures.
double rounded(double value) {
  const double scale = std::pow(10.0, 3 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

JsonValue numbers_json(const std::vector<double>& values, double unit) {
  JsonValue::Array items;
  for (const double value : values) {
    const double shown = rounded(value / unit);
    if (shown == std::floor(shown) && shown < 1e15)
      items.emplace_back(static_cast<std::int64_t>(shown));
    else
      items.emplace_back(shown);
  }
  return items;
}

void set_table(JsonValue& json, const LogTable& table, std::span<const std::string_view> axes, std::string_view values) {
  for (std::size_t a = 0; a < axes.size(); ++a) json.set(axes[a], numbers_json(table.axes()[a], 1));
  json.set(values, numbers_json(table.values(), 1e-6));
}

constexpr std::array<std::string_view, 3> kProductAxes{"m", "n", "k"};
constexpr std::array<std::string_view, 2> kAttentionAxes{"length", "head_dim"};
constexpr std::array<std::string_view, 1> kByteAxes{"bytes"};

std::vector<OperationTimes> read_operations(ProfileObject& file, std::string_view key, std::span<const std::string_view> axes,
                                            std::string_view values, const std::vector<double>& beyond) {
  return read_tables<OperationTimes>(file, key, [&](ProfileObject& o) {
    return OperationTimes{o.count("threads", kMostCores), o.dtype("dtype"), o.text("operation"), o.table(axes, values, beyond), {}};
  });
}

JsonValue::Array operations_json(const std::vector<OperationTimes>& tables, std::span<const std::string_view> axes,
                                 std::string_view values) {
  JsonValue::Array all;
  for (const OperationTimes& t : tables) {
    JsonValue& o = all.emplace_back();
    o.set("threads", t.threads);
    o.set("dtype", to_string(t.compute));
    o.set("operation", t.operation);
    set_table(o, t.seconds, axes, values);
    o.set("source", t.source);
  }
  return all;
}

}  // namespace

CpuRates cpu_rates_from_json(const JsonValue& json, const std::string& where) {
  ProfileObject file(json, where);
  CpuRates rates;
  rates.name = file.text("name");
  rates.processor = file.text("processor");
  rates.cores = file.count("cores", kMostCores);
  if (file.has("date")) rates.date = file.text("date");  // earlier versions did not write it
  if (file.has("bf16_over_fp32")) rates.bf16_over_fp32 = file.number("bf16_over_fp32", 1e3);
  if (file.has("peak_flops_of_a_core")) {
    ProfileObject peaks = file.object("peak_flops_of_a_core");
    rates.fp32_peak = peaks.number("f32", kMostFlops);
    rates.bf16_peak = peaks.number("bf16", kMostFlops);
    peaks.finish();
  }
  rates.constants = read_constants(file.object("constants"), rates.constants_source);
  rates.memory = read_tables<CpuMemory>(file, "memory", [](ProfileObject& o) {
    return CpuMemory{o.dtype("dtype"), o.number("process_bytes", 1e13), o.number("rank_bytes", 1e13), {}};
  });
  rates.products = read_tables<ProductTimes>(file, "products", [](ProfileObject& o) {
    return ProductTimes{o.count("threads", kMostCores),
                        o.dtype("dtype"),
                        o.transpose("transpose_a"),
                        o.transpose("transpose_b"),
                        o.flag("accumulates") ? Accumulate::kYes : Accumulate::kNo,
                        o.table(kProductAxes, "us", {1, 1, 1}),
                        {}};
  });
  rates.attention = read_operations(file, "attention", kAttentionAxes, "us_per_head", {2, 1});
  rates.operations = read_operations(file, "operations", kByteAxes, "us", {1});
  rates.collectives = read_tables<CollectiveTimes>(file, "collectives", [](ProfileObject& o) {
    return CollectiveTimes{o.text("operation"),           o.dtype("dtype"),
                           o.count("ranks", kMostCores),  o.count("world", kMostCores),
                           o.table(kByteAxes, "us", {1}), {}};
  });
  file.finish();
  return rates;
}

JsonValue to_json(const CpuRates& rates) {
  JsonValue json, constants;
  json.set("name", rates.name);
  json.set("processor", rates.processor);
  json.set("cores", rates.cores);
  if (!rates.date.empty()) json.set("date", rates.date);
  if (rates.bf16_over_fp32) json.set("bf16_over_fp32", *rates.bf16_over_fp32);
  const auto rounded_above_0 = [](double value) { return value > 0 ? rounded(value) : 0.0; };
  JsonValue peaks;
  peaks.set("f32", rounded_above_0(rates.fp32_peak));
  peaks.set("bf16", rounded_above_0(rates.bf16_peak));
  json.set("peak_flops_of_a_core", std::move(peaks));
  const auto microseconds = [&](double seconds) { return rounded_above_0(1e6 * seconds); };
  constants.set("step_us", microseconds(rates.constants.step_seconds));
  constants.set("call_us", microseconds(rates.constants.call_seconds));
  constants.set("collective_us", microseconds(rates.constants.collective_seconds));
  constants.set("skew_root_us", microseconds(1e-3 * rates.constants.skew_root_seconds));
  constants.set("shared_collective_us", microseconds(rates.constants.shared_seconds));
  constants.set("shared_root_us", microseconds(1e-3 * rates.constants.shared_root_seconds));
  constants.set("source", rates.constants_source);
  json.set("constants", std::move(constants));

  JsonValue::Array memory, products, collectives;
  for (const CpuMemory& m : rates.memory) {
    JsonValue& o = memory.emplace_back();
    o.set("dtype", to_string(m.compute));
    o.set("process_bytes", std::round(m.process_bytes));
    o.set("rank_bytes", std::round(m.rank_bytes));
    o.set("source", m.source);
  }
  for (const ProductTimes& t : rates.products) {
    JsonValue& o = products.emplace_back();
    o.set("threads", t.threads);
    o.set("dtype", to_string(t.in));
    o.set("transpose_a", t.transpose_a == Transpose::kYes);
    o.set("transpose_b", t.transpose_b == Transpose::kYes);
    o.set("accumulates", t.accumulate == Accumulate::kYes);
    set_table(o, t.seconds, kProductAxes, "us");
    o.set("source", t.source);
  }
  for (const CollectiveTimes& t : rates.collectives) {
    JsonValue& o = collectives.emplace_back();
    o.set("operation", t.operation);
    o.set("dtype", to_string(t.dtype));
    o.set("ranks", t.ranks);
    o.set("world", t.world);
    set_table(o, t.seconds, kByteAxes, "us");
    o.set("source", t.source);
  }
  json.set("memory", std::move(memory));
  json.set("products", std::move(products));
  json.set("attention", operations_json(rates.attention, kAttentionAxes, "us_per_head"));
  json.set("operations", operations_json(rates.operations, kByteAxes, "us"));
  json.set("collectives", std::move(collectives));
  return json;
}

std::string name_of_profile(const CpuRates& rates) {
  const std::string name = fmt::format("the profile {} of {}", rates.name, rates.processor);
  return rates.date.empty() ? name : fmt::format("{}, measured {}", name, rates.date);
}

double priced_head_dim(std::int64_t head_dim) { return static_cast<double>((head_dim + 15) / 16 * 16); }

CpuRates read_cpu_rates(const std::string& file) { return cpu_rates_from_json(read_json_file(file), file); }

CpuRates shipped_cpu_rates() {
  return cpu_rates_from_json(parse_json(shipped_cpu_text(), "configs/cpu/cpu.json"), "configs/cpu/cpu.json");
}

bool is_cpu_profile(const JsonValue& json) {  // one that lacks a member is a bad profile, no cluster
  return json.find("cores") != nullptr || json.find("processor") != nullptr || json.find("products") != nullptr;
}

}  // namespace trident
