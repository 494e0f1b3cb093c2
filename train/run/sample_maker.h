// Who continues prompts at every evaluation of a training run (eval.samples). infer/generate does; it stands above, and main()
// hands it in.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/config/model_config.h"
#include "pipeline/kv_cache_shape.h"
#include "train/config/train_config.h"
#include "train/log/text_sample.h"
#include "train/run/rank_model.h"

namespace trident {

// Read-only while the ranks run; ranks that are threads share it.
class SampleMaker {
 public:
  virtual ~SampleMaker() = default;

  // The keys and values that it needs memory for: the plan's text.
  virtual const KvCacheShape& shapes() const = 0;
  // Collective, between steps; changes nothing that steps see. On every rank, in the order of the prompts.
  virtual std::vector<TextSample> make(RankModel& model) const = 0;
};

// nullptr where the configuration asks for no samples. Throws ConfigError for prompts that this model cannot continue.
using FindSamples = std::function<std::shared_ptr<const SampleMaker>(const TrainConfig& config, const ModelConfig& model)>;

}  // namespace trident
