// The operations of CudaOps that are row kernels from end to end.
#include <cstdint>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_ops.h"

namespace trident {

// The kernels of kernels.h on one stream, with the arguments of RowKernels.
class CudaOps::Kernels {
 public:
  Kernels(CudaOps& ops, Stream& of_ops) : ops_(ops), of_ops_(of_ops), stream_(ops.handle(of_ops)) {}

#define TRIDENT_ON_STREAM(name)                      \
  template <class... Args>                           \
  void name(const Args&... args) const {             \
    if (ops_.graphs_.note(#name, args...)) return;   \
    cuda_kernels::name(stream_, args...);            \
  }
// While work is noted, its stream waits for other users of the scratch memory: a graph has no edge to other streams.
#define TRIDENT_ON_STREAM_WITH_SCRATCH(name)                     \
  template <class... Args>                                       \
  void name(const Args&... args) const {                         \
    const cuda_kernels::Scratch scratch = ops_.scratch(of_ops_); \
    if (ops_.graphs_.note(#name, args..., scratch)) return;      \
    cuda_kernels::name(ops_.handle(of_ops_), args..., scratch);  \
  }
  TRIDENT_PLAIN_ROW_KERNELS(TRIDENT_ON_STREAM)
  TRIDENT_ON_STREAM(cross_entropy_rescale)
  TRIDENT_ON_STREAM(cross_entropy_loss)
  TRIDENT_ON_STREAM(add_exact)
  TRIDENT_SCRATCH_ROW_KERNELS(TRIDENT_ON_STREAM_WITH_SCRATCH)
#undef TRIDENT_ON_STREAM
#undef TRIDENT_ON_STREAM_WITH_SCRATCH

  // Kernels that may have been captured read numbers that are new each time from device memory.
  void cross_entropy_backward(RowType t, void* logits, const float* row_max, const float* sum_exp, const std::int32_t* targets, std::int64_t rows,
                              const VocabularyShard& shard, float scale, const float* weights) const {
    if (ops_.graphs_.note("cross_entropy_backward", t, logits, row_max, sum_exp, targets, rows, shard, PerLaunchArg{scale},
                          weights))
      return;
    if (const float* const held = ops_.graphs_.in_memory<float>())
      return cuda_kernels::cross_entropy_backward_from_memory(stream_, t, logits, row_max, sum_exp, targets, rows, shard, held,
                                                              weights);
    cuda_kernels::cross_entropy_backward(stream_, t, logits, row_max, sum_exp, targets, rows, shard, scale, weights);
  }
  void cross_entropy_gradient(RowType t, void* logits, float* sum_exp, float* target_logit, const std::int32_t* targets,
                              std::int64_t rows, const VocabularyShard& shard, float scale, const float* weights) const {
    if (ops_.graphs_.note("cross_entropy_gradient", t, logits, sum_exp, target_logit, targets, rows, shard, PerLaunchArg{scale},
                          weights))
      return;
    if (const float* const held = ops_.graphs_.in_memory<float>())
      return cuda_kernels::cross_entropy_gradient_from_memory(stream_, t, logits, sum_exp, target_logit, targets, rows, shard,
                                                              held, weights);
    cuda_kernels::cross_entropy_gradient(stream_, t, logits, sum_exp, target_logit, targets, rows, shard, scale, weights);
  }
  void dropout(RowType t, void* out, const void* x, const std::int64_t* samples, std::int64_t sequence, std::int64_t batch,
               std::int64_t width, const DropoutSpec& spec) const {
    const auto& [probability, key, whole_sequence, position_offset, all_columns, first_column] = spec;  // does not compile when a field is added
    const cuda_kernels::DropoutDraw draw{{key[0], key[1]}, samples};
    if (ops_.graphs_.note("dropout", t, out, x, sequence, batch, width, probability, whole_sequence, position_offset,
                          all_columns, first_column, PerLaunchArg{draw}))
      return;
    if (const auto* const held = ops_.graphs_.in_memory<cuda_kernels::DropoutDraw>())
      return cuda_kernels::dropout_from_memory(stream_, t, out, x, sequence, batch, width, spec, held);
    cuda_kernels::dropout(stream_, t, out, x, samples, sequence, batch, width, spec);
  }
  void update(UpdateRule rule, RowType t, void* param, float* master, const UpdateStates& states, const float* grad,
              std::int64_t count, const UpdateNumbers& numbers, const RoundedElements* at_random) const {
    const RoundedElements elements = at_random != nullptr ? *at_random : RoundedElements{};
    if (ops_.graphs_.note("update", rule, t, param, master, states, grad, count, PerLaunchArg{numbers}, at_random != nullptr,
                          elements))
      return;
    if (const auto* const held = ops_.graphs_.in_memory<UpdateNumbers>())
      return cuda_kernels::update_from_memory(stream_, rule, t, param, master, states, grad, count, held, at_random);
    cuda_kernels::update(stream_, rule, t, param, master, states, grad, count, numbers, at_random);
  }
  void convert(RowType out_type, void* out, RowType in_type, const void* x, std::int64_t count) const {
    if (ops_.graphs_.note("convert", out_type, out, in_type, x, count)) return;
    if (out_type != in_type) return cuda_kernels::convert(stream_, out_type, out, in_type, x, count);
    const std::int64_t bytes = count * (in_type == RowType::kF32 ? 4 : 2);
    if (bytes > 0)
      check_cuda(cudaMemcpyAsync(out, x, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream_), "convert: copying");
  }
  void fill_zero(void* out, std::int64_t bytes) const {
    if (ops_.graphs_.note("fill_zero", out, bytes)) return;
    if (bytes > 0) check_cuda(cudaMemsetAsync(out, 0, static_cast<std::size_t>(bytes), stream_), "fill_zero");
  }

 private:
  CudaOps& ops_;
  Stream& of_ops_;
  cudaStream_t stream_;
};

template <class Operation>
void CudaOps::execute(Stream& stream, const Operation& operation) {
  operation.launch(Kernels(*this, stream));
}

void CudaOps::run(Stream& stream, OperationRef operation) { check_and_execute(*this, stream, operation); }

}  // namespace trident
