// Continuations of fixed prompts at every evaluation of a training run: eval.samples.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "infer/generate/token_loop.h"
#include "model/config/model_config.h"
#include "pipeline/cached_shapes.h"
#include "train/config/train_config.h"
#include "train/log/text_sample.h"
#include "train/run/rank_model.h"

namespace trident {

// Read-only while the ranks run; ranks that are threads share it.
struct EvalSamples {
  std::unique_ptr<const Tokenizer> tokenizer;       // nullptr: prompts are ids alone
  std::vector<std::optional<std::string>> prompts;  // the texts, as the configuration has them; nothing for one of ids
  GenerateRequest request;                          // of the same prompts; every data rank makes all of them
  CachedShapes shapes;
};

// What the configuration asks for, or nullptr. ConfigError naming key and prompt: an id that the model does not have, a prompt
// without any, more tokens than the model has positions; as load_tokenizer().
std::shared_ptr<const EvalSamples> find_eval_samples(const TrainConfig& config, const ModelConfig& model);

// Collective, between steps, over a model whose plan has samples.shapes as its text; changes nothing that steps see. On every rank,
// in the order of the prompts. Logits that are not finite end a continuation and not the run.
std::vector<TextSample> make_samples(const EvalSamples& samples, RankModel& model);

}  // namespace trident
