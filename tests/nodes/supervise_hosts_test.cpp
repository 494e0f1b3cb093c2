// trident supervise --nodes-from on nodes (scripts/nodes.sh): a run goes on with the nodes that are there, in a smaller layout, and
// in its own when the others are back.

#include <cstdint>
#include <cstdlib>
#include <regex>

#include "core/file_io.h"
#include "tests/app/program.h"
#include "tests/nodes/nodes_script.h"

namespace trident {
namespace {

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

// What starts a daemon on a node takes no environment along, as ssh does not.
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
