#include "core/number_text.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <cstddef>
#include <string_view>
#include <utility>

namespace trident {
namespace {

// From here on all digits of a number are more than anybody reads, and more than a double has.
constexpr double kTooLong = 1e15;

// `text_of` for the absolute value, behind its sign.
template <class TextOf>
std::string with_sign(double value, TextOf text_of) {
  return value < 0 ? '-' + text_of(-value) : text_of(value);
}

// With as many digits behind the point, but for what is too long or not finite.
std::string fixed(double value, int digits) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  return std::abs(value) < kTooLong ? fmt::format("{:.{}f}", value, digits) : fmt::format("{:.4g}", value);
}

// The commas of a number without a sign.
std::string grouped(std::string digits) {
  for (auto at = std::ssize(digits) - 3; at > 0; at -= 3) digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

std::string positive_bytes(double bytes) {
  if (!std::isfinite(bytes) || bytes < 999.5) return fixed(bytes, 0) + " bytes";
  double value = bytes;
  for (const std::string_view unit : {"KB", "MB", "GB"}) {
    value /= 1000;
    if (value < 999.95) return fmt::format("{:.{}f} {}", value, unit == "GB" && value < 9.995 ? 2 : 1, unit);
  }
  value /= 1000;
  return fmt::format("{} TB", fixed(value, value < 9.995 ? 2 : 1));
}

std::string positive_seconds(double seconds) {
  const auto text = [](double value, std::string_view unit) {  // four digits
    return fmt::format("{:.{}f} {}", value, value >= 99.995 ? 1 : value >= 9.9995 ? 2 : 3, unit);
  };
  if (!std::isfinite(seconds)) return fixed(seconds, 0) + " s";
  if (seconds >= 2 * 86400) return fixed(seconds / 86400, 1) + " days";
  if (seconds >= 2 * 3600) return fixed(seconds / 3600, 1) + " hours";
  if (seconds >= 0.99995) return text(seconds, "s");
  if (seconds >= 0.99995e-3) return text(1e3 * seconds, "ms");
  return fmt::format("{:.4g} {}", seconds == 0 ? 0 : 1e6 * seconds, seconds == 0 ? "s" : "us");
}

}  // namespace

std::string bytes_text(double bytes) { return with_sign(bytes, positive_bytes); }

std::string gigabytes_text(double bytes, int digits) { return fixed(gigabytes(bytes), digits) + " GB"; }

std::string megabytes_text(double bytes, int digits) { return fixed(megabytes(bytes), digits) + " MB"; }

std::string seconds_text(double seconds) { return with_sign(seconds, positive_seconds); }

std::string percent_digits(double share) {
  const double percent = 100 * share;
  if (!std::isfinite(percent) || percent == 0 || std::abs(percent) >= 0.0995) return fixed(percent, 1);
  return fmt::format("{:.2g}", percent);
}

std::string utc_text(std::int64_t unix_seconds) {
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  if (::gmtime_r(&time, &parts) == nullptr) return fmt::format("{} s after 1970", unix_seconds);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string percent_text(double share) { return fixed(100 * share, 1) + " %"; }

std::string with_commas(std::int64_t count) {
  const std::string digits = fmt::format("{}", count);
  return count < 0 ? '-' + grouped(digits.substr(1)) : grouped(digits);
}

std::string rounded_text(double value) {
  return with_sign(value, [](double it) {
    if (!std::isfinite(it)) return fixed(it, 0);
    if (it < 999.95 || it >= kTooLong) return fmt::format("{:.4g}", it);
    const double unit = std::pow(10.0, std::floor(std::log10(it)) - 3);
    return grouped(fmt::format("{:.0f}", std::round(it / unit) * unit));
  });
}

std::string count_text(double count) {
  return with_sign(count, [](double it) {
    if (!std::isfinite(it)) return fixed(it, 0);
    for (const auto& [unit, name] : {std::pair(1e12, "trillion"), std::pair(1e9, "billion"), std::pair(1e6, "million")})
      if (it >= 0.99995 * unit) return fmt::format("{:.4g} {}", it / unit, name);
    return grouped(fmt::format("{:.0f}", it));
  });
}

std::string parameters_text(double count) {
  return with_sign(count, [](double it) {
    if (!std::isfinite(it)) return fixed(it, 0);
    for (const auto& [unit, letter] : {std::pair(1e12, 'T'), std::pair(1e9, 'B'), std::pair(1e6, 'M'), std::pair(1e3, 'K')})
      if (it >= 0.99995 * unit) return fmt::format("{:.4g}{}", it / unit, letter);
    return fixed(it, 0);
  });
}

}  // namespace trident
