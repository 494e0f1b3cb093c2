#include "planner/predict/cluster_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/counted.h"
#include "core/for_each_index.h"
#include "core/number_text.h"
#include "core/shell_word.h"
#include "planner/price/step_price.h"

namespace trident {
namespace {

using Change = std::vector<std::string>;  // settings

std::vector<Change> recompute_changes(const TrainConfig& config) {
  std::vector<Change> changes;
  for (const RecomputePolicy policy : {RecomputePolicy::kNone, RecomputePolicy::kSelective, RecomputePolicy::kFull})
    if (policy != config.recompute.policy) changes.push_back({fmt::format("recompute.policy={}", to_string(policy))});
  return changes;
}

// The next larger and the next smaller divisor of what a replica has in a step.
std::vector<Change> micro_batch_changes(const TrainConfig& config, std::int64_t of_replica) {
  std::vector<Change> changes;
  const auto add = [&](std::int64_t micro) { changes.push_back({fmt::format("batch.micro={}", micro)}); };
  std::int64_t size = config.batch.micro + 1;
  while (size <= of_replica && of_replica % size != 0) ++size;
  if (size <= of_replica) add(size);
  size = config.batch.micro - 1;
  while (size > 0 && of_replica % size != 0) --size;
  if (size > 0) add(size);
  return changes;
}

std::vector<Change> zero_changes(const TrainConfig& config) {
  std::vector<Change> changes;
  for (const ZeroPreset preset :
       {ZeroPreset::kDdp, ZeroPreset::kZero1, ZeroPreset::kZero2, ZeroPreset::kShardGradOp, ZeroPreset::kZero3})
    if (preset != config.parallel.zero) changes.push_back({fmt::format("parallel.zero={}", to_string(preset))});
  return changes;
}

std::vector<Change> schedule_changes(const TrainConfig& config) {
  std::vector<Change> changes;
  for (const std::int64_t chunks : {2, 4, 8}) {
    if (config.parallel.pipeline == 1 || chunks == config.parallel.virtual_stages) continue;
    Change& change = changes.emplace_back();
    change = {"parallel.schedule=interleaved", fmt::format("parallel.virtual_stages={}", chunks)};
    if (config.parallel.layers) change.emplace_back("parallel.layers=null");  // they are of other stages
  }
  if (config.parallel.tensor > 1 && !config.parallel.sequence_parallel) changes.push_back({"parallel.sequence_parallel=true"});
  return changes;
}

// Deterministic attention keeps the gradients of whole scores, which grow with the square of the sequence.
std::vector<Change> determinism_changes(const TrainConfig& config, bool fits) {
  if (fits || !config.cuda.deterministic) return {};
  return {{"cuda.deterministic=false"}};
}

std::vector<Change> changes_of(const TrainConfig& config, std::int64_t of_replica, bool fits) {
  const std::vector<Change> recompute = recompute_changes(config), micro = micro_batch_changes(config, of_replica),
                            zero = zero_changes(config), schedule = schedule_changes(config),
                            determinism = determinism_changes(config, fits);
  std::vector<Change> all = recompute;
  for (const auto* list : {&micro, &zero, &schedule, &determinism}) all.insert(all.end(), list->begin(), list->end());
  const auto add_both = [&](Change a, const Change& b) {
    a.insert(a.end(), b.begin(), b.end());
    all.push_back(std::move(a));
  };
  for (const Change& a : recompute) {
    for (const Change& b : micro) add_both(a, b);
    if (fits) continue;
    for (const Change& b : zero) add_both(a, b);
  }
  return all;
}

}  // namespace

std::vector<PricedChange> priced_changes(const PlanHardware& hardware, const ClusterForecast& now) {
  constexpr int kThreads = 2;  // of a laptop
  const std::int64_t of_replica = now.plan.num_micro_batches * now.plan.config.batch.micro;
  const std::vector<Change> changes = changes_of(now.plan.config, of_replica, now.fits);
  std::vector<std::optional<PricedChange>> answers(changes.size());
  for_each_index(changes.size(), kThreads, [&](std::size_t i) {
    try {
      const ClusterForecast changed = plan_on(hardware, with_settings(now.plan.config, changes[i]), now.plan.world_size());
      answers[i] = {changes[i], changed.seconds(), changed.needed_bytes(), changed.fits};
    } catch (const ConfigError&) {  // this model, batch or layout does not allow it
    }
  });
  std::vector<PricedChange> priced;
  for (std::optional<PricedChange>& answer : answers)
    if (answer) priced.push_back(std::move(*answer));
  return priced;
}

std::vector<PricedChange> advice_of(const ClusterForecast& now, std::vector<PricedChange> changes, std::size_t most) {
  const auto smaller = [](const PricedChange& a, const PricedChange& b) { return a.bytes < b.bytes; };
  const auto least = std::min_element(changes.begin(), changes.end(), smaller);
  if (!now.fits && least != changes.end() && !least->fits) {
    if (least->bytes >= now.needed_bytes()) return {};
    return {*least};
  }
  std::erase_if(changes, [&](const PricedChange& it) { return !it.fits || (now.fits && it.seconds > 0.995 * now.seconds()); });
  std::stable_sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) {
    return std::pair(a.seconds, a.settings.size()) < std::pair(b.seconds, b.settings.size());
  });
  if (changes.size() > most) changes.resize(most);
  return changes;
}

namespace {

constexpr std::size_t kMostStages = 8;
constexpr double kNothing = 1e-9;  // of a step: what rounding leaves

// " (8.744 s to 9.488 s)"; " (no band)" where none is known.
std::string in_brackets(const Band& band, std::string (*text_of)(double)) {
  return band ? fmt::format(" ({} to {})", text_of(band->low), text_of(band->high)) : " (no band)";
}

std::string_view text_of(Certainty certainty) {
  return certainty == Certainty::kExact ? "exact" : certainty == Certainty::kMost ? "from 0" : "no band";
}

// Explains the words of the table that are in it.
std::string memory_notes(const ClusterReport& report) {
  const ClusterForecast& plan = report.plan;
  const RankMemory& most = plan.most();
  std::string text = "  exact: a rank of this program books as much, to the byte, and trident plan counts these rows";
  if (most.all_of(Certainty::kMost) > 0) text += "; from 0: the most that libraries' workspaces take, which may be nothing";
  if (most.all_of(Certainty::kEstimate) > 0) text += "; no band: one figure for every run, from the profile";
  text += '\n';
  if (most.of(MemoryPartKind::kBlockInputs) > 0 && plan.plan.config.recompute.policy == RecomputePolicy::kFull)
    text += "  block inputs are the checkpoints that full recomputation starts from\n";
  if (const std::optional<ProcessPlan>& process = plan.process) {
    const double rest = process->resident_bytes - process->arena_bytes - process->staging_bytes;
    text += fmt::format("  the process: {} of arenas, ", bytes_text(process->arena_bytes));
    if (process->staging_bytes > 0)
      text += fmt::format("{} through which checkpoints go to the disk (checkpoint.staging), ", bytes_text(process->staging_bytes));
    text += fmt::format("{} of program, libraries and threads (one figure from the profile)\n", bytes_text(rest));
  }
  const std::string device = device_line(report);
  return device.empty() ? text : text + "  " + device + '\n';
}

}  // namespace

Table memory_table(const ClusterForecast& plan) {
  const std::vector<std::size_t> stages = some_stages(plan, kMostStages, plan.fullest);
  const bool small = plan.most().total() < 1'000'000'000;
  const std::string some = fmt::format(" ({} of {}; --csv has all)", stages.size(), plan.memory.size());
  Table table{fmt::format("memory of one rank in {}, by pipeline stage{}; * is the most loaded",
                          small ? "MB (10^6 bytes)" : "GB (10^9 bytes)", stages.size() < plan.memory.size() ? some : ""),
              {{"stage", true, 30}}, {}, 2};
  for (const std::size_t stage : stages)
    table.columns.push_back({fmt::format("{}{}", stage == plan.fullest ? "*" : "", stage), false, 7});
  table.columns.push_back({"band", true});
  const auto add = [&](std::string_view name, auto bytes_of, std::string_view band) {
    std::vector<std::string>& row = table.rows.emplace_back(1, std::string(name));
    for (const std::size_t stage : stages)
      row.push_back(fmt::format("{:.3f}", (small ? 1e-6 : 1e-9) * static_cast<double>(bytes_of(plan.memory[stage]))));
    row.emplace_back(band);
  };
  for (std::size_t part = 0; part < plan.most().parts.size(); ++part) {
    const auto bytes_of = [part](const RankMemory& memory) { return memory.parts[part].bytes; };
    if (std::ranges::any_of(stages, [&](std::size_t stage) { return bytes_of(plan.memory[stage]) != 0; }))
      add(to_string(plan.most().parts[part].kind), bytes_of, text_of(plan.most().parts[part].certainty));
  }
  add("all", [](const RankMemory& memory) { return memory.total(); }, "");
  return table;
}

Table time_table(const ClusterReport& report) {
  const ClusterForecast& plan = report.plan;
  Table table{plan.process && plan.process->shares_cores
                  ? fmt::format("time of a step by part, {} of CPU time over {}", seconds_text(plan.process->cpu_seconds),
                                counted(report.hardware.processors->cores, "core"))
                  : fmt::format("time of a step by part, on the ranks of stage {}, which wait least", plan.busiest),
              {{"", true, 10}, {"", false, 11}, {"", false, 7}, {"", true}, {"", true}}, {}, 2};
  const auto start = [&](std::string_view name, double seconds) {
    const double share = seconds / plan.seconds();
    return std::vector<std::string>{std::string(name), seconds_text(seconds), fmt::format("{:.1f} %", 100 * share)};
  };
  for (std::size_t i = 0; i < kNumTimeParts; ++i) {
    const auto part = static_cast<TimePart>(i);
    if (plan.parts[part] <= kNothing * plan.seconds()) continue;
    std::vector<std::string>& row = table.rows.emplace_back(start(to_string(part), plan.parts[part]));
    row.insert(row.end(), {"no band", std::string(part_words(part).meaning)});
  }
  const Band band = seconds_band(report, plan.seconds());
  table.rows.push_back(start("step", plan.seconds()));
  table.rows.back().push_back(band ? fmt::format("{} to {}", seconds_text(band->low), seconds_text(band->high)) : "no band");
  return table;
}

std::string advice_text(const ClusterReport& report) {
  const ClusterForecast& now = report.plan;
  if (report.advice.empty())
    return now.fits ? "nothing that was tried makes it faster\n" : "nothing that was tried needs less memory\n";
  const bool helps = now.fits || report.advice.front().fits;
  std::string text = now.fits ? "faster would be\n"
                     : helps  ? "it would fit with\n"
                              : "nearest to fitting, though it does not, is\n";
  for (const PricedChange& change : report.advice)
    text += fmt::format("  {}: a step of {} ({:+.1f} %), {}\n", settings_text(change.settings), seconds_text(change.seconds),
                        100 * (change.seconds / now.seconds() - 1), bytes_text(change.bytes));
  if (report.hardware.on_gpus() && now.plan.world_size() > 1)
    text += "all with the same degrees; trident plan search looks at others\n";
  return text;
}

ClusterReport report_on(const PlanHardware& hardware, const TrainConfig& config, int gpus, double tokens) {
  ClusterReport report{hardware, plan_on(hardware, config, gpus), {}, {}};
  const RunPlan& plan = report.plan.plan;
  // Published runs multiply in 16 bits.
  if (hardware.on_gpus() && plan.compute != DType::kF32) report.hardware.band = error_band(hardware.file, report.plan.kind());
  report.cost = training_cost(
      hardware, report.plan,
      tokens > 0 ? tokens : static_cast<double>(config.run.steps) * static_cast<double>(plan.tokens_per_step()));
  report.advice = advice_of(report.plan, priced_changes(hardware, report.plan));
  return report;
}

Band seconds_band(const ClusterReport& report, double seconds) {
  if (!report.hardware.band) return std::nullopt;
  return NumberRange{report.hardware.band->low * seconds, report.hardware.band->high * seconds};
}

Band rate_band(const ClusterReport& report, double rate) {
  if (!report.hardware.band) return std::nullopt;
  return NumberRange{rate / report.hardware.band->high, rate / report.hardware.band->low};
}

Band part_band(const MemoryPart& part) {
  const auto bytes = static_cast<double>(part.bytes);
  switch (part.certainty) {
    case Certainty::kExact: return NumberRange{bytes, bytes};
    case Certainty::kMost: return NumberRange{0, bytes};
    case Certainty::kEstimate: return std::nullopt;
  }
  return std::nullopt;
}

Band needed_band(const ClusterReport& report) {
  const auto all = static_cast<double>(report.plan.needed_bytes());
  if (!report.plan.process) return NumberRange{all - static_cast<double>(report.plan.most().all_of(Certainty::kMost)), all};
  if (!report.hardware.resident_band) return std::nullopt;
  return NumberRange{report.hardware.resident_band->low * all, report.hardware.resident_band->high * all};
}

std::string settings_text(const std::vector<std::string>& settings) {
  std::string text;
  for (const std::string& setting : settings) text += (text.empty() ? "--set " : " --set ") + for_shell(setting);
  return text;
}

std::string hardware_line(const ClusterReport& report) {
  const RunPlan& plan = report.plan.plan;
  if (report.hardware.on_gpus())
    return fmt::format("{}: {} x {}", report.hardware.name, plan.world_size(), report.hardware.device);
  return fmt::format("{}: {} of {} ({})", report.hardware.name, counted(plan.world_size(), "rank"),
                     counted(plan.threads_per_rank, "thread"),
                     report.plan.process->shares_cores ? "ranks share cores" : "each on cores of its own");
}

namespace {

std::string_view kind_text(bool gathers) { return gathers ? "gather parameters and split no model" : "gather no parameters"; }

// Why no published run is like this one.
std::string no_band_line(const ClusterReport& report) {
  const RunKind kind = report.plan.kind();
  const std::string begin = "no band of times: no run of this program on a GPU was measured, and the published runs compared with ";
  if (report.plan.plan.compute == DType::kF32) return begin + "multiply in 16 bits, this one in fp32";
  if (kind.gathers && kind.splits_model)
    return begin + "either gather parameters or split the model over tensor or pipeline ranks, this one does both";
  const ErrorBand band = *error_band("", {.gathers = kind.gathers});
  return begin + fmt::format("and that {} ({}) had at most {} GPUs, this one has {}", kind_text(kind.gathers), band.runs,
                             with_commas(band.most_gpus), with_commas(kind.gpus));
}

}  // namespace

std::string band_line(const ClusterReport& report) {
  const PlanHardware& hardware = report.hardware;
  if (hardware.on_gpus() && !hardware.band) return no_band_line(report);
  if (hardware.on_gpus()) {
    const bool of_several = hardware.band->hardware.empty();
    const bool has_own = !error_band(hardware.file, {.gathers = hardware.band->gathers})->hardware.empty();
    return fmt::format(
        "bands of times: of {} published {} runs on {} that {}, at most {} GPUs each, by other programs{}, eight of ten took "
        "{:.2f} to {:.2f} times what is predicted for them (docs/design/planner-accuracy.md); no run of this program is among them",
        hardware.band->runs, hardware.band->precision,
        !of_several ? "this GPU"
        : has_own   ? "GPUs of several kinds, none of them on this one with as many,"
                    : "GPUs of several kinds, fewer than ten of them on this one,",
        kind_text(hardware.band->gathers), with_commas(hardware.band->most_gpus),
        hardware.band->of.empty() ? "" : fmt::format(" ({})", hardware.band->of), hardware.band->low, hardware.band->high);
  }
  if (!hardware.band)
    return "no band: how far this profile's predictions are off was not measured; trident train with run.hardware_profile "
           "prints it";
  return fmt::format(
      "bands: of {} runs on the machine that the profile is of, eight of ten took {:.2f} to {:.2f} times the predicted time and "
      "{:.2f} to {:.2f} times the predicted memory (docs/planner.md)",
      hardware.band->runs, hardware.band->low, hardware.band->high, hardware.resident_band->low, hardware.resident_band->high);
}

std::string device_line(const ClusterReport& report) {
  const PlanHardware& hardware = report.hardware;
  if (!hardware.on_gpus()) return "";
  const std::int64_t channels = report.plan.most().of(MemoryPartKind::kCommunicators);
  const double left = hardware.device_bytes - hardware.context_bytes - static_cast<double>(channels);
  std::string text =
      fmt::format("{} has {:.1f} GB ({:.1f} GiB of 2^30 bytes, as its software reports it): {:.1f} GB for the driver's context",
                  hardware.device, gigabytes(hardware.device_bytes), hardware.device_bytes / (1 << 30),
                  gigabytes(hardware.context_bytes));
  if (channels > 0)
    text += fmt::format(", {:.1f} GB for the channels of {}", gigabytes(channels),
                        counted(std::llround(static_cast<double>(channels) / hardware.communicator_bytes), "communicator"));
  return text + fmt::format(", {:.1f} GB left for tensors", gigabytes(left));
}

std::string mfu_formula(const ClusterReport& report) {
  return fmt::format(
      "model FLOPs of a step (6 x parameters of matrices + 12 x layers x {} x query width per token{}) / (step seconds x {})",
      report.plan.plan.has_intervals() ? "keys that a token sees" : "sequence",
      report.plan.plan.has_intervals() ? "" : ", attention in full",
      report.hardware.on_gpus() ? "GPUs x dense 16-bit peak"
                                : "the peak of the cores that its threads have, the multiply instruction's rate");
}

std::vector<std::size_t> some_stages(const ClusterForecast& plan, std::size_t most, std::size_t wanted) {
  const std::size_t n = plan.memory.size();
  std::set<std::size_t> some;
  if (n <= most) most = n;
  for (std::size_t i = 0; i < most; ++i) some.insert(most == 1 ? wanted : i * (n - 1) / (most - 1));
  if (some.insert(wanted).second) {  // for one that is neither of the ends
    const auto next = std::next(some.begin());
    some.erase(*next == wanted ? std::next(next) : next);
  }
  return {some.begin(), some.end()};
}

std::string verdict_text(const ClusterReport& report) {
  const ClusterForecast& plan = report.plan;
  const int ranks = plan.plan.world_size();
  const auto needed = static_cast<double>(plan.needed_bytes());
  const bool known = report.hardware.device_bytes > 0;
  std::string text = known ? (plan.fits ? "it fits: " : "it does not fit: ") : "memory: ";
  text += plan.process ? fmt::format("the process of {} takes", counted(ranks, "rank"))
                       : fmt::format("the most loaded rank, of stage {}, takes", plan.most().stage);
  text += fmt::format(" {}{}{}\n", bytes_text(needed), in_brackets(needed_band(report), bytes_text),
                      known ? room_text(needed, report.hardware.device_bytes, plan.bytes_off(report.hardware))
                            : "; how much that machine has is not known");
  const double rate = plan.tokens_per_second();
  text += fmt::format("a step takes {}{}: {} tokens/s{}", seconds_text(plan.seconds()),
                      in_brackets(seconds_band(report, plan.seconds()), seconds_text), rounded_text(rate),
                      in_brackets(rate_band(report, rate), rounded_text));
  if (report.hardware.on_gpus())
    text += fmt::format(", {} per GPU{}", rounded_text(rate / ranks), in_brackets(rate_band(report, rate / ranks), rounded_text));
  text += '\n';
  if (plan.peak_flops > 0)
    text += fmt::format("MFU {} %{}, HFU {} %{}\n", percent_digits(plan.mfu),
                        in_brackets(rate_band(report, plan.mfu), percent_digits), percent_digits(plan.hfu),
                        in_brackets(rate_band(report, plan.hfu), percent_digits));
  text += fmt::format("first limit: {}: {}\n", to_string(plan.limit.limit), plan.limit.why);
  return text + fmt::format("on {}\n", hardware_line(report));
}

namespace {

// Rounded where a double does not have every whole number, so that none is wrong.
std::string steps_text(double steps) { return steps < 9e15 ? counted(std::llround(steps), "step") : count_text(steps) + " steps"; }

}  // namespace

std::string details_text(const ClusterReport& report, std::size_t columns) {
  const ClusterForecast& plan = report.plan;
  const Table memory = memory_table(plan), time = time_table(report);
  std::string text = fmt::format("{}:\n{}{}\n{}:\n{}  no band: {}\n\n", memory.title, to_text(memory, columns),
                                 memory_notes(report), time.title, to_text(time, columns),
                                 report.hardware.on_gpus()
                                     ? "published runs say how long a step took, not its parts"
                                     : "what is known to be off is that of whole steps; trident train compares parts at its end");
  if (plan.peak_flops > 0) {
    text += fmt::format("MFU is {}: {:.4g} / ({:.4g} s x {:.4g} FLOP/s)\n", mfu_formula(report), plan.model_flops, plan.seconds(),
                        plan.peak_flops);
    text += fmt::format("HFU counts the {:.4g} FLOPs of forwards that are done again, too\n", plan.recomputed_flops);
  }
  if (report.cost.tokens > 0)  // else the heading says that steps follow from the data
    text += fmt::format("{} tokens take {}, {}, {} {}{}\n", count_text(report.cost.tokens),
                        steps_text(std::ceil(report.cost.steps)), seconds_text(86400 * report.cost.days),
                        rounded_text(report.cost.gpu_hours), report.hardware.on_gpus() ? "GPU-hours" : "core-hours",
                        in_brackets(seconds_band(report, report.cost.gpu_hours), rounded_text));
  return text + band_line(report) + '\n';
}

}  // namespace trident
