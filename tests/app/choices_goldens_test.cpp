// trident eval --choices beside lm-evaluation-harness (scripts/oracle/choices_goldens.py): its own questions, model and tokenizer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/app/checkpoint_runs.h"

namespace trident {
namespace {

const std::string kFolder = TRIDENT_SOURCE_DIR "/tests/app/goldens/choices/";

class ChoicesGoldens : public ::testing::TestWithParam<std::string> {
 protected:
  JsonValue golden_ = parse_json(read_file(kFolder + GetParam() + ".json"), "golden");

  JsonValue eval(const std::vector<std::string>& more = {}) const {
    const ProgramOutcome outcome =
        succeeded(run_program(plus({"eval", "--hf", kFolder, "--tokenizer", kFolder, "--choices", kFolder + GetParam() + ".jsonl",
                                    "--per-question", "--json", "--set", "precision.compute=fp32"},
                                   more)));
    if (outcome.exit_code != 0) throw std::runtime_error(outcome.err);
    return parse_json(outcome.out, "eval --json");
  }

  void expect_golden(const JsonValue& report) const {
    EXPECT_NEAR(report.find("acc")->as_number(), golden_.find("acc")->as_number(), 1e-12);
    EXPECT_NEAR(report.find("acc_norm")->as_number(), golden_.find("acc_norm")->as_number(), 1e-12);
    const JsonValue::Array &answers = report.find("answers")->items(), &expected = golden_.find("log_likelihoods")->items();
    ASSERT_EQ(answers.size(), expected.size());
    for (std::size_t q = 0; q < answers.size(); ++q) {
      const JsonValue::Array &found = answers[q].find("log_likelihoods")->items(), &wanted = expected[q].items();
      ASSERT_EQ(found.size(), wanted.size()) << "question " << q;
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i].as_number(), wanted[i].as_number(), 1e-5 * std::abs(wanted[i].as_number()))
            << "question " << q << ", choice " << i;
      // The harness says of each question whether it was right, so that two wrong ones do not make up for each other.
      const std::int64_t answer = answer_of(q);
      EXPECT_EQ(answers[q].find("chosen")->as_integer() == answer, golden_.find("acc_of")->items()[q].as_number() == 1.0) << q;
      EXPECT_EQ(answers[q].find("chosen_norm")->as_integer() == answer, golden_.find("acc_norm_of")->items()[q].as_number() == 1.0)
          << q;
    }
  }

 private:
  static std::int64_t answer_of(std::size_t question) {
    const std::string text = read_file(kFolder + GetParam() + ".jsonl");
    std::size_t begin = 0;
    for (; question > 0; --question) begin = text.find('\n', begin) + 1;
    return parse_json(text.substr(begin, text.find('\n', begin) - begin), "question").find("answer")->as_integer();
  }
};

INSTANTIATE_TEST_SUITE_P(Sets, ChoicesGoldens, ::testing::Values("usual", "spaces", "unicode", "long", "empty"),
                         [](const auto& info) { return info.param; });

TEST_P(ChoicesGoldens, LogLikelihoodsAccAndAccNormAreThoseOfTheHarness) { expect_golden(eval()); }

TEST_P(ChoicesGoldens, InEveryLayout) {
  const JsonValue one = eval();
  EXPECT_EQ(to_json_text(*eval({"--set", "parallel=3DP x 2PP", "--set", "parallel.zero=zero3"}).find("answers")),
            to_json_text(*one.find("answers")));
  expect_golden(eval({"--set", "parallel=1DP x 2PP x 2TP", "--set", "batch.micro=4"}));
}

// Sets that could not tell the rules from simpler ones would be no proof of them.
TEST(ChoicesSets, TellTheRulesApart) {
  int different = 0;
  for (const char* set : {"usual", "spaces", "unicode", "long", "empty"}) {
    const JsonValue golden = parse_json(read_file(kFolder + set + ".json"), "golden");
    different += golden.find("acc")->as_number() != golden.find("acc_norm")->as_number();
  }
  EXPECT_GE(different, 3) << "dividing by lengths changes who is right";
}

}  // namespace
}  // namespace trident
