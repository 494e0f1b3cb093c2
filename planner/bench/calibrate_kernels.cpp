#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "device/operations.h"
#include "device/ops.h"
#include "planner/bench/calibrate.h"
#include "planner/bench/calibrate_ranks.h"

namespace trident {
namespace {

constexpr std::array kDTypes{DType::kF32, DType::kBF16};
// Room for the operands of the largest product, and of that what smaller ones go round in: more than the caches of a core hold,
// less than those that cores share, where a small model's weights lie.
constexpr std::int64_t kWindowBytes = std::int64_t{16} << 20;

std::vector<double> sizes_up_to(std::int64_t largest, std::initializer_list<std::int64_t> sizes) {
  std::vector<double> result;
  for (const std::int64_t size : sizes)
    if (size <= largest) result.push_back(static_cast<double>(size));
  return result;
}

// One kind of product as layers call it.
struct ProductClass {
  DType in{};
  Transpose a{}, b{};
  Accumulate accumulate{};
};

std::vector<ProductClass> product_classes() {
  std::vector<ProductClass> classes;
  for (const DType in : kDTypes) {
    classes.push_back({in, Transpose::kNo, Transpose::kYes});  // forward, and logits
    classes.push_back({in, Transpose::kNo, Transpose::kNo});   // gradients of inputs
    for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes})  // of weights: the first micro-batch's, and the others'
      classes.push_back({in, Transpose::kYes, Transpose::kNo, accumulate});
  }
  return classes;
}

double time_product(const MeasuringRank& rank, double budget, const ProductClass& kind, std::int64_t m, std::int64_t n,
                    std::int64_t k, OperandPool& inputs, OperandPool& outputs) {
  Ops& ops = rank.device.ops();
  const bool gradient = kind.a == Transpose::kYes;
  const MatmulShape shape{m, n, k, kind.a, kind.b, kind.in, gradient ? DType::kF32 : kind.in, kind.accumulate};
  const std::int64_t bytes = ops.prepare_matmul(shape);
  const Buffer workspace = rank.device.allocate(bytes, "workspace");
  const TensorView scratch(workspace.data(), DType::kU8, {bytes});
  const Shape a = gradient ? Shape{k, m} : Shape{m, k}, b = kind.b == Transpose::kYes ? Shape{n, k} : Shape{k, n};
  const std::int64_t in = size_of(kind.in) * (m + n) * k + 128, out = size_of(shape.out) * m * n + 128;
  return least_seconds(rank.clock, budget, [&] {
    inputs.next_call(in);
    outputs.next_call(out);
    const TensorView x = inputs.next(a), w = inputs.next(b), y = outputs.next({m, n});
    ops.run(rank.device.compute_stream(), op::Matmul{{.out = y, .a = x, .transpose_a = kind.a, .b = w, .transpose_b = kind.b,
                                                      .accumulate = shape.accumulate, .workspace = scratch}});
  });
}

// The sum over the ranks at work at once; each adds its share.
class Means {
 public:
  Means(std::size_t points, int ranks) : sums_(points * static_cast<std::size_t>(ranks)), ranks_(static_cast<std::size_t>(ranks)) {}
  void set(int rank, std::size_t point, double seconds) { sums_[point * ranks_ + static_cast<std::size_t>(rank)] = seconds; }
  std::vector<double> values() const {
    std::vector<double> means;
    for (std::size_t i = 0; i < sums_.size(); i += ranks_) {
      double sum = 0;
      for (std::size_t r = 0; r < ranks_; ++r) sum += sums_[i + r];
      means.push_back(sum / static_cast<double>(ranks_));
    }
    return means;
  }

 private:
  std::vector<double> sums_;
  std::size_t ranks_;
};

double time_attention(const MeasuringRank& rank, double budget, DType dtype, bool backward, std::int64_t heads, std::int64_t length,
                      std::int64_t width, OperandPool& inputs, OperandPool& outputs) {
  Ops& ops = rank.device.ops();
  AttentionShape shape;
  shape.batch = 1;
  shape.query_heads = shape.kv_heads = heads;
  shape.query_length = shape.key_length = length;
  shape.head_dim = width;
  shape.scale = 1.0F / std::sqrt(static_cast<float>(width));
  shape.dtype = dtype;
  const std::int64_t bytes = ops.attention_workspace(shape), operand = heads * length * width * size_of(dtype) + 64;
  const Buffer workspace = rank.device.allocate(bytes, "workspace"), sums = rank.device.allocate(4 * heads * length, "sums");
  const TensorView scratch(workspace.data(), DType::kU8, {bytes}), lse(sums.data(), DType::kF32, {1, heads, length});
  const Shape all{1, heads, length, width};
  Stream& stream = rank.device.compute_stream();
  const auto call = [&](bool back) {
    inputs.next_call(4 * operand);
    outputs.next_call(4 * operand);
    const TensorView q = inputs.next(all), k = inputs.next(all), v = inputs.next(all), out = outputs.next(all);
    if (!back) return ops.run(stream, op::AttentionForward{.shape = shape, .out = out, .lse = lse, .q = q, .k = k, .v = v,
                                                           .workspace = scratch});
    const TensorView d_out = inputs.next(all), d_q = outputs.next(all), d_k = outputs.next(all), d_v = outputs.next(all);
    ops.run(stream, op::AttentionBackward{.shape = shape, .d_q = d_q, .d_k = d_k, .d_v = d_v, .d_out = d_out, .out = out, .q = q,
                                          .k = k, .v = v, .lse = lse, .workspace = scratch});
  };
  call(false);  // `lse` is that of other operands in backwards, which take as long
  return least_seconds(rank.clock, budget, [&] { call(backward); });
}

}  // namespace

void measure_products(const CalibrateOptions& options, int ranks, int threads, const std::string& source, CpuRates& rates) {
  const std::vector<double> sides = sizes_up_to(options.largest, {8, 32, 64, 128, 256, 512, 1024, 2048});
  const std::size_t count = sides.size();
  for (const ProductClass& kind : product_classes()) {
    options.check();
    Means means(count * count * count, ranks);
    on_measuring_ranks(ranks, threads, [&](const MeasuringRank& rank) {  // anew for each kind: kernels made for shapes are let go
      OperandPool inputs(rank.device, kWindowBytes, kind.in),
          outputs(rank.device, kWindowBytes, kind.a == Transpose::kYes ? DType::kF32 : kind.in);
      rank.all.barrier();
      for (std::size_t i = 0; i < count * count * count; ++i) {
        const auto side = [&](std::size_t axis) { return static_cast<std::int64_t>(sides[axis]); };
        means.set(rank.rank, i,
                  time_product(rank, options.seconds, kind, side(i / count / count), side(i / count % count), side(i % count),
                               inputs, outputs));
      }
    });
    std::vector<double> seconds = means.values();
    const std::vector<std::vector<double>> axes{sides, sides, sides};
    fall_to_larger(axes, seconds);
    LogTable table(axes, std::move(seconds), {1, 1, 1});
    rates.products.push_back({threads, kind.in, kind.a, kind.b, kind.accumulate, std::move(table), source});
  }
}

void measure_attention(const CalibrateOptions& options, int ranks, int threads, const std::string& source, CpuRates& rates) {
  const std::vector<double> lengths = sizes_up_to(options.largest, {16, 32, 64, 128, 192, 256, 384, 512, 1024});
  const std::vector<double> widths = sizes_up_to(options.largest, {16, 32, 48, 64, 96, 128});
  for (const DType dtype : kDTypes) {
    for (const bool backward : {false, true}) {
      options.check();
      Means means(lengths.size() * widths.size(), ranks);
      on_measuring_ranks(ranks, threads, [&](const MeasuringRank& rank) {
        OperandPool inputs(rank.device, kWindowBytes, dtype), outputs(rank.device, kWindowBytes, dtype);
        rank.all.barrier();
        for (std::size_t i = 0; i < lengths.size() * widths.size(); ++i) {
          const auto length = static_cast<std::int64_t>(lengths[i / widths.size()]),
                     width = static_cast<std::int64_t>(widths[i % widths.size()]);
          const std::int64_t heads = 4 * threads;
          means.set(rank.rank, i,
                    time_attention(rank, options.seconds, dtype, backward, heads, length, width, inputs, outputs) /
                        static_cast<double>(heads));
        }
      });
      std::vector<double> seconds = means.values();
      const std::vector<std::vector<double>> axes{lengths, widths};
      fall_to_larger(axes, seconds);
      rates.attention.push_back({threads, dtype, backward ? "attention_backward" : "attention_forward",
                                 LogTable(axes, std::move(seconds), {2, 1}), source});
    }
  }
}

}  // namespace trident
