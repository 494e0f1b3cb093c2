#include "checkpoint/shard_reader.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

#include "checkpoint/checkpoint_folder.h"
#include "core/bf16.h"
#include "tests/checkpoint/save_ranks.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/sanitized.h"

namespace trident {
namespace {

constexpr float kPadding = -7.0f;  // no value of a tensor

// What a rank of another layout has after it read everything: every element of every tensor, as its dtype rounds it.
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
TEST(ShardReading, FilesOfSeveralBlocks) {
  ModelConfig model = test::llama_config(3001, 4, false);
  model.hidden = 528;
  model.layers = 1;
  model.ffn = 1100;
  const test::RankLayout one{}, cut{.tensor = 2, .data = 3};
  for (const DType weights : {DType::kF32, DType::kBF16}) {
    if (test::kSanitized && weights == DType::kF32) continue;
    for (const test::Staging staging : {test::Staging::kLeast, test::Staging::kBetween}) {
      std::vector<test::LayoutRank> ranks = test::all_ranks(model, one);
      ranks[0].allocate(weights, kPadding);
      const SavePlan plan = test::plan_of(ranks[0], 0);
      std::int64_t blocks = 0;
      for (const SaveFile& file : plan.files) blocks = std::max(blocks, file.table.num_blocks());
      EXPECT_GE(blocks, 5);
      EXPECT_LT(ShardWriter::least_staging(plan) * 2, ShardWriter::whole_staging(plan));
      round_trip(model, weights, one, cut, staging, 5);
    }
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
TEST(ShardReading, WeightsAlone) {
  const ModelConfig model = test::gpt2_config(77);
  const test::ElementValue value = test::random_values(8);
  for (const DType weights : {DType::kF32, DType::kBF16}) {
    const TemporaryFolder folder;
    std::vector<test::LayoutRank> ranks = test::all_ranks(model, {.tensor = 2, .data = 2});
    for (test::LayoutRank& rank : ranks) {
      rank.allocate(weights, kPadding);
      rank.fill(value);
    }
    test::save_ranks(folder.path(), 3, model, ranks, weights, test::Staging::kWhole, SaveContent::kWeights);
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
