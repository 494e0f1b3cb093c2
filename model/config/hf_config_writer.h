// ModelConfig -> Hugging Face's config.json, in the spelling of transformers 4, which transformers 5 reads, too.
#pragma once

#include "core/dtype.h"
#include "core/json_reader.h"
#include "model/config/model_config.h"

namespace trident {

// All that says what the model computes, and `dtype` under both of its keys. model_config_from_hf() of it is `config`. No ids of
// special tokens: those are the tokenizer's.
JsonValue hf_config_json(const ModelConfig& config, DType dtype);

// "float32", "bfloat16", "float16".
std::string_view hf_dtype_name(DType dtype);

}  // namespace trident
