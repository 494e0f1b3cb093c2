#include "train/run/dry_run.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "device/cpu/cpu_attention.h"
#include "device/cpu/cpu_device.h"
#include "device/dry/dry_device.h"
#include "device/gpu_workspaces.h"
#include "parallel/communicator/dry_communicator.h"
#include "train/plan/step_recorder.h"
#include "train/run/rank_evaluator.h"
#include "train/run/rank_trainer.h"
#include "train/run/resume.h"
#include "train/run/run_checkpoints.h"
#include "train/run/run_manifest.h"

namespace trident {
namespace {

// The most that libraries of GPUs take. Products of a processor take no more, and its attention has a workspace for each of
// `threads`.
class LargestWorkspaces final : public DryOps {
 public:
  explicit LargestWorkspaces(bool deterministic, int threads = 0)
      : DryOps(nullptr), deterministic_(deterministic), threads_(threads) {}
  std::int64_t prepare_matmul(const MatmulShape&) override { return kGpuProductWorkspace; }
  // Whether the library has one kernel for a product and what follows it only a GPU can say.
  PreparedProduct prepare_fused(const MatmulShape&, Epilogue, std::int64_t) override { return {kGpuProductWorkspace, false}; }
  std::int64_t attention_workspace(const AttentionShape& shape) override {
    const std::int64_t of_gpus = gpu_attention_workspace(shape, deterministic_);
    return threads_ == 0 ? of_gpus : std::max(of_gpus, largest_attention_workspace(shape, threads_));
  }

 private:
  bool deterministic_;
  int threads_;
};

constexpr auto kNoData = [](std::int64_t, std::int64_t, const SampleSpans&) {};

DryRun dry_text(const RunPlan& plan, int rank, Ops* oracle, DryWork work) {
  TRIDENT_CHECK(work == DryWork::kConstruct, "dry work of a plan without programs");
  DryDevice device(oracle);
  RankModel model(plan, device, make_dry_world(rank, plan.world_size(), nullptr), nullptr, {});
  model.allocate();
  return {rank, model.arena_plan(), 0, {}};
}

DryRun dry_evaluation(const RunPlan& plan, int rank, Ops* oracle, DryWork work, StepRecorder* recorder) {
  TRIDENT_CHECK(work != DryWork::kStep, "a step of a plan of forwards alone");
  DryDevice device(oracle);
  RankEvaluator evaluator(plan, device, make_dry_world(rank, plan.world_size(), recorder));
  RankModel& model = evaluator.model();
  model.context().reset_bytes_sent();
  if (recorder != nullptr) {
    device.watch(*recorder, *recorder);
    recorder->begin(plan.eval_program(rank), plan.config.cuda);
  }
  if (work == DryWork::kEvaluation) evaluator.losses(kNoData, 0);
  return {rank, model.arena_plan(), model.stage().logits_bytes(), model.context().bytes_sent()};
}

}  // namespace

DryRun dry_run(const RunPlan& plan, int rank, Ops* oracle, DryWork work, StepRecorder* recorder) {
  if (!plan.has_programs()) return dry_text(plan, rank, oracle, work);
  if (!plan.trains()) return dry_evaluation(plan, rank, oracle, work, recorder);
  DryDevice device(oracle);
  RankTrainer trainer(plan, device, make_dry_world(rank, plan.world_size(), recorder));
  trainer.context().reset_bytes_sent();
  if (recorder != nullptr) {
    device.watch(*recorder, *recorder);
    recorder->begin(work == DryWork::kEvaluation ? plan.eval_program(rank) : plan.step_program(rank), plan.config.cuda);
  }
  if (work == DryWork::kStep) trainer.step(kNoData);
  if (work == DryWork::kEvaluation) trainer.evaluate(kNoData, 1, {});
  const Stage& stage = trainer.model().stage();
  DryRun dry{rank, trainer.arena_plan(), stage.logits_bytes(), trainer.context().bytes_sent(), stage.activation_blocks(),
             stage.held_by_kind()};
  if (saves_checkpoints(plan.config)) {
    std::vector<ManifestTensor> tensors = stored_tensors(plan);
    if (plan.config.model.init_from) leave_frozen(tensors);
    const SavePlan saves = save_plan_of(plan, trainer, tensors);
    dry.staging = staging_of(plan.config, saves, spare_host_bytes(plan, rank, dry.arena.total_bytes()));
  }
  return dry;
}

StepRecord record_step(const RunPlan& plan, int rank, Ops* oracle, DryWork work, Interning interning, DryRun* run) {
  StepRecorder recorder(interning);
  DryRun dry = dry_run(plan, rank, oracle, work, &recorder);
  if (run != nullptr) *run = std::move(dry);
  return recorder.finish();
}

std::vector<DryRun> dry_stages(const RunPlan& plan, Ops* oracle, DryWork work) {
  std::vector<DryRun> stages;
  for (int stage = 0; stage < plan.grid.degrees().pipeline; ++stage)
    stages.push_back(dry_run(plan, plan.grid.rank({.pipeline = stage}), oracle, work));
  return stages;
}

std::unique_ptr<Ops> any_gpu(bool deterministic) { return std::make_unique<LargestWorkspaces>(deterministic); }

std::vector<DryRun> dry_stages_on_any(const RunPlan& plan, DeviceKind device, DryWork work) {
  if (device == DeviceKind::kCuda) return dry_stages(plan, any_gpu(plan.config.cuda.deterministic).get(), work);
  LargestWorkspaces any(plan.config.cuda.deterministic, plan.threads_per_rank);
  return dry_stages(plan, &any, work);
}

std::shared_ptr<Ops> processor_here(const RunPlan& plan) {
  struct Processor {
    explicit Processor(const CpuDeviceOptions& options) : device(doorbell, options) {}
    Doorbell doorbell;
    CpuDevice device;
  };
  CpuDeviceOptions options;
  options.threads_per_rank = plan.threads_per_rank;
  options.bf16_products = plan.bf16_products();
  const auto processor = std::make_shared<Processor>(options);
  return {processor, &processor->device.ops()};
}

std::vector<DryRun> dry_stages_here(const RunPlan& plan, DeviceKind device, DryWork work) {
  if (device == DeviceKind::kCuda) return dry_stages(plan, nullptr, work);
  return dry_stages(plan, processor_here(plan).get(), work);
}

std::array<double, kNumAxes> bytes_of_all_ranks(const RunPlan& plan, std::span<const DryRun> stages) {
  std::array<double, kNumAxes> all{};
  const int ranks_of_a_stage = plan.world_size() / plan.grid.degrees().pipeline;
  for (const DryRun& stage : stages) {
    for (std::size_t axis = 0; axis < all.size(); ++axis) all[axis] += stage.bytes_sent[axis] * ranks_of_a_stage;
  }
  for (double& bytes : all) bytes = std::round(bytes);  // whole numbers, summed from fractions of each rank
  return all;
}

std::array<double, kNumAxes> step_bytes_sent(const RunPlan& plan) {
  return bytes_of_all_ranks(plan, dry_stages(plan, nullptr, DryWork::kStep));
}

}  // namespace trident
