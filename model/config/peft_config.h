// adapter_config.json of a PEFT folder, and which modules of its base have adapters by it. Pure: nothing is opened here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_reader.h"
#include "model/config/model_config.h"

namespace trident {

inline constexpr std::string_view kPeftConfigName = "adapter_config.json";

// A linear layer with an adapter: W + scale B A, where A [rank, in] and B [out, rank].
struct PeftModule {
  std::string name;  // "model.layers.0.self_attn.q_proj"; the base's tensor is "<name>.weight"
  std::int64_t in = 0, out = 0, rank = 0;
  double scale = 0;
  bool transposed = false;  // the base's file has W as [in, out]
};

struct PeftConfig {
  std::vector<PeftModule> modules;  // in the order of hf_tensors()
  std::vector<std::string> copies;  // the base's tensors that were trained whole, of which the folder has copies
  bool dora = false;                // rows of W + scale B A have the lengths that a magnitude [out] says
  std::string base;                 // base_model_name_or_path; "" where it is not said
  // As the file says them for all modules, whatever rank_pattern and alpha_pattern say for some.
  std::int64_t rank = 0;
  double alpha = 0, dropout = 0;
  bool rslora = false;
};

// Whether modules_to_save names a module: each of its names is the end of the module's, or of one around it.
bool is_saved_module(const std::vector<std::string>& modules_to_save, std::string_view module);

// Reads and resolves it. `where` begins every message. ConfigError naming the key: another kind of adapter than LoRA or DoRA, a key
// that is unknown or not supported and not null, false or empty, target_modules that name no module of `base`, or its embedding.
PeftConfig read_peft_config(const JsonValue& json, const ModelConfig& base, const std::string& where);

}  // namespace trident
