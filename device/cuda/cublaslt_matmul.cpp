#include "device/cuda/cublaslt_matmul.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "core/check.h"
#include "core/int_math.h"
#include "device/cuda/cublaslt_choices.h"
#include "device/cuda/cublaslt_handle.h"
#include "device/cuda/cublaslt_plan.h"
#include "device/cuda/cuda_error.h"
#include "device/no_allocation.h"
#include "device/operations.h"

namespace trident {

namespace {

// Proposals to look through for one within the limits, where nothing is timed.
constexpr int kProposals = 8;
constexpr std::int64_t kWorkspaceAlignment = 256;  // the library's condition

struct Product {
  MatmulShape shape;
  Epilogue epilogue = Epilogue::kNone;
  bool operator==(const Product&) const = default;
};

struct HashProduct {
  std::size_t operator()(const Product& p) const {
    const MatmulShape& s = p.shape;
    const auto flags = static_cast<std::int64_t>(s.transpose_a) | static_cast<std::int64_t>(s.transpose_b) << 1 |
                       static_cast<std::int64_t>(s.accumulate) << 2 | static_cast<std::int64_t>(s.in) << 3 |
                       static_cast<std::int64_t>(s.out) << 7 | static_cast<std::int64_t>(p.epilogue) << 11;
    std::uint64_t h = 0;
    for (const std::int64_t x : {s.m, s.n, s.k, flags}) h = (h ^ static_cast<std::uint64_t>(x)) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return h;
  }
};

// A product's plans by PointerAlignment; one that the library has no algorithm for is null.
struct Prepared {
  std::array<std::unique_ptr<CublasLtPlan>, 2> plans;
  std::int64_t workspace_bytes = 0;
  bool has_run = false;  // by run_announced()
  CublasLtPlan* plan(PointerAlignment alignment) const { return plans[static_cast<std::size_t>(alignment)].get(); }
};

// `view` holds `count` elements of `dtype` in device memory.
void expect_operand(std::string_view operand, ConstTensorView view, DType dtype, std::int64_t count) {
  TRIDENT_CHECK(view.dtype() == dtype && view.num_elements() == count, "matmul: {} is {} {}, expected {} elements of {}", operand,
                to_string(view.dtype()), to_string(view.shape()), count, to_string(dtype));
  TRIDENT_CHECK(view.empty() || view.where() == MemoryKind::kDevice, "matmul: {} lies in host memory", operand);
}

// The product that these operands ask for.
MatmulShape shape_of(const MatmulOperands& p) {
  const MatmulShape shape = op::Matmul{p}.shape();
  expect_operand("a", p.a, p.a.dtype(), shape.m * shape.k);
  expect_operand("b", p.b, p.a.dtype(), shape.k * shape.n);
  expect_operand("out", p.out, p.out.dtype(), shape.m * shape.n);
  return shape;
}

MatmulPointers pointers_of(const FusedMatmul& f) {
  const MatmulOperands& p = f.product;
  MatmulPointers pointers{.out = p.out.data(), .a = p.a.data(), .b = p.b.data(), .workspace = p.workspace.data()};
  switch (f.epilogue) {
    case Epilogue::kNone: break;
    case Epilogue::kSummands: throw InternalError("cuBLASLt's epilogues add no matrix");
    case Epilogue::kBias: pointers.bias = f.bias.data(); break;
    case Epilogue::kBiasGelu:
      pointers.out = f.result.data(), pointers.bias = f.bias.data(), pointers.aux = p.out.data();
      break;
    case Epilogue::kGeluBackward: pointers.out = f.result.data(), pointers.aux = f.pre.data(); break;
    case Epilogue::kBiasGradient: pointers.bias = f.result.data(); break;
  }
  return pointers;
}

void expect_epilogue_operands(const FusedMatmul& f, const MatmulShape& s) {
  const DType dtype = f.product.out.dtype();
  switch (f.epilogue) {
    case Epilogue::kNone: break;
    case Epilogue::kSummands: throw InternalError("cuBLASLt's epilogues add no matrix");
    case Epilogue::kBias: expect_operand("bias", f.bias, dtype, s.n); break;
    case Epilogue::kBiasGelu:
      expect_operand("bias", f.bias, dtype, s.n);
      expect_operand("the activation", f.result, dtype, s.m * s.n);
      break;
    case Epilogue::kGeluBackward:
      expect_operand("pre", f.pre, dtype, s.m * s.n);
      expect_operand("the gradient of pre", f.result, dtype, s.m * s.n);
      break;
    case Epilogue::kBiasGradient: expect_operand("the bias gradient", f.result, dtype, s.m); break;
  }
}

// Operands of a product one behind the other from `at` on, which may be null; and how many bytes they take.
struct FirstRun {
  FirstRun(const Product& product, std::int64_t workspace_bytes, std::byte* at) {
    const MatmulShape& s = product.shape;
    const auto take = [&](std::int64_t size) {
      std::byte* const taken = at == nullptr ? nullptr : at + bytes;
      bytes += round_up(size, kWorkspaceAlignment);
      return taken;
    };
    pointers.a = take(s.m * s.k * size_of(s.in));
    pointers.b = take(s.k * s.n * size_of(s.in));
    pointers.out = take(s.m * s.n * size_of(s.out));
    pointers.workspace = take(workspace_bytes);
    if (product.epilogue == Epilogue::kNone) return;
    pointers.bias = take(std::max(s.m, s.n) * size_of(s.out));
    pointers.aux = take(s.m * s.n * size_of(s.out));
  }
  MatmulPointers pointers;
  std::int64_t bytes = 0;
};

PointerAlignment alignment_of(const MatmulPointers& p) { return pointer_alignment({p.out, p.a, p.b, p.bias, p.aux}); }

}  // namespace

class CublasLtMatmul::Implementation {
 public:
  Implementation(const CublasLtHandle& handle, const CublasLtOptions& options) : handle_(handle), options_(options) {
    if (options_.autotune) choices_.emplace(options_.autotune->file, options_.autotune->device_name, handle_.library_version());
  }

  // Without plans if the product is empty or the library does not do the epilogue.
  const Prepared& prepare(const Product& product) {
    const auto found = prepared_.find(product);
    if (found != prepared_.end()) return found->second;
    const MatmulShape& shape = product.shape;
    check_matmul_shape(shape, product.epilogue);
    Prepared p;
    if (!is_empty(shape) && allows(shape, product.epilogue)) {
      use_cuda_device(handle_.device());
      for (const PointerAlignment alignment : {PointerAlignment::kVector, PointerAlignment::kElement}) {
        // Kernels may load a bias 16 bytes at a time whatever the heuristic was told of it (pytorch/pytorch, pull request 194497).
        if (alignment == PointerAlignment::kElement && product.epilogue != Epilogue::kNone) continue;
        std::unique_ptr<CublasLtPlan>& plan = p.plans[static_cast<std::size_t>(alignment)];
        plan = make_plan(product, alignment);
        if (plan) p.workspace_bytes = std::max(p.workspace_bytes, plan->workspace_bytes());
      }
      if (product.epilogue == Epilogue::kNone && p.plan(PointerAlignment::kVector) == nullptr)
        throw ConfigError(
            fmt::format("cuBLASLt on device {}: it has no algorithm for {} with at most {} bytes of workspace; this GPU or "
                        "version of the library cannot compute this product; try another precision.compute",
                        handle_.device(), describe(shape), options_.workspace_limit));
    }
    return prepared_.emplace(product, std::move(p)).first->second;
  }

  // Null if it was not prepared, or the library has none.
  CublasLtPlan* find_plan(const Product& product, PointerAlignment alignment) const {
    const auto found = prepared_.find(product);
    return found == prepared_.end() ? nullptr : found->second.plan(alignment);
  }

  void run(cudaStream_t stream, const Product& product, const MatmulPointers& pointers, std::int64_t workspace_bytes) {
    const auto found = prepared_.find(product);
    TRIDENT_CHECK(found != prepared_.end(), "{} was not prepared", describe(product.shape, product.epilogue));
    const Prepared& p = found->second;
    TRIDENT_CHECK(workspace_bytes >= p.workspace_bytes, "matmul: a workspace of {} bytes, {} needed", workspace_bytes,
                  p.workspace_bytes);
    use_cuda_device(handle_.device());
    if (is_empty(product.shape)) return run_empty(stream, product.shape, pointers.out);
    TRIDENT_CHECK(p.workspace_bytes == 0 || reinterpret_cast<std::uintptr_t>(pointers.workspace) % kWorkspaceAlignment == 0,
                  "matmul: the workspace must lie at a multiple of {} bytes", kWorkspaceAlignment);
    CublasLtPlan* const plan = p.plan(alignment_of(pointers));
    if (plan == nullptr) {
      const AllocationExemption message;
      throw InternalError(fmt::format("{}: cuBLASLt has no algorithm for operands that are not at multiples of {} bytes",
                                      describe(product.shape, product.epilogue), kVectorAlignment));
    }
    plan->run(pointers, stream);
  }

  std::int64_t first_run_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& [product, p] : prepared_)
      if (!p.has_run && !is_empty(product.shape)) bytes = std::max(bytes, FirstRun(product, p.workspace_bytes, nullptr).bytes);
    return bytes;
  }

  void run_announced(cudaStream_t stream, std::byte* operands) {
    use_cuda_device(handle_.device());
    for (auto& [product, p] : prepared_) {
      if (std::exchange(p.has_run, true)) continue;
      const FirstRun first(product, p.workspace_bytes, operands);
      for (std::unique_ptr<CublasLtPlan>& plan : p.plans) {
        if (plan == nullptr) continue;
        const bool needed = product.epilogue == Epilogue::kNone && &plan == p.plans.data();  // of aligned operands
        try {
          plan->run(first.pointers, stream);
        } catch (const ConfigError&) {
          if (needed) throw;
          plan.reset();
        }
      }
    }
  }

 private:
  // Null if the library has none.
  std::unique_ptr<CublasLtPlan> make_plan(const Product& product, PointerAlignment alignment) {
    const MatmulShape& shape = product.shape;
    MatmulLayout layout = matmul_layout(shape, product.epilogue, options_.f32_products);
    layout.multiprocessors = options_.multiprocessors;
    auto plan = std::make_unique<CublasLtPlan>(handle_, layout, describe(shape, product.epilogue));
    const AlgorithmLimits limits{matmul_alignments(shape, alignment), allowed_reductions(shape, options_.determinism),
                                 options_.workspace_limit};
    // Unaligned operands are rare, and not worth the time.
    const bool timed = choices_ && alignment == PointerAlignment::kVector;
    std::string key =
        plan_key(shape, product.epilogue, alignment, options_.f32_products, options_.determinism, options_.workspace_limit);
    if (options_.multiprocessors > 0) key += fmt::format(" {} multiprocessors", options_.multiprocessors);
    if (timed) {
      std::optional<Algorithm> remembered = choices_->find(key);
      if (remembered && plan->accepts(*remembered, limits)) {
        plan->choose(*remembered);
        return plan;
      }
    }
    const std::vector<Algorithm> proposals = plan->ask(limits, timed ? options_.autotune->candidates : kProposals);
    if (proposals.empty()) return nullptr;
    plan->choose(proposals.front());
    if (timed) choose_fastest(*plan, product, proposals, key);
    return plan;
  }

  void choose_fastest(CublasLtPlan& plan, const Product& product, const std::vector<Algorithm>& proposals, const std::string& key) {
    std::int64_t workspace = 0;
    for (const Algorithm& proposal : proposals) workspace = std::max(workspace, proposal.workspace_bytes);
    MatmulTimer timer(handle_.device(), plan, product.shape, product.epilogue, workspace);
    const std::optional<FastestProposal> best =
        fastest(proposals.size(), [&](std::size_t i) { return timer.seconds(proposals[i], options_.autotune->repetitions); });
    if (!best) return;
    plan.choose(proposals[best->index]);
    choices_->add(key, proposals[best->index], best->seconds);
  }

  void run_empty(cudaStream_t stream, const MatmulShape& s, void* out) {
    if (s.accumulate == Accumulate::kYes || s.m == 0 || s.n == 0) return;
    check_cuda(cudaMemsetAsync(out, 0, static_cast<std::size_t>(s.m * s.n * size_of(s.out)), stream), "zeroing an empty product");
  }

  const CublasLtHandle& handle_;
  CublasLtOptions options_;
  std::optional<AlgorithmChoices> choices_;
  std::unordered_map<Product, Prepared, HashProduct> prepared_;
};

CublasLtMatmul::CublasLtMatmul(const CublasLtHandle& handle, const CublasLtOptions& options)
    : implementation_(std::make_unique<Implementation>(handle, options)) {}
CublasLtMatmul::~CublasLtMatmul() = default;

std::int64_t CublasLtMatmul::prepare(const MatmulShape& shape) {
  return implementation_->prepare({shape, Epilogue::kNone}).workspace_bytes;
}

void CublasLtMatmul::run(cudaStream_t stream, const MatmulOperands& p) {
  implementation_->run(stream, {shape_of(p), Epilogue::kNone},
                       {.out = p.out.data(), .a = p.a.data(), .b = p.b.data(), .workspace = p.workspace.data()},
                       p.workspace.num_bytes());
}

std::optional<std::int64_t> CublasLtMatmul::prepare_fused(const MatmulShape& shape, Epilogue epilogue) {
  const Prepared& prepared = implementation_->prepare({shape, epilogue});
  if (prepared.plan(PointerAlignment::kVector) == nullptr) return std::nullopt;
  return prepared.workspace_bytes;
}

std::int64_t CublasLtMatmul::first_run_bytes() const { return implementation_->first_run_bytes(); }

void CublasLtMatmul::run_announced(cudaStream_t stream, std::byte* operands) { implementation_->run_announced(stream, operands); }

bool CublasLtMatmul::can_fuse(const FusedMatmul& f) const {
  return implementation_->find_plan({shape_of(f.product), f.epilogue}, alignment_of(pointers_of(f))) != nullptr;
}

void CublasLtMatmul::run_fused(cudaStream_t stream, const FusedMatmul& f) {
  const MatmulShape shape = shape_of(f.product);
  expect_epilogue_operands(f, shape);
  implementation_->run(stream, {shape, f.epilogue}, pointers_of(f), f.product.workspace.num_bytes());
}

}  // namespace trident
