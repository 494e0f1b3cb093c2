#include "model/config/hf_tensors.h"

#include <algorithm>
#include <utility>

#include "model/config/param_names.h"

namespace trident {
namespace {

// Appends tensors in the order of a transformers module's members.
class TensorList {
 public:
  explicit TensorList(const ModelConfig& config) : config_(config) {}

  void matrix(const std::string& stem, std::int64_t rows, std::int64_t columns, bool transposed = false) {
    tensors.push_back({stem + ".weight", transposed ? std::vector{columns, rows} : std::vector{rows, columns}, transposed});
  }
  void vector(std::string name, std::int64_t n) { tensors.push_back({std::move(name), {n}, false}); }
  void linear(const std::string& stem, std::int64_t rows, std::int64_t columns, bool bias, bool transposed) {
    matrix(stem, rows, columns, transposed);
    if (bias) vector(stem + ".bias", rows);
  }
  void norm(const std::string& stem) {
    if (config_.norm == NormKind::kPlainLayerNorm) return;
    vector(stem + ".weight", config_.hidden);
    if (config_.norm == NormKind::kLayerNorm) vector(stem + ".bias", config_.hidden);
  }

  std::vector<HfTensor> tensors;

 private:
  const ModelConfig& config_;
};

// Each tensor once: fused projections are several row ranges of one.
template <class Rows>
void append_row_ranges(TensorList& list, const Rows& parts, std::int64_t columns, bool bias, bool transposed) {
  for (const TensorRows& part : parts) {
    if (part.row_begin == 0) list.linear(part.stem, part.tensor_rows, columns, bias, transposed);
  }
}

void append_attention(TensorList& list, const ModelConfig& config, const BlockNames& names) {
  const auto inputs = [&] {
    append_row_ranges(list, names.query_key_value, config.hidden, config.qkv_bias, names.transposed_on_disk);
  };
  const auto output = [&] {
    list.linear(names.attention_output, config.hidden, config.query_width(), config.output_bias, names.transposed_on_disk);
  };
  if (config.family == ModelFamily::kPhi3) {  // Phi3Attention makes o_proj first
    output();
    inputs();
  } else {
    inputs();
    output();
  }
  if (config.qk_norm == QkNorm::kNone) return;
  const bool whole = config.qk_norm == QkNorm::kFullWidth;
  list.vector(names.query_norm + ".weight", whole ? config.query_width() : config.head_dim);
  list.vector(names.key_norm + ".weight", whole ? config.kv_width() : config.head_dim);
}

void append_block(TensorList& list, const ModelConfig& config, const BlockNames& names) {
  const auto mlp = [&] {
    append_row_ranges(list, names.mlp_input_parts, config.hidden, config.mlp_bias, names.transposed_on_disk);
    list.linear(names.mlp_output, config.hidden, config.ffn, config.mlp_bias, names.transposed_on_disk);
  };
  if (config.family == ModelFamily::kGpt2) {
    list.norm(names.attention_norm);
    append_attention(list, config, names);
    list.norm(names.mlp_norm);
    mlp();
    return;
  }
  append_attention(list, config, names);
  mlp();
  list.norm(names.attention_norm);
  list.norm(names.mlp_norm);
}

}  // namespace

std::vector<HfTensor> hf_tensors(const ModelConfig& config) {
  const EndNames ends = end_names(config);
  TensorList list(config);
  list.matrix(ends.embedding, config.vocab_size, config.hidden);
  if (config.position == PositionKind::kLearned) list.matrix(ends.positions, config.max_positions, config.hidden);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) append_block(list, config, block_names(config, layer));
  list.norm(ends.final_norm);
  if (!config.tie_embeddings) list.matrix(ends.head_tensor, config.vocab_size, config.hidden);
  return std::move(list.tensors);
}

std::vector<std::string> tensors_by_token(const ModelConfig& config) {
  const EndNames ends = end_names(config);
  std::vector<std::string> names{ends.embedding + ".weight"};
  if (!config.tie_embeddings) names.push_back(ends.head_tensor + ".weight");
  return names;
}

HfNames::HfNames(const ModelConfig& config) {
  for (HfTensor& tensor : hf_tensors(config)) tensors_.push_back(std::move(tensor.name));
  std::ranges::sort(tensors_);
  const EndNames ends = end_names(config);
  prefix_ = ends.embedding.substr(0, ends.embedding.find('.') + 1);
  embedding_ = ends.embedding + ".weight";
  if (config.tie_embeddings) tied_head_ = ends.head + ".weight";
}

HfName HfNames::operator()(std::string_view name_in_file) const {
  for (std::string name : {std::string(name_in_file), prefix_ + std::string(name_in_file)}) {
    if (std::ranges::binary_search(tensors_, name)) return {HfNameKind::kTensor, std::move(name)};
  }
  if (!tied_head_.empty() && name_in_file == tied_head_) return {HfNameKind::kTiedHead, embedding_};
  const bool gpt2 = prefix_ == "transformer.";
  const bool mask = name_in_file.ends_with(".attn.bias") || name_in_file.ends_with(".attn.masked_bias");
  if (gpt2 ? mask : name_in_file.ends_with("rotary_emb.inv_freq")) return {HfNameKind::kBuffer, {}};
  return {};
}

}  // namespace trident
