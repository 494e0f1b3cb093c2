// Tests what trident eval gives a model: windows over texts, questions as tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "infer/convert/convert.h"
#include "infer/eval/choices_file.h"
#include "infer/eval/eval_windows.h"
#include "infer/eval/run_eval.h"
#include "tests/data/temporary_folder.h"
#include "train/launch/run_forward.h"

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

TEST(EvalWindows, AreGivenAsManyAtOnceAsMakeSoManyTokens) {
  EXPECT_EQ(windows_at_once(100, 1024), 8);
  EXPECT_EQ(windows_at_once(100, 1000), 8);
  EXPECT_EQ(windows_at_once(3, 1024), 3) << "no more than there are";
  EXPECT_EQ(windows_at_once(100, 8193), 1);
  EXPECT_EQ(windows_at_once(100'000, 1), 8192);
}

// Progress is counted in batches.
TEST(EvalWindows, AreGivenAtOnceUnlessTheirNumberIsSaid) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "hf");
  std::filesystem::create_symlink(TRIDENT_GOLDENS "/gpt2/config.json", folder / "hf/config.json");
  std::filesystem::create_symlink(TRIDENT_GOLDENS "/gpt2/weights.safetensors", folder / "hf/model.safetensors");
  hf_to_checkpoint({folder / "hf"}, folder / "ckpt", std::nullopt);
  EvalOptions of_folder, of_checkpoint;
  of_folder.hf_folder = folder / "hf";
  of_checkpoint.checkpoint = folder / "ckpt";
  const auto done = [](EvalOptions options, const std::vector<std::string>& settings) {
    std::vector<std::int64_t> said;
    std::ostringstream lines;
    LogSink log(lines);
    options.ids = std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    options.sequence = 3;
    options.settings = settings;
    const auto progress = [&](std::int64_t windows, std::int64_t all) {
      EXPECT_EQ(all, 4);
      said.push_back(windows);
    };
    EXPECT_TRUE(run_eval([&] { return options; }, log, *make_cuda_backend(), progress));
    return said;
  };
  const std::vector<std::int64_t> at_once{0, 0}, by_two{0, 0, 2};  // first while weights are read
  EXPECT_EQ(done(of_folder, {}), at_once);
  EXPECT_EQ(done(of_checkpoint, {}), at_once) << "its batch.micro is nobody's choice";
  EXPECT_EQ(done(of_folder, {"batch.micro=2"}), by_two);
  EXPECT_EQ(done(of_checkpoint, {"batch.micro=2"}), by_two);
}

// The number that whoever runs the model wants is halved only where nobody chose it.
TEST(EvalWindows, AreFewerAtOnceWhereMemoryDoesNotAllowIt) {
  ForwardModel model;
  model.config = parse_train_config(R"({"run": {"dir": "none", "steps": 1}, "model": {"model_type": "llama", "vocab_size": 64,
      "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 64},
      "batch": {"global": 7, "micro": 7, "sequence": 8}, "data": {"train": "none", "tokenizer": null}})", "test");
  std::int64_t taken = 0;
  const auto run = [&](bool halves) {
    std::ostringstream lines;
    LogSink log(lines);
    model.halves_micro = halves;
    const ForwardKind kind{.check_memory = [](const RunPlan& plan, std::span<const ArenaNeed>) {
      if (plan.config.batch.micro > 2) throw ConfigError("too large");
    }};
    const auto work = [&](const ForwardInputs& inputs, JobRank) { taken = inputs.plan.config.batch.micro; };
    run_forward([&] { return model; }, work, log, *make_cuda_backend(), kind);
    return lines.str();
  };
  EXPECT_EQ(run(true), "1 sequence of 8 tokens at a time, because there is too little memory for 7\n");
  EXPECT_EQ(taken, 1);
  EXPECT_THROW(run(false), ConfigError);
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
    EXPECT_EQ(made.tokens.front(), tokenizer->special_ids().eod);
    EXPECT_EQ(made.scored, std::ssize(made.tokens) - 1);
  }
  EXPECT_EQ(encode_choice(*tokenizer, "", " blue").scored, std::ssize(blue));
}

}  // namespace
}  // namespace trident
