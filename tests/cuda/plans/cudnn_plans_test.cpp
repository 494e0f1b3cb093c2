// Every attention graph that the trainer can ask for gets a plan from the real cuDNN, for described GPUs: no GPU, no driver (a
// stand-in, driver_stand_in.sh), nothing runs. A plan takes cuDNN about a second, so a representative part runs by default, and
// everything with
// --gtest_also_run_disabled_tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <set>

#include "device/gpu_workspaces.h"
#include "device/cuda/cudnn_attention_rules.h"
#include "model/config/model_presets.h"

namespace trident {
namespace {

struct Gpu {
  std::string name;
  int compute_major;
  CudnnDescriptor properties;
};

Gpu gpu(const std::string& name, int compute_major) {
  std::ifstream file(TRIDENT_DEVICES_FOLDER "/" + name + ".json");
  const std::string json((std::istreambuf_iterator<char>(file)), {});
  EXPECT_FALSE(json.empty()) << name;
  return {name, compute_major, cudnn_device_properties(json, name)};
}
Gpu h100() { return gpu("h100", 9); }
Gpu h200() { return gpu("h200", 9); }
Gpu a100() { return gpu("a100", 8); }

AttentionShape shape(std::int64_t batch, std::int64_t query_heads, std::int64_t kv_heads, std::int64_t length,
                     std::int64_t head_dim) {
  AttentionShape s;
  s.batch = batch, s.query_heads = query_heads, s.kv_heads = kv_heads, s.head_dim = head_dim;
  s.query_length = s.key_length = length;
  s.dtype = DType::kBF16;
  return s;
}

enum class Graph : std::uint8_t { kForward, kBackward, kDeterministicBackward };

AttentionPass pass_of(const Gpu& gpu, Graph graph, const AttentionShape& s) {
  const Determinism determinism = graph == Graph::kBackward ? Determinism::kNotRequired : Determinism::kRequired;
  return attention_pass(s, graph == Graph::kForward ? AttentionDirection::kForward : AttentionDirection::kBackward,
                        gpu.compute_major, cudnnGetVersion(), {.determinism = determinism});
}

std::optional<CudnnPlan> plan(const Gpu& gpu, Graph graph, const AttentionShape& s, std::string* why) {
  const Determinism determinism = graph == Graph::kBackward ? Determinism::kNotRequired : Determinism::kRequired;
  return CudnnPlan::find(
      graph == Graph::kForward ? attention_forward_graph(s) : attention_backward_graph(s, determinism),
      {.device = &gpu.properties},
      determinism, why);
}

void expect_plan(const Gpu& gpu, Graph graph, const AttentionShape& s) {
  const AttentionPass pass = pass_of(gpu, graph, s);
  ASSERT_TRUE(pass.by_cudnn) << gpu.name << " " << describe(s) << ": " << pass.why_not;
  const AttentionShape& planned = pass.piece;
  std::string why;
  const auto found = plan(gpu, graph, planned, &why);
  ASSERT_TRUE(found) << gpu.name << " " << describe(planned) << " graph " << static_cast<int>(graph) << ": " << why;
  // CudnnAttention takes these besides: row sums, and without determinism the query gradients in f32.
  const std::int64_t rows = graph == Graph::kForward ? 0 : planned.batch * planned.query_heads * planned.query_length * 4;
  const std::int64_t taken = found->workspace_bytes() + rows * (graph == Graph::kBackward ? 1 + planned.head_dim : 1);
  EXPECT_LE(taken, gpu_attention_workspace(s, graph != Graph::kBackward)) << gpu.name << " " << found->name();
  std::printf("%s: %s, %ld pieces: engine %ld, workspace %.1f MB\n", gpu.name.c_str(), found->name().c_str(),
              static_cast<long>(pass.pieces), static_cast<long>(found->engine()),
              static_cast<double>(found->workspace_bytes()) / 1e6);
}

void expect_no_plan(const Gpu& gpu, Graph graph, const AttentionShape& s) {
  std::string why;
  EXPECT_FALSE(plan(gpu, graph, s, &why)) << gpu.name << " " << describe(s) << ": the rules may be relaxed";
}

class CudnnPlans : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto problem = cudnn_version_problem(cudnnGetVersion())) GTEST_SKIP() << "SKIPPED: " << *problem;
  }
};

// ---- a part
// -----------------------------------------------------------------------------------------------------------------------------

// Every head width and kind of head sharing among the presets and configs, and those that models beyond them have.
const AttentionShape kRepresentative[] = {
    shape(32, 12, 12, 1024, 64),  // gpt2-124m
    shape(8, 25, 25, 1024, 64),   // gpt2-1.5b
    shape(2, 8, 4, 64, 16),       // llama-1m
    shape(2, 8, 4, 512, 32),      // llama-15m
    shape(4, 32, 8, 4096, 64),    // llama3.2-1b
    shape(2, 14, 2, 4096, 64),    // qwen2.5-0.5b
    shape(1, 32, 8, 8192, 128),   // llama3-8b
    shape(4, 16, 16, 2048, 128),  // olmo-1b
    shape(2, 32, 32, 2048, 80),  shape(2, 12, 12, 2048, 96), shape(1, 16, 2, 2048, 192), shape(2, 16, 8, 4096, 256),
};

TEST_F(CudnnPlans, AnH100HasPlansForForward) {
  const Gpu c = h100();
  for (const AttentionShape& s : kRepresentative) expect_plan(c, Graph::kForward, s);
}

TEST_F(CudnnPlans, DeterministicBackwardOnAnH100) {
  const Gpu c = h100();
  for (const AttentionShape& s : kRepresentative) expect_plan(c, Graph::kDeterministicBackward, s);
}

// cuDNN proposes no engine where one selection asks for both bounds of an interval; two selections it takes.
TEST_F(CudnnPlans, IntervalsAndBoundedScoresHavePlans) {
  for (const bool bounded : {false, true}) {
    AttentionShape s = shape(2, 8, 2, 1000, 64);
    s.interval = 256, s.softcap = bounded ? 50.0f : 0.0f;
    for (const Graph graph : {Graph::kForward, Graph::kBackward, Graph::kDeterministicBackward}) expect_plan(h100(), graph, s);
    expect_plan(a100(), Graph::kForward, s);
    for (const Graph graph : {Graph::kBackward, Graph::kDeterministicBackward}) expect_no_plan(a100(), graph, s);
  }
  AttentionShape s = shape(2, 32, 8, 8192, 128);  // a key/value head at a time
  s.interval = 4096;
  expect_plan(h100(), Graph::kDeterministicBackward, s);
}

TEST_F(CudnnPlans, AnH100HasPlansForOtherGraphs) {
  const Gpu c = h100();
  AttentionShape s = shape(2, 8, 2, 1000, 64);
  expect_plan(c, Graph::kBackward, s);
  expect_plan(c, Graph::kBackward, shape(1, 32, 8, 4096, 128));
  s.query_offset = 1000;
  s.key_length = 1500;
  for (const Graph graph : {Graph::kForward, Graph::kBackward, Graph::kDeterministicBackward}) expect_plan(c, graph, s);
  s.causal = false;
  for (const Graph graph : {Graph::kForward, Graph::kDeterministicBackward}) expect_plan(c, graph, s);
}

// fp16 training asks for the same graphs, of the other type.
TEST_F(CudnnPlans, F16HasPlans) {
  const Gpu hopper = h100(), ampere = a100();
  AttentionShape gpt2 = shape(32, 12, 12, 1024, 64), llama = shape(4, 32, 8, 4096, 128);
  gpt2.dtype = llama.dtype = DType::kF16;
  for (const Graph graph : {Graph::kForward, Graph::kBackward, Graph::kDeterministicBackward}) expect_plan(hopper, graph, gpt2);
  expect_plan(ampere, Graph::kDeterministicBackward, llama);
}

TEST_F(CudnnPlans, OtherGpusHavePlans) {
  const AttentionShape gpt2 = shape(32, 12, 12, 1024, 64), llama = shape(4, 32, 8, 4096, 128);
  for (const Graph graph : {Graph::kForward, Graph::kBackward, Graph::kDeterministicBackward}) {
    expect_plan(h200(), graph, llama);
    for (const AttentionShape& s : {gpt2, llama}) expect_plan(a100(), graph, s);
  }
}

// The rules refuse what cuDNN refuses.
TEST_F(CudnnPlans, WhatCudnnDoesNotTake) {
  const Gpu hopper = h100(), ampere = a100();
  expect_no_plan(hopper, Graph::kForward, shape(1, 4, 2, 64, 20));
  expect_no_plan(hopper, Graph::kBackward, shape(1, 4, 2, 64, 20));
  expect_no_plan(hopper, Graph::kBackward, shape(1, 4, 2, 64, 264));
  expect_no_plan(ampere, Graph::kBackward, shape(1, 4, 2, 64, 192));
}

// ---- everything
// -------------------------------------------------------------------------------------------------------------------------

TEST_F(CudnnPlans, DISABLED_EveryPresetOnEveryGpu) {
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>> shapes;
  for (const std::string_view name : model_preset_names()) {
    const ModelConfig model = model_preset(name, "test");
    for (const std::int64_t tensor : {1, 2, 4, 8}) {
      if (model.heads % tensor != 0) continue;
      const std::int64_t kv_heads = std::max<std::int64_t>(1, model.kv_heads / tensor);
      if (model.heads / tensor % kv_heads != 0) continue;
      shapes.insert({model.heads / tensor, kv_heads, std::min<std::int64_t>(model.max_positions, 4096), model.head_dim});
    }
  }
  for (const Gpu& c : {h100(), h200(), a100()})
    for (const auto& [heads, kv_heads, length, head_dim] : shapes)
      for (const std::int64_t batch : {1, 8})
        for (const Graph graph : {Graph::kForward, Graph::kBackward, Graph::kDeterministicBackward})
          expect_plan(c, graph, shape(batch, heads, kv_heads, length, head_dim));
}

TEST_F(CudnnPlans, DISABLED_EveryHeadWidth) {
  const Gpu c = h100();
  for (const std::int64_t head_dim : {8, 16, 32, 64, 72, 80, 96, 112, 128, 160, 192, 224, 256})
    for (const std::int64_t kv_heads : {1, 4, 8})
      for (const Graph graph : {Graph::kForward, Graph::kBackward, Graph::kDeterministicBackward})
        for (const bool causal : {true, false}) {
          AttentionShape s = shape(2, 8, kv_heads, 1000, head_dim);
          s.causal = causal;
          expect_plan(c, graph, s);
        }
}

}  // namespace
}  // namespace trident
