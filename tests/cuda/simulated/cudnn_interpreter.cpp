#include "tests/cuda/simulated/cudnn_interpreter.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "core/bf16.h"
#include "core/f16.h"
#include "core/int_math.h"

namespace trident::simulated {

namespace {

using Dims = std::array<std::int64_t, 4>;

[[noreturn]] void stop(cudnnStatus_t status, std::string text) { throw CudnnFailure{status, std::move(text)}; }

bool is_16_bit(cudnnDataType_t type) { return type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF; }
std::int64_t bytes_of(cudnnDataType_t type) { return is_16_bit(type) ? 2 : type == CUDNN_DATA_BOOLEAN ? 1 : 4; }

float read_element(cudnnDataType_t type, const std::byte* at) {
  if (type == CUDNN_DATA_BFLOAT16) return to_float(*reinterpret_cast<const bf16*>(at));
  if (type == CUDNN_DATA_HALF) return to_float(*reinterpret_cast<const f16*>(at));
  if (type == CUDNN_DATA_INT32) return static_cast<float>(*reinterpret_cast<const std::int32_t*>(at));
  return *reinterpret_cast<const float*>(at);
}
void write_element(cudnnDataType_t type, std::byte* at, float x) {
  if (type == CUDNN_DATA_BFLOAT16)
    *reinterpret_cast<bf16*>(at) = to_bf16(x);
  else if (type == CUDNN_DATA_HALF)
    *reinterpret_cast<f16*>(at) = to_f16(x);
  else
    *reinterpret_cast<float*>(at) = x;
}
// As a tensor of this type would hold it.
float rounded(cudnnDataType_t type, float x) {
  return type == CUDNN_DATA_BFLOAT16 ? to_float(to_bf16(x)) : type == CUDNN_DATA_HALF ? to_float(to_f16(x)) : x;
}

// A tensor's elements while a graph runs, dense.
struct Values {
  Dims dims{};
  std::vector<float> at;

  explicit Values(const Dims& d = {}) : dims(d), at(static_cast<std::size_t>(d[0] * d[1] * d[2] * d[3])) {}
  std::size_t index(const Dims& i) const {
    return static_cast<std::size_t>(((i[0] * dims[1] + i[1]) * dims[2] + i[2]) * dims[3] + i[3]);
  }
  // A dimension of 1 is repeated; fewer heads are shared by neighbours among `heads`.
  float broadcast(const Dims& i, std::int64_t heads) const {
    const std::int64_t head = dims[1] == 1 ? 0 : i[1] / (heads / dims[1]);
    return at[index({dims[0] == 1 ? 0 : i[0], head, dims[2] == 1 ? 0 : i[2], dims[3] == 1 ? 0 : i[3]})];
  }
};

template <class F>
void for_each(const Dims& dims, F&& f) {
  for (std::int64_t b = 0; b < dims[0]; ++b)
    for (std::int64_t h = 0; h < dims[1]; ++h)
      for (std::int64_t i = 0; i < dims[2]; ++i)
        for (std::int64_t j = 0; j < dims[3]; ++j) f(Dims{b, h, i, j});
}

bool repeats(const Dims& part, const Dims& whole) {
  for (std::size_t d = 0; d < 4; ++d)
    if (part[d] != whole[d] && part[d] != 1) return false;
  return true;
}

// The last two dimensions exchanged on the same memory.
bool is_transposition(const CudnnTensorState& x, const CudnnTensorState& y) {
  return x.dims[2] == y.dims[3] && x.dims[3] == y.dims[2] && x.strides[2] == y.strides[3] && x.strides[3] == y.strides[2];
}

float pointwise(int mode, float x, float b, float t) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return std::exp(x);
    case CUDNN_POINTWISE_LOG: return std::log(x);
    case CUDNN_POINTWISE_TANH_FWD: return std::tanh(x);
    case CUDNN_POINTWISE_IDENTITY: return x;
    case CUDNN_POINTWISE_CMP_GE: return x >= b ? 1.0f : 0.0f;
    case CUDNN_POINTWISE_BINARY_SELECT: return t != 0.0f ? x : b;
    default: stop(CUDNN_STATUS_NOT_SUPPORTED, fmt::format("pointwise mode {}", mode));
  }
}

enum class Operands : std::uint8_t { kOne, kTwo, kThree };

Operands operands_of(int mode) {
  if (mode == CUDNN_POINTWISE_BINARY_SELECT) return Operands::kThree;
  const bool one = mode == CUDNN_POINTWISE_EXP || mode == CUDNN_POINTWISE_LOG || mode == CUDNN_POINTWISE_TANH_FWD ||
                   mode == CUDNN_POINTWISE_IDENTITY || mode == CUDNN_POINTWISE_GEN_INDEX;
  return one ? Operands::kOne : Operands::kTwo;
}

}  // namespace

std::int64_t CudnnTensorState::extent_bytes() const {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < 4; ++d) last += (dims[d] - 1) * strides[d];
  return (last + 1) * bytes_of(type);
}

// ---- building
// -------------------------------------------------------------------------------------------------------------------------

std::int64_t CudnnGraphState::add_tensor(const CudnnDescriptorState& d) {
  CudnnTensorState tensor;
  tensor.uid = d.value<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  tensor.type = d.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  const auto dims = d.values<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
             strides = d.values<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  std::copy_n(dims.begin(), 4, tensor.dims.begin());
  std::copy_n(strides.begin(), 4, tensor.strides.begin());
  tensor.is_virtual = d.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && d.value<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  tensor.by_value = d.has(CUDNN_ATTR_TENSOR_IS_BY_VALUE) && d.value<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  const bool known_type = tensor.type == CUDNN_DATA_FLOAT || tensor.type == CUDNN_DATA_INT32 ||
                          is_16_bit(tensor.type) || (tensor.is_virtual && tensor.type == CUDNN_DATA_BOOLEAN);
  if (!known_type)
    stop(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, fmt::format("tensor {} of type {}", tensor.uid, static_cast<int>(tensor.type)));
  const auto [known, added] = tensors_.emplace(tensor.uid, tensor);
  if (!added && !(known->second == tensor)) {
    // Another view of the same memory: what can be read through both must agree.
    stop(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, fmt::format("two tensors are called {}", tensor.uid));
  }
  return tensor.uid;
}

void CudnnGraphState::add_operation(const CudnnDescriptorState& d) {
  CudnnOperationState op{.kind = d.type};
  const auto tensor = [&](int name) { return d.has(name) ? add_tensor(*d.reference(name)) : -1; };
  switch (d.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      op.x = tensor(CUDNN_ATTR_OPERATION_MATMUL_ADESC);
      op.b = tensor(CUDNN_ATTR_OPERATION_MATMUL_BDESC);
      op.y = tensor(CUDNN_ATTR_OPERATION_MATMUL_CDESC);
      break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
      const CudnnDescriptorState& function = *d.reference(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
      op.mode = static_cast<int>(function.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE));
      if (function.has(CUDNN_ATTR_POINTWISE_AXIS)) op.axis = function.value<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS);
      op.x = tensor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
      op.b = tensor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
      op.t = tensor(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
      op.y = tensor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
      break;
    }
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      op.mode = static_cast<int>(
          d.reference(CUDNN_ATTR_OPERATION_REDUCTION_DESC)->value<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR));
      op.x = tensor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
      op.y = tensor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
      break;
    default: op.x = tensor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC); op.y = tensor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
  }
  check_extents(op);
  operations_.push_back(op);
}

void CudnnGraphState::check_extents(const CudnnOperationState& op) const {
  const auto& x = tensors_.at(op.x);
  const auto& y = tensors_.at(op.y);
  const auto dims_of = [&](std::int64_t uid) { return uid < 0 ? Dims{1, 1, 1, 1} : tensors_.at(uid).dims; };
  bool fits = true;
  if (op.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
    const Dims a = x.dims, b = dims_of(op.b), c = y.dims;
    fits = a[0] == c[0] && b[0] == c[0] && c[1] % a[1] == 0 && c[1] % b[1] == 0 && a[2] == c[2] && b[3] == c[3] && a[3] == b[2];
    if (!x.is_virtual && !tensors_.at(op.b).is_virtual && x.type != tensors_.at(op.b).type)
      stop(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "a product of two types");
  } else if (op.kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
    const Operands operands = operands_of(op.mode);
    const bool index = op.mode == CUDNN_POINTWISE_GEN_INDEX;
    fits = x.dims == y.dims && repeats(dims_of(op.b), y.dims) && repeats(dims_of(op.t), y.dims) &&
           (op.b >= 0) == (operands != Operands::kOne) && (op.t >= 0) == (operands == Operands::kThree) &&
           (op.axis >= 0) == index && op.axis < 4;
    if (index && y.type != CUDNN_DATA_INT32) stop(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "indices are i32");
  } else if (op.kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
    const bool known = op.mode == CUDNN_REDUCE_TENSOR_ADD || op.mode == CUDNN_REDUCE_TENSOR_MAX;
    if (!known) stop(CUDNN_STATUS_NOT_SUPPORTED, fmt::format("reduction {}", op.mode));
    for (std::size_t d = 0; d < 4; ++d)
      fits = fits && x.dims[d] % y.dims[d] == 0 && (d == 1 || x.dims[d] == y.dims[d] || y.dims[d] == 1);
  } else {
    const Dims swapped{x.dims[0], x.dims[1], x.dims[3], x.dims[2]};
    fits = y.dims == x.dims || (y.dims == swapped && is_transposition(x, y));
  }
  if (!fits)
    stop(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
         fmt::format("operation {} ({}) on tensors that do not fit: {} -> {}", operations_.size(), op.mode, op.x, op.y));
}

void CudnnGraphState::check_order() const {
  std::set<std::int64_t> written, read;
  for (const CudnnOperationState& op : operations_) {
    for (const std::int64_t uid : {op.x, op.b, op.t}) {
      if (uid < 0) continue;
      read.insert(uid);
      if (tensors_.at(uid).is_virtual && written.count(uid) == 0)
        stop(CUDNN_STATUS_BAD_PARAM, fmt::format("virtual tensor {} is read before it is written", uid));
    }
    if (!written.insert(op.y).second) stop(CUDNN_STATUS_BAD_PARAM, fmt::format("tensor {} is written twice", op.y));
    if (tensors_.at(op.y).by_value) stop(CUDNN_STATUS_BAD_PARAM, fmt::format("scalar {} is written", op.y));
  }
  for (const std::int64_t uid : written)
    if (tensors_.at(uid).is_virtual && read.count(uid) == 0)
      stop(CUDNN_STATUS_BAD_PARAM, fmt::format("virtual tensor {} is never read", uid));
}

CudnnGraphState::CudnnGraphState(const CudnnDescriptorState& graph) {
  for (const CudnnReference& operation : graph.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).references) add_operation(*operation);
  check_order();
}

bool CudnnGraphState::is_fusable() const {
  for (const auto& [uid, tensor] : tensors_) {
    if (tensor.is_virtual || !is_16_bit(tensor.type)) continue;
    for (std::size_t d = 2; d < 4; ++d)
      if (tensor.strides[d] == 1 && (tensor.dims[d] % 8 != 0 || tensor.dims[d] > 256)) return false;
  }
  for (const CudnnOperationState& op : operations_)
    if (op.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && !is_16_bit(tensors_.at(op.b).type) && !tensors_.at(op.b).is_virtual)
      return false;
  return true;
}

std::int64_t CudnnGraphState::workspace_bytes() const {
  std::map<std::int64_t, int> readers;
  std::int64_t bytes = 0;
  for (const CudnnOperationState& op : operations_)
    for (const std::int64_t uid : {op.x, op.b}) ++readers[uid];
  const auto keep = [&](const CudnnTensorState& t) {
    bytes += t.dims[0] * t.dims[1] * round_up(t.dims[2], 64) * round_up(t.dims[3], 64) * 2;
  };
  for (const CudnnOperationState& op : operations_) {
    if (op.kind != CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR || !is_16_bit(tensors_.at(op.y).type)) continue;
    if (tensors_.at(op.y).is_virtual) keep(tensors_.at(op.y));  // of every query head, added up later
    // A result in memory needs all that goes into it at once, if that is also needed elsewhere.
    if (!tensors_.at(op.y).is_virtual && tensors_.at(op.x).is_virtual && readers[op.x] > 1) keep(tensors_.at(op.x));
  }
  return bytes;
}

// ---- running
// ----------------------------------------------------------------------------------------------------------------------------

namespace {

class Run {
 public:
  Run(const std::map<std::int64_t, CudnnTensorState>& tensors, const std::map<std::int64_t, std::byte*>& memory, SumOrder order,
      std::uint64_t seed)
      : tensors_(tensors), memory_(memory), order_(order), random_(seed) {}

  void operation(const CudnnOperationState& op) {
    Values y(tensors_.at(op.y).dims);
    switch (op.kind) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: matmul(op, y); break;
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: pointwise_of(op, y); break;
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: reduce(op, y); break;
      default: reshape(op, y);
    }
    store(op.y, std::move(y));
  }

 private:
  // Where an element of a tensor in memory is.
  std::byte* place(const CudnnTensorState& t, const Dims& i) const {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < 4; ++d) at += i[d] * t.strides[d];
    return memory_.at(t.uid) + at * bytes_of(t.type);
  }

  const Values& load(std::int64_t uid) {
    if (const auto known = values_.find(uid); known != values_.end()) return known->second;
    const CudnnTensorState& t = tensors_.at(uid);
    Values x(t.dims);
    for_each(t.dims, [&](const Dims& i) { x.at[x.index(i)] = read_element(t.type, place(t, i)); });
    return values_.emplace(uid, std::move(x)).first->second;
  }

  void store(std::int64_t uid, Values y) {
    const CudnnTensorState& t = tensors_.at(uid);
    for (float& x : y.at) x = rounded(t.type, x);
    if (!t.is_virtual)
      for_each(t.dims, [&](const Dims& i) { write_element(t.type, place(t, i), y.at[y.index(i)]); });
    values_[uid] = std::move(y);
  }

  void matmul(const CudnnOperationState& op, Values& y) {
    const Values &a = load(op.x), &b = load(op.b);
    const std::int64_t depth = a.dims[3], heads = y.dims[1];
    std::vector<std::int64_t> order(static_cast<std::size_t>(depth));
    std::iota(order.begin(), order.end(), 0);
    for_each({y.dims[0], heads, y.dims[2], 1}, [&](const Dims& at) {
      if (order_ == SumOrder::kRandom) std::shuffle(order.begin(), order.end(), random_);
      const std::int64_t head_a = at[1] / (heads / a.dims[1]), head_b = at[1] / (heads / b.dims[1]);
      const float* left = &a.at[a.index({at[0], head_a, at[2], 0})];
      const float* right = &b.at[b.index({at[0], head_b, 0, 0})];
      for (std::int64_t j = 0; j < y.dims[3]; ++j) {
        float sum = 0.0f;
        for (const std::int64_t k : order) sum += left[k] * right[k * b.dims[3] + j];
        y.at[y.index({at[0], at[1], at[2], j})] = sum;
      }
    });
  }

  void pointwise_of(const CudnnOperationState& op, Values& y) {
    const Values none(Dims{1, 1, 1, 1});
    const Values &x = load(op.x), &b = op.b < 0 ? none : load(op.b), &t = op.t < 0 ? none : load(op.t);
    std::size_t at = 0;
    for_each(y.dims, [&](const Dims& i) {
      const float result = op.mode == CUDNN_POINTWISE_GEN_INDEX
                               ? static_cast<float>(i[static_cast<std::size_t>(op.axis)])
                               : pointwise(op.mode, x.at[at], b.broadcast(i, y.dims[1]), t.broadcast(i, y.dims[1]));
      y.at[at++] = result;
    });
  }

  void reduce(const CudnnOperationState& op, Values& y) {
    const Values& x = load(op.x);
    const bool largest = op.mode == CUDNN_REDUCE_TENSOR_MAX;
    std::fill(y.at.begin(), y.at.end(), largest ? -std::numeric_limits<float>::infinity() : 0.0f);
    for_each(x.dims, [&](const Dims& i) {
      Dims to{};
      for (std::size_t d = 0; d < 4; ++d) to[d] = i[d] / (x.dims[d] / y.dims[d]);
      float& sum = y.at[y.index(to)];
      const float value = x.at[x.index(i)];
      sum = largest ? std::max(sum, value) : sum + value;
    });
  }

  void reshape(const CudnnOperationState& op, Values& y) {
    const Values& x = load(op.x);
    const CudnnTensorState &from = tensors_.at(op.x), &to = tensors_.at(op.y);
    const bool swapped = is_transposition(from, to);
    for_each(y.dims, [&](const Dims& i) { y.at[y.index(i)] = x.at[x.index(swapped ? Dims{i[0], i[1], i[3], i[2]} : i)]; });
  }

  const std::map<std::int64_t, CudnnTensorState>& tensors_;
  const std::map<std::int64_t, std::byte*>& memory_;
  std::map<std::int64_t, Values> values_;
  SumOrder order_;
  std::mt19937_64 random_;
};

}  // namespace

void CudnnGraphState::run(const std::map<std::int64_t, std::byte*>& memory, SumOrder order, std::uint64_t seed) const {
  Run run(tensors_, memory, order, seed);
  for (const CudnnOperationState& op : operations_) run.operation(op);
}

}  // namespace trident::simulated
