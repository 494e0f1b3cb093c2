// The colours of reports: each has a value for light pages and one for dark ones (assets/page.css, svg_plot.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trident {

enum class Hue : std::uint8_t {
  kBlue,
  kGreen,
  kOrange,
  kPurple,
  kGold,
  kPink,
  kTeal,
  kRed,
  kBrown,
  kGrey,
  kLightBlue,
  kLightGreen
};
inline constexpr std::size_t kNumHues = 12;

struct HueColors {
  std::string_view light, dark;
};
inline constexpr std::array<HueColors, kNumHues> kHueColors = {{{"#3f7fe0", "#4c8bf0"},
                                                                {"#1f9a7d", "#22a184"},
                                                                {"#e8842c", "#f0954a"},
                                                                {"#8a63d2", "#a07be6"},
                                                                {"#c9a227", "#d9b437"},
                                                                {"#d6408b", "#e86aa6"},
                                                                {"#1a94b0", "#3fb4cf"},
                                                                {"#cf3b3b", "#f0706a"},
                                                                {"#8d6e52", "#b08d6e"},
                                                                {"#9aa4af", "#5d6773"},
                                                                {"#9cc0f5", "#2f5796"},
                                                                {"#8fd1bf", "#176652"}}};

// The n-th of things that have no colour of their own.
constexpr Hue hue_of(std::size_t n) { return static_cast<Hue>(n % kNumHues); }

// A name that a legend explains.
struct LegendKey {
  std::string name;
  Hue hue = Hue::kBlue;
};

}  // namespace trident
