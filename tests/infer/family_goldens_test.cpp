// Folders of every family as transformers saved them, continued by one token after each of their prefixes: transformers' likeliest
// token with its log-probability.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

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
  const std::int64_t longest = testing::kFamilySequence;
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

// A cache that is bounded by the window moves its last keys to the front many times here: each token is what the whole text, read
// anew, says.
TEST(FamilyWindow, ATextManyTimesAsLongAsItReadsAsIfRecomputed) {
  for (const char* family : {"mistral_windowed", "qwen3_mixed"}) {  // of 64 positions, 5 and 4 in the window
    GenerateOptions options;
    options.hf_folder = std::string(TRIDENT_FAMILY_GOLDENS) + "/" + family;
    options.prompts = {{.ids = {7, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, {.ids = {5}}, {.ids = {}}};
    for (std::int32_t id = 0; id < 30; ++id) options.prompts[2].ids.push_back(id * 7 % 53);
    options.ignore_end = true;
    options.sampling.temperature = 0;
    options.max_new_tokens = 34;
    options.slots = 2;
    for (const std::vector<std::string>& layout : {std::vector<std::string>{"precision.compute=fp32"},
                                                   {"precision.compute=fp32", "parallel.tensor=2", "parallel.pipeline=2"}}) {
      options.settings = layout;
      const std::vector<Continuation> made = generate(options)->continuations;
      GenerateOptions anew = options;
      anew.max_new_tokens = 1;
      anew.prompts.clear();
      for (std::size_t p = 0; p < made.size(); ++p) {
        ASSERT_EQ(made[p].ids.size(), 34u);
        for (std::size_t i = 0; i < made[p].ids.size(); ++i) {
          Prompt& prompt = anew.prompts.emplace_back(options.prompts[p]);
          prompt.ids.insert(prompt.ids.end(), made[p].ids.begin(), made[p].ids.begin() + static_cast<std::ptrdiff_t>(i));
        }
      }
      const std::vector<Continuation> read = generate(anew)->continuations;
      for (std::size_t i = 0; i < read.size(); ++i) {
        EXPECT_EQ(read[i].ids[0], made[i / 34].ids[i % 34]) << family << ", prompt " << i / 34 << ", token " << i % 34;
        EXPECT_NEAR(read[i].log_probabilities[0], made[i / 34].log_probabilities[i % 34], 1e-5) << family;
      }
    }
  }
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
