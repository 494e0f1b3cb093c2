#include "planner/search/search_page.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/number_text.h"
#include "planner/price/step_price.h"
#include "planner/search/search_text.h"

namespace trident {
namespace {

Table layouts_table(const std::vector<FoundLayout>& layouts, std::size_t first, const SearchResult& result) {
  Table table{"", {{"#"}, {"layout", true}, {"step"}, {"tokens/s"}, {"per GPU"}, {"MFU"}, {"memory"}, {"next limit", true}}};
  for (const FoundLayout& found : layouts)
    table.rows.push_back({fmt::format("{}", first++), to_string(found.layout), seconds_text(found.seconds),
                          rounded_text(found.tokens_per_second),
                          result.on_processors() ? "-" : rounded_text(found.tokens_per_second / result.gpus),
                          percent_digits(found.mfu) + " %",
                          bytes_text(found.needed_bytes) + room_text(static_cast<double>(found.needed_bytes),
                                                                     static_cast<double>(result.device_bytes)),
                          found.next_limit});
  return table;
}

Table flags_table(const std::vector<FoundLayout>& layouts) {
  Table table{"What trains them", {{"#"}, {"trident train --config FILE ...", true}}};
  for (std::size_t i = 0; i < layouts.size(); ++i)
    table.rows.push_back({fmt::format("{}", i + 1), settings_text(layouts[i])});
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
  page.sections.push_back({"The fastest", {std::move(looked), layouts_table(result.best, 1, result), flags_table(result.best),
                                           bars_of(result.best)}});
  if (!result.not_trainable.empty())
    page.sections.push_back({"Estimates beside them, not trainable yet",
                             {Paragraph{"Context parallel; sharding within groups of ranks."},
                              layouts_table(result.not_trainable, result.best.size() + 1, result)}});
  page.sections.push_back({"The fastest timed layout with another choice", {choices_table(result.best_by_choice)}});
  page.sections.push_back({"Not looked at, or not fitting", {rejections_table(result.rejections)}});
  return page;
}

}  // namespace trident
