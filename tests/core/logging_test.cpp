#include "core/logging.h"

#include <gtest/gtest.h>

#include <sstream>
#include <thread>
#include <vector>

namespace trident {
namespace {

TEST(Logging, TagsRankAndLevel) {
  std::ostringstream out;
  LogSink sink(out, LogLevel::kDebug);
  Logger(sink).info("plain {}", 1);
  const Logger rank(sink, 3);
  rank.info("hello");
  rank.warning("slow: {} s", 2.5);
  rank.error("gone");
  rank.debug("detail");
  EXPECT_EQ(out.str(), "plain 1\n[rank 3] hello\n[rank 3] warning: slow: 2.5 s\n[rank 3] error: gone\n[rank 3] debug: detail\n");
}

TEST(Logging, BelowTheThresholdNothingIsWritten) {
  std::ostringstream out;
  LogSink sink(out, LogLevel::kWarning);
  Logger(sink).info("no");
  sink.write(LogLevel::kDebug, "", "no");
  Logger(sink).warning("yes");
  EXPECT_EQ(out.str(), "warning: yes\n");
}

TEST(Logging, OneMessageIsOneLine) {
  std::ostringstream out;
  LogSink sink(out);
  Logger(sink).info("a\nb\x1b[31mc");
  EXPECT_EQ(out.str(), "a b [31mc\n");
}

// Shown lines may be dressed; whoever keeps lines gets them as they are, until the copy ends.
TEST(Logging, LinesAreDressedWhereTheyAreShownAndCopiedAsTheyAre) {
  std::ostringstream out;
  const auto dress = [](LogLevel level, const std::string& line) { return fmt::format("<{}> {}", to_string(level), line); };
  LogSink sink(out, LogLevel::kInfo, dress);
  std::vector<std::string> kept;
  Logger(sink).info("before");
  sink.copy_to([&kept](const std::string& line) { kept.push_back(line); });
  Logger(sink, 3).warning("a\nb");
  sink.copy_to({});
  Logger(sink).error("after");
  EXPECT_EQ(out.str(), "<info> before\n<warning> [rank 3] warning: a b\n<error> error: after\n");
  EXPECT_EQ(kept, std::vector<std::string>{"[rank 3] warning: a b"});
}

TEST(Logging, LinesOfThreadsDoNotMix) {
  std::ostringstream out;
  LogSink sink(out);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank)
    threads.emplace_back([&sink, rank] {
      const Logger logger(sink, rank);
      for (int i = 0; i < 200; ++i) logger.info("{}", std::string(20, static_cast<char>('a' + rank)));
    });
  for (std::thread& thread : threads) thread.join();
  std::istringstream lines(out.str());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const char rank = line.at(6);
    EXPECT_EQ(line, std::string("[rank ") + rank + "] " + std::string(20, static_cast<char>('a' + (rank - '0'))));
  }
  EXPECT_EQ(count, 800);
}

}  // namespace
}  // namespace trident
