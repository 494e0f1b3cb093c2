#include "train/run/run_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "checkpoint/checkpoint_folder.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "core/json_reader.h"
#include "core/number_text.h"
#include "core/printable.h"
#include "core/shell_word.h"
#include "core/utf8.h"
#include "data/dataset_record.h"
#include "data/indexed_dataset.h"
#include "model/config/model_stats.h"
#include "pipeline/schedule/step_simulator.h"
#include "train/log/console.h"
#include "train/plan/step_flops.h"
#include "train/run/dry_run.h"
#include "train/run/model_tokenizer.h"
#include "train/run/resume.h"
#include "train/run/zero_cost.h"

namespace trident {
namespace {

// A loss of pairs is no cross-entropy of tokens.
const char* unit_of_loss(bool of_pairs) { return of_pairs ? "per pair" : "nats per token"; }
std::string loss_text(double first, double last, bool of_pairs) {
  return fmt::format("{:.4f} -> {:.4f} {}", first, last, unit_of_loss(of_pairs));
}

std::string rewards_text(const PairRewards& rewards) {
  return fmt::format(", accuracy {:.4f}, margin {:.4f}", rewards.accuracy, rewards.margin());
}

// The ranks that send and hold the most.
ZeroCost largest_cost(const RunPlan& plan, const ZeroPolicy& policy) {
  ZeroCost largest;
  for (const ZeroCost& cost : zero_costs(plan, policy)) {
    largest.bytes_sent = std::max(largest.bytes_sent, cost.bytes_sent);
    largest.memory = std::max(largest.memory, cost.memory);
  }
  return largest;
}

}  // namespace

// The preset beside which the choice is shown: one that needs no more and sends less, or zero1 if that sends less.
ZeroLine zero_line(const RunPlan& plan) {
  const auto held = [](const ZeroCost& cost) { return megabytes_text(cost.memory, 2); };
  const ZeroCost cost = largest_cost(plan, plan.zero);
  ZeroLine line;
  line.text =
      fmt::format("{} with {}: {} sent over dp and {} of model state per rank and step", to_string(plan.zero.preset),
                  counted(plan.num_micro_batches, "micro-batch", "micro-batches"), megabytes_text(cost.bytes_sent, 2), held(cost));
  std::string beside;
  for (const ZeroPreset preset : {ZeroPreset::kZero2, ZeroPreset::kZero1}) {
    const ZeroCost other = largest_cost(plan, policy_of(preset));
    if (other.bytes_sent >= cost.bytes_sent) continue;
    const bool no_more = other.memory <= cost.memory;
    if (!no_more && (preset != ZeroPreset::kZero1 || !beside.empty())) continue;
    line.saves_a_tenth = other.bytes_sent <= 0.9 * cost.bytes_sent;
    beside = fmt::format("; {} would send {} and hold {}{}", to_string(preset), megabytes_text(other.bytes_sent, 2), held(other),
                         no_more ? fmt::format(": {} is no worse in either", to_string(preset)) : "");
  }
  line.text += beside;
  return line;
}

namespace {

// The first line of the report: bytes by use.
std::string memory_line(const ArenaPlan& memory) {
  const std::string report = memory_report(memory);
  return "memory of rank 0: " + report.substr(0, report.find('\n'));
}

// "data: ..." as "data:   ...": what stands behind the longest label begins in one column.
std::string aligned(std::string line) {
  const std::size_t colon = line.find(':');
  return line.insert(colon + 1, std::string_view("layout").size() - colon, ' ');
}

std::string device_line(const RunPlan& plan, const std::string& device) {
  const bool slow = plan.compute == DType::kF32 && plan.config.precision.compute == ComputeFormat::kAuto;
  return fmt::format("device: {}; compute in {}{}{}", device, to_string(plan.compute),
                     slow ? fmt::format(" ({})", plan.compute_reason) : "",
                     plan.device_reason.empty() ? "" : "; " + plan.device_reason);
}

// `before` is nullptr where no earlier evaluation can be compared.
std::string valid_text(const ValidLoss* before, const ValidLoss& last) {
  const ValidLoss& first = before == nullptr ? last : *before;
  const auto arrow = [&](double from, double to, int digits) {
    return (before == nullptr ? "" : fmt::format("{:.{}f} -> ", from, digits)) + fmt::format("{:.{}f}", to, digits);
  };
  const std::string text = fmt::format("{} {}", arrow(first.loss, last.loss, 4), unit_of_loss(last.rewards.has_value()));
  if (last.rewards) return text + rewards_text(*last.rewards);
  return text + fmt::format(", perplexity {}", arrow(first.perplexity(), last.perplexity(), 2)) +
         (first.bits_per_byte && last.bits_per_byte
              ? fmt::format(", {} bits per byte", arrow(*first.bits_per_byte, *last.bits_per_byte, 3))
              : "");
}

// It goes from the run's first evaluation to this start's last one, with the step of that one where it is not the run's last; it is
// of all sets together, or of the one called `name`.
std::string valid_text(const RunSummary& summary, const std::string& name = "") {
  const auto of = [&](const EvalMetrics& metrics) {
    if (name.empty()) return &metrics.valid;
    const auto set = std::ranges::find(metrics.sets, name, &NamedLoss::name);
    return set == metrics.sets.end() ? nullptr : &set->valid;
  };
  const EvalMetrics& last = *summary.last_valid;
  const bool has_earlier = summary.first_valid && summary.first_valid->step < last.step;
  return valid_text(has_earlier ? of(*summary.first_valid) : nullptr, *of(last)) +
         (last.step == summary.step ? "" : fmt::format(" at step {}", last.step));
}

// Predictions are exact: where one is not, both numbers are said.
void add_prediction_lines(std::vector<std::string>& lines, const RunSummary& summary) {
  const std::array<double, kNumAxes>& predicted = summary.bytes_predicted;
  const std::size_t before = lines.size();
  for (std::size_t a = 0; a < predicted.size(); ++a) {
    if (predicted[a] == std::round(summary.bytes_counted[a])) continue;
    lines.push_back(fmt::format("bytes sent over {} per step, all ranks: predicted {:.0f}, counted {:.0f}",
                                to_string(static_cast<Axis>(a)), predicted[a], summary.bytes_counted[a]));
  }
  if (summary.planned_bytes != summary.granted_bytes)
    lines.push_back(
        fmt::format("arena, largest rank: planned {} bytes, granted {} bytes", summary.planned_bytes, summary.granted_bytes));
  if (lines.size() == before) lines.emplace_back("bytes sent over each axis and memory held: exactly as predicted");
}

// "step 812.3 ms, mean of all ranks: forward 210.1, ... ms": where the time goes, then what of it was waiting and what of it the processor worked.
std::vector<std::string> time_lines(const StepTimes& times) {
  std::string parts, waits;
  const auto shown = [](double seconds) { return seconds >= 0.05e-3; };
  for (std::size_t i = 0; i < kNumStepParts; ++i)
    if (shown(times.wall[i])) parts += fmt::format("{} {:.1f}, ", to_string(static_cast<StepPart>(i)), 1e3 * times.wall[i]);
  for (std::size_t i = 0; i < kNumWaitedFor; ++i) {
    const auto what = static_cast<WaitedFor>(i);
    if (shown(times.waited_for[i]))
      waits += fmt::format(" {} {:.1f},", what == WaitedFor::kNorm ? "the slowest rank" : to_string(what),
                           1e3 * times.waited_for[i]);
  }
  if (!waits.empty()) waits.pop_back();
  if (shown(times.rest()) || parts.empty()) parts += fmt::format("rest {:.1f}, ", 1e3 * times.rest());
  parts.resize(parts.size() - 2);
  std::vector<std::string> lines{fmt::format("step of {:.1f} ms, mean over ranks: {}", 1e3 * times.step, parts)};
  if (!waits.empty()) {
    lines.push_back(fmt::format("  of that, waiting for{}; the processor worked {:.1f} ms{}", waits, 1e3 * times.computing(),
                                times.computing() + times.waiting() < 0.8 * times.step ? " (ranks share cores)" : ""));
  }
  return lines;
}

}  // namespace

ValidLoss valid_loss(const EvalResult& result) {
  ValidLoss valid{.loss = result.loss, .token_accuracy = result.token_accuracy, .rewards = result.rewards};
  if (result.bytes_per_token) valid.bits_per_byte = result.loss / std::numbers::ln2 / *result.bytes_per_token;
  return valid;
}

namespace {

// Collective over a pipeline: what each of its ranks has for every instruction of its program.
template <class T>
std::vector<std::vector<T>> of_all_stages(RankTrainer& trainer, std::vector<T> mine) {
  const std::vector<StepProgram>& programs = trainer.plan().step_programs;
  std::size_t longest = 0;
  for (const StepProgram& program : programs) longest = std::max(longest, program.instructions.size());
  mine.resize(longest);
  std::vector<T> all(longest * programs.size());
  const auto doubles = [](std::vector<T>& values) {
    return TensorView(values.data(), DType::kF64, {static_cast<std::int64_t>(values.size() * sizeof(T) / sizeof(double))});
  };
  ParallelContext& context = trainer.context();
  context.statistics(Axis::kPipeline).all_gather(context.host_stream(), doubles(all), doubles(mine));
  std::vector<std::vector<T>> stages;
  for (auto first = all.begin(); const StepProgram& program : programs) {
    stages.emplace_back(first, first + std::ssize(program.instructions));
    first += static_cast<std::ptrdiff_t>(longest);
  }
  return stages;
}

}  // namespace

std::vector<std::vector<double>> collect_cpu_seconds(RankTrainer& trainer) {
  ParallelContext& context = trainer.context();
  std::vector<double> mean;
  for (const InstructionTimes& times : trainer.instruction_times()) mean.push_back(times.cpu);
  for (const Axis axis : {Axis::kTensor, Axis::kContext, Axis::kData})
    context.statistics(axis).all_reduce(context.host_stream(), TensorView(mean.data(), DType::kF64, {std::ssize(mean)}),
                                        ReduceOp::kSum);
  const double ranks_of_stage = trainer.plan().world_size() / static_cast<double>(trainer.plan().step_programs.size());
  for (double& seconds : mean) seconds /= ranks_of_stage;
  return of_all_stages(trainer, std::move(mean));
}

std::vector<std::vector<InstructionTimes>> collect_last_step(RankTrainer& trainer) {
  std::vector<std::vector<InstructionTimes>> step =
      of_all_stages(trainer, std::vector(trainer.instruction_times().begin(), trainer.instruction_times().end()));
  put_on_one_clock(trainer.plan().step_programs, step);
  return step;
}

void put_on_one_clock(const std::vector<StepProgram>& programs, std::vector<std::vector<InstructionTimes>>& step) {
  std::vector<double> norm_ends;
  double length = 0;
  for (std::size_t stage = 0; stage < step.size(); ++stage) {
    const std::vector<InstructionTimes>& times = step[stage];
    for (std::size_t at = 0; at < times.size(); ++at)
      if (programs[stage].instructions[at].kind == InstructionKind::kGradNorm) norm_ends.push_back(times[at].end);
    if (!times.empty()) length = std::max(length, times.back().end - times.front().start);
  }
  const auto [earliest, latest] = std::minmax_element(norm_ends.begin(), norm_ends.end());
  const bool one_clock = norm_ends.size() != step.size() || *latest - *earliest <= length;
  double zero = std::numeric_limits<double>::infinity();
  for (std::size_t stage = 0; stage < step.size(); ++stage) {
    for (InstructionTimes& t : step[stage]) {
      if (!one_clock) t.start -= norm_ends[stage], t.end -= norm_ends[stage];
      zero = std::min(zero, t.start);
    }
  }
  for (auto& times : step)
    for (InstructionTimes& t : times) t.start -= zero, t.end -= zero;
}

double replay_bubble(const RunPlan& plan, const std::vector<std::vector<double>>& cpu_seconds) {
  const StepCosts costs{[&](int rank, std::size_t index, const Instruction& i) {
                          return i.is_compute() ? cpu_seconds[static_cast<std::size_t>(rank)][index] : 0.0;
                        },
                        [](int, int) { return 0.0; },
                        plan.step_spec.overlap};
  return simulate(plan.step_programs, costs).bubble_over_ideal();
}

std::string model_text(const ModelConfig& model) {
  return fmt::format("{} of {} parameters, {}, hidden {}, {} ({} kv), vocabulary {}", to_string(model.family),
                     parameters_text(static_cast<double>(num_parameters(model))), counted(model.layers, "layer"), model.hidden,
                     counted(model.heads, "head"), model.kv_heads, model.vocab_size);
}

std::string model_line(const RunPlan& plan) { return "model: " + model_text(plan.model); }

std::string layout_line(const RunPlan& plan) {
  const ParallelDegrees& d = plan.grid.degrees();
  return fmt::format("layout: {}DP x {}PP x {}TP = {}{}{}{}, {} of {} x {} tokens", d.data, d.pipeline, d.tensor,
                     counted(plan.world_size(), "rank"),
                     d.data > 1 ? fmt::format(", {}", to_string(plan.config.parallel.zero)) : "",
                     d.pipeline > 1 ? fmt::format(", {}", to_string(plan.config.parallel.schedule)) : "",
                     plan.tensor_layout.shards_sequence() ? ", sequence parallel" : "",
                     counted(plan.num_micro_batches, "micro-batch", "micro-batches"), plan.config.batch.micro,
                     plan.config.batch.sequence);
}

LogLines opening_lines(const RunPlan& plan, const std::string& device, const ArenaPlan& memory, std::int64_t largest_arena,
                           const DataSummary& data) {
  const ParallelDegrees& d = plan.grid.degrees();
  LogLines lines;
  for (const std::string& line :
       {model_line(plan), layout_line(plan), device_line(plan, device),
        fmt::format("memory: {} on the fullest rank (memory.json has every rank's)", megabytes_text(largest_arena)), data.line})
    lines.shown.push_back(aligned(line));
  if (!data.evaluation.empty()) lines.shown.push_back(aligned(data.evaluation));
  if (d.data * d.context > 1) {
    const ZeroLine zero = zero_line(plan);
    (zero.saves_a_tenth ? lines.shown : lines.details).push_back(zero.text);
  }
  lines.details.push_back(fmt::format("compute in {} ({})", to_string(plan.compute), plan.compute_reason));
  lines.details.push_back(memory_line(memory));
  for (const auto* notes : {&plan.notes, &data.notes}) lines.shown.insert(lines.shown.end(), notes->begin(), notes->end());
  for (const auto* more : {&plan.details, &data.details}) lines.details.insert(lines.details.end(), more->begin(), more->end());
  return lines;
}

std::string trained_line(const RunPlan& plan, const RunSummary& summary) {
  const ParallelDegrees& d = plan.grid.degrees();
  const ParameterCounts parameters = count_parameters(plan);
  return fmt::format(
      "trained {}{} parameters for {} on {} tokens in {:.1f} s ({}DP x {}PP x {}TP, {}){}",
      parameters.trained < parameters.all ? parameters_text(static_cast<double>(parameters.trained)) + " of " : "",
      parameters_text(static_cast<double>(parameters.all)), counted(summary.updates, "update"), with_commas(summary.tokens),
      summary.seconds, d.data, d.pipeline, d.tensor, counted(plan.world_size(), "rank"),
      summary.skipped > 0 ? fmt::format(", {} skipped for non-finite gradients{}", counted(summary.skipped, "batch", "batches"),
                                        plan.counts_targets() ? " or without a target that counts" : "")
                          : "");
}

LogLines closing_lines(const RunPlan& plan, const RunSummary& summary) {
  LogLines out;
  std::vector<std::string>& lines = out.shown;
  if (summary.out_of_time) {
    lines.push_back(fmt::format("run.max_minutes = {:g} ended the run after {} of {} steps", plan.config.run.max_minutes, summary.step,
                                plan.config.run.steps));
  }
  if (summary.last_valid)
    for (const NamedLoss& set : summary.last_valid->sets)
      lines.push_back(fmt::format("validation loss of {} {}", set.name, valid_text(summary, set.name)));
  if (plan.grid.degrees().pipeline > 1)
    out.details.push_back(
        fmt::format("bubble (idle over ideal): replayed {:.3f}, by the CPU time of each instruction; {:.3f} if FLOPs alone took time",
                    summary.replayed_bubble, plan.predicted_bubble));
  for (std::string& line : time_lines(summary.times)) lines.push_back(std::move(line));
  add_prediction_lines(lines, summary);
  if (summary.bytes_between_nodes > 0)
    lines.push_back(fmt::format("bytes sent between nodes, whole run: {}", with_commas(summary.bytes_between_nodes)));
  return out;
}

namespace {

bool has_template(const std::string& folder) {
  const std::string other = folder + "/tokenizer_config.json";
  return file_exists(folder + "/chat_template.jinja") ||
         (file_exists(other) && read_json_file(other).find("chat_template") != nullptr);
}

// The first words of the data that the model is judged by, where texts are, up to the end of a line or a document; else their first
// ids. Control tokens before a document are no words.
std::string prompt_of_data(const DataConfig& data) {
  constexpr std::int64_t kTokens = 32, kWords = 4, kIds = 3;
  const IndexedDataset text(data.valid.empty() ? data.train.front().path : data.valid.front().path);
  std::vector<std::int32_t> ids;
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of_run(data);
  for (std::int64_t i = 0; i < std::min(text.num_tokens(), tokenizer == nullptr ? kIds : kTokens); ++i) {
    const auto id = static_cast<std::int32_t>(text.token_at(i));
    if (tokenizer == nullptr || !tokenizer->is_control(id)) ids.push_back(id);
    else if (!ids.empty()) break;
  }
  if (tokenizer == nullptr) return fmt::format("--prompt-ids '{}'", fmt::join(ids, " "));
  std::string words = tokenizer->decode(ids);
  words.erase(0, words.find_first_not_of(" \n"));
  words.resize(valid_prefix(words.substr(0, words.find('\n'))));
  std::size_t end = 0;
  for (std::int64_t word = 0; word < kWords && end != words.npos; ++word) end = words.find(' ', end + 1);
  words = on_one_line(words.substr(0, end));
  if (words.empty() || words.starts_with('-')) return "--prompt TEXT";  // none, or what would be read as a flag
  return "--prompt " + for_shell(words);
}

// Beside the checkpoint trident generate needs the template of the data where it is not that of the tokenizer's folder.
std::string prompt_options(const TrainConfig& config) {
  try {
    const DatasetOrigin data = origin_in_record(config.data.train.front().path);
    std::string folder = hub_snapshot(config.data.tokenizer.value_or(config.model.init_from.value_or("")));
    const bool in_folder = !folder.empty() && (file_exists(folder + "/tokenizer.json") || file_exists(folder + "/vocab.json"));
    if (!config.data.tokenizer && !in_folder) {
      if (!data.tokenizer) return prompt_of_data(config.data);
      folder = data.tokenizer->name;
    }
    if (config.data.has_mask && !data.chat_template.empty())
      return fmt::format("--chat --template {}", for_shell(data.chat_template));
    if (config.data.has_mask && has_template(folder)) return "--chat";
    return prompt_of_data(config.data);
  } catch (const Error&) {  // whoever asks is told what is wrong with it
    return "--prompt TEXT";
  }
}

std::string next_text(const TrainConfig& config, const RunSummary& summary, const RunEnd& end) {
  if (!end.fault.empty()) return "train again with a checkpoint.dir that takes the model: " + end.fault;
  if (end.not_saved && end.older < 0) return "the same command begins anew: no checkpoint of this run is complete";
  if (end.not_saved)
    return fmt::format("the same command goes on from step {}, {}/{}", end.older, checkpoint_folder_of(config),
                       checkpoint_name(end.older));
  if (!end.saved && !end.weights && !end.begins_anew)
    return "--set checkpoint.every=end saves the last step; nothing of this run is saved";
  if (end.saved && summary.step < config.run.steps) return fmt::format("the same command goes on from step {}", summary.step);
  return fmt::format("trident generate --ckpt {} {}", for_shell(config.checkpoint.dir.value_or(config.run.dir)),
                     prompt_options(config));
}

}  // namespace

std::vector<std::string> result_lines(const RunPlan& plan, const RunSummary& summary, const RunEnd& end) {
  const TrainConfig& config = plan.config;
  const bool went_on = summary.tokens < summary.run_tokens;
  std::string reached = fmt::format("result: step {}/{}, {} tokens{} in {}; training loss {}", summary.step, config.run.steps,
                                    with_commas(summary.run_tokens),
                                    went_on ? fmt::format(", the last {}", with_commas(summary.tokens)) : "",
                                    clock_text(summary.seconds),
                                    loss_text(summary.first_loss, summary.last_loss, config.loss.is_dpo()));
  if (summary.last_rewards) reached += rewards_text(*summary.last_rewards);
  if (summary.last_valid) reached += "; validation loss " + valid_text(summary);
  std::string where = fmt::format("files: {}", config.run.dir);
  if (!summary.files.empty()) where += fmt::format(" ({})", fmt::join(summary.files, ", "));
  if (end.saved || end.weights || end.begins_anew)
    where += fmt::format("; checkpoint {}/{}", checkpoint_folder_of(config), checkpoint_name(summary.step));
  std::vector<std::string> lines{aligned(std::move(reached)), aligned(std::move(where))};
  lines.push_back(aligned("next: " + next_text(config, summary, end)));
  const std::string run = config.checkpoint.dir.value_or(config.run.dir);
  const auto add_convert = [&](std::string_view kind, std::string_view name) {
    lines.push_back(aligned(fmt::format("next: trident convert --from ckpt {} --to {} {}", for_shell(run), kind,
                                        for_shell(fmt::format("{}/{}", run, name)))));
  };
  if (lines.back().find("trident generate") == std::string::npos) return lines;
  if (config.adapter.type) add_convert("peft", "adapter");
  if (config.adapter.type || config.model.init_from) add_convert("hf", "hf");
  return lines;
}

}  // namespace trident
