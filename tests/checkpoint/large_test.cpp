// Checkpoints beyond the convenient size: files of more than 2^32 bytes, tables of many files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <vector>

#include "checkpoint/checkpoint_check.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_index.h"
#include "core/file_io.h"
#include "tests/checkpoint/many_boxes.h"
#include "tests/checkpoint/small_checkpoint.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Manifest weights_alone() {
  Manifest manifest = test::small_manifest(DType::kF32);
  manifest.complete = false;
  manifest.optimizer_states.clear();
  manifest.tensors.clear();
  return manifest;
}

// `data`, zeros before it: `zeros` bytes that take no room on a disk.
ManifestFile write_sparse(const std::string& folder, const std::string& path, FileTable table, std::int64_t zeros,
                          std::string_view data) {
  const std::string text = to_text(table);
  create_folder_of(folder + "/" + path);
  std::ofstream file(folder + "/" + path, std::ios::binary);
  file << text;
  file.seekp(static_cast<std::streamoff>(text.size()) + zeros);
  file << data;
  EXPECT_TRUE(file.flush().good()) << path;
  return {path, std::ssize(text) + zeros + std::ssize(data), std::ssize(text), hash128(text), {}};
}

TEST(FullLargeCheckpoint, OneFileOfMoreThan4GiB) {
  constexpr std::int64_t kZeros = (std::int64_t{1} << 32) + kBlockBytes, kTail = 1000;  // bytes, elements
  const TemporaryFolder folder;
  Manifest manifest = weights_alone();
  manifest.tensors = {{"before", {3, kZeros / 12}}, {"w", {kTail}}};  // kZeros is a multiple of 4, not of 12
  const std::int64_t first = kZeros / 12 * 12;
  std::vector<float> values(static_cast<std::size_t>((kZeros - first) / 4 + kTail), 0);
  manifest.tensors[1].shape = {std::ssize(values)};
  std::iota(values.end() - kTail, values.end(), 1.0F);
  const std::string_view tail(reinterpret_cast<const char*>(values.data()) + (kZeros - first), kTail * sizeof(float));

  FileTable table{{{"before", DType::kF32, {{0, 0}, manifest.tensors[0].shape}, 0},
                   {"w", DType::kF32, {{0}, manifest.tensors[1].shape}, first}},
                  {},
                  kBlockBytes};
  table.blocks.assign(static_cast<std::size_t>(kZeros / kBlockBytes),
                      hash128(std::string(static_cast<std::size_t>(kBlockBytes), '\0')));
  table.blocks.push_back(hash128(tail));
  manifest.files = {write_sparse(folder.path(), "weights/w-00000-0.safetensors", table, kZeros, tail)};
  manifest.files[0].runs = {{0, 2, 0, kTensorParts}};
  test::write_manifest(folder.path(), manifest);

  StoredTensors tensors(folder.path());
  ASSERT_EQ(tensors.index().boxes(0, 1).size(), 1u);
  const StoredBox& box = tensors.index().boxes(0, 1).front();
  EXPECT_EQ(box.begin, first);
  std::vector<float> read(values.size(), -1);
  tensors.read(box, 0, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, values);
  EXPECT_EQ(check_checkpoint(folder.path(), manifest), std::vector<std::string>());

  // A bit of the last element is noticed, and named.
  const std::string path = folder / manifest.files[0].path;
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-1, std::ios::end);
  file.put('\1');
  file.close();
  const std::vector<std::string> damage = check_checkpoint(folder.path(), manifest);
  ASSERT_EQ(damage.size(), 1u);
  expect_parts(damage[0], {"\"w\""});
}

// 10,000 tensors in two boxes each over 1,024 files.
TEST(LargeCheckpoint, ManyFilesOpenFast) {
  constexpr int kTensors = 10'000, kFiles = 1024;
  const TemporaryFolder folder;
  Manifest manifest = weights_alone();
  for (int t = 0; t < kTensors; ++t)
    manifest.tensors.push_back({fmt::format("model.layers.{}.mlp.experts.{}.down_proj.weight", t / 100, t), {2, 2}});
  for (int f = 0; f < kFiles; ++f) {
    FileTable table;
    ManifestFile entry;
    for (const int row : {0, 1}) {
      for (int t = (f + 512 * row) % kFiles; t < kTensors; t += kFiles) {
        table.boxes.push_back(
            {manifest.tensors[static_cast<std::size_t>(t)].name, DType::kF32, {{row, 0}, {1, 2}}, table.data_bytes()});
        entry.runs.push_back({t, 1, row * kTensorParts / 2, (row + 1) * kTensorParts / 2});
      }
    }
    const std::string data(static_cast<std::size_t>(table.data_bytes()), static_cast<char>(f));
    table.blocks = {hash128(data)};
    const std::vector<TensorRun> runs = std::move(entry.runs);
    entry = write_sparse(folder.path(), fmt::format("weights/w-{:05}-0.safetensors", f), table, 0, data);
    entry.runs = runs;
    manifest.files.push_back(std::move(entry));
  }
  test::write_manifest(folder.path(), manifest);

  const double start = cpu_seconds();  // other work on the machine is none of the reader's
  const StoredTensors tensors(folder.path());
  const double seconds = cpu_seconds() - start;
  RecordProperty("milliseconds", static_cast<int>(1e3 * seconds));
  for (const std::size_t t : {0, 5555, kTensors - 1}) EXPECT_EQ(tensors.index().boxes(0, t).size(), 2u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(seconds, 1.0);
#endif
}

// 10,000 tensors in 1,024 boxes each. The files that a rank does not need hold nothing: reading one would be refused.
TEST(LargeCheckpoint, ARankReadsTheTablesThatItNeeds) {
  const test::ManyBoxes many;
  constexpr std::int64_t kFirst = 600, kRows = 2;  // of one of 512 ranks
  const TemporaryFolder folder;
  test::write_many_boxes(folder.path(), many, [](std::int64_t file) { return file >= kFirst && file < kFirst + kRows; });
  const Manifest manifest = open_manifest(folder.path());
  check_files(folder.path(), manifest);
  ShardReader reader(folder.path(), manifest);
  const std::vector<float> values = test::read_rows(reader, many, kFirst, kRows);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < std::ssize(values); ++i)
    wrong += values[static_cast<std::size_t>(i)] != many.value(i / kRows, kFirst + i % kRows);
  EXPECT_EQ(wrong, 0) << "of " << values.size();
  for (const std::int64_t other : {kFirst - 1, kFirst + kRows}) {
    const std::string& path = manifest.files[static_cast<std::size_t>(other)].path;
    expect_error<DataError>([&] { test::read_rows(reader, many, other, 1); }, {path, "hash"});
  }
}

// More files than a reader keeps open: their tables stay known, and what is read by them is still compared with their hashes.
TEST(LargeCheckpoint, TablesAreReadOnceAndGuardWhatIsReadLater) {
  const test::ManyBoxes many{.tensors = 5, .files = 64};
  const TemporaryFolder folder;
  const Manifest manifest = test::write_many_boxes(folder.path(), many, [](std::int64_t) { return true; });
  ShardReader reader(folder.path(), manifest);
  std::vector<float> expected;
  for (std::int64_t t = 0; t < many.tensors; ++t)
    for (std::int64_t f = 0; f < many.files; ++f) expected.push_back(many.value(t, f));
  EXPECT_EQ(test::read_rows(reader, many, 0, many.files), expected);

  const auto overwrite = [&](std::size_t file, std::int64_t at) {
    std::fstream stream(folder / manifest.files[file].path, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(static_cast<std::streamoff>(at)).put('\1');
    EXPECT_TRUE(stream.flush().good());
  };
  for (std::size_t f = 0; f < manifest.files.size(); ++f) overwrite(f, 20);  // within the table
  EXPECT_EQ(test::read_rows(reader, many, 0, many.files), expected);
  overwrite(3, manifest.files[3].bytes - 1);
  expect_error<DataError>([&] { test::read_rows(reader, many, 0, many.files); }, {manifest.files[3].path, "block 0", "hash"});
  test::read_rows(reader, many, 10, 40);  // file 3 is closed
  std::filesystem::resize_file(folder / manifest.files[3].path, static_cast<std::uintmax_t>(manifest.files[3].bytes + 1));
  expect_error<DataError>([&] { test::read_rows(reader, many, 0, many.files); }, {manifest.files[3].path, "the manifest says"});
}

}  // namespace
}  // namespace trident
