#include "tests/conformance/conformance.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "tests/conformance/case_table.h"
#include "tests/conformance/device_call.h"

namespace trident::conformance {

namespace {

constexpr std::byte kWorkspaceFill{0x5A}, kOtherWorkspaceFill{0xFF};

double share_of(double error, double allowed) {
  if (error == 0) return 0;
  return allowed > 0 ? error / allowed : std::numeric_limits<double>::infinity();
}

void fail(CaseResult& result, std::string what) {
  if (result.outcome == Outcome::kFailed) return;  // the first reason is told
  result.outcome = Outcome::kFailed;
  result.what = std::move(what);
}

// |got - want|; 0 for equal infinities and for two NaN, infinite if only one of them is finite.
double error_of(double got, double want) {
  if (got == want || (std::isnan(got) && std::isnan(want))) return 0;
  const double error = std::abs(got - want);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

void compare(CaseResult& result, const Operand& o, const Values& got, Values want, std::string_view judge, double slack) {
  if (o.tolerance.is_exact()) want = decode(o.dtype, encode(o.dtype, want));
  double largest = o.tolerance.terms;
  for (const double x : want) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = error_of(got[i], want[i]);
    double allowed = slack * (o.tolerance.absolute + o.tolerance.relative * std::abs(want[i]) + o.tolerance.floor * largest);
    if (!std::isfinite(want[i]) || (want[i] == 0 && o.tolerance.zeros != Zeros::kApproximate)) allowed = 0;
    if (got[i] == 0 && o.tolerance.zeros == Zeros::kNoOthers) allowed = 0;
    const double share = share_of(error, allowed);
    if (share > result.share() || (result.allowed == 0 && error == 0)) result.max_error = error, result.allowed = allowed;
    if (share > 1) {
      fail(result, fmt::format("{}[{}] of {} is {:.9g}, {} says {:.9g}: off by {:.3g}, allowed {:.3g}", o.name, i,
                               to_string(o.shape), got[i], judge, want[i], error, allowed));
    }
  }
}

bool is_result(const Operand& o) { return o.role != Role::kInput; }

// Returns what the device holds after the call, in canonical form.
std::vector<Values> results_of(DeviceCall& call, const OpCase& c) {
  std::vector<Values> values;
  for (std::size_t i = 0; i < c.operands.size(); ++i) values.push_back(decode(c.operands[i].dtype, call.bytes(i)));
  if (c.canonical) c.canonical(values);
  return values;
}

void check_untouched(CaseResult& result, DeviceCall& call, const OpCase& c, const std::vector<Values>& initial) {
  for (std::size_t i = 0; i <= c.operands.size(); ++i) {
    const std::string name = i < c.operands.size() ? c.operands[i].name : "the workspace";
    if (!call.guards_intact(i)) fail(result, fmt::format("bytes beside {} were written", name));
    if (i < c.operands.size() && !is_result(c.operands[i]) &&
        !std::ranges::equal(call.bytes(i), encode(c.operands[i].dtype, initial[i])))
      fail(result, fmt::format("{}, an input, was written", name));
  }
}

// Where two calls differ first.
void check_same_bits(CaseResult& result, DeviceCall& first, DeviceCall& second, const OpCase& c) {
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    const Operand& o = c.operands[i];
    const std::span<const std::byte> a = first.bytes(i), b = second.bytes(i);
    const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin());
    if (at == a.end()) continue;
    fail(result, fmt::format("{}[{}] of {} has other bits in a second call", o.name, (at - a.begin()) / size_of(o.dtype),
                             to_string(o.shape)));
  }
}

// The call, done; none if the device refuses it, which `result` then says.
std::optional<DeviceCall> try_call(CaseResult& result, Device& device, const OpCase& c, const std::vector<Values>& initial) {
  try {
    DeviceCall call(device, c, initial, kWorkspaceFill);
    call.run();
    call.read_back();
    return call;
  } catch (const Error& error) {
    result.outcome = Outcome::kRefused;
    result.what = error.what();
    return std::nullopt;
  }
}

template <class Run>
std::vector<CaseResult> for_matching(std::string_view filter, Run run) {
  std::vector<CaseResult> results;
  for (const OpCase& c : all_cases()) {
    if (matches(filter, c.name())) results.push_back(run(c));
  }
  return results;
}

}  // namespace

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPassed: return "passed";
    case Outcome::kFailed: return "FAILED";
    case Outcome::kRefused: return "refused";
  }
  return "?";
}

double CaseResult::share() const { return share_of(max_error, allowed); }

bool matches(std::string_view filter, const std::string& name) {
  const auto any = [&](std::string_view patterns) {
    while (!patterns.empty()) {
      const std::size_t end = std::min(patterns.find(':'), patterns.size());
      std::string pattern(patterns.substr(0, end));
      if (pattern.find('/') == std::string::npos) pattern += "/*";
      if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
      patterns.remove_prefix(std::min(end + 1, patterns.size()));
    }
    return false;
  };
  const std::size_t dash = std::min(filter.find('-'), filter.size());
  const std::string_view wanted = filter.substr(0, dash), unwanted = filter.substr(std::min(dash + 1, filter.size()));
  return (wanted.empty() || any(wanted)) && !any(unwanted);
}

CaseResult run_case(Device& device, const OpCase& c, std::uint64_t seed) {
  CaseResult result{.name = c.name(), .what = {}};
  const std::vector<Values> initial = draw_operands(c, seed);
  std::optional<DeviceCall> first = try_call(result, device, c, initial);
  if (!first) return result;
  std::vector<Values> expected = initial;
  c.reference(expected);
  const std::vector<Values> got = results_of(*first, c);
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    if (is_result(c.operands[i])) compare(result, c.operands[i], got[i], expected[i], "the reference", 1);
  }
  check_untouched(result, *first, c, initial);
  try {
    DeviceCall second(device, c, initial, kOtherWorkspaceFill);
    second.run_in_step();
    second.read_back();
    check_same_bits(result, *first, second, c);
    check_untouched(result, second, c, initial);
  } catch (const Error& error) {
    fail(result, fmt::format("the same call inside a step: {}", error.what()));
  }
  return result;
}

std::vector<CaseResult> run_cases(Device& device, std::string_view filter, std::uint64_t seed) {
  return for_matching(filter, [&](const OpCase& c) { return run_case(device, c, seed); });
}

CaseResult compare_case(Device& device, Device& other, const OpCase& c, std::uint64_t seed) {
  CaseResult result{.name = c.name(), .what = {}};
  const std::vector<Values> initial = draw_operands(c, seed);
  std::optional<DeviceCall> here = try_call(result, device, c, initial);
  std::optional<DeviceCall> there = here ? try_call(result, other, c, initial) : std::nullopt;
  if (!there) return result;
  const std::vector<Values> got = results_of(*here, c), want = results_of(*there, c);
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    if (is_result(c.operands[i])) compare(result, c.operands[i], got[i], want[i], "the other device", 2);
  }
  return result;
}

std::vector<CaseResult> compare_devices(Device& device, Device& other, std::string_view filter, std::uint64_t seed) {
  return for_matching(filter, [&](const OpCase& c) { return compare_case(device, other, c, seed); });
}

std::vector<CaseResult> compare_one_by_one(Device& device, std::string_view filter, std::uint64_t seed) {
  std::vector<CaseResult> results;
  for (const OpCase& c : all_cases()) {
    if (!c.one_by_one || !matches(filter, c.name())) continue;
    OpCase parts = c;
    parts.run = c.one_by_one;
    CaseResult& result = results.emplace_back(CaseResult{.name = c.name(), .what = {}});
    const std::vector<Values> initial = draw_operands(c, seed);
    std::optional<DeviceCall> fused = try_call(result, device, c, initial);
    std::optional<DeviceCall> one_by_one = fused ? try_call(result, device, parts, initial) : std::nullopt;
    if (one_by_one) check_same_bits(result, *fused, *one_by_one, c);
  }
  return results;
}

std::vector<CaseResult> find_support(Device& device, std::string_view filter) {
  return for_matching(filter, [&](const OpCase& c) {
    CaseResult result{.name = c.name(), .what = {}};
    try_call(result, device, c, draw_operands(c, 1));
    return result;
  });
}

}  // namespace trident::conformance
