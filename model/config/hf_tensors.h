// The tensors of a model's Hugging Face folder: names, shapes, orientation, order. Pure: nothing is opened here.
//
// A logical tensor (PartSpec::tensor: what checkpoints store) is a tensor of the folder, with the same name, rows and
// orientation, in every family. Where a family fuses projections on disk (GPT-2's c_attn: q, k, v; Phi-3's qkv_proj, and
// gate_up_proj: gate, up), the logical tensor is the fused one and the projections are row ranges of it (param_names.h), so no
// tensor is ever cut or joined between a checkpoint and a folder. What tensor ranks hold of it are boxes of it all the same
// (checkpoint/shard_boxes.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/model_config.h"

namespace trident {

struct HfTensor {
  std::string name;                 // "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;  // in the file
  bool transposed = false;          // the file has [in, out] where y = x W^T would have [out, in]: GPT-2's linear layers
  bool operator==(const HfTensor&) const = default;
};

// All of them in the order of transformers' state_dict(), by which its writer fills shards. A tied head is not among them.
std::vector<HfTensor> hf_tensors(const ModelConfig& config);
// Names the tensors that have a row for each token: the embedding's, and the head's where that is another.
std::vector<std::string> tensors_by_token(const ModelConfig& config);

// The meaning of a name found in a file.
enum class HfNameKind : std::uint8_t {
  kTensor,    // `tensor` is a name of hf_tensors()
  kTiedHead,  // lm_head.weight of a tied model: the embedding's copy, not needed; `tensor` is the embedding's name
  kBuffer,    // a mask or frequencies that older versions saved: to be left alone
  kUnknown
};
struct HfName {
  HfNameKind kind = HfNameKind::kUnknown;
  std::string tensor;
};

// Reads names. Files of the model without its head ("gpt2" on the hub) leave the prefix "transformer." or "model." out.
class HfNames {
 public:
  explicit HfNames(const ModelConfig& config);
  HfName operator()(std::string_view name_in_file) const;

 private:
  std::vector<std::string> tensors_;  // sorted
  std::string prefix_, tied_head_, embedding_;
};

}  // namespace trident
