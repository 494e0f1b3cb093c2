#include "train/run/model_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "checkpoint/checkpoint_path.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "core/shell_word.h"
#include "data/dataset_files.h"
#include "data/dataset_record.h"
#include "train/run/adopt.h"
#include "train/run/resume.h"

namespace trident {

namespace {

std::optional<std::string> begun_with(const Manifest& manifest) {
  const JsonValue& began = manifest.config.get("model").get("init_from");
  return began.is_string() ? std::optional(hub_snapshot(began.as_string())) : std::nullopt;
}

}  // namespace

std::optional<std::string> lost_base(const Manifest& manifest) {
  std::optional<std::string> folder = begun_with(manifest);
  if (folder && is_there(*folder)) folder.reset();
  return folder;
}

std::optional<std::string> hf_files_begun_with(const Manifest& manifest) {
  const std::optional<std::string> folder = begun_with(manifest);
  if (!folder || is_hf_folder(*folder)) return folder;
  const std::string carried = *folder + "/" + std::string(kCarriedFolder);
  return folder_exists(carried) ? std::optional(carried) : std::nullopt;
}

std::optional<std::string> hf_files_of(const WeightsSource& source) {
  if (source.folder.empty()) return std::nullopt;  // weights from nowhere
  if (source.hf != nullptr) return source.folder;
  const std::string carried = source.folder + "/" + std::string(kCarriedFolder);
  if (folder_exists(carried)) return carried;
  return source.base != nullptr ? hf_files_of(*source.base) : hf_files_begun_with(source.manifest);
}

namespace {

// A path that `is_there` finds counts from where the run was started that recorded it; else it stays as it is.
std::string place_of(const std::string& path, const WeightsSource& source, bool (*is_there)(const std::string&)) {
  RecordedStart start;
  start.recorded = checkpoint_folder_of(config_of(source).config);
  start.now = source.folder + "/..";
  start.working_dir = source.manifest.writer.text_at("working_dir");
  for (const std::string& place : places_of(path, start))
    if (is_there(place)) return place;
  return path;
}

// A word without a slash is a name. The tokenizer of a base that was moved moved with it.
std::string place_of_tokenizer(const std::string& configured, const WeightsSource& source) {
  if (source.hf != nullptr || source.folder.empty() || configured.find('/') == std::string::npos) return configured;
  const std::string place = place_of(configured, source, is_there);
  if (is_there(place) || source.base == nullptr || begun_with(source.manifest) != hub_snapshot(configured)) return place;
  return hf_files_of(*source.base).value_or(place);
}

bool has_record(const std::string& prefix) { return is_there(record_path(prefix)); }

struct DataTokenizer {
  std::string name, place;
  std::unique_ptr<Tokenizer> tokenizer;  // or none: another is there now
};

// The tokenizer that the record beside a checkpoint's data names. Nothing where there is none.
std::optional<DataTokenizer> tokenizer_of_data(const WeightsSource& source) {
  if (source.hf != nullptr || source.folder.empty()) return std::nullopt;
  const std::vector<WeightedPath> data = config_of(source).config.data.train;
  if (data.empty()) return std::nullopt;
  try {
    if (const auto made_by = origin_in_record(place_of(data.front().path, source, has_record)).tokenizer) {
      const std::string place = place_of_tokenizer(made_by->name, source);
      return DataTokenizer{made_by->name, place, load_recorded(place, *made_by)};
    }
  } catch (const Error&) {  // a damaged record says nothing
  }
  return std::nullopt;
}

std::string made_with(const DataTokenizer& made_by) {
  return fmt::format("its data were made with --tokenizer {}", for_shell(made_by.name));
}

bool has_tokenizer_files(const std::string& folder) {
  constexpr const char* kFiles[] = {"tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "merges.txt"};
  return std::ranges::any_of(kFiles, [&](const char* file) { return is_there(folder + "/" + file); }) ||
         std::ranges::any_of(names_in(folder), [](const std::string& name) { return name.ends_with(".tiktoken"); });
}

// Counts the tokens of a folder's tokenizer; 0: it has none that is read.
std::int64_t tokens_in(const std::string& folder) {
  if (!has_tokenizer_files(folder)) return 0;
  try {
    return load_tokenizer(folder, "data.tokenizer")->vocab_size();
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace

std::vector<std::int32_t> ends_of_folder(const std::string& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = folder + "/" + name;
    if (!file_exists(path)) continue;
    const JsonValue json = parse_json(read_file(path), path, {.comments = false, .blame = ExitCode::kData});
    const JsonValue& eos = json.get("eos_token_id");
    if (eos.is_null()) continue;
    std::vector<std::int32_t> ends;
    for (const JsonValue& id : eos.is_array() ? eos.items() : JsonValue::Array{eos}) {
      if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() > INT32_MAX)
        throw DataError(fmt::format("{}: eos_token_id = {}: must be a token id, or a list of some", path,
                                    in_quotes(to_json_text(eos))));
      ends.push_back(static_cast<std::int32_t>(id.as_integer()));
    }
    return ends;
  }
  return {};
}

std::optional<std::string> tokenizer_named_by(const WeightsSource& checkpoint) {
  std::optional<std::string> named = config_of(checkpoint).config.data.tokenizer;
  if (!named && checkpoint.base == nullptr)
    if (const auto made_by = tokenizer_of_data(checkpoint); made_by && made_by->tokenizer != nullptr) named = made_by->place;
  return named;
}

std::optional<std::string> added_tokenizer_of(const WeightsSource& source) {
  const bool is_folder = source.hf != nullptr;
  if (source.folder.empty() || (is_folder && source.adapter == nullptr)) return std::nullopt;
  const std::optional<std::string> named = is_folder ? source.adapter->tensors().folder() : tokenizer_named_by(source);
  if (!named && source.base != nullptr) return added_tokenizer_of(*source.base);
  if (!named) return std::nullopt;
  const std::optional<std::string> files = is_folder ? source.folder : hf_files_of(source);
  std::filesystem::path place = place_of_tokenizer(*named, source);
  if (file_exists(place)) place = place.parent_path();
  if (!has_tokenizer_files(place)) return std::nullopt;
  const bool is_larger =
      !files || model_of(source).vocab_size > model_of_hf(*files).vocab_size || tokens_in(place) > tokens_in(*files);
  return is_larger ? std::optional(place.string()) : std::nullopt;
}

std::vector<std::int32_t> ends_of_model(const WeightsSource& source) {
  std::vector<std::int32_t> ends;
  if (const std::optional<std::string> tokenizer = added_tokenizer_of(source))
    ends = load_tokenizer(*tokenizer, "data.tokenizer")->special_ids().eos;
  if (const std::optional<std::string> files = hf_files_of(source))
    for (const std::int32_t end : ends_of_folder(*files))
      if (std::ranges::find(ends, end) == ends.end()) ends.push_back(end);
  return ends;
}

bool has_tokens_of(const Tokenizer& tokenizer, const Tokenizer& other) {
  if (tokenizer.vocab_size() < other.vocab_size()) return false;
  for (std::int32_t id = 0; id < other.vocab_size(); ++id)
    if (tokenizer.token_text(id) != other.token_text(id)) return false;
  return true;
}

namespace {

// `takes_that_of_data`: where no files are there, the tokenizer that the data's record names.
ModelTokenizer tokenizer_among_files(const WeightsSource& source, bool takes_that_of_data, std::string_view key) {
  std::optional<std::string> folder = added_tokenizer_of(source);
  if (!folder) folder = hf_files_of(source);
  if (!folder || !has_tokenizer_files(*folder)) {
    std::optional<DataTokenizer> made_by = tokenizer_of_data(source);
    if (!made_by && folder)
      return {nullptr,
              Error(ExitCode::kConfig, fmt::format("{} has none: no tokenizer.json, tokenizer.model, tekken.json, ranks in "
                                                   "*.tiktoken, nor vocab.json with merges.txt",
                                                   *folder))};
    if (!made_by) return {};
    if (made_by->tokenizer != nullptr && takes_that_of_data) return {std::move(made_by->tokenizer)};
    return {nullptr, Error(ExitCode::kConfig, made_with(*made_by))};
  }
  try {
    return {load_tokenizer(*folder, key)};
  } catch (const Error& error) {
    return {nullptr, error};
  }
}

// A checkpoint says which tokenizer made its data; a model's own files are looked at where they are not `used` themselves.
std::optional<std::string> why_other(const Tokenizer& used, bool is_named, const WeightsSource& source) {
  std::string learned = tokenizer_of_data(source.manifest.data);
  if (learned.empty() && is_named)
    if (const auto own = tokenizer_among_files(source, true, "").tokenizer) learned = own->fingerprint();
  if (learned.empty() || learned == used.fingerprint()) return std::nullopt;
  const std::optional<DataTokenizer> made_by = tokenizer_of_data(source);
  if (made_by && made_by->tokenizer != nullptr && has_tokens_of(used, *made_by->tokenizer)) return std::nullopt;
  return fmt::format("{}: the model learned ids of the tokenizer {}{}, and {} is {} now, to which they may mean other texts; "
                     "put the files of that one back, or name a folder that has them in --tokenizer",
                     source.folder, learned, made_by ? fmt::format(" ({})", made_with(*made_by)) : "", in_quotes(used.name()),
                     used.fingerprint());
}

}  // namespace

ModelTokenizer find_tokenizer(const std::optional<std::string>& named, const DataConfig* configured, const WeightsSource& source,
                              std::string_view key) {
  const std::optional<std::string> in_config = configured != nullptr ? configured->tokenizer : std::nullopt;
  const bool is_auto = configured != nullptr && configured->tokenizer_was_auto;
  const auto of_config = [&] {
    try {
      return load_tokenizer(place_of_tokenizer(*in_config, source), "data.tokenizer");
    } catch (const Error& error) {
      if (!key.starts_with("--")) throw;  // of a command without the flag
      throw Error(error.code(), fmt::format("{}; or name it in --tokenizer, if it was moved", error.what()));
    }
  };
  ModelTokenizer found = named                              ? ModelTokenizer{load_tokenizer(*named, "--tokenizer")}
                         : in_config                        ? ModelTokenizer{of_config()}
                         : is_auto || configured == nullptr ? tokenizer_among_files(source, is_auto, key)
                                                            : ModelTokenizer{nullptr, ConfigError("data.tokenizer is null")};
  if (found.tokenizer != nullptr) found.other = why_other(*found.tokenizer, named.has_value(), source);
  return found;
}

std::unique_ptr<Tokenizer> tokenizer_of_run(const DataConfig& data) {
  if (data.tokenizer) return load_tokenizer(*data.tokenizer, "data.tokenizer");
  if (!data.tokenizer_was_auto || data.train.empty()) return nullptr;
  try {
    const auto made_by = origin_in_record(data.train.front().path).tokenizer;
    return made_by ? load_recorded(made_by->name, *made_by) : nullptr;
  } catch (const Error&) {  // who reads the data says what is wrong with it
    return nullptr;
  }
}

DocumentRules document_rules(const DataConfig& data, std::int64_t vocab_size, const Tokenizer* tokenizer) {
  DocumentRules rules{.boundaries = data.boundaries, .masks_targets = data.eod_mask_loss};
  if (!data.finds_documents() || data.boundaries == DocumentBoundaries::kIndex) return rules;
  if (!data.eod && tokenizer == nullptr)
    throw ConfigError(
        "data.eod = null: documents end in the tokenizer's end of a document, and there is no tokenizer; give its id, "
        "name the data's tokenizer, or set data.boundaries to \"index\"");
  const std::int64_t eod =
      data.eod ? *data.eod : tokenizer->eod_for("data.eod = null", "give its id, or set data.boundaries to \"index\"");
  if (eod < 0 || eod >= vocab_size)
    throw ConfigError(
        fmt::format("data.eod = {}: {}outside the model's vocabulary of {} tokens; give the id that ends the data's "
                    "documents, or set data.boundaries to \"index\"",
                    data.eod ? std::to_string(*data.eod) : "null",
                    data.eod ? "" : fmt::format("the tokenizer's end of a document is {}, ", eod), vocab_size));
  rules.eod = static_cast<std::int32_t>(eod);
  return rules;
}

}  // namespace trident
