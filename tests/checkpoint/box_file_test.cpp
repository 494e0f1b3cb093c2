#include "checkpoint/format/box_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "core/check.h"
#include "core/json_reader.h"
#include "tests/support/error_text.h"
#include "tests/support/safetensors.h"

namespace trident {
namespace {

// Hashes that differ from block to block.
std::vector<Hash128> some_hashes(std::int64_t count) {
  std::vector<Hash128> hashes;
  for (std::int64_t i = 0; i < count; ++i) hashes.push_back(hash128(fmt::format("block {}", i)));
  return hashes;
}

FileTable table_of(std::vector<FileBox> boxes, std::int64_t block_bytes = kBlockBytes) {
  FileTable table{std::move(boxes), {}, block_bytes};
  std::int64_t end = 0;
  for (FileBox& box : table.boxes) {
    box.begin = end;
    end += box.bytes();
  }
  table.blocks = some_hashes(table.num_blocks());
  return table;
}

FileTable small_table() {
  return table_of({{"model.norm.weight", DType::kBF16, {{4}, {8}}},
                   {"master/model.norm.weight", DType::kF32, {{4}, {8}}},
                   {"exp_avg/experts", DType::kF32, {{1, 0, 3}, {2, 30, 50}}},
                   {"scale", DType::kF32, {{}, {}}}},
                  4096);
}

FileTable parse(std::string_view text, const FileTable& table) {
  return parse_file_table(text, std::ssize(text) + table.data_bytes(), "dir/w-0.safetensors");
}

// `text` with `from` replaced by `to`, of any length, as the header of a file of that many data bytes. Both must be of the JSON
// alone.
std::string edited(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  while (text.size() % kDataAlignment != 0) text += ' ';
  if (text.size() > kDataAlignment) text.resize(text.find_last_not_of(' ') / kDataAlignment * kDataAlignment + kDataAlignment, ' ');
  const std::uint64_t length = text.size() - 8;
  std::copy_n(reinterpret_cast<const char*>(&length), 8, text.begin());
  return text;
}

TEST(FileTable, RoundTrips) {
  const FileTable table = small_table();
  EXPECT_EQ(table.num_blocks(), 3);
  const std::string text = to_text(table);
  EXPECT_EQ(std::ssize(text) % kDataAlignment, 0);
  EXPECT_EQ(parse(text, table), table);
  const FileTable empty = table_of({});
  EXPECT_EQ(parse(to_text(empty), empty), empty);
}

// What the description promises to other programs, seen by another reader.
TEST(FileTable, IsWhatOtherReadersExpect) {
  const FileTable table = small_table();
  const std::string text = to_text(table);
  const test::TensorMap tensors =
      test::parse_safetensors(text + std::string(static_cast<std::size_t>(table.data_bytes()), '\1'), "witness");
  EXPECT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors.at("exp_avg/experts").shape, (std::vector<std::int64_t>{2, 30, 50}));
  JsonRules rules;
  rules.max_bytes = text.size();
  const JsonValue root = parse_json(std::string_view(text).substr(8), "header", rules);
  const JsonValue& metadata = *root.find("__metadata__");
  EXPECT_EQ(metadata.find("format")->as_string(), "pt");
  EXPECT_EQ(metadata.find("DCP_VERSION")->as_string(), "1.0");
  EXPECT_EQ(metadata.find("DCP_SHARDING_INFO")->as_string(),
            R"({"model.norm.weight":{"saved_offsets":[4]},"master/model.norm.weight":{"saved_offsets":[4]},)"
            R"("exp_avg/experts":{"saved_offsets":[1,0,3]},"scale":{"saved_offsets":[]}})");
  EXPECT_EQ(metadata.find("trident.block_bytes")->as_string(), "4096");
  EXPECT_EQ(metadata.find("trident.blocks")->as_string(),
            to_string(hash128("block 0")) + to_string(hash128("block 1")) + to_string(hash128("block 2")));
}

TEST(FileTable, IsAsLongWhateverTheHashes) {
  FileTable table = small_table();
  const std::size_t size = to_text(table).size();
  for (const std::uint64_t bits : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1}}) {
    for (Hash128& hash : table.blocks) hash = {bits, ~bits};
    EXPECT_EQ(to_text(table).size(), size);
    EXPECT_EQ(parse(to_text(table), table), table);
  }
}

TEST(FileTable, WritesOnlyWhatCanBeRead) {
  FileTable table = small_table();
  table.blocks.pop_back();
  EXPECT_THROW(to_text(table), InternalError);
  table = small_table();
  table.boxes[1].key = table.boxes[0].key;
  EXPECT_THROW(to_text(table), InternalError);
  table = small_table();
  table.boxes[1].begin += 4;
  EXPECT_THROW(to_text(table), InternalError);
  table = small_table();
  table.boxes[1].box.offset = {};
  EXPECT_THROW(to_text(table), InternalError);
  table = small_table();
  table.block_bytes = 2 * kBlockBytes;
  table.blocks.resize(1);
  EXPECT_THROW(to_text(table), InternalError);
}

TEST(FileTable, RefusesWhatIsNoTable) {
  const FileTable table = small_table();
  const std::string text = to_text(table);
  const auto refused = [&](std::string_view from, std::string_view to, std::string_view because) {
    const std::string message = error_of<DataError>([&] { parse(edited(text, from, to), table); });
    EXPECT_TRUE(message.starts_with("dir/w-0.safetensors: ")) << message;
    EXPECT_TRUE(contains(message, because)) << message;
  };
  EXPECT_EQ(parse(edited(text, "1.0", "1.0"), table), table);  // the edit alone is harmless
  refused("DCP_SHARDING_INFO", "DCP_SHARDING_INGO", "DCP_SHARDING_INFO is missing");
  refused("trident.block_bytes", "trident.block_byte", "trident.block_bytes is missing");
  refused("trident.blocks", "trident.block", "trident.blocks is missing");
  refused(R"(,\"scale\":{\"saved_offsets\":[]})", "", "DCP_SHARDING_INFO has 3 tensors, the file 4");
  refused(R"(\"scale\":)", R"(\"scald\":)", "tensor \"scale\": DCP_SHARDING_INFO does not name it");
  refused(R"(\"scale\":)", R"(\"experts\":{\"saved_offsets\":[]},\"scale\":)", "has 5 tensors, the file 4");
  refused(R"(\"scale\":{\"saved)", R"(\"exp_avg/experts\":{\"saved)", "duplicate key");
  refused("saved_offsets", "saved_offset", "tensor \"model.norm.weight\": saved_offsets is not a list");
  refused("[1,0,3]", "[1,0]", "tensor \"exp_avg/experts\": 2 offsets, 3 dimensions");
  refused("[1,0,3]", "[1,0,3,0]", "4 offsets, 3 dimensions");
  refused("[1,0,3]", "[1,0,-3]", "tensor \"exp_avg/experts\": saved_offsets holds something that is not an offset");
  refused("[1,0,3]", "[1,0,3.0]", "not an offset");
  refused("[1,0,3]", "[1,0,9223372036854775800]", "not an offset");  // the end overflows
  refused("[1,0,3]", "[1,0,3", "not valid JSON");
  for (const char* bytes : {"", "0", "4095", "4194305", "+4096", "4096 ", "-4096", "0x1000", "99999999999999999999"})
    refused("\"4096\"", fmt::format("\"{}\"", bytes), "trident.block_bytes is ");
  refused("\"4096\"", "\"8192\"", "trident.blocks has 96 digits, 2 blocks have 32 each");
  const std::string first = to_string(table.blocks[0]);
  refused(first, first.substr(1), "trident.blocks has 95 digits, 3 blocks");
  refused(first, "", "trident.blocks has 64 digits, 3 blocks");
  refused(first, "A" + first.substr(1), "is not a hash");
}

TEST(FileTable, SizesMustFit) {
  const FileTable table = small_table();
  const std::string text = to_text(table);
  const std::int64_t size = std::ssize(text) + table.data_bytes();
  for (const std::int64_t wrong : {size - 1, size + 1, std::ssize(text), std::int64_t{9}, std::int64_t{0}})
    EXPECT_NE(error_of<DataError>([&] { parse_file_table(text, wrong, "x"); }), "no error") << wrong;
  // Data that do not begin where direct I/O can.
  std::string shorter = text.substr(0, text.size() - 8);
  const std::uint64_t length = shorter.size() - 8;
  std::copy_n(reinterpret_cast<const char*>(&length), 8, shorter.begin());
  EXPECT_TRUE(contains(error_of<DataError>([&] { parse(shorter, table); }), "not a multiple of 4096"));
}

// As a checkpoint sees it: the table's hash stands in the manifest, and whatever has it is the table.
TEST(FileTable, EveryFlippedBitAndEveryTruncationIsFound) {
  const FileTable table = table_of({{"a", DType::kF32, {{0}, {3}}}, {"b", DType::kF32, {{0, 2}, {2, 2}}}});
  const std::string text = to_text(table);
  const Hash128 expected = hash128(text);
  std::string flipped = text;
  std::int64_t refused_by_itself = 0, bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      flipped[i] = static_cast<char>(text[i] ^ (1 << bit));
      EXPECT_NE(hash128(flipped), expected) << i;
      ++bits;
      // Nothing but a DataError may come out of reading it all the same.
      refused_by_itself += error_of<DataError>([&] { parse(flipped, table); }) != "no error";
    }
    flipped[i] = text[i];
  }
  EXPECT_EQ(bits, 8 * std::ssize(text));
  EXPECT_GT(refused_by_itself, 0);
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_NE(hash128(text.substr(0, size)), expected);
    EXPECT_NE(error_of<DataError>([&] { parse(text.substr(0, size), table); }), "no error") << size;
  }
}

// Beyond the convenient size: 70 GB of data in 17,000 blocks, 10,000 boxes.
TEST(FileTable, OfALargeFile) {
  std::vector<FileBox> boxes;
  for (int i = 0; i < 10'000; ++i)
    boxes.push_back({fmt::format("exp_avg_sq/model.layers.{}.mlp.down_proj.weight", i), DType::kF32, {{i, 0}, {1750, 1000}}});
  const FileTable table = table_of(std::move(boxes));
  EXPECT_GT(table.data_bytes(), std::int64_t{1} << 36);
  EXPECT_EQ(table.num_blocks(), (table.data_bytes() + kBlockBytes - 1) / kBlockBytes);
  EXPECT_EQ(parse(to_text(table), table), table);
}

}  // namespace
}  // namespace trident
