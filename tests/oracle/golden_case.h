// One case of the external oracle (scripts/oracle/README.md): what PyTorch and transformers computed, in the terms of this program:
// whole tensors by name, every matrix [out, in].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config/model_config.h"
#include "tests/support/layout_run.h"
#include "train/run/rank_trainer.h"

namespace trident::testing {

inline constexpr int kGoldenSteps = 10, kGoldenBatch = 2, kGoldenSequence = 16;

struct GoldenCase {
  std::string name;
  std::string model_json;  // config.json
  ModelConfig model;
  NamedTensors weights, gradients, trained;  // before step 1; of step 1, not clipped; after step 10
  std::vector<double> losses, grad_norms;    // of every step
  std::vector<std::int64_t> tokens, targets; // [kGoldenSteps, kGoldenBatch, kGoldenSequence]

  // The configuration of the run that the oracle made: AdamW, clipping, fp32, both samples of a step in one batch.
  std::string train_config() const;
  // Sample p is sample p % kGoldenBatch of step p / kGoldenBatch.
  LoadSamples samples() const;
};

std::vector<std::string> golden_case_names();
GoldenCase read_golden_case(const std::string& name);
// Samples of `sequence` tokens and a further target each, one after another in `stream`, which outlives this.
LoadSamples stream_samples(const std::vector<std::int32_t>& stream, std::int64_t sequence);

// Makes `folder` a Hugging Face folder with the case's weights, by links as the hub's cache has them.
void link_hf_folder(const std::string& golden, const std::string& folder);

// Overwrites the rank's weights by those of such a folder, read as model.init_from reads them.
void load_folder(RankTrainer& trainer, const std::string& folder);
// Puts whole tensors into the masters of a rank on the CPU.
void set_masters(RankTrainer& trainer, const NamedTensors& tensors);

// Expects losses and gradient norms of every step within 1e-5; returns the largest relative difference, as text.
std::string expect_golden_steps(const LayoutRun& run, const std::vector<float>& losses, const std::vector<float>& grad_norms);

double norm2(const std::vector<float>& values);
double distance(const std::vector<float>& a, const std::vector<float>& b);  // 2-norm of the difference; the sizes agree

}  // namespace trident::testing
