#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/format/safetensors.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/hf_shard_reader.h"
#include "core/check.h"
#include "core/file_io.h"
#include "model/config/hf_tensors.h"
#include "model/config/model_presets.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/support/safetensors.h"

namespace trident {
namespace {

// The file of two tensors as the Rust crate writes it: a = F32 [2] of 1, 2; b = BF16 [1, 3] of 1, 2, 3.
constexpr std::string_view kGolden =
    "90000000000000007b225f5f6d657461646174615f5f223a7b22666f726d6174223a227074227d2c2261223a7b226474"
    "797065223a22463332222c227368617065223a5b325d2c22646174615f6f666673657473223a5b302c385d7d2c226222"
    "3a7b226474797065223a2242463136222c227368617065223a5b312c335d2c22646174615f6f666673657473223a5b38"
    "2c31345d7d7d20200000803f00000040803f00404040";

std::string golden() {
  std::string bytes;
  for (std::size_t i = 0; i < kGolden.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(kGolden.substr(i, 2)), nullptr, 16)));
  return bytes;
}

SafetensorsHeader golden_header() {
  return {{{"format", "pt"}}, {{"a", DType::kF32, {2}, 0, 8}, {"b", DType::kBF16, {1, 3}, 8, 14}}};
}

// The header of a whole file.
SafetensorsHeader header_of(std::string_view file) {
  const std::int64_t size = std::ssize(file);
  const std::int64_t bytes = safetensors_header_bytes(file.substr(0, 8), size, "dir/x.safetensors");
  return parse_safetensors_header(file.substr(8, static_cast<std::size_t>(bytes)), size - 8 - bytes, "dir/x.safetensors");
}

std::string file_of(std::string_view json, std::size_t data_bytes) {
  const std::uint64_t size = json.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size).append(json).append(data_bytes, '\0');
}

// The header of `json` and that much data is refused, by a message that names the file and says why.
void refused(std::string_view json, std::size_t data_bytes, std::string_view because) {
  const std::string message = error_of<DataError>([&] { header_of(file_of(json, data_bytes)); });
  EXPECT_TRUE(message.starts_with("dir/x.safetensors")) << message << " for " << json.substr(0, 200);
  EXPECT_TRUE(contains(message, because)) << message << " for " << json.substr(0, 200);
}

TEST(SafetensorsHeader, ReadsTheGoldenFile) { EXPECT_EQ(header_of(golden()), golden_header()); }

TEST(SafetensorsHeader, WritesTheGoldenBytes) {
  const std::string file = golden();
  ASSERT_EQ(file.size(), 166u);
  EXPECT_EQ(to_text(golden_header()) + file.substr(file.size() - 14), file);
}

TEST(SafetensorsHeader, DataBeginAtTheAlignment) {
  for (const std::int64_t alignment : {8, 64, 4096}) {
    const std::string text = to_text(golden_header(), alignment);
    EXPECT_EQ(std::ssize(text) % alignment, 0);
    EXPECT_LT(std::ssize(text), 152 + alignment);
    EXPECT_EQ(header_of(text + std::string(14, '\0')), golden_header());
  }
  // No more spaces than needed, whatever the length of the text.
  for (std::size_t more = 0; more < 8; ++more) {
    SafetensorsHeader header = golden_header();
    header.entries[0].name += std::string(more, 'x');
    EXPECT_EQ(to_text(header).size(), 8 + (142 + more + 7) / 8 * 8) << more;
  }
  EXPECT_THROW(to_text(golden_header(), 4), InternalError);
  EXPECT_THROW(to_text(golden_header(), 24), InternalError);
}

TEST(SafetensorsHeader, AnotherReaderAgrees) {
  SafetensorsHeader header{{{"format", "pt"}, {"more", "\"quoted\" \\ \n \x01 \xC3\xA9"}}, {}};
  std::int64_t end = 0;
  const auto add = [&](std::string name, DType dtype, std::vector<std::int64_t> shape, std::int64_t bytes) {
    header.entries.push_back({std::move(name), dtype, std::move(shape), end, end + bytes});
    end += bytes;
  };
  add("scalar", DType::kI64, {}, 8);
  add("empty", DType::kF32, {0, 7}, 0);
  add("name with \"quotes\" and \xE2\x82\xAC", DType::kF32, {3, 2}, 24);
  add("many", DType::kI32, {1, 1, 2, 1, 2}, 16);
  add("last", DType::kBF16, {5}, 10);
  const std::string file = to_text(header) + std::string(static_cast<std::size_t>(end), '\7');
  EXPECT_EQ(header_of(file), header);
  const test::TensorMap tensors = test::parse_safetensors(file, "witness");
  ASSERT_EQ(tensors.size(), header.entries.size());
  for (const SafetensorsEntry& entry : header.entries) {
    EXPECT_EQ(tensors.at(entry.name).shape, entry.shape);
    EXPECT_EQ(tensors.at(entry.name).dtype, entry.dtype);
    EXPECT_EQ(std::ssize(tensors.at(entry.name).data), entry.end - entry.begin);
  }
  // And the other way: what the other one writes, in its own order.
  const SafetensorsHeader back = header_of(test::to_safetensors(tensors));
  EXPECT_EQ(back.entries.size(), header.entries.size());
  EXPECT_EQ(back.data_bytes(), header.data_bytes());
}

TEST(SafetensorsHeader, OfAnUnknownTypeTheOffsetsCount) {
  const SafetensorsHeader header{{}, {{"t", DType::kF32, {7}, 0, 3, "f32"}, {"u", DType::kF32, {1}, 3, 7}}};
  EXPECT_EQ(header_of(to_text(header) + "1234567"), header);
}

// No values of most of these types are ever read; each tensor has eight of them.
TEST(SafetensorsHeader, EveryTypeOfTheFormatHasItsSize) {
  SafetensorsHeader header;
  for (const auto& [name, bytes] : {std::pair{"BOOL", 8},
                                    {"F4", 4},
                                    {"F6_E2M3", 6},
                                    {"F6_E3M2", 6},
                                    {"I8", 8},
                                    {"F8_E5M2", 8},
                                    {"F8_E4M3", 8},
                                    {"F8_E8M0", 8},
                                    {"F8_E4M3FNUZ", 8},
                                    {"F8_E5M2FNUZ", 8},
                                    {"I16", 16},
                                    {"U32", 32},
                                    {"C64", 64},
                                    {"U64", 64}}) {
    const std::int64_t begin = header.data_bytes();
    header.entries.push_back({name, DType::kF32, {2, 4}, begin, begin + bytes, name});
  }
  EXPECT_EQ(header_of(to_text(header) + std::string(static_cast<std::size_t>(header.data_bytes()), 'x')), header);
}

TEST(SafetensorsHeader, EveryTypeHasItsName) {
  SafetensorsHeader header;
  std::int64_t end = 0;
  for (const DType dtype :
       {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64, DType::kI32, DType::kU16, DType::kU8}) {
    header.entries.push_back({std::string(to_string(dtype)), dtype, {3}, end, end + 3 * size_of(dtype)});
    end = header.entries.back().end;
    // "f32" is F32, and so on.
    std::string upper(to_string(dtype));
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    EXPECT_EQ(safetensors_name(dtype), upper);
  }
  EXPECT_EQ(header_of(to_text(header) + std::string(static_cast<std::size_t>(end), 'x')), header);
}

TEST(SafetensorsHeader, OrderOfTheTextDoesNotMatter) {
  const std::string json = R"({"b":{"data_offsets":[8,14],"shape":[1,3],"dtype":"BF16"},"__metadata__":{"format":"pt"},)"
                           R"("a":{"dtype":"F32","data_offsets":[0,8],"shape":[2]}} )";
  EXPECT_EQ(header_of(file_of(json, 14)), golden_header());
}

// The reference reader's rejections, in its order.
TEST(SafetensorsHeader, RefusesWhatTheReferenceRefuses) {
  const auto length_refused = [](std::string_view file, std::int64_t file_bytes, std::string_view because) {
    const std::string message = error_of<DataError>([&] { safetensors_header_bytes(file, file_bytes, "dir/x.safetensors"); });
    EXPECT_TRUE(message.starts_with("dir/x.safetensors: ")) << message;
    EXPECT_TRUE(contains(message, because)) << message;
  };
  // 1. The length.
  length_refused("", 0, "a file of 0 bytes is not a safetensors file");
  length_refused("1234567", 7, "a file of 7 bytes is not a safetensors file");
  const auto length = [](std::uint64_t n) { return std::string(reinterpret_cast<const char*>(&n), sizeof n); };
  length_refused(length(100'000'001), 200'000'000, "a header of 100000001 bytes");
  EXPECT_EQ(safetensors_header_bytes(length(100'000'000), 100'000'008, "x"), 100'000'000);
  length_refused(length(100'000'000), 100'000'007, "truncated");
  for (const std::uint64_t huge : {~std::uint64_t{0}, ~std::uint64_t{7}, std::uint64_t{1} << 63, (std::uint64_t{1} << 63) - 8})
    length_refused(length(huge), 1000, "a header of");  // 8 + N overflows, or nearly
  length_refused(length(0), 8, "a header of 0 bytes");
  length_refused(length(1), 9, "a header of 1 bytes");
  EXPECT_EQ(safetensors_header_bytes(length(2), 10, "x"), 2);
  // 2. The text.
  refused("{\"a\xFF\":{}}", 0, "not valid JSON");
  refused("{nonsense", 0, "not valid JSON");
  refused("{}x", 0, "not valid JSON");
  refused(R"({"t":7})", 0, "not an object");
  refused(R"({"t":{"shape":[1],"data_offsets":[0,4]}})", 4, "no dtype");
  refused(R"({"t":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4, "no dtype");
  refused(R"({"t":{"dtype":"","shape":[1],"data_offsets":[0,4]}})", 4, "no dtype");
  refused(R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", 4, "shape is not a list");
  refused(R"({"t":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "shape is not a list");
  refused(R"({"t":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4, "shape holds something that is not a size");
  refused(R"({"t":{"dtype":"F32","shape":[1]}})", 4, "data_offsets is not a list");
  refused(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "data_offsets is not a range");
  refused(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "data_offsets is not a range");
  refused(R"({"__metadata__":{"format":7}})", 0, "\"format\" is not a text");
  refused(R"({"__metadata__":["pt"]})", 0, "__metadata__ is not an object");
  // 3. The places.
  refused(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "data_offsets is not a range");
  refused(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "tensor \"t\": begins at 4");
  refused(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"u":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
          "tensor \"u\": begins at 0, the tensor before it ends at 4");
  refused(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"u":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8,
          "tensor \"u\": begins at 4");
  refused(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"u":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})", 12,
          "tensor \"u\": begins at 8, the tensor before it ends at 4");
  // 4. The sizes.
  refused(R"({"t":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", 4, "too large");
  refused(R"({"t":{"dtype":"F64","shape":[1152921504606846976],"data_offsets":[0,0]}})", 0, "too large");
  refused(R"({"t":{"dtype":"F32","shape":[3037000500,3037000500,0],"data_offsets":[0,0]}})", 0, "too large");
  refused(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "its shape needs 8 bytes, data_offsets give 4");
  refused(R"({"t":{"dtype":"F32","shape":[],"data_offsets":[0,0]}})", 0, "its shape needs 4 bytes");
  // 5. The end.
  refused(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "tensor \"t\": ends at 4, the data have 3 bytes");
  refused(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "1 bytes after the last tensor");
  refused("{}", 1, "1 bytes after the last tensor");
}

TEST(SafetensorsHeader, RefusesMore) {
  refused(R"( {"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "no JSON object");
  refused("[1]", 0, "no JSON object");
  refused(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8,
          "duplicate key \"t\"");
  refused(R"({"t":{"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]}})", 4, "duplicate key \"dtype\"");
  refused(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"\u0074":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8,
          "duplicate key");
  refused(R"({"__metadata__":{"a":"1","a":"2"}})", 0, "duplicate key \"a\"");
  for (const char* number : {"1.0", "1e0", "-0", "-1", "0x1", "01", "99999999999999999999", "true", "null", "[1]"}) {
    refused(fmt::format(R"({{"t":{{"dtype":"F32","shape":[{}],"data_offsets":[0,4]}}}})", number), 4, "dir/x.safetensors");
    refused(fmt::format(R"({{"t":{{"dtype":"F32","shape":[1],"data_offsets":[{},4]}}}})", number), 4, "dir/x.safetensors");
  }
  refused(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[-0,4]}})", 4, "a negative number at byte 48");
  EXPECT_NO_THROW(header_of(file_of(R"({"a-b\"-":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4)));
  refused(R"({"t":{"dtype":"BOOL","shape":[4],"data_offsets":[0,3]}})", 3, "tensor \"t\": its shape needs 4 bytes");
  refused(R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2, "its shape makes no whole number of bytes");
  refused(R"({"t":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 5, "1 bytes after the last tensor");
  const auto with_name = [](std::size_t bytes) {
    return fmt::format(R"({{"{}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}})", std::string(bytes, 'n'));
  };
  EXPECT_NO_THROW(header_of(file_of(with_name(4096), 4)));
  refused(with_name(4097), 4, "a name of more than 4096 bytes");
  const auto with_rank = [](int rank) {
    std::string ones = "1";
    for (int i = 1; i < rank; ++i) ones += ",1";
    return fmt::format(R"({{"t":{{"dtype":"F32","shape":[{}],"data_offsets":[0,4]}}}})", ones);
  };
  EXPECT_NO_THROW(header_of(file_of(with_rank(16), 4)));
  refused(with_rank(17), 4, "more than 16 dimensions");
  refused("{\"t\":" + std::string(100, '[') + std::string(100, ']') + "}", 0, "nested deeper");
  refused("{\"t\":{\"dtype\":\"F32\",/**/\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "not valid JSON");
  // A message stays one line whatever the name.
  const std::string message = error_of<DataError>([] { header_of(file_of("{\"\\u001b[31m\\n\":7}", 0)); });
  EXPECT_EQ(message.find_first_of("\n\x1b"), std::string::npos) << message;
}

TEST(SafetensorsHeader, RefusesEveryTruncation) {
  const std::string file = golden();
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(error_of<DataError>([&] { header_of(file.substr(0, size)); }), "no error") << size;
}

TEST(SafetensorsHeader, WritesOnlyWhatCanBeRead) {
  SafetensorsHeader header = golden_header();
  header.entries[1].begin = 9;
  EXPECT_THROW(to_text(header), InternalError);
  header = golden_header();
  header.entries[0].begin = 1;
  EXPECT_THROW(to_text(header), InternalError);
}

// Beyond the convenient size: 20,000 tensors, of more than 4 TB.
TEST(SafetensorsHeader, ManyLargeTensorsAreCounted) {
  SafetensorsHeader header;
  std::int64_t end = 0;
  for (int i = 0; i < 20'000; ++i) {
    header.entries.push_back(
        {fmt::format("model.layers.{}.weight", i), DType::kF32, {8192, 8192}, end, end + (std::int64_t{8192 * 8192} << 2)});
    end = header.entries.back().end;
  }
  const std::string text = to_text(header);
  EXPECT_GT(end, std::int64_t{4} << 40);
  EXPECT_EQ(parse_safetensors_header(std::string_view(text).substr(8), end, "x"), header);
  const std::string message =
      error_of<DataError>([&] { parse_safetensors_header(std::string_view(text).substr(8), end - 1, "dir/x.safetensors"); });
  EXPECT_TRUE(contains(message, "tensor \"model.layers.19999.weight\"")) << message;
}

// Folders of Hugging Face's form whose files change between the look at their headers and the reading of values.

constexpr std::int64_t kElements = 100'000;  // of each of two tensors; more than one read takes

class HfFolderThatChanges : public ::testing::Test {
 protected:
  // Two tensors of f32, full of 1 and of 2, in the order of `names`.
  void write(const std::vector<std::string>& names) const {
    SafetensorsHeader header{{{"format", "pt"}}, {}};
    std::vector<float> values;
    for (const std::string& name : names) {
      const std::int64_t begin = header.data_bytes();
      header.entries.push_back({name, DType::kF32, {kElements}, begin, begin + kElements * 4});
      values.insert(values.end(), kElements, name == "one" ? 1.0f : 2.0f);
    }
    const std::string path = folder_ / "model.safetensors", text = to_text(header);
    std::ofstream file(path + ".new", std::ios::binary);
    file << text;
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
    file.close();
    std::filesystem::rename(path + ".new", path);
  }
  std::shared_ptr<const HfFolder> open() const {
    const std::vector<ManifestTensor> expected{{"one", {kElements}}, {"two", {kElements}}};
    return std::make_shared<HfFolder>(folder_.path(), expected, [](std::string_view name) {
      return HfName{HfNameKind::kTensor, std::string(name)};
    });
  }
  static std::vector<float> read(HfShardReader& reader, const std::string& name) {
    std::vector<float> values(kElements);
    ShardBox box;
    box.columns = kElements;
    box.tensor = name;
    box.tensor_shape = {kElements};
    box.box = {{0}, {kElements}};
    reader.read(box, TensorView(values.data(), DType::kF32, {kElements}));
    return values;
  }
  TemporaryFolder folder_;
};

TEST_F(HfFolderThatChanges, IsReadWhileItStays) {
  write({"one", "two"});
  HfShardReader reader(open());
  EXPECT_EQ(read(reader, "two"), std::vector<float>(kElements, 2.0f));
  EXPECT_EQ(read(reader, "one"), std::vector<float>(kElements, 1.0f));
}

TEST_F(HfFolderThatChanges, IsRefusedByTheNameOfTheFile) {
  write({"one", "two"});
  HfShardReader reader(open());
  write({"two", "one"});  // as long, and its tensors of the same shapes
  expect_error<DataError>([&] { read(reader, "one"); }, {folder_ / "model.safetensors", "was replaced while the run started"});
  std::filesystem::resize_file(folder_ / "model.safetensors", 4 * kElements);
  expect_error<DataError>([&] { read(reader, "one"); }, {folder_ / "model.safetensors"});
  std::filesystem::resize_file(folder_ / "model.safetensors", 3);
  expect_error<DataError>([&] { read(reader, "one"); }, {folder_ / "model.safetensors"});
}

TEST(HfFolder, OfMoreTensorsThanAnyModelHasIsRefused) {
  std::size_t most = 0;
  for (const std::string_view name : model_preset_names()) {
    ModelConfig model = model_preset(name, "preset");
    model.layers = 4096;
    EXPECT_NO_THROW(validate(model, name));
    most = std::max(most, hf_tensors(model).size());
  }
  EXPECT_GT(most, 12 * 4096u);
  EXPECT_LE(most, kMaxTensors);

  const TemporaryFolder folder;
  SafetensorsHeader header;
  for (std::size_t i = 0; i <= kMaxTensors; ++i) header.entries.push_back({fmt::format("{}", i), DType::kF32, {0}, 0, 0});
  write_file(folder / "model.safetensors", to_text(header));
  const auto unknown = [](std::string_view) { return HfName{HfNameKind::kUnknown, ""}; };
  expect_error<DataError>([&] { HfFolder(folder.path(), {}, unknown); }, {"model.safetensors: more than 65536 tensors"});
  header.entries.pop_back();
  write_file(folder / "model.safetensors", to_text(header));
  expect_error<DataError>([&] { HfFolder(folder.path(), {}, unknown); }, {"has tensor \"0\", which the model"});
}

}  // namespace
}  // namespace trident
