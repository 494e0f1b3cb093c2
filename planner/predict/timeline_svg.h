// One training step as a picture: every pipeline rank's instructions over time, from the simulated step programs.
#pragma once

#include <cstdint>
#include <string>

#include "train/plan/run_plan.h"

namespace trident {

// The simulator gets these besides unit_costs(), which prices computes (a tensor-parallel rank does its share of them). Bytes are
// priced by assumption, since a picture drawn before a run cannot have measured them; the picture's caption states both numbers.
inline constexpr double kTimelineFlopsPerByteSent = 32;    // gathers, reductions
inline constexpr double kTimelineFlopsPerByteTouched = 4;  // optimizer steps: gradient, master, moments, new values

// Forwards and backwards of units that a picture has room for: more are bars too thin to be told apart, and megabytes that few
// viewers open.
inline constexpr std::int64_t kMostDrawnPasses = 1 << 15;
// ConfigError where a step of `config` has more, before anything is laid out.
void check_can_be_drawn(const TrainConfig& config, const ModelConfig& model);

// An SVG document, legible on light and dark pages. One <rect class="bar ..."> per compute instruction (a unit's forward or
// backward of one micro-batch), one class="comm ..." per gather and reduction, one class="step" per optimizer step; all ranks are
// named by their coordinates. Pure: the same text on every machine.
std::string timeline_svg(const RunPlan& plan);

}  // namespace trident
