// Choosing algorithms by timing: the choice, the file that remembers it, and what a product does with a remembered choice.
#include "device/cuda/cublaslt_autotune.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <thread>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "device/cuda/cublaslt_choices.h"
#include "device/cuda/cublaslt_handle.h"
#include "device/cuda/cublaslt_matmul.h"
#include "tests/cuda/device_tensor.h"
#include "tests/cuda/simulated/cublaslt.h"
#include "tests/cuda/simulated/runtime.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

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
    matmul.run(stream.get(), out.view(), a.view(), s.transpose_a, b.view(), s.transpose_b, s.accumulate, workspace.view());
    stream.synchronize();
    return simulated::cublaslt_counts().last_algorithm;
  }
  CublasLtHandle handle{0};
  CublasLtMatmul matmul;
};

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
