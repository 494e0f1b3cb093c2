// Jobs on several nodes (network namespaces, scripts/nodes.sh) that save: what they leave is whole and goes on anywhere, and
// folders that are not the same one everywhere, or that a run of another node has, are refused.
#include <filesystem>
#include <regex>
#include <sstream>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/lease.h"
#include "core/file_io.h"
#include "tests/app/program.h"
#include "tests/data/token_files.h"
#include "tests/nodes/nodes_script.h"
#include "tests/support/log_text.h"

namespace trident {
namespace {

class SavingNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    const ProgramOutcome probe = run_command({kNodes, "1", "true"});
    if (probe.exit_code == kCannotMakeNodes) GTEST_SKIP() << probe.err;
    ASSERT_EQ(probe.exit_code, 0) << probe.err;
    write_dataset(place_ / "counting", counting_documents(2000, 512), 512);
    create_folder(place_ / "shared");
    write_file(place_ / "config.json", fmt::format(R"({{
      "run": {{"dir": "{0}/run", "steps": 2, "threads_per_rank": 1}},
      "model": {{"model_type": "llama", "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
                 "intermediate_size": 128, "max_position_embeddings": 64}},
      "batch": {{"global": 24, "micro": 1, "sequence": 32}},
      "precision": {{"compute": "fp32"}}, "data": {{"train": "{0}/counting", "tokenizer": null}}, "lr_schedule": {{"decay_steps": 9}},
      "checkpoint": {{"dir": "{0}/shared/ckpt", "every": 1}}, "log": {{"every": 1}}
    }})",
                                                   place_.path()));
  }

  std::string command(const std::vector<std::string>& settings) const {
    std::string text = fmt::format("{} train --config {}", TRIDENT_BINARY, place_ / "config.json");
    for (const std::string& setting : settings) text += fmt::format(" --set '{}'", setting);
    return text;
  }
  static ProgramOutcome on_nodes(int nodes, int slots, const std::string& script) {
    return run_command({kNodes, "--slots", std::to_string(slots), std::to_string(nodes), "sh", "-c", script});
  }
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> values;
    for (const JsonValue& record : json_lines(read_file(place_ / (run + "/metrics.jsonl"))))
      values.push_back(record.find("loss")->as_number());
    return values;
  }

  // `layout` on so many nodes saves two steps; eight thread ranks go on from there, and one rank does it all.
  void save_and_go_on(int nodes, int slots, const std::string& layout) const {
    succeeded(on_nodes(nodes, slots, "mpirun " + command({"parallel=" + layout})));
    for (const char* step : {"step-00000001", "step-00000002"}) {
      succeeded(run_program({"ckpt", "verify", place_ / (std::string("shared/ckpt/") + step)}));
    }
    const std::size_t ranks = static_cast<std::size_t>(nodes * slots);
    EXPECT_GE(open_manifest(place_ / "shared/ckpt/step-00000002").files.size(), ranks);
    EXPECT_TRUE(lease_from(read_file(place_ / ("shared/ckpt/" + lease_name(1))))->done);
    const ProgramOutcome on = succeeded(on_nodes(1, 1, command({"parallel=2DP x 2PP x 2TP", "run.steps=4"})));
    expect_parts(on.out, {"goes on from step 2\n"});
    const ProgramOutcome alone = succeeded(
        on_nodes(1, 1, command({"run.steps=4", "run.dir=" + (place_ / "alone"), "checkpoint.every=0", "checkpoint.resume=never"})));
    const std::vector<double> expected = losses("alone"), found = losses("run");
    ASSERT_EQ(found.size(), 4u);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i] / expected[i], 1, 1e-6) << i;
  }

  TemporaryFolder place_;
};

TEST_F(SavingNodes, TwelveRanksOnThreeSaveAndGoOn) { save_and_go_on(3, 4, "3DP x 2PP x 2TP"); }

class FullSavingNodes : public SavingNodes {};
TEST_F(FullSavingNodes, ThirtyTwoRanksOnTwoSaveAndGoOn) { save_and_go_on(2, 16, "2DP x 4PP x 4TP"); }

// Something else is mounted there on n2. Ten seconds, because network file systems may be late.
TEST_F(FullSavingNodes, AFolderThatANodeDoesNotSeeIsRefused) {
  const std::string hide = fmt::format("[ $(hostname) = n1 ] || mount -t tmpfs tmpfs {}", place_ / "shared");
  const std::string rank = fmt::format("{}; exec {}", hide, command({"parallel=2DP"}));
  write_file(place_ / "rank.sh", rank + "\n");
  const ProgramOutcome job = on_nodes(2, 1, fmt::format("mpirun sh {}", place_ / "rank.sh"));
  EXPECT_EQ(job.exit_code, 64) << job.out << job.err;
  for (const std::string& part :
       {"checkpoint.dir = " + (place_ / "shared/ckpt"), std::string("n2 does not see the file that rank 0 (n1) wrote there"),
        std::string("No such file or directory"), std::string("a file system that all nodes share")})
    EXPECT_NE(job.err.find(part), std::string::npos) << part << " not in " << job.err;
  EXPECT_FALSE(is_there(place_ / "run"));
  EXPECT_FALSE(is_there(place_ / "shared/ckpt")) << "a start that is refused leaves nothing";
  // Nobody asked for checkpoints: the run goes on without.
  std::string config = read_file(place_ / "config.json");
  const std::string every = R"(, "every": 1)";
  write_file(place_ / "config.json", std::string(config).erase(config.find(every), every.size()));
  const ProgramOutcome warned = succeeded(on_nodes(2, 1, fmt::format("mpirun sh {}", place_ / "rank.sh")));
  expect_parts(warned.err, {"nothing of this run is saved: "});
  write_file(place_ / "config.json", config);
  std::filesystem::remove_all(place_ / "run");
  // The same, but what hides it goes after three seconds.
  write_file(place_ / "rank.sh", fmt::format("{}; (sleep 3; umount {}) </dev/null >/dev/null 2>&1 & exec {}\n", hide,
                                             place_ / "shared", command({"parallel=2DP"})));
  succeeded(on_nodes(2, 1, fmt::format("mpirun sh {}", place_ / "rank.sh")));
}

// A run on n1 has the folder: n2 is refused as soon as it has seen a sign of life. Once it is killed n2 waits for one in vain.
TEST_F(FullSavingNodes, ARunOfAnotherNodeIsSeenToLiveAndToDie) {
  const std::string endless = command({"run.steps=1000000", "checkpoint.every=1000000"});
  const std::string other = command({"run.dir=" + (place_ / "other")});
  const std::string script = fmt::format(
      "\"$ON_NODE\" n1 {0} >/dev/null 2>{2}/first & "
      "until [ -s {2}/run/metrics.jsonl ]; do sleep 0.1; done; "
      "date +%s.%N; \"$ON_NODE\" n2 {1} >/dev/null; echo $?; date +%s.%N; "
      "kill -9 $(sed -n 's/.*\"pid\":\\([0-9]*\\).*/\\1/p' {2}/shared/ckpt/lease-00000001.json); "
      "\"$ON_NODE\" n2 {1} >/dev/null; echo $?; date +%s.%N",
      endless, other, place_.path());
  const ProgramOutcome outcome = on_nodes(2, 1, script);
  std::istringstream out(outcome.out);
  double start = 0, refused = 0, done = 0;
  int first = -1, second = -1;
  out >> start >> first >> refused >> second >> done;
  EXPECT_EQ(first, 64) << outcome.err;
  EXPECT_LT(refused - start, 10);
  EXPECT_TRUE(std::regex_search(outcome.err, std::regex("another run saves there, pid [0-9]+ on n1; let it end"))) << outcome.err;
  EXPECT_EQ(second, 0) << outcome.err;
  EXPECT_GE(done - refused, 15) << outcome.err;
  expect_parts(outcome.err, {"on n1 had it; waiting up to 15 s for a sign of life"});
}

// The first one saves nothing before its end, so the lock of the lease's file alone shows that it lives. A copy of its folder is
// the same run in another place: it gets the checkpoint.dir of both after the first one's end, and goes on from what that saved.
TEST_F(FullSavingNodes, CopiesOfARunFolderTakeTurns) {
  const std::string base = command({"lr_schedule.decay_steps=null", "lr_schedule.type=constant", "checkpoint.every=end"});
  write_file(place_ / "turns.sh", fmt::format(R"(cd {0}
on() {{ "$ON_NODE" $1 {1} --set run.dir={0}/$2 --set $3; }}
on n1 run run.steps=1000000 >/dev/null 2>&1 & until [ -s run/metrics.jsonl ]; do sleep 0.1; done
first=$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' shared/ckpt/lease-*)
cp -r run copy
for turn in 'run run.steps=2' 'run checkpoint.dir={0}/own' 'copy run.steps=2'; do on n2 $turn; echo $?; done
kill -USR1 $first; wait $!; echo $?
step=$(basename shared/ckpt/step-* | sed 's/step-0*//')
on n2 copy run.steps=$((step + 1)); echo $?
)", place_.path(), base));
  const ProgramOutcome outcome = on_nodes(2, 1, "sh " + (place_ / "turns.sh"));
  EXPECT_TRUE(outcome.out.starts_with("64\n64\n64\n75\n") && outcome.out.ends_with("\n0\n")) << outcome.out << outcome.err;
  // The copy lacks lines of the steps that the first one made after it was taken, and says so.
  const std::regex said(
      "(.*another run is writing metrics.jsonl.*\n){2}.*another run saves there, pid [0-9]+ on n1; let it end.*\n(warning: .*\n)?");
  EXPECT_TRUE(std::regex_match(outcome.err, said)) << outcome.err;
}

}  // namespace
}  // namespace trident
