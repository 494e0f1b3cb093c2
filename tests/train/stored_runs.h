// Runs of a tiny model inside this process, whose checkpoints every reader is given.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/commit.h"
#include "core/file_io.h"
#include "infer/convert/convert.h"
#include "infer/eval/run_eval.h"
#include "infer/generate/run_generate.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/support/error_text.h"
#include "tests/support/no_gpus.h"
#include "tests/support/train_hooks.h"
#include "train/config/stored_config.h"
#include "train/launch/job.h"
#include "train/launch/prepare_run.h"
#include "train/launch/run_training.h"
#include "train/plan/machine.h"
#include "train/run/stored_model.h"

namespace trident::testing {

inline constexpr int kStoredVocab = 61;

inline constexpr std::string_view kStoredConfig = R"({
  "run": {"steps": 2, "threads_per_rank": 1, "pin": false},
  "device": "cpu",
  "model": {"model_type": "llama", "vocab_size": 61, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 8, "max_position_embeddings": 16},
  "batch": {"global": 2, "micro": 1, "sequence": 8},
  "optimizer": {"lr": 1e-3},
  "data": {"tokenizer": null},
  "checkpoint": {"every": 1, "keep_last": 2},
  "log": {"tensorboard": false}
})";

inline std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  return {std::istream_iterator<std::string>(in), {}};
}

class StoredRuns : public ::testing::Test {
 protected:
  StoredRuns() {
    Documents documents(12, std::vector<std::int32_t>(9));
    std::int32_t next = 0;
    for (std::vector<std::int32_t>& document : documents)
      for (std::int32_t& token : document) token = next * next % kStoredVocab, ++next;
    write_dataset(folder_ / "text", documents, kStoredVocab);
  }

  std::vector<std::string> settings(const std::string& run, const std::vector<std::string>& more) const {
    return plus({"run.dir=" + (folder_ / run), "data.train=" + (folder_ / "text")}, more);
  }
  // Returns the text that a person saw.
  std::string train(const std::vector<std::string>& settings, std::string_view config = kStoredConfig) {
    std::ostringstream out;
    LogSink sink(out);
    run_training([&] { return parse_train_config(config, "test", settings); },
                 {.console = out, .log = sink}, no_gpus_, train_hooks());
    return out.str();
  }
  std::string newest(const std::string& checkpoints) const {
    return checkpoints + "/" + checkpoint_name(checkpoint_steps(checkpoints).at(0));
  }

  // All readers but the one that goes on.
  void read(const std::string& run) {
    const std::string checkpoint = newest(folder_ / (run + "/ckpt")), resolved = folder_ / (run + "/config.resolved.json");
    EXPECT_EQ(read_stored(open_manifest(checkpoint).config, checkpoint).faults, std::vector<std::string>());
    OptionValues values;
    EXPECT_NO_THROW(load_train_config(resolved, {}, values));
    evaluate_and_convert(checkpoint);
  }
  void evaluate_and_convert(const std::string& checkpoint) {
    std::ostringstream out;
    LogSink sink(out);
    const auto report = run_eval(
        [&] {
          EvalOptions options;
          options.checkpoint = checkpoint;
          options.sets = {{"text", folder_ / "text"}};
          return options;
        },
        sink, no_gpus_);
    EXPECT_TRUE(report.has_value());
    generate([&](GenerateOptions& options) { options.checkpoint = checkpoint; });
    checkpoint_to_hf(checkpoint, folder_ / "hf", {});
    std::filesystem::remove_all(folder_ / "hf");
  }

  void generate(const std::function<void(GenerateOptions&)>& from) {
    std::ostringstream out;
    LogSink sink(out);
    const auto made = run_generate(
        [&] {
          GenerateOptions options;
          from(options);
          options.prompts = {{.ids = {1, 2}}};
          options.max_new_tokens = 1;
          return options;
        },
        {}, sink, no_gpus_);
    ASSERT_TRUE(made.has_value()) << out.str();
    EXPECT_EQ(made->continuations.size(), 1u);
  }

  TemporaryFolder folder_;
  NoGpus no_gpus_;
  int steps_ = 0;
};

}  // namespace trident::testing
