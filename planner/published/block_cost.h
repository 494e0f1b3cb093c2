// Seconds of the model's parts on one rank, for one micro-batch: blocks, embedding, head.
#pragma once

#include "planner/price/collective_cost.h"
#include "planner/published/stack.h"
#include "planner/published/training_row.h"

namespace trident {

struct PricingInput {
  const TrainingRow& row;
  const GpuRates& gpu;
  const TrainingStack& stack;
  ClusterLinks links;
};

// One pass over a part. `launch` is what the host's issuing takes longer than the device: max(0, host - device).
struct PassSeconds {
  double compute = 0;
  double recompute = 0;
  double tp = 0;  // tensor- and context-parallel traffic that nothing hides
  double launch = 0;
  double total() const { return compute + recompute + tp + launch; }
};

struct PartSeconds {
  PassSeconds forward;
  PassSeconds backward;       // both halves
  double weight_gradient = 0;  // of backward.compute: what a zero-bubble schedule can move
};

PartSeconds block_seconds(const PricingInput& in);
PartSeconds embedding_seconds(const PricingInput& in);
PartSeconds head_seconds(const PricingInput& in);  // final norm, output projection, loss; logits divided over tp

// Parameters: of one block, of an embedding table, of the final norm; whole model, not divided.
double block_parameters(const TrainingRow& row);
double table_parameters(const TrainingRow& row);
double position_parameters(const TrainingRow& row);

GroupPlace tp_place(const TrainingRow& row);
GroupPlace cp_place(const TrainingRow& row);
GroupPlace dp_place(const TrainingRow& row);  // replicas, context-parallel ranks among them
GroupPlace pp_place(const TrainingRow& row);

double tokens_of_micro_batch(const TrainingRow& row);  // on one rank, whole hidden vectors

}  // namespace trident
