#include "planner/search/search_text.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "core/at.h"
#include "core/counted.h"
#include "core/json_by_name.h"
#include "core/number_text.h"
#include "planner/predict/cluster_report.h"
#include "planner/price/step_price.h"
#include "planner/search/layout_costs.h"

namespace trident {
namespace {

std::string parts_text(const FoundLayout& found) {
  std::string text;
  for (std::size_t p = 0; p < kNumTimeParts; ++p) {
    const auto part = static_cast<TimePart>(p);
    const double percent = 100 * found.parts[part] / found.seconds;
    if (percent < 0.05) continue;
    text += fmt::format("{}{} {:.1f}", text.empty() ? "" : ", ", to_string(part), percent);
  }
  return text;
}

std::string room_of(const FoundLayout& found, const SearchResult& result) {
  return room_text(static_cast<double>(found.needed_bytes), static_cast<double>(result.device_bytes), found.bytes_off);
}

// "81.8 GB of 84.9 GB, 3.1 GB free: tensors 79.0 GB (parameters 8.5, gradients 16.9), driver and communicators 2.8 GB": parts of
// tensors that are seen, in the unit of the whole.
std::string memory_text(const FoundLayout& found, const SearchResult& result) {
  const AmountUnit unit = byte_unit(found.memory.total());
  std::string parts;
  for (const MemoryUse use : kMemoryUses) {
    if (static_cast<double>(found.memory[use]) < 0.5 * std::pow(0.1, unit.decimals) * unit.size) continue;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", to_string(use), unit.number(found.memory[use]));
  }
  const std::string tensors = fmt::format("tensors {} ({})", unit.text(found.memory.total()), parts);
  const std::string all = bytes_text(found.needed_bytes) + room_of(found, result);
  if (result.on_processors())
    return fmt::format("    memory of the process: {}; of pipeline rank {}: {}\n", all, found.fullest, tensors);
  return fmt::format("    memory of pipeline rank {}: {}: {}, driver and communicators {}\n", found.fullest, all, tensors,
                     bytes_text(found.needed_bytes - found.memory.total()));
}

// "10.82 s to 13.61 s".
std::string band_text(const FoundLayout& found) {
  return found.band ? fmt::format("{} to {}", seconds_text(found.band->low * found.seconds),
                                  seconds_text(found.band->high * found.seconds))
                    : "no band";
}

// "zero2 and recompute full +1.9 % (42.1 GB)" and its layout: the nearest variation for each choice, or choices together, in which
// one differs, by how much it is slower, and what memory it needs.
std::vector<std::pair<std::string, SearchLayout>> nearest_variations(const FoundLayout& found) {
  constexpr std::size_t kMost = 5;
  std::vector<unsigned> told;  // choices, a bit each
  std::vector<std::pair<std::string, SearchLayout>> nearest;
  for (const TimedLayout& variation : found.variations) {
    const SearchLayout &other = variation.layout, &layout = found.layout;
    std::string words;
    unsigned choices = 0, bit = 1;
    const auto add = [&](bool differs, const std::string& word) {
      if (differs) words += (words.empty() ? "" : " and ") + word, choices |= bit;
      bit *= 2;
    };
    add(other.sequence_parallel != layout.sequence_parallel,
        other.sequence_parallel ? "sequence parallel" : "no sequence parallel");
    add(other.schedule != layout.schedule || other.virtual_stages != layout.virtual_stages,
        other.virtual_stages > 1 ? fmt::format("{} chunks", other.virtual_stages) : std::string(to_string(other.schedule)));
    add(other.micro != layout.micro, fmt::format("micro-batches of {}", other.micro));
    add(other.zero != layout.zero || other.reduces_once != layout.reduces_once, zero_text(other));
    add(other.recompute != layout.recompute, fmt::format("recompute {}", to_string(other.recompute)));
    if (std::ranges::any_of(told, [&](unsigned before) { return (before & choices) == before; })) continue;
    if (told.size() == kMost) break;
    told.push_back(choices);
    nearest.emplace_back(fmt::format("{} {:+.1f} % ({})", words, 100 * (variation.seconds / found.seconds - 1),
                                     bytes_text(variation.needed_bytes)), other);
  }
  return nearest;
}

std::string variations_text(const FoundLayout& found) {
  std::string text;
  for (const auto& [words, layout] : nearest_variations(found)) text += (text.empty() ? "    or with " : ", ") + words;
  return text.empty() ? "" : text + '\n';
}

std::string mfu_text(const FoundLayout& found) { return found.mfu > 0 ? percent_digits(found.mfu) + " %" : "-"; }

// As many columns as a screen has room for.
Table short_table(const std::vector<FoundLayout>& layouts, std::size_t first) {
  Table table{"", {{"#"}, {"layout", true}, {"step"}, {"tokens/s"}, {"MFU"}, {"memory"}, {"", true}}};
  for (const FoundLayout& found : layouts)
    table.rows.push_back({fmt::format("{}", first++), to_string(found.layout), seconds_text(found.seconds),
                          rounded_text(found.tokens_per_second), mfu_text(found), bytes_text(found.needed_bytes),
                          found.tight ? "fits tightly" : ""});
  return table;
}

// The layout of a rank in the order, with everything that its line in the table has no room for.
std::string details(const SearchResult& result, int rank) {
  const FoundLayout& found = at(result.best, rank - 1);
  const std::string per_gpu =
      result.on_processors() ? "" : fmt::format(", {} per GPU", rounded_text(found.tokens_per_second / result.gpus));
  return fmt::format("\nlayout {}: {}\n    a step takes {} ({}): {} tokens/s{}, MFU {}\n", rank, to_string(found.layout),
                     seconds_text(found.seconds), band_text(found), rounded_text(found.tokens_per_second), per_gpu,
                     mfu_text(found)) +
         variations_text(found) +
         fmt::format("    time of pipeline rank {} in %: {}\n", found.busiest, parts_text(found)) + memory_text(found, result) +
         fmt::format("    next limit: {}\n    to train it: {}\n", found.next_limit, settings_text(found));
}

// "1 to 3 and 5 are equal within the error of predictions": the first, and those whose bands reach down into its band. Tight ones,
// which come last whatever their time, count where all are tight; one without a band does not.
std::string equals_text(const SearchResult& result) {
  if (result.best.empty() || !result.best.front().band) return "";
  const std::vector<FoundLayout>& best = result.best;
  const double most = best.front().band->high * best.front().seconds;
  const auto is_equal = [&](const FoundLayout& it) {
    return it.tight == best.front().tight && it.band && it.band->low * it.seconds <= most;
  };
  std::vector<std::string> equal;
  for (std::size_t i = 0; i < best.size(); ++i) {
    std::size_t end = i;
    while (end < best.size() && is_equal(best[end])) ++end;
    if (end == i) continue;
    equal.push_back(end - i < 3 ? fmt::format("{}", i + 1) : fmt::format("{} to {}", i + 1, end));
    if (end - i > 2) i = end;
  }
  const std::string last = equal.back();
  if (last == "1") return "";
  equal.pop_back();
  const std::string others = fmt::format("{}{}", fmt::join(equal, ", "), equal.empty() ? "" : " and ");
  return others + last + " are equal within the error of predictions";
}

// Sentences about all of them.
std::vector<std::string> caveats(const SearchResult& result) {
  std::vector<std::string> lines{
      equals_text(result),
      !result.best.empty() && result.best.front().mfu == 0
          ? std::string("MFU is not known: the profile names no peak; trident bench --calibrate measures it")
          : fmt::format("MFU is model FLOPs of a step, attention in full, over {}",
                  result.on_processors() ? "the cores' peak, the multiply instruction's rate" : "the GPUs' dense 16-bit peak"),
      result.on_processors() ? "" : "all is predicted: no run of this program on a GPU has been measured yet",
      result.less_sure};
  std::erase(lines, "");
  return lines;
}

JsonValue sync_of(const SearchLayout& layout) { return layout.reduces_once ? JsonValue("step") : JsonValue(); }

JsonValue settings_json(const SearchLayout& layout) {
  const std::vector<std::string> settings = layout_settings(layout);
  return JsonValue::Array(settings.begin(), settings.end());
}

JsonValue json_of(const FoundLayout& found) {
  const SearchLayout& layout = found.layout;
  JsonValue::Array variations;
  for (const TimedLayout& other : found.variations)
    variations.push_back(JsonValue::Object{{"layout", to_string(other.layout)},
                                           {"sequence_parallel", other.layout.sequence_parallel},
                                           {"virtual_stages", other.layout.virtual_stages},
                                           {"schedule", to_string(other.layout.schedule)},
                                           {"micro", other.layout.micro},
                                           {"zero", to_string(other.layout.zero)},
                                           {"grad_sync", sync_of(other.layout)},
                                           {"recompute", to_string(other.layout.recompute)},
                                           {"needed_bytes", other.needed_bytes},
                                           {"settings", settings_json(other.layout)},
                                           {"closed_form_s", other.seconds}});
  return JsonValue::Object{{"layout", to_string(layout)},
                           {"data", layout.data},
                           {"context", layout.context},
                           {"pipeline", layout.pipeline},
                           {"tensor", layout.tensor},
                           {"sequence_parallel", layout.sequence_parallel},
                           {"virtual_stages", layout.virtual_stages},
                           {"schedule", to_string(layout.schedule)},
                           {"micro", layout.micro},
                           {"zero", to_string(layout.zero)},
                           {"grad_sync", sync_of(layout)},
                           {"recompute", to_string(layout.recompute)},
                           {"shard_ranks", layout.shard_ranks},
                           {"trainable", found.trainable},
                           {"step_time_s", found.seconds},
                           {"step_time_band_s", found.band ? JsonValue(JsonValue::Array{found.band->low * found.seconds,
                                                                                        found.band->high * found.seconds})
                                                           : JsonValue()},
                           {"closed_form_s", found.seconds},
                           {"tokens_per_s", found.tokens_per_second},
                           {"mfu", found.mfu},
                           {"time_parts_s", json_by_name<TimePart>(found.parts.seconds)},
                           {"time_of_pipeline_rank", found.busiest},
                           {"memory_bytes", found.memory.total()},
                           {"memory_parts", json_by_name<MemoryUse>(found.memory.by_use)},
                           {"memory_of_pipeline_rank", found.fullest},
                           {"needed_bytes", found.needed_bytes},
                           {"tight", found.tight},
                           {"settings", found.trainable ? settings_json(layout) : JsonValue()},
                           {"next_limit", found.next_limit},
                           {"variations", std::move(variations)}};
}

}  // namespace

std::string settings_text(const FoundLayout& found) {
  return found.settings.empty() ? "the configuration as it is" : settings_text(found.settings);
}

std::string AmountUnit::number(std::int64_t amount) const {
  return fmt::format("{:.{}f}", static_cast<double>(amount) / size, decimals);
}

std::string AmountUnit::text(std::int64_t amount) const { return fmt::format("{} {}", number(amount), name); }

AmountUnit byte_unit(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  for (const AmountUnit& unit : {AmountUnit{1e9, "GB"}, AmountUnit{1e6, "MB"}, AmountUnit{1e3, "KB"}})
    if (value >= unit.size) return {unit.size, unit.name, value < 10 * unit.size ? 2 : 1};
  return {1, "bytes"};
}

std::string to_text(const SearchResult& result, int rank, std::size_t columns) {
  std::string text = fmt::format("model: {}\n", result.model) +
                     (result.on_processors()
                          ? fmt::format("on {}\n", result.cluster)
                          : fmt::format("cluster: {} GPUs of {}, {} each\n", result.gpus, result.cluster,
                                        bytes_text(result.device_bytes))) +
                     fmt::format("batch: {} sequences of {} tokens\n", result.global_batch, result.sequence) +
                     (result.held.empty() ? "" : fmt::format("held by --set: {}\n", fmt::join(result.held, ", "))) +
                     fmt::format("{} looked at, {} fit{}, {} timed\n",
                                 counted(static_cast<std::int64_t>(result.layouts), "layout"), result.fitting,
                                 result.tight > 0 ? fmt::format(" ({} so tightly that they come last)", result.tight) : "",
                                 result.timed) +
                     '\n';
  for (const std::string& line : caveats(result)) text += line + '\n';
  text += '\n' + to_text(short_table(result.best, 1), columns);
  if (!result.best.empty()) text += details(result, rank);
  if (!result.not_trainable.empty())
    text += "\nestimates beside the best, not trainable yet (context parallel; sharding within groups of ranks):\n" +
            to_text(short_table(result.not_trainable, result.best.size() + 1), columns);
  if (result.more_not_trainable > 0) text += fmt::format("    and {} slower\n", result.more_not_trainable);
  return text +
         "\n--html FILE and --json have each layout's band, parts and limit, what does not fit and why, and the fastest layout "
         "with each other choice; --write FILE --rank N writes layout N and prints its details\n";
}

JsonValue to_json(const SearchResult& result) {
  JsonValue::Array best, estimates;
  for (const FoundLayout& found : result.best) best.push_back(json_of(found));
  for (const FoundLayout& found : result.not_trainable) estimates.push_back(json_of(found));
  JsonValue::Object rejected, choices;
  for (std::size_t r = 0; r < kNumRejections; ++r) {
    const Rejected& of = result.rejections[r];
    if (of.layouts == 0) continue;
    rejected.push_back({std::string(to_string(static_cast<Rejection>(r))),
                        JsonValue::Object{{"layouts", of.layouts}, {"example", of.example}}});
  }
  for (const ChoiceTime& time : result.best_by_choice) choices.push_back({time.choice, time.seconds});
  return JsonValue::Object{
      {"model", result.model},
      {"parameters", result.parameters},
      {"cluster", result.cluster},
      result.on_processors() ? JsonMember{"ranks", result.ranks}
                             : JsonMember{"gpus", result.gpus},
      {"global_batch", result.global_batch},
      {"sequence", result.sequence},
      {"held", result.held},
      {"device_bytes", result.device_bytes},
      {"layouts", static_cast<std::int64_t>(result.layouts)},
      {"fitting", static_cast<std::int64_t>(result.fitting)},
      {"timed", static_cast<std::int64_t>(result.timed)},
      {"simulated", static_cast<std::int64_t>(result.timed)},
      {"dry_runs", result.dry_runs},
      {"best", std::move(best)},
      {"not_trainable_yet", std::move(estimates)},
      {"rejected", std::move(rejected)},
      {"fastest_timed_with", std::move(choices)},
      {"timing", JsonValue::Object{{"bound_cpu_s", result.bound_seconds}, {"closed_form_cpu_s", result.simulation_seconds}}}};
}

namespace {

Table layouts_table(const std::vector<FoundLayout>& layouts, std::size_t first, const SearchResult& result) {
  Table table{"", {{"#"}, {"layout", true}, {"step"}, {"band"}, {"tokens/s"}, {"per GPU"}, {"MFU"}, {"memory"},
                   {"next limit", true}}};
  for (const FoundLayout& found : layouts)
    table.rows.push_back({fmt::format("{}", first++), to_string(found.layout), seconds_text(found.seconds), band_text(found),
                          rounded_text(found.tokens_per_second),
                          result.on_processors() ? "-" : rounded_text(found.tokens_per_second / result.gpus),
                          mfu_text(found),
                          bytes_text(found.needed_bytes) + room_of(found, result),
                          found.next_limit});
  return table;
}

Table flags_table(const std::vector<FoundLayout>& layouts) {
  Table table{"What trains them", {{"#", true}, {"trident train --config FILE ...", true}}};
  for (std::size_t i = 0; i < layouts.size(); ++i)
    table.rows.push_back({fmt::format("{}", i + 1), settings_text(layouts[i])});
  for (std::size_t i = 0; i < layouts.size(); ++i)
    for (const auto& [words, layout] : nearest_variations(layouts[i]))
      table.rows.push_back({fmt::format("{} with {}", i + 1, words), settings_text(layout_settings(layout))});
  return table;
}

StackedBars bars_of(const std::vector<FoundLayout>& layouts) {
  StackedBars bars{.title = "Where the time of a step goes, on the busiest pipeline rank", .unit = "s", .parts = {}, .bars = {}};
  for (std::size_t part = 0; part < kNumTimeParts; ++part)
    bars.parts.push_back({std::string(part_words(static_cast<TimePart>(part)).title), hue_of(part)});
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const auto& seconds = layouts[i].parts.seconds;
    bars.bars.push_back({fmt::format("layout {}", i + 1), {seconds.begin(), seconds.end()}, layouts[i].seconds});
  }
  return bars;
}

Table choices_table(const std::vector<ChoiceTime>& choices) {
  Table table{"", {{"with", true}, {"step"}, {"slower"}}};
  double least = choices.empty() ? 0 : choices.front().seconds;
  for (const ChoiceTime& choice : choices) least = std::min(least, choice.seconds);
  for (const auto& [name, seconds] : choices)
    table.rows.push_back({name, seconds_text(seconds), fmt::format("{:+.1f} %", 100 * (seconds / least - 1))});
  return table;
}

Table rejections_table(const Rejections& rejections) {
  Table table{"", {{"layouts"}, {"why", true}, {"such as", true}}};
  for (std::size_t r = 0; r < kNumRejections; ++r)
    if (rejections[r].layouts > 0)
      table.rows.push_back({with_commas(rejections[r].layouts), std::string(to_string(static_cast<Rejection>(r))),
                            rejections[r].example});
  return table;
}

}  // namespace

ReportPage page_of(const SearchResult& result) {
  ReportPage page{"Layouts of " + result.model, "", {}};
  const std::string hardware = result.on_processors() ? result.cluster
                                                      : fmt::format("{} GPUs of {}, {} each", result.gpus, result.cluster,
                                                                    bytes_text(result.device_bytes));
  page.subtitle = fmt::format("{}; {} sequences of {} tokens a step", hardware, result.global_batch, result.sequence);
  if (!result.held.empty()) page.subtitle += fmt::format("; held: {}", fmt::join(result.held, ", "));
  const auto count = [](std::size_t layouts) { return with_commas(static_cast<std::int64_t>(layouts)); };
  Paragraph looked{fmt::format("{} layouts looked at, {} fit, {} timed. Predicted, not measured.", count(result.layouts),
                               count(result.fitting), count(result.timed))};
  page.sections.push_back({"The fastest",
                           {std::move(looked), layouts_table(result.best, 1, result), BulletList{caveats(result)},
                            flags_table(result.best), bars_of(result.best)}});
  if (!result.not_trainable.empty())
    page.sections.push_back({"Estimates beside them, not trainable yet",
                             {Paragraph{"Context parallel; sharding within groups of ranks."},
                              layouts_table(result.not_trainable, result.best.size() + 1, result)}});
  page.sections.push_back({"The fastest timed layout with another choice", {choices_table(result.best_by_choice)}});
  page.sections.push_back({"Not looked at, or not fitting", {rejections_table(result.rejections)}});
  return page;
}

}  // namespace trident
