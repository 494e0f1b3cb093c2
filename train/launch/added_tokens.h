// Tokens that a run's data have beside those of the Hugging Face folder that it begins with.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "data/token_source.h"
#include "data/tokenizer/tokenizer.h"
#include "model/config/model_config.h"
#include "train/config/train_config.h"
#include "train/run/resume.h"

namespace trident {

// With model.vocab_size grown to the tokens of the data, where model.init_from is a Hugging Face folder with fewer rows, the data's
// records name a tokenizer of more tokens, and that one is the folder's, or data.tokenizer, which has all of the folder's. Anything
// else stays as it is, for open_data() to refuse. Reads records and configurations, and tokenizers where rows are wanting. Throws
// as load_tokenizer() for data.tokenizer.
TrainConfig with_added_tokens(TrainConfig config);

// Says how many rows a run adds to the weights that it begins with; nothing where it adds none.
std::optional<std::string> added_rows_line(const ModelConfig& model, const Resume& initial);

// A row that is added is the mean of the others until it trains. ConfigError: one of `tensors` does not train, rows are added to
// it, and tokens of these rows are among the targets that count. Returns a warning where they are in the data, but count nowhere.
// It reads the first `most` tokens of each source, which a start has time for; the warning says where there are more.
std::optional<std::string> refuse_frozen_rows(const TrainConfig& config, std::span<const ManifestTensor> tensors,
                                              const Resume& initial, std::span<const TokenSource> sources,
                                              std::int64_t most = 200'000'000);

}  // namespace trident
