// Runs of the real program that are killed, and go on as if nobody had.
#include <random>
#include <string>
#include <vector>

#include "tests/app/checkpoint_runs.h"

namespace trident {
namespace {

// A run of so many steps, killed so often, has the metrics of one that nobody killed.
void expect_kills_cost_nothing(const Workplace& place, int steps, int kills) {
  const std::vector<std::string> settings{fmt::format("run.steps={}", steps), "checkpoint.every=3", "parallel.data=2"};
  ASSERT_EQ(place.train(plus(settings, {"run.dir=" + (place / "whole"), "checkpoint.every=0"})).exit_code, 0);
  // In the foreground it waits for the killed one, which a busy disk may hold for seconds; otherwise it kills itself as well. And
  // it ends as the program did: one that was done in the moment of the signal ended with 0.
  std::vector<std::string> words{"timeout", "--preserve-status", "--foreground", "-s",       "KILL",
                                 "",        TRIDENT_BINARY,      "train",        "--config", place / "config.json"};
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  std::mt19937 random(12);
  for (int i = 0; i < kills; ++i) {
    words[5] = fmt::format("{:.3f}", std::uniform_real_distribution(0.15, 1.5)(random));
    const ProgramOutcome killed = run_command(words);
    EXPECT_TRUE(killed.exit_code == 137 || killed.exit_code == 0) << killed.exit_code << killed.err;
  }
  const ProgramOutcome last = succeeded(place.train(settings));
  EXPECT_EQ(last.err.find("has no lines"), std::string::npos) << last.err;
  EXPECT_EQ(compared(place.metrics(), kComparedKeys), compared(place.metrics("whole"), kComparedKeys));
}

TEST_F(Checkpoints, AKillAtAnyMomentCostsNothingThatIsCommitted) { expect_kills_cost_nothing(place_, 30, 20); }

TEST_F(FullCheckpoints, AHundredKillsAtAnyMomentCostNothing) { expect_kills_cost_nothing(place_, 1000, 100); }

}  // namespace
}  // namespace trident
