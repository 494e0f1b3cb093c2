// Layouts put together from single units against dry runs of their ranks, over whole small spaces.
#include "planner/search/layout_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "infer/generate/eval_samples.h"
#include "planner/price/cluster.h"
#include "planner/price/gpu_prices.h"
#include "planner/predict/forecast.h"
#include "tests/support/error_text.h"
#include "tests/train/large_machine.h"

namespace trident {
namespace {

struct Space {
  std::string name, model;
  int gpus = 1;
  std::int64_t batch = 24, sequence = 64;
  std::vector<std::string> settings = {};
};

constexpr const char* kLlama =
    R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 500, "max_position_embeddings": 64})";
// Tied, with biases, and a vocabulary that makes the embedding and the head the largest units.
constexpr const char* kGpt2 =
    R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 5, "n_head": 4, "vocab_size": 3000, "n_positions": 64, "resid_pdrop": 0.1,
        "attn_pdrop": 0.0})";

constexpr const char* kMistral =
    R"({"model_type": "mistral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 500, "max_position_embeddings": 64, "sliding_window": 16})";
// One layer of six slides, in a window that leaves out one key.
constexpr const char* kQwen2 =
    R"({"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 500, "max_position_embeddings": 64, "use_sliding_window": true,
        "sliding_window": 62, "max_window_layers": 5})";
// Slides but for two layers, which need long caches on the third of four ranks.
constexpr const char* kQwen2Full =
    R"({"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8, "num_attention_heads": 4,
        "num_key_value_heads": 4, "vocab_size": 64, "max_position_embeddings": 4096, "use_sliding_window": true,
        "sliding_window": 8, "max_window_layers": 8, "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention",
        "sliding_attention", "full_attention", "full_attention", "sliding_attention", "sliding_attention"]})";
const std::vector<std::string> kDocuments = {"data.reset_attention_mask=true", "data.reset_position_ids=true",
                                             "data.eod_mask_loss=true", "data.eod=0", "data.mean_document=20"};

const std::vector<std::string> kSamples = {"eval.every=2", "data.split=9,1", "eval.sample_ids=[\"1 2 3\", \"4\"]",
                                           "eval.sample_tokens=40"};
const std::vector<std::string> kLongSamples = {"eval.every=2", "data.split=9,1", "eval.sample_ids=[\"1 2 3\", \"4\"]",
                                               "eval.sample_tokens=4000"};

TrainConfig config_of(const Space& space) {
  const std::string text = R"({"model": )" + space.model + R"(, "batch": {"global": )" + std::to_string(space.batch) +
                           R"(, "sequence": )" + std::to_string(space.sequence) + R"(}, "optimizer": {"lr": 1e-3}})";
  return parse_train_config(
      text, "a space", plus({"run.dir=unused", "run.steps=1", "data.train=none", "precision.compute=bf16"}, space.settings));
}

// A cluster whose parts all matter: slow links, factors of overlapping, time to launch.
GpuPrices prices_of(const std::string& cluster_name) {
  const PriceBook book = shipped_price_book();
  const Cluster cluster = find_cluster(book, cluster_name);
  return {cluster.gpu, cluster.links};
}

// `ctest -C Full` looks at all of them, and `ctest` at each third one, where there are many.
std::vector<SearchLayout> layouts_of(const Space& space, const ModelConfig& model) {
  SearchSpace search{.gpus = space.gpus, .global_batch = space.batch, .sequence = space.sequence};
  search.micro = {1, 2, 4};
  search.zero.push_back(ZeroPreset::kShardGradOp);
  Rejections rejections;
  std::vector<SearchLayout> layouts = enumerate_layouts(search, model, rejections);
  const std::string_view suite = ::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name();
  std::size_t number = 0;
  if (layouts.size() > 100 && !suite.starts_with("Full"))
    std::erase_if(layouts, [&](const SearchLayout&) { return number++ % 3 != 0; });
  return layouts;
}

class LayoutCostsOf : public ::testing::TestWithParam<Space> {};

TEST_P(LayoutCostsOf, MemoryIsToTheByteThatOfDryRuns) {
  const TrainConfig config = config_of(GetParam());
  const ModelConfig model = resolve_model(config);
  const GpuPrices prices = prices_of("h100_sxm_ndr");
  LayoutCosts costs(config, model, kLargeMachine, nullptr, prices);
  int compared = 0;
  for (const SearchLayout& layout : layouts_of(GetParam(), model)) {
    const std::vector<ArenaMemory> ranks = costs.memory(layout);
    RunPlan plan = make_run_plan(with_layout(config, layout), model, GetParam().gpus, kLargeMachine);
    if (const auto samples = find_eval_samples(config, model)) plan.generation = samples->shapes();
    std::int64_t most = 0;
    for (int rank = 0; rank < layout.pipeline; ++rank) {
      const DryRun dry = dry_run(plan, plan.grid.rank({.pipeline = rank}), nullptr, DryWork::kConstruct);
      for (const MemoryUse use : kMemoryUses)
        ASSERT_EQ(ranks[static_cast<std::size_t>(rank)][use], dry.arena.total_bytes(use))
            << to_string(layout) << ", rank " << rank << ", " << to_string(use);
      ASSERT_EQ(ranks[static_cast<std::size_t>(rank)].gathers_on_use,
                plan.step_programs[static_cast<std::size_t>(rank)].gathers_on_use)
          << to_string(layout);
      most = std::max(most, dry.arena.total_bytes());
      ++compared;
    }
    ASSERT_EQ(costs.worst_memory(layout).memory.total(), most) << to_string(layout);
  }
  EXPECT_GE(compared, GetParam().gpus == 1 ? 6 : 50);
  RecordProperty("ranks", compared);
}

// The most by which something is off, and where.
struct Worst {
  double error = 0;
  std::string where;
  void offer(double other, const SearchLayout& layout) {
    if (other > error) error = other, where = to_string(layout);
  }
};

TEST_P(LayoutCostsOf, TimeIsThatOfTheSimulator) {
  const TrainConfig config = config_of(GetParam());
  const ModelConfig model = resolve_model(config);
  const GpuPrices prices = prices_of("a100_sxm_hdr");
  LayoutCosts costs(config, model, kLargeMachine, nullptr, prices);
  Worst record, bound;
  for (const SearchLayout& layout : layouts_of(GetParam(), model)) {
    if (layout.zero == ZeroPreset::kShardGradOp) continue;
    const RunPlan plan = make_run_plan(with_layout(config, layout), model, GetParam().gpus, kLargeMachine);
    const double simulated = forecast_run(plan, prices, nullptr).price.seconds;
    record.offer(std::abs(price_step(costs.step(layout), prices).seconds / simulated - 1), layout);
    bound.offer(costs.least_seconds(layout) / simulated - 1, layout);
  }
  // Searches price a mean window where only some layers slide.
  const bool exact = model.sliding_layers.empty();
  EXPECT_LE(record.error, exact ? 1e-12 : 2e-2) << record.where;
  EXPECT_LE(bound.error, 1e-12) << bound.where;
}

std::vector<Space> spaces() {
  return {{"Llama8", kLlama, 8},
          {"Llama1", kLlama, 1, 6},
          {"Gpt2Tied8", kGpt2, 8},
          {"LlamaWithoutOverlap", kLlama, 4, 24, 64, {"parallel.overlap=false"}},
          {"Gpt2Fp32", kGpt2, 4, 24, 64, {"precision.compute=fp32", "cuda.tf32=true"}},
          {"LlamaDocuments", kLlama, 4, 24, 62, kDocuments},
          {"MistralWindow", kMistral, 4, 24, 63},
          {"MistralSamples", kMistral, 4, 24, 64, kSamples},
          {"Qwen2FullLayersSamples", kQwen2Full, 4, 8, 64, kLongSamples},
          {"Gpt2Samples", kGpt2, 4, 24, 64, kSamples},
          {"Qwen2WindowsAndDocuments", kQwen2, 4, 24, 64, kDocuments},
          {"LlamaGraphs", kLlama, 8, 24, 64, {"cuda.graphs=true"}}};
}
std::string name_of(const ::testing::TestParamInfo<Space>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Spaces, LayoutCostsOf, ::testing::ValuesIn(spaces()), name_of);
INSTANTIATE_TEST_SUITE_P(FullSpaces, LayoutCostsOf, ::testing::ValuesIn(spaces()), name_of);

// Pipelines of up to 16, stages of unequal length, and many more micro-batches than are written out: on slow links, where
// gathers and reductions take longer than what they run beside, and on fast ones.
class DeepPipelines : public ::testing::TestWithParam<const char*> {};

TEST_P(DeepPipelines, TimeAndMemoryAreThoseOfAllMicroBatches) {
  Space space{"Deep", kLlama, 32, 384, 64};
  space.model = R"({"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 19,
                    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 16000, "max_position_embeddings": 64})";
  const TrainConfig config = config_of(space);
  const ModelConfig model = resolve_model(config);
  const GpuPrices prices = prices_of(GetParam());
  LayoutCosts costs(config, model, kLargeMachine, nullptr, prices);
  SearchSpace search{.gpus = space.gpus, .global_batch = space.batch, .sequence = space.sequence};
  search.micro = {2};
  search.recompute = {RecomputePolicy::kNone};
  Rejections rejections;
  Worst looped, bound;
  int extrapolated = 0;
  for (const SearchLayout& layout : enumerate_layouts(search, model, rejections)) {
    if (layout.sequence_parallel) continue;
    const double simulated = price_step(costs.step(layout), prices).seconds;
    looped.offer(std::abs(price_step(costs.looped_step(layout), prices).seconds / simulated - 1), layout);
    bound.offer(costs.least_seconds(layout) / simulated - 1, layout);
    const int micro_batches = costs.micro_batches(layout);
    extrapolated += micro_batches > ScheduleBook::laid_out(layout.pipeline, micro_batches) ? 1 : 0;
    const std::vector<DryRun> dry =
        dry_stages(make_run_plan(with_layout(config, layout), model, space.gpus, kLargeMachine), nullptr, DryWork::kConstruct);
    const std::vector<ArenaMemory> memory = costs.memory(layout);
    for (std::size_t rank = 0; rank < dry.size(); ++rank)
      ASSERT_EQ(memory[rank].total(), dry[rank].arena.total_bytes()) << to_string(layout) << ", rank " << rank;
  }
  EXPECT_LE(looped.error, 1e-11) << looped.where;
  EXPECT_LE(bound.error, 1e-12) << bound.where;
  EXPECT_GE(extrapolated, 50);
}

INSTANTIATE_TEST_SUITE_P(Clusters, DeepPipelines, ::testing::Values("a10_pcie", "a100_sxm_hdr", "b200_ndr"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace trident
