// Products of few rows, row by row: against sums in double, and the same bits however many rows and threads there are.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/bf16.h"
#include "core/f16.h"
#include "core/normals.h"
#include "core/philox.h"
#include "device/cpu/cpu_features.h"
#include "device/cpu/memory_reads.h"
#include "device/cpu/onednn_matmul.h"
#include "tests/device/isa_levels.h"

namespace trident {
namespace {

std::vector<float> values(std::int64_t count, std::uint64_t number) {
  std::vector<float> v(static_cast<std::size_t>(count));
  Normals normals(random_key(1, RandomPurpose::kTest, number));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = to_float(to_bf16(normals.at(i)));
  return v;
}

// The operand's bytes in `dtype`.
std::vector<std::byte> stored(const std::vector<float>& v, DType dtype) {
  std::vector<std::byte> bytes(v.size() * static_cast<std::size_t>(size_of(dtype)));
  for (std::size_t i = 0; i < v.size(); ++i) {
    if (dtype == DType::kF32) reinterpret_cast<float*>(bytes.data())[i] = v[i];
    if (dtype == DType::kBF16) reinterpret_cast<bf16*>(bytes.data())[i] = to_bf16(v[i]);
    if (dtype == DType::kF16) reinterpret_cast<f16*>(bytes.data())[i] = to_f16(v[i]);
  }
  return bytes;
}

std::vector<float> loaded(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> v(bytes.size() / static_cast<std::size_t>(size_of(dtype)));
  for (std::size_t i = 0; i < v.size(); ++i) {
    if (dtype == DType::kF32) v[i] = reinterpret_cast<const float*>(bytes.data())[i];
    if (dtype == DType::kBF16) v[i] = to_float(reinterpret_cast<const bf16*>(bytes.data())[i]);
    if (dtype == DType::kF16) v[i] = to_float(reinterpret_cast<const f16*>(bytes.data())[i]);
  }
  return v;
}

struct Product {
  MatmulShape shape;
  std::vector<float> a, b, old;

  std::vector<float> run(IsaLevel level, std::int64_t rows, int threads) const {
    omp_set_num_threads(threads);
    MatmulShape s = shape;
    s.m = rows;
    OnednnMatmul matmul(Bf16Products::kConverted, row_kernels(level), SmallProducts::kRowByRow);
    std::vector<std::byte> workspace(static_cast<std::size_t>(matmul.prepare(s)));
    EXPECT_EQ(matmul.entry_point(s), "few rows");
    const std::vector<float> first(a.begin(), a.begin() + rows * s.k), before(old.begin(), old.begin() + rows * s.n);
    std::vector<std::byte> out = stored(before, s.out);
    matmul.run(s, out.data(), stored(first, s.in).data(), stored(b, s.in).data(), workspace.data());
    omp_set_num_threads(1);
    return loaded(out, s.out);
  }
};

std::vector<Product> products() {
  std::vector<Product> all;
  for (const DType in : {DType::kF32, DType::kBF16, DType::kF16})
    for (const DType out : {DType::kF32, in})
      for (const Transpose transposed : {Transpose::kYes, Transpose::kNo})
        for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes})
          for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {37, 19}, {130, 64}, {7, 32}, {450, 333}})
            for (const float scale : {1.0f, 2.5f}) {  // an adapter's products have one
              const MatmulShape shape{9, n, k, Transpose::kNo, transposed, in, out, accumulate, scale};
              all.push_back({shape, values(9 * k, 1), values(n * k, 2), values(9 * n, 3)});
            }
  return all;
}

TEST(FewRows, AreSumsOfProducts) {
  for (const Product& p : products()) {
    const MatmulShape& s = p.shape;
    for (const IsaLevel level : isa_levels()) {
      const std::vector<float> out = p.run(level, s.m, 1);
      for (std::int64_t r = 0; r < s.m; ++r)
        for (std::int64_t c = 0; c < s.n; ++c) {
          double sum = s.accumulate == Accumulate::kYes ? p.old[static_cast<std::size_t>(r * s.n + c)] : 0, size = std::abs(sum);
          for (std::int64_t i = 0; i < s.k; ++i) {
            const auto at = static_cast<std::size_t>(s.transpose_b == Transpose::kYes ? c * s.k + i : i * s.n + c);
            const double product = static_cast<double>(s.scale) * p.a[static_cast<std::size_t>(r * s.k + i)] * p.b[at];
            sum += product;
            size += std::abs(product);
          }
          // A sum of k+1 summands in f32 has at most k roundings of its size, a scale one more, bf16 one of 2^-9 of the result.
          const double bound = size * static_cast<double>(s.k + 2) * 0x1p-24 + (s.out != DType::kF32 ? std::abs(sum) * 0x1p-8 : 0);
          ASSERT_NEAR(out[static_cast<std::size_t>(r * s.n + c)], sum, bound)
              << to_string(level) << " n " << s.n << " k " << s.k << " row " << r << " column " << c;
        }
    }
  }
}

TEST(FewRows, AreTheSameBitsHoweverManyRowsAndThreadsThereAre) {
  for (const Product& p : products()) {
    for (const IsaLevel level : isa_levels()) {
      const std::vector<float> all = p.run(level, p.shape.m, 1);
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 8}) {
        for (const int threads : {1, 3}) {
          const std::vector<float> some = p.run(level, rows, threads);
          ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin()))
              << to_string(level) << ", " << rows << " rows, " << threads << " threads, n " << p.shape.n << " k " << p.shape.k;
        }
      }
    }
  }
}

TEST(MemoryReads, CopiesAreWholeWithAnyNumberOfThreads) {
  std::vector<std::byte> from(100003);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 37 >> 3);
  for (const int threads : {1, 3}) {
    omp_set_num_threads(threads);
    std::vector<std::byte> to(from.size());
    copy_in_parts(to, from);
    EXPECT_EQ(to, from) << threads << " threads";
  }
  omp_set_num_threads(1);
  copy_in_parts({}, {});
}

// The rate that they are compared with is of a read of everything.
TEST(MemoryReads, ReadEveryWordOnceWithAnyNumberOfThreads) {
  std::vector<std::uint64_t> words(100003);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < words.size(); ++i) sum += words[i] = i * 0x9E3779B97F4A7C15u;
#ifdef TRIDENT_TSAN
  const std::vector<int> counts{1};  // it does not see how libgomp's threads begin and end, and their sums meet in between
#else
  const std::vector<int> counts{1, 3};
#endif
  for (const int threads : counts) {
    omp_set_num_threads(threads);
    EXPECT_EQ(sum_of_words(words), sum) << threads << " threads";
  }
  omp_set_num_threads(1);
  EXPECT_EQ(sum_of_words({}), 0u);
}

TEST(FewRows, AreLeftToTheLibraryWhereNobodyAsked) {
  OnednnMatmul blocked(Bf16Products::kConverted, row_kernels(IsaLevel::kBaseline));
  OnednnMatmul row_by_row(Bf16Products::kConverted, row_kernels(IsaLevel::kBaseline), SmallProducts::kRowByRow);
  const MatmulShape one{1, 64, 64, Transpose::kNo, Transpose::kYes}, many{kFewRows + 1, 64, 64, Transpose::kNo, Transpose::kYes};
  blocked.prepare(one);
  row_by_row.prepare(many);
  EXPECT_EQ(blocked.entry_point(one), "dnnl_sgemm");
  EXPECT_EQ(row_by_row.entry_point(many), "dnnl_sgemm");
}

}  // namespace
}  // namespace trident
