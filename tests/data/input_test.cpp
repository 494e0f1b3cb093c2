// Input files: what they are told to be, compressed ones, and their lines.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <set>

#include "core/file_io.h"
#include "data/batch_loader.h"
#include "data/dataset_sample.h"
#include "data/document_reader.h"
#include "data/indexed_dataset_writer.h"
#include "data/merge_datasets.h"
#include "tests/data/compress.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"

namespace trident {
namespace {

using namespace std::string_literals;
using Texts = std::vector<std::string>;

// These bytes compress to half their size.
std::string random_letters(std::size_t count) {
  std::string text(count, ' ');
  std::uint64_t state = 1;
  for (char& c : text) c = static_cast<char>('a' + ((state = state * 6364136223846793005u + 1442695040888963407u) >> 60));
  return text;
}

class InputTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;

  std::string put(const std::string& name, const std::string& content) {
    write_file(folder_ / name, content);
    return folder_ / name;
  }
  Texts documents(const std::string& path, const std::optional<std::string>& separator = std::nullopt) {
    DocumentReader reader(identify_input(path), separator, {1 << 30, 1 << 30});
    Texts texts;
    while (const auto document = reader.next()) texts.push_back(document->bytes);
    EXPECT_EQ(reader.bytes_done(), static_cast<std::int64_t>(read_file(path).size()));
    return texts;
  }
  void expect_refused(const std::string& path, const Texts& parts) {
    Texts all = parts;
    all.push_back(path + ": ");
    expect_error<DataError>([&] { documents(path); }, all);
  }
  // Where bytes are lost or changed, the file is refused by name, or it holds what it held.
  void expect_same_or_refused(const std::string& path, const std::string& content, const Texts& documents_before) {
    write_file(path, content);
    try {
      EXPECT_EQ(documents(path), documents_before);
    } catch (const DataError& error) {
      EXPECT_EQ(std::string(error.what()).rfind(path + ": ", 0), 0u) << error.what();
    }
  }
};

TEST_F(InputTest, KindAndCompressionByName) {
  const auto expect = [&](const std::string& name, const std::string& content, InputKind kind, Compression compression) {
    const InputFile input = identify_input(put(name, content));
    EXPECT_EQ(input.path, folder_ / name);
    EXPECT_EQ(input.kind, kind) << name;
    EXPECT_EQ(input.compression, compression) << name;
    EXPECT_EQ(input.bytes, static_cast<std::int64_t>(content.size()));
  };
  const std::string text = "{\"text\": \"a\"}\n", gz = gzipped(text), zst = zstd_packed(text);
  for (const char* name : {"a.txt", "README", "a.jsonl.old"}) expect(name, text, InputKind::kText, Compression::kNone);
  for (const char* name : {"a.jsonl", "a.json"}) expect(name, text, InputKind::kJsonLines, Compression::kNone);
  for (const char* name : {"a.gz", "a.txt.gz"}) expect(name, gz, InputKind::kText, Compression::kGzip);
  for (const char* name : {"a.jsonl.gz", "a.json.gz"}) expect(name, gz, InputKind::kJsonLines, Compression::kGzip);
  for (const char* name : {"a.zst", "a.txt.zst"}) expect(name, zst, InputKind::kText, Compression::kZstd);
  for (const char* name : {"a.jsonl.zst", "a.json.zst"}) expect(name, zst, InputKind::kJsonLines, Compression::kZstd);
  for (const char* name : {"empty.jsonl", "empty.gz", "empty.zst"}) EXPECT_EQ(identify_input(put(name, "")).bytes, 0);
}

TEST_F(InputTest, ContentThatContradictsTheName) {
  const std::string text = "plain text", gz = gzipped(text), zst = zstd_packed(text);
  expect_refused(put("a.jsonl", gz), {"uncompressed by its name", "holds gzip-compressed data", "rename it to", "a.jsonl.gz"});
  expect_refused(put("a.txt", zst), {"uncompressed by its name", "holds zstd-compressed data", "a.txt.zst"});
  expect_refused(put("b.jsonl.gz", text),
                 {"gzip-compressed by its name", "holds uncompressed data", "rename it to " + (folder_ / "b.jsonl")});
  expect_refused(put("b.txt.gz", zst), {"gzip-compressed by its name", "holds zstd-compressed data", "b.txt.zst"});
  expect_refused(put("b.txt.zst", gz), {"zstd-compressed by its name", "holds gzip-compressed data", "b.txt.gz"});
  expect_refused(put("c.zst", "\x28"), {"holds uncompressed data"});
}

TEST_F(InputTest, WhatIsNotRead) {
  expect_refused(put("a.jsonl.xz", "x"), {"named like xz-compressed data", ".jsonl"});
  expect_refused(put("a.txt", "\xFD" "7zXZ\0\0"s), {"is xz-compressed data"});
  expect_refused(put("a.jsonl", "BZh91AY&SY"), {"is bzip2-compressed data"});
  expect_refused(put("b.jsonl", "\x04\x22\x4D\x18...."s), {"is lz4-compressed data"});
  expect_refused(put("c.jsonl", "PK\x03\x04...."s), {"is a zip archive"});
  expect_refused(put("d.txt", "PAR1...."s), {"is a Parquet file"});
  expect_refused(put("a.tar.gz", gzipped("x")), {"a tar archive"});
  expect_refused(put("a.tgz", gzipped("x")), {"a tar archive"});
  expect_refused(put("a.parquet", "x"), {"a Parquet file"});
  expect_refused(folder_.path(), {"is a folder", "*.jsonl"});
  expect_refused(folder_ / "*.jsonl", {"no file matches this pattern"});
  expect_refused(folder_ / "missing.jsonl", {"No such file"});
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  expect_refused(folder_ / "pipe", {"not a regular file"});
}

TEST_F(InputTest, CompressedIsReadAsUncompressed) {
  std::string lines;
  Texts texts;
  for (int i = 0; i < 20000; ++i) {
    texts.push_back(fmt::format("{{\"text\": \"document {} {}\"}}", i, std::string(static_cast<std::size_t>(i % 300), 'x')));
    lines += texts.back() + (i % 3 == 0 ? "\r\n" : "\n") + (i % 7 == 0 ? "\n" : "");
  }
  EXPECT_EQ(documents(put("a.jsonl", lines)), texts);
  EXPECT_EQ(documents(put("a.jsonl.gz", gzipped(lines))), texts);
  EXPECT_EQ(documents(put("a.jsonl.zst", zstd_packed(lines))), texts);
  EXPECT_EQ(documents(put("a.txt", lines)), Texts{lines});
  EXPECT_EQ(documents(put("a.txt.gz", gzipped(lines))), Texts{lines});
  EXPECT_EQ(documents(put("a.txt.zst", zstd_packed(lines))), Texts{lines});
  const Texts paragraphs = documents(folder_ / "a.txt", "");
  EXPECT_GT(paragraphs.size(), 2000u);
  EXPECT_EQ(documents(folder_ / "a.txt.gz", ""), paragraphs);
  EXPECT_EQ(documents(folder_ / "a.txt.zst", ""), paragraphs);
}

TEST_F(InputTest, MembersAndFramesFollowEachOther) {
  const std::string a = "first li", b = "ne\nsecond", c = " line\n";
  const Texts lines = {"first line\n", "second line\n"};
  const auto split = [&](const std::string& path) {
    LineReader reader(open_byte_stream(identify_input(path)), path, {1 << 30, 1 << 30});
    Texts all;
    for (std::string_view line = reader.next(); !line.empty(); line = reader.next()) all.emplace_back(line);
    return all;
  };
  EXPECT_EQ(split(put("a.gz", gzipped(a) + gzipped(b) + gzipped("") + gzipped(c))), lines);
  EXPECT_EQ(split(put("b.gz", gzipped(a + b) + gzipped(c) + std::string(1000, '\0'))), lines);  // a tape's padding
  EXPECT_EQ(split(put("c.gz", gzipped(""))), Texts{});
  EXPECT_EQ(split(put("a.zst", zstd_packed(a) + zstd_packed(b) + zstd_packed("") + zstd_packed(c))), lines);
  const std::string skippable = "\x50\x2A\x4D\x18\x04\0\0\0size"s;  // pzstd writes one before each frame
  EXPECT_EQ(split(put("b.zst", skippable + zstd_packed(a) + skippable + zstd_packed(b + c))), lines);
  EXPECT_EQ(split(put("c.zst", skippable)), Texts{});
}

// Files are read in blocks of 1 MiB: whatever lies across their ends.
TEST_F(InputTest, BlocksEndAnywhere) {
  const std::string text = random_letters(3'000'000), part = text.substr(0, 1'500'000), member = gzipped(part);
  EXPECT_EQ(documents(put("a.txt", text)), Texts{text});
  EXPECT_EQ(documents(put("a.txt.gz", gzipped(text))), Texts{text});
  EXPECT_EQ(documents(put("a.txt.zst", zstd_packed(text))), Texts{text});
  ASSERT_LT(member.size(), static_cast<std::size_t>(kStoredBlock) - 100);
  for (const std::size_t size : {kStoredBlock - 1, kStoredBlock, kStoredBlock + 1, 2 * kStoredBlock - 1}) {
    // A member of this length: the file name in its header is as long as it takes.
    const std::string named =
        member.substr(0, 3) + '\x08' + member.substr(4, 6) + std::string(size - member.size() - 1, 'n') + '\0' + member.substr(10);
    ASSERT_EQ(named.size(), size);
    EXPECT_EQ(documents(put("a.txt.gz", named + member)), Texts{part + part}) << size;
    EXPECT_EQ(documents(put("a.txt.gz", named + std::string(3 * kStoredBlock, '\0'))), Texts{part}) << size;
    expect_refused(put("b.txt.gz", named + std::string(2 * kStoredBlock, '\0') + "x"), {"is not a gzip member"});
  }
}

TEST_F(InputTest, AFileThatIsCutWhileItIsRead) {
  const std::string text = random_letters(3'000'000);
  for (const auto& [name, content] : {std::pair{"a.txt"s, text}, {"a.txt.gz"s, gzipped(text)}, {"a.txt.zst"s, zstd_packed(text)}}) {
    ASSERT_GT(content.size(), static_cast<std::size_t>(kStoredBlock) + 1000);
    const std::string path = put(name, content);
    const auto stream = open_byte_stream(identify_input(path));
    std::string out(1000, ' ');
    EXPECT_GT(stream->read(out), 0u);
    std::filesystem::resize_file(path, 1000);
    expect_error<StorageError>(
        [&] {
          while (stream->read(out) > 0) {
          }
        },
        {path + ": ", "became shorter"});
  }
}

TEST_F(InputTest, EveryTruncationIsRefused) {
  const std::string text = "{\"text\": \"one\"}\n{\"text\": \"two, three, four, one, two, three, four\"}\n";
  for (const auto& [name, content] : {std::pair{"a.jsonl.gz"s, gzipped(text)}, {"a.jsonl.zst"s, zstd_packed(text)}}) {
    for (std::size_t size = 4; size < content.size(); ++size)
      expect_refused(put(name, content.substr(0, size)),
                     {"ends inside compressed data", fmt::format("after {} bytes", size), "again"});
    EXPECT_EQ(documents(put(name, content)).size(), 2u);
    EXPECT_EQ(documents(put(name, content + content)).size(), 4u);
    for (std::size_t size = content.size() + 4; size < 2 * content.size(); ++size)
      expect_refused(put(name, (content + content).substr(0, size)), {"ends inside compressed data"});
  }
}

TEST_F(InputTest, DamageIsRefused) {
  const std::string text = "{\"text\": \"one, two, three, four, one, two, three, four\"}\n";
  for (const auto& [name, content] : {std::pair{"a.jsonl.gz"s, gzipped(text)}, {"a.jsonl.zst"s, zstd_packed(text)}}) {
    const std::string path = put(name, content);
    const Texts before = documents(path);
    for (std::size_t at = 0; at < content.size(); ++at) {
      for (const int bit : {0, 3, 7}) {
        std::string damaged = content;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
        expect_same_or_refused(path, damaged, before);
      }
    }
  }
  std::string damaged = gzipped(text);
  damaged[damaged.size() - 6] ^= 1;  // of the checksum
  expect_refused(put("crc.gz", damaged), {"damaged near byte", "incorrect data check", "again"});
  damaged = zstd_packed(text);
  damaged.back() ^= 1;
  expect_refused(put("crc.zst", damaged), {"damaged near byte", "checksum", "again"});
  expect_refused(put("more.gz", gzipped(text) + "more"), {"what follows byte", "(4 bytes) is not a gzip member", "cut it off"});
  expect_refused(put("more.zst", zstd_packed(text) + "more"), {"damaged near byte"});
  expect_refused(put("cut.gz", gzipped(text) + "\x1F"), {"(1 byte) is not a gzip member"});
}

TEST_F(InputTest, ZstdFramesOfUnusualKindsAreRead) {
  const std::string magic = "\x28\xB5\x2F\xFD", hello = "\x29\0\0hello"s;  // one last block, not compressed, of 5 bytes
  // Window descriptor: 2^(10 + exponent), exponent in the upper 5 bits. 2^28 is beyond the default of the tools.
  EXPECT_EQ(documents(put("long.zst", magic + "\0"s + static_cast<char>(18 << 3) + hello)), Texts{"hello"});
  expect_refused(put("longer.zst", magic + "\0"s + static_cast<char>(31 << 3) + hello),
                 {"window of more than 2^31 bytes", "--long=31"});
  expect_refused(put("dictionary.zst", magic + "\x21\x05\x05"s + hello), {"dictionary", "without one"});
}

// Gives bytes away in portions of a few.
class DripStream final : public ByteStream {
 public:
  DripStream(std::string text, std::size_t portion) : text_(std::move(text)), portion_(portion) {}
  std::size_t read(std::span<char> out) override {
    const std::size_t size = std::min({portion_, out.size(), text_.size() - at_});
    std::copy_n(text_.begin() + static_cast<std::ptrdiff_t>(at_), size, out.begin());
    at_ += size;
    return size;
  }
  std::int64_t bytes_consumed() const override { return static_cast<std::int64_t>(at_); }

 private:
  std::string text_;
  std::size_t portion_, at_ = 0;
};

TEST(LineReader, LinesOfAnyLengthAreReadInPortionsOfAnySize) {
  const std::string longest(std::size_t{3} << 20, 'y');  // longer than the first buffer
  const std::string text = "\n\r\na\n" + longest + "\nlast";
  for (const std::size_t portion : {std::size_t{1} << 12, std::size_t{99991}, text.size()}) {
    LineReader reader(std::make_unique<DripStream>(text, portion), "drip", {1 << 30, 1 << 30});
    std::int64_t number = 0;
    for (const std::string& line : {"\n"s, "\r\n"s, "a\n"s, longest + "\n", "last"s}) {
      EXPECT_TRUE(reader.next() == line) << number;
      EXPECT_EQ(reader.line_number(), ++number);
    }
    EXPECT_TRUE(reader.next().empty());
    EXPECT_TRUE(reader.next().empty());
    EXPECT_EQ(reader.line_number(), 5);
    EXPECT_EQ(reader.bytes_consumed(), static_cast<std::int64_t>(text.size()));
  }
  LineReader drops(std::make_unique<DripStream>("ab\nc\n\ndef\n", 1), "drip", {5, 5});
  EXPECT_EQ(drops.next(), "ab\n");
  EXPECT_EQ(drops.next(), "c\n");
  EXPECT_EQ(drops.rest(), "\ndef\n");
  EXPECT_TRUE(drops.next().empty());
  EXPECT_EQ(without_line_end("a\r\n"), "a");
  EXPECT_EQ(without_line_end("a\n"), "a");
  EXPECT_EQ(without_line_end("a\r"), "a");
  EXPECT_EQ(without_line_end("\n\n"), "\n");
}

TEST(TextOfJsonLine, NamesFileAndLine) {
  EXPECT_EQ(text_of_json_line({"{\"a\": 1, \"text\": \"x\\ny\"}", 3}, "f", "text").text, "x\ny");
  expect_error<DataError>([] { text_of_json_line({"{}", std::int64_t{1} << 32}, "f.jsonl", "body"); },
                          {"f.jsonl:4294967296:1: no key \"body\"", "string under \"body\""});
}

// Files, tokens and samples beyond 2^31 and 2^32, in sparse files that take no room on the disk.

constexpr std::int64_t kLongest = (std::int64_t{1} << 31) - 1;  // tokens of the longest sequence that the format holds
constexpr std::int64_t kTokens = 3 * kLongest + 5;              // 6.4e9 tokens, 12.9 GB of u16
constexpr std::uint16_t kTail[] = {11, 12, 13, 14, 15};         // the last ones; all others are 0

class LargeFilesTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "large";

  // Three documents of 2^31 - 1 tokens and one of five.
  void SetUp() override {
    const int file = ::open(bin_path(prefix_).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const bool is_there =
        file >= 0 && ::ftruncate(file, 2 * kTokens) == 0 && ::pwrite(file, kTail, sizeof kTail, 2 * (kTokens - 5)) == sizeof kTail;
    const std::string why = std::strerror(errno);
    if (file >= 0) ::close(file);
    if (!is_there) GTEST_SKIP() << "no sparse file of " << 2 * kTokens << " bytes in " << folder_.path() << ": " << why;
    AtomicFile idx(idx_path(prefix_));
    append_index_header(idx, TokenType::kU16, 4, 4);
    for (const std::int64_t length : {kLongest, kLongest, kLongest, std::int64_t{5}})
      append_value(idx, static_cast<std::int32_t>(length));
    for (const std::int64_t sequence : {0, 1, 2, 3}) append_value(idx, 2 * sequence * kLongest);
    for (const std::int64_t sequence : {0, 1, 2, 3, 4}) append_value(idx, sequence);
    idx.commit();
  }
};

TEST_F(LargeFilesTest, TokensAtTheFarEnd) {
  const IndexedDataset dataset(prefix_);
  EXPECT_EQ(dataset.num_tokens(), kTokens);
  EXPECT_EQ(dataset.num_documents(), 4);
  EXPECT_EQ(dataset.document_begin(2), 4'294'967'294);
  EXPECT_EQ(dataset.document_begin(3), 6'442'450'941);
  EXPECT_EQ(dataset.document_begin(4), kTokens);
  EXPECT_EQ(tokens_of(dataset, kTokens - 6, 6, 100), (std::vector<std::int32_t>{0, 11, 12, 13, 14, 15}));
  EXPECT_EQ(dataset.token_at(kTokens - 1), 15);
  EXPECT_EQ(dataset.token_at(kTokens - 6), 0);
  EXPECT_NO_THROW(tokens_of(dataset, kTokens - 5000, 5000, 16));
  expect_error<DataError>([&] { tokens_of(dataset, kTokens - 5000, 5000, 15); },
                          {"token 6442450945 has id 15 (document 3, its token 4)"});
  dataset.will_need(kTokens - 5000, 5000);
}

TEST_F(LargeFilesTest, SamplesReachBeyondTwoToTheThirtyTwo) {
  const std::vector<WeightedPath> train = {{prefix_, 1}};
  const TokenSources sources = open_token_sources(train, {}, {});
  EXPECT_NO_THROW(sample_dataset(*sources.train[0].dataset, 16));
  expect_error<DataError>([&] { sample_dataset(*sources.train[0].dataset, 15); }, {"token 6442450945 has id 15"});
  BatchLoader loader(sources.train, {.sequence = 1, .vocab_size = 100, .seed = 1, .shuffle = Shuffle::kInOrder});
  EXPECT_EQ(loader.samples_per_epoch(), kTokens - 1);
  std::int32_t tokens[3], targets[3];
  for (const std::int64_t epoch : {0, 1, 1000}) {  // positions beyond 2^42
    const std::int64_t first = epoch * (kTokens - 1) + kTokens - 4;
    loader.prefetch(first, 3);
    loader.load(first, 3, {tokens, targets});
    EXPECT_EQ(tokens[0], 12);
    EXPECT_EQ(targets[2], 15);
  }
  const TokenSources split = open_token_sources(train, {}, "3,1");  // documents 0 to 2 and the last
  EXPECT_EQ(split.valid[0].first_token, 3 * kLongest);
  BatchLoader valid(split.valid, {.sequence = 4, .vocab_size = 100, .seed = 1, .shuffle = Shuffle::kPerEpoch});
  std::int32_t last[4];
  valid.load(7, 1, {{}, last});
  EXPECT_EQ(std::vector<std::int32_t>(last, last + 4), (std::vector<std::int32_t>{12, 13, 14, 15}));
}

// The offsets of a merged index are bytes, beyond 2^34 here. (The .bin would be written out in full: its copy is tested small.)
TEST_F(LargeFilesTest, MergedOffsetsAreWide) {
  std::vector<IndexedDataset> datasets;
  datasets.emplace_back(prefix_);
  datasets.emplace_back(prefix_);
  AtomicFile idx(folder_ / "merged.idx");
  append_merged_index(idx, datasets);
  idx.commit();
  const std::string bytes = read_file(folder_ / "merged.idx");
  ASSERT_EQ(bytes.size(), 34u + 12 * 8 + 8 * 9);
  std::int64_t offsets[8], documents[9];
  std::memcpy(offsets, bytes.data() + 34 + 4 * 8, sizeof offsets);
  std::memcpy(documents, bytes.data() + 34 + 12 * 8, sizeof documents);
  EXPECT_EQ(std::vector<std::int64_t>(offsets, offsets + 8),
            (std::vector<std::int64_t>{0, 4'294'967'294, 8'589'934'588, 12'884'901'882, 12'884'901'892, 17'179'869'186,
                                       21'474'836'480, 25'769'803'774}));
  EXPECT_EQ(std::vector<std::int64_t>(documents, documents + 9), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(LargeOrders, AreOrdersOfAllSamples) {
  constexpr std::int64_t kSamples = 6'000'000'001;
  const SampleOrder order(kSamples, 5, Shuffle::kPerEpoch);
  std::set<std::int64_t> seen;
  std::int64_t beyond = 0;
  for (std::int64_t i = 0; i < 20'000; ++i) {
    const std::int64_t sample = order.sample_at(kSamples - 20'000 + i);  // of epoch 0, at its end
    ASSERT_GE(sample, 0);
    ASSERT_LT(sample, kSamples);
    seen.insert(sample);
    beyond += sample >= std::int64_t{1} << 32;
  }
  EXPECT_EQ(seen.size(), 20'000u);
  EXPECT_NEAR(static_cast<double>(beyond) / 20'000, 1 - 4294967296.0 / kSamples, 0.02);
  EXPECT_EQ(SampleOrder(kSamples, 5, Shuffle::kInOrder).sample_at(7 * kSamples + 5'999'999'999), 5'999'999'999);
  const BatchSlicing slicing{.global = 4096, .micro = 2, .data_ranks = 64};
  EXPECT_EQ(slicing.first_sample(10'000'000, 3, 5), 40'960'000'000 + (3 * 64 + 5) * 2);
}

}  // namespace
}  // namespace trident
