// Folders of every family as transformers saved them, continued by one token after each of their prefixes: transformers' likeliest
// token with its log-probability.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "core/check.h"
#include "infer/generate/run_generate.h"
#include "tests/support/error_text.h"
#include "tests/support/family_golden.h"

namespace trident {
namespace {

std::optional<GenerateResult> generate(const GenerateOptions& options) {
  std::ostringstream said;
  LogSink log(said);
  return run_generate([&] { return options; }, {}, log, *make_cuda_backend());
}

class FamilyGoldens : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, FamilyGoldens, ::testing::ValuesIn(testing::family_golden_names()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '.', '_');
  return name;
});

TEST_P(FamilyGoldens, TheNextTokenAfterEveryPrefixIsThatOfTransformers) {
  const testing::FamilyGolden golden = testing::read_family_golden(TRIDENT_FAMILY_GOLDENS, GetParam());
  GenerateOptions options;
  options.hf_folder = std::string(TRIDENT_FAMILY_GOLDENS) + "/" + GetParam();
  options.max_new_tokens = 1;
  options.sampling.temperature = 0;
  // A prompt and its new token may not be longer than a sliding window.
  const std::int64_t window = golden.model.sliding_window;
  const std::int64_t longest = window > 0 ? std::min(window - 1, testing::kFamilySequence) : testing::kFamilySequence;
  ASSERT_GE(longest, 15);
  // The golden's sequences are longer than longrope's original context, and turn by the angles of such.
  const bool long_angles = golden.model.rope.scaling == RopeScaling::kLongRope;
  const bool own_angles = golden.model.rope.scaling == RopeScaling::kDynamic;  // shorter sequences turn by others
  const std::int64_t shortest = own_angles ? longest : long_angles ? golden.model.rope.original_max_positions + 1 : 1;
  std::vector<std::size_t> rows;  // of the logits
  for (std::int64_t sample = 0; sample < testing::kFamilyShown; ++sample) {
    for (std::int64_t length = shortest; length <= longest; ++length) {
      rows.push_back(static_cast<std::size_t>(sample * testing::kFamilySequence + length - 1));
      Prompt& prompt = options.prompts.emplace_back();
      for (std::int64_t s = 0; s < length; ++s) prompt.ids.push_back(golden.token(0, sample, s));
    }
  }
  const auto vocabulary = static_cast<std::size_t>(golden.model.vocab_size);
  for (const std::vector<std::string>& layout : {std::vector<std::string>{"precision.compute=fp32"},
                                                 {"precision.compute=fp32", "parallel.tensor=2", "parallel.pipeline=2"}}) {
    options.settings = layout;
    const std::optional<GenerateResult> result = generate(options);
    ASSERT_TRUE(result);
    ASSERT_EQ(result->continuations.size(), options.prompts.size());
    for (std::size_t i = 0; i < options.prompts.size(); ++i) {
      const float* const logits = golden.logits.data() + rows[i] * vocabulary;
      const auto likeliest = std::max_element(logits, logits + vocabulary) - logits;
      double sum = 0;
      for (std::size_t v = 0; v < vocabulary; ++v) sum += std::exp(static_cast<double>(logits[v]) - logits[likeliest]);
      EXPECT_EQ(result->continuations[i].ids, std::vector<std::int32_t>{static_cast<std::int32_t>(likeliest)}) << "prefix " << i;
      EXPECT_NEAR(result->continuations[i].log_probabilities[0], -std::log(sum), 1e-5) << "prefix " << i;
    }
  }
}

TEST(FamilyWindow, ATokenBeyondItIsRefused) {
  const std::string folder = std::string(TRIDENT_FAMILY_GOLDENS) + "/mistral";
  GenerateOptions options;
  options.hf_folder = folder;
  options.prompts = {{.ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}};
  options.ignore_end = true;
  options.sampling.temperature = 0;
  options.max_new_tokens = 6;
  ASSERT_EQ(generate(options)->continuations[0].ids.size(), 6u);
  options.max_new_tokens = 7;
  expect_parts(error_of<ConfigError>([&] { generate(options); }),
               {"--max-new-tokens = 7: with the longest prompt, of 10 tokens, that is more than the sliding "
                "window of 16 tokens"});
}

TEST(FamilyEnd, TheFoldersEndTokenEndsAContinuationUnlessItIsIgnored) {
  GenerateOptions options;
  options.hf_folder = std::string(TRIDENT_FAMILY_GOLDENS) + "/llama";  // eos_token_id 1
  options.prompts = {{.ids = {5, 9}}};
  options.samples = 40;
  options.max_new_tokens = 20;
  options.sampling.temperature = 3;
  const std::vector<Continuation> ended = generate(options)->continuations;
  options.ignore_end = true;
  const std::vector<Continuation> whole = generate(options)->continuations;
  int ends = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const auto& ids = whole[i].ids;
    ASSERT_EQ(ids.size(), 20u);
    const auto at = std::ranges::find(ids, 1);
    EXPECT_EQ(ended[i].ids, std::vector<std::int32_t>(ids.begin(), at == ids.end() ? at : at + 1)) << "sample " << i;
    ends += at != ids.end();
  }
  EXPECT_GT(ends, 3);
}

}  // namespace
}  // namespace trident
