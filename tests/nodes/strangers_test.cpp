// Somebody outside the job who reaches its nodes (network namespaces, scripts/nodes.sh): one byte on a rank's MPI port, and the
// connection is held. MPI waits there for the rest, whatever call the rank is in.
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "core/file_io.h"
#include "tests/app/program.h"

namespace trident {
namespace {

constexpr int kCannotMakeNodes = 77;
const char* const kNodes = TRIDENT_SOURCE_DIR "/scripts/nodes.sh";

// Runs a job on two nodes; once it trains, the login node sends the byte to the port of the rank on n2. Prints how the job ended
// and after how many tenths of a second.
const char* const kScript = R"(
run=$1; shift
mpirun "$@" >"$run.log" 2>&1 &
job=$!
for i in $(seq 600); do [ -s "$run/metrics.jsonl" ] && break; sleep 0.1; done
port=$("$ON_NODE" n2 ss -ltnpH | grep '"trident"' | sed -E 's/.*[^0-9]([0-9]+) +[^ ]+:\* .*/\1/' | head -n 1)
[ -n "$port" ] || { echo "no port of a rank"; cat "$run.log"; kill $job; exit 1; }
exec 3<>/dev/tcp/10.77.0.2/$port
printf x >&3
for i in $(seq 200); do kill -0 $job 2>/dev/null || break; sleep 0.1; done
kill -0 $job 2>/dev/null && { echo "hangs"; kill -KILL $job; exit 1; }
wait $job
echo "status $? after $i"
)";

TEST(Strangers, OneByteToAnMpiPortIsNamed) {
  const ProgramOutcome probe = run_command({kNodes, "1", "true"});
  if (probe.exit_code == kCannotMakeNodes) GTEST_SKIP() << probe.err;
  const Workplace place;
  const std::string run = place / "run";
  const ProgramOutcome outcome =
      run_command({kNodes, "--slots", "1", "2", "bash", "-c", kScript, "bash", run, TRIDENT_BINARY, "train", "--config",
                   place / "config.json", "--set", "run.steps=1000000", "--set", "parallel=2DP"});
  const std::string said = std::filesystem::exists(run + ".log") ? read_file(run + ".log") : "";
  std::smatch match;
  ASSERT_TRUE(std::regex_search(outcome.out, match, std::regex("status ([0-9]+) after ([0-9]+)")))
      << outcome.out << outcome.err << said;
  EXPECT_EQ(match[1], "76") << said;
  EXPECT_LE(std::stoi(match[2]), 130) << "tenths of a second";
  EXPECT_TRUE(std::regex_search(
      said,
      std::regex(
          R"(rank 1 \(host n2, pid [0-9]+\) has stood in MPI_[A-Za-z]+ for [89]\.[0-9] s in training, step [0-9]+, .*a process )"
          R"(outside the job holds a connection to the MPI port of rank 1; name the job's own network with btl_tcp_if_include)")))
      << said;
}

}  // namespace
}  // namespace trident
