// Tests what a plan on a cluster says: parts add up, memory over time meets the arena, advice is what its settings give.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/number_text.h"
#include "model/config/model_stats.h"
#include "planner/predict/cluster_report.h"
#include "planner/predict/plan_page.h"
#include "planner/predict/plan_timeline.h"
#include "planner/predict/rank_memory.h"
#include "planner/price/cluster.h"
#include "planner/study/study.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/train/plan_fixture.h"
#include "tests/train/trace_file.h"

namespace trident {
namespace {

using testing::demo;
using testing::h100;
using testing::layouts;
using testing::planned;
using testing::Settings;

TEST(ClusterForecast, PartsOfTheStepAddUp) {
  for (const Settings& settings : layouts()) {
    const ClusterForecast plan = planned(settings);
    EXPECT_NEAR(plan.parts.total(), plan.seconds(), 1e-9 * plan.seconds());
    for (const double part : plan.parts.seconds) EXPECT_GE(part, -1e-9 * plan.seconds());
    EXPECT_GT(plan.seconds(), 0);
  }
}

TEST(ClusterForecast, PartsOfMemoryAddUpToArenaAndContext) {
  const PlanHardware hardware = h100();
  for (const Settings& settings : layouts()) {
    const ClusterForecast plan = planned(settings);
    ASSERT_EQ(plan.memory.size(), plan.forecast.stages.size());
    for (std::size_t stage = 0; stage < plan.memory.size(); ++stage) {
      const RankMemory& memory = plan.memory[stage];
      const DryRun& run = plan.forecast.stages[stage];
      EXPECT_EQ(memory.total() - memory.of(MemoryPartKind::kContext) - memory.of(MemoryPartKind::kCommunicators),
                run.arena.total_bytes());
      EXPECT_EQ(memory.of(MemoryPartKind::kContext), static_cast<std::int64_t>(hardware.context_bytes));
      std::int64_t activations = 0, exact = 0;
      for (const MemoryPart& part : memory.parts) {
        if (part.kind >= MemoryPartKind::kBlockInputs && part.kind <= MemoryPartKind::kSampledText) activations += part.bytes;
        if (part.certainty == Certainty::kExact) exact += part.bytes;
      }
      EXPECT_EQ(activations, run.arena.total_bytes(MemoryUse::kActivations));
      EXPECT_EQ(memory.held, activations - memory.of(MemoryPartKind::kRecomputed) - memory.of(MemoryPartKind::kSampledText));
      EXPECT_EQ(exact + memory.of(MemoryPartKind::kWorkspaces), run.arena.total_bytes());
      EXPECT_EQ(memory.of(MemoryPartKind::kParameters), run.arena.total_bytes(MemoryUse::kParameters));
      EXPECT_EQ(memory.of(MemoryPartKind::kScratch) + memory.of(MemoryPartKind::kWorkspaces),
                run.arena.total_bytes(MemoryUse::kWorkspace));
      for (std::size_t kind = 0; kind < memory.parts.size(); ++kind)  // one of each, in order, no two of a name
        for (std::size_t other = 0; other <= kind; ++other) {
          EXPECT_EQ(static_cast<std::size_t>(memory.parts[kind].kind), kind);
          EXPECT_EQ(to_string(memory.parts[kind].kind) == to_string(memory.parts[other].kind), kind == other);
        }
      EXPECT_GT(memory.of(MemoryPartKind::kWorkspaces), 0);
      for (const MemoryPart& part : memory.parts) EXPECT_GE(part.bytes, 0) << to_string(part.kind);
      EXPECT_LE(memory.total(), plan.most().total());
    }
  }
  EXPECT_GT(planned().memory.back().of(MemoryPartKind::kLoss), 0) << "the last stage has the head";
  EXPECT_EQ(planned().memory.front().of(MemoryPartKind::kLoss), 0);
}

std::int64_t rounded(std::int64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

// A block keeps these bytes for its backward: for a Llama without tensor parallelism, T = rows x hidden in bf16, one micro-batch.
TEST(ClusterForecast, ActivationsByKindAreThoseOfTheLayers) {
  for (const std::string policy : {"none", "selective", "full"}) {
    SCOPED_TRACE(policy);
    const ClusterForecast plan = planned({"parallel=1DP", "parallel.sequence_parallel=false", "recompute.policy=" + policy,
                                      "precision.compute=bf16", "batch.micro=3", "batch.global=6"});
    const ModelConfig& m = plan.plan.model;
    const std::int64_t rows = 3 * plan.plan.config.batch.sequence, t = rounded(rows * m.hidden * 2), statistics = rounded(rows * 4);
    const auto of = [&](MemoryPartKind kind) { return plan.most().of(kind); };
    const bool full = policy == "full";
    EXPECT_EQ(of(MemoryPartKind::kBlockInputs), (m.layers + 1) * t) << "the head has an input, too";
    // q, and k and v of fewer heads; the core's output and log-sum-exp, which selective recomputation makes again.
    const std::int64_t kv = rounded(rows * m.kv_heads * m.head_dim * 2);
    const std::int64_t q = rounded(rows * m.heads * m.head_dim * 2), core = q + rounded(rows * m.heads * 4);
    EXPECT_EQ(of(MemoryPartKind::kAttention), full ? 0 : m.layers * (q + 2 * kv + (policy == "none" ? core : 0)));
    EXPECT_EQ(of(MemoryPartKind::kMlp), full ? 0 : m.layers * rounded(rows * 2 * m.ffn * 2)) << "gate and up";
    // Two norms' outputs and reciprocal deviations, and the residual between the phases; the head's norm is always kept.
    EXPECT_EQ(of(MemoryPartKind::kNorms), t + statistics + (full ? 0 : m.layers * (3 * t + 2 * statistics)));
    EXPECT_EQ(of(MemoryPartKind::kLoss), rounded(rows * 50304 * 2) + statistics + rounded(2 * rows * 4)) << "padded to 128 columns";
    EXPECT_EQ(of(MemoryPartKind::kSplitBackward), 0);
    EXPECT_EQ(of(MemoryPartKind::kRecomputed) > 0, policy != "none");
    EXPECT_GT(of(MemoryPartKind::kSampledText), 0) << "eval.samples of the demo";
    if (policy == "selective") {
      EXPECT_EQ(of(MemoryPartKind::kRecomputed), core) << "of one block at a time";
    }
  }
}

// A rank alone has nobody to talk to.
TEST(ClusterForecast, CommunicatorsAreThoseThatARankCalls) {
  EXPECT_EQ(planned({"parallel=1DP", "parallel.sequence_parallel=false"}).most().of(MemoryPartKind::kCommunicators), 0);
  EXPECT_GE(planned().most().of(MemoryPartKind::kCommunicators), static_cast<std::int64_t>(4 * h100().communicator_bytes));
}

// Full recomputation: the blocks' forwards again, a third of what they take, but for the last product, whose output no backward
// reads; selective: the attention core, 4 s a d a token.
TEST(ClusterForecast, RecomputedFlopsAreTheClosedForm) {
  const ClusterForecast none = planned({"recompute.policy=none"}), full = planned({"recompute.policy=full"}),
                    selective = planned({"recompute.policy=selective"});
  const ModelConfig& model = none.plan.model;
  const auto tokens = static_cast<double>(none.plan.tokens_per_step()),
             sequence = static_cast<double>(none.plan.config.batch.sequence);
  const double layers = static_cast<double>(model.layers);
  EXPECT_EQ(none.recomputed_flops, 0);
  EXPECT_EQ(none.mfu, none.hfu);
  const auto last_product = 2 * static_cast<double>(model.hidden * model.ffn);
  const double blocks = tokens * layers * (part_flops_per_token(model, none.plan.config.batch.sequence).block / 3 - last_product);
  EXPECT_NEAR(full.recomputed_flops, blocks, 1e-9 * blocks);
  const double core = tokens * layers * 4 * sequence * static_cast<double>(model.heads * model.head_dim);
  EXPECT_NEAR(selective.recomputed_flops, core, 1e-9 * core);
  EXPECT_NEAR(full.hfu / full.mfu, 1 + blocks / full.model_flops, 1e-12);
  EXPECT_NEAR(none.model_flops, tokens * model_flops_per_token(model, none.plan.config.batch.sequence), 1e-9 * none.model_flops);
  EXPECT_NEAR(none.mfu * none.seconds() * 32 * 989e12, none.model_flops, 1e-9 * none.model_flops);
}

TEST(ClusterForecast, MemoryOverTimeReachesWhatTheArenaHasBlocksFor) {
  for (const Settings& settings : layouts()) {
    const ClusterForecast plan = planned(settings);
    for (std::size_t stage = 0; stage < plan.memory.size(); ++stage) {
      const std::vector<HeldBytes> held =
          held_activations(plan.plan.step_programs[stage], plan.forecast.stages[stage].blocks, plan.forecast.price.spans[stage]);
      const std::int64_t booked = plan.memory[stage].held, most = std::ranges::max(held, {}, &HeldBytes::bytes).bytes;
      if (plan.plan.config.parallel.virtual_stages == 1)
        EXPECT_EQ(most, booked);
      else
        EXPECT_LE(most, booked);
      EXPECT_GT(most, 0);
      EXPECT_EQ(held.front().seconds, 0);
      EXPECT_EQ(held.back().bytes, 0) << "nothing is kept beyond the step";
      for (std::size_t i = 1; i < held.size(); ++i) EXPECT_GT(held[i].seconds, held[i - 1].seconds);
    }
  }
}

TEST(ClusterForecast, AdviceIsWhatItsSettingsGive) {
  const PlanHardware hardware = h100();
  const ClusterForecast now = planned();
  const std::vector<PricedChange> changes = priced_changes(hardware, now);
  EXPECT_GE(changes.size(), 8u);
  for (const PricedChange& change : changes) {
    const ClusterForecast changed = plan_on(hardware, demo(change.settings), 0);
    EXPECT_EQ(changed.seconds(), change.seconds) << settings_text(change.settings);
    EXPECT_EQ(changed.most().total(), change.bytes) << settings_text(change.settings);
    EXPECT_EQ(changed.plan.world_size(), 32);
    EXPECT_EQ(changed.plan.tokens_per_step(), now.plan.tokens_per_step());
  }
  const std::vector<PricedChange> advice = advice_of(now, changes, 3);
  ASSERT_FALSE(advice.empty());
  EXPECT_LE(advice.size(), 3u);
  for (const PricedChange& change : advice) EXPECT_LT(change.seconds, now.seconds());
  EXPECT_TRUE(std::is_sorted(advice.begin(), advice.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; }));
  EXPECT_EQ(advice.front().seconds, std::min_element(changes.begin(), changes.end(), [](const auto& a, const auto& b) {
                                      return a.seconds < b.seconds;
                                    })->seconds);
}

TEST(ClusterForecast, AdviceForWhatDoesNotFitIsWhatDoes) {
  PlanHardware small = h100();
  const auto demo_bytes = static_cast<double>(planned().most().total());
  small.device_bytes = demo_bytes - 1;
  const ClusterForecast now = plan_on(small, demo(), 0);
  EXPECT_FALSE(now.fits);
  EXPECT_EQ(now.limit.limit, PlanLimit::kMemory);
  const std::vector<PricedChange> advice = advice_of(now, priced_changes(small, now));
  ASSERT_FALSE(advice.empty());
  for (const PricedChange& change : advice) {
    EXPECT_TRUE(change.fits);
    EXPECT_LE(static_cast<double>(change.bytes), small.device_bytes);
  }
  small.device_bytes = 1;  // nothing does: the least is named
  const ClusterForecast hopeless = plan_on(small, demo(), 0);
  const std::vector<PricedChange> least = advice_of(hopeless, priced_changes(small, hopeless));
  ASSERT_EQ(least.size(), 1u);
  EXPECT_FALSE(least.front().fits);
  EXPECT_LT(least.front().bytes, hopeless.most().total());
}

// Deterministic attention keeps gradients of whole scores: of 131,072 positions 34 GB a head, which no sharding makes less.
TEST(ClusterForecast, AdviceNamesDeterministicAttentionWhereItIsWhatDoesNotFit) {
  const PlanHardware hardware = h100();
  const TrainConfig config = parse_train_config(
      R"({"model": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
                    "max_position_embeddings": 131072},
          "parallel": {"tensor": 8, "data": 8, "sequence_parallel": true}, "batch": {"global": 16, "sequence": 131072},
          "precision": {"compute": "bf16"}, "recompute": {"policy": "full"}, "run": {"steps": 1}, "data": {"train": "none"}})",
      "a long sequence", {"run.dir=unused"});
  const ClusterForecast now = plan_on(hardware, config, 0);
  ASSERT_FALSE(now.fits);
  const std::vector<PricedChange> changes = priced_changes(hardware, now);
  const auto found = std::find_if(changes.begin(), changes.end(), [](const PricedChange& it) {
    return it.settings == std::vector<std::string>{"cuda.deterministic=false"};
  });
  ASSERT_NE(found, changes.end());
  EXPECT_TRUE(found->fits);
  EXPECT_LT(found->bytes, now.most().total() / 2);
}

// 48 sequences of a replica: neither twice nor half of 3 is next to it.
TEST(ClusterForecast, AdviceTriesTheNextDivisors) {
  const TrainConfig config = demo({"batch.global=96", "batch.micro=3"});
  const ClusterForecast now = plan_on(h100(), config, 0);
  const std::int64_t of_replica = now.plan.num_micro_batches * 3;
  ASSERT_EQ(of_replica, 48);
  std::vector<std::string> sizes;
  for (const PricedChange& change : priced_changes(h100(), now))
    if (change.settings.size() == 1 && change.settings[0].starts_with("batch.micro=")) sizes.push_back(change.settings[0]);
  EXPECT_EQ(sizes, (std::vector<std::string>{"batch.micro=4", "batch.micro=2"}));
}

// Prices that make one thing dear.
struct OneDear final : WorkPrices {
  double message = 1e-9, collective = 1e-9, issue = 0;
  double device_seconds(const RecordedOperation& operation) const override { return 1e-15 * operation.flops + 1e-9; }
  double issue_seconds(const RecordedOperation&) const override { return issue; }
  double seconds(const RecordedCollective& call, const GroupPlace&) const override {
    return call.operation == CommOperation::kSend ? message : call.operation == CommOperation::kRecv ? 0 : collective;
  }
  OverlapSlowdown slowdown() const override { return {}; }
  double step_seconds() const override { return 0; }
};

PlanLimit limit_with(const OneDear& prices, const Settings& settings) {
  PlanHardware hardware = h100();
  hardware.prices = std::make_shared<OneDear>(prices);
  return plan_on(hardware, demo(settings), 0).limit.limit;
}

TEST(ClusterForecast, TheFirstLimitIsWhatCostsMost) {
  EXPECT_EQ(limit_with({}, {"parallel=1DP", "parallel.sequence_parallel=false"}), PlanLimit::kCompute);
  EXPECT_EQ(limit_with({}, {"parallel=8DP x 4PP x 1TP", "parallel.sequence_parallel=false"}), PlanLimit::kBubble);
  EXPECT_EQ(limit_with({}, {"parallel=8DP x 4PP x 1TP", "parallel.sequence_parallel=false", "batch.micro=1"}), PlanLimit::kBatch);
  OneDear links;
  links.collective = 1;
  EXPECT_EQ(limit_with(links, {}), PlanLimit::kLinks);
  OneDear host;
  host.issue = 1;
  EXPECT_EQ(limit_with(host, {"parallel=1DP", "parallel.sequence_parallel=false"}), PlanLimit::kLaunch);
}

TEST(ClusterForecast, GpusAreWholeReplicas) {
  const PlanHardware hardware = h100();
  EXPECT_EQ(plan_on(hardware, demo(), 64).plan.grid.degrees().data, 4) << "the configuration says 2";
  EXPECT_EQ(
      error_of<ConfigError>([&] { plan_on(hardware, demo(), 40); }),
      "40 GPUs: not a multiple of the 16 that one replica of the model takes (tensor 4 x context 1 x pipeline 4); ask for 32");
  ParallelConfig huge;
  huge.pipeline = huge.tensor = 1 << 20;
  EXPECT_THROW(planned_replica(huge), ConfigError);
}

Cluster h100_nodes(double device_bytes) {
  Cluster cluster = find_cluster(shipped_price_book(), "h100_sxm_ndr");
  cluster.gpu.device_bytes = device_bytes;
  return cluster;
}

// One configuration, one answer, whoever asks: on devices with room, and on ones that lack a byte for what was chosen there.
TEST(ClusterForecast, AStudysRowIsThePlan) {
  for (const std::string zero : {"ddp", "zero1", "zero2", "shard_grad_op", "zero3"}) {
    for (const std::string compute : {"bf16", "fp16"}) {
      const TrainConfig config =
          demo({"parallel.zero=" + zero, "parallel.grad_sync=auto", "precision.compute=" + compute, "batch.global=64"});
      double device_bytes = h100().device_bytes;
      for (const bool lacks : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} of {} bytes", zero, compute, device_bytes));
        const Cluster cluster = h100_nodes(device_bytes);
        StudyRow row;
        cluster_hardware(cluster).price({config, 32, 2}, row);
        const ClusterForecast plan = plan_on(hardware_of(cluster), config, 0);
        EXPECT_EQ(row.seconds, plan.seconds());
        EXPECT_EQ(row.memory_bytes, plan.most().total());
        EXPECT_EQ(row.optimizer_bytes, plan.most().of(MemoryPartKind::kOptimizer));
        EXPECT_EQ(row.fits, plan.fits);
        EXPECT_EQ(row.mfu, plan.mfu);
        EXPECT_EQ(row.parts.seconds, plan.parts.seconds);
        EXPECT_EQ(row.bytes_sent, plan.bytes_sent);
        EXPECT_TRUE(lacks || plan.fits);
        device_bytes = static_cast<double>(plan.most().total()) - 1;
      }
    }
  }
}

// Reducing once a step must leave room for context and communicators: with a byte less gradients are reduced more often.
TEST(ClusterForecast, GradSyncAutoLeavesRoomForContextAndCommunicators) {
  const TrainConfig once = demo({"parallel.zero=zero2", "parallel.grad_sync=step", "batch.global=64"});
  const TrainConfig automatic = demo({"parallel.zero=zero2", "parallel.grad_sync=auto", "batch.global=64"});
  const auto needed = static_cast<double>(plan_on(h100(), once, 0).most().total());
  const ClusterForecast fits = plan_on(hardware_of(h100_nodes(needed)), automatic, 0);
  EXPECT_EQ(fits.plan.zero.grad_sync_every, 0);
  EXPECT_TRUE(fits.fits);
  EXPECT_NE(plan_on(hardware_of(h100_nodes(needed - 1)), automatic, 0).plan.zero.grad_sync_every, 0);
}

TEST(ClusterForecast, GpusMultiplyFp16) {
  EXPECT_EQ(planned({"precision.compute=fp16"}).plan.compute_reason, "precision.compute = fp16");
}

TEST(ClusterForecast, TrainingCostIsStepsTimesSeconds) {
  const ClusterForecast plan = planned();
  const TrainingCost cost = training_cost(h100(), plan, 1e9);
  EXPECT_NEAR(cost.steps, 1e9 / static_cast<double>(plan.plan.tokens_per_step()), 1e-6 * cost.steps);
  EXPECT_NEAR(cost.gpu_hours, cost.steps * plan.seconds() * 32 / 3600, 1e-9 * cost.gpu_hours);
  EXPECT_NEAR(cost.days * 24 * 32, cost.gpu_hours, 1e-9 * cost.gpu_hours);
}

TEST(ClusterForecast, SomeStagesAreTheEndsAndTheWanted) {
  ClusterForecast plan;
  plan.memory.resize(64);
  const std::vector<std::size_t> some = some_stages(plan, 8, 13);
  EXPECT_EQ(some.size(), 8u);
  EXPECT_EQ(some.front(), 0u);
  EXPECT_EQ(some.back(), 63u);
  EXPECT_TRUE(std::count(some.begin(), some.end(), 13u) == 1);
  plan.memory.resize(3);
  EXPECT_EQ(some_stages(plan, 8, 1), (std::vector<std::size_t>{0, 1, 2}));
}

// Tests what a plan on a cluster draws: trace, timeline, page and memory over time.

TEST(PlanDrawings, TheTraceOfASimulatedStepIsATrace) {
  const TemporaryFolder folder;
  for (const Settings& settings : layouts()) {
    const ClusterForecast plan = planned(settings);
    write_plan_trace(folder / "t.json", plan.plan, plan.forecast);
    const nlohmann::json trace = nlohmann::json::parse(read_file(folder / "t.json"));
    const nlohmann::json schema = nlohmann::json::parse(read_file(TRIDENT_SOURCE_DIR "/docs/trace.schema.json"));
    EXPECT_EQ(testing::schema_problems(schema, trace), std::vector<std::string>{});
    EXPECT_EQ(testing::trace_problems(trace), std::vector<std::string>{});
    std::size_t sends = 0;
    for (const StepProgram& program : plan.plan.step_programs)
      sends += static_cast<std::size_t>(std::count_if(program.instructions.begin(), program.instructions.end(),
                                                      [](const Instruction& i) { return i.is_send(); }));
    EXPECT_EQ(testing::count_arrows(trace), sends);
  }
}

std::size_t computes_of(const ClusterForecast& plan) {
  std::size_t n = 0;
  for (const StepProgram& program : plan.plan.step_programs)
    for (const Instruction& i : program.instructions) n += i.is_compute() ? 1 : 0;
  return n;
}

TEST(PlanDrawings, TheTimelineHasEverySpanWhereItIs) {
  for (const Settings& settings : layouts()) {
    const ClusterForecast plan = planned(settings);
    const Timeline whole = timeline_of(plan.plan, plan.forecast), merged = timeline_of(plan.plan, plan.forecast, 1);
    std::size_t computes = 0, actions = 0;
    double busy = 0, merged_end = 0;
    for (const TimelineRow& row : whole.rows) {
      double before[2] = {0, 0};
      for (const TimelineSpan& span : row.spans) {
        double& end = before[span.beside ? 1 : 0];
        EXPECT_GE(span.start, end - 1e-12);
        end = span.end;
        computes += span.number != TimelineSpan::kNoNumber ? 1 : 0;
        busy = std::max(busy, span.end);
      }
    }
    for (const TimelineRow& row : merged.rows) {
      for (const TimelineSpan& span : row.spans) {
        actions += span.number != TimelineSpan::kNoNumber ? 1 : 0;
        merged_end = std::max(merged_end, span.end);
      }
    }
    EXPECT_EQ(computes, computes_of(plan));
    EXPECT_EQ(actions, 2u * static_cast<std::size_t>(plan.plan.num_micro_batches * plan.plan.config.parallel.virtual_stages) *
                           plan.plan.step_programs.size())
        << "a forward and a backward of each micro-batch and virtual stage";
    EXPECT_EQ(busy, merged_end);
    EXPECT_LE(busy, plan.seconds() * (1 + 1e-9));
  }
}

TEST(PlanDrawings, ThePageHasTheNumbersAndNoMarkupOfOthers) {
  const std::string name = "runs/<script>alert(1)</script>";
  const ClusterReport report = report_on(h100(), demo({"run.dir=" + name}), 0, 2e9);
  const std::string html = to_html(page_of(report));
  EXPECT_EQ(html.find("alert(1)</script>"), html.npos);
  expect_parts(html, {"Plan of runs/&lt;script&gt;alert(1)"});
  expect_parts(html, {seconds_text(report.plan.seconds()), std::string("2 billion tokens"),
                      settings_text(report.advice.front().settings), std::string(to_string(report.plan.limit.limit))});
  expect_parts(html, {"class=\"timeline\"", "class=\"chart\""});
}

// A chart of a long step loses none of its peaks.
TEST(PlanDrawings, AThinnedChartKeepsItsPeaks) {
  const ClusterReport report = report_on(h100(), demo({"batch.global=4096"}), 0, 0);
  const LinePlot plot = memory_over_time(report);
  ASSERT_EQ(plot.lines.size(), 4u);
  for (std::size_t stage = 0; stage < 4; ++stage) {
    EXPECT_LE(plot.lines[stage].points.size(), 1210u);
    double most = 0;
    for (const PlotPoint& point : plot.lines[stage].points) most = std::max(most, point.y);
    EXPECT_NEAR(most, 1e-9 * static_cast<double>(report.plan.memory[stage].total()), 1e-9) << "the arena's blocks, all in use";
  }
}

}  // namespace
}  // namespace trident
