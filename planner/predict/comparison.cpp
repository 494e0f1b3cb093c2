#include "planner/predict/comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "core/at.h"
#include "core/counted.h"
#include "core/json_by_name.h"
#include "core/number_text.h"

namespace trident {
namespace {

using enum TimePart;

double of(const std::array<double, kNumStepParts>& values, StepPart part) { return at(values, part); }
double of(const std::array<double, kNumWaitedFor>& values, WaitedFor what) { return at(values, what); }

double sum(const TimeParts& seconds, const std::vector<TimePart>& parts) {
  double all = 0;
  for (const TimePart part : parts) all += seconds[part];
  return all;
}

std::string name_of(const ComparedPart& compared) {
  std::string name;
  for (const TimePart part : compared.parts) name += fmt::format("{}{}", name.empty() ? "" : " + ", to_string(part));
  return name;
}

// Relative: +0.1 where more was predicted than measured.
double excess(double predicted, double measured) { return measured > 0 ? predicted / measured - 1 : 0; }

std::string milliseconds(double seconds) { return fmt::format("{:.{}f} ms", 1e3 * seconds, seconds < 0.1 ? 2 : 1); }

bool moves(const Instruction& i) {
  using Kind = InstructionKind;
  return i.is_send() || i.kind == Kind::kGather || i.kind == Kind::kReduceGradients || i.kind == Kind::kTieExchange;
}

// By wall time: each rank has a core. The last part is what is left of the step.
std::vector<ComparedPart> parts_of_wall(const PredictedStep& step, const StepTimes& t, bool has_pipeline) {
  const auto busy = [&](StepPart part) { return of(t.wall, part) - of(t.waited, part); };
  const double reduced_work = t.causes.reduced - t.causes.reduced_waited;
  const double pipeline = of(t.waited_for, WaitedFor::kPipeline) + of(t.waited_for, WaitedFor::kNorm) + busy(StepPart::kMessages);
  const double passes = busy(StepPart::kForward) + busy(StepPart::kBackward);
  const double reduce_waited_in_computes = of(t.waited_for, WaitedFor::kData) - t.causes.reduced_waited;
  std::vector<ComparedPart> parts{
      {{kCompute, kRecompute, kLaunch}, 0, passes - std::max(0.0, t.causes.tensor - of(t.waited_for, WaitedFor::kTensor))},
      {{kTensor}, 0, t.causes.tensor},
      {{kBubble, kPipeline}, 0, has_pipeline ? pipeline : 0},
      {{kData}, 0, std::max(0.0, reduce_waited_in_computes) + t.causes.reduced + busy(StepPart::kGather) + busy(StepPart::kReduce)},
      {{kOptimizer}, 0, busy(StepPart::kNorm) - reduced_work + busy(StepPart::kOptimizer)},
      {{kOther}, 0, t.step}};
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) parts.back().measured -= parts[i].measured;
  for (ComparedPart& part : parts) part.predicted = sum(step.parts, part.parts);
  parts[0].predicted += step.slowed;
  parts[3].predicted = std::max(0.0, parts[3].predicted - step.slowed);  // not -0.00 by rounding
  return parts;
}

// By the processors' time: of all ranks, over those that work at once.
std::vector<ComparedPart> parts_of_processors(const PredictedStep& step, const StepTimes& t, double share) {
  const double optimizer = of(t.cpu, StepPart::kNorm) - t.causes.reduced_cpu + of(t.cpu, StepPart::kOptimizer);
  const double other = of(t.cpu, StepPart::kData);
  std::vector<ComparedPart> parts{
      {{kCompute, kRecompute, kLaunch, kTensor, kPipeline, kData}, 0, t.computing() - optimizer - other},
      {{kOptimizer}, step.updating, optimizer},
      {{kOther}, step.parts[kOther], other}};
  parts[0].predicted = sum(step.parts, {kCompute, kRecompute, kLaunch, kTensor}) + step.moving;
  for (ComparedPart& part : parts) part.predicted *= share, part.measured *= share;
  return parts;
}

// A name says what there is: a run that makes nothing again has "compute", not "compute + recompute".
void leave_out_absent(std::vector<TimePart>& parts, const PredictedStep& step) {
  const TimePart first = parts.front();
  std::erase_if(parts, [&](TimePart part) { return step.parts[part] == 0; });
  if (parts.empty()) parts.push_back(first);
}

// Means of fewer steps, and of shorter ones, say more of the machine's moment than of the prediction.
constexpr double kFewestJudged = 5, kShortestJudged = 0.01;  // seconds
constexpr double kNotShown = 0.001;    // of the step: a part with less is not shown
constexpr double kUndisturbed = 0.9;  // of a step: what a rank at least works and waits that has its cores

std::string percent(double predicted, double measured) {
  return measured > 0 ? fmt::format("{:+.1f} %", 100 * excess(predicted, measured)) : "";
}

JsonValue pair_of(JsonValue predicted, JsonValue measured) {
  return JsonValue::Object{{"predicted", std::move(predicted)}, {"measured", std::move(measured)}};
}

}  // namespace

PredictedStep predicted_step(const std::string& profile, const RecordedStep& step, const StepPrice& price,
                             const WorkPrices& prices) {
  PredictedStep out;
  out.profile = profile;
  out.bubble_over_ideal = price.bubble_over_ideal;
  const double share = 1 / static_cast<double>(price.ranks.size());
  for (std::size_t rank = 0; rank < price.ranks.size(); ++rank) {
    for (std::size_t part = 0; part < kNumTimeParts; ++part) out.parts.seconds[part] += share * price.ranks[rank].seconds[part];
    out.slowed -= share * sum(price.ranks[rank], {kCompute, kRecompute, kLaunch, kTensor});
    std::vector<double> alone;  // by distinct pass
    for (const PassRecord& pass : step.records[rank].passes) alone.push_back(price_pass(pass, step.grid, prices).total());
    for (std::size_t at = 0; at < price.spans[rank].size(); ++at) {
      const Instruction& i = step.programs[rank].instructions[at];
      if (i.is_compute()) out.slowed += share * (price.spans[rank][at].end - price.spans[rank][at].start);
      const double seconds = share * trident::at(alone, step.records[rank].pass_of[at]);
      if (moves(i))
        out.moving += seconds;
      else if (!i.is_compute() && !i.is_receive())
        out.updating += seconds;
    }
  }
  out.slowed = std::max(0.0, out.slowed);
  return out;
}

JsonValue to_json(const PredictedStep& step) {
  return JsonValue::Object{{"profile", step.profile},
                           {"seconds", step.parts.total()},
                           {"parts", json_by_name<TimePart>(step.parts.seconds)},
                           {"bubble_over_ideal", step.bubble_over_ideal}};
}

std::optional<double> worked_beside_others(const StepTimes& times) {
  if (times.computing() + times.waiting() >= kUndisturbed * times.step) return std::nullopt;
  return times.computing();
}

Comparison compare(const std::optional<PredictedStep>& step, const std::string& why_not, const PredictedMemory& memory,
                   const MeasuredRun& run) {
  Comparison out;
  out.steps = run.timed_steps;
  out.ranks = run.ranks;
  out.ranks_at_once = run.ranks_at_once;
  out.predicted = step;
  out.why_not = why_not;
  out.memory_predicted = memory;
  out.memory_measured = {run.granted_bytes, run.resident_bytes};
  out.first_step_alone = run.first_step_alone;
  out.by_processor = run.on_host && run.ranks_at_once < run.ranks;
  out.step_wall = run.times.step;
  out.has_pipeline = run.stages > 1;
  if (run.ranks > 1)
    out.bubble_predicted = step ? step->bubble_over_ideal : run.bubble_of_flops, out.bubble_measured = run.replayed_bubble;
  if (!step) return out;
  if (!out.by_processor && run.timed_steps > 1)
    out.spread = run.step_spread;
  if (out.by_processor) {
    out.parts = parts_of_processors(*step, run.times, static_cast<double>(run.ranks) / run.ranks_at_once);
  } else if (run.on_host) {
    out.parts = parts_of_wall(*step, run.times, out.has_pipeline);
    out.worked = worked_beside_others(run.times);
  } else {
    out.step_predicted = step->parts.total();
    out.step_measured = run.times.step;
  }
  for (ComparedPart& part : out.parts) {
    out.step_predicted += part.predicted, out.step_measured += part.measured;
    leave_out_absent(part.parts, *step);
  }
  if (run.one_machine)
    out.not_judged = "the nodes are one machine, and each takes its cores for its own";
  else if (run.profile_of_another)
    out.not_judged = "the profile is of another processor";
  else if (out.first_step_alone)
    out.not_judged = "it was the first step alone, which also meets its memory";
  else if (out.worked)
    out.not_judged = fmt::format("other work had the cores: a rank worked {} of a step of {}", milliseconds(*out.worked),
                                 milliseconds(out.step_measured));
  else if (run.timed_steps < kFewestJudged)
    out.not_judged =
        fmt::format("the mean is of {}, fewer than {:g}", counted(std::llround(run.timed_steps), "step"), kFewestJudged);
  else if (out.step_measured < kShortestJudged)
    out.not_judged = fmt::format("a step took less than {:.0f} ms", 1e3 * kShortestJudged);
  return out;
}

std::vector<Comparison::Off> Comparison::off() const {
  std::vector<Off> list;
  const double limit = kNamedAbove * step_measured;
  const auto add = [&](const ComparedPart& part) {
    list.push_back({name_of(part), milliseconds(part.predicted), milliseconds(part.measured), true});
  };
  const auto distance = [](const ComparedPart& part) { return std::abs(part.predicted - part.measured); };
  const bool judged = predicted.has_value() && not_judged.empty();
  for (const ComparedPart& part : parts) {
    if (judged && distance(part) > limit) add(part);
  }
  if (judged && list.empty() && std::abs(step_predicted - step_measured) > limit) {
    const auto most =
        std::max_element(parts.begin(), parts.end(), [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
    if (most != parts.end())
      add(*most);
    else
      list.push_back({"the step", milliseconds(step_predicted), milliseconds(step_measured), true});
  }
  // A bubble of x is 1 + x of the ideal time: small ones are not off because twice of nearly nothing is.
  if (judged && has_pipeline && bubble_predicted && bubble_measured &&
      std::abs(excess(1 + *bubble_predicted, 1 + *bubble_measured)) > kNamedAbove)
    list.push_back({"the bubble", fmt::format("{:.3f}", *bubble_predicted), fmt::format("{:.3f}", *bubble_measured), false});
  const auto compare_bytes = [&](const std::string& what, std::int64_t e, std::int64_t m) {
    if (std::abs(excess(static_cast<double>(e), static_cast<double>(m))) > kNamedAbove)
      list.push_back({what, megabytes_text(e, 2), megabytes_text(m, 2), false});
  };
  compare_bytes("the arena", memory_predicted.arena, memory_measured.arena);
  if (memory_predicted.resident && memory_measured.resident)
    compare_bytes("resident memory", *memory_predicted.resident, *memory_measured.resident);
  return list;
}

Table comparison_table(const Comparison& c) {
  Table table{"", {{"", true}, {"predicted", false, 12}, {"measured", false, 12}, {"", true}}, {}, 2};
  auto& rows = table.rows;
  const auto judged = [&](double predicted, double measured) { return c.not_judged.empty() ? percent(predicted, measured) : ""; };
  for (const ComparedPart& part : c.parts) {
    const double least = kNotShown * std::max(c.step_predicted, c.step_measured);
    if (std::abs(part.predicted) < least && std::abs(part.measured) < least) continue;
    const std::string off = part.measured < least ? "" : judged(part.predicted, part.measured);
    rows.push_back({name_of(part), milliseconds(part.predicted), milliseconds(part.measured), off});
  }
  if (c.predicted)
    rows.push_back(
        {"step", milliseconds(c.step_predicted), milliseconds(c.step_measured), judged(c.step_predicted, c.step_measured)});
  if (c.has_pipeline && c.bubble_predicted && c.bubble_measured)
    rows.push_back(
        {"bubble (idle over ideal)", fmt::format("{:.3f}", *c.bubble_predicted), fmt::format("{:.3f}", *c.bubble_measured), ""});
  const PredictedMemory &e = c.memory_predicted, &m = c.memory_measured;
  rows.push_back({"arena of the largest rank", megabytes_text(e.arena, 2), megabytes_text(m.arena, 2),
                  e.arena == m.arena ? "to the byte" : percent(static_cast<double>(e.arena), static_cast<double>(m.arena))});
  if (e.resident && m.resident)
    rows.push_back({"resident in rank 0's process", megabytes_text(*e.resident, 2), megabytes_text(*m.resident, 2),
                    percent(static_cast<double>(*e.resident), static_cast<double>(*m.resident))});
  return table;
}

std::vector<std::string> off_lines(const Comparison& c) {
  std::vector<std::string> lines;
  for (const Comparison::Off& off : c.off())
    lines.push_back(fmt::format("more than {:.0f} % off: {}, {} predicted and {} measured{}", 100 * Comparison::kNamedAbove,
                                off.what, off.predicted, off.measured,
                                off.of_time && c.among_repeats() ? "; steps of this run differ by more than that" : ""));
  return lines;
}

constexpr double kWaited = 1.25;  // a step's time over that of its processors beyond which it is said

LogLines to_lines(const Comparison& c) {
  LogLines lines{off_lines(c), {}};
  std::string head = "predicted beside measured, without the time of a step: " + c.why_not;
  if (c.predicted && !c.not_judged.empty()) {
    head = fmt::format("predicted beside measured, by {}: see comparison.json ({}; times are not judged)", c.predicted->profile,
                       c.not_judged);
  } else if (c.predicted) {
    const PredictedMemory &e = c.memory_predicted, &m = c.memory_measured;
    const bool waited = c.by_processor && c.step_wall > kWaited * c.step_measured;
    head = fmt::format("predicted beside measured, by {}: {} {} and {} ({}{}), arena {} and {}; run.log has the parts",
                       c.predicted->profile, c.by_processor ? "CPU time of a step" : "a step", milliseconds(c.step_predicted),
                       milliseconds(c.step_measured), percent(c.step_predicted, c.step_measured),
                       waited ? fmt::format("; the step itself took {}, as ranks waited or other work had the cores",
                                            milliseconds(c.step_wall))
                              : "",
                       megabytes_text(e.arena, 2), megabytes_text(m.arena, 2));
    lines.details.push_back(
        c.by_processor
            ? fmt::format("CPU time of a step, all {:.0f} ranks, over the {:g} that work at once", c.ranks, c.ranks_at_once)
            : "a step, mean over ranks");
  }
  lines.shown.insert(lines.shown.begin(), head);
  if (c.predicted && !c.not_judged.empty()) return lines;
  std::istringstream table(to_text(comparison_table(c)));
  for (std::string line; std::getline(table, line);) lines.details.push_back(line);
  if (c.spread)
    lines.details.push_back(
        fmt::format("  half of the steps took {} to {}", milliseconds(c.spread->low), milliseconds(c.spread->high)));
  return lines;
}

JsonValue to_json(const Comparison& c) {
  JsonValue out;
  out.set("steps", c.steps);
  out.set("ranks", c.ranks);
  out.set("ranks_at_once", c.ranks_at_once);
  if (c.predicted) {
    out.set("clock", c.by_processor ? "processor" : "wall");
    out.set("step_seconds", pair_of(c.step_predicted, c.step_measured));
    JsonValue::Array parts;
    for (const ComparedPart& part : c.parts) {
      JsonValue::Array names;
      for (const TimePart it : part.parts) names.emplace_back(to_string(it));
      parts.push_back(pair_of(part.predicted, part.measured));
      parts.back().set("parts", std::move(names));
    }
    out.set("parts", std::move(parts));
    if (c.worked) out.set("worked_seconds", *c.worked);
    out.set("first_step_alone", c.first_step_alone);
    if (!c.not_judged.empty()) out.set("not_judged", c.not_judged);
    if (c.spread) out.set("half_of_steps_seconds", JsonValue::Object{{"low", c.spread->low}, {"high", c.spread->high}});
    out.set("predicted_step", to_json(*c.predicted));
  } else {
    out.set("not_predicted", c.why_not);
  }
  if (c.bubble_predicted && c.bubble_measured) out.set("bubble_over_ideal", pair_of(*c.bubble_predicted, *c.bubble_measured));
  out.set("arena_bytes", pair_of(c.memory_predicted.arena, c.memory_measured.arena));
  if (c.memory_predicted.resident && c.memory_measured.resident)
    out.set("resident_bytes", pair_of(*c.memory_predicted.resident, *c.memory_measured.resident));
  JsonValue::Array off;
  for (const Comparison::Off& one : c.off()) off.emplace_back(one.what);
  out.set("off", JsonValue(std::move(off)));
  return out;
}

}  // namespace trident
