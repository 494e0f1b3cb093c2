#include "tests/support/safetensors.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>

#include "core/bf16.h"
#include "core/check.h"
#include "tests/support/error_text.h"

namespace trident::test {
namespace {

// The file of two tensors as the Rust crate writes it: a = F32 [1, 2], b = BF16 [[1, 2, 3]].
std::string golden() {
  const std::string_view hex =
      "90000000000000007b225f5f6d657461646174615f5f223a7b22666f726d6174223a227074227d2c2261223a7b226474797065223a22463332222c227368"
      "6170"
      "65223a5b325d2c22646174615f6f666673657473223a5b302c385d7d2c2262223a7b226474797065223a2242463136222c227368617065223a5b312c335d"
      "2c22"
      "646174615f6f666673657473223a5b382c31345d7d7d20200000803f00000040803f00404040";
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

std::string file_of(std::string_view header, std::string_view data) {
  const std::uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size).append(header).append(data);
}

TEST(Safetensors, ReadsTheGoldenFile) {
  const TensorMap tensors = parse_safetensors(golden(), "golden");
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors.at("a").shape, std::vector<std::int64_t>{2});
  EXPECT_EQ(tensors.at("a").values<float>(), (std::vector<float>{1.0f, 2.0f}));
  EXPECT_EQ(tensors.at("b").shape, (std::vector<std::int64_t>{1, 3}));
  const std::vector<bf16> b = tensors.at("b").values<bf16>();
  EXPECT_EQ(to_float(b[2]), 3.0f);
  EXPECT_THROW(tensors.at("a").values<std::int64_t>(), InternalError);
}

TEST(Safetensors, WritesTheGoldenBytes) { EXPECT_EQ(to_safetensors(parse_safetensors(golden(), "golden")), golden()); }

TEST(Safetensors, FilesRoundTrip) {
  TensorMap tensors;
  tensors["scalar"] = NamedTensor::of<float>({}, {2.5f});
  tensors["empty"] = NamedTensor::of<float>({0, 4}, {});
  tensors["ids"] = NamedTensor::of<std::int64_t>({2, 2}, {1, -2, 3, std::int64_t{1} << 40});
  tensors["small"] = NamedTensor::of<std::int32_t>({3}, {7, 8, -9});
  tensors["half"] = NamedTensor::of<bf16>({2}, {to_bf16(1.0f), to_bf16(-0.5f)});
  const std::string path = std::filesystem::temp_directory_path() / fmt::format("trident_safetensors_{}.safetensors", getpid());
  write_safetensors(path, tensors);
  const TensorMap back = read_safetensors(path);
  std::filesystem::remove(path);
  ASSERT_EQ(back.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(back.at(name).dtype, tensor.dtype) << name;
    EXPECT_EQ(back.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(back.at(name).data, tensor.data) << name;
  }
}

TEST(Safetensors, RefusesDamagedFiles) {
  const auto refused = [](const std::string& bytes, std::string_view because) {
    expect_parts(error_of<DataError>([&] { parse_safetensors(bytes, "dir/x.safetensors"); }), {"dir/x.safetensors", because});
  };
  const std::string good = golden();
  refused("abc", "not a safetensors file");
  refused(good.substr(0, 100), "truncated");
  refused(good.substr(0, good.size() - 1), "truncated");
  refused(good + "x", "after the last tensor");
  refused(file_of("[1]", ""), "no JSON object");
  refused(file_of("{nonsense", ""), "x.safetensors");
  const std::string four(4, '\0'), eight(8, '\0');
  refused(file_of(R"({"t":{"shape":[1],"data_offsets":[0,4]}})", four), "no dtype");
  refused(file_of(R"({"t":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", eight), "not supported");
  refused(file_of(R"({"t":{"dtype":"F32","shape":[1]}})", four), "data_offsets is not a list");
  refused(file_of(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[4]}})", four), "not a range");
  refused(file_of(R"({"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", four), "not a size");
  refused(file_of(R"({"t":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", four), "not a size");
  refused(file_of(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", four), "needs 8 bytes");
  refused(file_of(R"({"t":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", four), "too large");
  refused(file_of(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight), "begins at 4");
  refused(file_of(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"u":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                  four),
          "begins at 0");
}

TEST(ExpectParts, APartThatIsMissingIsAFailure) {
  expect_parts("one two", {"one", "two"});
  EXPECT_NONFATAL_FAILURE(expect_parts("one two", {"one", "three"}), "no \"three\" in: one two");
}

}  // namespace
}  // namespace trident::test
