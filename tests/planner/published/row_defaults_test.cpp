// Rows of runs: names of schedules, what their stack does where they do not say, and what is said of that.
#include <gtest/gtest.h>

#include <cstdio>

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

// Tables of a system print one of two numbers: the peak of its allocator, or what the driver counts.
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

}  // namespace
}  // namespace trident
