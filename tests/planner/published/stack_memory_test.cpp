// Memory of a rank under a stack: counted tensors, states, what must fit beside them.
#include "planner/published/stack_memory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "planner/published/training_row.h"
#include "tests/planner/price/price_fixture.h"

namespace trident {
namespace {

TEST(StackMemory, SavedTensorsOfABlock) {
  const PublishedBook book = shipped_published_book();
  const auto units = [&](const char* changes) {
    const RowReading reading = read_training_row(run_row(changes));
    const PricingInput in{reading.row, *find_profile(book.hardware, reading.row.gpu),
                          *find_stack(book.stacks, reading.row.framework, reading.row.year), {}};
    return block_activation_bytes(in) / (reading.row.sequence * reading.row.micro_batch * reading.row.hidden);
  };
  const double scores = 5.0 * 16 * 1024 / 2048;
  EXPECT_DOUBLE_EQ(units("{}"), 34 + scores);
  EXPECT_DOUBLE_EQ(units(R"({"parallel": {"tp": 4}})"), 10 + 24 / 4.0 + scores / 4);
  EXPECT_DOUBLE_EQ(units(R"({"parallel": {"tp": 4, "sp": true}})"), (34 + scores) / 4);
  EXPECT_DOUBLE_EQ(units(R"({"stack": {"attention": "flash2"}})"), 34 + 4.0 * 16 / 2048);
}

TEST(StackMemory, RecomputationByOperation) {
  const JsonValue answer =
      priced(R"({"model": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "act": "swiglu",
      "vocab": 128256, "seq": 8192}, "cluster": {"gpu": "H100-SXM5-80GB"}, "parallel": {"zero": 3},
       "batch": {"global": 16, "micro": 2},
      "recompute": "selective per-op", "stack": {"framework": "torchtitan_fsdp2", "attention": "flash2_sdpa", "year": 2024}})");
  const double of_token = 2 * (4096 + 4096 + 1024 + 4096 + 14336 + 4096) + 4 * 32;
  EXPECT_DOUBLE_EQ(number(*answer.find("memory_parts"), "activations"), 32 * 2 * 8192.0 * of_token);
}

TEST(StackMemory, StatesByZeroStage) {
  const auto states = [](const char* changes) {
    const JsonValue answer = priced(changes);
    const JsonValue& parts = *answer.find("memory_parts");
    return number(parts, "parameters") + number(parts, "gradients") + number(parts, "optimizer");
  };
  const double h = 2048, parameters = 24 * (12 * h * h + 13 * h) + 51200 * h + 1024 * h;
  EXPECT_NEAR(states("{}") / parameters, 18, 1e-6) << "bf16 gradients are kept in fp32";
  EXPECT_NEAR(states(R"({"precision": "fp16 mixed"})") / parameters, 16, 1e-6);
  EXPECT_NEAR(states(R"({"parallel": {"zero": "dist-opt"}})") / parameters, 6 + 12 / 8.0, 1e-6);
  EXPECT_NEAR(states(R"({"parallel": {"zero": 1}})") / parameters, 4 + 12 / 8.0, 1e-6);
  EXPECT_NEAR(states(R"({"parallel": {"zero": 3}})") / parameters, 16 / 8.0, 1e-6);
}

TEST(StackMemory, GatheredParametersAreThoseOfTheRank) {
  const auto gathered = [](const char* changes) { return number(*priced(changes).find("memory_parts"), "gathered_parameters"); };
  const double h = 2048, block = 12 * h * h + 13 * h, outer = 51200 * h + 1024 * h;
  EXPECT_NEAR(gathered(R"({"parallel": {"zero": 3}})"), 8 * block + 2 * outer, 16) << "two blocks, and the gradients of one";
  EXPECT_NEAR(gathered(R"({"parallel": {"zero": 2}})"), 4 * block + 2 * (24 * block + outer), 16)
      << "all, from forward to backward";
  // With stages: of the first one's blocks and its embedding, not of the whole model.
  EXPECT_NEAR(gathered(R"({"parallel": {"zero": 3, "pp": 4}})"), 8 * block + 2 * outer, 16);
  EXPECT_NEAR(gathered(R"({"parallel": {"zero": 2, "pp": 4}})"), 4 * block + 2 * (6 * block + outer), 16);
}

TEST(StackMemory, ActivationsInFlight) {
  const auto activations = [](const char* changes) { return number(*priced(changes).find("memory_parts"), "activations"); };
  const double one = activations(R"({"model": {"layers": 24}, "stack": {"framework": "megatron_core_te"}})") / 24;
  const char* form = R"({{"model": {{"layers": 24}}, "stack": {{"framework": "megatron_core_te"}},
                        "parallel": {{"pp": 4, {}}}, "batch": {{"micro": 2}}}})";
  const auto with = [&](const char* more) { return activations(fmt::format(fmt::runtime(form), more).c_str()) / one; };
  EXPECT_NEAR(with(R"("vpp": 1)"), 6 * 4, 1e-6) << "the first stage holds p micro-batches of its blocks";
  EXPECT_NEAR(with(R"("vpp": 2)"), 6 * 4 * (1 + 3.0 / (4 * 2)), 1e-6) << "1 + (p-1)/(pv)";
  EXPECT_NEAR(with(R"("schedule": "ZB-2p")"), 6 * 7, 1e-6);
}

TEST(StackMemory, ALayoutThatDoesNotFitIsNotCalledFitting) {
  const auto fits = [](const char* changes) { return priced(changes).find("fits")->as_bool(); };
  EXPECT_TRUE(fits("{}"));
  EXPECT_FALSE(fits(R"({"batch": {"global": 512, "micro": 64}})")) << "activations";
  EXPECT_FALSE(fits(R"({"model": {"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 64, "ffn": 32768}})")) << "states";
  EXPECT_TRUE(fits(R"({"recompute": "full", "batch": {"global": 128, "micro": 16}, "model": {"vocab": 51200}})"));
  EXPECT_FALSE(fits(R"({"recompute": "full", "batch": {"global": 128, "micro": 16}, "model": {"vocab": 512000}})")) << "logits";
}

// Returns a rank's bytes beyond its peak, without the allocator's least reserve of 3 %, context and channels of `groups`.
double reserved_beyond_peak(const JsonValue& answer, int groups) {
  return (number(answer, "least_device_bytes") - 1.57e9 - groups * 4e8) / 1.03 - number(answer, "peak_allocated_bytes");
}

TEST(StackMemory, WhatForwardsLeaveHasNoRoomForLogits) {
  const char* form = R"({{"recompute": "{}", "batch": {{"global": 128, "micro": 16}}, "model": {{"vocab": {}}}}})";
  const auto beyond = [&](const char* recompute, int vocabulary) {
    return reserved_beyond_peak(priced(fmt::format(fmt::runtime(form), recompute, vocabulary)), 1);
  };
  const double h = 2048, tokens = 16 * 1024, scores = tokens * 16 * 1024;
  const double made_again = tokens * (10 * h + 8 * h + 16 * h - 2 * h) + 5 * scores, on_the_way = 4 * scores;
  EXPECT_NEAR(beyond("full", 256000) / (made_again + on_the_way), 1, 1e-6) << "the peak has the logits";
  EXPECT_NEAR(beyond("none", 256000) / on_the_way, 1, 1e-6) << "scores alone: the rest is kept";
  EXPECT_NEAR(beyond("full", 1000) / (10 * tokens * 1000 + 4 * tokens * h), 1, 1e-6) << "the peak has the block";
}

TEST(StackMemory, AnUnknownLossHasRoomForPyTorchsOwn) {
  const char* form = R"({{"model": {{"act": "swiglu", "vocab": 128000}}, "parallel": {{"tp": 2, "zero": {}}},
                        "stack": {{"framework": "{}", "attention": "flash2"}}}})";
  const auto beyond = [&](const char* zero, const char* stack) {
    return reserved_beyond_peak(priced(fmt::format(fmt::runtime(form), zero, stack)), 2);
  };
  EXPECT_NEAR(beyond("1", "megatron_lm") / (2 * 1024 * 128000.0 * (16 - 10 / 2)), 1, 1e-6) << "whole logits, not half of them";
  EXPECT_NEAR(beyond(R"("dist-opt")", "megatron_lm"), 0, 16) << "its own optimizer: its own loss";
  EXPECT_NEAR(beyond("1", "megatron_deepspeed"), 0, 16);
}

TEST(StackMemory, EveryRankHasToFit) {
  const auto answer = [](int vocabulary) {
    return priced(fmt::format(
        R"({{"model": {{"layers": 40, "hidden": 5120, "heads": 40, "kv_heads": 40, "ffn": 13824, "vocab": {}, "act": "swiglu",
                       "seq": 2048}}, "cluster": {{"gpus": 64}}, "parallel": {{"pp": 2, "zero": 1}}, "recompute": "full",
            "batch": {{"global": 2048, "micro": 8}}, "stack": {{"attention": "unfused"}}}})",
        vocabulary));
  };
  EXPECT_TRUE(answer(32000).find("fits")->as_bool());
  EXPECT_EQ(number(answer(128000), "pipeline_rank"), 0);
  EXPECT_FALSE(answer(128000).find("fits")->as_bool()) << "another rank has the logits";
}

// Transformer Engine: both norms' outputs (2h) and the feed-forward's product (f) in 8 bits, attention's output once more (h).
TEST(StackMemory, InputsOfNarrowProducts) {
  const auto activations = [](const char* framework, const char* precision) {
    return number(*priced(fmt::format(R"({{"model": {{"act": "swiglu"}}, "cluster": {{"gpu": "H100-SXM5-80GB"}}, "precision": "{}",
                                          "stack": {{"framework": "{}", "attention": "flash2", "year": 2024}}}})",
                                      precision, framework))
                       .find("memory_parts"),
                  "activations");
  };
  const double tokens = 2 * 1024, h = 2048, f = 8192;
  EXPECT_DOUBLE_EQ(activations("nemo", "bf16") - activations("nemo", "fp8"), 24 * tokens * (2 * h + f - h));
  EXPECT_EQ(activations("torchtitan", "bf16"), activations("torchtitan", "fp8")) << "kept in 16 bits";
}

}  // namespace
}  // namespace trident
