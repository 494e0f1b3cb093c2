// Tests what users of other systems write on the command line, and what they are told.
#include "app/foreign_flag_hint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "import/foreign/foreign_key.h"

namespace trident {
namespace {

TEST(ForeignFlagHint, MegatronsFlagsNameTheKeyAndTakeTheValue) {
  EXPECT_EQ(foreign_flag_hint("--tensor-model-parallel-size", "4"), "say --set parallel.tensor=4");
  EXPECT_EQ(foreign_flag_hint("--tensor-model-parallel-size=4", "--bf16"), "say --set parallel.tensor=4");
  EXPECT_EQ(foreign_flag_hint("--pipeline-model-parallel-size", ""), "say --set parallel.pipeline=...");
  EXPECT_EQ(foreign_flag_hint("--bf16", "--lr"), "say --set precision.compute=bf16");
  EXPECT_EQ(foreign_flag_hint("--fp16", ""), "say --set precision.compute=fp16");
  EXPECT_EQ(foreign_flag_hint("--num-layers-per-virtual-pipeline-stage", "2"),
            "say --set parallel.virtual_stages=... (it counts chunks of layers: layers / (parallel.pipeline x N), with "
            "parallel.schedule \"interleaved\")");
  EXPECT_EQ(foreign_flag_hint("--use_dora", ""), "say --set adapter.type=dora") << "of a fact that is no key";
}

TEST(ForeignFlagHint, AValueThatMeansSomethingElseIsNotCopied) {
  EXPECT_EQ(foreign_flag_hint("--train-samples", "1000"), "say --set run.steps=... (samples / batch.global)");
  EXPECT_TRUE(foreign_flag_hint("--lr-decay-samples", "1000").starts_with("say --set lr_schedule.decay_steps=... ("));
  EXPECT_TRUE(foreign_flag_hint("--lr-warmup-samples", "1000").starts_with("say --set lr_schedule.warmup_steps=... ("));
  EXPECT_TRUE(foreign_flag_hint("--adam-beta2", "0.99").starts_with("say --set optimizer.betas=... ("));
  EXPECT_EQ(foreign_flag_hint("--recompute-granularity", "full"), "say --set recompute.policy=full (every block)");
  EXPECT_TRUE(foreign_flag_hint("--recompute-granularity", "selective").starts_with("say --set recompute.policy=selective"));
  EXPECT_EQ(foreign_flag_hint("--gradient_accumulation_steps", "8"),
            "say --set batch.global=... (batch.micro x parallel.data x N)");
  EXPECT_TRUE(foreign_flag_hint("--packing", "").starts_with("say --set data.samples=packed (after trident data pack)"));
  for (const char* stage : {"0", "1", "2", "3"})
    EXPECT_TRUE(foreign_flag_hint("--zero-optimization.stage", stage)
                    .starts_with(fmt::format("say --set parallel.zero={}", *stage == '0' ? "ddp" : std::string("zero") + stage)))
        << stage;
  EXPECT_TRUE(foreign_flag_hint("--data-parallel-sharding-strategy", "optim_grads").starts_with("say --set parallel.zero=zero2 ("));
}

TEST(ForeignFlagHint, WordsOfOtherSystemsAreToldFromFalseFriends) {
  EXPECT_EQ(foreign_flag_hint("--data", "x"), "say --set data.train=x (the prefix that trident data prepare wrote)");
  EXPECT_EQ(foreign_flag_hint("--layers", "4"), "say --set model.num_hidden_layers=4 (n_layer for model_type gpt2)");
  EXPECT_EQ(foreign_flag_hint("--tensor_parallel_size", "2"), "say --set parallel.tensor=2");
  EXPECT_EQ(foreign_flag_hint("--nothing", "[2"), "") << "the word behind it is no JSON";
  EXPECT_EQ(foreign_flag_hint("--schedule", "cosine"), "") << "parallel.schedule has no such value";
  EXPECT_EQ(foreign_flag_hint("--schedule", "1f1b"), "say --set parallel.schedule=1f1b");
  EXPECT_EQ(foreign_flag_hint("--device", "gpu"), "say --set device=cuda");
}

TEST(ForeignFlagHint, RowsWithoutAKeySayWhatToDo) {
  EXPECT_EQ(foreign_flag_hint("--num_layers", "12"), foreign_flag_hint("--num-layers", "12"));
  EXPECT_EQ(foreign_flag_hint("--num-layers", "12"), "say --set model.num_hidden_layers=12 (n_layer for model_type gpt2)");
  EXPECT_EQ(foreign_flag_hint("--num-experts", "8"), "leave it out, there is no such thing here: dense models only");
  EXPECT_EQ(foreign_flag_hint("--use-cpu-initialization", ""), "leave it out: initial weights do not depend on the layout");
  EXPECT_TRUE(foreign_flag_hint("--load", "ckpt").starts_with("say --set checkpoint.resume=ckpt ("));
  EXPECT_EQ(foreign_flag_hint("--pretrained-checkpoint", "dir"),
            "say --set model.init_from=dir (a checkpoint of trident, a folder of them, or a Hugging Face folder)");
  EXPECT_TRUE(foreign_flag_hint("--append-eod", "").starts_with("see trident data prepare --append-eod --workers N"));
  EXPECT_EQ(foreign_flag_hint("--context-parallel-size", "2"), "its key parallel.context is not built yet");
  EXPECT_EQ(foreign_flag_hint("--load_in_4bit", ""),
            "its key model.quantize.type is not built yet (leave it out: lora trains beside weights in 16 bits)");
}

TEST(ForeignFlagHint, OurKeysAreKnownWithHyphens) {
  EXPECT_EQ(foreign_flag_hint("--parallel.tensor", "4"), "say --set parallel.tensor=4");
  EXPECT_EQ(foreign_flag_hint("--batch-micro=2", ""), "say --set batch.micro=2");
  EXPECT_EQ(foreign_flag_hint("--threads-per-rank", "2"), "say --set run.threads_per_rank=2");
  EXPECT_EQ(foreign_flag_hint("--steps", "50"), "say --set run.steps=50") << "rather than eval.steps";
  EXPECT_TRUE(foreign_flag_hint("--tensor-parallel-degree", "2").starts_with("say --set parallel.tensor=2")) << "torchtitan's word";
  EXPECT_EQ(foreign_flag_hint("parallel.tensor=4", ""), "say --set parallel.tensor=4");
  EXPECT_EQ(foreign_flag_hint("parallel=2DP x 2TP", ""), "say --set 'parallel=2DP x 2TP'");
}

TEST(ForeignFlagHint, AConfigurationAloneNeedsItsFlag) {
  EXPECT_EQ(foreign_flag_hint("configs/laptop.json", ""), "say --config configs/laptop.json");
  EXPECT_EQ(foreign_flag_hint("my run.json", ""), "say --config 'my run.json'");
  EXPECT_EQ(foreign_flag_hint("my zero2.yaml", ""),
            "import it: trident train --import 'my zero2.yaml' (trident import 'my zero2.yaml' shows what it comes to)");
  EXPECT_TRUE(
      foreign_flag_hint("sft.py", "").starts_with("no Python is run; write the command that starts it into a file, run.sh"));
}

TEST(ForeignFlagHint, AFlagThatNamesAConfigurationIsAnsweredByImport) {
  EXPECT_EQ(foreign_flag_hint("--deepspeed", "ds.json"), "import its file: trident train --import ds.json");
  EXPECT_EQ(foreign_flag_hint("--config_file", "my acc.yaml"), "import its file: trident train --import 'my acc.yaml'");
  EXPECT_EQ(foreign_flag_hint("--config_file=acc.yaml", "--lr"), "import its file: trident train --import acc.yaml");
  for (const char* flag : {"--ds_config", "--deepspeed_config", "--fsdp_config", "--job.config_file", "--yaml-cfg"})
    EXPECT_EQ(foreign_flag_hint(flag, "f.toml"), "import its file: trident train --import f.toml") << flag;
  EXPECT_TRUE(foreign_flag_hint("--deepspeed", "zero2").starts_with("say --set parallel.zero=zero2 ("));
  EXPECT_TRUE(foreign_flag_hint("--train_file", "f.json").starts_with("say --set data.train=")) << "no configuration";
}

TEST(ForeignFlagHint, NothingForWhatIsUnknown) {
  for (const char* argument : {"", "-", "--", "more", "a=b", "--xyzzy", "--every"})
    EXPECT_EQ(foreign_flag_hint(argument, "4"), "") << argument;
}

TEST(ForeignFlagHint, EveryFlagOfTheTablesIsAnswered) {
  int flags = 0;
  for (const ForeignSection& section : foreign_sections())
    for (const ForeignKey& row : section.keys)
      for (const std::string_view name : names_of(row).names) {
        if (name.ends_with('*') || section.system == ForeignSystem::kLauncher) continue;
        ++flags;
        EXPECT_FALSE(foreign_flag_hint(fmt::format("--{}", name), "").empty()) << name;
      }
  EXPECT_GT(flags, 500);
}

}  // namespace
}  // namespace trident
