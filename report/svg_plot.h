// Plots as SVG documents, legible on light and dark pages, that need nothing but themselves. All text of the values is escaped.
#pragma once

#include <string>

#include "report/plot.h"

namespace trident {

// 720 pixels wide. Throws InternalError for a line whose name is empty.
std::string line_plot_svg(const LinePlot& plot);

// Horizontal bars, from above. Throws InternalError where a bar has not a value for each part.
std::string stacked_bars_svg(const StackedBars& bars);

}  // namespace trident
