#include "plan/gpu_prices.h"

#include <algorithm>
#include <variant>

#include "core/check.h"
#include "device/operations_layers.h"
#include "plan/kernel_cost.h"

namespace trident {
namespace {

// Host time to enqueue a kernel on a stream: 2.5 us for a bare launch (NVIDIA, "CUDA Graphs" blog, 2019: 2.2 us of pure launch
// overhead per kernel), twice that with the lookup of a prepared product or graph and the stream's bookkeeping.
constexpr double kIssueSeconds = 5e-6;

// FP32 products without tensor cores: 19.5 of 312 TFLOP/s on A100, 67 of 989 on H100 (data sheets).
constexpr double kFp32Rate = 1.0 / 16;

double product_seconds(const GpuRates& gpu, const MatmulShape& shape) {
  const bool weight_gradient = shape.transpose_a == Transpose::kYes;
  const double rate = (shape.in == DType::kF32 ? kFp32Rate : 1.0) / (weight_gradient ? gpu.gemm.wgrad_factor : 1.0);
  return gemm_seconds(gpu, static_cast<double>(shape.m), static_cast<double>(shape.n), static_cast<double>(shape.k), 1, rate);
}

// FLOPs of the two forward products over the full square.
double square_flops(const AttentionShape& shape) {
  return 4.0 * static_cast<double>(shape.batch * shape.query_heads) * static_cast<double>(shape.query_length) *
         static_cast<double>(shape.key_length) * static_cast<double>(shape.head_dim);
}

}  // namespace

GpuPrices::GpuPrices(const GpuRates& gpu, const ClusterLinks& links) : gpu_(gpu), links_(links) {
  const auto slower = [](const AttentionRates& a, const AttentionRates& b) { return a.forward < b.forward; };
  const auto best = std::max_element(gpu_.attention.begin(), gpu_.attention.end(), slower);
  if (best == gpu_.attention.end())
    throw ConfigError(fmt::format("hardware {}: no rates of fused attention, which a training step is priced with", gpu_.name));
  attention_ = best->kernel;
}

double GpuPrices::device_seconds(const RecordedOperation& operation) const {
  if (const auto* const shape = std::get_if<MatmulShape>(&operation.shape)) return product_seconds(gpu_, *shape);
  if (const auto* const shape = std::get_if<AttentionShape>(&operation.shape)) {
    return fused_attention_seconds(gpu_, attention_, square_flops(*shape), operation.name == op::AttentionBackward::kName.name);
  }
  return row_seconds(gpu_, operation.bytes);
}

double GpuPrices::issue_seconds(const RecordedOperation&) const { return kIssueSeconds; }

double GpuPrices::seconds(const RecordedCollective& call, const GroupPlace& group) const {
  const auto bytes = static_cast<double>(call.operand_bytes);
  switch (call.operation) {
    case CommOperation::kAllReduce: return all_reduce_seconds(links_, group, bytes);
    case CommOperation::kSend: return message_seconds(links_, group, bytes);
    case CommOperation::kRecv: return 0;
    case CommOperation::kBarrier: return all_reduce_seconds(links_, group, 1);
    case CommOperation::kReduceScatter:
    case CommOperation::kAllGather:
    case CommOperation::kBroadcast:
    case CommOperation::kAllToAll: return gather_seconds(links_, group, bytes);
  }
  return 0;
}

}  // namespace trident
