// Costs of single units of a model in a layout, found by running them dry: searches make whole layouts of them.
//
// Passes do not depend on how many blocks a stage has, nor on the micro-batches of a step: one embedding, one block and one head
// per key are enough. A model of three blocks in three stages is run for its passes; parameters, gradients and optimizer of one
// unit are made for its gathers, reductions and updates.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>
#include <tuple>

#include "core/at.h"
#include "device/arena.h"
#include "model/config/model_config.h"
#include "planner/price/unit_kind.h"
#include "tensor_parallel/pass.h"
#include "train/plan/run_plan.h"
#include "train/plan/step_record.h"

namespace trident {

// Passes depend on these.
struct PassKey {
  int tensor = 1;
  bool sequence_parallel = false;
  std::int64_t micro = 1;
  RecomputePolicy recompute = RecomputePolicy::kNone;
  int context = 1;  // ranks that share a sequence: each runs one part of it as if it were all
  auto operator<=>(const PassKey&) const = default;
};

struct UnitPasses {
  ByUnitKind<PassRecord> forward;
  // Passes of the first micro-batch, whose gradients overwrite, and of the others; without ParamStore's work before them.
  ByUnitKind<PassRecord> first_backward, backward;
  PassRecord copy;  // of what comes from another stage; more of the pass that reads it first
  PassRecord send;  // of what crosses a border, either way
  PassRecord outside;  // of instructions, once a step
  // Bytes: of a micro-batch's activations from forward to backward, its input among them; of the areas that all units share.
  ByUnitKind<std::int64_t> saved{};
  ByUnitKind<std::array<std::int64_t, kNumRegions>> regions{};
  std::int64_t activation = 0;  // of one tensor between units
  std::int64_t constants = 0;   // of tables that each rank has, each range rounded up
  std::int64_t ring = 0;        // of keys and values that go round among ranks that share a sequence
};

// The store of a unit's parameters depends on these.
struct StoreKey {
  int tensor = 1;
  bool sequence_parallel = false;
  int data = 1;
  int groups = 1;          // of so many data ranks, each with copies of what the others hold
  bool both_ends = false;  // one rank has embedding and head
  bool sharded = true;     // optimizer states
  bool per_window = false; // gradients are reduced more than once a step
  bool on_use = false;     // parameters are gathered for each use
  auto operator<=>(const StoreKey&) const = default;
};

struct UnitStore {
  PassRecord gather, reduce, update;
  PassRecord gaps;                   // before a backward that overwrites
  PassRecord first_finish, finish;   // of a window's reduction, before its memory is used again
  int tied_call = -1;                // which call of the two adds the gradient of a tied weight; -1: there is none
  PassRecord partial;                // sums over tensor ranks at the end of the step
  PassRecord norm;
};
struct StorePasses {
  ByUnitKind<UnitStore> units;
  PassRecord tie_embedding, tie_head;  // an end of the exchange each; one rank that has both does the first alone
  PassRecord norm;                     // what the norm does once, over one pipeline stage or, of both_ends, all
  PassRecord count;                    // of targets, before the first forward on the last stage; empty where all count
};

// Bytes of an arena by use.
struct ArenaMemory {
  ArenaMemory() = default;
  explicit ArenaMemory(const ArenaPlan& plan, std::string_view prefix = "");  // the entries whose names begin so
  std::array<std::int64_t, kMemoryUses.size()> by_use{};
  bool gathers_on_use = false;  // what zero3 asks for is done only where it saves memory
  std::int64_t total() const;
  std::int64_t& operator[](MemoryUse use) { return at(by_use, use); }
  std::int64_t operator[](MemoryUse use) const { return at(by_use, use); }
  void add(const ArenaMemory& other, std::int64_t times = 1);
};

// A store, its optimizer and its statistics book this, without the regions that all units of a rank share.
struct StoreMemory {
  ByUnitKind<ArenaMemory> units;
  std::int64_t statistics = 0;
};

// Dry runs of one model, made when they are asked for first. Safe to use from several threads.
class UnitCosts {
 public:
  // `config` has what layouts share: precision, sequence, bucket_mb, order, ...; `oracle` as for dry_run().
  UnitCosts(const TrainConfig& config, const ModelConfig& model, const MachineFacts& machine, Ops* oracle);

  const UnitPasses& passes(const PassKey& key);
  const StorePasses& stores(const StoreKey& key);
  const StoreMemory& store_memory(StoreKey key);  // of any number of groups; no dry run, since nothing is run
  const ByUnitKind<UnitLayout>& units(int tensor, bool sequence_parallel, int data);
  ByUnitKind<UnitLayout> lay_out(int tensor, bool sequence_parallel, int data) const;

  const TrainConfig& config() const { return config_; }
  const ModelConfig& model() const { return model_; }
  DType compute() const { return compute_; }
  bool leaves_rows_out() const { return leaves_rows_out_; }
  int num_units() const { return static_cast<int>(model_.layers) + 2; }
  int dry_runs() const { return dry_runs_; }  // that were made

 private:
  // Calls `make` where a key is asked for the first time.
  template <class Map, class Make>
  const typename Map::mapped_type& once(Map& made, const typename Map::key_type& key, Make make);
  UnitPasses make_passes(const PassKey& key) const;
  StorePasses make_stores(const StoreKey& key) const;
  StoreMemory make_store_memory(const StoreKey& key) const;

  TrainConfig config_;
  ModelConfig model_;
  MachineFacts machine_;
  Ops* oracle_;
  DType compute_ = DType::kF32;
  bool leaves_rows_out_ = false;  // RunPlan's
  int dry_runs_ = 0;
  std::mutex mutex_;
  std::map<PassKey, UnitPasses> passes_;
  std::map<StoreKey, StorePasses> stores_;
  std::map<StoreKey, StoreMemory> store_memory_;
  std::map<std::tuple<int, bool, int>, ByUnitKind<UnitLayout>> units_;
};

}  // namespace trident
