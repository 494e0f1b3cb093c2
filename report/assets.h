// The styles and scripts of pages: the files of assets/, whole.
#pragma once

#include <string_view>

namespace trident {

std::string_view page_style();
std::string_view timeline_script();
std::string_view chart_script();
std::string_view uplot_script();
std::string_view uplot_style();
std::string_view uplot_license();

}  // namespace trident
