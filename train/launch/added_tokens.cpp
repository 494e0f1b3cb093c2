#include "train/launch/added_tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "checkpoint/hf_folder.h"
#include "core/check.h"
#include "core/counted.h"
#include "core/foreign_folder.h"
#include "data/dataset_record.h"
#include "data/tokenizer/tokenizer.h"
#include "model/config/hf_tensors.h"
#include "train/config/resolve_model.h"
#include "train/run/model_tokenizer.h"
#include "train/run/weights_source.h"

namespace trident {
namespace {

// The tokenizer of most tokens that a record of the data names.
std::optional<RecordedTokenizer> most_tokens(const DataConfig& data) {
  std::optional<RecordedTokenizer> most;
  for (const auto* part : {&data.train, &data.valid}) {
    for (const WeightedPath& source : *part) {
      std::optional<DatasetRecord> record;
      try {
        record = read_record(source.path);
      } catch (const Error&) {  // data that cannot be read are refused where they are opened
      }
      if (!record || !record->origin.tokenizer) continue;
      if (!most || record->origin.tokenizer->vocab_size > most->vocab_size) most = record->origin.tokenizer;
    }
  }
  return most;
}

}  // namespace

bool has_tokens_of(const Tokenizer& tokenizer, const Tokenizer& other) {
  if (tokenizer.vocab_size() < other.vocab_size()) return false;
  for (std::int32_t id = 0; id < other.vocab_size(); ++id)
    if (tokenizer.token_text(id) != other.token_text(id)) return false;
  return true;
}

TrainConfig with_added_tokens(TrainConfig config) {
  const std::string folder = config.model.init_from ? hub_snapshot(*config.model.init_from) : "";
  if (folder.empty() || !is_hf_folder(folder)) return config;
  const std::optional<RecordedTokenizer> wanted = most_tokens(config.data);
  if (!wanted) return config;
  const std::int64_t rows = resolve_model(config).vocab_size;
  // A number that the configuration gives stays.
  if (wanted->vocab_size <= rows || rows != model_of_hf(folder).vocab_size) return config;
  const bool is_named = config.data.tokenizer && !config.data.tokenizer_was_auto;
  const WeightsSource source{.folder = folder, .manifest = {}, .hf = open_hf(folder, TiedCopies::kTrusted)};
  const std::unique_ptr<Tokenizer> theirs = find_tokenizer({}, {}, source, "model.init_from").tokenizer;
  std::unique_ptr<Tokenizer> named;
  if (is_named) named = load_tokenizer(*config.data.tokenizer, "data.tokenizer");
  const Tokenizer* const used = is_named ? named.get() : theirs.get();
  if (used == nullptr || !(recorded(*used) == *wanted)) return config;
  if (is_named && theirs != nullptr && !has_tokens_of(*named, *theirs)) return config;
  config.model.keys.set("vocab_size", wanted->vocab_size);
  if (!is_named) config.data.tokenizer.reset();  // the folder's is another than a preset's
  return config;
}

std::optional<std::string> added_rows_line(const ModelConfig& model, const Resume& initial) {
  if (initial.hf == nullptr) return std::nullopt;
  const std::vector<std::string> tensors = tensors_by_token(model);
  const bool is_copied = initial.beside != nullptr && initial.beside->tensors().find(tensors.front()) != nullptr;
  const HfFolder& from = is_copied ? initial.beside->tensors() : *initial.hf;
  const std::int64_t rows = from.find(tensors.front())->shape.front();
  if (model.vocab_size <= rows) return std::nullopt;
  return fmt::format("model.vocab_size = {}: {} has {} tokens; {} added to {}, each the mean of those", model.vocab_size,
                     from.folder(), rows, counted(model.vocab_size - rows, "row"), fmt::join(tensors, " and to "));
}

}  // namespace trident
