#include "planner/price/gpu_prices.h"

#include <algorithm>
#include <variant>

#include "core/check.h"
#include "device/operations_layers.h"
#include "planner/price/kernel_cost.h"

namespace trident {
namespace {

// Host time to enqueue a kernel on a stream: 2.5 us for a bare launch (NVIDIA, "CUDA Graphs" blog, 2019: 2.2 us of pure launch
// overhead per kernel), twice that with the lookup of a prepared product or graph and the stream's bookkeeping.
constexpr double kIssueSeconds = 5e-6;

// A GPU without tf32 units multiplies in fp32.
MathFormat format_of(const GpuRates& gpu, DType operands, bool tf32) {
  if (operands != DType::kF32) return MathFormat::k16Bit;
  return tf32 && peak_flops(gpu, MathFormat::kTf32) > 0 ? MathFormat::kTf32 : MathFormat::kFp32;
}

double product_seconds(const GpuRates& gpu, const MatmulShape& shape, bool tf32) {
  const bool weight_gradient = shape.transpose_a == Transpose::kYes;
  return gemm_seconds(gpu, static_cast<double>(shape.m), static_cast<double>(shape.n), static_cast<double>(shape.k), 1,
                      weight_gradient ? 1 / gpu.gemm.wgrad_factor : 1.0, format_of(gpu, shape.in, tf32));
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
  if (const auto* const shape = std::get_if<MatmulShape>(&operation.shape)) return product_seconds(gpu_, *shape, operation.tf32);
  if (const auto* const shape = std::get_if<AttentionShape>(&operation.shape)) {
    // In fp32 by kernels of our own, which do without tensor cores.
    const double slower = shape->dtype == DType::kF32 ? gpu_.peak_16bit / peak_flops(gpu_, MathFormat::kFp32) : 1;
    return fused_attention_seconds(gpu_, attention_, slower * interval_share(*shape) * square_flops(*shape),
                                   operation.name == op::AttentionBackward::kName.name);
  }
  return row_seconds(gpu_, operation.bytes);
}

// A graph is one launch, whatever it holds.
double GpuPrices::issue_seconds(const RecordedOperation& operation) const { return operation.in_graph ? 0 : kIssueSeconds; }

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
