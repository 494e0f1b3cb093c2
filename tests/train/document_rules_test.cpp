// Tests which targets count and what attention sees in samples of several documents, whatever the layout.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "data/batch_loader.h"
#include "data/document_starts.h"
#include "model/model_constants.h"
#include "support/cpu_ranks.h"
#include "support/layout_run.h"
#include "support/parity_cases.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"

namespace trident::testing {
namespace {

using Settings = std::vector<std::string>;

Settings laid_out(const ParityCase& layout, Settings more) {
  const Settings settings = layout.settings();
  more.insert(more.begin(), settings.begin(), settings.end());
  return more;
}

// ---- targets that do not count

// random_tokens() in which `end` ends documents, as BatchLoader marks them.
LoadSamples with_documents(std::int32_t end) {
  return [=](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    constexpr std::int64_t kT = 16;
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(kT * count)), of_sample(kT), begins;
    random_tokens(97, kT)(first, count, {tokens, spans.targets});
    std::ranges::copy(std::span(tokens).first(spans.tokens.size()), spans.tokens.begin());
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t s = 0; s < kT; ++s)
        of_sample[static_cast<std::size_t>(s)] = tokens[static_cast<std::size_t>(s * count + i)] % 8;
      begins.clear();
      find_behind_eod(of_sample, end, begins);  // about every eighth token
      mark_documents(begins, true, kT, i, count, spans);
    }
  };
}

constexpr std::int32_t kNoEnd = 8;

LayoutRun run_counted(const Settings& settings, std::int32_t end, int steps = 3) {
  LayoutRunOptions options;
  options.steps = steps;
  options.evaluate = true;
  options.load = with_documents(end);
  return run_layout(tiny_llama_config(), settings, options);
}

TEST(CountedTargets, DivideTheLossTheSameInEveryLayout) {
  const Settings counts{"model.num_hidden_layers=4", "data.eod_mask_loss=true"};
  const LayoutRun one = run_counted(counts, 3), all = run_counted(counts, kNoEnd);
  EXPECT_NE(one.losses, all.losses);
  EXPECT_NEAR(one.eval_loss, all.eval_loss, 0.1) << "an eighth of the targets does not count";
  for (const ParityCase& layout :
       {ParityCase{1, 1, 2, false, "ddp"}, ParityCase{1, 2, 1}, ParityCase{1, 2, 2, false, "zero1", "interleaved"},
        ParityCase{1, 1, 2, false, "zero2"}, ParityCase{1, 1, 4, false, "zero3"}, ParityCase{2, 2, 2, true, "zero3"}}) {
    const LayoutRun other = run_counted(laid_out(layout, counts), 3);
    EXPECT_EQ("", compare_losses(other, one)) << layout.name();
    EXPECT_EQ("", compare_gradients(other.gradients, one.gradients)) << layout.name();
    EXPECT_NEAR(other.eval_loss, one.eval_loss, 1e-6 * one.eval_loss) << layout.name();
  }
  const LayoutRun chunked =
      run_counted({"model.num_hidden_layers=4", "data.eod_mask_loss=true", "recompute.head_chunk=4", "batch.micro=2"}, 3);
  EXPECT_EQ("", compare_losses(chunked, one));
  EXPECT_EQ("", compare_gradients(chunked.gradients, one.gradients));
  EXPECT_NEAR(chunked.eval_loss, one.eval_loss, 1e-6 * one.eval_loss);
}

TEST(CountedTargets, ThatAllCountChangeNoBit) {
  for (const ParityCase& layout : {ParityCase{}, ParityCase{1, 2, 2, false, "zero1"}}) {
    const LayoutRun counted = run_counted(laid_out(layout, {"model.num_hidden_layers=2", "data.eod_mask_loss=true"}), kNoEnd);
    const LayoutRun plain = run_counted(laid_out(layout, {"model.num_hidden_layers=2"}), kNoEnd);
    EXPECT_EQ("", compare_bits(counted, plain)) << layout.name();
    EXPECT_EQ(counted.eval_loss, plain.eval_loss) << layout.name();
  }
}

// Three steps and an evaluation, with rows left out of the head or with all of them.
LayoutRun run_with_rows(const Settings& settings, bool leaves_rows_out) {
  LayoutRunOptions options;
  options.evaluate = true;
  options.load = with_documents(3);
  options.change_plan = [=](RunPlan plan) {
    EXPECT_TRUE(plan.leaves_rows_out);
    plan.leaves_rows_out = leaves_rows_out;
    return plan;
  };
  return run_layout(tiny_llama_config(), settings, options);
}

TEST(CountedTargets, AreTheOnlyRowsOfTheHead) {
  const Settings counts{"model.num_hidden_layers=4", "data.eod_mask_loss=true"};
  for (const ParityCase& layout : {ParityCase{}, ParityCase{2, 1, 1, true}, ParityCase{2, 2, 2, false, "zero3", "interleaved"}})
    for (const char* more : {"recompute.policy=full", "batch.micro=2", "loss.normalize=sequence"}) {
      Settings settings = laid_out(layout, counts);
      settings.emplace_back(more);
      const LayoutRun some = run_with_rows(settings, true), all = run_with_rows(settings, false);
      EXPECT_EQ("", compare_losses(some, all)) << layout.name() << more;
      EXPECT_EQ("", compare_gradients(some.gradients, all.gradients)) << layout.name() << more;
      EXPECT_NEAR(some.eval_loss, all.eval_loss, 1e-6 * all.eval_loss) << layout.name() << more;
    }
}

// The second of three batches has no target that counts.
TEST(CountedTargets, OfABatchWithoutAnyNoRankSteps) {
  for (const ParityCase& layout : {ParityCase{}, ParityCase{1, 2, 2, false, "zero2"}}) {
    const Settings settings{"model.num_hidden_layers=2", "data.eod_mask_loss=true", "precision.compute=fp16",
                            "precision.loss_scale=1024"};
    const RunPlan plan = cpu_plan(tiny_llama_config(), laid_out(layout, settings));
    std::vector<std::vector<StepResult>> results(static_cast<std::size_t>(plan.world_size()));
    on_cpu_ranks(plan, [&](int rank, RankTrainer& trainer) {
      const LoadSamples some = with_documents(3);
      const LoadSamples load = [&](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
        some(first, count, spans);
        if (first / 8 == 1) std::ranges::fill(spans.targets, -1);
      };
      std::vector<float> before;
      for (int step = 0; step < 3; ++step) {
        const LossScaler::State scaler = trainer.loss_scaler().state();
        before = masters_of(trainer.store());
        results[static_cast<std::size_t>(rank)].push_back(trainer.step(load));
        if (step == 1) {
          EXPECT_EQ(masters_of(trainer.store()), before) << "rank " << rank;
          EXPECT_EQ(trainer.loss_scaler().state().clean_steps, scaler.clean_steps) << "rank " << rank;
        }
      }
    });
    for (const std::vector<StepResult>& of_rank : results) {
      EXPECT_TRUE(of_rank[0].applied);
      EXPECT_FALSE(of_rank[1].applied);
      EXPECT_EQ(of_rank[1].counted, 0);
      EXPECT_EQ(of_rank[1].updates, 1);
      EXPECT_FALSE(of_rank[1].scale_can_shrink);
      EXPECT_TRUE(of_rank[2].applied);
      EXPECT_EQ(of_rank[2].updates, 2);
      EXPECT_EQ(of_rank[0].counted, results[0][0].counted);
      EXPECT_GT(*of_rank[0].counted, 8 * 16 * 3 / 4);
      EXPECT_LT(*of_rank[0].counted, 8 * 16);
    }
  }
}

// A file with a mask, and how a run of tiny_llama_config() reads it: by its loader, and by hand.
class MaskedFile {
 public:
  MaskedFile() {
    IndexedDatasetWriter writer(prefix_, 97, Overwrite::kNo, WithMask::kYes);
    for (std::int32_t d = 0; std::ssize(tokens_) < 16 * 40; ++d) {
      const auto begin = tokens_.size();
      for (std::int32_t i = 0; i < 5 + d * 7 % 31; ++i) {  // ends at no border of samples
        tokens_.push_back((d * 31 + i * i) % 97);
        counts_.push_back((d + i * i) % 5 < 3);
      }
      writer.add_document(std::span(tokens_).subspan(begin), std::span(counts_).subspan(begin));
    }
    writer.finish({});
    const std::vector<WeightedPath> train = {{prefix_, 1.0}};
    loader_.emplace(open_token_sources(train, {}, {}).train,
                    BatchLoaderOptions{.sequence = 16, .vocab_size = 97, .shuffle = Shuffle::kInOrder});
  }

  LoadSamples by_loader() {
    return [this](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
      const std::lock_guard lock(mutex_);  // of all ranks
      loader_->load(first, count, spans);
    };
  }
  LoadSamples by_hand() const {
    return [this](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
      for (std::int64_t i = 0; i < 16 * count; ++i) {
        const auto at = static_cast<std::size_t>((first + i % count) * 16 + i / count), here = static_cast<std::size_t>(i);
        if (!spans.tokens.empty()) spans.tokens[here] = tokens_[at];
        if (!spans.targets.empty()) spans.targets[here] = counts_[at + 1] != 0 ? tokens_[at + 1] : -1;
      }
    };
  }

 private:
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "chat";
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint8_t> counts_;
  std::optional<BatchLoader> loader_;
  std::mutex mutex_;
};

TEST(CountedTargets, OfAMaskAreTheSameInEveryLayout) {
  MaskedFile file;
  const auto run_masked = [](const LoadSamples& load, const Settings& settings, bool leaves_rows_out = true) {
    LayoutRunOptions options;
    options.evaluate = true;
    options.load = load;
    options.change_plan = [=](RunPlan plan) {
      plan.config.data.has_mask = true;
      plan.leaves_rows_out = leaves_rows_out;
      EXPECT_TRUE(plan.counts_targets());
      return plan;
    };
    return run_layout(tiny_llama_config(), settings, options);
  };
  const Settings four{"model.num_hidden_layers=4"};
  const LayoutRun by_hand = run_masked(file.by_hand(), four), one = run_masked(file.by_loader(), four);
  EXPECT_EQ("", compare_bits(one, by_hand));
  EXPECT_EQ(one.eval_loss, by_hand.eval_loss);
  ASSERT_EQ(one.token_accuracies.size(), one.losses.size());
  EXPECT_GT(std::ranges::max(one.token_accuracies), 0);
  ASSERT_TRUE(one.eval_token_accuracy);
  const LayoutRun unmasked = run_counted(four, kNoEnd);
  EXPECT_NE(one.losses, unmasked.losses);
  EXPECT_TRUE(unmasked.token_accuracies.empty()) << "without a mask nothing is looked for";
  for (const ParityCase& layout :
       {ParityCase{1, 1, 2, false, "zero2"}, ParityCase{1, 2, 1}, ParityCase{1, 2, 2, false, "zero1", "interleaved"},
        ParityCase{2, 1, 1, true}, ParityCase{2, 2, 2, true, "zero3"}}) {
    const LayoutRun other = run_masked(file.by_loader(), laid_out(layout, four));
    EXPECT_EQ("", compare_losses(other, one)) << layout.name();
    EXPECT_EQ("", compare_gradients(other.gradients, one.gradients)) << layout.name();
    EXPECT_NEAR(other.eval_loss, one.eval_loss, 1e-6 * one.eval_loss) << layout.name();
    EXPECT_EQ(other.token_accuracies, one.token_accuracies) << layout.name();
    const LayoutRun all_rows = run_masked(file.by_loader(), laid_out(layout, four), false);
    EXPECT_EQ("", compare_losses(all_rows, one)) << layout.name();
    EXPECT_EQ("", compare_gradients(all_rows.gradients, one.gradients)) << layout.name();
    EXPECT_EQ(all_rows.token_accuracies, one.token_accuracies) << layout.name();
    EXPECT_EQ(all_rows.eval_token_accuracy, one.eval_token_accuracy) << layout.name();
    EXPECT_EQ(other.eval_token_accuracy, one.eval_token_accuracy) << layout.name();
  }
}

// ---- what attention sees, and where tokens stand

// The buffers of a stage of one rank, with samples whose documents begin as with_documents(3) has them.
struct LoadedBuffers {
  LoadedBuffers(const RunPlan& plan, int stage = 0)
      : device(doorbell, CpuDeviceOptions{}),
        buffers(plan, device, stage, LossDetail::kOfBatches, arena_plan),
        constants(plan.model, plan.geometry(0), arena_plan, ModelConstants::Lengths::kUpTo) {
    arena.emplace(arena_plan, device.allocate(arena_plan.total_bytes(), "buffers"));
    buffers.bind(*arena);
    const BatchSlicing slicing{plan.config.batch.global, plan.config.batch.micro, 1};
    buffers.load(with_documents(3), 0, slicing, 0);
    buffers.set_positions({}, constants, 0, slicing, 0);
    device.compute_stream().synchronize();
  }
  static std::vector<std::int32_t> values(ConstTensorView view) {
    const auto* const data = view.as<std::int32_t>();
    return {data, data + view.num_elements()};
  }

  Doorbell doorbell;
  CpuDevice device;
  ArenaPlan arena_plan;
  BatchBuffers buffers;
  ModelConstants constants;
  std::optional<Arena> arena;
};

TEST(DocumentBuffers, HaveFirstKeysWindowsAndPositionsOfEveryMicroBatch) {
  constexpr std::int64_t kT = 16, kB = 2, kWindow = 5;
  RunPlan plan = cpu_plan(tiny_llama_config(), {"model.num_hidden_layers=1", "batch.micro=2", "data.reset_attention_mask=true",
                                                "data.reset_position_ids=true"});
  plan.model.sliding_window = kWindow;
  LoadedBuffers loaded(plan);
  for (std::int64_t k = 0; k < plan.num_micro_batches; ++k) {
    std::vector<std::int32_t> starts(kT * kB), windows(starts), by_sample(starts), by_row(starts);
    with_documents(3)(k * kB, kB, {.document_starts = starts});
    for (std::int64_t i = 0; i < kB * kT; ++i) {
      const std::int64_t s = i % kT, start = starts[static_cast<std::size_t>(i)];
      windows[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(std::max(start, s - kWindow + 1));
      by_sample[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(s - start);
      by_row[static_cast<std::size_t>(s * kB + i / kT)] = static_cast<std::int32_t>(s - start);
    }
    const MicroBatch& mb = loaded.buffers.micro_batches()[static_cast<std::size_t>(k)];
    EXPECT_EQ(mb.first_key.shape(), (Shape{kB, kT}));
    EXPECT_EQ(LoadedBuffers::values(mb.first_key), starts);
    EXPECT_EQ(LoadedBuffers::values(mb.first_key_in_window), windows);
    EXPECT_EQ(LoadedBuffers::values(mb.positions_by_sample), by_sample);
    EXPECT_EQ(LoadedBuffers::values(mb.positions_by_row), by_row);
  }
}

TEST(DocumentBuffers, BeginAtMultiplesOf16Bytes) {
  RunPlan plan =
      cpu_plan(tiny_llama_config(), {"model.num_hidden_layers=1", "batch.sequence=15", "data.reset_attention_mask=true"});
  plan.model.sliding_window = 5;
  LoadedBuffers loaded(plan);
  ASSERT_GT(plan.num_micro_batches, 1);
  for (const MicroBatch& mb : loaded.buffers.micro_batches())
    for (const ConstTensorView& keys : {mb.first_key, mb.first_key_in_window}) {
      EXPECT_EQ(keys.shape(), (Shape{1, 15}));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(keys.data()) % 16, 0u);
    }
}

TEST(DocumentBuffers, RefuseStartsThatNoSampleCanHave) {
  const RunPlan plan = cpu_plan(tiny_llama_config(), {"model.num_hidden_layers=1", "data.reset_attention_mask=true"});
  LoadedBuffers loaded(plan);
  for (const std::int32_t third : {0, 3}) {
    const LoadSamples load = [third](std::int64_t, std::int64_t, const SampleSpans& spans) {
      spans.document_starts[1] = 1, spans.document_starts[2] = third;
    };
    EXPECT_THROW(loaded.buffers.load(load, 0, {8, 1, 1}, 0), InternalError) << third;
  }
}

TEST(DocumentBuffers, OfAWindowAloneAreTheSameInEveryMicroBatch) {
  RunPlan plan = cpu_plan(tiny_llama_config(), {"model.num_hidden_layers=1"});
  plan.model.sliding_window = 4;
  LoadedBuffers loaded(plan);
  for (const MicroBatch& mb : loaded.buffers.micro_batches()) {
    EXPECT_EQ(mb.first_key.shape(), Shape());
    EXPECT_EQ(LoadedBuffers::values(mb.first_key_in_window),
              (std::vector<std::int32_t>{0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
    EXPECT_EQ(LoadedBuffers::values(mb.positions_by_sample).back(), 15);
  }
  plan.model.sliding_window = 16;  // all of the sequence
  EXPECT_EQ(LoadedBuffers(plan).buffers.micro_batches()[0].first_key_in_window.shape(), Shape());
}

// Rotary tables by length: a document of up to the original context turns as one that is alone.
TEST(DocumentBuffers, TakeTheRowsOfTheDocumentsLength) {
  RunPlan plan = cpu_plan(tiny_llama_config(), {"model.num_hidden_layers=1", "data.reset_position_ids=true"});
  plan.model.rope.scaling = RopeScaling::kLongRope;
  plan.model.rope.original_max_positions = 6;
  plan.model.rope.short_factors = plan.model.rope.long_factors =
      std::vector<double>(static_cast<std::size_t>(plan.model.rotary_dim() / 2), 1.0);
  LoadedBuffers loaded(plan);
  bool is_short = false, is_long = false;
  for (std::int64_t k = 0; k < plan.num_micro_batches; ++k) {
    std::vector<std::int32_t> starts(16);
    with_documents(3)(k, 1, {.document_starts = starts});
    const std::vector<std::int32_t> rows =
        LoadedBuffers::values(loaded.buffers.micro_batches()[static_cast<std::size_t>(k)].positions_by_sample);
    for (std::size_t s = 0; s < 16; ++s) {
      const auto length = std::ranges::count(starts, starts[s]);
      EXPECT_EQ(rows[s], static_cast<std::int32_t>(s) - starts[s] + (length <= 6 ? 16 : 0)) << "sample " << k << ", position " << s;
      (length <= 6 ? is_short : is_long) = true;
    }
  }
  EXPECT_TRUE(is_short && is_long);
}

TEST(DocumentBuffers, AreBookedOnlyWhereAsked) {
  const auto bytes = [](const Settings& settings) {
    const RunPlan plan = cpu_plan(tiny_llama_config(), settings);
    Doorbell doorbell;
    CpuDevice device(doorbell, CpuDeviceOptions{});
    ArenaPlan arena_plan;
    const BatchBuffers buffers(plan, device, 0, LossDetail::kOfBatches, arena_plan);
    return arena_plan.total_bytes();
  };
  const std::int64_t plain = bytes({}), one = kArenaAlignment, all = 8 * 16 * 4;  // 8 micro-batches of a sample, 64 bytes each
  EXPECT_EQ(bytes({"data.eod_mask_loss=true"}), plain + 2 * all) << "the order of rows";
  EXPECT_EQ(bytes({"data.reset_attention_mask=true"}), plain + all);
  EXPECT_EQ(bytes({"data.reset_position_ids=true"}), plain + 2 * (all - one));
}

TEST(DocumentInterval, IsHalfOfTheMeanDocument) {
  const auto interval = [](const Settings& settings) {
    return cpu_plan(tiny_llama_config(), settings).geometry(0).document_interval;
  };
  const std::string hides = "data.reset_attention_mask=true";
  EXPECT_EQ(interval({}), 0);
  EXPECT_EQ(interval({"data.mean_document=4"}), 0);
  EXPECT_EQ(interval({hides}), 16);
  EXPECT_EQ(interval({hides, "data.mean_document=7"}), 4);
  EXPECT_EQ(interval({hides, "data.mean_document=1"}), 1);
  EXPECT_EQ(interval({hides, "data.mean_document=1e9"}), 16);
}

}  // namespace
}  // namespace trident::testing
