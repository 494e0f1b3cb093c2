// How layers put their parameters into a unit's list: who holds which rows or columns, what is initialised how, whose gradient is
// partial over tp. One function per kind of parameter, so that no layer repeats the rules.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/config/model_config.h"
#include "model/config/param_names.h"
#include "model/dropout.h"
#include "tensor_parallel/layer_plan.h"
#include "tensor_parallel/linear_adapter.h"

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

// Weight "<name>.weight" and bias "<name>.bias" (when `bias`) of a linear layer whose output rows are split into `shards` parts;
// with shards < tp, tp/shards consecutive ranks hold the same rows and their gradients are summands.
struct RowShardedLinear {
  std::string name;
  std::vector<TensorRows> parts;
  std::int64_t input_columns = 0;
  int shards = 1;
  bool bias = false, transposed_on_disk = false;
  float init_std = 0.0f;
  ParamId weight = {};  // once it is declared, for adapters
};
struct LinearIds {
  ParamId weight, bias;
};
LinearIds declare_row_sharded(ParamList& list, const RowShardedLinear& linear);

// Weight [out, in] split by columns over tp and a whole bias [out] that is added after the sum.
struct ColumnShardedLinear {
  std::string name;
  std::int64_t output_rows = 0, input_columns = 0;
  bool bias = false, transposed_on_disk = false;
  float init_std = 0.0f;
  ParamId weight = {};  // once it is declared, for adapters
};
LinearIds declare_column_sharded(ParamList& list, const ColumnShardedLinear& linear);

// The adapters that a model's tuning puts beside linear layers that read one input: A, B and with DoRA m of each. The columns of
// product i are those of linears[i]. Modules of one scale are one LinearAdapter, with dropout each is one; none where no module has
// one. `name`: of the parameter that holds several modules' A. `kind`: the part of the model that they are in. `place`: of the
// first module's dropout, which the others' follow.
std::vector<LinearAdapter> declare_adapters(ParamList& list, const ModelConfig& config, const std::string& name,
                                            std::span<const RowShardedLinear> linears, ActivationKind kind,
                                            DropoutPlace place);
std::vector<LinearAdapter> declare_adapters(ParamList& list, const ModelConfig& config, const ColumnShardedLinear& linear,
                                            ActivationKind kind, DropoutPlace place);

// A vocabulary table "<name>.weight" [padded V, H] split by rows over tp, the tensor "<tensor>.weight".
ParamId declare_vocabulary(ParamList& list, const ModelConfig& config, TiedEnd end, const std::string& name, const std::string& tensor);

// A replicated table "<name>.weight" [rows, H].
ParamId declare_table(ParamList& list, const std::string& name, std::int64_t rows, std::int64_t columns, float init_std);

// Vocabulary rows with padding: the next multiple of 128 per tp rank.
std::int64_t padded_vocabulary(const ModelConfig& config, int tensor_degree);

// Key/value heads that a rank holds: its part, or one that it shares with others.
std::int64_t local_kv_heads(const ModelConfig& config, int tensor_degree);

}  // namespace trident
