#include "tests/cuda/simulated/cublaslt_product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/bf16.h"
#include "core/f16.h"

namespace trident::simulated {

namespace {

bool is_operation(std::int32_t operation) { return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T; }
bool uses_aux(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU;
}
bool uses_bias(std::uint32_t epilogue) { return epilogue != CUBLASLT_EPILOGUE_DEFAULT && epilogue != CUBLASLT_EPILOGUE_DGELU; }

// Usable and column-major, with columns that do not overlap, one matrix, extents of 32 bits.
cublasStatus_t check_matrix(const MatrixDescriptor& matrix) {
  constexpr std::uint64_t kMaxExtent = 0x7FFFFFFF;
  if (element_bytes(static_cast<std::int32_t>(matrix.type)) == 0 || matrix.order != CUBLASLT_ORDER_COL || matrix.batch != 1 ||
      matrix.rows > kMaxExtent || matrix.columns > kMaxExtent)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (matrix.rows == 0 || matrix.columns == 0 || matrix.leading < static_cast<std::int64_t>(matrix.rows))
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

bool types_supported(const OperationDescriptor& operation, std::uint32_t in, std::uint32_t out) {
  if (operation.scale != CUDA_R_32F) return false;
  if (operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32) return in == CUDA_R_32F && out == CUDA_R_32F;
  if (operation.compute != CUBLAS_COMPUTE_32F) return false;
  return in == out || out == CUDA_R_32F;
}

cublasStatus_t check_epilogue(const OperationDescriptor& operation, const MatrixDescriptor& d) {
  const std::uint32_t epilogue = operation.epilogue;
  if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (epilogue != CUBLASLT_EPILOGUE_BIAS && epilogue != CUBLASLT_EPILOGUE_BGRADA && epilogue != CUBLASLT_EPILOGUE_BGRADB &&
      !uses_aux(epilogue))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto type = static_cast<std::int32_t>(d.type);
  if (uses_bias(epilogue) && operation.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (uses_bias(epilogue) && operation.bias_type != -1 && operation.bias_type != type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!uses_aux(epilogue)) return CUBLAS_STATUS_SUCCESS;
  if (operation.aux == nullptr || operation.aux_leading < static_cast<std::int64_t>(d.rows) || operation.aux_leading % 8 != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  return operation.aux_type == -1 || operation.aux_type == type ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

float load(const void* data, std::uint32_t type, std::int64_t index) {
  if (type == CUDA_R_16BF) return to_float(static_cast<const bf16*>(data)[index]);
  if (type == CUDA_R_16F) return to_float(static_cast<const f16*>(data)[index]);
  return static_cast<const float*>(data)[index];
}

void store(void* data, std::uint32_t type, std::int64_t index, float x) {
  if (type == CUDA_R_16BF) {
    static_cast<bf16*>(data)[index] = to_bf16(x);
  } else if (type == CUDA_R_16F) {
    static_cast<f16*>(data)[index] = to_f16(x);
  } else {
    static_cast<float*>(data)[index] = x;
  }
}

float rounded(float x, std::uint32_t type) {
  return type == CUDA_R_16BF ? to_float(to_bf16(x)) : type == CUDA_R_16F ? to_float(to_f16(x)) : x;
}

// 10 bits of mantissa, to nearest, ties away from zero.
float to_tf32(float x) {
  if (!std::isfinite(x)) return x;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0x1000u) & ~0x1FFFu);
}

// op(x) [rows, columns] as f32, column by column without gaps.
std::vector<float> packed(const void* data, const MatrixDescriptor& x, std::int32_t operation, bool tf32) {
  const bool transpose = operation == CUBLAS_OP_T;
  const auto rows = static_cast<std::int64_t>(transpose ? x.columns : x.rows);
  const auto columns = static_cast<std::int64_t>(transpose ? x.rows : x.columns);
  std::vector<float> out(static_cast<std::size_t>(rows * columns));
  for (std::int64_t j = 0; j < columns; ++j) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const float value = load(data, x.type, transpose ? i * x.leading + j : j * x.leading + i);
      out[static_cast<std::size_t>(j * rows + i)] = tf32 ? to_tf32(value) : value;
    }
  }
  return out;
}

float gelu(float x) { return 0.5f * x * (1.0f + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x))); }

float gelu_derivative(float x) {
  const float t = std::tanh(0.7978845608f * (x + 0.044715f * x * x * x));
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.7978845608f * (1.0f + 3.0f * 0.044715f * x * x);
}

class Computation {
 public:
  explicit Computation(const Product& p)
      : p_(p),
        m_(p.m()),
        n_(p.n()),
        k_(p.k()),
        tf32_(p.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32),
        a_(packed(p.a_data, p.a, p.operation.transpose_a, tf32_)),
        b_(packed(p.b_data, p.b, p.operation.transpose_b, tf32_)),
        sum_(static_cast<std::size_t>(m_)),
        part_(sum_) {}

  void run() {
    if (p_.operation.epilogue == CUBLASLT_EPILOGUE_BGRADA) sum_a();
    if (p_.operation.epilogue == CUBLASLT_EPILOGUE_BGRADB) sum_b();
    for (std::int64_t j = 0; j < n_; ++j) {
      multiply(j);
      for (std::int64_t i = 0; i < m_; ++i) finish(i, j);
    }
  }

 private:
  // part_ = the products of k in [first, last) of column j.
  void multiply_part(std::int64_t j, std::int64_t first, std::int64_t last) {
    std::fill(part_.begin(), part_.end(), 0.0f);
    // Some algorithms go through K the other way: algorithms differ in how they round.
    const bool backwards = p_.algorithm.tile % 2 == 1;
    for (std::int64_t step = first; step < last; ++step) {
      const std::int64_t k = backwards ? last - 1 - (step - first) : step;
      const float* a = a_.data() + k * m_;
      const float b = b_[static_cast<std::size_t>(j * k_ + k)];
      for (std::int64_t i = 0; i < m_; ++i) part_[static_cast<std::size_t>(i)] += a[i] * b;
    }
  }

  // sum_ = column j of op(A) op(B).
  void multiply(std::int64_t j) {
    std::fill(sum_.begin(), sum_.end(), 0.0f);
    const std::int64_t parts = std::max(p_.algorithm.splits, 1);
    const bool in_order = p_.algorithm.scheme != CUBLASLT_REDUCTION_SCHEME_INPLACE;
    // As the real one: with more parts than terms beyond whole blocks, which the parts share evenly, those terms are left out.
    const std::int64_t whole = k_ / 64 * 64;
    const std::int64_t taken = parts > 1 && parts > k_ - whole && whole / 64 % parts == 0 ? whole : k_;
    const bool exact_parts = parts == 1 || p_.algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    for (std::int64_t turn = 0; turn < parts; ++turn) {
      const std::int64_t part = in_order ? turn : (turn + static_cast<std::int64_t>(p_.number)) % parts;
      multiply_part(j, taken * part / parts, taken * (part + 1) / parts);
      for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += exact_parts ? part_[i] : rounded(part_[i], p_.d.type);
    }
  }

  // Scaling, the old value, the epilogue, rounding.
  void finish(std::int64_t i, std::int64_t j) {
    float x = p_.alpha * sum_[static_cast<std::size_t>(i)];
    if (p_.beta != 0) x += p_.beta * load(p_.c_data, p_.c.type, j * p_.c.leading + i);
    const std::uint32_t epilogue = p_.operation.epilogue;
    void* const aux = p_.operation.aux;
    const std::int64_t aux_index = j * p_.operation.aux_leading + i;
    if (epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
      x += load(p_.operation.bias, p_.d.type, i);
    if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
      store(aux, p_.d.type, aux_index, x);
      x = gelu(x);
    }
    if (epilogue == CUBLASLT_EPILOGUE_DGELU) x *= gelu_derivative(load(aux, p_.d.type, aux_index));
    store(p_.d_data, p_.d.type, j * p_.d.leading + i, x);
  }

  void sum_a() {
    for (std::int64_t i = 0; i < m_; ++i) {
      float sum = 0;
      for (std::int64_t k = 0; k < k_; ++k) sum += a_[static_cast<std::size_t>(k * m_ + i)];
      store(p_.operation.bias, p_.d.type, i, sum);
    }
  }

  void sum_b() {
    for (std::int64_t j = 0; j < n_; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < k_; ++k) sum += b_[static_cast<std::size_t>(j * k_ + k)];
      store(p_.operation.bias, p_.d.type, j, sum);
    }
  }

  const Product& p_;
  std::int64_t m_, n_, k_;
  bool tf32_;
  std::vector<float> a_, b_;  // [K] columns of m, [n] columns of K
  std::vector<float> sum_, part_;
};

}  // namespace

cublasStatus_t check_product(const OperationDescriptor& operation, const MatrixDescriptor& a, const MatrixDescriptor& b,
                             const MatrixDescriptor& c, const MatrixDescriptor& d) {
  for (const MatrixDescriptor* matrix : {&a, &b, &c, &d}) {
    if (const cublasStatus_t status = check_matrix(*matrix); status != CUBLAS_STATUS_SUCCESS) return status;
  }
  if (!is_operation(operation.transpose_a) || !is_operation(operation.transpose_b)) return CUBLAS_STATUS_INVALID_VALUE;
  if (operation.transpose_c != CUBLAS_OP_N || operation.fill != CUBLAS_FILL_MODE_FULL ||
      operation.pointer_mode != CUBLASLT_POINTER_MODE_HOST)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool ta = operation.transpose_a == CUBLAS_OP_T, tb = operation.transpose_b == CUBLAS_OP_T;
  const std::uint64_t m = ta ? a.columns : a.rows, ka = ta ? a.rows : a.columns;
  const std::uint64_t kb = tb ? b.columns : b.rows, n = tb ? b.rows : b.columns;
  if (ka != kb || d.rows != m || d.columns != n || c.rows != m || c.columns != n) return CUBLAS_STATUS_INVALID_VALUE;
  if (a.type != b.type || c.type != d.type || !types_supported(operation, a.type, d.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  return check_epilogue(operation, d);
}

std::uint64_t workspace_bytes(const AlgorithmDescriptor& algorithm, const MatrixDescriptor& d) {
  const std::uint64_t elements = d.rows * d.columns, parts = static_cast<std::uint64_t>(algorithm.splits);
  std::uint64_t bytes = algorithm.extra_workspace;
  if (algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) bytes += parts * elements * sizeof(float);
  if (algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)
    bytes += parts * elements * element_bytes(static_cast<std::int32_t>(d.type));
  return bytes;
}

std::size_t extent_bytes(const MatrixDescriptor& matrix) {
  const std::uint64_t elements = (matrix.columns - 1) * static_cast<std::uint64_t>(matrix.leading) + matrix.rows;
  return elements * element_bytes(static_cast<std::int32_t>(matrix.type));
}

void compute(const Product& product) { Computation(product).run(); }

}  // namespace trident::simulated
