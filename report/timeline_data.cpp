#include "report/timeline_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "core/at.h"
#include "core/json_reader.h"
#include "core/printable.h"
#include "report/markup.h"

namespace trident {
namespace {

// Built as text: a long step has a million numbers.
struct LaneText {
  std::string start, length, kind, what, number;
  void add(std::int64_t at, std::int64_t duration, int of_kind, std::size_t text, int micro_batch) {
    const std::string_view comma = start.empty() ? "" : ",";
    start += fmt::format("{}{}", comma, at);
    length += fmt::format("{}{}", comma, duration);
    kind += fmt::format("{}{}", comma, of_kind);
    what += fmt::format("{}{}", comma, text);
    number += fmt::format("{}{}", comma, micro_batch);
  }
  std::string json() const {
    return fmt::format("{{\"start\":[{}],\"length\":[{}],\"kind\":[{}],\"what\":[{}],\"number\":[{}]}}", start, length, kind, what,
                       number);
  }
};

std::int64_t nanoseconds(double seconds) { return std::llround(1e9 * seconds); }

}  // namespace

std::string timeline_json(const Timeline& timeline) {
  std::map<std::string, std::size_t, std::less<>> numbers;
  JsonValue::Array texts, kinds;
  std::int64_t end = 0;
  std::string rows;
  for (const TimelineRow& row : timeline.rows) {
    std::array<LaneText, 2> lanes;
    for (const TimelineSpan& span : row.spans) {
      const auto [found, is_new] = numbers.try_emplace(span.what, numbers.size());
      if (is_new) texts.emplace_back(on_one_line(span.what));
      const std::int64_t from = nanoseconds(span.start), to = nanoseconds(span.end);
      lanes[span.beside ? 1 : 0].add(from, to - from, span.kind, found->second, span.number);
      end = std::max(end, to);
    }
    rows += fmt::format("{}{{\"name\":{},\"lanes\":[{},{}]}}", rows.empty() ? "" : ",",
                        script_json(JsonValue(on_one_line(row.name))), lanes[0].json(), lanes[1].json());
  }
  for (const LegendKey& kind : timeline.kinds)
    kinds.emplace_back(JsonValue::Array{JsonValue(on_one_line(kind.name)), JsonValue(static_cast<int>(kind.hue))});
  return fmt::format("{{\"title\":{},\"end\":{},\"kinds\":{},\"what\":{},\"rows\":[{}]}}",
                     script_json(JsonValue(on_one_line(timeline.title))), end, script_json(JsonValue(std::move(kinds))),
                     script_json(JsonValue(std::move(texts))), rows);
}

std::array<LegendKey, kNumSpanKinds> span_kinds() {
  return {{{"forward", Hue::kBlue},
           {"forward, odd chunks", Hue::kLightBlue},
           {"backward", Hue::kGreen},
           {"backward, odd chunks", Hue::kLightGreen},
           {"weight gradients", Hue::kTeal},
           {"waiting", Hue::kGrey},
           {"gather parameters", Hue::kPurple},
           {"reduce gradients", Hue::kOrange},
           {"optimizer step", Hue::kGold},
           {"gradient norm", Hue::kPink},
           {"tied gradients", Hue::kBrown}}};
}

void leave_out_unused(Timeline& timeline) {
  std::vector<std::int32_t> number(timeline.kinds.size(), -1);
  for (const TimelineRow& row : timeline.rows)
    for (const TimelineSpan& span : row.spans) at(number, span.kind) = 0;
  std::vector<LegendKey> kinds;
  for (std::size_t kind = 0; kind < number.size(); ++kind) {
    if (number[kind] < 0) continue;
    number[kind] = static_cast<std::int32_t>(kinds.size());
    kinds.push_back(timeline.kinds[kind]);
  }
  for (TimelineRow& row : timeline.rows)
    for (TimelineSpan& span : row.spans) span.kind = at(number, span.kind);
  timeline.kinds = std::move(kinds);
}

}  // namespace trident
