#include "train/run/peak_flops.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace trident {

PeakFlops::PeakFlops(Measure measure, const Say& say, std::string_view why_unknown)
    : flops_(measure()), measure_(std::move(measure)) {
  if (!flops_) say(fmt::format("mfu is not shown: its peak could not be measured, as {}", why_unknown));
}

std::optional<double> PeakFlops::share(std::int64_t step, double flops, const Say& say, double computed_share) {
  if (!flops_) return std::nullopt;
  if (const double computed = flops * computed_share; computed > *flops_) {
    const Measure measure = std::exchange(measure_, {});
    const double before = *flops_, again = measure ? measure().value_or(0) : 0;
    flops_ = std::max(computed, again);
    say(fmt::format("mfu is a share of {:.4g} FLOP/s from step {} on, and was one of {:.4g}, which this step exceeds with {:.4g}: "
                    "other work had the cores while that was measured, and what was shown before is {:.3g} times too large",
                    *flops_, step, before, computed, *flops_ / before));
  }
  return flops / *flops_;
}

}  // namespace trident
