// Tests what a run's start reads of its token files, and what the ranks compare.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "core/host_name.h"
#include "tests/data/huge_dataset.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/support/meeting.h"
#include "train/config/stored_config.h"
#include "train/launch/prepare_run.h"

namespace trident {
namespace {

class RunDataTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;

  static RunInputs inputs_of(const std::vector<std::string>& paths) {
    RunInputs inputs;
    TrainConfig& config = inputs.plan.config;
    for (const std::string& path : paths) config.data.train.push_back({.path = path, .weight = 1});
    config.batch.sequence = 4096;
    config.eval.every = {};
    inputs.plan.model.vocab_size = 100;
    return inputs;
  }
  std::vector<DataFacts> facts_of(const std::string& name, const Documents& documents, bool looks = true) {
    write_dataset(folder_ / name, documents, 100);
    RunInputs inputs = inputs_of({folder_ / name});
    inputs.plan.config.batch.sequence = 4;
    open_data(inputs, looks);
    return inputs.data_facts;
  }
};

// One process of a node looks at few places, the others at the boundaries: on 1 TB as on 20 MB, and with a batch as large as it may
// be.
TEST_F(RunDataTest, StartReadsLessThanAMegabytePerNode) {
  constexpr int kRanks = 128;  // of a node
  std::int64_t before = 0;
  for (const std::int64_t sequences : {std::int64_t{2000}, std::int64_t{100'000'000}}) {
    HugeDataset dataset(folder_ / fmt::format("of{}", sequences), sequences, 5000);
    if (!dataset.is_there()) GTEST_SKIP() << "no sparse file of 1 TB in " << folder_.path();
    for (int local_rank = 0; local_rank < kRanks; ++local_rank) {
      RunInputs inputs = inputs_of({dataset.prefix()});
      inputs.plan.config.data.split = "969,30,1";
      inputs.plan.config.eval.every.steps = 10;
      inputs.plan.config.batch.global = 100'000;
      open_data(inputs, local_rank == 0, dataset.read_at());
      ASSERT_EQ(inputs.data_facts.size(), 2u);
      EXPECT_EQ(inputs.sources.valid[0].num_tokens, dataset.num_tokens() / 1000 * 30);
      EXPECT_EQ(inputs.data_facts[1].content.empty(), local_rank != 0);
    }
    EXPECT_LE(dataset.bytes_read, 1'000'000);
    EXPECT_TRUE(before == 0 || before == dataset.bytes_read) << before << " and " << dataset.bytes_read;
    before = dataset.bytes_read;
  }
}

// Records are compared by one process of a node: of each file at most 64 KiB.
TEST_F(RunDataTest, StartReadsLessThanAMegabyteOfABlendWithRecords) {
  constexpr int kSources = 7, kRanks = 8;
  std::vector<std::string> paths;
  for (int i = 0; i < kSources; ++i) {
    paths.push_back(folder_ / fmt::format("part{}", i));
    IndexedDatasetWriter writer(paths.back(), 100, Overwrite::kNo);
    for (int d = 0; d < 5000; ++d) writer.add_document(std::vector<std::int32_t>(10, d % 100));
    writer.finish({});
  }
  std::size_t bytes_read = 0;
  const ReadAt count = [&](int descriptor, void* out, std::size_t bytes, off_t offset) {
    bytes_read += bytes;
    return ::pread(descriptor, out, bytes, offset);
  };
  for (int local_rank = 0; local_rank < kRanks; ++local_rank) {
    RunInputs inputs = inputs_of(paths);
    open_data(inputs, local_rank == 0, count);
    EXPECT_EQ(inputs.plan.details.size(), local_rank == 0 ? std::size_t{kSources} : 0u) << "no tokenizer is recorded";
  }
  EXPECT_GE(bytes_read, std::size_t{kSources} * 2 * 65536);
  EXPECT_LE(bytes_read, 1'000'000u);
}

TEST_F(RunDataTest, AVocabularyFarBeyondTheTokenizersIsNoted) {
  write_dataset(folder_ / "text", {std::vector<std::int32_t>(5000, 5)}, 100);
  for (const std::int64_t vocabulary : {1024, 1028}) {
    RunInputs inputs = inputs_of({folder_ / "text"});
    inputs.plan.config.data.tokenizer = "bytes";
    inputs.plan.model.vocab_size = vocabulary;
    open_data(inputs, true);
    const auto is_it = [](const std::string& note) { return note.find("model.vocab_size=260 trains") != note.npos; };
    EXPECT_EQ(std::ranges::any_of(inputs.plan.notes, is_it), vocabulary == 1028);
  }
}

TEST_F(RunDataTest, RefusesWhatCannotBeTrainedOn) {
  write_dataset(folder_ / "short", {std::vector<std::int32_t>(4096, 5)}, 100);
  RunInputs inputs = inputs_of({folder_ / "short"});
  expect_error<DataError>([&] { open_data(inputs, false); }, {"4096 tokens available"});
  write_dataset(folder_ / "long", {std::vector<std::int32_t>(5000, 100)}, 1000);
  inputs = inputs_of({folder_ / "long"});
  expect_error<DataError>([&] { open_data(inputs, true); }, {"token 0 has id 100 (document 0, its token 0)"});
  EXPECT_NO_THROW(open_data(inputs, false)) << "another process looks";
  inputs = inputs_of({folder_ / "long"});
  inputs.plan.config.eval.every.steps = 1;
  expect_error<ConfigError>([&] { open_data(inputs, false); }, {"eval.every = 1", "no validation data"});
}

// The files that are there tell before the run whether targets are counted, and by the time they are opened it still holds.
TEST_F(RunDataTest, AMaskIsKnownToThePlanAndToOtherNodes) {
  const Documents documents(3, std::vector<std::int32_t>(20, 5));
  write_masked_dataset(folder_ / "chat", documents, std::vector<std::uint8_t>(60, 1), 100);
  write_dataset(folder_ / "plain", documents, 100);
  TrainConfig config;
  config.data.train = {{folder_ / "plain", 1}};
  EXPECT_FALSE(with_facts_of_files(config).data.masks_targets());
  config.data.valid = {{folder_ / "chat", 1}};
  EXPECT_TRUE(with_facts_of_files(config).data.masks_targets()) << "validation loss is a mean over what counts, too";
  EXPECT_EQ(with_facts_of_files(config).data.counted_share, 1);
  std::vector<std::uint8_t> counts(60, 0);
  for (std::size_t i = 0; i < counts.size(); i += 4) counts[i] = 1;
  write_masked_dataset(folder_ / "quarter", documents, counts, 100);
  config.data.train = {{folder_ / "plain", 1}, {folder_ / "quarter", 3}};
  EXPECT_DOUBLE_EQ(with_facts_of_files(config).data.counted_share, (1 + 3 * 0.25) / 4);
  RunInputs inputs = inputs_of({folder_ / "chat"});
  inputs.plan.config.batch.sequence = 4;
  expect_error<DataError>([&] { open_data(inputs, true); }, {"chat: another command replaced its mask", "start again"});
  inputs.data_facts.clear();
  inputs.plan.config.data.has_mask = true;
  open_data(inputs, true);
  const std::vector<DataFacts> plain = facts_of("plain", documents);
  EXPECT_EQ(inputs.data_facts[0].sizes, plain[0].sizes + ", with a mask of targets");
  EXPECT_NE(inputs.data_facts[0].content, plain[0].content);
}

TEST_F(RunDataTest, APlanOfPacksGoesByTheirSequencesAndStepsByTheEpochs) {
  IndexedDatasetWriter writer(folder_ / "packs", TokenType::kU16, Overwrite::kNo, WithMask::kNo);
  for (int pack = 0; pack < 5; ++pack) {
    for (const int length : {3, 5, 4}) writer.add_sequence(std::vector<std::int32_t>(static_cast<std::size_t>(length), 7));
    writer.end_document();
  }
  writer.finish({});
  TrainConfig config = parse_train_config(
      R"({"run": {"dir": "unused", "epochs": 1.5}, "model": {"preset": "gpt2-124m"}, "batch": {"global": 2, "sequence": 16},
          "data": {"train": ")" + (folder_ / "packs") + R"(", "samples": "packed"}})", "text");
  EXPECT_EQ(config.run.steps, 0);
  EXPECT_TRUE(config.data.masks_targets() && config.data.needs_starts());
  config = with_facts_of_files(config);
  EXPECT_EQ(config.data.mean_document_tokens(), 4);
  EXPECT_EQ(config.run.steps, 4) << "7.5 samples";
  const TrainConfig again = parse_train_config(to_json_text(to_json(config)), "resolved");
  EXPECT_EQ(to_json(again), to_json(config));
  EXPECT_EQ(read_stored(to_stored(config), "stored").config.run.steps, 4);
}

struct Ended {
  int code = 0;
  std::string message;
};

// Returns what becomes of ranks that compare these.
std::vector<Ended> compared(const std::vector<std::vector<DataFacts>>& ranks) {
  std::vector<Ended> ended(ranks.size());
  testing::on_meeting_ranks(std::vector<int>(ranks.size(), 0), [&](Rendezvous& job, Rendezvous&) {
    const auto r = static_cast<std::size_t>(job.rank());
    try {
      compare_data(job, "n1", ranks[r]);
    } catch (const Error& error) {
      ended[r] = {static_cast<int>(error.code()), error.what()};
    }
  });
  return ended;
}

TEST_F(RunDataTest, DataThatDifferAreNamedOnBothSides) {
  const Documents documents = {{1, 2, 3, 4, 5, 6, 7, 8}};
  const auto mine = facts_of("a", documents), alike = facts_of("b", documents), unseen = facts_of("c", documents, false),
             other = facts_of("d", {{1, 2, 3, 4, 5, 6, 7, 9}}), longer = facts_of("e", {{1, 2, 3, 4, 5, 6, 7, 8, 9}}, false);
  for (const Ended& e : compared({mine, unseen, alike, unseen})) EXPECT_EQ(e.code, 0) << e.message;
  const auto differ = compared({mine, unseen, other, unseen});
  for (const Ended& e : differ) EXPECT_EQ(e.code, 65);
  EXPECT_EQ(
      differ[0].message,
      fmt::format("rank 2 ({}): the training data differs: {} has {}; on rank 0 (n1) it has {}; give all nodes the same files",
                  host_name(), folder_ / "d", other[0].content, mine[0].content));
  EXPECT_NE(other[0].content, mine[0].content);
  const auto sizes = compared({mine, longer, alike});
  EXPECT_EQ(sizes[0].message,
            fmt::format("rank 1 ({}): the training data differs: {} has 1 document, 1 sequence, 9 tokens of type uint16, "
                        "from 0 for 9; on rank 0 (n1) it has {}; give all nodes the same files",
                        host_name(), folder_ / "e", mine[0].sizes));
  EXPECT_EQ(sizes[2].code, 65);
}

TEST_F(RunDataTest, OfSeveralSourcesTheOneThatDiffersIsNamed) {
  auto two = facts_of("a", {{1, 2, 3, 4, 5, 6}}), same = facts_of("b", {{1, 2, 3, 4, 5, 6}});
  auto third = facts_of("c", {{1, 2, 3, 4, 5, 7}});
  std::vector<DataFacts> on_0 = {two[0], two[0]}, on_1 = {same[0], third[0]};
  const auto ended = compared({on_0, on_1});
  EXPECT_NE(ended[0].message.find(folder_ / "c"), std::string::npos) << ended[0].message;
}

}  // namespace
}  // namespace trident
