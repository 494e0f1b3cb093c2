#include "data/pack_datasets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>

#include "data/batch_loader.h"
#include "data/dataset_record.h"
#include "data/indexed_dataset_writer.h"
#include "data/token_source.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

using Sequence = std::vector<std::int32_t>;

// It has each document's sequences, and whether each token of the file counts.
struct Packs {
  std::vector<std::vector<Sequence>> documents;
  std::vector<std::uint8_t> counts;
};

Packs read_packs(const std::string& prefix) {
  const IndexedDataset dataset(prefix);
  IndexReader index(dataset);
  Packs packs;
  for (std::int64_t d = 0; d < dataset.num_documents(); ++d) {
    auto& document = packs.documents.emplace_back();
    for (std::int64_t s = index.first_sequence(d); s < index.first_sequence(d + 1); ++s) {
      index.check_sequence(s);
      document.push_back(tokens_of(dataset, index.byte_offset(s) / size_of(dataset.type()), index.sequence_length(s), 1 << 16));
    }
  }
  packs.counts.resize(static_cast<std::size_t>(dataset.num_tokens()), 1);
  if (dataset.mask() != nullptr) dataset.mask()->read(0, packs.counts);
  return packs;
}

std::multiset<Sequence> sequences_of(const Packs& packs) {
  std::multiset<Sequence> all;
  for (const auto& document : packs.documents) all.insert(document.begin(), document.end());
  return all;
}

class PackDatasets : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string a_ = folder_ / "a", b_ = folder_ / "b", out_ = folder_ / "packs";

  // Documents of 2 .. 40 tokens; no two are equal.
  static Documents conversations(std::int64_t count, std::int32_t from) {
    Documents documents;
    for (std::int64_t d = 0; d < count; ++d) {
      auto& document = documents.emplace_back(2 + d * d % 39);
      std::iota(document.begin(), document.end(), static_cast<std::int32_t>(from + d));
    }
    return documents;
  }
};

TEST_F(PackDatasets, BestFitFillsWhereLeastRoomIsLeft) {
  const std::vector<std::int64_t> lengths{3, 7, 2, 5, 3, 10, 4};
  EXPECT_EQ(best_fit(lengths, 10), (std::vector<std::vector<std::size_t>>{{5}, {1, 0}, {3, 6}, {4, 2}}));
  EXPECT_TRUE(best_fit({}, 10).empty());
}

TEST_F(PackDatasets, EverySequenceIsInOnePackOfAtMostSoManyTokens) {
  const Documents first = conversations(300, 100), second = conversations(200, 5000);
  write_dataset(a_, first, 50000), write_dataset(b_, second, 50000);
  const PackStats stats = pack_datasets({a_, b_}, out_, {.sequence = 96});
  const Packs packs = read_packs(out_);
  std::multiset<Sequence> all(first.begin(), first.end());
  all.insert(second.begin(), second.end());
  EXPECT_EQ(sequences_of(packs), all);
  for (const auto& document : packs.documents) {
    std::size_t tokens = 0;
    for (const Sequence& sequence : document) tokens += sequence.size();
    EXPECT_LE(tokens, 96u);
    EXPECT_FALSE(document.empty());
  }
  EXPECT_EQ(stats.packs, std::ssize(packs.documents));
  EXPECT_EQ(stats.sequences, 500);
  EXPECT_EQ(stats.targets, stats.tokens - 500) << "the first token of a sequence is no target";
  EXPECT_EQ(stats.left_out, 0);
  EXPECT_GE(static_cast<double>(stats.tokens), 0.99 * 96 * static_cast<double>(stats.packs));
  EXPECT_FALSE(is_there(mask_path(out_)));
  EXPECT_EQ(read_record(out_)->origin.packed, 96);
}

TEST_F(PackDatasets, TheOutputFollowsFromTheSeedAndNotFromTheWorkers) {
  write_dataset(a_, conversations(3000, 1), 50000);
  const auto made = [&](std::uint64_t seed, int workers) {
    pack_datasets({a_}, out_, {.sequence = 50, .seed = seed, .workers = workers, .overwrite = Overwrite::kYes});
    return read_file(bin_path(out_)) + read_file(idx_path(out_));
  };
  const std::string one = made(7, 1);
  EXPECT_EQ(made(7, 3), one);
  EXPECT_NE(made(8, 1), one);
}

TEST_F(PackDatasets, BitsOfAMaskGoWithTheirTokensAndSequencesWithoutAnyAreLeftOut) {
  // Whether a token counts is seen at its id. The last two have no target that counts: a first token is none.
  const Documents documents{{10, 21, 22}, {11, 12, 23, 13}, {24}, {25, 14, 15}, {16, 17}};
  std::vector<std::uint8_t> bits;
  for (const std::int32_t id : concatenation(documents)) bits.push_back(id >= 20);
  write_masked_dataset(a_, documents, bits, 100);
  const PackStats stats = pack_datasets({a_}, out_, {.sequence = 16});
  const Packs packs = read_packs(out_);
  ASSERT_EQ(packs.documents.size(), 1u);
  EXPECT_EQ(sequences_of(packs), (std::multiset<Sequence>{documents[0], documents[1]}));
  std::size_t at = 0;
  for (const Sequence& sequence : packs.documents[0])
    for (const std::int32_t id : sequence) EXPECT_EQ(packs.counts[at++] != 0, id >= 20) << id;
  EXPECT_EQ(stats.targets, 3);
  EXPECT_EQ(stats.left_out, 3);
  EXPECT_EQ(stats.single, 1);
  EXPECT_TRUE(read_record(out_)->mask);
  write_dataset(b_, documents, 100);
  expect_error<DataError>([&] { pack_datasets({a_, b_}, folder_ / "x", {.sequence = 16}); },
                          {a_ + " has a mask of targets and " + b_ + " has none"});
  EXPECT_FALSE(is_there(bin_path(folder_ / "x")));
  write_masked_dataset(b_, {{1, 2}}, std::vector<std::uint8_t>{1, 0}, 100);
  expect_error<DataError>([&] { pack_datasets({b_}, folder_ / "x", {.sequence = 16}); }, {"of 1 sequence none has a target"});
}

TEST_F(PackDatasets, LongSequencesAreRefusedTruncatedOrCut) {
  write_dataset(a_, {{1, 2, 3, 4, 5}, {6, 7, 8, 9}, {10, 11}}, 100);
  write_dataset(b_, {{12, 13, 14, 15, 16, 17, 18}}, 100);
  const auto packed = [&](LongSequences overflow, PackStats& stats) {
    stats = pack_datasets({a_, b_}, out_, {.sequence = 4, .overflow = overflow, .overwrite = Overwrite::kYes});
    return sequences_of(read_packs(out_));
  };
  PackStats stats;
  expect_error<DataError>([&] { packed(LongSequences::kRefuse, stats); },
                          {"sequence 0 of " + b_, "7 tokens", "--sequence is 4", "2 sequences are longer", "truncate", "split"});
  EXPECT_FALSE(is_there(bin_path(out_)));
  EXPECT_EQ(packed(LongSequences::kTruncate, stats),
            (std::multiset<Sequence>{{1, 2, 3, 4}, {6, 7, 8, 9}, {10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(stats.too_long, 2);
  EXPECT_EQ(stats.longest, 7);
  EXPECT_EQ(packed(LongSequences::kSplit, stats),
            (std::multiset<Sequence>{{1, 2, 3, 4}, {6, 7, 8, 9}, {10, 11}, {12, 13, 14, 15}, {16, 17, 18}}));
  EXPECT_EQ(stats.left_out, 1) << "a rest of one token has no target";
  EXPECT_EQ(stats.single, 1);
}

TEST_F(PackDatasets, ARecordTellsOfPacksWhereAllPartsOfAMergeAreSome) {
  write_dataset(a_, {{1, 2, 3}}, 100);
  const std::string longer = folder_ / "longer", both = folder_ / "both";
  pack_datasets({a_}, out_, {.sequence = 4}), pack_datasets({a_}, longer, {.sequence = 9});
  merge_datasets({out_, longer}, both, Overwrite::kNo);
  EXPECT_EQ(read_record(both)->origin.packed, 9);
  merge_datasets({out_, a_}, both, Overwrite::kYes);
  EXPECT_EQ(read_record(both)->origin.packed, std::nullopt);
}

// Pairs of answers; every token behind the first `asked` of a sequence counts.
void write_pairs(const std::string& prefix, const Documents& sequences, std::size_t asked) {
  IndexedDatasetWriter writer(prefix, 50000, Overwrite::kYes, WithMask::kYes);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    std::vector<std::uint8_t> counts(sequences[s].size());
    for (std::size_t t = asked; t < counts.size(); ++t) counts[t] = 1;
    writer.add_sequence(sequences[s], counts);
    if (s % 2 == 1 || s + 1 == sequences.size()) writer.end_document();
  }
  DatasetOrigin origin;
  origin.pairs = true;
  writer.finish(origin);
}

using Pair = std::pair<Sequence, Sequence>;

std::multiset<Pair> pairs_of(const Packs& packs) {
  std::multiset<Pair> pairs;
  for (const auto& document : packs.documents)
    for (std::size_t s = 0; s < document.size(); s += 2) pairs.emplace(document.at(s), document.at(s + 1));
  return pairs;
}

TEST_F(PackDatasets, TheAnswersOfAPairStayTogether) {
  const Documents first = conversations(402, 100), second = conversations(100, 5000);
  write_pairs(a_, first, 1), write_pairs(b_, second, 1);
  const PackStats stats = pack_datasets({a_, b_}, out_, {.sequence = 150});
  const Packs packs = read_packs(out_);
  std::multiset<Pair> all;
  for (const Documents& part : {first, second})
    for (std::size_t s = 0; s < part.size(); s += 2) all.emplace(part[s], part[s + 1]);
  EXPECT_EQ(pairs_of(packs), all);
  for (const auto& document : packs.documents) {
    std::size_t tokens = 0;
    for (const Sequence& sequence : document) tokens += sequence.size();
    EXPECT_LE(tokens, 150u);
    EXPECT_FALSE(document.empty());
  }
  EXPECT_EQ(stats.sequences, 251) << "pairs";
  EXPECT_EQ(stats.targets, stats.tokens - 502);
  EXPECT_GE(static_cast<double>(stats.tokens), 0.98 * 150 * static_cast<double>(stats.packs));
  EXPECT_TRUE(read_record(out_)->origin.pairs);

  const std::string more = folder_ / "more", merged = folder_ / "merged";
  pack_datasets({out_}, more, {.sequence = 300, .workers = 3});
  EXPECT_EQ(pairs_of(read_packs(more)), all) << "packs are packed again";
  merge_datasets({out_, a_}, merged, Overwrite::kNo);
  EXPECT_TRUE(read_record(merged)->origin.pairs);
  write_masked_dataset(b_, {{1, 2}}, std::vector<std::uint8_t>{1, 1}, 50000);
  expect_error<DataError>([&] { pack_datasets({a_, b_}, folder_ / "x", {.sequence = 96}); },
                          {a_ + " and " + b_, "pairs of answers", "the other is not"});
  write_pairs(b_, {{1, 2}, {3, 4}, {5, 6}}, 1);
  expect_error<DataError>([&] { pack_datasets({b_}, folder_ / "x", {.sequence = 96}); },
                          {"has 3 sequences", "that they are pairs"});
}

TEST_F(PackDatasets, DocumentsAreOfPairsWhoseAnswersHaveTargets) {
  const auto look = [&](PackContent content) {
    const std::vector<WeightedPath> train{{.path = a_}};
    look_at_packs(open_token_sources(train, {}, std::nullopt, ::pread, SampleKind::kPacked).train.at(0), 16, content);
  };
  write_pairs(a_, {{1, 2}, {3, 4, 5}, {6, 7}, {8, 9}}, 1);
  look(PackContent::kPairs);
  write_pairs(a_, {{1, 2}, {3, 4, 5}, {6, 7}, {8}}, 1);
  look(PackContent::kSequences);
  expect_error<DataError>([&] { look(PackContent::kPairs); },
                          {a_ + ": document 1 has 2 sequences, 1 of them without a target", "loss.type = \"dpo\"", "--preference"});
  write_dataset(a_, {{1, 2, 3}}, 100);
  expect_error<DataError>([&] { look(PackContent::kPairs); }, {"document 0 has 1 sequence, 0 of them without"});
}

// The first token of each sequence is its number among those of both files.
TEST_F(PackDatasets, ASampleSaysWhichSequenceOfAllSourcesItBeginsWith) {
  const auto write = [](const std::string& prefix, std::int32_t first, const std::vector<std::int32_t>& pairs) {
    IndexedDatasetWriter writer(prefix, 50000, Overwrite::kYes, WithMask::kNo);
    for (const std::int32_t count : pairs) {
      for (std::int32_t s = 0; s < 2 * count; ++s) writer.add_sequence(Sequence{first++, 1});
      writer.end_document();
    }
    writer.finish({});
  };
  write(a_, 0, {1, 2, 1, 1}), write(b_, 10, {1, 3});
  const auto expect = [](std::vector<TokenSource> sources, std::int64_t before, std::int64_t sequences) {
    BatchLoader loader(std::move(sources), {.sequence = 16, .vocab_size = 50000});
    EXPECT_EQ(loader.sequences_per_epoch(), sequences);
    std::vector<std::int32_t> tokens(16 * 12);
    std::vector<std::int64_t> numbers(12);
    loader.load(0, 12, {.tokens = tokens, .numbers = numbers});
    for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], tokens[i] - before) << "sample " << i;
  };
  const std::vector<WeightedPath> first{{.path = a_}}, both{{.path = a_}, {.path = b_}};
  expect(open_token_sources(both, {}, std::nullopt, ::pread, SampleKind::kPacked).train, 0, 18);
  const TokenSources halves = open_token_sources(first, {}, "1,1", ::pread, SampleKind::kPacked);
  expect(halves.train, 0, 6), expect(halves.valid, 6, 4);
}

TEST_F(PackDatasets, LongPairsAreRefusedOrLoseTheEndsOfTheirAnswers) {
  const auto numbered = [](std::int32_t from, std::size_t length) {
    Sequence sequence(length);
    std::iota(sequence.begin(), sequence.end(), from);
    return sequence;
  };
  // No target of the last pair's first answer counts.
  write_pairs(a_, {numbered(10, 12), numbered(30, 3), numbered(40, 6), numbered(50, 7), numbered(60, 2), numbered(70, 5)}, 2);
  PackOptions options{.sequence = 9};
  expect_error<DataError>([&] { pack_datasets({a_}, out_, options); },
                          {"pair 0 of " + a_, "has 15 tokens", "--sequence is 9", "2 pairs are longer", "of both sequences"});
  options.overflow = LongSequences::kSplit;
  expect_error<ConfigError>([&] { pack_datasets({a_}, out_, options); }, {"--overflow = split", "pairs of answers", "truncate"});
  EXPECT_FALSE(is_there(bin_path(out_)));
  options.overflow = LongSequences::kTruncate;
  const PackStats stats = pack_datasets({a_}, out_, options);
  EXPECT_EQ(pairs_of(read_packs(out_)),
            (std::multiset<Pair>{{numbered(10, 6), numbered(30, 3)}, {numbered(40, 4), numbered(50, 4)}}));
  EXPECT_EQ(stats.too_long, 2);
  EXPECT_EQ(stats.longest, 15);
  EXPECT_EQ(stats.left_out, 1);
  options.sequence = 4;  // prompts fill what there is
  expect_error<DataError>([&] { pack_datasets({a_}, folder_ / "x", options); }, {"of 3 pairs none has a target"});
}

}  // namespace
}  // namespace trident
