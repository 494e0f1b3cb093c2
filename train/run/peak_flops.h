// The FLOP/s that mfu is a share of.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "train/run/load_checkpoint.h"

namespace trident {

// One value for all steps of a start. A step that computes faster than the peak shows that the peak was too low, so it is raised,
// which is said, and later shares are of the new one.
class PeakFlops {
 public:
  // Nothing: it is not known, and there are no shares.
  using Measure = std::function<std::optional<double>()>;

  PeakFlops() = default;
  // `measure`: called now, and once more where a step is faster than what it returned. `why_unknown`: said
  // where it returns nothing.
  PeakFlops(Measure measure, const Say& say, std::string_view why_unknown = "other programs had the cores");

  // The share of a step that made `flops` model FLOPs per second and computed `computed_share` of them, because attention saw no
  // more: such a share may be above 1.
  std::optional<double> share(std::int64_t step, double flops, const Say& say, double computed_share = 1);

 private:
  std::optional<double> flops_;
  Measure measure_;
};

}  // namespace trident
