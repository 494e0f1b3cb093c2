#include "planner/price/cpu_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "core/check.h"
#include "planner/price/sourced_object.h"

namespace trident {
namespace {

constexpr double kMostMicroseconds = 1e10, kMostFlops = 1e18;
constexpr int kMostCores = 4096;
constexpr std::array kDTypes{DType::kF32, DType::kBF16, DType::kF16};

// An object of a profile: its numbers need no source, its tables have one. Each member goes where the caller has room for it.
class ProfileReader : public SourcedObject {
 public:
  ProfileReader(const JsonValue& json, std::string where) : SourcedObject(json, std::move(where), kCalibrated) {}

  void count(std::string_view key, int& out) {
    const JsonValue& value = member(key);
    if (!value.is_integer() || value.as_integer() < 1 || value.as_integer() > kMostCores)
      refuse(key, fmt::format("must be a whole number from 1 to {}", kMostCores));
    out = static_cast<int>(value.as_integer());
  }
  // In [0, most].
  void number(std::string_view key, double most, double& out) {
    const JsonValue& value = member(key);
    if (!value.is_number() || !(value.as_number() >= 0 && value.as_number() <= most))
      refuse(key, fmt::format("must be a number from 0 to {}", most));
    out = value.as_number();
  }
  void bytes(std::string_view key, double& out) { number(key, 1e13, out); }
  void flops(std::string_view key, double& out) { number(key, kMostFlops, out); }
  // In the file in `unit` seconds.
  void time(std::string_view key, double unit, double& out) { number(key, kMostMicroseconds, out), out *= unit; }
  void dtype(std::string_view key, DType& out) {
    const std::string name = SourcedObject::text(key);
    const auto* const found = std::ranges::find_if(kDTypes, [&](DType one) { return to_string(one) == name; });
    if (found == kDTypes.end()) refuse(key, fmt::format("{} is no dtype of a table; write f32, bf16 or f16", in_quotes(name)));
    out = *found;
  }
  // An enumeration whose values are no and yes.
  template <class YesOrNo>
  void flag(std::string_view key, YesOrNo& out) {
    const JsonValue& value = member(key);
    if (!value.is_bool()) refuse(key, "must be true or false");
    out = value.as_bool() ? YesOrNo::kYes : YesOrNo::kNo;
  }
  void text(std::string_view key, std::string& out) { out = SourcedObject::text(key); }
  // `axes` name lists of ascending sizes; `values` microseconds, one for each point.
  void table(std::span<const std::string_view> axes, std::string_view values, std::vector<double> beyond, LogTable& out) {
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
    out = {std::move(sizes), std::move(seconds), std::move(beyond)};
  }
  template <class Rows, class Members>
  void tables(std::string_view key, Rows& rows, const Members& members) {
    const JsonValue& list = member(key);
    if (!list.is_array()) refuse(key, "must be a list of tables");
    for (const JsonValue& item : list.items()) {
      ProfileReader object(item, fmt::format("{}.{}[{}]", where(), key, rows.size()));
      members(object, rows.emplace_back());
      object.finish();
    }
  }
  template <class Members>
  void object(std::string_view key, const Members& members) {
    ProfileReader object(member(key), fmt::format("{}.{}", where(), key));
    members(object);
    object.finish();
  }

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

// Four digits: more of a time nobody measures.
double rounded(double value) {
  const double scale = std::pow(10.0, 3 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

// The way back, member by member.
struct ProfileWriter {
  JsonValue json = {};

  void count(std::string_view key, int x) { json.set(key, x); }
  void bytes(std::string_view key, double x) { json.set(key, std::round(x)); }
  void flops(std::string_view key, double x) { json.set(key, x > 0 ? rounded(x) : 0.0); }
  void time(std::string_view key, double unit, double x) {
    const double seconds = 1e-6 / unit * x;
    json.set(key, seconds > 0 ? rounded(1e6 * seconds) : 0.0);
  }
  void dtype(std::string_view key, DType x) { json.set(key, to_string(x)); }
  template <class YesOrNo>
  void flag(std::string_view key, YesOrNo x) {
    json.set(key, x == YesOrNo::kYes);
  }
  void text(std::string_view key, const std::string& x) { json.set(key, x); }
  void table(std::span<const std::string_view> axes, std::string_view values, const std::vector<double>&, const LogTable& x) {
    for (std::size_t a = 0; a < axes.size(); ++a) numbers(axes[a], x.axes()[a], 1);
    numbers(values, x.values(), 1e-6);
  }
  template <class Rows, class Members>
  void tables(std::string_view key, const Rows& rows, const Members& members) {
    JsonValue::Array all;
    for (const auto& row : rows) {
      ProfileWriter object;
      members(object, row);
      all.push_back(std::move(object.json));
    }
    json.set(key, std::move(all));
  }
  template <class Members>
  void object(std::string_view key, const Members& members) {
    ProfileWriter object;
    members(object);
    json.set(key, std::move(object.json));
  }
  void numbers(std::string_view key, const std::vector<double>& values, double unit) {
    JsonValue::Array items;
    for (const double value : values) {
      const double shown = rounded(value / unit);
      if (shown == std::floor(shown) && shown < 1e15)
        items.emplace_back(static_cast<std::int64_t>(shown));
      else
        items.emplace_back(shown);
    }
    json.set(key, std::move(items));
  }
};

constexpr std::array<std::string_view, 3> kProductAxes{"m", "n", "k"};
constexpr std::array<std::string_view, 2> kAttentionAxes{"length", "head_dim"};
constexpr std::array<std::string_view, 1> kByteAxes{"bytes"};

template <class Profile, class Rates>
void visit_peaks(Profile& file, Rates& rates) {
  file.object("peak_flops_of_a_core",
              [&](auto& o) { o.flops("f32", rates.fp32_peak), o.flops("bf16", rates.bf16_peak); });
}

// The one list of what a profile holds behind its heading, for reading and for writing.
template <class Profile, class Rates>
void visit_members(Profile& file, Rates& rates) {
  file.object("constants", [&](auto& o) {
    auto& c = rates.constants;
    o.time("step_us", 1e-6, c.step_seconds), o.time("call_us", 1e-6, c.call_seconds);
    o.time("collective_us", 1e-6, c.collective_seconds), o.time("skew_root_us", 1e-3, c.skew_root_seconds);
    o.time("shared_collective_us", 1e-6, c.shared_seconds), o.time("shared_root_us", 1e-3, c.shared_root_seconds);
    o.text("source", rates.constants_source);
  });
  file.tables("memory", rates.memory, [](auto& o, auto& m) {
    o.dtype("dtype", m.compute), o.bytes("process_bytes", m.process_bytes), o.bytes("rank_bytes", m.rank_bytes);
    o.text("source", m.source);
  });
  file.tables("products", rates.products, [](auto& o, auto& t) {
    o.count("threads", t.threads), o.dtype("dtype", t.in), o.flag("transpose_a", t.transpose_a);
    o.flag("transpose_b", t.transpose_b), o.flag("accumulates", t.accumulate);
    o.table(kProductAxes, "us", {1, 1, 1}, t.seconds), o.text("source", t.source);
  });
  const auto operations = [](std::span<const std::string_view> axes, std::string_view values, const std::vector<double>& beyond) {
    return [=](auto& o, auto& t) {
      o.count("threads", t.threads), o.dtype("dtype", t.compute), o.text("operation", t.operation);
      o.table(axes, values, beyond, t.seconds), o.text("source", t.source);
    };
  };
  file.tables("attention", rates.attention, operations(kAttentionAxes, "us_per_head", {2, 1}));
  file.tables("operations", rates.operations, operations(kByteAxes, "us", {1}));
  file.tables("collectives", rates.collectives, [](auto& o, auto& t) {
    o.text("operation", t.operation), o.dtype("dtype", t.dtype), o.count("ranks", t.ranks), o.count("world", t.world);
    o.table(kByteAxes, "us", {1}, t.seconds), o.text("source", t.source);
  });
}

}  // namespace

CpuRates cpu_rates_from_json(const JsonValue& json, const std::string& where) {
  ProfileReader file(json, where);
  CpuRates rates;
  file.text("name", rates.name), file.text("processor", rates.processor), file.count("cores", rates.cores);
  if (file.has("date")) file.text("date", rates.date);  // earlier versions did not write it
  if (file.has("disturbance")) file.text("disturbance", rates.disturbance);
  if (file.has("bf16_over_fp32")) file.number("bf16_over_fp32", 1e3, rates.bf16_over_fp32.emplace());
  if (file.has("peak_flops_of_a_core")) visit_peaks(file, rates);
  visit_members(file, rates);
  file.finish();
  return rates;
}

JsonValue to_json(const CpuRates& rates) {
  ProfileWriter file;
  file.text("name", rates.name), file.text("processor", rates.processor), file.count("cores", rates.cores);
  if (!rates.date.empty()) file.text("date", rates.date);
  if (!rates.disturbance.empty()) file.text("disturbance", rates.disturbance);
  if (rates.bf16_over_fp32) file.json.set("bf16_over_fp32", *rates.bf16_over_fp32);
  visit_peaks(file, rates);
  visit_members(file, rates);
  return std::move(file.json);
}

std::string name_of_profile(const CpuRates& rates) {
  const std::string name = fmt::format("the profile {} of {}", rates.name, rates.processor);
  return fmt::format("{}{}{}", name, rates.date.empty() ? "" : ", measured " + rates.date,
                     rates.disturbance.empty() ? "" : " while other programs ran (calibrate again)");
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
