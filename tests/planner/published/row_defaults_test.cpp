// Rows of runs: names of schedules, what their stack does where they do not say, and what is said of that.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "planner/published/stack_memory.h"
#include "planner/published/training_row.h"
#include "tests/planner/price/price_fixture.h"

namespace trident {
namespace {

// Qi et al. 2024: with as much memory as 1f1b, half of it and a third; a rank has the stages r and 2p - 1 - r.
// With many micro-batches their messages, twice as many, cost more than what was left of the bubble.
TEST(RunAnswers, VShapedSchedules) {
  const auto row = [](const char* schedule) {
    return priced(fmt::format(R"({{"model": {{"layers": 64, "vocab": 128}}, "parallel": {{"pp": 8, "schedule": "{}"}},
                                  "cluster": {{"gpus": 8}}, "batch": {{"global": 24, "micro": 1}}}})",
                              schedule));
  };
  const JsonValue one = row("1f1b"), h1 = row("zb-h1"), zb = row("ZB-V"), half = row("V-Half"), min = row("v_min");
  const auto activations = [](const JsonValue& answer) { return number(*answer.find("memory_parts"), "activations"); };
  EXPECT_NEAR(activations(zb) / activations(one), 1, 0.01);
  // A few chunks more than a half and a third of p.
  EXPECT_GE(activations(half) / activations(one), 0.5);
  EXPECT_LE(activations(half) / activations(one), 0.5 + 2.0 / 8);
  EXPECT_GE(activations(min) / activations(one), 1.0 / 3);
  EXPECT_LE(activations(min) / activations(one), 1.0 / 3 + 2.0 / 8);
  EXPECT_LT(activations(min), activations(half));
  EXPECT_LT(number(zb, "step_time_s"), number(h1, "step_time_s"));
  EXPECT_LT(number(zb, "step_time_s"), number(half, "step_time_s"));
  EXPECT_LT(number(half, "step_time_s"), number(one, "step_time_s"));
  EXPECT_LE(number(half, "step_time_s"), 1.001 * number(min, "step_time_s"));
  EXPECT_EQ(zb.find("assumed")->find("parallel.vpp")->as_integer(), 2);
  EXPECT_EQ(number(row("V-ZB"), "step_time_s"), number(zb, "step_time_s"));
  // Embedding and head are on the first rank: a tied table once, and nobody adds its gradients.
  const auto parameters = [](const char* schedule, bool tied) {
    return number(*priced(fmt::format(R"({{"model": {{"layers": 64, "tied": {}}}, "parallel": {{"pp": 8, "schedule": "{}"}}}})",
                                      tied, schedule))
                       .find("memory_parts"),
                  "parameters");
  };
  EXPECT_EQ(parameters("zb-v", true), parameters("1f1b", true));
  EXPECT_EQ(parameters("zb-v", false) - parameters("1f1b", false), 2 * 51200.0 * 2048);
}

// Every name of a pipeline's order in the committed tables.
TEST(RunAnswers, NamesOfSchedules) {
  for (const char* name : {"1f1b", "1F1B", "1F1B baseline", "1F1B redis", "1F1B vocab-1", "1F1B vocab-2", "1F1B interlaced",
                           "interleaved 1f1b", "1f1b-interleaved", "interleaved", "1F1B-I", "gpipe", "zb-h1", "zb-h2", "ZB-1p",
                           "ZB-2p", "ZB-2p + all-reduce optimizer sync", "zb-v", "v-half", "v-min"})
    EXPECT_EQ(unsupported(priced(fmt::format(R"({{"parallel": {{"pp": 4, "schedule": "{}"}}}})", name))), "") << name;
  const auto chunks = [](const char* name) {
    const JsonValue answer = priced(fmt::format(R"({{"parallel": {{"pp": 4, "schedule": "{}"}}}})", name));
    return answer.find("assumed")->find("parallel.vpp")->as_integer();
  };
  EXPECT_EQ(chunks("interleaved"), 2) << "one stage on a rank interleaves nothing";
  EXPECT_EQ(chunks("1f1b"), 1);
  for (const char* name : {"dualpipe", "zb-v gpipe", "interleaved zb-h1", "1f1b or gpipe", "\u4e2d"})
    EXPECT_NE(unsupported(priced(fmt::format(R"({{"parallel": {{"pp": 4, "schedule": "{}"}}}})", name))), "") << name;
}

// A run that does not say what it recomputes did what its system does, or, where that does not fit, as little as will do.
TEST(RunAnswers, RecomputationThatIsNotSaid) {
  const auto with = [](const char* micro, const char* framework, const char* recompute) {
    const char* form = R"({{"cluster": {{"gpus": 64}}, "parallel": {{"zero": 3}}, "batch": {{"global": 512, "micro": {}}},
        "model": {{"act": "swiglu", "layers": 40, "hidden": 5120, "heads": 40, "kv_heads": 40, "ffn": 13824,
        "vocab": 32000, "seq": 4096}},
        "recompute": {}, "stack": {{"framework": "{}", "attention": "flash2", "year": 2024}}}})";
    return priced(fmt::format(fmt::runtime(form), micro, recompute, framework));
  };
  const auto filled = [](const JsonValue& answer) { return answer.find("assumed")->find("recompute")->as_string(); };
  const JsonValue light = with("1", "fsdp", "null");
  EXPECT_EQ(filled(light), "none");
  EXPECT_EQ(number(light, "step_time_s"), number(with("1", "fsdp", "\"none\""), "step_time_s"));
  EXPECT_EQ(filled(with("1", "torchtitan", "null")), "selective per-op");
  EXPECT_EQ(number(with("1", "torchtitan", "null"), "step_time_s"),
            number(with("1", "torchtitan", "\"selective per-op\""), "step_time_s"));

  const JsonValue some = with("2", "fsdp", "null"), none = with("2", "fsdp", "\"none\""), full = with("2", "fsdp", "\"full\"");
  ASSERT_FALSE(none.find("fits")->as_bool());
  EXPECT_TRUE(some.find("fits")->as_bool());
  int blocks = 0;
  ASSERT_EQ(std::sscanf(filled(some).c_str(), "full in %d of 40 blocks of a rank, as none does not fit", &blocks), 1)
      << filled(some);
  // Time and memory lie between those of none and all, in the same proportion.
  const double share = blocks / 40.0;
  const auto between = [&](const char* key) {
    return (1 - share) * number(none, key) + share * number(full, key);
  };
  EXPECT_NEAR(number(some, "step_time_s") / between("step_time_s"), 1, 0.003);
  const auto kept = [](const JsonValue& answer) { return number(*answer.find("memory_parts"), "activations"); };
  EXPECT_NEAR(kept(some), (1 - share) * kept(none) + share * kept(full), 16);
  // One block less would not fit: what a block keeps is more than what is left, with the least reserve of an allocator.
  const double left = number(some, "capacity_bytes") - number(some, "least_device_bytes");
  EXPECT_GE(left, 0);
  EXPECT_LT(left, 1.03 * (kept(none) - kept(full)) / 40);

  // States that are too large are so whatever is recomputed: the default, which does not fit.
  const JsonValue never =
      priced(R"({"recompute": null, "model": {"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 64, "ffn": 32768}})");
  EXPECT_EQ(filled(never), "none");
  EXPECT_FALSE(never.find("fits")->as_bool());
  // Scores in memory: not to keep them is lighter than any block in full.
  const JsonValue scores = priced(R"({"recompute": null, "model": {"seq": 4096}, "batch": {"global": 32, "micro": 4}})");
  EXPECT_EQ(filled(scores), "selective, as none does not fit");
  EXPECT_TRUE(scores.find("fits")->as_bool());
}

// GPUs that reach their host over NVLink: blocks' tensors move there, and nothing is computed again.
TEST(RunAnswers, BlocksThatAreOffloaded) {
  const auto with = [](const char* gpu, const char* framework, const char* recompute) {
    const char* form = R"({{"cluster": {{"gpu": "{}", "gpus": 64, "gpus_per_node": 4}}, "parallel": {{"zero": 3}},
        "batch": {{"global": 128, "micro": 2}}, "recompute": {}, "stack": {{"framework": "{}", "attention": "cudnn",
        "fused_rms_norm": true, "year": 2025}}, "model": {{"act": "swiglu", "layers": 80, "hidden": 8192, "heads": 64,
        "kv_heads": 8, "ffn": 28672, "vocab": 128256, "seq": 8192}}}})";
    return priced(fmt::format(fmt::runtime(form), gpu, recompute, framework));
  };
  const auto filled = [](const JsonValue& answer) { return answer.find("assumed")->find("recompute")->as_string(); };
  const JsonValue open = with("GB200", "nemo", "null"), none = with("GB200", "nemo", R"("none")");
  int blocks = 0;
  ASSERT_EQ(std::sscanf(filled(open).c_str(), "none, and %d of 80 blocks of a rank offloaded, as all do not fit", &blocks), 1)
      << filled(open);
  EXPECT_FALSE(none.find("fits")->as_bool());
  EXPECT_TRUE(open.find("fits")->as_bool());
  EXPECT_EQ(number(open, "step_time_s"), number(none, "step_time_s"));
  EXPECT_EQ(number(*open.find("time_parts_s"), "recompute"), 0);
  const double inputs = blocks / 80.0 * 80 * 2 * 2 * 8192 * 8192;
  EXPECT_NEAR(number(*open.find("memory_parts"), "activations"),
              (1 - blocks / 80.0) * number(*none.find("memory_parts"), "activations") + inputs, 16);
  // Behind a slower link, or in a system that does not move them, they are computed again.
  EXPECT_TRUE(filled(with("B200", "nemo", "null")).starts_with("full in ")) << filled(with("B200", "nemo", "null"));
  EXPECT_TRUE(filled(with("GB200", "fsdp", "null")).starts_with("full in ")) << filled(with("GB200", "fsdp", "null"));
}

// What tables of a system print: the peak of its allocator, or what the driver counts.
TEST(RunAnswers, PeakMemoryIsTheOneThatTablesOfTheStackPrint) {
  for (const char* framework : {"megatron_lm", "megatron_core_te", "megatron_deepspeed", "pytorch_fsdp1", "torchtitan_fsdp2"}) {
    const JsonValue answer = priced(fmt::format(R"({{"stack": {{"framework": "{}"}}}})", framework));
    EXPECT_EQ(number(answer, "peak_memory_bytes"), number(answer, "peak_allocated_bytes")) << framework;
  }
  const JsonValue answer = priced(R"({"stack": {"framework": "oneflow"}})");
  EXPECT_EQ(number(answer, "peak_memory_bytes"), number(answer, "device_bytes"));
  EXPECT_GT(number(answer, "peak_memory_bytes"), number(answer, "peak_allocated_bytes"));
}

TEST(RunAnswers, DefaultsOfTheStack) {
  const auto assumed = [](const char* changes, const char* path) {
    const JsonValue answer = priced(changes);
    const JsonValue* list = answer.find("assumed");
    const JsonValue* value = list ? list->find(path) : nullptr;
    return value ? to_json_text(*value) : unsupported(answer);
  };
  EXPECT_EQ(assumed(R"({"stack": {"framework": "fsdp"}, "parallel": {"zero": null}})", "parallel.zero"), "3");
  EXPECT_EQ(assumed(R"({"stack": {"framework": "nemo"}, "parallel": {"zero": null}})", "parallel.zero"), "\"dist-opt\"");
  EXPECT_EQ(assumed(R"({"stack": {"framework": "nemo", "attention": null}})", "stack.attention"), "\"cudnn\"");
  EXPECT_EQ(assumed(R"({"stack": {"framework": "nemo", "attention": null}, "cluster": {"gpu": "V100-16GB"}})", "stack.attention"),
            "\"flash1\"");
  EXPECT_EQ(assumed(R"({"stack": {"framework": "oneflow", "attention": "unfused"}})", "stack.attention"),
            "\"megatron_fused_softmax\"");
  EXPECT_EQ(assumed(R"({"stack": {"framework": "nemo", "fused_rms_norm": null}, "model": {"act": "swiglu"}})",
                    "stack.fused_rms_norm"),
            "true");
  EXPECT_EQ(assumed(R"({"model": {"act": "swiglu", "ffn": null, "hidden": 4096, "heads": 32, "kv_heads": 32}})", "model.ffn"),
            "11008")
      << "Llama 7B's";
  EXPECT_EQ(assumed(R"({"parallel": {"dp": 3}})", "parallel.dp"), "8");
  EXPECT_EQ(assumed(R"({"stack": {"year": null}})", "stack.year"), "\"that of the newest version\"");
  EXPECT_EQ(assumed(R"({"model": {"act": null}})", "model.act"), "\"gelu\"");
}

// A GPU with another memory than its name says, as the text about its cluster has it.
TEST(RunAnswers, MemoryIsReadFromTheRow) {
  const char* form = R"({{"cluster": {{"interconnect": "{}"}}, "batch": {{"global": 192, "micro": 24}}}})";
  const auto fits = [&](const char* text) { return priced(fmt::format(fmt::runtime(form), text)).find("fits")->as_bool(); };
  EXPECT_FALSE(fits("8x A100-SXM-80GB NVLink"));
  EXPECT_TRUE(fits("8x A100 128GB HBM (2400 GB/s, 500 W)"));
  EXPECT_FALSE(fits("80GB or 128GB")) << "two of them say nothing";
}

TEST(RunAnswers, WhatNoPriceDependsOnIsSaid) {
  EXPECT_EQ(priced(R"({"model": {"name": "x", "params_b": 3}})").find("not_read"), nullptr);
  EXPECT_EQ(
      to_json_text(*priced(R"({"model": {"window": 4096}, "parallel": {"order": "dp-pp"}, "offload": true})").find("not_read")),
      R"(["model.window","parallel.order","offload"])");
}

// Memory of a rank under a stack: counted tensors, states, what must fit beside them.

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

// What a rank needs beyond its peak, without the allocator's least reserve of 3 %, context and channels of `groups`.
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
