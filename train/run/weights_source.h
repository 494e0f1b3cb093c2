// Where a model's weights come from, a checkpoint or a folder of Hugging Face's form, and how they come into a rank's shards.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/hf_shard_reader.h"
#include "checkpoint/peft_adapter.h"
#include "checkpoint/shard_boxes.h"
#include "checkpoint/shard_reader.h"
#include "device/device.h"
#include "model/config/model_config.h"
#include "parallel/zero/param_store.h"
#include "train/config/stored_config.h"

namespace trident {

// The side files of a Hugging Face folder that a checkpoint was made of.
inline constexpr std::string_view kCarriedFolder = "hf";

struct WeightsSource {
  std::string folder;
  Manifest manifest;                        // of a checkpoint
  std::shared_ptr<const HfFolder> hf = {};  // of a Hugging Face folder; nullptr: it is a checkpoint
  std::shared_ptr<const PeftAdapter> adapter = {};  // which is merged into the folder's values where they are read
  std::shared_ptr<const WeightsSource> base = {};   // has the values that a checkpoint leaves there (ManifestTensor::base)
  std::shared_ptr<const PeftAdapter> beside = {};   // has the values of what trains beside these weights
};

// content_hash() by tensor: each is of all its values, or of the part that one rank has read.
using ContentHashes = std::map<std::string, std::uint64_t>;

// Reads values of a source, wherever it has them. Used by one thread; memory as its readers'.
class WeightsReader {
 public:
  explicit WeightsReader(const WeightsSource& source);  // which outlives it

  bool has(const std::string& tensor) const;
  bool leaves_in_base(const std::string& tensor) const;
  // Fills what `shard` has of `box`: kExact, with the masters where a checkpoint has some; kStored, with its weights bit by bit.
  // Values of a base are exact, and rounded where the shard is narrower. As HfShardReader::read(), ShardReader::read().
  enum class Values : std::uint8_t { kExact, kStored };
  void read(Values values, const ShardBox& box, const TensorView& shard, const WriteValues& write_values = {},
            Narrowing narrowing = Narrowing::kRefused, std::uint64_t* hash = nullptr);
  std::vector<std::string> odd_values() const;  // as HfShardReader's and ShardReader's
  std::vector<std::string> notes() const;       // ShardReader::lock_note()

 private:
  std::shared_ptr<const HfFolder> folder_;
  std::optional<HfShardReader> hf_;
  std::optional<ShardReader> checkpoint_;
  std::unique_ptr<WeightsReader> base_;
};

// Refuses (DataError, the first line) to train with values that are no numbers or infinite.
void refuse_to_train(const std::vector<std::string>& odd_values);

// ConfigError naming the checkpoint, its base as recorded, and why that does not serve; `hint` ends it.
[[noreturn]] void refuse_base(const WeightsSource& checkpoint, const std::string& why, const std::string& hint = "");
// Refuses (ConfigError, both named) a base in which a tensor has another hash than the checkpoint says, or the PEFT folder that is
// merged into it or trains beside it. `found`: of all ranks together, of the model's `tensors`; 0: not read.
void check_base(const WeightsSource& source, const ContentHashes& found, std::span<const ManifestTensor> tensors);

// The configuration of the run that wrote a checkpoint. As read_stored().
StoredConfig config_of(const WeightsSource& checkpoint);

// The model whose weights these are, without dropout. ConfigError naming file and key for one that is not supported.
ModelConfig model_of(const WeightsSource& source);
// The same of a Hugging Face folder's config.json.
ModelConfig model_of_hf(const std::string& folder);
// A run's configuration, of which nothing can go on, for the model of a folder: its config.json says neither whose tokenizer it has
// nor how many tokens it is given at a time, which are its positions, and at most kFolderSequence. As model_of_hf().
JsonValue config_of_hf(const WeightsSource& source);
inline constexpr std::int64_t kFolderSequence = 1024;

// A Hugging Face folder, fitted to the model of its config.json. kCompared: tied copies are compared, too
// (HfFolder::check_tied_copies), which reads them. Throws as HfFolder.
enum class TiedCopies : std::uint8_t { kTrusted, kCompared };
std::shared_ptr<const HfFolder> open_hf(const std::string& folder, TiedCopies copies);

// The same tensors in the same order, but those of adapters (is_adapter_tensor).
std::vector<ManifestTensor> without_adapters(std::vector<ManifestTensor> tensors);

// Fills all f32 masters of the store's shards, and nothing else: ParamStore::publish_masters() comes next, where values are used in
// another dtype or gathered. Of a store that does not train it fills the weights themselves, rounded to nearest, and
// publish_weights() comes next. Each rank reads only what its shards have. From a checkpoint come its masters, or its weights where
// it has no masters, or where they are what a store that does not train is to have, bit by bit. Adapters that the source lacks stay
// as they were, but for magnitudes: those become the lengths of the rows of the weights that were read. `holder`: which part of the
// parameters this rank has (RankModel::shard_holder()). `*hashes`, where it is given, gets what this rank has to add to the hashes
// of frozen tensors, of tensors in a base, and of all into which an adapter is merged. Returns WeightsReader::notes(),
// and odd_values(), which a store that trains refuses. DataError naming file and tensor; StorageError. Enqueues on `stream`
// where the shards lie on a device.
std::vector<std::string> read_weights(const WeightsSource& source, const ParamStore& store, const ShardHolder& holder,
                                      Device& device, Stream& stream, ContentHashes* hashes = nullptr);

// The weights of a store that does not train as training draws them before its first step, rounded to nearest; publish_weights()
// comes next.
void draw_weights(const ParamStore& store, const ShardHolder& holder, Device& device, Stream& stream);

// The first key of config.json in which two models differ, and both values; nothing: their weights mean the same. Dropout, the
// spread of random initial weights, and positions beyond those that are learned may differ.
std::optional<Difference> model_difference(const ModelConfig& a, const ModelConfig& b);

}  // namespace trident
