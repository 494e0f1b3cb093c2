// Hugging Face's tensor names of a model, and which rows of which tensor each projection is (docs: interoperability).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/config/model_config.h"

namespace trident {

// Rows [row_begin, row_begin + rows) of a logical [tensor_rows, in] tensor "<stem>.weight" (and of "<stem>.bias").
struct TensorRows {
  std::string stem;
  std::int64_t tensor_rows = 0, row_begin = 0, rows = 0;
};

// Stems: the tensor is "<stem>.weight" or "<stem>.bias". The norms are a block's two, wherever they stand (NormPlacement).
struct BlockNames {
  std::string attention_norm, mlp_norm;
  std::string qkv, query, key_value;        // of the fused parameters: all three, or query apart from key and value
  std::array<TensorRows, 3> query_key_value;
  std::string query_norm, key_norm, attention_output;
  std::string mlp_input;                    // of the fused parameter
  std::vector<TensorRows> mlp_input_parts;  // gate, up; or the one input projection
  std::string mlp_output;
  bool transposed_on_disk = false;          // matrices are stored [in, out]
};
BlockNames block_names(const ModelConfig& config, std::int64_t layer);

struct EndNames {
  std::string embedding, positions, final_norm;
  std::string head;         // of the parameter
  std::string head_tensor;  // the embedding's when tied
};
EndNames end_names(const ModelConfig& config);

}  // namespace trident
