#include "core/printable.h"

#include <gtest/gtest.h>

#include <sstream>

#include "core/logging.h"

namespace trident {
namespace {

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

}  // namespace
}  // namespace trident
