// Tests what trident eval gives a model: windows over texts, questions as tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "infer/eval/choices_file.h"
#include "infer/eval/eval_windows.h"

namespace trident {
namespace {

// Every target of every text length, sequence and stride is counted once, with all the inputs before it that its window has.
TEST(EvalWindows, CountEveryTargetOnce) {
  for (std::int64_t sequence = 1; sequence <= 7; ++sequence)
    for (std::int64_t stride = 1; stride <= sequence; ++stride)
      for (std::int64_t tokens = 0; tokens <= 25; ++tokens) {
        std::vector<EvalWindow> windows;
        add_windows(3, tokens, sequence, stride, windows);
        std::int64_t next = 1;
        for (std::size_t w = 0; w < windows.size(); ++w) {
          const EvalWindow& window = windows[w];
          EXPECT_EQ(window.text, 3);
          EXPECT_EQ(window.begin, static_cast<std::int64_t>(w) * stride);
          EXPECT_GE(window.counted(), 1);
          EXPECT_LE(window.inputs, sequence);
          EXPECT_LE(window.begin + window.inputs, tokens - 1);
          EXPECT_EQ(window.begin + window.counted_from + 1, next);
          next = window.begin + window.inputs + 1;
        }
        EXPECT_EQ(next, std::max<std::int64_t>(tokens, 1)) << tokens << " tokens, " << sequence << ", " << stride;
      }
}

TEST(EvalWindows, TheLastOneIsCutAtTheLeft) {
  EXPECT_EQ(last_window(0, 10, 4, 2), (EvalWindow{0, 5, 4, 2}));
  EXPECT_EQ(last_window(0, 10, 100, 2), (EvalWindow{0, 0, 9, 7}));
  EXPECT_EQ(last_window(0, 5, 4, 4), (EvalWindow{0, 0, 4, 0}));
}

// By the rule of lm_eval/api/model.py: spaces at the context's end go over, the two are encoded together, and the continuation is
// what lies behind as many tokens as the context alone has.
TEST(Choices, AreSplitAsLmEvaluationHarnessSplitsThem) {
  const auto tokenizer = load_tokenizer("gpt2");
  const auto expect = [&](std::string_view context, std::string_view continuation, std::string_view before,
                          std::string_view whole) {
    const ChoiceTokens made = encode_choice(*tokenizer, context, continuation);
    const std::vector<std::int32_t> given = tokenizer->encode(before), all = tokenizer->encode(whole);
    EXPECT_EQ(made.scored, std::ssize(all) - std::ssize(given)) << context;
    EXPECT_EQ(made.tokens, all) << context;
  };
  expect("The sky is", " blue", "The sky is", "The sky is blue");
  expect("The sky is  ", "blue", "The sky is", "The sky is  blue");
  expect("Tab\t\n", "x", "Tab", "Tab\t\nx");
  expect("No-break\u00A0\u3000", "x", "No-break", "No-break\u00A0\u3000x");
  expect("Zero width\u200B", " x", "Zero width\u200B", "Zero width\u200B x");  // no white space to Python
  const std::vector<std::int32_t> blue = tokenizer->encode(" blue");
  for (const std::string_view empty : {"", "  "}) {
    const ChoiceTokens made = encode_choice(*tokenizer, empty, " blue");
    EXPECT_EQ(made.tokens.front(), tokenizer->eod());
    EXPECT_EQ(made.scored, std::ssize(made.tokens) - 1);
  }
  EXPECT_EQ(encode_choice(*tokenizer, "", " blue").scored, std::ssize(blue));
}

}  // namespace
}  // namespace trident
