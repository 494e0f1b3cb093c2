#include "checkpoint/format/box_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>

#include "checkpoint/box_reader.h"
#include "core/check.h"
#include "core/json_reader.h"
#include "tests/checkpoint/small_checkpoint.h"
#include "tests/data/temporary_folder.h"
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
  text = replaced(std::move(text), from, to);
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

// Another reader sees what the description promises to other programs.
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
  // Behind the JSON there are 3,000 spaces, any of which is as good as the others.
  const std::size_t end = text.find_last_not_of(' ');
  const auto is_read = [end](std::size_t byte) { return byte <= end + 1 || byte % 64 == 0; };
  std::string flipped = text;
  std::int64_t refused_by_itself = 0, bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      flipped[i] = static_cast<char>(text[i] ^ (1 << bit));
      EXPECT_NE(hash128(flipped), expected) << i;
      ++bits;
      // Nothing but a DataError may come out of reading it all the same.
      if (is_read(i)) refused_by_itself += error_of<DataError>([&] { parse(flipped, table); }) != "no error";
    }
    flipped[i] = text[i];
  }
  EXPECT_EQ(bits, 8 * std::ssize(text));
  EXPECT_GT(refused_by_itself, 0);
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_NE(hash128(text.substr(0, size)), expected);
    EXPECT_TRUE(!is_read(size) || error_of<DataError>([&] { parse(text.substr(0, size), table); }) != "no error") << size;
  }
}

// Beyond the convenient size: 70 GB of data in 17,000 blocks, 10,000 boxes.
TEST(FileTable, ALargeFileHasItsTable) {
  std::vector<FileBox> boxes;
  for (int i = 0; i < 10'000; ++i)
    boxes.push_back({fmt::format("exp_avg_sq/model.layers.{}.mlp.down_proj.weight", i), DType::kF32, {{i, 0}, {1750, 1000}}});
  const FileTable table = table_of(std::move(boxes));
  EXPECT_GT(table.data_bytes(), std::int64_t{1} << 36);
  EXPECT_EQ(table.num_blocks(), (table.data_bytes() + kBlockBytes - 1) / kBlockBytes);
  EXPECT_EQ(parse(to_text(table), table), table);
}

// A file of three tensors and five blocks: "a" has bytes 0 .. 6000, "b" to 6400, "c" to 18400; block 1 has some of each.
class BoxReading : public ::testing::Test {
 protected:
  BoxReading() {
    Manifest manifest;
    manifest.tensors = {{"a", {1500}}, {"b", {100}}, {"c", {3000}}};
    manifest_ = test::write_checkpoint(
        folder_.path(), manifest,
        {{"weights/w.safetensors",
          {{"a", DType::kF32, {{0}, {1500}}}, {"b", DType::kF32, {{0}, {100}}}, {"c", DType::kF32, {{0}, {3000}}}}}});
  }

  const ManifestFile& file() const { return manifest_.files[0]; }
  std::string path() const { return folder_ / "weights/w.safetensors"; }
  // Counts the calls that read.
  BoxReader reader() {
    reads_ = 0;
    return BoxReader(folder_.path(), file(), [this](int descriptor, void* out, std::size_t bytes, off_t offset) {
      ++reads_;
      return ::pread(descriptor, out, bytes, offset);
    });
  }
  static std::string read(BoxReader& reader, std::int64_t begin, std::int64_t bytes) {
    std::string out(static_cast<std::size_t>(bytes), '?');
    reader.read(begin, std::as_writable_bytes(std::span(out)));
    return out;
  }
  // The data as they lie in the file.
  std::string data() const { return read_file(path()).substr(static_cast<std::size_t>(file().table_bytes)); }
  void flip(std::int64_t byte, int bit = 0) const {
    std::string content = read_file(path());
    content[static_cast<std::size_t>(byte)] = static_cast<char>(content[static_cast<std::size_t>(byte)] ^ (1 << bit));
    write_file(path(), content);
  }

  TemporaryFolder folder_;
  Manifest manifest_;
  int reads_ = 0;
};

TEST_F(BoxReading, AnyBytesAreRead) {
  BoxReader boxes = reader();
  EXPECT_EQ(boxes.table().boxes.size(), 3u);
  EXPECT_EQ(boxes.table().data_bytes(), 18'400);
  const std::string expected = data();
  // Within, at and across the ends of blocks, backwards too.
  for (const std::int64_t begin : {0, 1, 4095, 4096, 4097, 8192, 12'000, 16'384, 18'399, 18'400, 5, 0})
    for (const std::int64_t bytes : {0, 1, 2, 4095, 4096, 4097, 9000, 18'400}) {
      if (begin + bytes > 18'400) continue;
      EXPECT_EQ(read(boxes, begin, bytes), expected.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(bytes)))
          << begin << "+" << bytes;
    }
  EXPECT_THROW(read(boxes, 18'400, 1), InternalError);
  EXPECT_THROW(read(boxes, -1, 1), InternalError);
}

TEST_F(BoxReading, ABlockIsReadOnce) {
  BoxReader boxes = reader();
  const int before = reads_;
  for (std::int64_t begin = 0; begin < 8192; begin += 16) read(boxes, begin, 16);
  EXPECT_EQ(reads_ - before, 2);
  read(boxes, 4000, 13'000);  // some of 0, which takes the memory of 1; whole 1, 2 and 3; some of 4
  EXPECT_EQ(reads_ - before, 7);
  read(boxes, 17'500, 900);  // 4 again
  EXPECT_EQ(reads_ - before, 7);
  boxes.release();
  read(boxes, 17'000, 1);
  EXPECT_EQ(reads_ - before, 8);
}

TEST_F(BoxReading, AFlippedBitIsNamedAndHandsNothingOut) {
  const std::int64_t table = file().table_bytes;
  flip(table + 4096 + 5, 3);
  BoxReader boxes = reader();
  const std::string good = data();
  // The block that holds it is refused from any byte on, the others are read.
  for (const std::int64_t begin : {4096, 4101, 8191}) {
    std::string out(1, '?');
    expect_error<DataError>([&] { boxes.read(begin, std::as_writable_bytes(std::span(out))); },
                            {path() + ": block 1 (bytes 8192 to 12288 of the file), tensors \"a\" to \"c\": has not the hash ",
                             "that its table says; the file is damaged: copy it again"});
    EXPECT_EQ(out, "?");
  }
  EXPECT_EQ(read(boxes, 8192, 10'208), good.substr(8192));
  EXPECT_EQ(read(boxes, 0, 4096), good.substr(0, 4096));
  // Nor is a block that was refused taken for the one in memory, whichever that was.
  EXPECT_EQ(read(boxes, 10, 8), good.substr(10, 8));
  expect_error<DataError>([&] { read(boxes, 4100, 8); }, {"block 1"});
  EXPECT_EQ(read(boxes, 10, 8), good.substr(10, 8));
  expect_error<DataError>([&] { read(boxes, 4100, 8); }, {"block 1"});
  expect_error<DataError>([&] { read(boxes, 4100, 8); }, {"block 1"});
  expect_error<DataError>([&] { read(boxes, 0, 18'400); }, {"block 1"});
}

TEST_F(BoxReading, EveryBlockIsChecked) {
  const std::string names[] = {"tensor \"a\":", "tensors \"a\" to \"c\":", "tensor \"c\":", "tensor \"c\":", "tensor \"c\":"};
  for (std::int64_t block = 0; block < 5; ++block) {
    // Its first and its last byte.
    for (const std::int64_t byte : {block * 4096, std::min<std::int64_t>(block * 4096 + 4095, 18'399)}) {
      flip(file().table_bytes + byte, 7);
      BoxReader boxes = reader();
      expect_error<DataError>([&] { read(boxes, block * 4096 + 9, 1); },
                              {fmt::format(": block {} (", block), names[static_cast<std::size_t>(block)]});
      flip(file().table_bytes + byte, 7);
    }
  }
  BoxReader boxes = reader();
  EXPECT_EQ(read(boxes, 0, 18'400), data());
}

TEST_F(BoxReading, RefusesWhatIsNoFile) {
  const auto with = [&](const std::function<void()>& make, const std::vector<std::string>& parts) {
    std::filesystem::remove_all(path());
    make();
    expect_error<DataError>([&] { reader(); }, parts);
  };
  const std::string content = read_file(path());
  with([] {}, {path() + ": cannot be opened: No such file"});
  with([&] { std::filesystem::create_directory(path()); }, {path() + ": is a folder"});
  with([&] { ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0); }, {path() + ": is not a regular file"});
  with([&] { std::filesystem::create_symlink("/dev/zero", path()); }, {"a symbolic link, which is not followed"});
  // Links are refused even to the right content, and as folders.
  write_file(folder_ / "elsewhere", content);
  with([&] { std::filesystem::create_symlink(folder_ / "elsewhere", path()); }, {path() + ": cannot be opened", "a symbolic link"});
  std::filesystem::remove(path());
  write_file(path(), content);
  EXPECT_NO_THROW(reader());
  std::filesystem::rename(folder_ / "weights", folder_ / "real");
  std::filesystem::create_symlink("real", folder_ / "weights");
  expect_error<DataError>([&] { reader(); }, {path() + ": cannot be opened", "a symbolic link"});
  std::filesystem::remove(folder_ / "weights");
  write_file(folder_ / "weights", "a file");
  expect_error<DataError>([&] { reader(); }, {path() + ": cannot be opened: Not a directory"});
  // The checkpoint's own folder may be reached through links.
  std::filesystem::remove(folder_ / "weights");
  std::filesystem::rename(folder_ / "real", folder_ / "weights");
  TemporaryFolder links;
  std::filesystem::create_symlink(folder_.path(), links / "here");
  EXPECT_NO_THROW(BoxReader(links / "here", file()));
}

TEST_F(BoxReading, ADiskThatFailsIsNamed) {
  bool failing = false;
  BoxReader boxes(folder_.path(), file(), [&](int descriptor, void* out, std::size_t bytes, off_t offset) -> ssize_t {
    if (failing) return errno = EIO, -1;
    return ::pread(descriptor, out, std::min<std::size_t>(bytes, 1000), offset);  // short reads are no failure
  });
  EXPECT_EQ(read(boxes, 0, 18'400), data());
  failing = true;
  expect_error<StorageError>([&] { read(boxes, 0, 9); }, {path(), "Input/output error"});
  failing = false;
  EXPECT_EQ(read(boxes, 0, 9), data().substr(0, 9));
}

// Beyond the convenient size: a sparse file of 6 GiB in blocks of 4 MiB, of which the last few are read.
TEST(BoxReader, ALargeFileIsReadInPieces) {
  TemporaryFolder folder;
  const std::int64_t elements = (std::int64_t{6} << 30) / 4 + 3;
  FileTable table{{{"w", DType::kF32, {{0}, {elements}}}}, {}, kBlockBytes};
  const std::string zeros(static_cast<std::size_t>(kBlockBytes), '\0');
  table.blocks.assign(static_cast<std::size_t>(table.num_blocks()), hash128(zeros));
  table.blocks.back() = hash128(std::string_view(zeros).substr(0, 12));
  const std::string text = to_text(table);
  const ManifestFile entry{"w", std::ssize(text) + table.data_bytes(), std::ssize(text), hash128(text), {}};
  write_file(folder / "w", text);
  ASSERT_EQ(::truncate((folder / "w").c_str(), entry.bytes), 0);
  BoxReader boxes(folder.path(), entry);
  std::string out(3 * kBlockBytes, '?');
  boxes.read(table.data_bytes() - std::ssize(out), std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, std::string(out.size(), '\0'));
}

}  // namespace
}  // namespace trident
