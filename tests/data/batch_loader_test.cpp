#include "data/batch_loader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "data/dataset_sample.h"
#include "device/no_allocation.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kVocab = 1000;

class BatchLoaderTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "text";
  Documents documents_ = counting_documents(40, kVocab);

  void SetUp() override { write_dataset(prefix_, documents_, kVocab); }

  BatchLoader loader(std::int64_t sequence, Shuffle shuffle, std::int64_t vocab = kVocab) const {
    const std::vector<WeightedPath> train = {{prefix_, 1.0}};
    return BatchLoader(open_token_sources(train, {}, {}).train,
                       {.sequence = sequence, .vocab_size = vocab, .seed = 9, .shuffle = shuffle});
  }
};

TEST_F(BatchLoaderTest, SampleIHoldsTokensITUpToItPlusTInclusive) {
  const Ids all = concatenation(documents_);
  for (const std::int64_t T : {1, 4, 7, 64}) {
    BatchLoader in_order = loader(T, Shuffle::kInOrder), shuffled = loader(T, Shuffle::kPerEpoch);
    const std::int64_t n = (static_cast<std::int64_t>(all.size()) - 1) / T;
    ASSERT_EQ(in_order.samples_per_epoch(), n);
    const SampleOrder order(n, 9, Shuffle::kPerEpoch);
    for (std::int64_t g = 0; g < n + 3; ++g) {
      Ids tokens(static_cast<std::size_t>(T)), targets(tokens);
      const auto expect_sample = [&](std::int64_t sample) {
        const auto begin = all.begin() + sample * T;
        EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), begin));
        EXPECT_TRUE(std::equal(targets.begin(), targets.end(), begin + 1));
      };
      in_order.load(g, 1, {tokens, targets});
      expect_sample(g % n);
      shuffled.load(g, 1, {tokens, targets});
      expect_sample(order.sample_at(g));
    }
  }
}

TEST_F(BatchLoaderTest, LayoutIsSequenceMajor) {
  BatchLoader single = loader(5, Shuffle::kPerEpoch), batched = loader(5, Shuffle::kPerEpoch);
  Ids tokens(15), targets(15), one(5), one_target(5);
  batched.load(6, 3, {tokens, targets});
  for (std::size_t i = 0; i < 3; ++i) {
    single.load(6 + static_cast<std::int64_t>(i), 1, {one, one_target});
    for (std::size_t s = 0; s < 5; ++s) {
      EXPECT_EQ(tokens[s * 3 + i], one[s]);
      EXPECT_EQ(targets[s * 3 + i], one_target[s]);
    }
  }
}

TEST_F(BatchLoaderTest, GlobalBatchesDoNotDependOnTheLayout) {
  constexpr std::int64_t G = 12, T = 6;
  const auto global_batch = [&](std::int64_t micro, std::int64_t ranks, std::int64_t step) {
    const BatchSlicing slicing{.global = G, .micro = micro, .data_ranks = ranks};
    std::vector<Ids> samples(G);
    for (std::int64_t r = 0; r < ranks; ++r) {
      BatchLoader mine = loader(T, Shuffle::kPerEpoch);
      for (std::int64_t j = 0; j < slicing.num_micro_batches(); ++j) {
        Ids tokens(static_cast<std::size_t>(T * micro));
        const std::int64_t first = slicing.first_sample(step, j, r);
        mine.load(first, micro, {tokens});
        for (std::int64_t i = 0; i < micro; ++i) {
          Ids& sample = samples[static_cast<std::size_t>(first + i - step * G)];
          for (std::int64_t s = 0; s < T; ++s) sample.push_back(tokens[static_cast<std::size_t>(s * micro + i)]);
        }
      }
    }
    return samples;
  };
  for (const std::int64_t step : {0, 5, 60}) {  // step 60 is epochs later
    const auto reference = global_batch(12, 1, step);
    for (const auto& [micro, ranks] : {std::pair{1, 1}, {1, 12}, {2, 3}, {3, 2}, {6, 2}})
      EXPECT_EQ(global_batch(micro, ranks, step), reference);
  }
}

TEST_F(BatchLoaderTest, EitherSideMayBeLeftOut) {
  BatchLoader both = loader(4, Shuffle::kPerEpoch), half = loader(4, Shuffle::kPerEpoch);
  Ids tokens(8), targets(8), only(8);
  both.load(2, 2, {tokens, targets});
  half.load(2, 2, {only});
  EXPECT_EQ(only, tokens);
  half.load(2, 2, {{}, only});
  EXPECT_EQ(only, targets);
  EXPECT_THROW(half.load(2, 3, {only}), InternalError);
  EXPECT_THROW(half.load(2, 3, {{}, only}), InternalError);
}

TEST_F(BatchLoaderTest, TooFewTokensForOneSampleAreRefused) {
  const auto available = static_cast<std::int64_t>(concatenation(documents_).size());
  loader(available - 1, Shuffle::kInOrder);
  expect_error<DataError>([&] { loader(available, Shuffle::kInOrder); },
                          {prefix_, fmt::format("{} tokens available", available), fmt::format("batch.sequence = {}", available),
                           fmt::format("needs {}", available + 1)});
}

TEST_F(BatchLoaderTest, IdsOutsideTheVocabularyAreRefused) {
  BatchLoader bad = loader(10, Shuffle::kInOrder, 25);
  Ids tokens(10), targets(10);
  bad.load(1, 1, {tokens, targets});
  expect_error<DataError>(
      [&] {
        bad.load(2, 1, {tokens, targets});
      },
      {prefix_ + ".bin", "token 25 has id 25 (document 3, its token 10)", "vocabulary of 25"});
  BatchLoader edge = loader(5, Shuffle::kInOrder, 25);
  edge.load(4, 1, {std::span(tokens).first(5)});  // tokens 20 .. 24
  expect_error<DataError>([&] { edge.load(4, 1, {{}, std::span(targets).first(5)}); }, {"id 25"});
}

TEST_F(BatchLoaderTest, BlendsTakeFromEachByWeight) {
  const std::string other = folder_ / "other";
  write_dataset(other, {Ids(100, 999)}, kVocab);
  const std::vector<WeightedPath> train = {{prefix_, 3}, {other, 1}};
  const TokenSources sources = open_token_sources(train, {}, {});
  BatchLoader blended(sources.train, {.sequence = 9, .vocab_size = kVocab, .seed = 1, .shuffle = Shuffle::kInOrder});
  EXPECT_EQ(blended.samples_per_epoch(), num_samples_of(sources.train[0].num_tokens, 9) + 11);
  std::vector<bool> from_other;
  Ids tokens(9);
  std::int64_t seen = 0;
  for (std::int64_t g = 0; g < 8; ++g) {
    blended.load(g, 1, {tokens});
    from_other.push_back(tokens[0] == 999);
    if (!from_other.back()) {
      EXPECT_EQ(tokens[0], 9 * seen++);
    }
  }
  EXPECT_EQ(from_other, (std::vector<bool>{false, true, false, false, false, true, false, false}));
}

TEST_F(BatchLoaderTest, SplitsCutByDocuments) {
  const std::vector<WeightedPath> train = {{prefix_, 2.0}};
  const TokenSources sources = open_token_sources(train, {}, "8,1,1");
  ASSERT_EQ(sources.train.size(), 1u);
  ASSERT_EQ(sources.valid.size(), 1u);
  const auto tokens_of = [&](std::size_t begin, std::size_t end) {
    std::int64_t sum = 0;
    for (std::size_t d = begin; d < end; ++d) sum += static_cast<std::int64_t>(documents_[d].size());
    return sum;
  };
  EXPECT_EQ(sources.train[0].num_tokens, tokens_of(0, 32));
  EXPECT_EQ(sources.valid[0].first_token, tokens_of(0, 32));
  EXPECT_EQ(sources.valid[0].num_tokens, tokens_of(32, 36));
  EXPECT_EQ(sources.valid[0].weight, 2.0);
  BatchLoader valid(sources.valid, {.sequence = 3, .vocab_size = kVocab, .seed = 1, .shuffle = Shuffle::kInOrder});
  Ids tokens(3);
  valid.load(0, 1, {tokens});
  EXPECT_EQ(tokens[0], tokens_of(0, 32) % kVocab);
  const TokenSources none = open_token_sources(train, {}, "1,0");
  expect_error<DataError>(
      [&] { BatchLoader(none.valid, {.sequence = 3, .vocab_size = kVocab, .seed = 1, .shuffle = Shuffle::kInOrder}); },
      {prefix_, "validation part of data.split, 0 of 40 documents", "0 tokens available"});
}

TEST_F(BatchLoaderTest, ValidationFilesMayBeGivenOrNot) {
  const std::vector<WeightedPath> train = {{prefix_, 1.0}}, two = {{prefix_, 2.0}, {prefix_, 0.5}};
  EXPECT_TRUE(open_token_sources(train, {}, {}).valid.empty());
  const TokenSources sources = open_token_sources(train, two, {});
  ASSERT_EQ(sources.valid.size(), 2u);
  EXPECT_EQ(sources.valid[0].num_tokens, sources.train[0].num_tokens);
  EXPECT_EQ(sources.valid[0].weight, 2.0);
  EXPECT_EQ(sources.valid[1].weight, 0.5);
  expect_error<ConfigError>([&] { open_token_sources(train, two, "9,1"); }, {"data.split", "9,1", "data.valid"});
  expect_error<ConfigError>([&] { open_token_sources({}, {}, {}); }, {"data.train"});
  const std::vector<WeightedPath> zero = {{prefix_, 1.0}, {prefix_, 0.0}};
  expect_error<ConfigError>([&] { open_token_sources(zero, {}, {}); }, {"data.train[1].weight = 0", "positive"});
  expect_error<ConfigError>([&] { open_token_sources(train, zero, {}); }, {"data.valid[1].weight = 0", "positive"});
  const std::vector<WeightedPath> none = {{folder_ / "none", 1.0}};
  expect_error<DataError>([&] { open_token_sources(train, none, {}); }, {"none.idx", "no such file"});
}

TEST_F(BatchLoaderTest, ASampleIsOneRead) {
  std::int64_t reads = 0, bytes = 0;
  const std::vector<WeightedPath> train = {{prefix_, 1.0}};
  const TokenSources sources = open_token_sources(train, {}, {}, [&](int descriptor, void* out, std::size_t count, off_t offset) {
    ++reads, bytes += static_cast<std::int64_t>(count);
    return ::pread(descriptor, out, count, offset);
  });
  BatchLoader loader(sources.train, {.sequence = 10, .vocab_size = kVocab, .seed = 9, .shuffle = Shuffle::kPerEpoch});
  reads = bytes = 0;
  Ids tokens(30), targets(30);
  loader.load(0, 3, {tokens, targets});
  EXPECT_EQ(reads, 3);
  EXPECT_EQ(bytes, 3 * 2 * 11);
  loader.load(3, 3, {tokens});
  loader.load(3, 3, {{}, targets});
  EXPECT_EQ(reads, 9);
  EXPECT_EQ(bytes, 3 * 2 * (11 + 10 + 10));
  loader.load(6, 3, {});
  EXPECT_EQ(reads, 9);
}

// A disk that fails and a file that is cut while a run goes on: an error with code 74, which names file and place.
TEST_F(BatchLoaderTest, WhatCannotBeReadLaterIsNamed) {
  bool broken = false;
  const std::vector<WeightedPath> train = {{prefix_, 1.0}};
  const TokenSources sources =
      open_token_sources(train, {}, {}, [&](int descriptor, void* out, std::size_t count, off_t offset) -> ssize_t {
        if (broken && offset > 100) return errno = EIO, -1;
        return ::pread(descriptor, out, std::min<std::size_t>(count, 7), offset);  // never whole
      });
  BatchLoader loader(sources.train, {.sequence = 10, .vocab_size = kVocab, .seed = 9, .shuffle = Shuffle::kInOrder});
  Ids tokens(10), targets(10);
  loader.load(8, 1, {tokens, targets});
  EXPECT_EQ(tokens.front(), 80);
  EXPECT_EQ(targets.back(), 90);
  broken = true;
  expect_error<StorageError>(
      [&] {
        loader.load(8, 1, {tokens, targets});
      },
      {prefix_ + ".bin: 22 bytes at byte 160 of", "Input/output error"});
  loader.load(2, 1, {tokens, targets});
  broken = false;
  std::filesystem::resize_file(prefix_ + ".bin", 165);
  expect_error<StorageError>(
      [&] {
        loader.load(8, 1, {tokens, targets});
      },
      {prefix_ + ".bin: 17 bytes at byte 165 of", "became shorter"});
  expect_error<StorageError>(
      [&] {
        loader.load(20, 1, {{}, targets});
      },
      {prefix_ + ".bin: 20 bytes at byte 402 of", "became shorter"});
  loader.load(7, 1, {tokens, targets});
  EXPECT_EQ(tokens.front(), 70);
}

// Documents within samples: ids count up, 7 ends a document.
constexpr std::int32_t kEod = 7;

struct Marked {
  Ids tokens, targets, starts;
};

Marked load_marked(BatchLoader& loader, std::int64_t position, std::int64_t batch, std::int64_t sequence) {
  const auto size = static_cast<std::size_t>(batch * sequence);
  Marked marked{Ids(size), Ids(size), Ids(size, -5)};
  loader.load(position, batch, {marked.tokens, marked.targets, marked.starts});
  return marked;
}

class DocumentsOfSamples : public ::testing::Test {
 protected:
  BatchLoader loader(const Documents& documents, std::int64_t sequence, DocumentBoundaries boundaries) const {
    write_dataset(folder_ / "text", documents, 100);
    const std::vector<WeightedPath> train = {{folder_ / "text", 1.0}};
    return BatchLoader(open_token_sources(train, {}, {}).train,
                       {.sequence = sequence,
                        .vocab_size = 100,
                        .shuffle = Shuffle::kInOrder,
                        .documents = {.boundaries = boundaries, .eod = kEod, .masks_targets = true}});
  }

  TemporaryFolder folder_;
};

TEST_F(DocumentsOfSamples, BeginBehindEachEndAndCountFromWhereTheyBegin) {
  struct Case {
    const char* what;
    Ids text, targets, starts;
  };
  const std::vector<Case> cases = {
      {"no end", {1, 2, 3, 4, 5}, {2, 3, 4, 5}, {0, 0, 0, 0}},
      {"an end first", {7, 2, 3, 4, 5}, {-1, 3, 4, 5}, {0, 1, 1, 1}},
      {"an end in the middle", {1, 7, 3, 4, 5}, {7, -1, 4, 5}, {0, 0, 2, 2}},
      {"an end as the last input", {1, 2, 3, 7, 5}, {2, 3, 7, -1}, {0, 0, 0, 0}},
      {"an end as the last target alone", {1, 2, 3, 4, 7}, {2, 3, 4, 7}, {0, 0, 0, 0}},
      {"two ends, a document of one token", {1, 7, 7, 4, 5}, {7, -1, -1, 5}, {0, 0, 2, 3}},
      {"ends alone", {7, 7, 7, 7, 7}, {-1, -1, -1, -1}, {0, 1, 2, 3}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    BatchLoader by_eod = loader({c.text}, 4, DocumentBoundaries::kEod);
    const Marked marked = load_marked(by_eod, 0, 1, 4);
    EXPECT_EQ(marked.targets, c.targets);
    EXPECT_EQ(marked.starts, c.starts);
    // The same documents as sequences of the index.
    Documents documents(1);
    for (const std::int32_t id : c.text) {
      documents.back().push_back(id);
      if (id == kEod) documents.emplace_back();
    }
    BatchLoader by_index = loader(documents, 4, DocumentBoundaries::kIndex);
    const Marked of_index = load_marked(by_index, 0, 1, 4);
    EXPECT_EQ(of_index.targets, c.targets);
    EXPECT_EQ(of_index.starts, c.starts);
  }
}

TEST_F(DocumentsOfSamples, ASampleThatBeginsInsideADocumentCountsFromZero) {
  const Ids first = {1, 2, 3, 4, 5, 6, 7}, second = {8, 9, 7}, third = {10, 11, 12, 13, 14};
  for (const DocumentBoundaries boundaries : {DocumentBoundaries::kEod, DocumentBoundaries::kIndex}) {
    BatchLoader mine = loader({first, {}, second, third}, 4, boundaries);
    const Marked marked = load_marked(mine, 0, 3, 4);
    EXPECT_EQ(marked.starts, (Ids{0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 2, 2}));
    EXPECT_EQ(marked.targets, (Ids{2, 6, 7, 3, 7, -1, 4, -1, 11, 5, 9, 12})) << "sequence-major";
    // Each side by itself has the same.
    Ids targets(12), starts(12, -5);
    mine.load(0, 3, {.targets = targets});
    EXPECT_EQ(targets, marked.targets);
    mine.load(0, 3, {.document_starts = starts});
    EXPECT_EQ(starts, marked.starts);
  }
}

TEST_F(DocumentsOfSamples, CostNoAllocation) {
  for (const DocumentBoundaries boundaries : {DocumentBoundaries::kEod, DocumentBoundaries::kIndex}) {
    BatchLoader other = loader(counting_documents(40, 100), 20, boundaries);
    Marked marked = load_marked(other, 0, 2, 20);
    BatchLoader mine = loader(counting_documents(40, 100), 20, boundaries);  // what the first batches do not need may come later
    const NoAllocationScope scope("loading");
    for (std::int64_t position = 0; position < 30; position += 2)
      mine.load(position, 2, {marked.tokens, marked.targets, marked.starts});
  }
}

TEST_F(DocumentsOfSamples, AreRefusedWhereTheIndexIsDamaged) {
  loader(counting_documents(70, 100), 10, DocumentBoundaries::kIndex);  // 60 sequences; number 30 begins at token 525, 31 at 530
  const std::string path = folder_ / "text.idx", whole = read_file(path);
  for (const auto& [sequence, offset, words] :
       {std::tuple(30, 3, "offset of sequence 30 = 3"), {31, 1062, "offset of sequence 31 = 1062, expected 1060"}}) {
    std::string idx = whole;
    const std::int64_t wrong = offset;
    std::memcpy(idx.data() + 34 + 4 * 60 + 8 * sequence, &wrong, sizeof wrong);
    write_file(path, idx);
    const std::vector<WeightedPath> train = {{folder_ / "text", 1.0}};
    BatchLoader damaged(
        open_token_sources(train, {}, {}).train,
        {.sequence = 10, .vocab_size = 100, .shuffle = Shuffle::kInOrder, .documents = {.boundaries = DocumentBoundaries::kIndex}});
    Ids starts(10);
    expect_error<DataError>([&] { damaged.load(52, 1, {.document_starts = starts}); }, {".idx", words});
  }
}

// Start-up looks at few places of the index. What it did not see must name itself, or do no harm, when it is used.
TEST_F(BatchLoaderTest, AnIndexDamagedWhereStartUpDoesNotLook) {
  write_dataset(prefix_, counting_documents(700, kVocab), kVocab);  // 600 sequences, 701 document entries
  const std::string whole = read_file(prefix_ + ".idx");
  const auto damage = [&](std::size_t offset, std::int64_t value) {
    std::string idx = whole;
    std::memcpy(idx.data() + offset, &value, sizeof value);
    write_file(prefix_ + ".idx", idx);
  };
  const std::vector<WeightedPath> train = {{prefix_, 1.0}};
  constexpr std::size_t kOffsets = 34 + 4 * 600, kEntries = 34 + 12 * 600;
  const auto open = [&](const char* split) { return open_token_sources(train, {}, split); };
  sample_dataset(*open("1,1").train[0].dataset, kVocab);
  for (const std::int64_t value : {std::int64_t{-1}, std::int64_t{601}, std::int64_t{1} << 62}) {
    damage(kEntries + 8 * 350, value);
    EXPECT_NO_THROW(sample_dataset(IndexedDataset(prefix_), kVocab)) << "it does not look there";
    expect_error<DataError>([&] { open("1,1"); }, {".idx", fmt::format("document index entry 350 = {}", value)});
    EXPECT_NO_THROW(open("3,1"));
  }
  damage(kEntries + 8 * 350, 599);  // behind what follows: 525 documents end at sequence 450
  expect_error<DataError>([&] { open("350,175,175"); },
                          {".idx", "document 350 begins at token", "documents must follow each other"});
  for (const std::int64_t value : {std::int64_t{-2}, std::int64_t{7}, std::int64_t{1} << 40}) {
    damage(kOffsets + 8 * 300, value);
    expect_error<DataError>([&] { open("1,1"); }, {".idx", fmt::format("offset of sequence 300 = {}", value)});
    // The document of a bad token cannot be found, the token is named all the same.
    BatchLoader loader(open_token_sources(train, {}, {}).train,
                       {.sequence = 10, .vocab_size = 990, .seed = 9, .shuffle = Shuffle::kInOrder});
    Ids tokens(10);
    expect_error<DataError>([&] { loader.load(99, 1, {tokens}); },
                            {"token 990 has id 990 (in a document that its .idx does not tell", "vocabulary of 990"});
  }
}

// Three documents of sequences [1 2 3] [4 5], [6 7 8 9 10], and nothing; 5 and 9 do not count.
class PackedSamples : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "packs";

  void SetUp() override {
    IndexedDatasetWriter writer(prefix_, TokenType::kU16, Overwrite::kNo, WithMask::kYes);
    const auto add = [&](const Ids& ids) {
      std::vector<std::uint8_t> counts;
      for (const std::int32_t id : ids) counts.push_back(id != 5 && id != 9);
      writer.add_sequence(ids, counts);
    };
    add({1, 2, 3}), add({4, 5}), writer.end_document();
    add({6, 7, 8, 9, 10}), writer.end_document();
    writer.end_document();
    writer.finish({});
  }
  TokenSource source() const {
    const std::vector<WeightedPath> train = {{prefix_, 1.0}};
    return open_token_sources(train, {}, {}, ::pread, SampleKind::kPacked).train.front();
  }
  BatchLoader loader(std::int64_t sequence) const {
    return BatchLoader({source()}, {.sequence = sequence, .vocab_size = kVocab, .shuffle = Shuffle::kInOrder});
  }
};

TEST_F(PackedSamples, ASampleIsADocumentWhoseSequencesAreByThemselves) {
  BatchLoader packs = loader(6);
  EXPECT_EQ(packs.samples_per_epoch(), 3);
  Ids tokens(18), targets(18), starts(18);
  packs.load(0, 3, {tokens, targets, starts});
  const auto column = [](const Ids& ids, std::size_t i) {
    Ids of_sample;
    for (std::size_t s = 0; s < 6; ++s) of_sample.push_back(ids[s * 3 + i]);
    return of_sample;
  };
  EXPECT_EQ(column(tokens, 0), (Ids{1, 2, 3, 4, 5, 0}));
  EXPECT_EQ(column(targets, 0), (Ids{2, 3, -1, -1, -1, -1}));
  EXPECT_EQ(column(tokens, 1), (Ids{6, 7, 8, 9, 10, 0}));
  EXPECT_EQ(column(targets, 1), (Ids{7, 8, -1, 10, -1, -1}));
  EXPECT_EQ(column(tokens, 2), Ids(6, 0));
  EXPECT_EQ(column(targets, 2), Ids(6, -1));
  EXPECT_EQ(starts, (Ids{0, 0, 0, 3, 3, 5, 0, 0, 0, 0, 0, 5, 0, 1, 2, 3, 4, 5}));
  // Pipeline stages load what they need, and a pack may fill the sample: no token behind it is asked for.
  BatchLoader full = loader(5);
  for (const std::int64_t position : {0, 1, 2, 4}) {
    Ids all_tokens(5), all_targets(5), all_starts(5), alone(5);
    full.prefetch(position, 1);
    full.load(position, 1, {all_tokens, all_targets, all_starts});
    full.load(position, 1, {.tokens = alone});
    EXPECT_EQ(alone, all_tokens);
    full.load(position, 1, {.targets = alone});
    EXPECT_EQ(alone, all_targets);
    full.load(position, 1, {.document_starts = alone});
    EXPECT_EQ(alone, all_starts);
  }
}

TEST_F(PackedSamples, ADocumentThatIsTooLongIsRefusedAndTargetsAreCounted) {
  EXPECT_EQ(look_at_packs(source(), 5), 5);
  expect_error<DataError>([&] { look_at_packs(source(), 4); },
                          {"packs.idx: document 0 has 5 tokens", "at most 4", "trident data pack"});
  BatchLoader packs = loader(4);
  Ids tokens(4);
  expect_error<DataError>([&] { packs.load(1, 1, {.tokens = tokens}); }, {"document 1 has 5 tokens"});
  write_dataset(folder_ / "single", {{1}, {2}}, kVocab);
  const std::vector<WeightedPath> single = {{folder_ / "single", 1.0}};
  expect_error<DataError>(
      [&] { look_at_packs(open_token_sources(single, {}, {}, ::pread, SampleKind::kPacked).train.at(0), 4); },
      {"single: of 2 packs none has a target that counts", "trident data inspect"});
  write_dataset(folder_ / "none", {}, kVocab);
  const std::vector<WeightedPath> none = {{folder_ / "none", 1.0}};
  expect_error<DataError>(
      [&] {
        BatchLoader(open_token_sources(none, {}, {}, ::pread, SampleKind::kPacked).train, {.sequence = 4, .vocab_size = kVocab});
      },
      {"none: has no document"});
}

TEST_F(PackedSamples, ASplitGoesByDocuments) {
  const std::vector<WeightedPath> train = {{prefix_, 1.0}};
  const TokenSources sources = open_token_sources(train, {}, "1,2", ::pread, SampleKind::kPacked);
  BatchLoader valid(sources.valid, {.sequence = 5, .vocab_size = kVocab, .shuffle = Shuffle::kInOrder});
  EXPECT_EQ(sources.train.front().num_samples(5), 1);
  EXPECT_EQ(valid.samples_per_epoch(), 2);
  Ids tokens(5);
  valid.load(0, 1, {.tokens = tokens});
  EXPECT_EQ(tokens, (Ids{6, 7, 8, 9, 10}));
  EXPECT_EQ(look_at_packs(sources.valid.front(), 5), 3);
  const TokenSources none = open_token_sources(train, {}, "99,1", ::pread, SampleKind::kPacked);
  expect_error<DataError>([&] { BatchLoader(none.valid, {.sequence = 5, .vocab_size = kVocab}); },
                          {"validation part of data.split, 0 of 3 documents): has no document", "--set data.split=80,20"});
}

TEST(Epochs, TakeAsManyStepsAsHoldTheirSamples) {
  EXPECT_EQ(steps_of_epochs(1, 8, 4), 2);
  EXPECT_EQ(steps_of_epochs(1, 9, 4), 3);
  EXPECT_EQ(steps_of_epochs(2, 9, 4), 5);
  EXPECT_EQ(steps_of_epochs(0.5, 9, 4), 2);
  EXPECT_EQ(steps_of_epochs(0.001, 9, 4), 1);
  EXPECT_EQ(steps_of_epochs(1.1, 10, 1), 11) << "1.1 x 10 is a little more than 11 as a double";
  EXPECT_EQ(steps_of_epochs(1e10, 9, 1), 90'000'000'000);
  for (const double endless : {1.1e15, 1e30, 1e308})
    EXPECT_NE(error_of<ConfigError>([&] { steps_of_epochs(endless, 9, 1); }).find("2^53"), std::string::npos) << endless;
}

}  // namespace
}  // namespace trident
