// The reference of preference optimisation: what frozen weights say of every pair of the training and validation data, asked once.
#pragma once

#include <vector>

#include "core/logging.h"
#include "train/run/load_checkpoint.h"
#include "train/run/rank_trainer.h"
#include "train/run/run_inputs.h"

namespace trident {

// ConfigError where inputs.reference is of another model, or has other adapters than the weights that training begins with; or,
// without it, where modules of these trained whole and no base has them as they were.
void check_reference(const RunInputs& inputs);

// Two log-probabilities of each pair: of all training sources, of all validation sources; empty where nobody asked.
struct PairReference {
  std::vector<float> train, valid;
};
struct ReferenceUse {
  bool trains = false, evaluates = false;
};

// Collective, between steps, once run.dir is there; the same on every rank. Before the first step the run's own forward program
// asks its weights, or those that `reference` means, in whose place the weights of model.init_from come again, and rank 0 writes
// run.dir/reference.f32 and reference_valid.f32; later starts read them there. DataError naming the remedy where a later start does
// not find one, or finds another's or a damaged one; errors of load_weights() and files. `tensors`: RunCheckpoints::tensors().
PairReference reference_of(const RunInputs& inputs, const std::vector<ManifestTensor>& tensors, RankTrainer& trainer,
                           const Logger& logger, const Say& say, const ReferenceUse& use);

}  // namespace trident
