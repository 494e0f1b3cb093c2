// What users of other systems write on the command line, and what they are told.
#include "app/flag_answer.h"

#include <gtest/gtest.h>

#include "train/config/foreign_words.h"

namespace trident {
namespace {

TEST(FlagAnswer, MegatronsFlagsNameTheKeyAndTakeTheValue) {
  EXPECT_EQ(flag_answer("--tensor-model-parallel-size", "4"), "say --set parallel.tensor=4");
  EXPECT_EQ(flag_answer("--tensor-model-parallel-size=4", "--bf16"), "say --set parallel.tensor=4");
  EXPECT_EQ(flag_answer("--pipeline-model-parallel-size", ""), "say --set parallel.pipeline=...");
  EXPECT_EQ(flag_answer("--seq-length", "4096"), "say --set batch.sequence=4096");
  EXPECT_EQ(flag_answer("--lr", "3e-4"), "say --set optimizer.lr=3e-4");
  EXPECT_EQ(flag_answer("--bf16", "--lr"), "say --set precision.compute=bf16 (auto takes it where the processor multiplies it)");
  EXPECT_EQ(flag_answer("--sequence-parallel", ""), "say --set parallel.sequence_parallel=true");
  EXPECT_EQ(flag_answer("--eval-interval", "100"), "say --set eval.every=100");
}

TEST(FlagAnswer, AValueThatMeansSomethingElseIsNotCopied) {
  EXPECT_EQ(flag_answer("--train-samples", "1000"), "say --set run.steps=... (samples / batch.global)");
  EXPECT_EQ(flag_answer("--lr-decay-samples", "1000"), "say --set lr_schedule.decay_steps=... (samples / batch.global)");
  EXPECT_EQ(flag_answer("--lr-warmup-samples", "1000"), "say --set lr_schedule.warmup_steps=... (samples / batch.global)");
  EXPECT_EQ(flag_answer("--adam-beta2", "0.99"), "say --set 'optimizer.betas=[0.9, 0.95]' (Megatron-LM: 0.9, 0.999)");
  EXPECT_EQ(flag_answer("--recompute-granularity", "full"), "say --set recompute.policy=full (every block)");
  EXPECT_EQ(flag_answer("--recompute-granularity", "selective"), "say --set recompute.policy=selective");
  EXPECT_EQ(flag_answer("--data-parallel-sharding-strategy", "optim_grads"),
            "say --set parallel.zero=zero2 (allowed with pipelines here)");
}

TEST(FlagAnswer, WordsOfOtherSystemsAndTheirFalseFriends) {
  EXPECT_EQ(flag_answer("--data", "x"), "say --set data.train=... (the prefix that trident data prepare wrote)");
  EXPECT_EQ(flag_answer("--layers", "4"), "say --set model.num_hidden_layers=... (n_layer for model_type gpt2)");
  EXPECT_EQ(flag_answer("--tensor_parallel_size", "2"), "say --set parallel.tensor=2");
  EXPECT_EQ(flag_answer("--tp_degree", "2"), "say --set parallel.tensor=2");
  EXPECT_EQ(flag_answer("--max_iters", "10"), "say --set run.steps=10");
  EXPECT_EQ(flag_answer("--schedule", "cosine"), "") << "parallel.schedule has no such value";
  EXPECT_EQ(flag_answer("--schedule", "1f1b"), "say --set parallel.schedule=1f1b");
  EXPECT_EQ(flag_answer("--device", "gpu"), "say --set device=cuda");
}

TEST(FlagAnswer, AnExampleIsNotTheUsersValue) {
  EXPECT_EQ(flag_answer("--split", "90,5,5"),
            "say --set data.split=90,5,5 (no default: all documents train unless it is given)");
  EXPECT_EQ(flag_answer("--split=8,1,1", ""), "say --set data.split=8,1,1 (no default: all documents train unless it is given)");
  EXPECT_EQ(flag_answer("--split", ""), "say --set data.split=969,30,1 (no default: all documents train unless it is given)");
}

TEST(FlagAnswer, OtherKindsOfRows) {
  EXPECT_EQ(flag_answer("--num_layers", "12"), flag_answer("--num-layers", "12"));
  EXPECT_EQ(flag_answer("--num-layers", "12"), "say --set model.num_hidden_layers=... (n_layer for model_type gpt2)");
  EXPECT_EQ(flag_answer("--moe-grouped-gemm", ""), "leave it out, there is no such thing here: dense models only");
  EXPECT_EQ(flag_answer("--use-cpu-initialization", ""), "leave it out: initial weights do not depend on the layout");
  EXPECT_EQ(flag_answer("--load", "ckpt"), "say --set checkpoint.resume=... (auto: the newest in checkpoint.dir)");
  EXPECT_EQ(flag_answer("--pretrained-checkpoint", "dir"),
            "say --set model.init_from=... (a checkpoint of trident, a folder of them, or a Hugging Face folder)");
  EXPECT_EQ(flag_answer("--append-eod", ""), "see trident data prepare --append-eod --workers N");
}

TEST(FlagAnswer, OurKeysWithHyphens) {
  EXPECT_EQ(flag_answer("--parallel.tensor", "4"), "say --set parallel.tensor=4");
  EXPECT_EQ(flag_answer("--batch-micro=2", ""), "say --set batch.micro=2");
  EXPECT_EQ(flag_answer("--threads-per-rank", "2"), "say --set run.threads_per_rank=2");
  EXPECT_EQ(flag_answer("--steps", "50"), "say --set run.steps=50") << "rather than eval.steps";
  EXPECT_EQ(flag_answer("--tensor-parallel-degree", "2"), "say --set parallel.tensor=2") << "torchtitan's word";
  EXPECT_EQ(flag_answer("parallel.tensor=4", ""), "say --set parallel.tensor=4");
  EXPECT_EQ(flag_answer("parallel=2DP x 2TP", ""), "say --set 'parallel=2DP x 2TP'");
}

TEST(FlagAnswer, AConfigurationAlone) {
  EXPECT_EQ(flag_answer("configs/laptop.json", ""), "say --config configs/laptop.json");
  EXPECT_EQ(flag_answer("my run.json", ""), "say --config 'my run.json'");
}

TEST(FlagAnswer, NothingForWhatIsUnknown) {
  for (const char* argument : {"", "-", "--", "more", "a=b", "--xyzzy", "--every"})
    EXPECT_EQ(flag_answer(argument, "4"), "") << argument;
}

TEST(FlagAnswer, EveryFlagOfTheTableIsAnswered) {
  int flags = 0;
  for (const ForeignWord& row : foreign_words()) {
    for (std::size_t at = row.flag.find("--"); at != row.flag.npos; at = row.flag.find("--", at + 1)) {
      const std::string flag(row.flag.substr(at, row.flag.find_first_of(", *", at) - at));
      ++flags;
      EXPECT_FALSE(flag_answer(flag, "").empty()) << flag;
    }
  }
  EXPECT_GT(flags, 100);
}

}  // namespace
}  // namespace trident
