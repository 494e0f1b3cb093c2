// A configuration must agree in these with the checkpoint that the run goes on from, or begins with.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train/run/resume.h"

namespace trident {

struct DataFacts;

// Whether checkpoint.allow lists the key, or a block that it is in.
bool allows(const TrainConfig& config, std::string_view path);

// Changes `config` to what goes on: a decay length that was not given does not get shorter than it was, and precision.compute
// "auto" stays what it was. Refuses (ConfigError, both values named) a configuration with another model, seed, loss, batch, split,
// order, tokenizer or weights of data, unless checkpoint.allow lists the key; always another update rule, which has other states,
// other adapters, and tensors of other shapes; and what validate() refuses. Notes what was kept, allowed or changed, key by key.
void adopt(TrainConfig& config, Resume& resume);

// Refuses (ConfigError, both values named) initial weights of another model: tensors of other shapes, and unless checkpoint.allow
// lists "model", another architecture in the same shapes. Dropout, positions beyond those that are learned, and the spread of
// random initial weights may differ. A Hugging Face folder's config.json is compared, key by key; the model may have more tokens,
// where the tensors that get a row for each of them train.
void check_initial_model(const TrainConfig& config, const std::vector<ManifestTensor>& tensors, const Resume& initial);

// The first describes the training data, whatever their paths; the second is the fingerprint of the tokenizer that made them, ""
// where it is not known; the third refuses (ConfigError) others than the checkpoint's, unless checkpoint.allow lists data.train.
JsonValue data_fingerprint(const std::vector<DataFacts>& training);
std::string tokenizer_of_data(const JsonValue& fingerprint);
void check_resumed_data(const TrainConfig& config, const std::vector<DataFacts>& training, const Resume& resume);

}  // namespace trident
