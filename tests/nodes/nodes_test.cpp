// The trainer on several nodes (network namespaces, scripts/nodes.sh): it trains what one rank trains, says what crosses the
// network, and says so truly: the nodes' interfaces count the same bytes.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <regex>
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

  // The run's bytes between nodes are the links'. Headers and start-up make the difference: payload must
  // dominate.
  static void expect_counted_bytes(const NodesRun& run) {
    static const std::string kLine = "bytes sent between nodes, whole run: ";
    const auto at = run.outcome.out.find(kLine);
    ASSERT_NE(at, std::string::npos) << run.outcome.out;
    std::string digits = run.outcome.out.substr(at + kLine.size(), run.outcome.out.find('\n', at) - at - kLine.size());
    std::erase(digits, ',');
    const double counted = std::stod(digits);
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
TEST_F(Nodes, TwelveRanksTrainOnUnequalNodes) {
  const NodesRun run = train(2, 7, {"mpirun", "--host", "n1:5,n2:7"}, {"run.steps=3", "batch.global=24", "parallel=3DP x 4TP", "parallel.zero=zero3"});
  expect_same_training(run, alone({"run.steps=3", "batch.global=24"}));
  expect_counted_bytes(run);
  expect_parts(run.outcome.err, {kSpans});
}

// The layout of the demo on two nodes, with tensor-parallel groups across them.
TEST_F(Nodes, ThirtyTwoRanksTrainOnTwo) {
  const NodesRun run = train(2, 16, kMpirun, {"run.steps=2", "batch.global=24", "parallel=2DP x 4PP x 4TP", "parallel.order=pp-dp-cp-tp"});
  expect_same_training(run, alone({"run.steps=2", "batch.global=24"}));
  expect_parts(run.outcome.err, {kSpans});
}

// A small vocabulary, long micro-batches and no tokenizer to hand out: what crosses nodes are activations and their gradients.
TEST_F(Nodes, APipelineRunsAcrossTwo) {
  write_dataset(place_ / "counting", counting_documents(2000, 512), 512);
  const std::vector<std::string> model{"run.steps=4",          "data.tokenizer=null",  "data.train=" + (place_ / "counting"),
                                       "model.vocab_size=512", "model.hidden_size=64", "model.max_position_embeddings=128",
                                       "batch.sequence=128",   "batch.micro=4",        "batch.global=64"};
  std::vector<std::string> settings{"parallel=2DP x 2PP x 2TP", "parallel.sequence_parallel=true"};
  settings.insert(settings.end(), model.begin(), model.end());
  const NodesRun run = train(2, 4, kMpirun, settings);
  expect_same_training(run, alone(model));
  expect_counted_bytes(run);
  if (run.outcome.out.find("without the time of a step") == std::string::npos)
    expect_parts(run.outcome.out, {"the nodes are one machine, and each takes its cores for its own; times are not judged"});
}

// Both data and pipeline across, with virtual stages, so that neighbours alternate between nodes.
TEST_F(Nodes, DataAndPipelineRunAcrossFour) {
  const NodesRun run = train(4, 2, kMpirun,
                             {"run.steps=3", "parallel=2DP x 2PP x 2TP", "parallel.schedule=interleaved",
                              "parallel.virtual_stages=2", "parallel.zero=shard_grad_op", "parallel.sequence_parallel=true"});
  expect_same_training(run, alone({"run.steps=3"}));
  expect_counted_bytes(run);
}

// Rank 0 says what the nodes speak over. The mpirun of Open MPI 5.0.7 (Debian 13) itself ends with a segmentation fault there.
TEST_F(Nodes, NodesWithoutIpv4Train) {
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

// trident supervise --nodes-from on nodes (scripts/nodes.sh): a run goes on with the nodes that are there, in a smaller layout, and
// in its own when the others are back.

// Every node listens on a port; n3's link is down at first. Once some steps are logged it comes back and a rank is killed: the
// process namespace is the call's own, so that its youngest trident is a rank of it.
const char* const kHostsScript = R"sh(
for n in $NODES; do "$ON_NODE" $n "exec python3 -m http.server 8722" >/dev/null 2>&1 & done
"$LINK" n3 down
for n in n1 n2; do until timeout 1 bash -c ": </dev/tcp/$n/8722" 2>/dev/null; do sleep 0.1; done; done
"$TRIDENT" supervise --nodes-from "$PLACE/hosts" --probe-port 8722 --probe-seconds 2 -- \
  mpirun --hostfile {hostfile} -np {ranks} "$TRIDENT" train --config "$PLACE/config.json" --set run.steps=120 \
  --set checkpoint.every=2 --set 'parallel=2DP x 3PP' --set 'elastic=["1DP x 2PP", "2DP x 2PP"]' &
supervisor=$!
until [ "$(wc -l 2>/dev/null < "$PLACE/run/metrics.jsonl")" -ge 25 ] 2>/dev/null; do kill -0 $supervisor || break; sleep 0.05; done
"$LINK" n3 up
until timeout 1 bash -c ": </dev/tcp/n3/8722" 2>/dev/null; do sleep 0.1; done
kill -9 $(pgrep -x trident | tail -n 1)
wait $supervisor
)sh";

// Breaks the run in the middle of a step, waits until it says so, and prints after how many milliseconds the next step is done, and
// what the run ends with when it is asked to.
const char* const kBreaksScript = R"sh(
for n in $NODES; do "$ON_NODE" $n "exec python3 -m http.server 8722" >/dev/null 2>&1 & done
for n in $NODES; do until timeout 1 bash -c ": </dev/tcp/$n/8722" 2>/dev/null; do sleep 0.1; done; done
"$TRIDENT" supervise --nodes-from "$PLACE/hosts" --probe-port 8722 -- \
  mpirun --hostfile {hostfile} -np {ranks} "$TRIDENT" train --config "$PLACE/config.json" --set run.steps=1000000 \
  --set checkpoint.every=1 --set 'parallel=2DP x 3PP' --set 'elastic=["2DP x 2PP"]' >"$PLACE/out" &
supervisor=$!
steps() { wc -l 2>/dev/null < "$PLACE/run/metrics.jsonl" || echo 0; }
until [ "$(steps)" -ge 10 ]; do kill -0 $supervisor || exit 1; sleep 0.05; done
eval "$1"
until [ -e "$PLACE/run/failure.json" ]; do kill -0 $supervisor || exit 1; sleep 0.05; done
done=$(steps) verdict=$(date +%s%3N)
until [ "$(steps)" -gt $done ]; do kill -0 $supervisor || exit 1; sleep 0.05; done
echo "next step after $(($(date +%s%3N) - verdict))"
kill -USR1 $supervisor
wait $supervisor
echo "status $?"
)sh";
// From the login node, to all ports of mpirun and to that of a rank on n2.
const char* const kHoldsLauncher = R"sh(
hold() { exec {held}<>/dev/tcp/$1 && printf x >&$held; }
ports() { ss -ltnpH | sed -nE "s/^[^ ]+ +[^ ]+ +[^ ]+ +(127[.0-9]+|$1|0.0.0.0|\\*):([0-9]+) .*\"$2\".*/\1 \2/p"; }
while read -r address port; do
  case $address in 127*) ;; *) address=10.77.0.254 ;; esac
  hold $address/$port
done < <(ports 10.77.0.254 mpirun)
port=$("$ON_NODE" n2 ss -ltnpH | grep '"trident"' | sed -E 's/.*[^0-9]([0-9]+) +[^ ]+:\* .*/\1/' | head -n 1)
hold 10.77.0.2/$port
)sh";

// The starter of a daemon on a node takes no environment along, as ssh does not.
const char* const kTokens = R"sh(
printf '#!/bin/sh\nunset TRIDENT_LEASE_TOKEN OMPI_TRIDENT_LEASE_TOKEN\nexec %s "$@"\n' "$OMPI_MCA_plm_rsh_agent" >"$PLACE/agent"
chmod +x "$PLACE/agent"
export OMPI_MCA_plm_rsh_agent="$PLACE/agent" PRTE_MCA_plm_ssh_agent="$PLACE/agent"
"$TRIDENT" supervise --max-restarts 0 --checkpoints "$PLACE/none" -- \
  mpirun -np 2 --map-by node sh -c 'echo "$(hostname) [$TRIDENT_LEASE_TOKEN] $OMPI_TRIDENT_LEASE_TOKEN"'
)sh";

TEST(SuperviseHosts, TheTokenReachesRanksOfOtherNodes) {
  const ProgramOutcome probe = run_command({kNodes, "1", "true"});
  if (probe.exit_code == 77) GTEST_SKIP() << probe.err;
  const TemporaryFolder place;
  const ProgramOutcome outcome = succeeded(run_command({kNodes, "--slots", "1", "2", "bash", "-c", kTokens},
                                                       fmt::format("PLACE='{}' TRIDENT='{}'", place.path(), TRIDENT_BINARY)));
  const std::regex lines("n([12]) \\[\\] ([0-9a-f]{16})\nn([12]) \\[\\] ([0-9a-f]{16})\n");
  std::smatch parts;
  ASSERT_TRUE(std::regex_match(outcome.out, parts, lines)) << outcome.out;
  EXPECT_NE(parts[1], parts[3]);
  EXPECT_EQ(parts[2], parts[4]);
}

TEST(FullSuperviseHosts, ARunGoesOnWithTheNodesThatAreThere) {
  const ProgramOutcome probe = run_command({kNodes, "1", "true"});
  if (probe.exit_code == 77) GTEST_SKIP() << probe.err;
  if (std::system("command -v python3 pgrep >/dev/null") != 0) GTEST_SKIP() << "there is no python3, or no pgrep";
  const Workplace place;
  write_file(place / "hosts", "n1 slots=2\nn2 slots=2\nn3 slots=2\n");
  const ProgramOutcome outcome = succeeded(run_command({kNodes, "--slots", "2", "3", "bash", "-c", kHostsScript},
                                                       fmt::format("PLACE='{}' TRIDENT='{}'", place / ".", TRIDENT_BINARY)));
  const std::size_t small = outcome.err.find("2 of 3 hosts with 4 slots; n3 is left out: "),
                    layout = outcome.err.find("; layout 2DP x 2PP x 1TP (elastic[1]) on 4 ranks instead of 2DP x 3PP x 1TP on 6"),
                    restart = outcome.err.find("; restart 1 "),
                    whole = outcome.err.find("3 of 3 hosts with 6 slots; layout 2DP x 3PP x 1TP on 6 ranks");
  EXPECT_TRUE(small < layout && layout < restart && restart < whole && whole != std::string::npos) << outcome.err;
  expect_parts(outcome.out, {"layout: 2DP x 2PP x 1TP = 4", "layout: 2DP x 3PP x 1TP = 6"});

  ASSERT_EQ(place.train({"run.steps=120", "run.dir=" + (place / "alone")}).exit_code, 0);
  const std::vector<JsonValue> alone = place.metrics("alone"), moved = place.metrics();
  ASSERT_EQ(moved.size(), 120u);
  for (std::size_t i = 0; i < moved.size(); ++i) {
    EXPECT_EQ(moved[i].find("step")->as_integer(), static_cast<std::int64_t>(i) + 1);
    const double loss = moved[i].find("loss")->as_number(), expected = alone[i].find("loss")->as_number();
    if (i < 20) {
      EXPECT_NEAR(loss, expected, 1e-6 * expected) << "step " << i + 1;
    }
  }
}

class FullSuperviseHostsBroken : public ::testing::Test {
 protected:
  // The end of supervise's words, of a run that a command of the script's shell breaks.
  std::string broken_by(const std::string& command) {
    const ProgramOutcome probe = run_command({kNodes, "1", "true"});
    if (probe.exit_code == kCannotMakeNodes) return skipped_ = probe.err;
    if (std::system("command -v python3 ss >/dev/null") != 0) return skipped_ = "there is no python3, or no ss";
    write_file(place_ / "hosts", "n1 slots=2\nn2 slots=2\nn3 slots=2\n");
    const ProgramOutcome outcome = run_command({kNodes, "--slots", "2", "3", "bash", "-c", kBreaksScript, "bash", command},
                                               fmt::format("PLACE='{}' TRIDENT='{}'", place_ / ".", TRIDENT_BINARY));
    std::smatch parts;
    const bool ended = std::regex_match(outcome.out, parts, std::regex("next step after ([0-9]+)\nstatus 75\n"));
    EXPECT_TRUE(ended) << outcome.out << outcome.err;
    if (ended) {
      EXPECT_LE(std::stoi(parts[1]), 30'000) << outcome.err;
      RecordProperty("milliseconds", parts[1]);
    }
    return outcome.err;
  }
  std::string out() const { return read_file(place_ / "out"); }

  Workplace place_;
  std::string skipped_;
};

TEST_F(FullSuperviseHostsBroken, ANodeThatIsCutOffInAStepIsLeftOut) {
  const std::string said = broken_by("\"$LINK\" n3 down");
  if (!skipped_.empty()) GTEST_SKIP() << skipped_;
  const std::size_t killed = said.find("\"mpirun\" has not ended 15 s after its run failed (rank "),
                    left_out = said.find("2 of 3 hosts with 4 slots; n3 is left out: ");
  EXPECT_TRUE(killed < left_out && left_out != std::string::npos) << said;
  EXPECT_NE(out().find("layout: 2DP x 2PP x 1TP = 4"), std::string::npos) << said;
}

TEST_F(FullSuperviseHostsBroken, ALauncherThatIsHeldByAByteIsStartedAgain) {
  const std::string said = broken_by(kHoldsLauncher);
  if (!skipped_.empty()) GTEST_SKIP() << skipped_;
  expect_parts(said, {"\"mpirun\" has not ended 15 s after its run failed (rank ", "restart 1 now"});
}

}  // namespace
}  // namespace trident
