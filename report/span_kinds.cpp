#include "report/span_kinds.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "core/at.h"

namespace trident {

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
