// Continuations of fixed prompts at every evaluation of a training run: eval.samples.
#pragma once

#include <memory>

#include "train/run/sample_maker.h"

namespace trident {

// Finds the samples that the configuration asks for; nullptr: none. ConfigError naming key and prompt: an id that the model
// does not have, a prompt without any, more tokens than the model has positions; as load_tokenizer().
// Logits that are not finite end a continuation and not the run.
std::shared_ptr<const SampleMaker> find_eval_samples(const TrainConfig& config, const ModelConfig& model);

}  // namespace trident
