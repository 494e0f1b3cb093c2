// Checkpoints beyond the convenient size: files of more than 2^32 bytes, tables of many files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <vector>

#include "checkpoint/checkpoint_check.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/shard_reader.h"
#include "core/bf16.h"
#include "core/file_io.h"
#include "tests/checkpoint/many_boxes.h"
#include "tests/checkpoint/save_ranks.h"
#include "tests/checkpoint/small_checkpoint.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/support/sanitized.h"

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

TEST(FullLargeCheckpoint, OneFileMayHaveMoreThan4GiB) {
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

constexpr float kPadding = -7.0f;  // no value of a tensor

// A rank of another layout has this after it read everything: every element of every tensor, as its dtype rounds it.
void expect_reads(ShardReader& reader, test::LayoutRank& rank, DType weights, const std::vector<std::string>& prefixes,
                  const test::ElementValue& value) {
  rank.allocate(weights, kPadding);
  for (const ShardBox& box : boxes_held(rank.shards(), rank.holder()))
    for (const std::string& prefix : prefixes) reader.read(prefix, box, rank.values(box.shard, prefix));
  std::vector<bool> read(rank.shards().size(), false);
  for (const ShardBox& box : boxes_held(rank.shards(), rank.holder())) read[box.shard] = true;
  for (std::size_t s = 0; s < rank.shards().size(); ++s) {
    const std::vector<test::NamedElement> named = rank.elements(s);
    for (const std::string& prefix : prefixes) {
      const TensorView values = rank.values(s, prefix);
      for (std::size_t i = 0; i < named.size(); ++i) {
        const bool is_there = named[i].part != nullptr && read[s];
        const float expected = is_there ? value(prefix, named[i].part->tensor, named[i].index) : kPadding;
        if (values.dtype() == DType::kF32)
          ASSERT_EQ(values.as<float>()[i], expected) << prefix << " shard " << s << " element " << i;
        else
          ASSERT_EQ(values.as<bf16>()[i].bits, to_bf16(expected).bits) << prefix << " shard " << s << " element " << i;
      }
    }
  }
}

void round_trip(const ModelConfig& model, DType weights, const test::RankLayout& from, const test::RankLayout& to,
                test::Staging staging, std::uint64_t seed) {
  SCOPED_TRACE(from.name() + " -> " + to.name() + (weights == DType::kBF16 ? " bf16" : ""));
  const TemporaryFolder folder;
  const test::ElementValue value = test::random_values(seed);
  std::vector<test::LayoutRank> ranks = test::all_ranks(model, from);
  for (test::LayoutRank& rank : ranks) {
    rank.allocate(weights, kPadding);
    rank.fill(value);
  }
  const Manifest written = test::save_ranks(folder.path(), 3, model, ranks, weights, staging);
  const std::string path = folder / checkpoint_name(3);
  const Manifest manifest = open_manifest(path);
  EXPECT_EQ(manifest, written);
  for (test::LayoutRank& rank : test::all_ranks(model, to)) {
    ShardReader reader(path, manifest);
    std::vector<std::string> prefixes{"", "exp_avg/", "exp_avg_sq/"};
    if (weights != DType::kF32) prefixes.push_back("master/");
    expect_reads(reader, rank, weights, prefixes, value);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(ShardReading, AnyLayoutReadsWhatAnyOtherWrote) {
  std::mt19937 random(31);
  const ModelConfig models[] = {test::llama_config(101, 8, false), test::llama_config(64, 2, false),
                                test::llama_config(57, 1, true), test::gpt2_config(131)};
  for (int round = 0; round < 24; ++round) {
    const test::RankLayout from = test::random_layout(random), to = test::random_layout(random);
    const auto staging = static_cast<test::Staging>(random() % 3);
    round_trip(models[round % 4], round % 8 < 4 ? DType::kF32 : DType::kBF16, from, to, staging, random());
  }
}

// Files beyond one block, boxes across blocks, and blocks with several boxes; staging smaller than a file.
TEST(ShardReading, FilesOfSeveralBlocksAreRead) {
  ModelConfig model = test::llama_config(3001, 4, false);
  model.hidden = 528;
  model.layers = 1;
  model.ffn = 1100;
  const test::RankLayout one{}, cut{.tensor = 2, .data = 3};
  for (const DType weights : {DType::kF32, DType::kBF16}) {
    if (test::kSanitized && weights == DType::kF32) continue;
    std::vector<test::LayoutRank> ranks = test::all_ranks(model, one);
    ranks[0].allocate(weights, kPadding);
    const SavePlan plan = test::plan_of(ranks[0], 0);
    std::int64_t blocks = 0;
    for (const SaveFile& file : plan.files) blocks = std::max(blocks, file.table.num_blocks());
    EXPECT_GE(blocks, 5);
    EXPECT_LT(ShardWriter::least_staging(plan) * 2, ShardWriter::whole_staging(plan));
    round_trip(model, weights, one, cut, weights == DType::kF32 ? test::Staging::kLeast : test::Staging::kBetween, 5);
    round_trip(model, weights, cut, one, test::Staging::kBetween, 6);
  }
  // A transposed box goes on in the middle of one of its rows.
  ModelConfig transposed = test::gpt2_config(1500);
  transposed.hidden = 528;
  transposed.head_dim = 66;
  transposed.layers = 1;
  transposed.ffn = 1100;
  round_trip(transposed, DType::kF32, one, cut, test::Staging::kLeast, 7);
}

// A plan of weights alone, which is read into masters.
TEST(ShardReading, WeightsAloneAreRead) {
  const ModelConfig model = test::gpt2_config(77);
  const test::ElementValue value = test::random_values(8);
  for (const DType weights : {DType::kF32, DType::kBF16}) {
    const TemporaryFolder folder;
    std::vector<test::LayoutRank> ranks = test::all_ranks(model, {.tensor = 2, .data = 2});
    for (test::LayoutRank& rank : ranks) {
      rank.allocate(weights, kPadding);
      rank.fill(value);
    }
    test::save_ranks(folder.path(), 3, model, ranks, weights, test::Staging::kWhole, CheckpointContent::kWeights);
    ShardReader reader(folder / checkpoint_name(3), open_manifest(folder / checkpoint_name(3)));
    test::LayoutRank one = std::move(test::all_ranks(model, {})[0]);
    // Masters get the weights, widened.
    expect_reads(reader, one, DType::kF32, {""}, [&](std::string_view prefix, std::string_view tensor, std::int64_t index) {
      const float exact = value(prefix, tensor, index);
      return weights == DType::kF32 ? exact : to_float(to_bf16(exact));
    });
    const ShardBox box = boxes_held(one.shards(), one.holder())[0];
    expect_error<DataError>(
        [&] { reader.read("exp_avg/", box, one.values(box.shard, "exp_avg/")); },
        {"step-00000003: 0 of the ", " of exp_avg/" + box.tensor + " are stored; the checkpoint is not complete"});
  }
}

TEST(ShardReading, AnotherModelIsRefused) {
  const TemporaryFolder folder;
  std::vector<test::LayoutRank> ranks = test::all_ranks(test::llama_config(64, 8, false), {});
  for (test::LayoutRank& rank : ranks) rank.allocate(DType::kBF16, 0);
  test::save_ranks(folder.path(), 3, test::llama_config(64, 8, false), ranks, DType::kBF16);
  const std::string path = folder / checkpoint_name(3);
  ShardReader reader(path, open_manifest(path));
  ShardBox box = boxes_held(ranks[0].shards(), ranks[0].holder())[0];
  const TensorView shard = ranks[0].values(box.shard, "");
  ShardBox other = box;
  other.tensor = "none";
  expect_error<DataError>([&] { reader.read("", other, shard); }, {path + ": has no tensor none", "another model"});
  other = box;
  ++other.tensor_shape[0];
  expect_error<DataError>([&] { reader.read("", other, shard); },
                          {path + ": " + box.tensor + " is [0:64, 0:48], the model has [0:65, 0:48]"});
  // f32 into bf16 would lose bits silently.
  expect_error<DataError>([&] { reader.read("exp_avg/", box, shard); },
                          {path + "/optim/o-00000-0.safetensors: exp_avg/" + box.tensor + " is f32, not bf16"});
}

TEST(ShardReading, ValuesAreRoundedWhereThatIsAskedFor) {
  const TemporaryFolder folder;
  std::vector<test::LayoutRank> ranks = test::all_ranks(test::llama_config(64, 8, false), {});
  for (test::LayoutRank& rank : ranks) {
    rank.allocate(DType::kBF16, 0);
    rank.fill(test::random_values(3));
  }
  test::save_ranks(folder.path(), 3, test::llama_config(64, 8, false), ranks, DType::kBF16);
  const std::string path = folder / checkpoint_name(3);
  ShardReader reader(path, open_manifest(path));
  const ShardBox box = boxes_held(ranks[0].shards(), ranks[0].holder())[0];
  const auto n = static_cast<std::size_t>(ranks[0].shards()[box.shard].elements);
  std::vector<float> exact(n);
  std::vector<bf16> rounded(n);
  const auto view = [&](auto& values, DType dtype) { return TensorView(values.data(), dtype, {static_cast<std::int64_t>(n)}); };
  reader.read("exp_avg/", box, view(exact, DType::kF32));
  reader.read("exp_avg/", box, view(rounded, DType::kBF16), {}, Narrowing::kRounded);
  const auto begin = static_cast<std::size_t>(box.begin), end = begin + static_cast<std::size_t>(box.elements());
  std::size_t lost = 0;
  for (std::size_t i = begin; i < end; ++i) {
    EXPECT_EQ(rounded[i].bits, to_bf16(exact[i]).bits) << i;
    lost += to_float(rounded[i]) != exact[i];
  }
  EXPECT_GT(lost, 0u) << "the values must need rounding";
}

}  // namespace
}  // namespace trident
