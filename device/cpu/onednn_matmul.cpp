#include "device/cpu/onednn_matmul.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "core/check.h"
#include "core/int_math.h"
#include "device/cpu/blocked_product.h"
#include "device/cpu/few_rows.h"
#include "device/cpu/onednn_api.h"
#include "device/cpu/team.h"
#include "device/no_allocation.h"

// Exported by oneDNN 2.x beside dnnl_sgemm and of the same form, but not in its headers. Weak: a library without it is served by
// the matmul primitive.
extern "C" __attribute__((weak)) dnnl_status_t dnnl_gemm_bf16bf16f32(char transpose_a, char transpose_b, dnnl_dim_t m, dnnl_dim_t n,
                                                                     dnnl_dim_t k, float alpha, const std::uint16_t* a,
                                                                     dnnl_dim_t lda, const std::uint16_t* b, dnnl_dim_t ldb,
                                                                     float beta, float* c, dnnl_dim_t ldc);

namespace trident {

using namespace onednn;

namespace {

// Which entry point serves which product. A library's keeps what own tiles do not make 3 % faster
// (docs/benchmarks/2026-11-29-own-products.md has the rates).
//
//   in    out    shape                                             entry point            why
//   f32   f32    without summands                                  dnnl_sgemm             no class of shapes is slow
//   bf16  any    a not transposed, k >= kVocabulary, no AMX        blocked_product.h      1.15-1.19x the primitive
//   bf16  any    neither transposed (dX = dY W), m, n and k >=     blocked_product.h      1.02-1.07x the primitive
//                kLongSum, no sums kept apart, no AMX
//   bf16  f32    a transposed, b not, k >= kLongSum (dW += dY^T X) dnnl_gemm_bf16bf16f32  1.1-1.7x the primitive on AMX,
//                                                                                         1.0-1.3x on AVX512-BF16; slower for
//                                                                                         short sums
//   bf16  any    other, native bf16                                matmul primitive       AMX / AVX512-BF16 kernels, bf16 result
//   bf16  any    Bf16Products::kConverted                          blocked_product.h      widened while it is packed
//   f16   any    all                                               blocked_product.h      likewise
//   any   any    with summands, no bf16 on AMX; a matrix alone:    blocked_product.h      nothing is read or rounded twice
//                k >= kLongSum and no sums kept apart
//   any   any    a not transposed, m <= kFewRows                   few_rows.h             with SmallProducts::kRowByRow alone:
//                                                                                         reads b once, at memory's rate
enum class EntryPoint : std::uint8_t { kNothing, kFewRows, kSgemm, kGemmBf16, kPrimitive, kBlocked };

constexpr std::int64_t kLongSum = 512, kVocabulary = 16384;

// Products of fewer multiply-adds are made by the calling thread alone: they are over before a second thread, which sleeps while it
// waits, has come. From docs/benchmarks/2026-11-23-few-threads.md.
constexpr double kWorthThreads = 4 << 20;
// In a matmul of few rows no thread gets fewer, and each a multiple of it, so that no two write to one cache line.
constexpr std::int64_t kColumnsOfAThread = 16;

// While it lives such a product takes one thread, when oneDNN makes a primitive as well as when it runs one.
class ThreadsFor {
 public:
  explicit ThreadsFor(const MatmulShape& s) : all_(omp_get_max_threads()) {
    few_ = all_ > 1 && static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) < kWorthThreads;
    if (few_) omp_set_num_threads(1);
  }
  ~ThreadsFor() {
    if (few_) omp_set_num_threads(all_);
  }
  ThreadsFor(const ThreadsFor&) = delete;
  ThreadsFor& operator=(const ThreadsFor&) = delete;

 private:
  int all_;
  bool few_;
};

// A product as a primitive with its memory objects, whose pointers are set for every call.
struct PreparedPrimitive {
  Primitive primitive;
  Memory a, b, out, scratchpad;
  std::int64_t scratchpad_bytes = 0;
  std::string kernel;
};

struct Prepared {
  EntryPoint entry = EntryPoint::kNothing;
  std::int64_t workspace_bytes = 0;
  PreparedPrimitive primitive;  // kPrimitive only
};

struct HashShape {
  std::size_t operator()(const MatmulShape& s) const {
    std::uint64_t h = 0;
    const auto flags = static_cast<std::int64_t>(s.transpose_a) | static_cast<std::int64_t>(s.transpose_b) << 1 |
                       static_cast<std::int64_t>(s.accumulate) << 2 | static_cast<std::int64_t>(s.in) << 3 |
                       static_cast<std::int64_t>(s.out) << 7;
    for (const std::int64_t x : {s.m, s.n, s.k, flags}) h = (h ^ static_cast<std::uint64_t>(x)) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return h;
  }
};

std::string describe(const MatmulShape& s) {
  return fmt::format("matmul {}x{}x{} {}{} {}->{}{}", s.m, s.n, s.k, s.transpose_a == Transpose::kYes ? 't' : 'n',
                     s.transpose_b == Transpose::kYes ? 't' : 'n', to_string(s.in), to_string(s.out),
                     s.accumulate == Accumulate::kYes ? " accumulated" : "");
}

dnnl_data_type_t dnnl_type(DType dtype) { return dtype == DType::kBF16 ? dnnl_bf16 : dnnl_f32; }

// A dense [rows, columns] operand, stored transposed or not.
MemoryDesc dense(std::int64_t rows, std::int64_t columns, DType dtype, Transpose stored) {
  const dnnl_dims_t dims = {rows, columns};
  const dnnl_dims_t plain = {columns, 1}, transposed = {1, rows};
  return {dims, stored == Transpose::kYes ? transposed : plain, dnnl_type(dtype)};
}

// One thread packs up to 9,984 columns of b at a time, 15 MB that its allocator keeps for each rank. Calls of fewer columns take as
// long and make the same bits; several threads would divide them in another way.
constexpr std::int64_t kColumnsOfACall = 1536, kColumnsOfATile = 48;

std::int64_t columns_of_a_call(std::int64_t n) {
  return omp_get_max_threads() > 1 ? n : round_up(ceil_div(n, ceil_div(n, kColumnsOfACall)), kColumnsOfATile);
}

void sgemm(const MatmulShape& s, float* out, const float* a, const float* b) {
  const bool ta = s.transpose_a == Transpose::kYes, tb = s.transpose_b == Transpose::kYes;
  // oneDNN takes its packing buffers from its own allocator on every call.
  const AllocationExemption library_buffers;
  const std::int64_t most = columns_of_a_call(s.n);
  for (std::int64_t first = 0; first < s.n; first += most) {
    const float* const columns = b + (tb ? first * s.k : first);
    check(dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', s.m, std::min(most, s.n - first), s.k, s.scale, a, ta ? s.m : s.k, columns,
                     tb ? s.k : s.n, s.accumulate == Accumulate::kYes ? 1.0f : 0.0f, out + first, s.n),
          "dnnl_sgemm");
  }
}

void gemm_bf16(const MatmulShape& s, float* out, const void* a, const void* b) {
  const bool ta = s.transpose_a == Transpose::kYes, tb = s.transpose_b == Transpose::kYes;
  const AllocationExemption library_buffers;  // as in sgemm()
  check(dnnl_gemm_bf16bf16f32(ta ? 'T' : 'N', tb ? 'T' : 'N', s.m, s.n, s.k, s.scale, static_cast<const std::uint16_t*>(a),
                              ta ? s.m : s.k, static_cast<const std::uint16_t*>(b), tb ? s.k : s.n,
                              s.accumulate == Accumulate::kYes ? 1.0f : 0.0f, out, s.n),
        "dnnl_gemm_bf16bf16f32");
}

}  // namespace

class OnednnMatmul::Implementation {
 public:
  Implementation(Bf16Products bf16, const RowKernels& kernels, SmallProducts small)
      : bf16_(bf16),
        small_(small),
        kernels_(kernels),
        few_rows_(few_rows(kernels.level)),
        floats_(product_tiles(kernels.level, false)),
        pairs_(product_tiles(kernels.level, bf16 == Bf16Products::kNative)) {
    check(dnnl_engine_create(engine_.receive(), dnnl_cpu, 0), "engine");
    check(dnnl_stream_create(stream_.receive(), engine_.get(), dnnl_stream_default_flags), "stream");
  }

  const Prepared& prepare(const MatmulShape& shape) {
    const auto found = prepared_.find(shape);
    if (found != prepared_.end()) return found->second;
    const ThreadsFor threads(shape);
    Prepared p;
    p.entry = choose(shape);
    if (p.entry == EntryPoint::kPrimitive && !make_primitive(shape, p.primitive)) p.entry = EntryPoint::kBlocked;
    if (p.entry == EntryPoint::kPrimitive) p.workspace_bytes = p.primitive.scratchpad_bytes;
    if (p.entry == EntryPoint::kBlocked) p.workspace_bytes = 4 * blocked_workspace_floats(tiles(shape), shape);
    if (p.entry == EntryPoint::kFewRows) p.workspace_bytes = 4 * few_rows_floats(shape);
    return prepared_.emplace(shape, std::move(p)).first->second;
  }

  std::optional<std::int64_t> workspace_with_summands(const MatmulShape& shape, std::int64_t rank) const {
    const EntryPoint alone = choose(shape);
    const bool tiles_are_slower = onednn_has_native_amx() && shape.in == DType::kBF16;
    if (alone == EntryPoint::kNothing || alone == EntryPoint::kFewRows || tiles_are_slower) return std::nullopt;
    const bool library_is_faster = rank == 0 && alone != EntryPoint::kBlocked &&
                                   (shape.k < kLongSum || keeps_sums_apart(tiles(shape), shape));
    if (library_is_faster || !adds_rank(tiles(shape), shape, rank)) return std::nullopt;
    return 4 * (blocked_workspace_floats(tiles(shape), shape) + rank_workspace_floats(tiles(shape), shape, rank));
  }

  void run_with_summands(const MatmulShape& shape, void* out, const void* a, const void* b, const ProductSummands& summands,
                         void* workspace) const {
    const ThreadsFor threads(shape);
    multiply_blocked(tiles(shape), shape, out, a, b, static_cast<float*>(workspace), summands);
  }

  const Prepared& find(const MatmulShape& shape) const {
    const auto found = prepared_.find(shape);
    TRIDENT_CHECK(found != prepared_.end(), "{} was not prepared", describe(shape));
    return found->second;
  }

  void run(const MatmulShape& shape, void* out, const void* a, const void* b, void* workspace) {
    const Prepared& p = find(shape);
    const ThreadsFor threads(shape);
    switch (p.entry) {
      case EntryPoint::kNothing:
        if (shape.accumulate == Accumulate::kNo)
          std::memset(out, 0, static_cast<std::size_t>(shape.m * shape.n * size_of(shape.out)));
        return;
      case EntryPoint::kFewRows: return run_few_rows(shape, out, a, b, static_cast<float*>(workspace));
      case EntryPoint::kSgemm:
        return sgemm(shape, static_cast<float*>(out), static_cast<const float*>(a), static_cast<const float*>(b));
      case EntryPoint::kGemmBf16: return gemm_bf16(shape, static_cast<float*>(out), a, b);
      case EntryPoint::kPrimitive: return run_primitive(p.primitive, out, a, b, workspace);
      case EntryPoint::kBlocked: return multiply_blocked(tiles(shape), shape, out, a, b, static_cast<float*>(workspace));
    }
  }

 private:
  EntryPoint choose(const MatmulShape& s) const {
    TRIDENT_CHECK(s.m >= 0 && s.n >= 0 && s.k >= 0, "{}", describe(s));
    TRIDENT_CHECK((s.in == DType::kF32 || s.in == DType::kBF16 || s.in == DType::kF16) && (s.out == DType::kF32 || s.out == s.in),
                  "{}: products are of f32, bf16 or f16, their results f32 or of the same type", describe(s));
    if (s.m == 0 || s.n == 0 || s.k == 0) return EntryPoint::kNothing;
    const bool few_rows = small_ == SmallProducts::kRowByRow && s.m <= kFewRows;
    if (few_rows && s.transpose_a == Transpose::kNo) return EntryPoint::kFewRows;
    if (s.in == DType::kF32) return EntryPoint::kSgemm;
    if (s.in == DType::kF16 || bf16_ == Bf16Products::kConverted) return EntryPoint::kBlocked;
    const bool has_pairs = kernels_.level == IsaLevel::kAvx512 && !onednn_has_native_amx();
    const bool in_rows = has_pairs && s.transpose_a == Transpose::kNo;
    const bool input_gradient = in_rows && s.transpose_b == Transpose::kNo && std::min({s.m, s.n, s.k}) >= kLongSum;
    if ((in_rows && s.k >= kVocabulary) || (input_gradient && !keeps_sums_apart(pairs_, s))) return EntryPoint::kBlocked;
    const bool weight_gradient = s.transpose_a == Transpose::kYes && s.transpose_b == Transpose::kNo && s.out == DType::kF32;
    if (weight_gradient && s.k >= kLongSum && dnnl_gemm_bf16bf16f32 != nullptr) return EntryPoint::kGemmBf16;
    return EntryPoint::kPrimitive;
  }

  const ProductTiles& tiles(const MatmulShape& s) const { return s.in == DType::kBF16 ? pairs_ : floats_; }

  // False if the library has no kernel for this shape and processor.
  bool make_primitive(const MatmulShape& s, PreparedPrimitive& p) {
    const MemoryDesc a = dense(s.m, s.k, s.in, s.transpose_a), b = dense(s.k, s.n, s.in, s.transpose_b);
    const MemoryDesc out = dense(s.m, s.n, s.out, Transpose::kNo);
    Attributes attributes;
    check(dnnl_primitive_attr_create(attributes.receive()), "attributes");
    check(dnnl_primitive_attr_set_scratchpad_mode(attributes.get(), dnnl_scratchpad_mode_user), "scratchpad mode");
    if (s.accumulate == Accumulate::kYes || s.scale != 1.0f) {
      PostOps post_ops;
      check(dnnl_post_ops_create(post_ops.receive()), "post-ops");
      if (s.scale != 1.0f) append_scale(post_ops, s.scale);
      if (s.accumulate == Accumulate::kYes) append_sum(post_ops);
      check(dnnl_primitive_attr_set_post_ops(attributes.get(), post_ops.get()), "post-ops");
    }
    PrimitiveDesc pd;
    if (!create_matmul(pd, engine_, a, b, out, attributes)) return false;
    check(dnnl_primitive_create(p.primitive.receive(), pd.get()), "primitive");
    const char* kernel = nullptr;
    check(dnnl_primitive_desc_query(pd.get(), dnnl_query_impl_info_str, 0, &kernel), "kernel name");
    p.kernel = kernel;
    p.scratchpad_bytes = static_cast<std::int64_t>(dnnl_memory_desc_get_size(scratchpad_of(pd)));
    create_memory(p.a, a.get(), engine_);
    create_memory(p.b, b.get(), engine_);
    create_memory(p.out, out.get(), engine_);
    create_memory(p.scratchpad, scratchpad_of(pd), engine_);
    return true;
  }

  void run_primitive(const PreparedPrimitive& p, void* out, const void* a, const void* b, void* workspace) {
    // Executing builds a map of the arguments and a context object, every time.
    const AllocationExemption argument_map;
    set_data(p.a, const_cast<void*>(a), stream_, "operand a");
    set_data(p.b, const_cast<void*>(b), stream_, "operand b");
    set_data(p.out, out, stream_, "result");
    if (p.scratchpad_bytes > 0) set_data(p.scratchpad, workspace, stream_, "scratchpad");
    const std::array<dnnl_exec_arg_t, 4> args = {{{DNNL_ARG_SRC, p.a.get()},
                                                  {DNNL_ARG_WEIGHTS, p.b.get()},
                                                  {DNNL_ARG_DST, p.out.get()},
                                                  {DNNL_ARG_SCRATCHPAD, p.scratchpad.get()}}};
    check(dnnl_primitive_execute(p.primitive.get(), stream_.get(), static_cast<int>(args.size()), args.data()), "matmul");
    check(dnnl_stream_wait(stream_.get()), "stream");
  }

  // Whether few rows are summed right where the result lies.
  static bool sums_in_place(const MatmulShape& s) {
    const bool adds = s.transpose_b == Transpose::kNo && s.scale == 1.0f;
    return s.out == DType::kF32 && (s.accumulate == Accumulate::kNo || adds);
  }
  // The first operand in f32, the sums, and what they are added to.
  static std::int64_t few_rows_floats(const MatmulShape& s) {
    return (s.in == DType::kF32 ? 0 : s.m * s.k) + (sums_in_place(s) ? 0 : 2 * s.m * s.n);
  }

  void run_few_rows(const MatmulShape& s, void* out, const void* a, const void* b, float* workspace) const {
    const RowType t = row_type(s.in);
    const float* x = static_cast<const float*>(a);
    if (s.in != DType::kF32) {
      kernels_.convert(RowType::kF32, workspace, t, a, s.m * s.k);
      x = workspace;
      workspace += s.m * s.k;
    }
    if (sums_in_place(s)) return sum_few_rows(s, static_cast<float*>(out), x, b, s.accumulate == Accumulate::kYes);
    float *sums = workspace, *old = sums + s.m * s.n;
    sum_few_rows(s, sums, x, b, false);
    const RowType result = row_type(s.out);
    if (s.accumulate == Accumulate::kYes) {
      kernels_.convert(RowType::kF32, old, result, out, s.m * s.n);
      kernels_.accumulate(sums, old, s.m * s.n);
    }
    kernels_.convert(result, out, RowType::kF32, sums, s.m * s.n);
  }

  // Threads take columns of the result, so they change no sum.
  void sum_few_rows(const MatmulShape& s, float* sums, const float* x, const void* b, bool accumulate) const {
    const RowType t = row_type(s.in);
    const std::int64_t width = size_of(s.in);
    const auto columns = [&](std::int64_t first, std::int64_t count) {
      const auto* w = static_cast<const std::byte*>(b);
      if (s.transpose_b == Transpose::kYes)
        few_rows_.times_transposed(t, sums + first, s.n, x, s.m, w + first * s.k * width, count, s.k);
      else
        few_rows_.times(t, sums + first, s.n, x, s.m, w + first * width, s.n, count, s.k, accumulate);
    };
    const std::int64_t threads = std::clamp<std::int64_t>(ceil_div(s.n, kColumnsOfAThread), 1, team_size());
    const std::int64_t part = round_up(ceil_div(s.n, threads), kColumnsOfAThread);
    on_team(threads, [&](std::int64_t i, std::int64_t) {
      const std::int64_t first = std::min(s.n, i * part);
      columns(first, std::min(part, s.n - first));
    });
    if (s.scale == 1.0f) return;
    for (float& sum : std::span(sums, static_cast<std::size_t>(s.m * s.n))) sum *= s.scale;
  }

  Bf16Products bf16_;
  SmallProducts small_;
  const RowKernels& kernels_;
  FewRows few_rows_;
  ProductTiles floats_, pairs_;  // of bf16: pairs where they are multiplied by an instruction of their own
  Engine engine_;
  DnnlStream stream_;
  std::unordered_map<MatmulShape, Prepared, HashShape> prepared_;
};

OnednnMatmul::OnednnMatmul(Bf16Products bf16, const RowKernels& kernels, SmallProducts small)
    : implementation_(std::make_unique<Implementation>(bf16, kernels, small)) {}
OnednnMatmul::~OnednnMatmul() = default;

std::int64_t OnednnMatmul::prepare(const MatmulShape& shape) { return implementation_->prepare(shape).workspace_bytes; }
std::int64_t OnednnMatmul::workspace_bytes(const MatmulShape& shape) const { return implementation_->find(shape).workspace_bytes; }

void OnednnMatmul::run(const MatmulShape& shape, void* out, const void* a, const void* b, void* workspace) {
  implementation_->run(shape, out, a, b, workspace);
}

std::optional<std::int64_t> OnednnMatmul::workspace_with_summands(const MatmulShape& shape, std::int64_t rank) const {
  return implementation_->workspace_with_summands(shape, rank);
}

void OnednnMatmul::run_with_summands(const MatmulShape& shape, void* out, const void* a, const void* b,
                                     const ProductSummands& summands, void* workspace) {
  implementation_->run_with_summands(shape, out, a, b, summands, workspace);
}

std::string OnednnMatmul::entry_point(const MatmulShape& shape) const {
  const Prepared& p = implementation_->find(shape);
  switch (p.entry) {
    case EntryPoint::kNothing: return "nothing";
    case EntryPoint::kFewRows: return "few rows";
    case EntryPoint::kSgemm: return "dnnl_sgemm";
    case EntryPoint::kGemmBf16: return "gemm_bf16bf16f32";
    case EntryPoint::kPrimitive: return p.primitive.kernel;
    case EntryPoint::kBlocked: return "blocked";
  }
  return "?";
}

namespace {

// The values are bit sets that grow with the instruction set, but AVX2-VNNI has a bit of its own.
bool has_all(dnnl_cpu_isa_t needed) {
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & static_cast<unsigned>(needed)) == static_cast<unsigned>(needed);
}

}  // namespace

bool onednn_has_native_bf16() { return has_all(dnnl_cpu_isa_avx512_core_bf16); }
bool onednn_has_native_amx() { return has_all(dnnl_cpu_isa_avx512_core_amx); }

}  // namespace trident
