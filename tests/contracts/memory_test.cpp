// The memory contract: what the plan says is what a rank takes, to the byte; the published formulas hold; a step allocates nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <mutex>
#include <string>

#include "core/check.h"
#include "model/config/model_stats.h"
#include "tests/contracts/contract_cases.h"
#include "tests/support/cpu_ranks.h"
#include "tests/support/error_text.h"
#include "tests/support/layout_run.h"

namespace trident::contracts {
namespace {

using testing::LayoutRun;
using testing::LayoutRunOptions;

ContractCase find_case(const std::string& name) {
  for (const ContractCase& c : contract_cases()) {
    if (c.name == name) return c;
  }
  throw InternalError("no case " + name);
}

class MemoryContract : public ::testing::TestWithParam<ContractCase> {};

TEST_P(MemoryContract, HighWaterIsThePlan) {
  LayoutRunOptions options;
  options.steps = 2;
  options.evaluate = true;
  const LayoutRun run = testing::run_layout(config_of(GetParam()), {}, options);
  ASSERT_EQ(static_cast<int>(run.planned_bytes.size()), GetParam().world());
  for (std::size_t rank = 0; rank < run.planned_bytes.size(); ++rank) {
    EXPECT_GT(run.planned_bytes[rank], 0) << "rank " << rank;
    EXPECT_EQ(run.high_water[rank], run.planned_bytes[rank]) << "rank " << rank;
  }
}

TEST_P(MemoryContract, StepsAllocateNothing) {
  const LayoutRun run = testing::run_layout(config_of(GetParam()), {"debug.no_alloc=true"});
  EXPECT_EQ(run.losses.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Layouts, MemoryContract, ::testing::ValuesIn(contract_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(NoAllocation, HoldsWithDropoutAndClipping) {
  const ContractCase c = find_case("tp2_sp_gpt2");
  const std::vector<std::string> settings = {"debug.no_alloc=true", "model.dropout=0.1", "optimizer.grad_clip=0.1"};
  EXPECT_EQ(testing::run_layout(config_of(c), settings).losses.size(), 3u);
}

// The check itself: an allocation inside the second step is an error that names what allocated.
TEST(NoAllocation, IsAnErrorInsideAStep) {
  LayoutRunOptions options;
  options.on_gradients = [](const ParamStore&, ParallelContext&, int step) {
    if (step == 1) std::vector<int>(1000).at(0) = 1;
  };
  expect_parts(error_of<Error>([&] { testing::run_layout(config_of(find_case("one_rank")), {"debug.no_alloc=true"}, options); }),
               {"debug.no_alloc"});
  EXPECT_EQ(testing::run_layout(config_of(find_case("one_rank")), {}, options).losses.size(), 3u) << "without the option";
}

// ---- logits in chunks

// Bytes of what a rank's plan calls `name`, or a name that begins so.
std::int64_t planned(const ArenaPlan& plan, std::string_view name) {
  std::int64_t bytes = 0;
  for (const ArenaPlan::Entry& entry : plan.entries()) {
    if (entry.name.starts_with(name)) bytes += entry.slot.bytes;
  }
  return bytes;
}

struct HeadMemory {
  std::int64_t activations = 0, scratch = 0, workspace = 0, arena = 0;
};

HeadMemory head_memory(ContractCase c, std::int64_t chunk) {
  c.head_chunk = chunk;
  HeadMemory memory;
  LayoutRunOptions options;
  options.steps = 1;
  options.after_steps = [&](RankTrainer& trainer) {
    if (trainer.context().rank() != c.world() - 1) return;  // of the last stage
    const ArenaPlan& plan = trainer.arena_plan();
    memory = {planned(plan, "activations of stage"), planned(plan, "scratch"), planned(plan, "workspace"),
              plan.total_bytes()};
  };
  testing::run_layout(config_of(c), {}, options);
  return memory;
}

// Every micro-batch in flight keeps its logits, R x C x w bytes, or none does and scratch holds those of one chunk.
TEST(HeadChunkMemory, IsThatOfOneChunk) {
  for (const bool gpipe : {false, true}) {
    ContractCase c = find_case("tp2_sp_pp2_gpipe_head_chunk_bf16");
    if (!gpipe) c.schedule = "1f1b";
    const std::int64_t rows = c.micro * c.sequence, columns = 128, logits = rows * columns * c.compute_bytes;
    const std::int64_t in_flight = gpipe ? c.micro_batches : 1;
    const HeadMemory whole = head_memory(c, 0), chunked = head_memory(c, 2);
    EXPECT_EQ(whole.activations - chunked.activations, in_flight * logits) << c.schedule;
    const std::int64_t maxima = rows * 4;  // of this rank's columns
    EXPECT_LE(chunked.scratch, whole.scratch + 2 * columns * c.compute_bytes + rows * c.model.hidden * c.compute_bytes + maxima)
        << c.schedule;
    // Where products are converted, fewer rows of logits take less to convert.
    EXPECT_GE(whole.workspace, chunked.workspace) << c.schedule;
    EXPECT_EQ(whole.arena - chunked.arena, whole.activations - chunked.activations + whole.scratch - chunked.scratch +
                                               whole.workspace - chunked.workspace)
        << c.schedule;
  }
}

// ---- model state: the table of docs/design/communication.md ---------------------------------------------------------------------

struct ModelState {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;
  bool operator==(const ModelState&) const = default;
};

void PrintTo(const ModelState& s, std::ostream* out) {
  *out << fmt::format("parameters {}, gradients {}, optimizer {}", s.parameters, s.gradients, s.optimizer);
}

// Returns what the plan books for the model's state: without the rotary table, and before ranges are rounded up.
ModelState planned_state(const ArenaPlan& plan) {
  ModelState state;
  for (const ArenaPlan::Entry& entry : plan.entries()) {
    if (entry.name.starts_with("rope.")) continue;
    if (entry.use == MemoryUse::kParameters) state.parameters += entry.slot.bytes;
    if (entry.use == MemoryUse::kGradients) state.gradients += entry.slot.bytes;
    if (entry.use == MemoryUse::kOptimizer) state.optimizer += entry.slot.bytes;
  }
  return state;
}

// w bytes per compute-dtype parameter; P padded parameters of the rank, U the most of them in units that are alive at once:
//   resident weights          w P    | gathered on use, where that is less       w P/N + w U   (w P/N: what gathers send)
//   gradients kept full       4 P    | synced every micro-batch                  4 U' + 4 P/N
//   optimizer, N = 1 under ddp: 12 P/N (f32 master and two moments; an f32 master that is the resident weight itself costs nothing)
ModelState expected_state(const ContractCase& c, int pipeline_rank) {
  std::int64_t all = 0, owned = 0, copies = 0, accumulated = 0;
  for (const std::int64_t unit : expected_units(c, pipeline_rank)) {
    all += expected_elements(c, unit);
    for (const ExpectedBucket& bucket : expected_buckets(c, unit)) {
      const bool is_copy = bucket.tied && unit > 0 && c.pipeline == 1;  // the embedding's weight serves both ends
      owned += is_copy ? 0 : bucket.owned;
      copies += is_copy ? bucket.elements : 0;
      accumulated += bucket.owned;
    }
  }
  const ExpectedRegions regions = expected_regions(c, pipeline_rank);
  const bool f32 = c.compute_bytes == 4, resident = regions.gathered == 0;
  ModelState state;
  state.parameters = c.compute_bytes * (resident ? all - copies : (f32 ? 0 : owned) + regions.gathered);
  state.gradients = 4 * (regions.gradients > 0 ? regions.gradients : all);
  if (c.every() > 0) state.gradients += 4 * accumulated;
  state.optimizer = (f32 && resident ? 8 : 12) * owned;
  return state;
}

TEST_P(MemoryContract, ModelStateFollowsTheFormulas) {
  const ContractCase& c = GetParam();
  std::vector<ModelState> states(static_cast<std::size_t>(c.world())), expected(states.size());
  LayoutRunOptions options;
  options.steps = 1;
  options.after_steps = [&](RankTrainer& trainer) {
    const auto rank = static_cast<std::size_t>(trainer.context().rank());
    states[rank] = planned_state(trainer.arena_plan());
    expected[rank] = expected_state(c, trainer.context().coordinates().pipeline);
  };
  testing::run_layout(config_of(c), {}, options);
  for (std::size_t rank = 0; rank < states.size(); ++rank) EXPECT_EQ(states[rank], expected[rank]) << "rank " << rank;
}

// P frozen parameters take their weights alone, w P; a adapter parameters take all of training, (w + 4) a + 12 a/N, in fp32, where
// the resident weight is the master, 4 a less; 4 a of gradients are full.
TEST(ModelState, OfAdaptersIsTheirsAndTheFrozenWeights) {
  // Rank 4 beside every linear layer, of [in] and [out]: q, k, v, output, gate, up and down.
  constexpr std::int64_t kRank = 4, kInner = 6 * 32 + 48, kOuter = 32 + 16 + 16 + 32 + 48 + 48 + 32;
  for (const std::int64_t width : {2, 4})
    for (const int data : {1, 2})
      for (const char* zero : {"ddp", "zero1"}) {
        ContractCase c = find_case("dp2_ddp");
        c.data = data;
        c.zero = zero;
        c.compute_bytes = width;
        c.tuning = R"("adapter": {"type": "lora", "r": 4})";
        const std::int64_t padded = 64 * data, of_block = (kRank * (kInner + kOuter) + padded - 1) / padded * padded,
                           adapters = c.model.layers * of_block;
        std::int64_t parameters = 0;
        for (const std::int64_t unit : expected_units(c, 0)) parameters += expected_elements(c, unit);
        const ModelState expected{.parameters = width * (parameters + adapters),
                                  .gradients = 4 * adapters,
                                  .optimizer = (width == 4 ? 8 : 12) * adapters / (c.shards_state() ? data : 1)};
        LayoutRunOptions options;
        options.steps = 1;
        options.after_steps = [&](RankTrainer& trainer) {
          EXPECT_EQ(planned_state(trainer.arena_plan()), expected) << zero << " of " << data << ", " << width << " bytes";
        };
        const LayoutRun run = testing::run_layout(config_of(c), {"debug.no_alloc=true"}, options);
        EXPECT_EQ(run.high_water, run.planned_bytes);
      }
}

// bf16 without a pipeline: 18 P under ddp, 6 P + 12 P/N under zero1, 18 P/N and what is alive at once under zero3.
TEST(ModelState, IsThePublishedOne) {
  const std::map<std::string, std::pair<double, double>> coefficients = {{"ddp", {18, 0}}, {"zero1", {6, 12}}, {"zero3", {0, 18}}};
  for (const auto& [zero, per_parameter] : coefficients) {
    ContractCase c = find_case("dp2_ddp");
    c.zero = zero;
    c.compute_bytes = 2;
    std::int64_t parameters = 0;
    for (const std::int64_t unit : expected_units(c, 0)) parameters += expected_elements(c, unit);
    const ExpectedRegions regions = expected_regions(c, 0);
    EXPECT_EQ(regions.gathered > 0, zero == "zero3");
    LayoutRunOptions options;
    options.steps = 1;
    options.after_steps = [&](RankTrainer& trainer) {
      if (trainer.context().rank() != 0) return;
      const ModelState planned = planned_state(trainer.arena_plan());
      const std::int64_t buffers = 2 * regions.gathered + 4 * regions.gradients;
      const std::int64_t state = planned.parameters + planned.gradients + planned.optimizer - buffers;
      const auto p = static_cast<double>(parameters);
      EXPECT_EQ(static_cast<double>(state), per_parameter.first * p + per_parameter.second * p / c.data) << zero;
    };
    testing::run_layout(config_of(c), {}, options);
  }
}

// The process takes what the arenas plan and little more: resident memory of a model of 60M parameters on two thread ranks.

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(ResidentMemory, IsThePlanWithinFivePercentAnd64MB) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep memory of their own";
#endif
  const TrainConfig config = parse_train_config(
      R"({"run": {"dir": "unused", "steps": 10}, "model": {"preset": "llama-60m"}, "data": {"train": "unused"},
          "parallel": {"data": 2, "zero": "zero1"}, "batch": {"global": 2, "micro": 1, "sequence": 32},
          "precision": {"compute": "fp32"}, "optimizer": {"lr": 1e-3}})", "test");
  const ModelConfig model = resolve_model(config);
  ASSERT_GE(num_parameters(model), 60'000'000);
  const RunPlan plan = make_run_plan(config, model, 0, cpu_machine_facts(1));
  const LoadSamples load = testing::random_tokens(model.vocab_size, config.batch.sequence);

  const std::int64_t before = resident_bytes();
  std::int64_t planned = 0, used = 0;
  std::mutex mutex;
  testing::on_cpu_ranks(plan, [&](int rank, RankTrainer& trainer) {
    trainer.step(load);
    {
      const std::lock_guard lock(mutex);
      planned += trainer.arena().planned_bytes();
    }
    trainer.drain();
    if (rank == 0) used = resident_bytes() - before;  // nobody leaves before it was read
  });
  const double allowed = 0.05 * static_cast<double>(planned) + 64e6;
  RecordProperty("planned_bytes", std::to_string(planned));
  RecordProperty("resident_bytes", std::to_string(used));
  EXPECT_NEAR(static_cast<double>(used), static_cast<double>(planned), allowed);
}

}  // namespace
}  // namespace trident::contracts
