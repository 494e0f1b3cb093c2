// Prints rates of a step's products by oneDNN and by own tiles, by shape, for the table in device/cpu/onednn_matmul.cpp:
//   perf_products [threads] [seconds per shape] [rows,out,in ...]
// One after the other in turn, medians of wall time; the share is that of the multiply instruction on registers. The layers are
// those of a Llama of hidden size 512, 4 x 512 tokens, unless others are named. A layer's product is made with a residual, too: by
// oneDNN and an addition, and by tiles. DNNL_MAX_CPU_ISA=AVX512_CORE and =AVX2 give the rates of lower instruction sets.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/clock.h"
#include "device/cpu/blocked_product.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/multiply_rates.h"
#include "device/cpu/team.h"
#include "device/cpu/team_kernels.h"
#include "tests/device/operands.h"

namespace trident {
namespace {

struct Sides {
  OnednnMatmul library;
  ProductTiles tiles;
  double peak;   // FLOP/s
  bool widened;  // bf16 is multiplied as f32, which the library's operands are then
};
struct Times {
  double flops = 0, library = 0, tiles = 0, addition = 0, joined = 0;
};

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

void print_rates(const std::string& name, const Times& t, double peak) {
  fmt::print("{:<40} oneDNN {:>7.1f} GF/s {:>3.0f} %, tiles {:>7.1f} GF/s {:>3.0f} %, {:.2f}x", name, 1e-9 * t.flops / t.library,
             100 * t.flops / t.library / peak, 1e-9 * t.flops / t.tiles, 100 * t.flops / t.tiles / peak, t.library / t.tiles);
  if (t.joined > 0)
    fmt::print("; with a residual {:.3f} + {:.3f} ms, {:.3f}, {:.2f}x", 1e3 * t.library, 1e3 * t.addition, 1e3 * t.joined,
               (t.library + t.addition) / t.joined);
  fmt::print("\n");
}

TestTensor operand(DType dtype, std::int64_t rows, std::int64_t columns) {
  TestTensor x(dtype, {rows, columns});
  for (std::int64_t i = 0; i < rows * columns; ++i) x.set(i, 0.002 * static_cast<double>(i % 299) - 0.3);
  return x;
}

Times compare(Sides& sides, const MatmulShape& s, double seconds) {
  MatmulShape of_library = s;
  if (sides.widened) of_library.in = of_library.out = DType::kF32;
  const TestTensor a = operand(s.in, s.m, s.k), b = operand(s.in, s.k, s.n), out(s.out, {s.m, s.n});
  const TestTensor library_a = operand(of_library.in, s.m, s.k), library_b = operand(of_library.in, s.k, s.n);
  const TestTensor library_out(of_library.out, {s.m, s.n});
  const TestTensor workspace(DType::kU8,
                             {std::max(sides.library.prepare(of_library), 4 * blocked_workspace_floats(sides.tiles, s))});
  std::byte* const memory = workspace.view().data();
  const TestTensor residual = operand(s.out, s.m, s.n);
  const RowKernels& rows = team_kernels(detect_cpu_features().level);
  std::vector<double> library, tiles, addition, joined;
  const double end = monotonic_seconds() + seconds;
  for (bool warm = false; library.size() < 3 || monotonic_seconds() < end; warm = true) {
    const double start = monotonic_seconds();
    sides.library.run(of_library, library_out.view().data(), library_a.view().data(), library_b.view().data(), memory);
    const double middle = monotonic_seconds();
    multiply_blocked(sides.tiles, s, out.view().data(), a.view().data(), b.view().data(), reinterpret_cast<float*>(memory));
    const double third = monotonic_seconds();
    rows.add(row_type(s.out), out.view().data(), out.view().data(), residual.view().data(), s.m * s.n);
    const double fourth = monotonic_seconds();
    multiply_blocked(sides.tiles, s, out.view().data(), a.view().data(), b.view().data(), reinterpret_cast<float*>(memory),
                     {.matrix = residual.view().data()});
    if (!warm) continue;
    library.push_back(middle - start), tiles.push_back(third - middle);
    addition.push_back(fourth - third), joined.push_back(monotonic_seconds() - fourth);
  }
  return {2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k), median(library), median(tiles),
          median(addition), median(joined)};
}

// A layer y[M,N] = x[M,K] W[N,K]^T: its three products.
void compare_layer(Sides& sides, Times& all, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, double layers,
                   double seconds) {
  const Transpose no = Transpose::kNo, yes = Transpose::kYes;
  const MatmulShape products[] = {{m, n, k, no, yes, dtype, dtype, Accumulate::kNo},
                                  {m, k, n, no, no, dtype, dtype, Accumulate::kNo},
                                  {n, k, m, yes, no, dtype, DType::kF32, Accumulate::kYes}};
  for (const MatmulShape& s : products) {
    Times t = compare(sides, s, seconds);
    if (&s != products) t.joined = 0;  // residuals are added to layers' results
    print_rates(fmt::format("{} {} x {} x {} {}{}", to_string(dtype), s.m, s.n, s.k, s.transpose_a == yes ? "aT" : "",
                            s.transpose_b == yes ? "bT" : ""),
                t, sides.peak);
    all.flops += layers * t.flops, all.library += layers * t.library, all.tiles += layers * t.tiles;
  }
}

struct Layer {
  std::int64_t rows, out, in;
  double count = 1;
};

void compare_step(DType dtype, double seconds, const std::vector<Layer>& layers) {
  const bool pairs = dtype == DType::kBF16 && onednn_has_native_bf16();
  const char* limit = std::getenv("DNNL_MAX_CPU_ISA");
  const IsaLevel level = limit != nullptr && std::string(limit) == "AVX2" ? IsaLevel::kAvx2 : detect_cpu_features().level;
  double peak = 0;
  for (const MultiplyRate& rate : measure_multiply_rates(0.2))
    if (rate.instruction.starts_with(pairs ? "vdpbf16ps" : "fp32")) peak = rate.flops;
  // At the lowest level the table leaves f32 and native bf16 to the library.
  const bool widened = dtype == DType::kBF16 && !pairs;
  Sides sides{OnednnMatmul(pairs ? Bf16Products::kNative : Bf16Products::kConverted, row_kernels(IsaLevel::kBaseline)),
              product_tiles(level, pairs), level == IsaLevel::kAvx2 ? peak / 2 : peak, widened};
  if (widened) fmt::print("bf16 is widened: oneDNN multiplies fp32\n");
  Times all;
  for (const Layer& l : layers) compare_layer(sides, all, dtype, l.rows, l.out, l.in, l.count, seconds);
  print_rates("all", all, sides.peak);
}

}  // namespace
}  // namespace trident

int main(int argc, char** argv) {
  using namespace trident;
  make_team(argc > 1 ? std::atoi(argv[1]) : 1, std::nullopt);
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.15;
  std::vector<Layer> layers;
  for (int i = 3; i < argc; ++i) {
    Layer& l = layers.emplace_back();
    if (std::sscanf(argv[i], "%ld,%ld,%ld", &l.rows, &l.out, &l.in) != 3) return 64;
  }
  if (layers.empty())
    layers = {{2048, 50304, 512}, {2048, 2816, 512, 8}, {2048, 512, 1408, 8}, {2048, 1024, 512, 8}, {2048, 512, 512, 8}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) compare_step(dtype, seconds, layers);
  return 0;
}
