#include "train/launch/added_tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "checkpoint/hf_folder.h"
#include "core/check.h"
#include "core/counted.h"
#include "core/foreign_folder.h"
#include "core/name_pattern.h"
#include "core/number_text.h"
#include "data/dataset_record.h"
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

struct AddedTokens {
  std::int64_t tokens = 0;
  std::optional<std::int64_t> counted_at = {};  // the first that counts
  std::string where = "";                       // the source that has it, or else the first that has any
  bool is_part = false;                         // there are more tokens, which were not read
};

// Tokens from id `rows` on, up to the first that counts, among the first `most` of each source. Data whose record names a tokenizer
// of no more tokens have none, and are not read.
AddedTokens added_tokens_in(std::span<const TokenSource> sources, std::int64_t rows, std::int64_t vocab_size, std::int64_t most) {
  constexpr std::int64_t kAtOnce = 32'000;
  AddedTokens found;
  std::vector<std::byte> stored;
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> counts;
  for (const TokenSource& source : sources) {
    const IndexedDataset& data = *source.dataset;
    const std::optional<RecordedTokenizer> tokenizer = origin_in_record(data.prefix()).tokenizer;
    if (tokenizer && tokenizer->vocab_size <= rows) continue;
    const std::int64_t end = std::min(source.num_tokens, most);
    if (end < source.num_tokens && !std::exchange(found.is_part, true) && found.tokens == 0) found.where = source.label;
    for (std::int64_t done = 0; done < end; done += kAtOnce) {
      const std::int64_t n = std::min(kAtOnce, end - done), first = source.first_token + done;
      stored.resize(static_cast<std::size_t>(n * size_of(data.type())));
      ids.resize(static_cast<std::size_t>(n));
      counts.assign(ids.size(), 1);
      data.read_tokens(first, n, stored);
      data.decode_tokens(stored.data(), first, n, vocab_size, ids.data(), 1);
      if (data.mask() != nullptr) data.mask()->read(first, counts);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < rows) continue;
        if (found.tokens++ == 0 || counts[i] != 0) found.where = source.label;
        if (counts[i] == 0) continue;
        found.counted_at = first + static_cast<std::int64_t>(i);
        return found;
      }
    }
  }
  return found;
}

}  // namespace

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
  const std::unique_ptr<Tokenizer> theirs = find_tokenizer({}, nullptr, source, "model.init_from").tokenizer;
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

std::optional<std::string> refuse_frozen_rows(const TrainConfig& config, std::span<const ManifestTensor> tensors,
                                              const Resume& initial, std::span<const TokenSource> sources, std::int64_t most) {
  if (initial.hf == nullptr) return std::nullopt;
  std::vector<std::string_view> frozen, modules;
  std::int64_t rows = 0, all_rows = 0;
  for (const ManifestTensor& tensor : tensors) {
    const HfFileTensor* const there = initial.hf->find(tensor.name);
    if (!tensor.frozen || there == nullptr || !there->by_token || there->shape.front() >= tensor.shape.front()) continue;
    rows = there->shape.front(), all_rows = tensor.shape.front();
    frozen.emplace_back(tensor.name);
    modules.push_back(last_word(frozen.back().substr(0, tensor.name.rfind('.'))));
  }
  if (frozen.empty()) return std::nullopt;
  const AddedTokens added = added_tokens_in(sources, rows, all_rows, most);
  if (added.tokens == 0 && !added.is_part) return std::nullopt;
  const std::string text = fmt::format(
      "model.vocab_size = {}: model.init_from = {} has {} tokens, and the rows that are added to {} do not train: they "
      "stay the mean of the others; {} has {}; {}, or prepare the data with the folder's own tokens",
      all_rows, initial.folder, rows, fmt::join(frozen, " and "), added.where,
      added.counted_at ? fmt::format("one of those tokens as a target, its token {}", *added.counted_at)
                       : fmt::format("{} of those tokens{}{}", added.tokens == 0 ? "none" : with_commas(added.tokens),
                                     added.tokens == 0 ? "" : ", none of them as targets",
                                     added.is_part
                                         ? fmt::format(" (of each source the first {} tokens were read)", with_commas(most))
                                         : ""),
      config.adapter.type         ? fmt::format("name {} in adapter.modules_to_save", fmt::join(modules, " and "))
      : config.train.only.empty() ? fmt::format("leave {} out of train.freeze", fmt::join(frozen, " and "))
                                  : fmt::format("name {} in train.only", fmt::join(frozen, " and ")));
  if (added.counted_at) throw ConfigError(text);
  return text;
}

}  // namespace trident
