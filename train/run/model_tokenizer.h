// The tokenizer that belongs to a model, and the files of Hugging Face's form that came with its weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "data/document_starts.h"
#include "data/tokenizer/tokenizer.h"
#include "train/run/weights_source.h"

namespace trident {

// The folder of Hugging Face's form with which the training of a checkpoint began (model.init_from), or that the checkpoint carries
// with which it began. Nothing where there is none, or it is gone.
std::optional<std::string> hf_files_begun_with(const Manifest& manifest);

// The model that a checkpoint's training began with (model.init_from), where it is gone.
std::optional<std::string> lost_base(const Manifest& manifest);

// Where config.json, generation_config.json and the tokenizer's files are: a Hugging Face folder itself, what trident convert
// carried along into a checkpoint that it made of one, or hf_files_begun_with(). Nothing of other checkpoints, and of a source
// without a folder.
std::optional<std::string> hf_files_of(const WeightsSource& source);

// The folder of the tokenizer's files where the model has more tokens than the Hugging Face folder that it is of, or than that
// folder's tokenizer, or where it is of none or that is gone: of a checkpoint the one of data.tokenizer, of a folder with an
// adapter the adapter's. Else nothing.
std::optional<std::string> added_tokenizer_of(const WeightsSource& source);

// The tokenizer that a checkpoint's configuration names, else, without a base, the one that made its data: a name, or where its
// files are. Nothing where none is known.
std::optional<std::string> tokenizer_named_by(const WeightsSource& checkpoint);

// eos_token_id of a folder's generation_config.json, else of its config.json: a number, several, or none. DataError: no token id.
std::vector<std::int32_t> ends_of_folder(const std::string& folder);

// Ids that end a text, as transformers' trainer writes them: those of that tokenizer, then eos_token_id among hf_files_of().
// DataError: it is no token id.
std::vector<std::int32_t> ends_of_model(const WeightsSource& source);

struct ModelTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;  // or none
  std::optional<Error> refused = {};     // why that among hf_files_of() is not read, or what made the data where that is gone, too
  std::optional<std::string> other = {};  // a warning of one that is not known to have the ids that the model learned
};

// Whether each id of `other` is the same token of `tokenizer`, which may have more.
bool has_tokens_of(const Tokenizer& tokenizer, const Tokenizer& other);

// `named`: --tokenizer; else that of `configured` (nullptr: no configuration is asked); where that was null by a setting, none;
// else the one among hf_files_of(); else, where `configured` was auto, the one that made the training data, if its record's name
// finds it still. `key`: of the option that gave `source`, for messages. Throws as load_tokenizer() for the first two.
ModelTokenizer find_tokenizer(const std::optional<std::string>& named, const DataConfig* configured, const WeightsSource& source,
                              std::string_view key);

// The tokenizer of a run's data: data.tokenizer; where it is "auto" and the vocabulary tells none, the one that made the first data
// set, if its record's name finds it still; else nullptr. Throws as load_tokenizer() for the first.
std::unique_ptr<Tokenizer> tokenizer_of_run(const DataConfig& data);

// How documents are told apart within samples. `tokenizer`: whose end of a document counts where data.eod is null; or nullptr.
// ConfigError: nobody says the end of a document and it is asked for, or it is outside the vocabulary.
DocumentRules document_rules(const DataConfig& data, std::int64_t vocab_size, const Tokenizer* tokenizer);

}  // namespace trident
