// Training with CUDA graphs on simulated GPUs: the bits of training without. A graph keeps the arguments that it was captured
// with, so one that is launched for other work shows as wrong numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cuda/simulated/cublaslt.h"
#include "support/parity_cases.h"
#include "tests/cuda/training/on_gpus.h"
#include "tests/support/error_text.h"
#include "train/plan/machine.h"

namespace trident::testing {
namespace {

std::string llama() {
  return small_llama(16, 2, replaced(replaced(kSmallRun, R"("global": 4)", R"("global": 6)"), "constant", "cosine"));
}
std::string gpt2(double dropout) { return small_gpt2(16, 2, dropout, replaced(kSmallRun, "fp32", "bf16")); }

class Graphs : public OnGpus {
 protected:
  LayoutRun run(const std::string& config, std::vector<std::string> settings, bool graphs, int steps = 5) {
    if (graphs) settings.push_back("cuda.graphs=true");
    return on_gpu(config, settings, {.steps = steps, .evaluate = true, .load = load_});
  }
  // Returns the graphs that there were, after checking that they changed nothing.
  simulated::GraphUses expect_same(const std::string& config, const std::vector<std::string>& settings = {}, int steps = 5) {
    const LayoutRun without = run(config, settings, false, steps);
    EXPECT_EQ(simulated::graph_uses().launched, 0u);
    const LayoutRun with = run(config, settings, true, steps);
    EXPECT_EQ("", compare_bits(with, without));
    EXPECT_EQ(with.eval_loss, without.eval_loss);
    return simulated::graph_uses();
  }

  LoadSamples load_;
};

// One rank, four units, six micro-batches in one activation block, two gradient buffers that take turns. Different
// works, each captured when it comes for the second time:
//   forward   blocks 1 each; the embedding and the head have tokens, targets and losses of their own for each micro-batch: 6 each
//   backward  the first micro-batch overwrites gradients, the others add, each parity in a buffer: 3 of each block and of the
//             head, which finds the gradient of the logits made; of the embedding one for each micro-batch: 6
//   update    one of each unit
// Evaluation is forward passes, which came in training, but for the head's, which make no gradient there: 6. Passes of blocks come
// again within the first step.
TEST_F(Graphs, AreCapturedOnceAndLaunchedFromThenOn) {
  constexpr std::size_t kUnits = 4, kBlocks = 2, kMicroBatches = 6, kSteps = 5, kEvaluations = 2;
  const simulated::GraphUses uses = expect_same(llama());
  const std::size_t works = kBlocks * (1 + 3) + 2 * kMicroBatches + (2 * kMicroBatches + 3) + kUnits;
  EXPECT_EQ(uses.instantiated, works);
  const std::size_t passes = kSteps * kMicroBatches * kUnits * 2 + kEvaluations * kMicroBatches * kUnits;
  EXPECT_EQ(uses.launched, passes + kSteps * kUnits - works) << "all but the first time of each";
  EXPECT_GT(uses.operations, 5 * uses.launched);
}

TEST_F(Graphs, KeepTheBitsInEveryLayout) {
  for (const auto& [zero, schedule] : {std::pair("zero1", "1f1b"), {"zero3", "1f1b"}, {"zero3", "gpipe"}}) {
    SCOPED_TRACE(std::string(zero) + " " + schedule);
    const simulated::GraphUses uses = expect_same(
        llama(), {"parallel=\"2DP x 2PP\"", std::string("parallel.zero=") + zero, std::string("parallel.schedule=") + schedule}, 3);
    EXPECT_GT(uses.launched, uses.instantiated);
    SetUp();
  }
}

TEST_F(Graphs, KeepTheBitsOfRecomputation) {
  EXPECT_GT(expect_same(llama(), {"recompute.policy=full"}).launched, 200u);
}

TEST_F(Graphs, KeepTheBitsOfTiedWeightsInHalfPrecision) { EXPECT_GT(expect_same(gpt2(0), {"parallel=\"2PP\""}).launched, 100u); }

// Bits are drawn anew in every update: the update's number is not part of the graph.
TEST_F(Graphs, KeepTheBitsOfStochasticRounding) {
  const std::vector<std::string> rounding{"precision.compute=bf16", "precision.stochastic_rounding=true"};
  const auto with = [&](const std::vector<std::string>& settings) { return plus(settings, rounding); };
  for (const auto& layout : {std::vector<std::string>{"parallel=\"2DP x 2PP\"", "parallel.zero=zero3"}, {"parallel=\"2TP\""}}) {
    const simulated::GraphUses uses = expect_same(llama(), with(layout), 3);
    EXPECT_GT(uses.launched, uses.instantiated);
    SetUp();
  }
  EXPECT_GT(expect_same(gpt2(0), with({"parallel=\"2PP\""}), 3).launched, 40u);
}

// Streams run late and in an order made to hurt: a graph that is launched before what it
// needs is there would compute something else.
TEST_F(Graphs, KeepTheBitsWhateverTheOrderOfStreams) {
  const std::vector<std::string> layout = {"parallel=\"2DP x 2PP\"", "parallel.zero=zero3"};
  const LayoutRun without = run(llama(), layout, false, 3);
  for (const simulated::StreamOrder order : {simulated::StreamOrder::kTargetFirst, simulated::StreamOrder::kOthersFirst}) {
    configure({.stream_order = order});
    EXPECT_EQ("", compare_bits(run(llama(), layout, true, 3), without)) << static_cast<int>(order);
  }
}

// The key of a step and the samples of a micro-batch are read from memory. Evaluations, without dropout, are other works:
// the embedding has six each way for its tokens, blocks two.
TEST_F(Graphs, KeepTheBitsOfDropout) {
  constexpr std::size_t kSteps = 5, kMicroBatches = 4, kUnits = 4, kBlocks = 2, kEvaluations = 2;
  for (const char* recompute : {"none", "full"}) {
    const simulated::GraphUses uses = expect_same(gpt2(0.1), {std::string("recompute.policy=") + recompute});
    const std::size_t works = (2 + 1) * kMicroBatches + kBlocks * (2 + 3) + (2 * kMicroBatches + 3) + kUnits;
    EXPECT_EQ(uses.instantiated, works) << recompute;
    EXPECT_EQ(uses.launched, kSteps * kMicroBatches * kUnits * 2 + kEvaluations * kMicroBatches * kUnits + kSteps * kUnits - works)
        << recompute;
    SetUp();
  }
}

// The scale is searched from 2^32 down: steps are skipped, and every one has another
// scale. As many works as with a scale that stays.
TEST_F(Graphs, KeepTheBitsWhileTheLossScaleIsSearched) {
  constexpr std::size_t kUnits = 4, kBlocks = 2, kMicroBatches = 6, kEvaluations = 2;
  constexpr int kSteps = 17;
  for (const char* chunk : {"0", "3"}) {
    SCOPED_TRACE(chunk);
    const std::vector<std::string> half = {"precision.compute=fp16", std::string("recompute.head_chunk=") + chunk, "run.steps=100"};
    const LayoutRun without = run(llama(), half, false, kSteps), with = run(llama(), half, true, kSteps);
    EXPECT_EQ("", compare_bits(with, without));
    EXPECT_EQ(with.eval_loss, without.eval_loss);
    EXPECT_EQ(with.applied, without.applied);
    const auto applied = static_cast<std::size_t>(std::ranges::count(with.applied, true));
    ASSERT_LT(applied, static_cast<std::size_t>(kSteps - 8)) << "the scale was there at once";
    ASSERT_GE(applied, 2u) << "no update has come again";
    const simulated::GraphUses uses = simulated::graph_uses();
    // In chunks training's forward is the norm alone, the same for all micro-batches, and an evaluation's makes the losses.
    const std::size_t of_head = 2 * kMicroBatches + (*chunk == '0' ? 3 : 1);
    const std::size_t works = kBlocks * (1 + 3) + 2 * kMicroBatches + of_head + kUnits;
    EXPECT_EQ(uses.instantiated, works);
    EXPECT_EQ(uses.launched,
              kSteps * kMicroBatches * kUnits * 2 + kEvaluations * kMicroBatches * kUnits + applied * kUnits - works);
    SetUp();
  }
}

// First keys are read from memory: documents begin elsewhere in each step than in the one whose passes were captured.
TEST_F(Graphs, KeepTheBitsOfDocuments) {
  constexpr std::int64_t kSequence = 8;
  load_ = [random = random_tokens(61, kSequence)](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    random(first, count, spans);
    if (spans.document_starts.empty()) return;
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t s = 0, start = 1 + (first + i) % (kSequence - 1); s < kSequence; ++s)
        spans.document_starts[static_cast<std::size_t>(i * kSequence + s)] = static_cast<std::int32_t>(s < start ? 0 : start);
  };
  const std::vector<std::string> documents = {"data.reset_attention_mask=true", "data.eod=1"};
  EXPECT_GT(expect_same(llama(), documents).launched, 200u);
  EXPECT_NE(run(llama(), documents, false, 1).losses, run(llama(), {}, false, 1).losses) << "nothing was hidden";
}

// Collectives lie within the passes: only updates are repeated.
TEST_F(Graphs, LeaveOutTensorParallelPasses) {
  const simulated::GraphUses uses = expect_same(llama(), {"parallel=\"2TP\""});
  EXPECT_EQ(uses.instantiated, 2u * 4);
  EXPECT_EQ(uses.launched, 2u * 4 * (5 - 1));
}

std::string note_of(const std::string& config, std::vector<std::string> settings, DeviceKind device) {
  settings.insert(settings.end(), {"run.steps=5", "data.train=unused"});
  const TrainConfig parsed = parse_train_config(config, "test", settings);
  MachineFacts machine = cpu_machine_facts(1);
  machine.device = device;
  for (const std::string& note : make_run_plan(parsed, resolve_model(parsed), 0, machine).notes)
    if (note.starts_with("cuda.graphs")) return note;
  return "none";
}

TEST(GraphsNote, SaysWhatIsLeftOut) {
  EXPECT_EQ(note_of(llama(), {}, DeviceKind::kCuda), "none");
  EXPECT_EQ(note_of(llama(), {"cuda.graphs=true"}, DeviceKind::kCpu),
            "cuda.graphs has no effect: the run computes on the processor");
  EXPECT_EQ(note_of(llama(), {"cuda.graphs=true"}, DeviceKind::kCuda),
            "cuda.graphs: updates of units are captured and launched as a whole, and so are their passes");
  EXPECT_EQ(note_of(gpt2(0.1), {"cuda.graphs=true"}, DeviceKind::kCuda), note_of(llama(), {"cuda.graphs=true"}, DeviceKind::kCuda));
  EXPECT_EQ(note_of(llama(), {"cuda.graphs=true", "parallel=\"2TP\""}, DeviceKind::kCuda),
            "cuda.graphs: updates of units are captured and launched as a whole; their passes are not, because parallel.tensor = 2 "
            "communicates "
            "within them");
}

// Training with biases, GELU and their gradients left to the kernels of products: the numbers of training without.

// Four micro-batches a step: the first overwrites gradients, the others add.
const std::string kGpt2 = small_gpt2(32, 3, 0);

class Epilogues : public OnGpus {
 protected:
  struct Trained {
    LayoutRun run;
    std::int64_t fused = 0;  // products with an epilogue, in steps and evaluations
  };
  Trained train(std::vector<std::string> settings, bool epilogues) {
    if (epilogues) settings.push_back("cuda.epilogues=true");
    const std::int64_t before = simulated::cublaslt_counts().fused;
    Trained trained{on_gpu(kGpt2, settings, {.evaluate = true})};
    const std::int64_t all = simulated::cublaslt_counts().fused - before;
    // Without those that are run before the first step.
    on_gpu(kGpt2, settings, {.steps = 0});
    trained.fused = all - (simulated::cublaslt_counts().fused - before - all);
    return trained;
  }
  // In fp32, as another order of the same sums. Biases among the gradients: each within its own size.
  void expect_same(const std::vector<std::string>& settings, std::int64_t fused) {
    const Trained with = train(settings, true), without = train(settings, false);
    EXPECT_EQ(with.fused, fused);
    EXPECT_EQ(without.fused, 0);
    EXPECT_EQ("", compare_losses(with.run, without.run));
    EXPECT_EQ("", compare_gradients(with.run.gradients, without.run.gradients));
    EXPECT_NEAR(with.run.eval_loss, without.run.eval_loss, 1e-6 * without.run.eval_loss);
    EXPECT_EQ(with.run.planned_bytes, without.run.planned_bytes);
  }
};

// Each block and pass has these. Forward: queries with keys and values, the attention's output, and both of the feed-forward part.
// Backward: the gradient of GELU, and four weight gradients.
constexpr std::int64_t kForward = 4, kBackward = 5, kBlocks = 3, kMicroBatches = 4, kSteps = 3, kEvaluated = 8;

TEST_F(Epilogues, OneRank) {
  expect_same({}, kBlocks * (kSteps * kMicroBatches * (kForward + kBackward) + kEvaluated * kForward));
}

// Queries, keys, values and the first feed-forward product are made again, with their biases.
TEST_F(Epilogues, RecomputationFusesAgain) {
  expect_same({"recompute.policy=full"}, kBlocks * (kSteps * kMicroBatches * (kForward + 3 + kBackward) + kEvaluated * kForward));
}

// Row-parallel products are summands: their biases come after the sum. Their bias gradients are whole on every rank,
TEST_F(Epilogues, TensorParallelAddsBiasesAfterTheSum) {
  expect_same(ParityCase{2, 1, 1, false}.settings(), 2 * kBlocks * (kSteps * kMicroBatches * (2 + kBackward) + kEvaluated * 2));
}
// but not where the sequence is split: each rank has those of its rows.
TEST_F(Epilogues, SequenceParallelFusesWhatARankHasWhole) {
  expect_same(ParityCase{2, 1, 1, true}.settings(), 2 * kBlocks * (kSteps * kMicroBatches * (2 + 3) + kEvaluated * 2));
}

TEST_F(Epilogues, EqualOneRankInOtherLayouts) {
  const Trained one = train({}, false);
  for (const ParityCase& layout : {ParityCase{2, 2, 1, true, "zero1", "1f1b"}, ParityCase{1, 1, 2, false, "zero3", "1f1b"}}) {
    std::vector<std::string> settings = layout.settings();
    settings.push_back("recompute.policy=full");
    const Trained trained = train(settings, true);
    EXPECT_GT(trained.fused, 0);
    EXPECT_EQ("", compare_losses(trained.run, one.run)) << layout.name();
    EXPECT_EQ("", compare_gradients(trained.run.gradients, one.run.gradients)) << layout.name();
  }
}

// Rounded once instead of twice: as close as the format is, bias gradients too, which are f32 sums of rounded terms.
TEST_F(Epilogues, HalfPrecisionIsAsCloseAsItsFormat) {
  for (const auto& [format, fraction] : {std::pair("bf16", 1.0), {"fp16", 1.0 / 8}}) {
    const std::vector<std::string> settings = {std::string("precision.compute=") + format, "recompute.policy=full"};
    const std::vector<std::string> scaled = {"precision.loss_scale=1024"};
    std::vector<std::string> all = settings;
    if (fraction != 1.0) all.insert(all.end(), scaled.begin(), scaled.end());
    const LayoutRun with = train(all, true).run, without = train(all, false).run;
    EXPECT_NE(with.losses, without.losses) << "nothing was rounded otherwise";
    for (std::size_t i = 0; i < without.losses.size(); ++i) {
      EXPECT_NEAR(with.losses[i], without.losses[i], 2e-3 * fraction * without.losses[i]) << format;
      EXPECT_NEAR(with.grad_norms[i], without.grad_norms[i], 2e-2 * fraction * without.grad_norms[i]) << format;
    }
    for (const auto& [name, expected] : without.gradients) {
      const std::vector<float>& gradient = with.gradients.at(name);
      double off = 0, size = 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        off += std::pow(gradient[i] - expected[i], 2), size += std::pow(expected[i], 2);
      EXPECT_LE(std::sqrt(off), 3e-2 * fraction * std::sqrt(size)) << format << " " << name;
    }
  }
}

TEST_F(Epilogues, WithinGraphsTheBitsAreTheSame) {
  const std::vector<std::string> settings = {"precision.compute=bf16"};
  const Trained eager = train(settings, true);
  EXPECT_EQ(simulated::graph_uses().launched, 0u);
  std::vector<std::string> graphs = settings;
  graphs.push_back("cuda.graphs=true");
  EXPECT_EQ("", compare_bits(train(graphs, true).run, eager.run));
  EXPECT_GT(simulated::graph_uses().launched, 0u);
}

}  // namespace
}  // namespace trident::testing
