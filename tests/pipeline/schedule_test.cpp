// Text form, parser and picture of schedules.
#include "pipeline/schedule/schedule.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "pipeline/schedule/schedule_generators.h"
#include "tests/pipeline/schedule_text.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

// The message of the ConfigError that parsing `text` throws.
std::string parse_error(const std::string& text) {
  return error_of<ConfigError>([&] { parse_schedule(text); });
}

TEST(Schedule, VirtualStagesGoRoundTheRanks) {
  const Schedule schedule = make_interleaved(4, 2, 4);
  EXPECT_EQ(schedule.num_virtual_stages(), 8);
  EXPECT_EQ(schedule.rank_of(5), 1);
  EXPECT_EQ(schedule.chunk_of(5), 1);
}

TEST(Schedule, TextOfOneForwardOneBackward) {
  EXPECT_EQ(to_text(make_1f1b(2, 3)),
            "p=2 v=1 m=3\n"
            "0F0 0F1 0B0 0F2 0B1 0B2\n"
            "1F0 1B0 1F1 1B1 1F2 1B2\n");
}

TEST(Schedule, TextRoundTrip) {
  for (int p = 1; p <= 4; ++p)
    for (int v = 1; v <= 3; ++v)
      for (const Schedule& s : {make_gpipe(p, 5), make_1f1b(p, 5), make_interleaved(p, v, 2 * p), make_forward_only(p, v, 5)})
        EXPECT_EQ(parse_schedule(to_text(s)), s);
}

TEST(Schedule, ParsesSplitBackward) {
  const Schedule s = parse_schedule("p=1 v=1 m=1\n0F0 0I0 0W0\n");
  EXPECT_EQ(s.ranks[0][1], (Action{ActionKind::kBackwardInput, 0, 0}));
  EXPECT_EQ(s.ranks[0][2], (Action{ActionKind::kBackwardWeight, 0, 0}));
}

TEST(Schedule, ParseErrorsNameRankAndColumn) {
  for (const char* word : {"F0", "0X1", "0F", "0F1x", "99999999999F0", "-1F0", "0"})
    EXPECT_EQ(parse_error(fmt::format("p=2 v=1 m=1\n0F0 0B0\n1F0 {}\n", word)),
              fmt::format("schedule, rank 1, column 1 = '{}': expected <virtual stage><F|B|I|W><micro-batch>, as in 0F2", word));
}

TEST(Schedule, ParseErrorsOfTheForm) {
  EXPECT_EQ(parse_error("p=2 v=1 m=1\n0F0\n"), "schedule: 1 lines of actions for p=2; one line per rank is needed");
  for (const char* header : {"", "p=2", "p=2 v=1 m=0", "p=2 v=1 m=x", "v=2 p=1 m=1", "p=2 v=1 m=1 k=1", "p=2x v=1 m=1"})
    EXPECT_EQ(parse_error(header), fmt::format("schedule, first line = '{}': expected 'p=2 v=1 m=4', each at least 1", header));
}

TEST(Schedule, GridOfOneForwardOneBackward) {
  EXPECT_EQ(to_grid(make_1f1b(2, 2)),
            "rank 0 | 0F0 0F1 .   .   0B0 --- .   0B1 ---\n"
            "rank 1 | .   1F0 1B0 --- 1F1 1B1 --- .   .\n");
}

TEST(Schedule, GridOfInterleaved) {
  EXPECT_EQ(to_grid(make_interleaved(2, 2, 2)),
            "rank 0 | 0F0 0F1 2F0 2F1 .   .   2B0 --- .   2B1 --- 0B0 --- 0B1 ---\n"
            "rank 1 | .   1F0 1F1 3F0 3B0 --- 3F1 3B1 --- 1B0 --- 1B1 --- .   .\n");
}

}  // namespace
}  // namespace trident
