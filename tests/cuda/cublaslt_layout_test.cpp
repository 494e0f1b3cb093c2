// How products become cuBLASLt calls: descriptors derived by hand, limits, names and keys. No library, no device.
#include "device/cuda/cublaslt_layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <thread>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "device/cuda/cublaslt_autotune.h"
#include "device/cuda/cublaslt_choices.h"
#include "device/cuda/cublaslt_handle.h"
#include "device/cuda/cublaslt_matmul.h"
#include "tests/cuda/cublaslt_fixture.h"
#include "tests/cuda/device_tensor.h"
#include "tests/cuda/simulated/cublaslt.h"
#include "tests/cuda/simulated/runtime.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

constexpr DType kH = DType::kBF16, kW = DType::kF32;

MatmulShape shape(std::int64_t m, std::int64_t n, std::int64_t k, Transpose ta, Transpose tb, DType in = kW, DType out = kW,
                  Accumulate add = Accumulate::kNo) {
  return {m, n, k, ta, tb, in, out, add};
}

// y[R,F] = x[R,H] W[F,H]^T with R = 6 rows, H = 4 inputs, F = 10 outputs. The library multiplies W (stored [10,4] by rows, so
// [4,10] by columns, transposed) by x (stored [6,4] by rows, so [4,6] by columns): [10,4][4,6] = [10,6], which by rows is [6,10].
TEST(CublasLtLayout, ForwardOfALinearLayerSwapsItsOperands) {
  const MatmulLayout l = matmul_layout(shape(6, 10, 4, kN, kT, kH, kH), Epilogue::kNone, F32Products::kF32);
  EXPECT_EQ(l.a, (MatrixLayout{CUDA_R_16BF, 4, 10, 4}));
  EXPECT_EQ(l.transpose_a, CUBLAS_OP_T);
  EXPECT_EQ(l.b, (MatrixLayout{CUDA_R_16BF, 4, 6, 4}));
  EXPECT_EQ(l.transpose_b, CUBLAS_OP_N);
  EXPECT_EQ(l.d, (MatrixLayout{CUDA_R_16BF, 10, 6, 10}));
  EXPECT_EQ(l.compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(l.beta, 0.0f);
  EXPECT_EQ(l.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
  EXPECT_EQ(l.bias_length, 0);
  EXPECT_EQ(l.aux_leading, 0);
}

// dx[R,H] = dy[R,F] W[F,H], neither transposed: W^T [4,10] by columns times dy^T [10,6].
TEST(CublasLtLayout, AnInputGradientTransposesNeither) {
  const MatmulLayout l = matmul_layout(shape(6, 4, 10, kN, kN, kH, kH), Epilogue::kNone, F32Products::kF32);
  EXPECT_EQ(l.a, (MatrixLayout{CUDA_R_16BF, 4, 10, 4}));
  EXPECT_EQ(l.transpose_a, CUBLAS_OP_N);
  EXPECT_EQ(l.b, (MatrixLayout{CUDA_R_16BF, 10, 6, 10}));
  EXPECT_EQ(l.transpose_b, CUBLAS_OP_N);
  EXPECT_EQ(l.d, (MatrixLayout{CUDA_R_16BF, 4, 6, 4}));
}

// dW[F,H] += dy[R,F]^T x[R,H]: x^T [4,6] by columns times dy, stored [6,10] by rows, so [10,6] by columns, transposed.
TEST(CublasLtLayout, AWeightGradientTransposesTheSecond) {
  const MatmulLayout l = matmul_layout(shape(10, 4, 6, kT, kN, kH, kW, Accumulate::kYes), Epilogue::kNone, F32Products::kF32);
  EXPECT_EQ(l.a, (MatrixLayout{CUDA_R_16BF, 4, 6, 4}));
  EXPECT_EQ(l.transpose_a, CUBLAS_OP_N);
  EXPECT_EQ(l.b, (MatrixLayout{CUDA_R_16BF, 10, 6, 10}));
  EXPECT_EQ(l.transpose_b, CUBLAS_OP_T);
  EXPECT_EQ(l.d, (MatrixLayout{CUDA_R_32F, 4, 10, 4}));
  EXPECT_EQ(l.beta, 1.0f);
}

TEST(CublasLtLayout, F16IsAnotherTypeOfTheSameProduct) {
  const MatmulLayout l = matmul_layout(shape(6, 10, 4, kN, kT, DType::kF16, DType::kF16), Epilogue::kNone, F32Products::kTf32);
  EXPECT_EQ(l.a, (MatrixLayout{CUDA_R_16F, 4, 10, 4}));
  EXPECT_EQ(l.d, (MatrixLayout{CUDA_R_16F, 10, 6, 10}));
  EXPECT_EQ(l.compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(matmul_layout(shape(10, 4, 6, kT, kN, DType::kF16, kW), Epilogue::kNone, F32Products::kF32).d.type, CUDA_R_32F);
  EXPECT_THROW(check_matmul_shape(shape(2, 2, 2, kN, kN, DType::kF16, kH), Epilogue::kNone), InternalError);
}

TEST(CublasLtLayout, BothMayBeTransposed) {
  const MatmulLayout l = matmul_layout(shape(2, 3, 5, kT, kT), Epilogue::kNone, F32Products::kF32);
  EXPECT_EQ(l.a, (MatrixLayout{CUDA_R_32F, 5, 3, 5}));  // b is stored [3,5]
  EXPECT_EQ(l.transpose_a, CUBLAS_OP_T);
  EXPECT_EQ(l.b, (MatrixLayout{CUDA_R_32F, 2, 5, 2}));  // a is stored [5,2]
  EXPECT_EQ(l.transpose_b, CUBLAS_OP_T);
  EXPECT_EQ(l.d, (MatrixLayout{CUDA_R_32F, 3, 2, 3}));
}

// Whatever is transposed: op(A) is [n,k], op(B) [k,m], D [n,m], and no column overlaps the next.
TEST(CublasLtLayout, DescriptorsFitTogether) {
  for (const Transpose ta : {kN, kT}) {
    for (const Transpose tb : {kN, kT}) {
      const MatmulLayout l = matmul_layout(shape(7, 11, 13, ta, tb), Epilogue::kNone, F32Products::kF32);
      const bool a = l.transpose_a == CUBLAS_OP_T, b = l.transpose_b == CUBLAS_OP_T;
      EXPECT_EQ(a ? l.a.columns : l.a.rows, 11);
      EXPECT_EQ(a ? l.a.rows : l.a.columns, 13);
      EXPECT_EQ(b ? l.b.columns : l.b.rows, 13);
      EXPECT_EQ(b ? l.b.rows : l.b.columns, 7);
      EXPECT_EQ(l.d.rows, 11);
      EXPECT_EQ(l.d.columns, 7);
      for (const MatrixLayout& m : {l.a, l.b, l.d}) EXPECT_EQ(m.leading, m.rows);
    }
  }
}

TEST(CublasLtLayout, Tf32IsForF32OperandsAlone) {
  EXPECT_EQ(matmul_layout(shape(2, 2, 2, kN, kN), Epilogue::kNone, F32Products::kTf32).compute, CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(matmul_layout(shape(2, 2, 2, kN, kN), Epilogue::kNone, F32Products::kF32).compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(matmul_layout(shape(2, 2, 2, kN, kN, kH, kW), Epilogue::kNone, F32Products::kTf32).compute, CUBLAS_COMPUTE_32F);
}

TEST(CublasLtLayout, EpiloguesHaveTheirLengths) {
  const MatmulShape up = shape(6, 16, 4, kN, kT, kH, kH);
  const MatmulLayout bias = matmul_layout(up, Epilogue::kBias, F32Products::kF32);
  EXPECT_EQ(bias.epilogue, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(bias.bias_length, bias.d.rows) << "the library adds it to every column";
  EXPECT_EQ(bias.aux_leading, 0);
  const MatmulLayout gelu = matmul_layout(up, Epilogue::kBiasGelu, F32Products::kF32);
  EXPECT_EQ(gelu.epilogue, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  EXPECT_EQ(gelu.bias_length, 16);
  EXPECT_EQ(gelu.aux_leading, 16);
  const MatmulLayout gradient = matmul_layout(shape(6, 16, 4, kN, kN, kH, kH), Epilogue::kGeluBackward, F32Products::kF32);
  EXPECT_EQ(gradient.epilogue, CUBLASLT_EPILOGUE_DGELU);
  EXPECT_EQ(gradient.bias_length, 0);
  EXPECT_EQ(gradient.aux_leading, 16);
  // dW[10,4] = dy^T x: the sums of dy over the rows are sums of the library's B over k, one for each column of D.
  const MatmulLayout weight = matmul_layout(shape(10, 4, 6, kT, kN, kH, kW), Epilogue::kBiasGradient, F32Products::kF32);
  EXPECT_EQ(weight.epilogue, CUBLASLT_EPILOGUE_BGRADB);
  EXPECT_EQ(weight.bias_length, 10);
  EXPECT_EQ(weight.bias_length, weight.d.columns);
  EXPECT_EQ(weight.aux_leading, 0);
}

TEST(CublasLtLayout, AlignmentIsThatOfTheWorstPointer) {
  alignas(64) static std::byte memory[64];
  EXPECT_EQ(pointer_alignment({memory, memory + 16, memory + 32}), PointerAlignment::kVector);
  EXPECT_EQ(pointer_alignment({memory, nullptr}), PointerAlignment::kVector);
  EXPECT_EQ(pointer_alignment({memory, memory + 8}), PointerAlignment::kElement);
  EXPECT_EQ(pointer_alignment({memory + 2, memory}), PointerAlignment::kElement);
  EXPECT_EQ(matmul_alignments(shape(1, 1, 1, kN, kN, kH, kW), PointerAlignment::kVector), (MatmulAlignments{16, 16}));
  EXPECT_EQ(matmul_alignments(shape(1, 1, 1, kN, kN, kH, kW), PointerAlignment::kElement), (MatmulAlignments{2, 4}));
}

TEST(CublasLtLayout, ReductionsKeepTheContract) {
  const MatmulShape wide = shape(1, 1, 1, kN, kN, kH, kW), narrow = shape(1, 1, 1, kN, kN, kH, kH);
  for (const Determinism determinism : {Determinism::kRequired, Determinism::kNotRequired}) {
    const std::uint32_t of_bf16 = allowed_reductions(narrow, determinism);
    EXPECT_TRUE(reduction_allowed(of_bf16, CUBLASLT_REDUCTION_SCHEME_NONE));
    EXPECT_TRUE(reduction_allowed(of_bf16, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    EXPECT_FALSE(reduction_allowed(of_bf16, CUBLASLT_REDUCTION_SCHEME_INPLACE)) << "partial sums rounded to bf16";
    EXPECT_FALSE(reduction_allowed(of_bf16, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)) << "partial sums rounded to bf16";
  }
  EXPECT_FALSE(reduction_allowed(allowed_reductions(wide, Determinism::kRequired), CUBLASLT_REDUCTION_SCHEME_INPLACE));
  EXPECT_TRUE(reduction_allowed(allowed_reductions(wide, Determinism::kRequired), CUBLASLT_REDUCTION_SCHEME_NONE));
  EXPECT_TRUE(reduction_allowed(allowed_reductions(wide, Determinism::kNotRequired), CUBLASLT_REDUCTION_SCHEME_INPLACE));
}

TEST(CublasLtLayout, ProductsAreNamed) {
  EXPECT_EQ(describe(shape(4, 3, 8, kN, kT)), "matmul 4x3x8 nt f32->f32");
  EXPECT_EQ(describe(shape(4, 3, 8, kT, kN, kH, kW, Accumulate::kYes)), "matmul 4x3x8 tn bf16->f32 accumulated");
  EXPECT_EQ(describe(shape(4, 3, 8, kT, kN, kH, kW), Epilogue::kBiasGradient), "matmul 4x3x8 tn bf16->f32 with bgrad");
}

// A change of the call changes the key, and nothing else is in it.
TEST(CublasLtLayout, KeysDifferWhereCallsDo) {
  const MatmulShape base = shape(4, 16, 8, kN, kN, kH, kW);
  const auto key = [](const MatmulShape& s, Epilogue e = Epilogue::kNone, PointerAlignment p = PointerAlignment::kVector,
                      F32Products f = F32Products::kF32, Determinism d = Determinism::kRequired,
                      std::int64_t workspace = 32) { return plan_key(s, e, p, f, d, workspace); };
  EXPECT_EQ(key(base), "4x16x8 nn bf16->f32 beta=0 epilogue=none align=vector products=f32 deterministic workspace=32");
  EXPECT_EQ(key(base, Epilogue::kNone, PointerAlignment::kVector, F32Products::kTf32), key(base)) << "bf16 has no tf32";
  std::set<std::string> keys = {key(base)};
  const auto differs = [&](const std::string& text) { EXPECT_TRUE(keys.insert(text).second) << text; };
  for (const MatmulShape& s : {shape(5, 16, 8, kN, kN, kH, kW), shape(4, 17, 8, kN, kN, kH, kW), shape(4, 16, 9, kN, kN, kH, kW),
                               shape(4, 16, 8, kT, kN, kH, kW), shape(4, 16, 8, kN, kT, kH, kW), shape(4, 16, 8, kN, kN, kH, kH),
                               shape(4, 16, 8, kN, kN, kW, kW), shape(4, 16, 8, kN, kN, kH, kW, Accumulate::kYes)})
    differs(key(s));
  for (const Epilogue e : {Epilogue::kBias, Epilogue::kBiasGelu, Epilogue::kGeluBackward, Epilogue::kBiasGradient})
    differs(key(base, e));
  differs(key(base, Epilogue::kNone, PointerAlignment::kElement));
  differs(key(shape(4, 16, 8, kN, kN), Epilogue::kNone, PointerAlignment::kVector, F32Products::kTf32));
  differs(key(base, Epilogue::kNone, PointerAlignment::kVector, F32Products::kF32, Determinism::kNotRequired));
  differs(key(base, Epilogue::kNone, PointerAlignment::kVector, F32Products::kF32, Determinism::kRequired, 64));
}

std::string internal_error(const MatmulShape& s, Epilogue epilogue = Epilogue::kNone) {
  return error_of<InternalError>([&] { check_matmul_shape(s, epilogue); });
}

TEST(CublasLtLayout, MistakesAreNamed) {
  EXPECT_NO_THROW(check_matmul_shape(shape(4, 16, 8, kN, kN, kH, kH), Epilogue::kBiasGelu));
  EXPECT_NO_THROW(check_matmul_shape(shape(0, 3, 8, kN, kN), Epilogue::kNone));
  EXPECT_TRUE(contains(internal_error(shape(-1, 3, 8, kN, kN)), "matmul -1x3x8 nn f32->f32"));
  EXPECT_TRUE(contains(internal_error(shape(4, 3, 8, kN, kN, kW, kH)), "products are of f32, bf16 or f16"));
  EXPECT_TRUE(contains(internal_error(shape(4, 3, 8, kN, kN, DType::kF64, DType::kF64)), "products are of f32, bf16 or f16"));
}

TEST(CublasLtLayout, EpiloguesThatTheLibraryDoesNotTake) {
  constexpr Epilogue kAll[] = {Epilogue::kBias, Epilogue::kBiasGelu, Epilogue::kGeluBackward, Epilogue::kBiasGradient};
  for (const Epilogue e : kAll) {
    EXPECT_TRUE(allows(shape(4, 16, 8, kT, kN, kH, kW), e)) << describe(shape(4, 16, 8, kT, kN, kH, kW), e);
    for (const MatmulShape& empty : {shape(0, 16, 8, kT, kN), shape(4, 0, 8, kT, kN), shape(4, 16, 0, kT, kN)})
      EXPECT_FALSE(allows(empty, e)) << describe(empty, e);
    const bool has_aux = e == Epilogue::kBiasGelu || e == Epilogue::kGeluBackward;
    EXPECT_EQ(allows(shape(4, 12, 8, kT, kN), e), !has_aux) << "rows of no multiple of 8 elements";
    EXPECT_EQ(allows(shape(4, 16, 8, kT, kN, kH, kW, Accumulate::kYes), e), e == Epilogue::kBiasGradient)
        << "through the old values";
  }
  EXPECT_TRUE(allows(shape(0, 3, 0, kN, kN, kW, kW, Accumulate::kYes), Epilogue::kNone));
}

TEST(CublasLtLayout, ExtentsBeyondTheLibraryAreRefusedByName) {
  constexpr std::int64_t kMost = 2147483647;
  EXPECT_NO_THROW(check_matmul_shape(shape(kMost, kMost, kMost, kN, kN), Epilogue::kNone));
  const auto message = [](const MatmulShape& s) { return error_of<ConfigError>([&] { check_matmul_shape(s, Epilogue::kNone); }); };
  EXPECT_TRUE(contains(message(shape(kMost + 1, 2, 3, kN, kN)), "m = 2147483648 is more than cuBLASLt's 2147483647"));
  EXPECT_TRUE(contains(message(shape(1, kMost + 1, 3, kN, kN)), "n = 2147483648"));
  EXPECT_TRUE(contains(message(shape(1, 2, kMost + 1, kN, kN)), "k = 2147483648"));
}

// Choosing algorithms by timing: the choice, the file that remembers it, and what a product does with a remembered choice.

TEST(Autotune, TakesTheFastestProposal) {
  const auto choose = [](const std::vector<double>& times) {
    return fastest(times.size(), [&](std::size_t i) { return times[i]; });
  };
  EXPECT_EQ(choose({3, 1, 2})->index, 1u);
  EXPECT_EQ(choose({3, 1, 2})->seconds, 1.0);
  EXPECT_EQ(choose({2, 2, 2})->index, 0u) << "the library's order decides between equals";
  EXPECT_EQ(choose({std::numeric_limits<double>::quiet_NaN(), 5})->index, 1u);
  EXPECT_FALSE(choose({}));
  EXPECT_FALSE(choose({std::numeric_limits<double>::infinity()}));
}

TEST(Autotune, ProposalsThatTheLibraryRefusesAfterAllArePassedOver) {
  const auto best = fastest(3, [](std::size_t i) -> double {
    if (i == 0) throw ConfigError("refused");
    return i == 1 ? 4 : 3;
  });
  EXPECT_EQ(best->index, 2u);
  EXPECT_FALSE(fastest(2, [](std::size_t) -> double { throw InternalError("refused"); }));
}

Algorithm algorithm_with(std::uint64_t first) {
  Algorithm a;
  for (std::uint64_t& word : a.data.data) word = first++;
  return a;
}

TEST(Autotune, ChoicesComeBackFromTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/choices.json";
  {
    AlgorithmChoices choices(path, "GPU A", 130100);
    EXPECT_FALSE(choices.find("one"));
    EXPECT_FALSE(file_exists(path)) << "nothing to say yet";
    choices.add("one", algorithm_with(0xFEDCBA9876543210u), 2e-6);
    choices.add("two", algorithm_with(7), 3e-6);
    EXPECT_EQ(choices.find("one")->data.data[0], 0xFEDCBA9876543210u);
    choices.add("two", algorithm_with(8), 1.5e-6);
  }
  const AlgorithmChoices choices(path, "GPU A", 130100);
  ASSERT_TRUE(choices.find("one") && choices.find("two"));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(choices.find("one")->data.data[i], 0xFEDCBA9876543210u + i);
  EXPECT_EQ(choices.find("two")->data.data[0], 8u) << "the newer choice";
  EXPECT_FALSE(choices.find("three"));
  const JsonValue root = read_json_file(path);
  EXPECT_EQ(root.find("format")->as_integer(), 1);
  EXPECT_EQ(root.find("choices")->items().size(), 2u);
  EXPECT_EQ(root.find("choices")->items()[1].find("microseconds")->as_number(), 1.5);
}

TEST(Autotune, ChoicesOfOtherDevicesAndVersionsAreKeptAndNotUsed) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/choices.json";
  AlgorithmChoices(path, "GPU A", 130100).add("one", algorithm_with(1), 1e-6);
  AlgorithmChoices newer(path, "GPU A", 130200), other(path, "GPU B", 130100);
  EXPECT_FALSE(newer.find("one"));
  EXPECT_FALSE(other.find("one"));
  newer.add("one", algorithm_with(2), 1e-6);
  other.add("one", algorithm_with(3), 1e-6);
  EXPECT_EQ(AlgorithmChoices(path, "GPU A", 130100).find("one")->data.data[0], 1u);
  EXPECT_EQ(AlgorithmChoices(path, "GPU A", 130200).find("one")->data.data[0], 2u);
  EXPECT_EQ(AlgorithmChoices(path, "GPU B", 130100).find("one")->data.data[0], 3u);
}

TEST(Autotune, RanksAddToOneFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/choices.json";
  constexpr int kRanks = 4, kMatmuls = 8;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      AlgorithmChoices choices(path, "GPU A", 130100);
      for (int i = 0; i < kMatmuls; ++i) choices.add(fmt::format("{} of {}", i, rank), algorithm_with(1), 1e-6);
    });
  for (std::thread& r : ranks) r.join();
  EXPECT_EQ(read_json_file(path).find("choices")->items().size(), std::size_t{kRanks * kMatmuls});
}

TEST(Autotune, FilesThatAreNotOursAreRefusedByName) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/choices.json";
  const auto message = [&](std::string_view content) {
    write_file(path, content);
    return error_of<ConfigError>([&] { AlgorithmChoices(path, "GPU A", 130100); });
  };
  EXPECT_TRUE(contains(message("{"), path));
  EXPECT_TRUE(contains(message("[]"), "not a file of matrix product algorithms"));
  EXPECT_TRUE(contains(message(R"({"choices": []})"), "\"format\" must be an integer"));
  EXPECT_TRUE(contains(message(R"({"format": 2, "choices": []})"), "format 2, this program reads format 1; delete the file"));
  EXPECT_TRUE(contains(message(R"({"format": 1})"), "\"choices\" must be a list"));
  EXPECT_TRUE(contains(message(R"({"format": 1, "choices": [{"device": 3}]})"), "\"device\" must be a string"));
  for (const char* algorithm : {"", "zz", "0123"})
    EXPECT_TRUE(
        contains(message(fmt::format(R"({{"format": 1, "choices": [{{"device": "d", "library": 1, "product": "p", "algorithm": "{}",
                         "microseconds": 1}}]}})",
                                     algorithm)),
                 "must be 128 hexadecimal digits"));
  EXPECT_EQ(message(R"({"format": 1, "choices": []})"), "no error");
}

TEST(Autotune, AFileThatCannotBeWritten) {
  const TemporaryFolder folder;
  AlgorithmChoices choices(folder.path() + "/missing/choices.json", "GPU A", 130100);
  EXPECT_THROW(choices.add("one", algorithm_with(1), 1e-6), StorageError);
}

// ---- products

constexpr MatmulShape kProduct{32, 32, 64, Transpose::kNo, Transpose::kYes, DType::kBF16, DType::kBF16, Accumulate::kNo};

struct Tuned {
  explicit Tuned(const std::string& file, const CublasLtOptions& base = {}) : matmul(handle, with(base, file)) {}
  static CublasLtOptions with(CublasLtOptions options, const std::string& file) {
    options.autotune = AutotuneOptions{file, "GPU A", 16, 2};
    return options;
  }
  // The id of the algorithm that the product runs with.
  std::int32_t algorithm(const MatmulShape& s) {
    const DeviceTensor a(std::move(TestTensor(s.in, {s.m, s.k}).integers("a"))),
        b(std::move(TestTensor(s.in, {s.n, s.k}).integers("b"))), out(TestTensor(s.out, {s.m, s.n})),
        workspace(TestTensor(DType::kU8, {matmul.prepare(s)}));
    const TestStream stream;
    matmul.run(stream.get(), {out.view(), a.view(), s.transpose_a, b.view(), s.transpose_b, s.accumulate, workspace.view()});
    stream.synchronize();
    return simulated::cublaslt_counts().last_algorithm;
  }
  CublasLtHandle handle{0};
  CublasLtMatmul matmul;
};

// One candidate is asked for, and splits this sum of 776 terms into 12 parts: the library has to be asked for a whole sum.
TEST(Autotune, AnOnlyProposalThatMayDropTermsIsReplaced) {
  const TemporaryFolder folder;
  CublasLtOptions options;
  options.autotune = AutotuneOptions{folder.path() + "/choices.json", "GPU A", 1, 2};
  MatmulFixture f(options);
  check_exact(f, {40, 24, 776, kT, kN, kH, kW, Accumulate::kNo});
  EXPECT_NE(simulated::cublaslt_counts().last_algorithm, 72);
}

TEST(Autotune, EveryProposalIsTimedOnceAndRemembered) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/choices.json";
  std::int32_t chosen = 0;
  {
    Tuned first(path);
    const simulated::CublasLtCounts before = simulated::cublaslt_counts();
    first.matmul.prepare(kProduct);
    EXPECT_EQ(simulated::cublaslt_counts().heuristics, before.heuristics + 2);
    // Eight algorithms within the limits, each run once and then twice.
    EXPECT_EQ(simulated::cublaslt_counts().products, before.products + 8 * 3);
    chosen = first.algorithm(kProduct);
  }
  EXPECT_EQ(read_json_file(path).find("choices")->items().size(), 1u);
  Tuned second(path);
  const simulated::CublasLtCounts before = simulated::cublaslt_counts();
  EXPECT_EQ(second.algorithm(kProduct), chosen);
  EXPECT_EQ(simulated::cublaslt_counts().heuristics, before.heuristics + 1) << "only for operands that are not aligned";
  EXPECT_EQ(simulated::cublaslt_counts().products, before.products + 1) << "nothing was timed";
}

// Another algorithm than the library's first is taken because the file says so.
TEST(Autotune, TheRememberedAlgorithmRuns) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/choices.json";
  const CublasLtHandle handle(0);
  const std::string key = plan_key(kProduct, Epilogue::kNone, PointerAlignment::kVector, F32Products::kF32, Determinism::kRequired,
                                   CublasLtOptions().workspace_limit);
  CublasLtPlan plan(handle, matmul_layout(kProduct, Epilogue::kNone, F32Products::kF32), "a product");
  const std::vector<Algorithm> proposals = plan.ask({{16, 16}, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, std::int64_t{32} << 20}, 16);
  ASSERT_EQ(proposals.size(), 8u);
  std::vector<std::int32_t> ids;
  for (const Algorithm& proposal : proposals) {
    AlgorithmChoices(path, "GPU A", handle.library_version()).add(key, proposal, 1e-6);
    ids.push_back(Tuned(path).algorithm(kProduct));
  }
  EXPECT_EQ(ids, (std::vector<std::int32_t>{69, 70, 71, 20, 21, 22, 23, 13}));
}

// A file can say anything: what would break the rules of a product is timed anew.
TEST(Autotune, RememberedAlgorithmsObeyTheLimits) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/choices.json";
  const CublasLtHandle handle(0);
  const std::string key = plan_key(kProduct, Epilogue::kNone, PointerAlignment::kVector, F32Products::kF32, Determinism::kRequired,
                                   CublasLtOptions().workspace_limit);
  CublasLtPlan plan(handle, matmul_layout(kProduct, Epilogue::kNone, F32Products::kF32), "a product");
  const std::vector<Algorithm> all = plan.ask({{16, 16}, CUBLASLT_REDUCTION_SCHEME_MASK, std::int64_t{1} << 30}, 16);
  ASSERT_EQ(all.size(), 11u);
  // Sums in place, partial sums of bf16, 48 MiB of workspace, and bytes of no algorithm.
  for (const Algorithm& bad : {all[0], all[1], all[2], algorithm_with(1)}) {
    AlgorithmChoices(path, "GPU A", handle.library_version()).add(key, bad, 1e-6);
    const std::int32_t id = Tuned(path).algorithm(kProduct);
    EXPECT_TRUE(id < 66 || id > 68) << id;
    std::filesystem::remove(path);
  }
}

TEST(Autotune, TimingEndsNoCaptureOfAnotherRank) {
  const TemporaryFolder folder;
  const TestStream stream;
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  std::thread([&] { Tuned(folder.path() + "/choices.json").matmul.prepare(kProduct); }).join();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
  cudaGraphDestroy(graph);
}

TEST(Autotune, ProductsWithEpiloguesHaveChoicesOfTheirOwn) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/choices.json";
  Tuned tuned(path);
  MatmulShape gradient = kProduct;
  gradient.transpose_a = Transpose::kYes, gradient.out = DType::kF32;
  EXPECT_TRUE(tuned.matmul.prepare_fused(kProduct, Epilogue::kBiasGelu).has_value());
  EXPECT_TRUE(tuned.matmul.prepare_fused(kProduct, Epilogue::kGeluBackward).has_value());
  EXPECT_TRUE(tuned.matmul.prepare_fused(gradient, Epilogue::kBiasGradient).has_value());
  tuned.algorithm(kProduct);
  tuned.matmul.prepare({0, 32, 64, Transpose::kNo, Transpose::kYes, DType::kBF16, DType::kBF16, Accumulate::kNo});
  EXPECT_EQ(read_json_file(path).find("choices")->items().size(), 4u) << "and what is empty has none";
}

// When nothing can be timed the library's first proposal stays, and nothing is remembered.
TEST(Autotune, AProductThatCannotBeTimed) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/choices.json";
  Tuned tuned(path);
  for (int i = 0; i < 8; ++i) simulated::fail_next("cublasLtMatmul", CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(tuned.algorithm(kProduct), 69);
  EXPECT_FALSE(file_exists(path));
}

TEST(Autotune, TimingNeedsMemory) {
  const TemporaryFolder folder;
  Tuned tuned(folder.path() + "/choices.json");
  const simulated::Census before = simulated::census();
  simulated::configure({.total_bytes = std::size_t{1} << 20});
  const MatmulShape large{1024, 1024, 1024, Transpose::kNo, Transpose::kYes, DType::kF32, DType::kF32, Accumulate::kNo};
  const std::string message = error_of<ConfigError>([&] { tuned.matmul.prepare(large); });
  simulated::reset();
  EXPECT_TRUE(contains(message, "timing matmul 1024x1024x1024 nt f32->f32")) << message;
  EXPECT_EQ(simulated::census().allocations, before.allocations);
  EXPECT_EQ(simulated::census().streams, before.streams);
  EXPECT_EQ(simulated::census().events, before.events);
}

}  // namespace
}  // namespace trident
