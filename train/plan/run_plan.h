// A configuration's plan for a world of ranks, decided before anything runs: grid, units per stage, step programs, ZeRO policy,
// and the numbers that follow from them. Pure: the same on every rank, printable, testable without devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "device/cpu/cpu_features.h"
#include "device/device_kind.h"
#include "model/config/model_config.h"
#include "model/gpt.h"
#include "parallel/grid/process_grid.h"
#include "parallel/zero/param_layout.h"
#include "pipeline/kv_cache_shape.h"
#include "pipeline/schedule/step_program.h"
#include "train/config/resolve_model.h"
#include "train/config/train_config.h"
#include "train/plan/core_share.h"

namespace trident {

// Memory that some of the ranks share: of a machine, or of a GPU.
struct MemoryPool {
  std::string name;        // for messages
  std::vector<int> ranks;  // of the run
  std::int64_t bytes = 0;  // for their arenas
};

// Memory of pools that a rank knows no more of.
struct MemoryElsewhere {
  std::int64_t bytes = 0;
  std::int64_t bytes_per_rank = 0;  // where that is least
};

// The plan needs these facts about the machines.
struct MachineFacts {
  double bf16_over_fp32 = 0;         // as bf16_products_at() takes it
  bool multiplies_fp16 = false;      // likewise in fp16
  std::string description;           // for messages
  DeviceKind device = DeviceKind::kCpu;
  std::vector<MemoryPool> memory = {};  // where arenas are going to lie: this rank's, and of others those that are known
  std::optional<MemoryElsewhere> elsewhere = {};
  std::string device_reason = {};       // why the ranks compute on these devices
  std::vector<std::string> notes = {};  // one line each: what is odd about them
  UsableCores cores = {};               // of this process
  CoreShare core_share = {};            // of a node's ranks; decides run.threads_per_rank "auto"

  bool fast_bf16() const { return bf16_products_at(bf16_over_fp32) == Bf16Products::kNative; }
  std::int64_t bytes() const;           // of all memory
  std::int64_t bytes_per_rank() const;  // where that is least; settle_grad_sync() goes by it
};

// A unit's parameters as they lie on a rank (all ranks of a tensor-parallel group have the same shapes).
struct UnitLayout {
  int unit = 0;
  std::vector<ParamSpec> specs;
  std::vector<BucketLayout> buckets;
  std::int64_t elements() const;  // padded, of all buckets
  // `one_rank_has_both_ends`: a tied head lies with the embedding.
  UnitBytes bytes(const ZeroPolicy& zero, DType compute, bool one_rank_has_both_ends) const;
};
// `replicas`: how many ranks share the parameters.
UnitLayout lay_out_unit(const ModelConfig& model, const TensorLayout& tensor, int replicas, double bucket_mb, int unit);

struct RunPlan {
  TrainConfig config;
  ModelConfig model;
  ProcessGrid grid{ParallelDegrees{}};
  TensorLayout tensor_layout;
  DType compute = DType::kF32;
  std::string compute_reason;   // why bf16, fp16 or fp32
  DType multiplied = DType::kF32;  // what operands of that are multiplied as
  bool fast_bf16 = false;          // of the machine: whether it would multiply bf16 so
  std::string device_reason;    // why not on GPUs, where device = auto would have computed on them; else ""
  int threads_per_rank = 1;     // that compute on CPUs; 1 on GPUs
  RecomputePolicy recompute = RecomputePolicy::kNone;
  ZeroPolicy zero;
  bool leaves_rows_out = false;  // LayerGeometry::leaves_rows_out
  int num_micro_batches = 1;
  std::vector<MemoryPool> memory;  // where arenas lie, as MachineFacts::memory
  std::vector<SubAxis> partial_axes;
  std::vector<UnitLayout> units;  // by unit id
  StepProgramSpec step_spec, eval_spec;
  std::vector<StepProgram> step_programs, eval_programs;  // by pipeline rank; checked. No step_programs: of forwards alone
  std::optional<KvCacheShape> generation;  // the ranks continue texts with these caches, beside the programs or without any
  double predicted_bubble = 0;    // over ideal, from the simulated step with the units' model FLOPs as times
  std::vector<std::string> notes; // one line each: what a choice costs, what is odd
  std::vector<std::string> details;  // one line each: the rest of what was chosen, for those who ask

  int world_size() const { return grid.world_size(); }
  Bf16Products bf16_products() const { return fast_bf16 ? Bf16Products::kNative : Bf16Products::kConverted; }
  bool trains() const { return !step_programs.empty(); }
  bool has_programs() const { return !eval_programs.empty(); }  // false: of generation_only()
  std::int64_t tokens_per_step() const { return config.batch.global * config.batch.sequence; }
  // Whether targets may not count: then ranks count those that do, and the count is the divisor in the place of tokens_per_step().
  bool counts_targets() const { return config.counts_targets(); }
  // LayerGeometry::document_interval: half of the mean document, or, where nobody knows it, the whole sequence.
  std::int64_t document_interval() const;
  // Keys that layers with a sliding window see at most, where that is less than the sequence; else 0.
  std::int64_t window() const { return model.sliding_window < config.batch.sequence ? model.sliding_window : 0; }
  std::int64_t windowed_layers() const;
  // Whether attention sees less than all tokens up to its own.
  bool has_intervals() const { return config.data.reset_attention_mask || windowed_layers() > 0; }
  // The FLOPs that are computed beside frozen parameters, over the ones of full training.
  double trained_share() const;
  // model_flops_per_token() by that share, with attention to the keys that a token sees on average, in layers without a window and
  // with one.
  double flops_per_token(double keys, double keys_in_window) const;
  // A token's FLOPs of logits that are not made, on average over tokens whose targets count and others.
  double head_flops_left_out() const;
  // The same by window() and document_interval(), before data are read; without has_intervals() attention is counted in full.
  double predicted_flops_per_token() const;
  // Whether a stage's ranks need something of the samples themselves.
  bool loads_samples(int stage) const { return stage == 0 || is_last(stage) || config.data.needs_starts(); }
  // Whether they need where documents begin in them: attention and positions everywhere, weights of the loss where that is.
  bool needs_starts(int stage) const { return config.data.needs_starts() || (config.loss.weighs_rows() && is_last(stage)); }
  bool is_last(int stage) const { return stage == grid.degrees().pipeline - 1; }
  LayerGeometry geometry(int tensor_rank) const;
  const StepProgram& step_program(int rank) const;
  const StepProgram& eval_program(int rank) const;
};

// Throws ConfigError naming key, value and remedy for whatever cannot be: degrees that do not divide the world, heads, layers,
// batch; sequences longer than the model's positions; schedules with micro-batch counts they cannot run. `world_size` 0: no
// launcher, the degrees say how many ranks there are. parallel.grad_sync "auto" is left open, at the preset's own: what it costs to
// reduce once a step is found by running ranks dry (settle_grad_sync, train/run/zero_cost.h).
RunPlan make_run_plan(const TrainConfig& config, const ModelConfig& model, int world_size, const MachineFacts& machine);

// Forward model FLOPs of one micro-batch per unit: what the partition balances and the predicted bubble counts (a backward: twice).
std::vector<double> unit_costs(const ModelConfig& model, const BatchConfig& batch);

// The same plan under another policy, or with other micro-batches, which batch.global allows: its programs are built anew.
RunPlan with_policy(RunPlan plan, const ZeroPolicy& policy);
RunPlan with_micro_batch(RunPlan plan, std::int64_t micro);

// The same layout without training: its ranks hold weights alone and run eval_programs, which decide for themselves whether they
// gather on use. `notes` are those of forwards.
RunPlan forward_only(RunPlan plan);
// The same layout for continuing texts and nothing else: its ranks run no program and keep their weights whole.
RunPlan generation_only(RunPlan plan, KvCacheShape shapes);

}  // namespace trident
