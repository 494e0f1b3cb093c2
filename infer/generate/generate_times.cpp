#include "infer/generate/generate_times.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "core/clock.h"
#include "device/cpu/memory_reads.h"
#include "model/config/model_stats.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

constexpr double kProductSeconds = 0.05;

}  // namespace

GenerateTimes times_of_no_pass(const ModelConfig& model) {
  GenerateTimes times;
  const auto layers = static_cast<double>(model.layers);
  times.flops_per_token = 2 * layers * static_cast<double>(block_matmul_parameters(model));
  times.flops_per_prompt = 2 * static_cast<double>(model.vocab_size) * static_cast<double>(model.hidden);
  times.flops_per_pair = 4 * layers * static_cast<double>(model.query_width());
  return times;
}

MachineRates::MachineRates(Device& device, DType compute)
    : device_(device), compute_(compute), memory_(device.allocate(kBytes, "memory that is read to measure its rate")) {
  // Pages that were never written may all be one page of zeros.
  std::memset(memory_.data(), 1, static_cast<std::size_t>(kBytes));
}

MachineRates::Rate MachineRates::read() {
  const std::span words(reinterpret_cast<const std::uint64_t*>(memory_.data()),
                        static_cast<std::size_t>(kBytes) / sizeof(std::uint64_t));
  const double begin = monotonic_seconds(), cpu_begin = thread_cpu_seconds();
  sum_ += sum_of_words(words);
  const double seconds = monotonic_seconds() - begin, cpu_seconds = thread_cpu_seconds() - cpu_begin;
  return {static_cast<double>(kBytes) / seconds, static_cast<double>(kBytes) / cpu_seconds};
}

MachineRates::Rate MachineRates::multiply() {
  return {measure_matmul_rate(device_, compute_, kProductSeconds),
          measure_matmul_rate(device_, compute_, kProductSeconds, thread_cpu_seconds)};
}

namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double prompt_flops(const GenerateTimes& times, const PassTime& pass) {
  const auto tokens = static_cast<double>(pass.tokens);
  return tokens * times.flops_per_token + times.flops_per_prompt + tokens * (tokens + 1) / 2 * times.flops_per_pair;
}

double step_bytes(const GenerateTimes& times, const PassTime& pass) {
  return static_cast<double>(times.step_weight_bytes + pass.positions * times.cache_bytes_per_position);
}

template <class Work>
PassSummary summarize(const GenerateTimes& times, bool prompts, Work work_of) {
  std::vector<double> tokens, seconds, token_rates, work, rates, machine_rates, shares, cpu_seconds, cpu_shares;
  for (const PassTime& pass : times.passes) {
    if (pass.is_prompt != prompts) continue;
    const double done = work_of(times, pass);
    tokens.push_back(static_cast<double>(pass.tokens));
    seconds.push_back(pass.seconds);
    token_rates.push_back(tokens.back() / pass.seconds);
    work.push_back(done);
    rates.push_back(done / pass.seconds);
    cpu_seconds.push_back(pass.cpu_seconds);
    if (pass.machine_rate == 0) continue;
    machine_rates.push_back(pass.machine_rate);
    shares.push_back(rates.back() / pass.machine_rate);
    cpu_shares.push_back(done / pass.cpu_seconds / pass.machine_cpu_rate);
  }
  PassSummary s;
  s.passes = std::ssize(tokens);
  s.tokens = median(std::move(tokens));
  s.seconds = median(std::move(seconds));
  s.tokens_per_second = median(std::move(token_rates));
  s.work = median(std::move(work));
  s.rate = median(std::move(rates));
  s.machine_rate = median(std::move(machine_rates));
  s.share = median(std::move(shares));
  s.cpu_seconds = median(std::move(cpu_seconds));
  s.cpu_share = median(std::move(cpu_shares));
  return s;
}

JsonValue to_json(const PassSummary& s, const char* work, const char* rate) {
  JsonValue out;
  out.set("passes", s.passes);
  out.set("tokens", s.tokens);
  out.set("seconds", s.seconds);
  out.set("cpu_seconds", s.cpu_seconds);
  out.set("tokens_per_second", s.tokens_per_second);
  out.set(work, s.work);
  out.set(rate, s.rate);
  if (s.machine_rate == 0) return out;
  out.set("machine_rate", s.machine_rate);
  out.set("share", s.share);
  out.set("cpu_share", s.cpu_share);
  return out;
}

std::string share_text(const PassSummary& s, const char* of_what, const char* unit) {
  if (s.machine_rate == 0) return "";
  return fmt::format(", {:.0f} % of the {:.1f} {} {} ({:.0f} % in processor time)", s.share * 100, s.machine_rate * 1e-9, unit,
                     of_what, s.cpu_share * 100);
}

}  // namespace

PassSummary summarize_prompts(const GenerateTimes& times) { return summarize(times, true, prompt_flops); }
PassSummary summarize_steps(const GenerateTimes& times) { return summarize(times, false, step_bytes); }

std::string to_text(const GenerateTimes& times) {
  const PassSummary prompts = summarize_prompts(times), steps = summarize_steps(times);
  std::string lines =
      fmt::format("prompts: {} of {:.0f} tokens, {:.3f} s each, {:.1f} tokens/s: {:.1f} GFLOP/s{}\n", prompts.passes,
                  prompts.tokens, prompts.seconds, prompts.tokens_per_second, prompts.rate * 1e-9,
                  share_text(prompts, "that products reach beside", "GFLOP/s"));
  if (steps.passes == 0) return lines;
  const double weights = static_cast<double>(times.step_weight_bytes);
  lines += fmt::format(
      "steps: {} of {:.0f} tokens, {:.2f} ms each, {:.1f} tokens/s; {:.1f} MB of weights and {:.2f} MB of keys and values: {:.2f} "
      "GB/s{}\n",
      steps.passes, steps.tokens, steps.seconds * 1e3, steps.tokens_per_second, weights * 1e-6, (steps.work - weights) * 1e-6,
      steps.rate * 1e-9, share_text(steps, "at which memory is read beside", "GB/s"));
  return lines;
}

JsonValue to_json(const GenerateTimes& times) {
  return JsonValue::Object{{"prompts", to_json(summarize_prompts(times), "flops", "flops_per_second")},
                           {"steps", to_json(summarize_steps(times), "bytes", "bytes_per_second")}};
}

}  // namespace trident
