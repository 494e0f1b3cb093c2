// The trainer on several nodes (network namespaces, scripts/nodes.sh): it trains what one rank trains, says what crosses the
// network, and says so truly: the nodes' interfaces count the same bytes.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "core/file_io.h"
#include "tests/app/program.h"
#include "tests/data/token_files.h"
#include "tests/nodes/nodes_script.h"

namespace trident {
namespace {

const char* const kSpans = "tensor-parallel groups span nodes";

struct NodesRun {
  ProgramOutcome outcome;
  std::vector<JsonValue> metrics;
  double bytes_on_links = 0;  // that the nodes sent, as their interfaces counted
};

double number(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  EXPECT_TRUE(value != nullptr && value->is_number()) << key << " in " << to_json_text(object);
  return value == nullptr ? std::nan("") : value->as_number();
}

class Nodes : public ::testing::Test {
 protected:
  void SetUp() override { skip_unless_nodes({}); }

  // `options`: of nodes.sh, for the nodes that this test needs.
  void skip_unless_nodes(std::vector<std::string> options) {
    options.insert(options.begin(), kNodes);
    options.insert(options.end(), {"1", "true"});
    const ProgramOutcome probe = run_command(options);
    if (probe.exit_code == kCannotMakeNodes) GTEST_SKIP() << probe.err;
    ASSERT_EQ(probe.exit_code, 0) << probe.err;
  }

  // trident train with these settings on `nodes` nodes of `slots` slots, started by `launch` (mpirun or srun and its options).
  NodesRun train(int nodes, int slots, const std::vector<std::string>& launch, std::vector<std::string> settings,
                 const std::string& name = "nodes") {
    std::vector<std::string> words{kNodes, "--slots", std::to_string(slots), "--bytes", place_ / (name + ".bytes")};
    if (launch.front() == "srun") words.push_back("--slurm");
    words.insert(words.end(), options_.begin(), options_.end());
    words.push_back(std::to_string(nodes));
    words.insert(words.end(), launch.begin(), launch.end());
    words.insert(words.end(), {TRIDENT_BINARY, "train", "--config", place_ / "config.json"});
    settings.push_back("run.dir=" + (place_ / name));
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    NodesRun run;
    run.outcome = run_command(words);
    EXPECT_EQ(run.outcome.exit_code, 0) << run.outcome.out << run.outcome.err;
    if (run.outcome.exit_code != 0) return run;
    run.metrics = place_.metrics(name);
    std::istringstream counters(read_file(place_ / (name + ".bytes")));
    std::string node;
    for (double sent = 0, received = 0; counters >> node >> sent >> received;) run.bytes_on_links += sent;
    return run;
  }

  // One rank, a thread, with the same settings apart from the layout.
  std::vector<JsonValue> alone(std::vector<std::string> settings) {
    settings.push_back("run.dir=" + (place_ / "alone"));
    succeeded(place_.train(settings));
    return place_.metrics("alone");
  }

  static void expect_same_training(const NodesRun& run, const std::vector<JsonValue>& reference) {
    ASSERT_EQ(run.metrics.size(), reference.size());
    ASSERT_FALSE(reference.empty());
    for (std::size_t i = 0; i < reference.size(); ++i) {
      for (const auto& [key, relative] : {std::pair{"loss", 1e-6}, std::pair{"grad_norm", 1e-5}}) {
        const double expected = number(reference[i], key);
        EXPECT_LE(std::abs(number(run.metrics[i], key) - expected), relative * expected)
            << key << ": " << to_json_text(run.metrics[i]) << '\n' << to_json_text(reference[i]);
      }
    }
  }

  // What the run says it sent between nodes, and what the links say. Headers and start-up make the difference: payload must
  // dominate.
  static void expect_counted_bytes(const NodesRun& run) {
    static const std::string kLine = "bytes sent between nodes, whole run: ";
    const auto at = run.outcome.out.find(kLine);
    ASSERT_NE(at, std::string::npos) << run.outcome.out;
    const double counted = std::strtod(run.outcome.out.c_str() + at + kLine.size(), nullptr);
    EXPECT_GT(counted, 1e7) << "too little traffic to compare";
    RecordProperty("counted_over_links", fmt::format("{:.4f} of {}", counted / run.bytes_on_links, run.bytes_on_links));
    EXPECT_NEAR(counted / run.bytes_on_links, 1, 0.05) << counted << " counted, " << run.bytes_on_links << " on the links";
  }

  Workplace place_;
  std::vector<std::string> options_;  // of nodes.sh, besides
};

const std::vector<std::string> kMpirun{"mpirun"};
const char* const kDataAcross = "parallel.order=tp-cp-pp-dp";  // of tp2 x pp2 x dp2 on two nodes; the default order puts pp there

class DataAcross : public Nodes, public ::testing::WithParamInterface<const char*> {};

// Two nodes of four: tensor and pipeline groups inside, data-parallel ones across.
TEST_P(DataAcross, TrainsAsOneRank) {
  const NodesRun run =
      train(2, 4, kMpirun, {"run.steps=3", "parallel=2DP x 2PP x 2TP", kDataAcross, fmt::format("parallel.zero={}", GetParam())});
  expect_same_training(run, alone({"run.steps=3"}));
  expect_counted_bytes(run);
  EXPECT_EQ(run.outcome.err.find(kSpans), std::string::npos) << run.outcome.err;
}
INSTANTIATE_TEST_SUITE_P(TwoNodes, DataAcross, ::testing::Values("ddp", "zero1", "zero2", "zero3"),
                         [](const auto& info) { return std::string(info.param); });

// As many ranks as users have, not a power of two, with micro-batches for three data ranks. Every preset has the same numbers.
class TwelveRanks : public Nodes, public ::testing::WithParamInterface<const char*> {};
TEST_P(TwelveRanks, TrainAsOneRank) {
  const NodesRun run = train(3, 4, kMpirun, {"run.steps=3", "batch.global=24", "parallel=3DP x 2PP x 2TP", fmt::format("parallel.zero={}", GetParam())});
  expect_same_training(run, alone({"run.steps=3", "batch.global=24"}));
  expect_counted_bytes(run);
}
INSTANTIATE_TEST_SUITE_P(ThreeNodes, TwelveRanks, ::testing::Values("ddp", "zero1", "zero2", "shard_grad_op", "zero3"),
                         [](const auto& info) { return std::string(info.param); });

// Nodes of 5 and 7: no group has equally many ranks on both, and tensor-parallel groups span them.
TEST_F(Nodes, TwelveRanksOnUnequalNodes) {
  const NodesRun run = train(2, 7, {"mpirun", "--host", "n1:5,n2:7"}, {"run.steps=3", "batch.global=24", "parallel=3DP x 4TP", "parallel.zero=zero3"});
  expect_same_training(run, alone({"run.steps=3", "batch.global=24"}));
  expect_counted_bytes(run);
  expect_parts(run.outcome.err, {kSpans});
}

// The layout of the demo on two nodes, with tensor-parallel groups across them.
TEST_F(Nodes, ThirtyTwoRanksOnTwo) {
  const NodesRun run = train(2, 16, kMpirun, {"run.steps=2", "batch.global=24", "parallel=2DP x 4PP x 4TP", "parallel.order=pp-dp-cp-tp"});
  expect_same_training(run, alone({"run.steps=2", "batch.global=24"}));
  expect_parts(run.outcome.err, {kSpans});
}

// A small vocabulary, long micro-batches and no tokenizer to hand out: what crosses nodes are activations and their gradients.
TEST_F(Nodes, PipelineAcrossTwo) {
  write_dataset(place_ / "counting", counting_documents(2000, 512), 512);
  const std::vector<std::string> model{"run.steps=4",          "data.tokenizer=null",  "data.train=" + (place_ / "counting"),
                                       "model.vocab_size=512", "model.hidden_size=64", "model.max_position_embeddings=128",
                                       "batch.sequence=128",   "batch.micro=4",        "batch.global=64"};
  std::vector<std::string> settings{"parallel=2DP x 2PP x 2TP", "parallel.sequence_parallel=true"};
  settings.insert(settings.end(), model.begin(), model.end());
  const NodesRun run = train(2, 4, kMpirun, settings);
  expect_same_training(run, alone(model));
  expect_counted_bytes(run);
}

// Both data and pipeline across, with virtual stages, so that neighbours alternate between nodes.
TEST_F(Nodes, DataAndPipelineAcrossFour) {
  const NodesRun run = train(4, 2, kMpirun,
                             {"run.steps=3", "parallel=2DP x 2PP x 2TP", "parallel.schedule=interleaved",
                              "parallel.virtual_stages=2", "parallel.zero=shard_grad_op", "parallel.sequence_parallel=true"});
  expect_same_training(run, alone({"run.steps=3"}));
  expect_counted_bytes(run);
}

// Rank 0 says what the nodes speak over. The mpirun of Open MPI 5.0.7 (Debian 13) itself ends with a segmentation fault there.
TEST_F(Nodes, WithoutIpv4) {
  const ProgramOutcome probe = run_command({kNodes, "--ipv6", "1", "mpirun", "-np", "1", "true"});
  if (probe.exit_code != 0) GTEST_SKIP() << "mpirun itself fails without IPv4: " << probe.err;
  options_ = {"--ipv6"};
  const NodesRun run = train(2, 2, kMpirun, {"run.steps=3", "parallel=2DP x 2PP"});
  expect_same_training(run, alone({"run.steps=3"}));
  expect_parts(run.outcome.out, {"between nodes: TCP"});
}

// Groups with unequally many ranks on a node, and a tensor-parallel one that spans both: it works, and is warned about.
TEST_F(Nodes, TensorGroupThatSpansNodesIsNamed) {
  const NodesRun run = train(2, 3, {"mpirun", "--host", "n1:3,n2:1"}, {"run.steps=3", "parallel=2DP x 2TP"});
  expect_same_training(run, alone({"run.steps=3"}));
  const std::string& err = run.outcome.err;
  for (const char* part : {kSpans, "2 (n1)", "3 (n2)"})
    EXPECT_NE(err.find(part), std::string::npos) << "no \"" << part << "\" in: " << err;
}

// Tests pretend nodes on one machine (ranks_per_node), and not across machines.
TEST_F(Nodes, RanksOfTwoMachinesAreNotTakenForOneNode) {
  std::filesystem::create_directory(place_ / "ended");
  const ProgramOutcome outcome = run_command({kNodes, "--slots", "1", "2", "mpirun", FAILING_RANK, place_ / "ended", "is_apart"});
  EXPECT_EQ(outcome.exit_code, 64) << outcome.out << outcome.err;
  for (const char* rank : {"ended/0", "ended/1"})
    EXPECT_EQ(read_file(place_ / rank), "64 ranks_per_node = 2: ranks 0..1 do not run on one machine\n");
}

TEST_F(Nodes, SrunStartsRanks) {
  skip_unless_nodes({"--slurm"});
  if (IsSkipped()) return;
  const NodesRun run = train(2, 2, {"srun", "--mpi=pmix", "-N", "2", "--ntasks-per-node=2"}, {"run.steps=3", "parallel=2DP x 2TP"});
  expect_same_training(run, alone({"run.steps=3"}));
  expect_counted_bytes(run);
}

// scancel reaches the ranks, which end together at a step boundary.
TEST_F(Nodes, SrunRanksAreAskedToStop) {
  skip_unless_nodes({"--slurm"});
  if (IsSkipped()) return;
  const std::string script = fmt::format(
      "srun --mpi=pmix -N 2 --ntasks-per-node=1 {} train --config {} --set run.dir={} --set run.steps=100000 --set parallel=2DP &\n"
      "until [ -s {}/metrics.jsonl ]; do sleep 0.1; done\n"
      "scancel --signal=TERM 1\n"
      "wait $!",
      TRIDENT_BINARY, place_ / "config.json", place_ / "stopped", place_ / "stopped");
  const ProgramOutcome outcome = run_command({kNodes, "--slots", "1", "--slurm", "2", "sh", "-c", script});
  EXPECT_EQ(outcome.exit_code, 143) << outcome.out << outcome.err;
  expect_parts(outcome.err, {"stopped by SIGTERM at the end of a step"});
}

}  // namespace
}  // namespace trident
