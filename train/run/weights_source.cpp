#include "train/run/weights_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <span>
#include <utility>

#include "checkpoint/box_copy.h"
#include "checkpoint/checkpoint_folder.h"
#include "core/check.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "model/config/hf_tensors.h"
#include "train/plan/run_plan.h"

namespace trident {
namespace {

std::string text_of(std::int64_t value) { return fmt::format("{}", value); }
std::string text_of(double value) { return to_json_text(value); }
std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(std::string_view value) { return in_quotes(value); }

JsonValue model_keys_of_hf(const std::string& folder) {
  return hf_config_keys(read_json_file(folder + "/config.json", {.blame = ExitCode::kData}), {});
}

}  // namespace

ModelConfig model_of_hf(const std::string& folder) {
  return model_config_from_hf(model_keys_of_hf(folder), folder + "/config.json", 0.0);
}

JsonValue config_of_hf(const WeightsSource& source) {
  const ModelConfig model = model_of(source);
  const std::int64_t sequence = std::min(kFolderSequence, model.max_positions);
  JsonValue config = parse_json(fmt::format(R"({{"run": {{"dir": "none", "steps": 1}}, "batch": {{"global": 1, "micro": 1,)"
                                            R"( "sequence": {}}}, "data": {{"train": "none", "tokenizer": null}}}})",
                                            sequence),
                                "configuration");
  JsonValue keys = model_keys_of_hf(source.folder);
  if (source.adapter != nullptr) keys.set("vocab_size", model.vocab_size);
  config.set("model", std::move(keys));
  return config;
}

StoredConfig config_of(const WeightsSource& checkpoint) {
  return read_stored(checkpoint.manifest.config, checkpoint.folder + "/" + std::string(kManifestName));
}

ModelConfig model_of(const WeightsSource& source) {
  if (source.hf != nullptr) {
    ModelConfig model = model_of_hf(source.folder);
    if (source.adapter != nullptr) model.vocab_size = source.adapter->vocab_size();
    return model;
  }
  TrainConfig config = config_of(source).config;
  config.model.dropout = 0;
  return resolve_model(config);
}

std::vector<ManifestTensor> without_adapters(std::vector<ManifestTensor> tensors) {
  std::erase_if(tensors, [](const ManifestTensor& tensor) { return is_adapter_tensor(tensor.name); });
  return tensors;
}

std::shared_ptr<const HfFolder> open_hf(const std::string& folder, TiedCopies copies) {
  const ModelConfig model = model_of_hf(folder);
  const std::vector<std::string> by_token = tensors_by_token(model);
  const auto opened = std::make_shared<HfFolder>(folder, tensors_of_hf(model), HfNames(model), HfFiles{.by_token = by_token});
  if (copies == TiedCopies::kCompared) opened->check_tied_copies();
  return opened;
}

WeightsReader::WeightsReader(const WeightsSource& source) : folder_(source.hf) {
  if (source.hf != nullptr) {
    hf_.emplace(source.hf, source.adapter);
    return;
  }
  checkpoint_.emplace(source.folder, source.manifest);
  if (source.base != nullptr) base_ = std::make_unique<WeightsReader>(*source.base);
}

bool WeightsReader::has(const std::string& tensor) const {
  return checkpoint_ ? checkpoint_->find(tensor) >= 0 : folder_->find(tensor) != nullptr;
}

bool WeightsReader::leaves_in_base(const std::string& tensor) const {
  const std::int64_t t = base_ == nullptr ? -1 : checkpoint_->find(tensor);
  return t >= 0 && checkpoint_->manifest().tensors[static_cast<std::size_t>(t)].base.has_value();
}

void WeightsReader::read(Values values, const ShardBox& box, const TensorView& shard, const WriteValues& write_values,
                         Narrowing narrowing, std::uint64_t* hash) {
  if (hf_) return hf_->read(box, shard, write_values, narrowing, hash);
  if (leaves_in_base(box.tensor)) return base_->read(Values::kExact, box, shard, write_values, Narrowing::kRounded, hash);
  checkpoint_->read(values == Values::kExact ? checkpoint_->exact_prefix(box.tensor) : "", box, shard, write_values, narrowing,
                    hash);
}

std::vector<std::string> WeightsReader::odd_values() const {
  if (hf_) return hf_->odd_values();
  std::vector<std::string> lines = base_ == nullptr ? std::vector<std::string>() : base_->odd_values();
  std::ranges::copy(checkpoint_->odd_values(), std::back_inserter(lines));
  return lines;
}

std::vector<std::string> WeightsReader::notes() const {
  std::vector<std::string> notes = base_ == nullptr ? std::vector<std::string>() : base_->notes();
  if (checkpoint_ && !checkpoint_->lock_note().empty()) notes.push_back(checkpoint_->lock_note());
  return notes;
}

void refuse_to_train(const std::vector<std::string>& odd_values) {
  if (!odd_values.empty())
    throw DataError(odd_values.front() + ", with which no step can be made; take a copy that is sound");
}

void refuse_base(const WeightsSource& checkpoint, const std::string& why, const std::string& hint) {
  throw ConfigError(
      fmt::format("{}: its frozen weights are those of {}, and {}; put them there again, or name the folder that has them "
                  "now (--set model.init_from=DIR of train, eval, generate and convert){}",
                  checkpoint.folder, checkpoint.manifest.base, why, hint));
}

namespace {

// Finds in `values` a tensor by tokens to which training had added rows, each the mean of the base's: `hash` grows by theirs.
const JsonValue* value_with_added_rows(const JsonValue& values, const WeightsSource& source, const ManifestTensor& tensor,
                                       std::uint64_t& hash) {
  const HfFileTensor* const there = source.hf == nullptr ? nullptr : source.hf->find(tensor.name);
  if (there == nullptr || !there->by_token || there->shape != tensor.shape) return nullptr;
  for (const auto& [key, value] : values.members()) {
    if (!key.starts_with(tensor.name + " ")) continue;
    ManifestTensor grown = tensor;
    grown.shape[0] = std::strtoll(key.c_str() + tensor.name.size(), nullptr, 10);
    const std::int64_t first = tensor.shape[0], rows = grown.shape[0] - first, columns = tensor.shape[1];
    if (rows <= 0 || key != base_value_key(grown)) continue;
    ShardBox box{.rows = rows, .columns = columns, .tensor = tensor.name, .tensor_shape = grown.shape};
    box.box = {{first, 0}, {rows, columns}};
    std::vector<float> means(static_cast<std::size_t>(rows * columns));
    HfShardReader(source.hf).read(box, TensorView(means.data(), DType::kF32, {rows * columns}), {}, Narrowing::kRefused, &hash);
    return &value;
  }
  return nullptr;
}

}  // namespace

void check_base(const WeightsSource& source, const ContentHashes& found, std::span<const ManifestTensor> tensors) {
  const auto hash_of = [&](const ManifestTensor& tensor) {
    const auto hash = found.find(tensor.name);
    return hash == found.end() ? 0 : hash->second;
  };
  for (const ManifestTensor& tensor : source.manifest.tensors)
    if (const std::uint64_t hash = hash_of(tensor); tensor.base && hash != 0 && hash != *tensor.base)
      refuse_base(source, fmt::format("{} has other values in {} now", tensor.name, source.base->folder));
  const PeftAdapter* const adapter = (source.beside != nullptr ? source.beside : source.adapter).get();
  const JsonValue values = adapter == nullptr ? JsonValue() : adapter->base_values();
  for (const ManifestTensor& tensor : tensors) {
    std::uint64_t hash = hash_of(tensor);
    if (hash == 0 || !values.is_object()) continue;
    const JsonValue* then = values.find(base_value_key(tensor));
    if (then == nullptr) then = value_with_added_rows(values, source, tensor, hash);
    if (then == nullptr || (then->is_string() && then->as_string() == fmt::format("{:016x}", hash))) continue;
    const std::string& base = adapter->config().base;
    throw ConfigError(fmt::format("{}{}: was trained beside {}, and {} has other values in {}; name that base{}, or adapters of "
                                  "this one",
                                  source.beside != nullptr ? "adapter.init_from = " : "", adapter->tensors().folder(),
                                  base.empty() ? "a base that it does not name" : base, source.folder, tensor.name,
                                  source.beside != nullptr ? " in model.init_from" : ""));
  }
}

namespace {

// Writes f32 values over elements of a shard: its master, or where it has none its weights, rounded.
void write_rounded(const TensorView& to, std::span<const float> values, const WriteValues& write) {
  std::vector<std::byte> rounded(static_cast<std::size_t>(to.num_bytes()));
  convert_values(reinterpret_cast<const std::byte*>(values.data()), DType::kF32, rounded.data(), to.dtype(), std::ssize(values));
  write(to, rounded.data());
}

// The lengths of rows first .. of the matrix that a part of InitKind::kRowLength speaks of, summed in the order of the columns.
std::vector<float> row_lengths(WeightsReader& reader, const PartSpec& part, std::int64_t first, std::int64_t count) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 20;
  const std::int64_t columns = part.init.columns, all = part.tensor_shape[0];
  std::vector<float> lengths, values;
  for (const std::int64_t end = first + count; first < end;) {
    const std::int64_t rows = std::clamp<std::int64_t>(kMostElements / columns, 1, end - first);
    ShardBox box{.rows = rows, .columns = columns, .transposed = part.transposed_on_disk, .tensor = part.init.of};
    box.tensor_shape = box.transposed ? std::vector{columns, all} : std::vector{all, columns};
    box.box = box.transposed ? TensorBox{{0, first}, {columns, rows}} : TensorBox{{first, 0}, {rows, columns}};
    values.resize(static_cast<std::size_t>(rows * columns));
    reader.read(WeightsReader::Values::kExact, box, TensorView(values.data(), DType::kF32, {rows * columns}));
    for (std::int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (const double value : std::span(values).subspan(static_cast<std::size_t>(r * columns), static_cast<std::size_t>(columns)))
        squares += value * value;
      lengths.push_back(static_cast<float>(std::sqrt(squares)));
    }
    first += rows;
  }
  return lengths;
}

// Magnitudes that the source lacks.
void read_row_lengths(WeightsReader& reader, const ParamStore& store, const ShardHolder& holder, const WriteValues& write) {
  for (const ParamShard& shard : store.shards())
    for (const ShardPiece& piece : shard.pieces)
      for (const TensorStretch& stretch : tensor_stretches(piece, holder.tensor_degree, holder.tensor_rank)) {
        const PartSpec* const part = stretch.part;
        if (part == nullptr || part->init.kind != InitKind::kRowLength || reader.has(part->tensor)) continue;
        const TensorView& values = shard.master.data() != nullptr ? shard.master : shard.param;
        write_rounded(values.range(piece.shard_begin + stretch.begin, stretch.count),
                      row_lengths(reader, *part, stretch.first_index + stretch.first_column, stretch.count), write);
      }
}

}  // namespace

std::vector<std::string> read_weights(const WeightsSource& source, const ParamStore& store, const ShardHolder& holder,
                                      Device& device, Stream& stream, ContentHashes* hashes) {
  using Values = WeightsReader::Values;
  const WriteValues write = [&](TensorView to, const void* from) { device.write(stream, to, from); };
  // Frozen weights are those that a later start rounds to its own format, too.
  const bool as_stored = source.hf == nullptr && source.manifest.weights == store.config().compute && !store.trains();
  WeightsReader reader(source);
  if (source.beside == nullptr) read_row_lengths(reader, store, holder, write);
  std::optional<HfShardReader> beside;
  if (source.beside != nullptr) beside.emplace(std::shared_ptr<const HfFolder>(source.beside, &source.beside->tensors()));
  for (const ShardBox& box : boxes_held(store.shards(), holder)) {
    const ParamShard& shard = store.shards()[box.shard];
    const bool is_master = shard.master.data() != nullptr, is_frozen = store.trains() && !box.trainable;
    if (beside && box.trainable) {
      beside->read(box, is_master ? shard.master : shard.param, write, is_master ? Narrowing::kRefused : Narrowing::kRounded);
      continue;
    }
    if (is_adapter_tensor(box.tensor) && !reader.has(box.tensor)) continue;
    const bool has_base = is_frozen || source.adapter != nullptr || reader.leaves_in_base(box.tensor);
    const bool counts = hashes != nullptr && box.written && has_base;
    reader.read(as_stored ? Values::kStored : Values::kExact, box, is_master ? shard.master : shard.param, write,
                is_master ? Narrowing::kRefused : Narrowing::kRounded, counts ? &(*hashes)[box.tensor] : nullptr);
  }
  std::vector<std::string> odd = reader.odd_values(), notes = reader.notes();
  if (beside) std::ranges::copy(beside->odd_values(), std::back_inserter(odd));
  if (store.trains()) refuse_to_train(odd);
  for (const std::string& line : odd) notes.push_back(line + "; they are kept");
  return notes;
}

void draw_weights(const ParamStore& store, const ShardHolder& holder, Device& device, Stream& stream) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 20;
  TRIDENT_CHECK(!store.trains(), "weights drawn beside masters");
  const WriteValues write = [&](TensorView to, const void* from) { device.write(stream, to, from); };
  std::vector<float> values;
  for (const ParamShard& shard : store.shards()) {
    if (shard.param.data() == nullptr) continue;  // a tied weight that the other end holds
    for (const ShardPiece& whole : shard.pieces) {
      for (std::int64_t begin = 0; begin < whole.count; begin += kMostElements) {
        ShardPiece piece = whole;
        piece.param_begin += begin, piece.shard_begin += begin;
        piece.count = std::min(kMostElements, whole.count - begin);
        values.assign(static_cast<std::size_t>(piece.count), 0.0f);
        draw_initial_values(piece, holder.tensor_degree, holder.tensor_rank, store.config().seed, values);
        write_rounded(shard.param.range(piece.shard_begin, piece.count), values, write);
      }
    }
  }
}

std::optional<Difference> model_difference(const ModelConfig& a, const ModelConfig& b) {
  std::optional<Difference> difference;
  const auto compare = [&](std::string_view key, const auto& of_a, const auto& of_b) {
    if (!difference && of_a != of_b) difference = {std::string(key), text_of(of_a), text_of(of_b)};
  };
  const bool gpt2 = a.family == ModelFamily::kGpt2;
  compare("model_type", to_string(a.family), to_string(b.family));
  compare("vocab_size", a.vocab_size, b.vocab_size);
  compare(gpt2 ? "n_embd" : "hidden_size", a.hidden, b.hidden);
  compare(gpt2 ? "n_layer" : "num_hidden_layers", a.layers, b.layers);
  compare(gpt2 ? "n_head" : "num_attention_heads", a.heads, b.heads);
  compare("num_key_value_heads", a.kv_heads, b.kv_heads);
  compare("head_dim", a.head_dim, b.head_dim);
  compare(gpt2 ? "n_inner" : "intermediate_size", a.ffn, b.ffn);
  if (a.position == PositionKind::kLearned)
    compare(gpt2 ? "n_positions" : "max_position_embeddings", a.max_positions, b.max_positions);
  compare(gpt2 ? "layer_norm_epsilon" : "rms_norm_eps", a.norm_eps, b.norm_eps);
  compare("attention_bias", a.qkv_bias, b.qkv_bias);
  compare("attention_bias", a.output_bias, b.output_bias);
  compare("mlp_bias", a.mlp_bias, b.mlp_bias);
  compare("tie_word_embeddings", a.tie_embeddings, b.tie_embeddings);
  if (a.position == PositionKind::kRope) {
    compare("rope_theta", a.rope.theta, b.rope.theta);
    compare("partial_rotary_factor", a.rope.partial_rotary_factor, b.rope.partial_rotary_factor);
    compare("rope_scaling.rope_type", to_string(a.rope.scaling), to_string(b.rope.scaling));
    compare("rope_scaling.factor", a.rope.factor, b.rope.factor);
    if (!(a.rope == b.rope))
      compare("rope_scaling", std::string_view("as given"), std::string_view("other values of the same kind"));
  }
  const auto differ = [&](bool different, std::string key, std::string of_a, std::string of_b) {
    if (!difference && different) difference = {std::move(key), std::move(of_a), std::move(of_b)};
  };
  const auto window = [](const ModelConfig& of) {
    return of.sliding_window > 0 ? text_of(of.sliding_window) : std::string("null");
  };
  differ(a.sliding_window != b.sliding_window, "sliding_window", window(a), window(b));
  const auto kinds = [](const ModelConfig& of) {  // f full, s sliding
    std::string text;
    for (std::int64_t layer = 0; layer < of.layers; ++layer) text += of.slides(layer) ? 's' : 'f';
    return text;
  };
  differ(kinds(a) != kinds(b), "layer_types", kinds(a), kinds(b));
  const auto cap = [](double of) { return of > 0 ? text_of(of) : std::string("null"); };
  differ(a.attention_softcap != b.attention_softcap, "attn_logit_softcapping", cap(a.attention_softcap), cap(b.attention_softcap));
  differ(a.logit_softcap != b.logit_softcap, "final_logit_softcapping", cap(a.logit_softcap), cap(b.logit_softcap));
  differ(a.clip_qkv != b.clip_qkv, "clip_qkv", cap(a.clip_qkv), cap(b.clip_qkv));
  // Families decide these; an equal model_type with another is none of theirs.
  differ(a.norm != b.norm, "model_type", "as given", "another kind of norm");
  differ(a.norm_placement != b.norm_placement, "model_type", "as given", "norms in another place of its blocks");
  differ(a.qk_norm != b.qk_norm, "model_type", "as given", "another norm of queries and keys");
  differ(a.activation != b.activation, "model_type", "as given", "another activation");
  differ(a.position != b.position, "model_type", "as given", "another kind of positions");
  // A difference that no line above names is one, too.
  ModelConfig rest = b;
  rest.max_positions = a.max_positions, rest.init_std = a.init_std;
  rest.residual_dropout = a.residual_dropout, rest.embedding_dropout = a.embedding_dropout;
  if (!difference && !(rest == a)) difference = {"model_type", "as given", "another kind of layer"};
  return difference;
}

}  // namespace trident
