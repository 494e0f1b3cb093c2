// Prices of whole runs: what they add up to, how they move with the layout, what they may not look at, what is refused.

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/published/training_row.h"
#include "tests/planner/price/price_fixture.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

TEST(RunAnswers, PartsAddUp) {
  for (const char* changes :
       {"{}", R"({"parallel": {"tp": 2, "pp": 2}})", R"({"parallel": {"pp": 4, "vpp": 3}, "batch": {"micro": 1}})",
        R"({"parallel": {"zero": 3}, "recompute": "full", "stack": {"framework": "pytorch_fsdp1", "attention": "flash2"}})"}) {
    const JsonValue answer = priced(changes);
    ASSERT_EQ(unsupported(answer), "") << changes;
    double sum = 0;
    for (const JsonMember& part : answer.find("time_parts_s")->members()) sum += part.value.as_number();
    EXPECT_NEAR(sum, number(answer, "step_time_s"), 1e-9 * sum) << changes;
    double bytes = 0;
    for (const JsonMember& part : answer.find("memory_parts")->members()) bytes += part.value.as_number();
    EXPECT_NEAR(bytes, number(answer, "device_bytes"), 16) << changes;
    EXPECT_NEAR(number(answer, "tokens_per_s_per_gpu") * number(answer, "step_time_s") * 8, 256.0 * 1024, 1e-3);
  }
}

// Whatever the stages and the micro-batches: sums in another order may not leave a negative rest, and a stage with a block more, of
// which the first rounds show nothing, is what many of them wait for.
TEST(RunAnswers, NoPartIsNegative) {
  int compared = 0;
  for (const int pp : {1, 2, 4, 8, 16, 32}) {
    for (const int layers : {32, 41, 67, 96, 225}) {
      for (const int micro_batches : {1, 7, 64, 600, 20000}) {
        for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
          if (layers < pp) continue;
          const JsonValue answer = priced(fmt::format(
              R"({{"model": {{"layers": {}}}, "cluster": {{"gpus": {}}}, "parallel": {{"pp": {}, "schedule": "{}"}},
                 "batch": {{"global": {}, "micro": 1}}}})",
              layers, std::max(8, pp), pp, schedule, micro_batches * std::max(8, pp) / pp));
          const std::string where = fmt::format("{} layers, {} stages, {} micro-batches, {}", layers, pp, micro_batches, schedule);
          ASSERT_EQ(unsupported(answer), "") << where;
          double sum = 0;
          for (const JsonMember& part : answer.find("time_parts_s")->members()) {
            EXPECT_GE(part.value.as_number(), 0) << where << ": " << part.key;
            sum += part.value.as_number();
          }
          EXPECT_NEAR(sum, number(answer, "step_time_s"), 1e-9 * sum) << where;
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(RunAnswers, ResultsAndOriginsAreNotLookedAt) {
  JsonValue row = run_row();
  const std::string plain = to_json_text(priced_row(row));
  row.set("measured", JsonValue(JsonValue::Object{{"iter_time_s", 1.0}}));
  row.set("notes", "flash attention, batch 8");
  row.set("source", "MosaicML");
  EXPECT_EQ(to_json_text(priced_row(row)), plain);
  row.set("id", "hagemann-13b");
  const std::string renamed = to_json_text(priced_row(row));
  EXPECT_EQ(renamed.substr(renamed.find("step_time_s")), plain.substr(plain.find("step_time_s")));
}

TEST(RunAnswers, EachMicroBatchBeyondTheFirstRoundsCostsTheSame) {
  const auto seconds = [](int global) {
    return number(priced(fmt::format(R"({{"parallel": {{"pp": 4}}, "batch": {{"global": {}}}}})", global)), "step_time_s");
  };
  const double slope = seconds(4 * 32) - seconds(4 * 24);  // two replicas, micro-batches of 2: 32 and 24 of them
  EXPECT_NEAR(seconds(4 * 40) - seconds(4 * 32), slope, 1e-9);
  EXPECT_NEAR(seconds(4 * 4000) - seconds(4 * 3992), slope, 1e-8);
  EXPECT_NEAR(seconds(4 * 16) - seconds(4 * 8), slope, 1e-9) << "simulated: 8 and 16 of 4 stages";
}

TEST(RunAnswers, BubbleOfOneForwardOneBackward) {
  // Equal stages: a model of blocks alone, nearly. bubble over ideal = (p-1)/m.
  const JsonValue answer =
      priced(R"({"model": {"layers": 32, "vocab": 128}, "parallel": {"pp": 4}, "batch": {"global": 32, "micro": 1}})");
  const JsonValue& parts = *answer.find("time_parts_s");
  EXPECT_NEAR(number(parts, "bubble") / (number(parts, "compute") + number(parts, "launch")), 3.0 / 16, 0.02);
  const JsonValue interleaved =
      priced(R"({"model": {"layers": 32, "vocab": 128}, "parallel": {"pp": 4, "vpp": 2}, "batch": {"global": 32, "micro": 1}})");
  EXPECT_NEAR(number(*interleaved.find("time_parts_s"), "bubble") / number(parts, "bubble"), 0.5, 0.08);
}

TEST(RunAnswers, SchedulesByTheirNames) {
  const auto seconds = [](const char* schedule) {
    return number(priced(fmt::format(R"({{"parallel": {{"pp": 4, "schedule": "{}"}}, "batch": {{"global": 64}}}})", schedule)),
                  "step_time_s");
  };
  EXPECT_EQ(seconds("1F1B baseline"), seconds("1f1b"));
  EXPECT_NEAR(seconds("gpipe") / seconds("1f1b"), 1, 0.01);
  EXPECT_LT(seconds("ZB-1p"), seconds("1f1b"));
  EXPECT_LT(seconds("ZB-2p"), seconds("ZB-1p"));
  EXPECT_GT(seconds("ZB-2p + all-reduce optimizer sync"), seconds("ZB-2p"));
  EXPECT_LT(seconds("ZB-H1"), seconds("1f1b"));
  EXPECT_LE(seconds("ZB-H2"), seconds("ZB-H1"));
  const auto flight = [](const char* schedule) {
    return number(*priced(fmt::format(R"({{"parallel": {{"pp": 4, "schedule": "{}"}}, "batch": {{"global": 64}}}})", schedule))
                       .find("memory_parts"),
                  "activations");
  };
  EXPECT_GT(flight("gpipe"), 3 * flight("1f1b")) << "16 micro-batches against 4";
  EXPECT_NEAR(flight("1F1B interlaced") / flight("1F1B"), 1.5, 0.01);
}

// Equal stages, nearly a model of blocks alone, wait for (p-1)(F+I-W), where 1f1b waits for (p-1)(F+I+W). A weight gradient of
// such a block is about a quarter of its passes.
TEST(RunAnswers, BubbleOfSplitBackwards) {
  const auto bubble = [](const char* schedule, int global) {
    const JsonValue answer = priced(fmt::format(
        R"({{"model": {{"layers": 32, "vocab": 128}}, "parallel": {{"pp": 4, "schedule": "{}"}},
           "batch": {{"global": {}, "micro": 1}}}})",
        schedule, global));
    return number(*answer.find("time_parts_s"), "bubble");
  };
  EXPECT_NEAR(bubble("zb-h1", 32) / bubble("1f1b", 32), 0.5, 0.1);
  EXPECT_LT(bubble("zb-h2", 32), bubble("zb-h1", 32));
  // Beyond the rounds that are simulated nothing is added but messages, which every order has.
  const double messages = bubble("1f1b", 3200) - bubble("1f1b", 64);
  for (const char* schedule : {"zb-h1", "zb-h2", "zb-1p", "zb-2p"})
    EXPECT_NEAR(bubble(schedule, 3200) - bubble(schedule, 64), messages, 0.02 * bubble("1f1b", 64)) << schedule;
}

TEST(RunAnswers, MessagesSplitOverTensorRanksAreShorter) {
  const PublishedBook book = shipped_published_book();
  const RowReading reading = read_training_row(run_row(
      R"({"model": {"hidden": 8192, "heads": 64, "kv_heads": 64, "ffn": 32768}, "cluster": {"gpus": 16},
          "parallel": {"tp": 8, "pp": 2}})"));
  TrainingStack stack = *find_stack(book.stacks, "megatron_lm", 2023);
  const GpuRates& gpu = *find_profile(book.hardware, "A100-SXM4-80GB");
  const auto seconds = [&](bool split) {
    stack.split_messages = split;
    const PricingInput in{reading.row, gpu, stack, {8, gpu.nvlink, gpu.network}};
    return price_row(in, split_stages(in)).step_s;
  };
  // 128 micro-batches of 2 x 1024 x 8192 in 16 bits: forward and backward each wait for 7/8 of 33.6 MB less at 22 GB/s.
  const double saved = seconds(false) - seconds(true);
  const double sent = 2 * 128 * 7.0 / 8 * 2 * 2 * 1024 * 8192 / 22e9;
  EXPECT_GT(saved, 0.5 * sent) << "less what the gather on the other side takes";
  EXPECT_LT(saved, sent * 1.02);
}

TEST(RunAnswers, WhatLayoutsCost) {
  const auto seconds = [](const char* changes) { return number(priced(changes), "step_time_s"); };
  // Recomputation adds about a third of the compute.
  EXPECT_NEAR(seconds(R"({"recompute": "full"})") / seconds("{}"), 4.0 / 3, 0.07);
  // Tensor parallelism across nodes collapses: twice the GPUs gain little.
  const char* large = R"("model": {"hidden": 8192, "heads": 64, "kv_heads": 64, "ffn": 32768})";
  EXPECT_GT(seconds(fmt::format(R"({{"cluster": {{"gpus": 16}}, "parallel": {{"tp": 16}}, {}}})", large).c_str()),
            0.85 * seconds(fmt::format(R"({{"parallel": {{"tp": 8}}, {}}})", large).c_str()));
  // 32 micro-batches of a fully sharded model on a slow network: gathers and reductions in every one against one reduction a step.
  const char* slow = R"("cluster": {"gpus": 4, "gpus_per_node": 1, "interconnect": "1x 21 Gb/s"},
                        "batch": {"global": 256, "micro": 2}, "model": {"layers": 16, "vocab": 512},
                        "stack": {"framework": "pytorch_fsdp1", "attention": "flash2"})";
  const double ratio = seconds(fmt::format(R"({{"parallel": {{"zero": 3}}, {}}})", slow).c_str()) /
                       seconds(fmt::format(R"({{"parallel": {{"zero": 0}}, {}}})", slow).c_str());
  EXPECT_GT(ratio, 3);
  // Flash attention is faster than scores in memory, and separate kernels slower.
  EXPECT_LT(seconds(R"({"stack": {"attention": "flash2", "year": 2024}})"), seconds("{}"));
  EXPECT_GT(seconds(R"({"stack": {"attention": "unfused"}})"), seconds("{}"));
  // The same on a faster GPU.
  EXPECT_LT(seconds(R"({"cluster": {"gpu": "H100-SXM5-80GB"}})"), seconds("{}"));
}

TEST(RunAnswers, TheNetworkIsReadFromTheRow) {
  const auto dp = [](const char* text) {
    return number(*priced(fmt::format(R"({{"cluster": {{"gpus": 64, "interconnect": "{}"}}, "batch": {{"global": 2048}}}})", text))
                       .find("time_parts_s"),
                  "data_parallel");
  };
  EXPECT_NEAR(dp("8x HDR 200 Gb/s IB per node (Selene), NVLink3") / dp("1600 Gb/s RoCE per node"), 1, 1e-9);
  EXPECT_NEAR(dp("8x HDR 200 Gb/s IB") / dp("RoCE RDMA"), 1, 1e-9) << "the usual node has the same GPUs";
  EXPECT_NEAR(dp("4x 100 Gb/s") / dp("8x 200 Gb/s"), 4, 0.1);
}

// A GPT of Megatron-LM before it took another kernel by default: time and memory are of scores that are kept, and the answer says
// so.
TEST(RunAnswers, TheKernelOfASystemsYearRuns) {
  const JsonValue kept = priced(), named = priced(R"({"stack": {"attention": "flash2"}})");
  EXPECT_EQ(number(named, "step_time_s"), number(kept, "step_time_s"));
  EXPECT_EQ(number(named, "peak_allocated_bytes"), number(kept, "peak_allocated_bytes"));
  ASSERT_NE(named.find("assumed"), nullptr);
  EXPECT_EQ(to_json_text(*named.find("assumed")), R"({"model.tied":true,"stack.attention":"megatron_fused_softmax"})");
  EXPECT_EQ(to_json_text(*priced(R"({"stack": {"attention": null}})").find("assumed")),
            R"({"model.tied":true,"stack.attention":"megatron_fused_softmax"})");
  const JsonValue later = priced(R"({"stack": {"attention": "flash2", "year": 2024}})");
  EXPECT_LT(number(later, "peak_allocated_bytes"), number(kept, "peak_allocated_bytes"));
  EXPECT_EQ(later.find("assumed")->find("stack.attention"), nullptr);
  EXPECT_EQ(priced(R"({"stack": {"attention": "flash2"}, "recompute": "selective"})").find("assumed")->find("stack.attention"),
            nullptr)
      << "scores that are not kept are no reason to doubt the row";
  const JsonValue llama = priced(R"({"model": {"act": "swiglu"}, "stack": {"attention": "flash2"}})");
  EXPECT_EQ(llama.find("assumed")->find("stack.attention"), nullptr);
}

TEST(RunAnswers, WhatARowLeavesOpenIsAssumedAndSaid) {
  const JsonValue answer = priced(R"({"model": {"vocab": null}, "parallel": {"zero": null}, "recompute": null})");
  EXPECT_EQ(to_json_text(*answer.find("assumed")),
            R"({"model.vocab":51200,"model.tied":true,"parallel.zero":0,"recompute":"none"})");
  EXPECT_EQ(to_json_text(*priced(R"({"model": {"tied": true}})").find("assumed")), "{}");
  const JsonValue split = priced(R"({"model": {"layers": 22}, "parallel": {"pp": 8}})");
  EXPECT_EQ(to_json_text(*split.find("assumed")),
            R"({"model.tied":true,"parallel.vpp":1,"parallel.schedule":"1f1b",)"
            R"("parallel.layers":"one block less on the first and the last stage"})");
}

// Words that tables use for sharding and recomputation; what is none of them is no guess.
TEST(RunAnswers, WordsOfShardingAndRecomputation) {
  const auto same = [](const char* a, const char* b) {
    EXPECT_EQ(number(priced(a), "step_time_s"), number(priced(b), "step_time_s")) << a;
    EXPECT_EQ(number(priced(a), "device_bytes"), number(priced(b), "device_bytes")) << a;
  };
  for (const char* words : {"FSDP", "full_shard", "zero-3", "ZeRO3"})
    same(fmt::format(R"({{"parallel": {{"zero": "{}"}}}})", words).c_str(), R"({"parallel": {"zero": 3}})");
  same(R"({"parallel": {"zero": "SHARD_GRAD_OP"}})", R"({"parallel": {"zero": 2}})");
  same(R"({"parallel": {"zero": "none"}})", R"({"parallel": {"zero": 0}})");
  same(R"({"recompute": true})", R"({"recompute": "full"})");
  same(R"({"recompute": false})", R"({"recompute": "none"})");
  for (const char* bad : {R"({"parallel": {"zero": "hsdp"}})", R"({"parallel": {"zero": "zeppelin"}})",
                          R"({"parallel": {"zero": true}})", R"({"recompute": "partial"})"})
    EXPECT_NE(unsupported(priced(bad)), "") << bad;
}

// A row that cannot be is one refused answer: no crash, no overflow, no guess.
TEST(RunAnswers, SizesAndWordsThatCannotBeAreRefused) {
  for (const char* bad :
       {R"({"parallel": {"tp": 4294967296}})", R"({"parallel": {"pp": 1e30}})", R"({"parallel": {"tp": 0.001}})",
        R"({"parallel": {"tp": 8.5}})", R"({"parallel": {"tp": "8"}})", R"({"model": {"hidden": 1e308}})",
        R"({"model": {"hidden": 100000000, "layers": 100000000}})", R"({"model": {"heads": 31}, "parallel": {"tp": 2}})",
        R"({"batch": {"global": 1e308}})", R"({"cluster": {"gpus": 8.9}})", R"({"precision": "int8"})",
        R"({"parallel": {"vpp": "many"}})", R"({"parallel": {"vpp": 2.7}})"})
    EXPECT_NE(unsupported(priced(bad)), "") << bad;
}

// A stack by however its name is written; what a row leaves to it.
TEST(RunAnswers, WhatTheStackSettles) {
  EXPECT_EQ(number(priced(R"({"stack": {"framework": "Megatron-LM"}})"), "step_time_s"), number(priced(), "step_time_s"));
  EXPECT_EQ(number(priced(R"({"stack": {"framework": null}})"), "step_time_s"), number(priced(), "step_time_s"));
  // A text alone is the framework's name.
  EXPECT_EQ(number(priced(R"({"stack": "trident"})"), "step_time_s"),
            number(priced(R"({"stack": {"framework": "Trident", "attention": null, "fused_rms_norm": null, "year": null}})"),
                   "step_time_s"));
  EXPECT_LT(number(priced(R"({"stack": "trident"})"), "step_time_s"), number(priced(R"({"stack": "megatron_lm"})"), "step_time_s"))
      << "no scores in memory";
  expect_parts(unsupported(priced(R"({"stack": "neptune"})")), {"no such stack is known; there are "});
  expect_parts(unsupported(priced(R"({"stack": ""})")), {"a text that is not empty"});
  EXPECT_EQ(unsupported(priced(R"({"stack": 3})")), "stack is an integer; write an object");
  const auto assumed = [](const char* changes, const char* path) {
    const JsonValue answer = priced(changes);
    const JsonValue* list = answer.find("assumed");
    const JsonValue* value = list ? list->find(path) : nullptr;
    return value ? to_json_text(*value) : "";
  };
  EXPECT_EQ(assumed(R"({"stack": {"framework": null}})", "stack.framework"), "\"megatron_lm\"");
  EXPECT_EQ(assumed(R"({"stack": {"framework": null, "attention": "flash2"}, "parallel": {"zero": 3}})", "stack.framework"),
            "\"pytorch_fsdp1\"");
  EXPECT_EQ(assumed(R"({"stack": {"framework": null}, "parallel": {"zero": 3, "tp": 2}})", "stack.framework"), "\"megatron_lm\"");
  EXPECT_EQ(assumed(R"({"parallel": {"tp": 2, "sp": null}})", "parallel.sp"), "false");
  EXPECT_EQ(assumed(R"({"parallel": {"tp": 2, "sp": null}, "stack": {"framework": "NeMo", "attention": "cudnn"}})", "parallel.sp"),
            "true");
  EXPECT_EQ(assumed(R"({"parallel": {"tp": 1, "sp": null}})", "parallel.sp"), "false") << "nothing to divide";
}

// Narayanan et al. 2021, table 2: 174.6B with ZeRO 3 alone, one micro-batch a step and GPU. 44 TFLOP/s on 1,536 GPUs gave the
// share of the network that gathers of 2021 reach; 144 on 384 did not.
TEST(RunAnswers, ShardedParametersOfTheFirstDeepSpeedAreGatheredSlowly) {
  const auto tflops = [](int gpus, int micro, int year) {
    const JsonValue answer = priced(fmt::format(R"({{
        "model": {{"layers": 96, "hidden": 12288, "heads": 96, "kv_heads": 96, "ffn": 49152, "seq": 2048}},
        "cluster": {{"gpus": {}, "interconnect": "8x HDR 200 Gb/s IB per node"}}, "parallel": {{"zero": 3}},
        "batch": {{"global": 1536, "micro": {}}}, "precision": "fp16", "recompute": "full",
        "stack": {{"framework": "deepspeed", "year": {}}}}})",
                                                gpus, micro, year));
    const double h = 12288, layers = 96, s = 2048;
    const double flops = 96 * 1536 * s * layers * h * h * (1 + s / (6 * h) + 51200 / (16 * layers * h));
    return flops / gpus / number(answer, "step_time_s") / 1e12;
  };
  EXPECT_NEAR(tflops(1536, 1, 2021), 44, 1);
  EXPECT_NEAR(tflops(384, 4, 2021), 144, 0.1 * 144);
  EXPECT_GT(tflops(1536, 1, 2023), 100) << "coalesced gathers";
}

// Stacks say which of FSDP's modes of prefetching they run: after a unit's gradients, the next gather is beside nothing.
TEST(RunAnswers, GathersOfTheBackwardAreHiddenOnlyWhereTheyAreIssuedAhead) {
  const char* form = R"({{"parallel": {{"zero": {}}}, "batch": {{"global": {}, "micro": 8}},
                        "stack": {{"framework": "{}", "attention": "flash2", "year": 2024}}}})";
  const auto dp = [&](int zero, int batch, const char* stack) {
    return number(*priced(fmt::format(fmt::runtime(form), zero, batch, stack)).find("time_parts_s"), "data_parallel");
  };
  // Zero 2 keeps what the forward gathered.
  const auto again = [&](int batch, const char* stack) { return dp(3, batch, stack) - dp(2, batch, stack); };
  const double h = 2048, bytes = 2 * (12 * h * h + 13 * h), gather = 20e-6 + 7 * 3.4e-6 + bytes * 7 / 8 / (300e9 * 0.783);
  EXPECT_NEAR(again(64, "pytorch_fsdp1") / (24 * gather), 1, 1e-9);
  EXPECT_NEAR(again(512, "pytorch_fsdp1") / (8 * 24 * gather), 1, 1e-9) << "in each micro-batch";
  EXPECT_GT(again(64, "torchtitan_fsdp2"), 0) << "slows what it runs beside";
  EXPECT_LT(again(64, "torchtitan_fsdp2") / (24 * gather), 0.5);
}

TEST(RunAnswers, Refusals) {
  const auto why = [](const char* changes) { return unsupported(priced(changes)); };
  EXPECT_EQ(why(R"({"cluster": {"gpu": "Z1"}})").find("cluster.gpu = \"Z1\": no profile of it; there are "), 0u);
  EXPECT_EQ(why(R"({"cluster": {"gpu": "h100"}})").find("cluster.gpu = \"h100\": no profile of it, did you mean H100-"), 0u);
  EXPECT_EQ(
      why(R"({"stack": {"framework": "mesh"}})"),
      "stack.framework = \"mesh\": no such stack is known; there are megatron_core_te, megatron_deepspeed, megatron_lm, oneflow, "
      "pytorch_fsdp1, torchtitan_fsdp2, trident");
  EXPECT_EQ(why(R"({"stack": {"attention": "flash9"}})"),
            "A100-SXM4-80GB: the profile has no rates of the attention kernel \"flash9\"; add them with their source");
  EXPECT_EQ(why(R"({"model": {"heads": 24, "kv_heads": 24, "hidden": 2304}, "parallel": {"tp": 3}})"),
            "tp 3 x pp 1 x cp 1 does not divide 8 GPUs");
  EXPECT_EQ(why(R"({"parallel": {"ep": 4}})"), "parallel.ep = 4: must be 1: expert parallelism is not priced");
  EXPECT_EQ(why(R"({"batch": {"micro": 5}})"), "a global batch of 256 is no whole number of micro-batches of 5 on 8 replicas");
  EXPECT_EQ(why(R"({"parallel": {"pp": 8, "vpp": 3}, "batch": {"global": 60}})"),
            "interleaving needs micro-batches in groups of 8, not 30");
  EXPECT_EQ(why(R"({"parallel": {"pp": 8, "vpp": 8}})"), "24 layers do not fill 64 stages");
  EXPECT_EQ(why(R"({"precision": "fp8"})"), "A100-SXM4-80GB has no units of that precision");
  EXPECT_EQ(why(R"({"parallel": {"pp": 4, "schedule": "Chimera-2"}})"),
            "parallel.schedule = \"Chimera-2\": must be one that is priced; \"chimera-2\" is no word of those");
  EXPECT_EQ(why(R"({"parallel": {"pp": 4, "schedule": "V-Half", "vpp": 3}})"),
            "parallel.vpp = 3: must be 2: this schedule has two stages on every rank");
  EXPECT_EQ(why(R"({"parallel": {"pp": 4, "schedule": "gpipe", "vpp": 2}})"),
            "parallel.vpp = 2: must be 1: this schedule has one stage on every rank");
  EXPECT_EQ(why(R"({"model": {"layers": null}})"), "model.layers is missing: must be a whole number from 1 to 100000000");
  EXPECT_EQ(why(R"({"parallel": {"zero": "1"}})"),
            "parallel.zero = \"1\": must be a ZeRO stage from 0 to 3, \"dist-opt\", \"FSDP\" "
            "or another word for one of them");
  EXPECT_EQ(why(R"({"parallel": {"zero": 7}})"),
            "parallel.zero = 7: must be a ZeRO stage from 0 to 3, \"dist-opt\", \"FSDP\" or another word for one of them");
}

// torchtitan: stages gather before their first micro-batch and reduce behind their last.
TEST(RunAnswers, StagesThatStayGatheredCommunicateOnceAStep) {
  const char* form = R"({{"model": {{"act": "swiglu", "layers": 32}}, "recompute": "full", "batch": {{"global": {}, "micro": 1}},
      "parallel": {{"zero": 3, "tp": 2, "pp": 2}}, "stack": {{"framework": "{}", "attention": "flash2", "year": 2024}}}})";
  const auto dp = [&](int batch, const char* stack) {
    return number(*priced(fmt::format(fmt::runtime(form), batch, stack)).find("time_parts_s"), "data_parallel");
  };
  EXPECT_NEAR(dp(256, "torchtitan_fsdp2"), dp(64, "torchtitan_fsdp2"), 1e-9);
  EXPECT_NEAR(dp(256, "megatron_deepspeed") / dp(64, "megatron_deepspeed"), 4, 0.2);
  const JsonValue answer = priced(fmt::format(fmt::runtime(form), 64, "torchtitan_fsdp2"));
  const double h = 2048, parameters = 16 * (4 * h * h + 3 * 8192 * h + 2 * h) / 2 + 51200 * h / 2;
  EXPECT_NEAR(number(*answer.find("memory_parts"), "gathered_parameters") / (6 * parameters), 1, 1e-3)
      << "2 bytes, and 4 of gradients";
  const JsonValue open =
      priced(R"({"parallel": {"tp": 2, "sp": null}, "stack": {"framework": "torchtitan", "attention": "flash2"}})");
  EXPECT_TRUE(open.find("assumed")->find("parallel.sp")->as_bool()) << "its tensor parallelism divides norms by sequence";
}

}  // namespace
}  // namespace trident
