// trident generate beside transformers' generate() (scripts/oracle/greedy_goldens.py): 32 new tokens of five prompts of unlike
// lengths in one batch, folders in fp32, bf16 and fp16.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/app/checkpoint_runs.h"

namespace trident {
namespace {

class GreedyGoldens : public ::testing::TestWithParam<std::string> {
 protected:
  std::string folder_ = TRIDENT_SOURCE_DIR "/tests/infer/goldens/" + GetParam();
  JsonValue golden_ = parse_json(read_file(folder_ + "/greedy.json"), "greedy.json");

  const JsonValue& run(const std::string& name) const { return *golden_.find("runs")->find(name); }

  // Every prompt of the golden in one command.
  ProgramOutcome generate(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"generate",
                                       "--hf",
                                       folder_,
                                       "--greedy",
                                       "--set",
                                       "precision.compute=fp32",
                                       "--max-new-tokens",
                                       fmt::format("{}", golden_.find("max_new_tokens")->as_integer())};
    for (const JsonValue& prompt : golden_.find("prompts")->items()) {
      std::vector<std::int64_t> ids;
      for (const JsonValue& id : prompt.items()) ids.push_back(id.as_integer());
      arguments = plus(arguments, {"--prompt-ids", fmt::format("{}", fmt::join(ids, " "))});
    }
    const ProgramOutcome outcome = succeeded(run_program(plus(arguments, more)));
    return outcome;
  }

  // What --print-ids should print.
  std::string lines_of(const std::string& name) const {
    std::string lines;
    for (const JsonValue& continuation : run(name).find("continuations")->items()) {
      std::vector<std::int64_t> ids;
      for (const JsonValue& id : continuation.find("ids")->items()) ids.push_back(id.as_integer());
      lines += fmt::format("{}\n", fmt::join(ids, " "));
    }
    return lines;
  }
};

INSTANTIATE_TEST_SUITE_P(Families, GreedyGoldens,
                         ::testing::Values("gpt2", "llama", "qwen2", "qwen3", "mistral", "olmo", "olmo2", "phi3", "llama_dynamic",
                                           "olmo_clipped"),
                         [](const auto& info) { return info.param; });

// The goldens tell something: no choice is near another, so that rounding cannot excuse another text.
TEST_P(GreedyGoldens, ChoicesAreClear) {
  EXPECT_GE(golden_.find("prompts")->items().size(), 5u);
  for (const char* name : {"plain", "penalty", "end"}) EXPECT_GE(run(name).find("gap")->as_number(), 1e-3) << name;
  EXPECT_NE(lines_of("plain"), lines_of("penalty"));
  EXPECT_NE(lines_of("plain"), lines_of("end"));
}

TEST_P(GreedyGoldens, TheTextIsThatOfTransformers) {
  const std::vector<std::string> plain{"--ignore-end", "--print-ids"};
  EXPECT_EQ(generate(plain).out, lines_of("plain"));
  EXPECT_EQ(generate(plus(plain, {"--batch", "2"})).out, lines_of("plain"));
  EXPECT_EQ(generate(plus(plain, {"--set", "parallel=2DP x 2PP x 2TP"})).out, lines_of("plain"));
}

TEST_P(GreedyGoldens, ARepetitionPenaltyChangesItAsThere) {
  const std::string penalty = fmt::format("{}", run("penalty").find("repetition_penalty")->as_number());
  const std::vector<std::string> flags{"--ignore-end", "--print-ids", "--repetition-penalty", penalty};
  EXPECT_EQ(generate(flags).out, lines_of("penalty"));
  EXPECT_EQ(generate(plus(flags, {"--set", "parallel.tensor=2"})).out, lines_of("penalty"));
}

// The folder's generation_config.json says which token, or which of two, ends a continuation; that token is shown.
TEST_P(GreedyGoldens, TheEndTokenEndsIt) { EXPECT_EQ(generate({"--print-ids"}).out, lines_of("end")); }

TEST_P(GreedyGoldens, LogProbabilitiesAreThoseOfTheModel) {
  for (const auto& [name, flags] :
       {std::pair<std::string, std::vector<std::string>>{"plain", {}},
        {"penalty", {"--repetition-penalty", fmt::format("{}", run("penalty").find("repetition_penalty")->as_number())}}}) {
    std::istringstream lines(generate(plus(flags, {"--ignore-end", "--logprobs", "--json"})).out);
    for (const JsonValue& expected : run(name).find("continuations")->items()) {
      std::string line;
      ASSERT_TRUE(std::getline(lines, line));
      const JsonValue value = parse_json(line, "generate --json");
      const JsonValue::Array &found = value.find("logprobs")->items(), &wanted = expected.find("logprobs")->items();
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i].as_number(), wanted[i].as_number(), 1e-4)  // f32 rounding of logits up to 70 large
            << name << " of prompt " << value.find("prompt")->as_integer() << ", token " << i;
      EXPECT_EQ(value.find("end")->as_string(), "length");
    }
  }
}

}  // namespace
}  // namespace trident
