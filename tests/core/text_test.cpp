// Numbers as people read them: each function at 0, below it, at the borders of its units, very small, very large, and not finite.
#include "core/number_text.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>

#include "core/logging.h"
#include "core/nearest_name.h"
#include "core/printable.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity(), kNone = std::numeric_limits<double>::quiet_NaN(),
                 kLargest = std::numeric_limits<double>::max(), kSmallest = std::numeric_limits<double>::denorm_min();

TEST(NumberText, BytesHaveTheUnitThatSuits) {
  EXPECT_EQ(bytes_text(0), "0 bytes");
  EXPECT_EQ(bytes_text(999), "999 bytes");
  EXPECT_EQ(bytes_text(999.6), "1.0 KB");
  EXPECT_EQ(bytes_text(1500), "1.5 KB");
  EXPECT_EQ(bytes_text(999'949), "999.9 KB");
  EXPECT_EQ(bytes_text(999'960), "1.0 MB");
  EXPECT_EQ(bytes_text(403.08e6), "403.1 MB");
  EXPECT_EQ(bytes_text(999.96e6), "1.00 GB");
  EXPECT_EQ(bytes_text(1.0355e9), "1.04 GB");
  EXPECT_EQ(bytes_text(9.996e9), "10.0 GB");
  EXPECT_EQ(bytes_text(31.27e9), "31.3 GB");
  EXPECT_EQ(bytes_text(9.9e12), "9.90 TB");
  EXPECT_EQ(bytes_text(23.062e12), "23.1 TB");
  EXPECT_EQ(bytes_text(3e15), "3000.0 TB");
  EXPECT_EQ(bytes_text(1e30), "1e+18 TB");
  EXPECT_EQ(bytes_text(-1500), "-1.5 KB");
  EXPECT_EQ(bytes_text(kSmallest), "0 bytes");
  EXPECT_EQ(bytes_text(kInfinite), "inf bytes");
  EXPECT_EQ(bytes_text(-kInfinite), "-inf bytes");
  EXPECT_EQ(bytes_text(kNone), "nan bytes");
  EXPECT_EQ(bytes_text(-kNone), "nan bytes");
}

TEST(NumberText, ComparedBytesHaveOneUnit) {
  EXPECT_EQ(gigabytes_text(0), "0.0 GB");
  EXPECT_EQ(gigabytes_text(0.36e9), "0.4 GB");
  EXPECT_EQ(gigabytes_text(-84.93e9, 2), "-84.93 GB");
  EXPECT_EQ(gigabytes_text(1e30), "1e+21 GB");
  EXPECT_EQ(gigabytes_text(kNone), "nan GB");
  EXPECT_EQ(megabytes_text(403.08e6, 2), "403.08 MB");
  EXPECT_EQ(megabytes_text(1e3, 3), "0.001 MB");
  EXPECT_EQ(megabytes_text(-kInfinite), "-inf MB");
  EXPECT_EQ(gigabytes(2.5e9), 2.5);
  EXPECT_EQ(megabytes(2.5e6), 2.5);
}

TEST(NumberText, SecondsHaveFourDigits) {
  EXPECT_EQ(seconds_text(0), "0 s");
  EXPECT_EQ(seconds_text(1.5e-6), "1.5 us");
  EXPECT_EQ(seconds_text(1e-13), "1e-07 us");
  EXPECT_EQ(seconds_text(0.99996e-3), "1.000 ms");
  EXPECT_EQ(seconds_text(0.0123), "12.30 ms");
  EXPECT_EQ(seconds_text(0.61677), "616.8 ms");
  EXPECT_EQ(seconds_text(0.99996), "1.000 s");
  EXPECT_EQ(seconds_text(8.9386), "8.939 s");
  EXPECT_EQ(seconds_text(9.9996), "10.00 s");
  EXPECT_EQ(seconds_text(99.996), "100.0 s");
  EXPECT_EQ(seconds_text(7199), "7199.0 s");
  EXPECT_EQ(seconds_text(7200), "2.0 hours");
  EXPECT_EQ(seconds_text(3 * 86400), "3.0 days");
  EXPECT_EQ(seconds_text(-0.0123), "-12.30 ms");
  expect_parts(seconds_text(kLargest), {"e+303 days"});
  EXPECT_EQ(seconds_text(kInfinite), "inf s");
  EXPECT_EQ(seconds_text(kNone), "nan s");
}

TEST(NumberText, SharesArePercent) {
  EXPECT_EQ(percent_text(0), "0.0 %");
  EXPECT_EQ(percent_text(0.3141), "31.4 %");
  EXPECT_EQ(percent_digits(0.3141), "31.4");
  EXPECT_EQ(percent_digits(0.001), "0.1");
  EXPECT_EQ(percent_digits(0.000236), "0.024");
  EXPECT_EQ(percent_digits(0), "0.0");
  EXPECT_EQ(percent_text(-0.5), "-50.0 %");
  EXPECT_EQ(percent_text(1e-9), "0.0 %");
  EXPECT_EQ(percent_text(1e20), "1e+22 %");
  EXPECT_EQ(percent_text(kNone), "nan %");
}

TEST(NumberText, CountsHaveCommas) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(with_commas(-123456), "-123,456");
  EXPECT_EQ(with_commas(-12), "-12");
  EXPECT_EQ(with_commas(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
  EXPECT_EQ(rounded_text(0), "0");
  EXPECT_EQ(rounded_text(2.5), "2.5");
  EXPECT_EQ(rounded_text(999.94), "999.9");
  EXPECT_EQ(rounded_text(999.96), "1,000");
  EXPECT_EQ(rounded_text(9999.6), "10,000");
  EXPECT_EQ(rounded_text(252345), "252,300");
  EXPECT_EQ(rounded_text(-4878123), "-4,878,000");
  EXPECT_EQ(rounded_text(1e-9), "1e-09");
  EXPECT_EQ(rounded_text(kLargest), "1.798e+308");
  EXPECT_EQ(rounded_text(-kInfinite), "-inf");
  EXPECT_EQ(rounded_text(kNone), "nan");
}

TEST(NumberText, LargeCountsAreInWordsOrLetters) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(4096), "4,096");
  EXPECT_EQ(count_text(999'990), "1 million");
  EXPECT_EQ(count_text(2.988e11), "298.8 billion");
  EXPECT_EQ(count_text(15e12), "15 trillion");
  EXPECT_EQ(count_text(-2e9), "-2 billion");
  EXPECT_EQ(count_text(kInfinite), "inf");
  EXPECT_EQ(count_text(kNone), "nan");
  EXPECT_EQ(parameters_text(0), "0");
  EXPECT_EQ(parameters_text(912), "912");
  EXPECT_EQ(parameters_text(5'412), "5.412K");
  EXPECT_EQ(parameters_text(124.44e6), "124.4M");
  EXPECT_EQ(parameters_text(999.99e6), "1B");
  EXPECT_EQ(parameters_text(6.7384e9), "6.738B");
  EXPECT_EQ(parameters_text(1e12), "1T");
  EXPECT_EQ(parameters_text(-7e9), "-7B");
  EXPECT_EQ(parameters_text(kNone), "nan");
}

TEST(Printable, TextStaysAndControlsGo) {
  EXPECT_EQ(on_one_line("caf\xC3\xA9 \xE4\xB8\xAD \xF0\x9F\x98\x80"), "caf\xC3\xA9 \xE4\xB8\xAD \xF0\x9F\x98\x80");
  EXPECT_EQ(on_one_line("a\nb\tc\x1b[31m\x7f"), "a b c [31m ");
  EXPECT_EQ(on_one_line("\xC2\x9B" "31m"), " 31m") << "C1: the one-character form of escape [";
  EXPECT_EQ(on_one_line("\x9B" "31m"), "\xEF\xBF\xBD" "31m") << "the same as one byte, for terminals that are not UTF-8";
  EXPECT_EQ(on_one_line("a\xE2\x80\xAE"
                        "b\xE2\x81\xA6"
                        "c\xE2\x80\x8F"
                        "d\xD8\x9C"),
            "a b c d ")
      << "marks that turn the direction";
  EXPECT_EQ(on_one_line("a\xE2\x80\xA8" "b\xEF\xBB\xBF"), "a b ") << "line separator, byte order mark";
}

TEST(Printable, TextKeepsItsLinesAndTabs) {
  EXPECT_EQ(on_lines("a\n\tb\x1b[31m\r\xC2\x9B" "c"), "a\n\tb\xEF\xBF\xBD[31m\xEF\xBF\xBD\xEF\xBF\xBD" "c");
  EXPECT_EQ(on_lines("a,b\r\nc\r\n\r"), "a,b\r\nc\r\n\xEF\xBF\xBD");
}

TEST(Printable, LogLinesAreHarmless) {
  std::ostringstream out;
  LogSink sink(out);
  sink.write(LogLevel::kError, "", "file \xC2\x9B" "2J\xE2\x80\xAE.txt");
  EXPECT_EQ(out.str(), "error: file  2J .txt\n");
}

TEST(NearestName, CountsEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("same", "SAME"), 0u);
  EXPECT_EQ(edit_distance("etnsor", "tensor"), 1u) << "a swap is one edit";
}

TEST(NearestName, IsTheFirstOfTheClosestThatAreNear) {
  using Names = std::vector<std::string_view>;
  const struct {
    std::string name;
    Names candidates;
    std::string_view near;
  } cases[] = {
      {"abd", {"xyz", "abc", "abe"}, "abc"},
      {"tensr", {"data", "tensor"}, "tensor"},
      {"TENSOR", {"data", "tensor"}, "tensor"},
      {"etnsor", {"data", "tensor"}, "tensor"},
      {"ab", {"c", "abx"}, "abx"},
      {"sequnec", {"data", "sequence"}, "sequence"},
      {"num_hidden_layer", {"num_hidden_layers"}, "num_hidden_layers"},
      {"intermedaite_szie", {"intermediate_size"}, "intermediate_size"},
      // Half of a short word, or more than three letters of a long one, is another word.
      {"mlp", {"help"}, ""},
      {"lora", {"log"}, ""},
      {"muon", {"lion"}, ""},
      {"abcd", {"abxx"}, ""},
      {"use_sliding_window", {"sliding_window"}, ""},
      {"attention_multiplier", {"attention_dropout"}, ""},
      {"completely", {"data", "tensor"}, ""},
      {std::string(1000, 'x'), {"data"}, ""},
      {"abd", {}, ""},
  };
  for (const auto& [name, candidates, near] : cases) EXPECT_EQ(likely_name(name, candidates), near) << name;
}

TEST(NearestName, ABeginningMeansTheFirstNameThatHasIt) {
  const std::vector<std::string_view> names{"gpt2-124m", "llama-1m", "llama-15m", "qwen2.5-7b", "a10_pcie", "h100_sxm_ndr", "cpu"};
  for (const auto& [name, near] : {std::pair{"lama", "llama-1m"}, {"llama-15n", "llama-15m"}, {"gpt", "gpt2-124m"},
                                   {"qwen", "qwen2.5-7b"}, {"h10", "h100_sxm_ndr"}, {"h100_sxm", "h100_sxm_ndr"}, {"cpi", "cpu"}})
    EXPECT_EQ(name_hint(name, names), fmt::format("; did you mean \"{}\"?", near)) << name;
  for (const std::string_view name : {"bert", "124m", "sxm", ""}) EXPECT_EQ(name_hint(name, names), "") << name;
}

TEST(ExpectParts, APartThatIsMissingIsAFailure) {
  expect_parts("one two", {"one", "two"});
  EXPECT_NONFATAL_FAILURE(expect_parts("one two", {"one", "three"}), "no \"three\" in: one two");
}

}  // namespace
}  // namespace trident
