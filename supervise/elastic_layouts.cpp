#include "supervise/elastic_layouts.h"

#include "core/int_math.h"
#include "train/config/option_check.h"
#include "train/config/rank_count.h"
#include "train/plan/machine.h"
#include "train/plan/run_plan.h"

namespace trident {
namespace {

std::string degrees_text(const ParallelConfig& parallel) {
  return fmt::format("{}DP x {}PP x {}TP", parallel.data.value(), parallel.pipeline, parallel.tensor);
}

ElasticLayout planned(const TrainConfig& config, const ModelConfig& model) {
  if (!config.parallel.data) throw ConfigError("parallel.data = \"auto\": how many ranks these are must be known; give the degree");
  const auto ranks = checked_cast<int>(ranks_of(config.parallel));
  make_run_plan(config, model, ranks, kAnyMachine);
  return {degrees_text(config.parallel), "", ranks};
}

}  // namespace

std::vector<ElasticLayout> elastic_layouts(const std::string& file, const std::vector<std::string>& settings,
                                           const TrainConfig& config) {
  std::vector<ElasticLayout> layouts;
  if (config.elastic.empty()) return layouts;
  const ModelConfig model = resolve_model(config);
  for (std::size_t i = 0; i < config.elastic.size(); ++i) {
    const JsonValue& written = config.elastic[i];
    const std::string setting = "parallel=" + (written.is_string() ? written.as_string() : to_json_text(written));
    try {
      std::vector<std::string> all = settings;
      all.push_back(setting);
      OptionValues values;
      layouts.push_back(planned(load_train_config(file, all, values), model));
    } catch (const ConfigError& error) {
      throw ConfigError(
          fmt::format("elastic[{}] = {}: {}; correct that layout or take it out", i, value_text(written), error.what()));
    }
    layouts.back().setting = setting;
    layouts.back().text += fmt::format(" (elastic[{}])", i);
  }
  return layouts;
}

ElasticLayout own_layout(const TrainConfig& config) {
  try {
    return planned(config, resolve_model(config));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}; trident supervise --nodes-from needs a layout that it can plan", error.what()));
  }
}

}  // namespace trident
