// Numbers with units as people read them. Units are powers of ten: 1 GB is 10^9 bytes. What is not finite is "nan", "inf" or "-inf"
// with the unit it would have had as 0; of a negative number what is said of the positive one, behind a minus.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>

namespace trident {

template <class Bytes>
constexpr double megabytes(Bytes bytes) { return 1e-6 * static_cast<double>(bytes); }
template <class Bytes>
constexpr double gigabytes(Bytes bytes) { return 1e-9 * static_cast<double>(bytes); }

// In the unit that suits: "0 bytes", "1.5 KB", "403.1 MB", "1.04 GB", "31.3 GB", "3000.0 TB".
std::string bytes_text(double bytes);
std::string bytes_text(std::integral auto bytes) { return bytes_text(static_cast<double>(bytes)); }
// In one unit, for numbers that are compared: "0.4 GB", "403.08 MB".
std::string gigabytes_text(double bytes, int digits = 1);
std::string gigabytes_text(std::integral auto bytes, int digits = 1) { return gigabytes_text(static_cast<double>(bytes), digits); }
std::string megabytes_text(double bytes, int digits = 1);
std::string megabytes_text(std::integral auto bytes, int digits = 1) { return megabytes_text(static_cast<double>(bytes), digits); }

// "1.5 us", "12.30 ms", "8.939 s", "2.1 hours", "3.0 days".
std::string seconds_text(double seconds);

// "2026-11-28 17:00:56 UTC".
std::string utc_text(std::int64_t unix_seconds);

// "31.4 %" of 0.314.
std::string percent_text(double share);
// "31.4" of 0.314; below a tenth of a percent two significant digits: "0.024".
std::string percent_digits(double share);

// Every digit: "1,234,567".
std::string with_commas(std::int64_t count);
// Four significant digits: "2.5", "252,300".
std::string rounded_text(double value);
// In words: "12,345", "298.8 billion".
std::string count_text(double count);
// As models are called: "5.412K", "124.4M", "6.738B".
std::string parameters_text(double count);

}  // namespace trident
