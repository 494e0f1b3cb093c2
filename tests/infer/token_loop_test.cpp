// Continuations of tiny models: every log-probability against the whole model in double, and the same ids in every batch and
// layout.
#include "infer/generate/token_loop.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/tuning.h"
#include "data/tokenizer/tokenizer.h"
#include "model/gpt.h"
#include "pipeline/schedule/partition.h"
#include "tests/model/layers/tiny_models.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

struct Ranks {
  ParallelDegrees degrees = {};
  std::int64_t slots = 3;
  DType compute = DType::kF32;
  std::int64_t longest = 0;  // prompt, where the request's own are not to decide
  std::vector<PassTime>* passes = nullptr;  // of rank 0
  std::array<double, kNumAxes>* bytes_sent = nullptr;  // likewise
};

std::vector<SubAxis> partial_axes_of(const ModelConfig& config, int tensor) { return partial_axes(config, {.degree = tensor}); }

std::vector<Continuation> run_ranks(const ModelConfig& config, const testing::LogicalTensors& values,
                                    const GenerateRequest& request, const Ranks& ranks) {
  std::int64_t longest = ranks.longest;
  for (const auto& prompt : request.prompts) longest = std::max<std::int64_t>(longest, std::ssize(prompt));
  const KvCacheShape shapes{longest + request.max_new_tokens - 1, ranks.slots, piece_rows_for(longest)};
  const std::vector<double> costs(static_cast<std::size_t>(num_units(config)), 1.0);
  const UnitsOfStage units = partition_balanced(costs, ranks.degrees.pipeline, 1);
  const ProcessGrid grid(ranks.degrees);
  const std::vector<SubAxis> partial = partial_axes_of(config, ranks.degrees.tensor);
  std::vector<Continuation> of_rank_0;
  ThreadWorld world(grid.world_size(), 60.0);
  run_thread_ranks(world, [&](int rank) {
    CpuDeviceOptions options;
    options.small_products = SmallProducts::kRowByRow;
    CpuDevice device(world.doorbell(rank), options);
    ArenaPlan plan;
    std::unique_ptr<Arena> arena;
    ParallelContext context(grid, device, world.communicator(rank, device.progress()), partial, CollectiveChecks::kOn);
    const GridCoordinates at = context.coordinates();
    const LayerGeometry geometry{.tensor_degree = ranks.degrees.tensor, .tensor_rank = at.tensor, .compute = ranks.compute};
    CachedStage stage(config, geometry, units, shapes, context, plan);
    const std::vector<UnitParams> params = stage.unit_params();
    ParamStoreConfig of_store;
    of_store.compute = ranks.compute;
    of_store.trains = false;
    ParamStore store(of_store, params, context, plan);
    arena = std::make_unique<Arena>(plan, device.allocate(plan.total_bytes(), "arena"));
    store.bind(*arena);
    for (const UnitParams& unit : params) {
      for (std::size_t i = 0; i < unit.specs.size(); ++i) {
        const ConstTensorView view = store.weight(unit.unit, static_cast<int>(i));
        testing::scatter({const_cast<std::byte*>(view.data()), view.dtype(), view.shape()}, unit.specs[i], values,
                         ranks.degrees.tensor, at.tensor);
      }
    }
    stage.bind(*arena, store);
    TokenLoop loop(request, stage, shapes, config.vocab_size, context, {});
    if (rank == 0 && ranks.passes != nullptr) loop.watch([&](const PassTime& pass) { ranks.passes->push_back(pass); });
    std::vector<Continuation> result = loop.run();
    if (rank == 0) of_rank_0 = std::move(result);
    if (rank == 0 && ranks.bytes_sent != nullptr) *ranks.bytes_sent = context.bytes_sent();
    context.world().barrier();
  });
  return of_rank_0;
}

GenerateRequest tiny_request() {
  GenerateRequest request;
  request.prompts = {{3, 20, 37}, {4}, {11, 2, 5, 8, 40, 21, 7, 9, 1, 30}, {49, 0}};
  request.max_new_tokens = 5;
  return request;
}

// -log p of the token at `position` of the sequence, by the whole model in double.
double reference_nats(const ModelConfig& config, const testing::LogicalTensors& values, const std::vector<std::int32_t>& sequence,
                      std::size_t position) {
  reference::ModelBatch batch;
  batch.sequence = static_cast<std::int64_t>(position);
  batch.samples = 1;
  batch.tokens.assign(sequence.begin(), sequence.begin() + static_cast<std::ptrdiff_t>(position));
  batch.targets.assign(position, -1);
  batch.targets.back() = sequence[position];
  batch.sample_numbers = {0};
  reference::Model<double> model(config, values);
  return model.run(batch);
}

class TinyModelTest : public ::testing::TestWithParam<testing::TinyModel> {};
INSTANTIATE_TEST_SUITE_P(Models, TinyModelTest, ::testing::ValuesIn(testing::tiny_models()),
                         [](const auto& info) { return std::string(info.param.name); });

ModelConfig without_dropout(ModelConfig config) {
  config.residual_dropout = config.embedding_dropout = 0;
  return config;
}

// The weights do not change while text is made.
TEST(DoraText, TakesTheLengthsOfRowsOnce) {
  std::vector<double> extra;
  for (const std::int64_t tokens : {3, 5}) {
    std::array<double, kNumAxes> bytes[2];
    for (const bool dora : {false, true}) {
      Tuning tuning;
      tuning.adapters.dora = dora;
      for (const char* output : {"mlp.down_proj", "self_attn.o_proj"})
        tuning.adapters.modules.push_back({fmt::format("model.layers.0.{}", output), 3, 2.0});
      ModelConfig config = testing::tiny_llama();
      config.tuning = std::make_shared<const Tuning>(std::move(tuning));
      GenerateRequest request = tiny_request();
      request.max_new_tokens = tokens;
      run_ranks(config, testing::tiny_weights(config), request, {.degrees = {.tensor = 2}, .bytes_sent = &bytes[dora ? 1 : 0]});
    }
    const auto tensor = static_cast<std::size_t>(Axis::kTensor);
    extra.push_back(bytes[1][tensor] - bytes[0][tensor]);
  }
  EXPECT_EQ(extra[0], 2 * static_cast<double>(testing::tiny_llama().hidden) * 4);
  EXPECT_EQ(extra[0], extra[1]);
}

TEST_P(TinyModelTest, GreedyTokensAreTheLikeliestOfTheWholeModelAndTheirLogProbabilitiesItsOwn) {
  const testing::LogicalTensors values = testing::tiny_weights(GetParam().config);
  GenerateRequest request = tiny_request();
  request.sampling.temperature = 0;
  // Dropout is off where text is made, whatever the model was trained with.
  const std::vector<Continuation> made = run_ranks(GetParam().config, values, request, {});
  const ModelConfig config = without_dropout(GetParam().config);
  ASSERT_EQ(made.size(), 4u);
  for (const Continuation& c : made) {
    std::vector<std::int32_t> sequence = request.prompts[static_cast<std::size_t>(c.prompt)];
    ASSERT_EQ(c.ids.size(), 5u);
    for (std::size_t i = 0; i < c.ids.size(); ++i) {
      sequence.push_back(c.ids[i]);
      EXPECT_NEAR(-c.log_probabilities[i], reference_nats(config, values, sequence, sequence.size() - 1), 2e-5)
          << "prompt " << c.prompt << ", token " << i;
    }
    // At the last place every token is tried.
    double least = std::numeric_limits<double>::infinity();
    for (std::int32_t id = 0; id < config.vocab_size; ++id) {
      sequence.back() = id;
      least = std::min(least, reference_nats(config, values, sequence, sequence.size() - 1));
    }
    EXPECT_NEAR(-c.log_probabilities.back(), least, 2e-5) << "prompt " << c.prompt;
  }
}

void expect_same(const std::vector<Continuation>& a, const std::vector<Continuation>& b, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].ids, b[i].ids) << what << ", sequence " << i;
    EXPECT_EQ(a[i].reason, b[i].reason) << what << ", sequence " << i;
    if (a[i].ids.size() != b[i].ids.size()) continue;
    for (std::size_t t = 0; t < a[i].ids.size(); ++t) {
      EXPECT_NEAR(a[i].log_probabilities[t], b[i].log_probabilities[t], tolerance) << what << ", sequence " << i << ", token " << t;
    }
  }
}

GenerateRequest drawn_request() {
  GenerateRequest request = tiny_request();
  request.samples = 2;
  request.sampling.temperature = 1.3;
  request.sampling.seed = 5;
  return request;
}

TEST_P(TinyModelTest, DrawsAreTheSameInEveryLayout) {
  const testing::LogicalTensors values = testing::tiny_weights(GetParam().config);
  GenerateRequest request = drawn_request();
  for (const std::int64_t top_k : {0, 7}) {
    request.sampling.top_k = top_k;
    request.sampling.repetition_penalty = top_k == 0 ? 1.0 : 1.2;
    const std::vector<Continuation> expected = run_ranks(GetParam().config, values, request, {});
    // The same products in the same order: the same bits. Over tp sums are cut, and no draw here lies near a border.
    expect_same(run_ranks(GetParam().config, values, request, {.degrees = {.data = 3}}), expected, 0, "dp 3");
    expect_same(run_ranks(GetParam().config, values, request, {.degrees = {.pipeline = 2}}), expected, 0, "pp 2");
    expect_same(run_ranks(GetParam().config, values, request, {.degrees = {.tensor = 2}}), expected, 1e-5, "tp 2");
    expect_same(run_ranks(GetParam().config, values, request, {.degrees = {.tensor = 4, .data = 2, .pipeline = 2}}), expected, 1e-5,
                "tp 4, dp 2, pp 2");
  }
}

TEST(TokenLoop, ASequenceSaysTheSameAloneAndInABatchToTheLastBit) {
  const ModelConfig config = testing::tiny_llama();
  const testing::LogicalTensors values = testing::tiny_weights(config);
  const GenerateRequest request = drawn_request();
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const std::vector<Continuation> together = run_ranks(config, values, request, {.slots = 8, .compute = compute});
    expect_same(run_ranks(config, values, request, {.slots = 1, .compute = compute}), together, 0, "one slot");
    expect_same(run_ranks(config, values, request, {.slots = 5, .compute = compute}), together, 0, "five slots");
  }
}

TEST(TokenLoop, SamplesOfAPromptDiffer) {
  const ModelConfig config = testing::tiny_llama();
  GenerateRequest request = drawn_request();
  request.samples = 4;
  const std::vector<Continuation> made = run_ranks(config, testing::tiny_weights(config), request, {});
  EXPECT_NE(made[0].ids, made[1].ids);
  EXPECT_NE(made[0].ids, made[2].ids);
  EXPECT_NE(made[1].ids, made[3].ids);
}

TEST(TokenLoop, EndsWithTheEndTokenWhichBelongsToTheContinuation) {
  const ModelConfig config = testing::tiny_llama();
  const testing::LogicalTensors values = testing::tiny_weights(config);
  GenerateRequest request = drawn_request();
  const std::vector<Continuation> whole = run_ranks(config, values, request, {});
  request.ends = {50, whole[0].ids[2]};
  const std::vector<Continuation> ended = run_ranks(config, values, request, {.degrees = {.data = 2}});
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const auto& ids = whole[i].ids;
    const auto at = std::ranges::find(ids, request.ends[1]);
    const std::vector<std::int32_t> expected(ids.begin(), at == ids.end() ? at : at + 1);
    EXPECT_EQ(ended[i].ids, expected) << "sequence " << i;
    EXPECT_EQ(ended[i].reason, at == ids.end() ? EndReason::kLength : EndReason::kEnd);
  }
  EXPECT_EQ(ended[0].reason, EndReason::kEnd);
}

// A prompt of several pieces: each looks at the keys and values that those before left.
TEST(TokenLoop, APromptOfManyPiecesReadsLikeOneOfOnePiece) {
  ModelConfig config = testing::tiny_llama();
  config.max_positions = 128;
  const testing::LogicalTensors values = testing::tiny_weights(config);
  GenerateRequest request;
  request.max_new_tokens = 4;
  request.sampling.temperature = 0;
  for (const int length : {8, 9, 47, 48, 64, 65, 75}) {
    std::vector<std::int32_t>& prompt = request.prompts.emplace_back();
    for (int i = 0; i < length; ++i) prompt.push_back(static_cast<std::int32_t>((i * 29 + length) % config.vocab_size));
  }
  const std::vector<Continuation> made = run_ranks(config, values, request, {});
  for (const Continuation& c : made) {
    std::vector<std::int32_t> sequence = request.prompts[static_cast<std::size_t>(c.prompt)];
    for (std::size_t i = 0; i < c.ids.size(); ++i) {
      sequence.push_back(c.ids[i]);
      EXPECT_NEAR(-c.log_probabilities[i], reference_nats(config, values, sequence, sequence.size() - 1), 2e-5)
          << "prompt of " << request.prompts[static_cast<std::size_t>(c.prompt)].size() << ", token " << i;
    }
  }
}

// A piece may have more rows than the cache has places.
TEST(TokenLoop, APieceThatIsNotFullReadsLikeAWholeOne) {
  ModelConfig config = testing::tiny_llama();
  config.max_positions = 128;
  const testing::LogicalTensors values = testing::tiny_weights(config);
  GenerateRequest request;
  request.max_new_tokens = 1;
  std::vector<std::int32_t>& prompt = request.prompts.emplace_back();
  for (int i = 0; i < 50; ++i) prompt.push_back(static_cast<std::int32_t>((i * 31 + 5) % config.vocab_size));
  for (const int tensor : {1, 2}) {
    const Continuation made = run_ranks(config, values, request, {.degrees = {.tensor = tensor}}).front();
    std::vector<std::int32_t> sequence = prompt;
    sequence.push_back(made.ids.at(0));
    EXPECT_NEAR(-made.log_probabilities[0], reference_nats(config, values, sequence, prompt.size()), 2e-5);
  }
}

TEST(TokenLoop, PiecesDependOnThePromptAlone) {
  const std::vector<std::int64_t> all{8, 64, 128, 512};
  EXPECT_EQ(pieces_of_prompt(1, all), (std::vector<std::int64_t>{8}));
  EXPECT_EQ(pieces_of_prompt(8, all), (std::vector<std::int64_t>{8}));
  EXPECT_EQ(pieces_of_prompt(23, all), (std::vector<std::int64_t>{8, 8, 8}));
  EXPECT_EQ(pieces_of_prompt(47, all), (std::vector<std::int64_t>{8, 8, 8, 8, 8, 8}));
  EXPECT_EQ(pieces_of_prompt(48, all), (std::vector<std::int64_t>{64}));
  EXPECT_EQ(pieces_of_prompt(75, all), (std::vector<std::int64_t>{64, 8, 8}));
  EXPECT_EQ(pieces_of_prompt(96, all), (std::vector<std::int64_t>{128}));
  EXPECT_EQ(pieces_of_prompt(447, all), (std::vector<std::int64_t>{128, 128, 128, 64}));
  EXPECT_EQ(pieces_of_prompt(448, all), (std::vector<std::int64_t>{512}));
  EXPECT_EQ(pieces_of_prompt(700, all), (std::vector<std::int64_t>{512, 128, 64}));
  for (const std::int64_t longest : {1, 8, 47, 48, 63, 64, 95, 96, 127, 128, 447, 448, 511, 512, 5000}) {
    for (std::int64_t tokens = 1; tokens <= std::min<std::int64_t>(longest, 600); ++tokens)
      EXPECT_EQ(pieces_of_prompt(tokens, piece_rows_for(longest)), pieces_of_prompt(tokens, all)) << tokens << " of " << longest;
  }
}

TEST(TokenLoop, TellsOfEveryPass) {
  const ModelConfig config = testing::tiny_llama();
  GenerateRequest request;
  request.prompts = {{3, 20, 37}, {4}, {11, 2}};
  request.max_new_tokens = 3;
  std::vector<PassTime> passes;
  run_ranks(config, testing::tiny_weights(config), request, {.slots = 2, .passes = &passes});
  std::vector<std::array<std::int64_t, 3>> told;
  for (const PassTime& pass : passes) {
    told.push_back({pass.is_prompt, pass.tokens, pass.positions});
    EXPECT_GT(pass.seconds, 0);
    EXPECT_GT(pass.cpu_seconds, 0);
    EXPECT_EQ(pass.machine_rate, 0);
  }
  // A step looks at prompts and tokens that are there: 3 + 1 and 1 + 1, then one more of each; then the third alone.
  const std::vector<std::array<std::int64_t, 3>> expected{{1, 3, 0}, {1, 1, 0}, {0, 2, 6}, {0, 2, 8},
                                                          {1, 2, 0}, {0, 1, 3}, {0, 1, 4}};
  EXPECT_EQ(told, expected);
}

TEST(TokenLoop, RefusesLogitsThatAreNotNumbers) {
  const ModelConfig config = testing::tiny_llama();
  testing::LogicalTensors values = testing::tiny_weights(config);
  values.at("model.norm.weight")[3] = std::numeric_limits<double>::quiet_NaN();
  for (const int tensor : {1, 2}) {
    expect_parts(error_of<DataError>([&] { run_ranks(config, values, tiny_request(), {.degrees = {.tensor = tensor}}); }),
                 {"prompt 0: the model's logits after 3 tokens are not finite"});
  }
}

// Where training goes on whatever its samples are.
TEST(TokenLoop, LogitsThatAreNotNumbersEndAContinuationThatDoesNotRefuseThem) {
  const ModelConfig config = testing::tiny_llama();
  testing::LogicalTensors values = testing::tiny_weights(config);
  values.at("model.norm.weight")[3] = std::numeric_limits<double>::quiet_NaN();
  GenerateRequest request = tiny_request();
  request.refuses_non_finite = false;
  for (const ParallelDegrees& degrees : {ParallelDegrees{}, ParallelDegrees{.tensor = 2, .data = 2, .pipeline = 2}}) {
    for (const Continuation& c : run_ranks(config, values, request, {.degrees = degrees})) {
      EXPECT_EQ(c.reason, EndReason::kNonFinite);
      EXPECT_TRUE(c.ids.empty());
    }
  }
}

TEST(TokenLoop, EveryDataRankMakesAllWhereItIsAskedTo) {
  const ModelConfig config = testing::tiny_llama();
  const testing::LogicalTensors values = testing::tiny_weights(config);
  GenerateRequest request = drawn_request();
  const std::vector<Continuation> expected = run_ranks(config, values, request, {});
  request.each_data_rank = true;
  expect_same(run_ranks(config, values, request, {.degrees = {.data = 3, .pipeline = 2}}), expected, 0, "dp 3, pp 2");
}

TEST(TokenLoop, StopsBeforeAStopString) {
  ModelConfig config = testing::tiny_llama();
  config.vocab_size = 50257;
  const testing::LogicalTensors values = testing::tiny_weights(config);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer("gpt2");
  GenerateRequest request = drawn_request();
  request.tokenizer = tokenizer.get();
  const std::vector<Continuation> whole = run_ranks(config, values, request, {});
  ASSERT_GE(whole[0].text.size(), 4u) << whole[0].text;
  request.stops = {whole[0].text.substr(whole[0].text.size() - 2)};
  for (const int data : {1, 2}) {
    const std::vector<Continuation> stopped = run_ranks(config, values, request, {.degrees = {.data = data}});
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const std::size_t at = whole[i].text.find(request.stops[0]);
      EXPECT_EQ(stopped[i].text, whole[i].text.substr(0, at)) << "sequence " << i << " of " << data << " data ranks";
      EXPECT_EQ(stopped[i].reason, at == std::string::npos ? EndReason::kLength : EndReason::kStop);
    }
  }
}

}  // namespace
}  // namespace trident
