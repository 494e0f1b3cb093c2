#include "planner/study/study_result.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <map>
#include <tuple>
#include <utility>

#include "core/at.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "core/number_text.h"
#include "planner/study/study_keys.h"

namespace trident {
namespace {

// A member of comparison.json; `of_kind` says whether it is what is asked for.
template <class OfKind>
const JsonValue& member(const JsonValue& object, std::string_view key, std::string_view path, OfKind of_kind) {
  const JsonValue* const found = object.find(key);
  if (found == nullptr || !of_kind(*found))
    throw DataError(fmt::format("comparison.json: {}: missing, or of another kind; run the study again", path));
  return *found;
}

double number_in(const JsonValue& object, std::string_view key, std::string_view path) {
  return member(object, key, path, [](const JsonValue& it) { return it.is_number(); }).as_number();
}

std::string text_in(const JsonValue& object, std::string_view key) {
  return member(object, key, key, [](const JsonValue& it) { return it.is_string(); }).as_string();
}

const JsonValue& object_in(const JsonValue& object, std::string_view key) {
  return member(object, key, key, [](const JsonValue& it) { return it.is_object(); });
}

// A row is as fast as another where it takes no more than this many times as long; causes of less are not told.
constexpr double kAlike = 1.05;

// The same but for the number of GPUs.
bool same_line(const StudySpec& spec, const StudyPoint& a, const StudyPoint& b) {
  if (a.arm != b.arm) return false;
  for (std::size_t i = 0; i < spec.varied.size(); ++i)
    if (!counts_ranks(spec.varied[i].key) && a.values[i] != b.values[i]) return false;
  return true;
}

// Whether a value says by itself what it is: "zero3", not "2", "true" or "none".
bool is_word(const std::string& value) {
  constexpr std::string_view kSaidOfAnything[] = {"true", "false", "null", "none", "full", "auto", "selective"};
  return !value.empty() && std::isalpha(static_cast<unsigned char>(value[0])) &&
         std::ranges::find(kSaidOfAnything, value) == std::end(kSaidOfAnything);
}

// The part that makes most of `more` against `less`, per step of equal tokens: `scale` is what times of `less` are multiplied by.
std::pair<TimePart, double> largest_difference(const StudyRow& more, const StudyRow& less, double scale) {
  std::pair<TimePart, double> largest;
  for (std::size_t i = 0; i < kNumTimeParts; ++i) {
    const double difference = more.parts.seconds[i] - scale * less.parts.seconds[i];
    if (difference > largest.second) largest = {static_cast<TimePart>(i), difference};
  }
  return largest;
}

double all_bytes(const StudyRow& row) {
  double sum = 0;
  for (const double bytes : row.bytes_sent) sum += bytes;
  return sum;
}

std::string sent_text(double bytes) { return bytes < 5e7 ? bytes_text(bytes) : gigabytes_text(bytes); }
std::string dp_bytes(const StudyRow& row) { return sent_text(at(row.bytes_sent, Axis::kData)); }

// "never", "once", "96 times", "1.83 times".
std::string times(double count) {
  if (count == 0) return "never";
  if (count == 1) return "once";
  return count >= 100 ? fmt::format("{:.0f} times", count) : fmt::format("{:.3g} times", count);
}

// "32 micro-batches x 3 collectives of every unit" where they are as many as that, else how often a unit is gathered and reduced.
std::string collectives(const StudyRow& row) {
  const double calls = row.gathers + row.reductions, each = calls / static_cast<double>(row.micro_batches);
  const std::string all = fmt::format("a unit's parameters are gathered {} and its gradients reduced {}",
                                      times(row.gathers), times(row.reductions));
  if (row.micro_batches == 1 || std::abs(each - std::round(each)) > 0.05 * each || each < 0.95) return all;
  return fmt::format("{} ({} x {})", all, counted(row.micro_batches, "micro-batch", "micro-batches"),
                     counted(static_cast<std::int64_t>(std::round(each)), "collective"));
}

// A cause is told of rows that differ in one key, beside the number of GPUs; of others it would be several.
bool differ_in_one(const StudySpec& spec, const StudyPoint& a, const StudyPoint& b) {
  int keys = a.arm == b.arm ? 0 : 1;
  for (std::size_t i = 0; i < spec.varied.size(); ++i) keys += !counts_ranks(spec.varied[i].key) && a.values[i] != b.values[i];
  return keys == 1;
}

double ratio(const StudyRow& slow, const StudyRow& fast) { return fast.tokens_per_gpu() / slow.tokens_per_gpu(); }

// Names what takes `seconds` more in one row. Where that is computing, and most of it by a stage that computes longer than others,
// the stage and the bubble that it makes are named, too.
std::string cause_text(TimePart part, double seconds, const StudyRow& more, double uneven_of_less) {
  const bool uneven = part == TimePart::kCompute && more.uneven - uneven_of_less > seconds / 2;
  if (!uneven) return std::string(part_words(part).cause);
  const double computes = more.parts[TimePart::kCompute];
  return fmt::format("{} of {}, {:.3g} times as long as stages compute on average, while the others wait (bubble {:.3f} of the "
                     "ideal step)", part_words(part).cause, more.stage, computes / (computes - more.uneven), more.bubble);
}

std::string why_slower(const StudyResult& result, const StudyRow& slow, const StudyRow& fast) {
  const double scale = static_cast<double>(slow.tokens) / static_cast<double>(fast.tokens);  // steps of equal work are compared
  const auto [part, seconds] = largest_difference(slow, fast, scale);
  const double all = slow.seconds - scale * fast.seconds;
  std::string text = fmt::format("On {} {} takes {:.2f} times as long per token as {}: ", counted(slow.gpus, result.counted_as),
                                 row_name(result.spec, slow.point), ratio(slow, fast), row_name(result.spec, fast.point));
  const auto [unit, of_second] = time_unit_of(result);
  const std::string cause = cause_text(part, seconds, slow, scale * fast.uneven);
  text += seconds > 1.001 * all ? fmt::format("{:.3g} {} more a step are {}, all other parts together take {:.3g} {} less.",
                                      of_second * seconds, unit, cause, of_second * (seconds - all), unit)
                        : fmt::format("{:.3g} of the {:.3g} {} more a step are {}.", of_second * seconds, of_second * all, unit,
                                      cause);
  const double sent = all_bytes(slow), sent_fast = all_bytes(fast) * scale;
  if (part == TimePart::kData && sent > 0)
    text += fmt::format(" A step sends {} a {} over dp instead of {}: {}, instead of {} and {}.", dp_bytes(slow),
                        result.counted_as, dp_bytes(fast), collectives(slow), times(fast.gathers), times(fast.reductions));
  else if (sent > kAlike * sent_fast && sent_fast > 0)
    text += fmt::format(" A step sends {} a {} instead of {}.", sent_text(sent), result.counted_as, sent_text(all_bytes(fast)));
  return text;
}

bool same_plan(const StudyRow& a, const StudyRow& b) {
  const auto facts = [](const StudyRow& row) {
    return std::tie(row.tokens, row.micro_batches, row.parameters, row.seconds, row.parts.seconds, row.memory_bytes,
                    row.bytes_sent);
  };
  return facts(a) == facts(b);
}

// Rows that differ in this key alone are planned alike.
bool changes_nothing(const StudyResult& result, std::size_t key) {
  std::map<std::tuple<std::size_t, std::int64_t, std::vector<std::string>>, const StudyRow*> firsts;
  bool any = false;
  for (const StudyRow& row : result.rows) {
    if (!row.possible()) continue;
    std::vector<std::string> others = row.point.values;
    others[key].clear();
    const auto [first, is_new] = firsts.try_emplace({row.point.arm, row.point.gpus, std::move(others)}, &row);
    if (!is_new && !same_plan(row, *first->second)) return false;
    any = any || !is_new;
  }
  return any;
}

std::string why_less_efficient(const StudyResult& result, const StudyRow& large, const StudyRow& small) {
  const double scale = static_cast<double>(large.tokens) / static_cast<double>(small.tokens) *
                       static_cast<double>(small.gpus) / static_cast<double>(large.gpus);  // what perfect scaling would take
  const auto [part, seconds] = largest_difference(large, small, scale);
  const std::string name = row_name(result.spec, large.point);
  const double of_large = seconds > 0 ? large.parts[part] / large.seconds : 0;
  const double of_small = seconds > 0 ? small.parts[part] / small.seconds : 0;
  return fmt::format(
      "{}from {} to {} efficiency falls to {:.2f}, most of it by {}: {:.0f} % of the step instead of {:.0f} %{}.",
      name.empty() ? "" : name + ": ", small.gpus, counted(large.gpus, result.counted_as),
      large.efficiency, cause_text(part, seconds, large, scale * small.uneven), 100 * of_large, 100 * of_small,
      large.micro_batches != small.micro_batches ? fmt::format(" ({} instead of {} a replica)", large.micro_batches,
                                                               counted(small.micro_batches, "micro-batch", "micro-batches"))
                                                 : "");
}

}  // namespace

StudyTimeUnit time_unit_of(const StudyResult& result) {
  double longest = 0;
  for (const StudyRow& row : result.rows) longest = row.possible() ? std::max(longest, row.seconds) : longest;
  return longest < 0.1 ? StudyTimeUnit{"ms", 1e3} : StudyTimeUnit{"s", 1};
}

std::string disturbance_text(const StudyMeasurement& measured, const StudyTimeUnit& unit) {
  return measured.worked ? fmt::format("other work had the cores: a rank worked {:.4g} {} of {:.4g} {}, not judged",
                                       unit.of_second * *measured.worked, unit.name, unit.of_second * measured.seconds, unit.name)
                         : "";
}

std::string row_name(const StudySpec& spec, const StudyPoint& point) {
  std::string name = spec.arms.at(point.arm).name;
  for (std::size_t i = 0; i < spec.varied.size(); ++i) {
    if (counts_ranks(spec.varied[i].key) || spec.varied[i].values.size() == 1) continue;
    const std::string& value = point.values[i];
    if (!name.empty()) name += ", ";
    name += is_word(value) ? value : fmt::format("{} {}", short_key(spec.varied[i].key), value);
  }
  return name;
}

bool StudyResult::any_possible() const {
  return std::ranges::any_of(rows, [](const StudyRow& row) { return row.possible(); });
}

std::string reasons_text(const StudyResult& result) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> reasons;
  for (const StudyRow& row : result.rows)
    if (!row.possible() && std::ranges::find(reasons, row.reason) == reasons.end()) reasons.push_back(row.reason);
  std::string text;
  for (std::size_t i = 0; i < std::min(reasons.size(), kMost); ++i) text += (i == 0 ? "" : "; ") + reasons[i];
  if (reasons.size() > kMost)
    text += fmt::format(" ({})", counted(static_cast<std::int64_t>(reasons.size() - kMost), "more reason"));
  return text;
}

void take_comparison(const JsonValue& comparison, StudyRow& row) {
  if (!comparison.is_object()) throw DataError("comparison.json: no object; run the study again");
  if (comparison.find("step_seconds") == nullptr)
    return void(row.not_run = "trained, and not compared: " + text_in(comparison, "not_predicted"));
  const JsonValue& step = object_in(comparison, "step_seconds");
  row.measured = StudyMeasurement{
      .seconds = number_in(step, "measured", "step_seconds.measured"),
      .predicted = number_in(step, "predicted", "step_seconds.predicted"),
      .clock = text_in(comparison, "clock"),
      .steps = static_cast<int>(number_in(comparison, "steps", "steps")),
      .memory_bytes = std::llround(number_in(object_in(comparison, "arena_bytes"), "measured", "arena_bytes.measured")),
      .worked = {}};
  if (comparison.find("worked_seconds") != nullptr)
    row.measured->worked = number_in(comparison, "worked_seconds", "worked_seconds");
}

void read_comparison(const std::string& path, StudyRow& row) {
  try {
    take_comparison(parse_json(read_file(path), "comparison.json"), row);
  } catch (const Error& error) {
    row.measured.reset();
    row.not_run = fmt::format("trained, and not compared: {}", error.what());
  }
}

const StudyRow* fastest_of(const StudyResult& result, std::int64_t gpus) {
  const StudyRow* fastest = nullptr;
  const auto rank = [](const StudyRow& row) { return std::tuple(row.fits, !row.tight, row.tokens_per_gpu()); };
  for (const StudyRow& row : result.rows)
    if (row.possible() && row.gpus == gpus && (fastest == nullptr || rank(row) > rank(*fastest))) fastest = &row;
  return fastest;
}

const StudyRow* reference_of(const StudyResult& result, const StudyRow& row) {
  if (result.spec.arms.size() < 2) return fastest_of(result, row.gpus);
  const auto found = std::ranges::find_if(result.rows, [&](const StudyRow& it) {
    return it.possible() && it.gpus == row.gpus && it.point.arm == 0 && it.point.values == row.point.values;
  });
  return found == result.rows.end() ? nullptr : &*found;
}

void compare_rows(StudyResult& result) {
  std::vector<StudyRow>& rows = result.rows;
  for (StudyRow& row : rows) {
    row.efficiency = row.of_first = 0;
    if (!row.possible()) continue;
    const StudyRow* reference = nullptr;
    std::size_t points = 0;
    for (const StudyRow& other : rows) {
      if (!other.possible() || !same_line(result.spec, row.point, other.point)) continue;
      ++points;
      if (other.fits && (reference == nullptr || other.gpus < reference->gpus)) reference = &other;
    }
    if (points > 1 && row.fits) row.efficiency = row.tokens_per_gpu() / reference->tokens_per_gpu();
    const auto first = std::find_if(rows.begin(), rows.end(),
                                    [&](const StudyRow& other) { return other.possible() && other.gpus == row.gpus; });
    row.of_first = row.tokens_per_gpu() / first->tokens_per_gpu();
  }
}

namespace {

// Whether the number of replicas may vary.
bool varies_layout(const StudySpec& spec) {
  constexpr std::string_view kLayout[] = {"parallel", "parallel.data", "parallel.tensor", "parallel.pipeline", "parallel.context"};
  const auto of_layout = [&](std::string_view setting) {
    const std::string_view key = setting.substr(0, setting.find('='));
    return counts_ranks(key) || std::ranges::find(kLayout, key) != std::end(kLayout);
  };
  return std::ranges::any_of(spec.varied, [&](const VariedKey& it) { return of_layout(it.key); }) ||
         std::ranges::any_of(spec.arms, [&](const StudyArm& arm) { return std::ranges::any_of(arm.settings, of_layout); });
}

}  // namespace

std::vector<std::string> held_fixed(const StudySpec& spec, std::string_view counted_as) {
  std::vector<std::string> held;
  if (varies_layout(spec) && spec.scaling == Scaling::kStrong) {
    held.push_back(fmt::format(
        "{} global batch (batch.global) is held fixed; more replicas take fewer micro-batches each. The micro-batch, the sequence "
        "and every setting that is not varied stay the same.", spec.varies_gpus() ? "Strong scaling: the" : "The"));
  } else if (spec.scaling == Scaling::kWeak) {
    std::string batches;
    for (std::size_t arm = 0; arm < spec.arms.size(); ++arm) {
      const std::string& name = spec.arms[arm].name;
      batches += fmt::format("{}{}{}", batches.empty() ? "" : ", ", name.empty() ? "" : name + ": ",
                             counted(replica_batch(spec, arm), "sequence"));
    }
    held.push_back(fmt::format(
        "Weak scaling: the batch of a replica is held fixed ({}); batch.global grows with the replicas. The micro-batch, the "
        "sequence and every setting that is not varied stay the same.",
        batches));
  }
  if (spec.varies_gpus())
    held.push_back(fmt::format(
        "Efficiency: tokens/s a {0} over those of the smallest number of {0}s that fits, everything else equal; with strong "
        "scaling that is (time x {0}s) of the smallest over (time x {0}s), with weak scaling and equal replicas time over time.",
        counted_as));
  const auto varies_any = [&](std::initializer_list<const char*> keys) {
    return std::ranges::any_of(keys, [&](const char* key) { return spec.varies(key); });
  };
  if (varies_any({"model.hidden_size", "model.n_embd"}) &&
      !varies_any({"model.intermediate_size", "model.n_inner", "model.num_attention_heads", "model.n_head", "model.head_dim"}))
    held.emplace_back(
        "The model's hidden size varies alone: its heads and feed-forward width stay. Arms of a study file set several keys "
        "together (docs/studies.md).");
  return held;
}

std::vector<std::string> causes_of(const StudyResult& result) {
  std::vector<std::string> causes;
  const std::vector<StudyRow>& rows = result.rows;
  for (std::size_t i = 0; i < result.spec.varied.size(); ++i)
    if (changes_nothing(result, i))
      causes.push_back(fmt::format(
          "{} changes neither time nor memory here. To compare losses, train each value and type: trident report RUN RUN "
          "(docs/studies.md)",
          short_key(result.spec.varied[i].key)));
  // Lines of equal settings, one sentence each: where the line is furthest behind.
  std::vector<const StudyRow*> told;
  const auto is_told = [&](const StudyRow& row) {
    return std::any_of(told.begin(), told.end(), [&](const StudyRow* of) { return same_line(result.spec, row.point, of->point); });
  };
  for (const StudyRow& line : rows) {
    if (is_told(line)) continue;
    told.push_back(&line);
    const StudyRow *slow = nullptr, *fast = nullptr;
    for (const StudyRow& row : rows) {
      if (!row.possible() || !same_line(result.spec, row.point, line.point)) continue;
      const StudyRow* rival = reference_of(result, row);
      if (rival != nullptr && differ_in_one(result.spec, row.point, rival->point) &&
          (slow == nullptr || ratio(row, *rival) > ratio(*slow, *fast))) slow = &row, fast = rival;
    }
    if (slow != nullptr && ratio(*slow, *fast) > kAlike) causes.push_back(why_slower(result, *slow, *fast));
  }
  // The largest number of GPUs stands against the reference.
  for (const StudyRow& row : rows) {
    if (!row.possible() || row.efficiency == 0) continue;
    const StudyRow *largest = &row, *reference = nullptr;
    for (const StudyRow& other : rows) {
      if (!other.possible() || other.efficiency == 0 || !same_line(result.spec, row.point, other.point)) continue;
      if (other.gpus > largest->gpus) largest = &other;
      if (other.efficiency == 1 && reference == nullptr) reference = &other;
    }
    if (largest != &row || reference == nullptr || reference == largest || largest->efficiency * kAlike > 1) continue;
    causes.push_back(why_less_efficient(result, *largest, *reference));
  }
  return causes;
}

}  // namespace trident
