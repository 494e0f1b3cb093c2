// Dense matrix products by oneDNN and by own tiles: which entry point serves which shape, and the primitives that oneDNN needs,
// made once.
//
// Speaks oneDNN's C interface, versions 2 and 3 (onednn_api.h). One object per rank (or per worker thread): not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "device/cpu/blocked_product.h"
#include "device/cpu/cpu_features.h"
#include "device/ops.h"
#include "device/row_kernels/row_kernels.h"

namespace trident {

// Products of at most kFewRows rows whose first operand is not transposed.
enum class SmallProducts : std::uint8_t {
  kBlocked,   // like all others
  kRowByRow,  // by few_rows.h: bound by reading the second operand, and the same bits however many rows there are
};
inline constexpr std::int64_t kFewRows = 32;

class OnednnMatmul {
 public:
  // `kernels` convert to and from f32.
  OnednnMatmul(Bf16Products bf16, const RowKernels& kernels, SmallProducts small = SmallProducts::kBlocked);
  ~OnednnMatmul();
  OnednnMatmul(const OnednnMatmul&) = delete;
  OnednnMatmul& operator=(const OnednnMatmul&) = delete;

  // Makes what `shape` needs (idempotent); returns its workspace in bytes. Allocates: while planning only.
  std::int64_t prepare(const MatmulShape& shape);
  // Returns prepare()'s answer for this shape; a shape that was not prepared is an InternalError.
  std::int64_t workspace_bytes(const MatmulShape& shape) const;
  // out (+)= op(a) op(b), dense row-major host pointers; `workspace` holds what prepare() returned (null if that was 0).
  // The shape must have been prepared. Allocates nothing outside oneDNN.
  void run(const MatmulShape& shape, void* out, const void* a, const void* b, void* workspace);

  // Returns the bytes of workspace with which own tiles make a product and what is added to it, of this rank, at once; nothing
  // where they cannot, where oneDNN is faster, or where nothing is summed.
  std::optional<std::int64_t> workspace_with_summands(const MatmulShape& shape, std::int64_t rank) const;
  // Makes that product, where there is such a workspace.
  void run_with_summands(const MatmulShape& shape, void* out, const void* a, const void* b, const ProductSummands& summands,
                         void* workspace);

  // For tests and benchmarks: "few rows", "blocked", "dnnl_sgemm", "gemm_bf16bf16f32" or the name of the primitive's kernel
  // ("brg:avx512_core_bf16"). The shape must have been prepared.
  std::string entry_point(const MatmulShape& shape) const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

// Whether oneDNN has bf16 instructions on this processor (and was not told otherwise when the program started).
bool onednn_has_native_bf16();
// Likewise AMX's, which the system has to allow, too.
bool onednn_has_native_amx();

}  // namespace trident
