#include "data/merge_datasets.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>

#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"

namespace trident {
namespace {

using namespace std::string_literals;
using Prefixes = std::vector<std::string>;

template <class T> std::string raw(std::initializer_list<T> values) {
  std::string bytes;
  for (const T value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  return bytes;
}

class MergeTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string out_ = folder_ / "out";

  std::string put(const std::string& name, const Documents& documents, std::int64_t vocab_size = 50257) {
    write_dataset(folder_ / name, documents, vocab_size);
    return folder_ / name;
  }
  // A dataset from its parts, of u16.
  std::string put_raw(const std::string& name, const std::string& bin, const std::string& index) {
    write_file(folder_ / (name + ".bin"), bin);
    write_file(folder_ / (name + ".idx"), "MMIDIDX\0\0"s + raw<std::int64_t>({1}) + '\x08' + index);
    return folder_ / name;
  }
  void expect_no_output() {
    for (const std::string& name : folder_.names()) EXPECT_TRUE(name.rfind("out.", 0) != 0) << name;
  }
};

// Megatron-LM's add_index: lengths follow each other, offsets are summed anew, document entries move by the sequences before, and
// the leading 0 of every input but the first goes.
TEST_F(MergeTest, MegatronsBytes) {
  const std::string first = put("a", {{5, 6, 7}, {8}}), second = put("b", {{}, {9, 10}, {}});
  // One document of two sequences, and one with a sequence of no tokens, as other writers make them.
  const std::string third = put_raw(
      "c", raw<std::uint16_t>({11, 12, 13}),
      raw<std::int64_t>({3, 3}) + raw<std::int32_t>({1, 2, 0}) + raw<std::int64_t>({0, 2, 6}) + raw<std::int64_t>({0, 2, 3}));
  const MergeStats stats = merge_datasets({first, second, third}, out_, Overwrite::kYes);
  EXPECT_EQ(read_file(out_ + ".bin"), raw<std::uint16_t>({5, 6, 7, 8, 9, 10, 11, 12, 13}));
  EXPECT_EQ(read_file(out_ + ".idx"), "MMIDIDX\0\0"s + raw<std::int64_t>({1}) + '\x08' + raw<std::int64_t>({6, 8}) +
                                          raw<std::int32_t>({3, 1, 2, 1, 2, 0}) + raw<std::int64_t>({0, 6, 8, 12, 14, 18}) +
                                          raw<std::int64_t>({0, 1, 2, 2, 3, 3, 5, 6}));
  EXPECT_EQ(stats.documents, 7);
  EXPECT_EQ(stats.sequences, 6);
  EXPECT_EQ(stats.tokens, 9);
  EXPECT_EQ(stats.bytes, 18);
  EXPECT_EQ(IndexedDataset(out_).num_documents(), 7);
}

TEST_F(MergeTest, IsWhatOneWriterWouldHaveWritten) {
  for (const std::int64_t vocab : {50257, 128256}) {
    const Documents documents = counting_documents(40, vocab);
    const std::string whole = put("whole", documents, vocab);
    const std::string a = put("a", Documents(documents.begin(), documents.begin() + 9), vocab), none = put("none", {}, vocab),
                      b = put("b", Documents(documents.begin() + 9, documents.end()), vocab);
    std::vector<MergeProgress> seen;
    merge_datasets({a, none, b}, out_, Overwrite::kYes, [&](const MergeProgress& p) { seen.push_back(p); });
    EXPECT_EQ(read_file(out_ + ".bin"), read_file(whole + ".bin"));
    EXPECT_EQ(read_file(out_ + ".idx"), read_file(whole + ".idx"));
    ASSERT_EQ(seen.size(), 2u);
    EXPECT_EQ(seen[1].bytes_done, seen[1].bytes_total);
    EXPECT_EQ(seen[1].bytes_total, static_cast<std::int64_t>(read_file(whole + ".bin").size()));
    merge_datasets({whole}, folder_ / "copy", Overwrite::kYes);
    EXPECT_EQ(read_file(folder_ / "copy.idx"), read_file(whole + ".idx"));
    merge_datasets({a, a}, folder_ / "twice", Overwrite::kYes);
    EXPECT_EQ(IndexedDataset(folder_ / "twice").num_documents(), 18);
  }
}

TEST_F(MergeTest, TypesMustBeEqual) {
  const std::string narrow = put("narrow", {{1}}, 50257), wide = put("wide", {{1}}, 128256);
  expect_error<DataError>([&] { merge_datasets({narrow, narrow, wide}, out_, Overwrite::kYes); },
                          {narrow + " holds tokens as uint16", wide + " as int32", "one tokenizer"});
  expect_no_output();
}

TEST_F(MergeTest, TheOutputIsNeverAnInput) {
  const std::string a = put("a", {{1, 2}}), b = put("b", {{3}});
  const std::string before = read_file(a + ".bin") + read_file(a + ".idx");
  std::filesystem::create_symlink(a + ".bin", folder_ / "link.bin");
  std::filesystem::create_hard_link(b + ".idx", folder_ / "hard.idx");
  for (const std::string& output : {a, b, folder_.path() + "/./a", folder_ / "link", folder_ / "hard"})
    expect_error<ConfigError>(
        [&] {
          merge_datasets({a, b}, output, Overwrite::kYes);
        },
        {"--output = " + output, "overwrite the input"});
  EXPECT_EQ(read_file(a + ".bin") + read_file(a + ".idx"), before);
}

TEST_F(MergeTest, ErrorsLeaveNoOutput) {
  const std::string a = put("a", {{1, 2}});
  expect_error<ConfigError>([&] { merge_datasets({}, out_, Overwrite::kYes); }, {"--input"});
  expect_error<DataError>([&] { merge_datasets({a, folder_ / "none"}, out_, Overwrite::kYes); }, {"none.idx", "no such file"});
  write_file(folder_ / "b.bin", "x");
  write_file(folder_ / "b.idx", read_file(a + ".idx"));
  expect_error<DataError>([&] { merge_datasets({a, folder_ / "b"}, out_, Overwrite::kYes); }, {"b.bin", "too short"});
  std::filesystem::create_directory(out_ + ".bin");
  expect_error<StorageError>([&] { merge_datasets({a}, out_, Overwrite::kYes); }, {"out.bin", "is a folder"});
  std::filesystem::remove(out_ + ".bin");
  expect_error<InternalError>(
      [&] { merge_datasets({a}, out_, Overwrite::kYes, [](const MergeProgress&) { throw InternalError("stop"); }); }, {"stop"});
  expect_no_output();
}

}  // namespace
}  // namespace trident
