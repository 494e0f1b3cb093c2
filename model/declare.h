// How layers put their parameters into a unit's list: who holds which rows or columns, what is initialised how, whose gradient is
// partial over tp. One function per kind of parameter, so that no layer repeats the rules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config/model_config.h"
#include "model/config/param_names.h"
#include "model/dropout.h"
#include "tensor_parallel/column_parallel_linear.h"
#include "tensor_parallel/layer_plan.h"
#include "tensor_parallel/row_parallel_linear.h"

namespace trident {

// Over which ranks each rank's gradient is only a summand.
enum class PartialGradient : std::uint8_t {
  kUnderSequenceParallelism,  // applied to this rank's part of the sequence: over tp when the sequence is split
  kAlways,                    // applied to this rank's heads: over tp
};

// A replicated vector "<name>" [n] without weight decay.
ParamId declare_vector(ParamList& list, const std::string& name, std::int64_t n, InitKind init, PartialGradient partial);

// A vector "<name>" [n] without weight decay, split into `shards` parts; with shards < tp as RowShardedLinear.
ParamId declare_sharded_vector(ParamList& list, const std::string& name, std::int64_t n, int shards, InitKind init);

// A block's linear layers.
struct LinearKind {
  ActivationKind part;   // of the model
  DropoutPlace dropout;  // of the first adapted module, which the others' follow
  bool bias = false, transposed_on_disk = false;
};

// Rows of a weight "<name>.weight" [.., H] and of a bias "<name>.bias", split into `shards` parts; with shards < tp, tp/shards
// consecutive ranks hold the same rows and their gradients are summands.
struct RowShardedLinear {
  std::string name;
  std::vector<TensorRows> parts;
  int shards = 1;
  ParamId weight = {};  // once it is declared
};

// Linear layers that read one input, and the adapters that the model's tuning puts beside them: A, B and with DoRA m of each.
// Modules of one scale are one LinearAdapter, with dropout each is one. `name`: of the parameter that holds several modules' A.
ColumnParallelLinear declare_column_parallel(ParamList& list, const ModelConfig& config, const LinearKind& kind,
                                             const std::string& name, std::vector<RowShardedLinear> linears);
// A weight [H, columns] split by columns over tp, a whole bias [H] that is added after the sum, and the adapter beside them.
RowParallelLinear declare_row_parallel(ParamList& list, const ModelConfig& config, const LinearKind& kind, const std::string& name,
                                       std::int64_t columns);

// A vocabulary table "<name>.weight" [padded V, H] split by rows over tp, the tensor "<tensor>.weight".
ParamId declare_vocabulary(ParamList& list, const ModelConfig& config, TiedEnd end, const std::string& name, const std::string& tensor);

// A replicated table "<name>.weight" [rows, H].
ParamId declare_table(ParamList& list, const std::string& name, std::int64_t rows, std::int64_t columns, float init_std);

// Vocabulary rows with padding: the next multiple of 128 per tp rank.
std::int64_t padded_vocabulary(const ModelConfig& config, int tensor_degree);

// Key/value heads that a rank holds: its part, or one that it shares with others.
std::int64_t local_kv_heads(const ModelConfig& config, int tensor_degree);

}  // namespace trident
