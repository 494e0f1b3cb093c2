// Somebody outside the job who reaches its nodes (network namespaces, scripts/nodes.sh) speaks to a rank's MPI port, and holds the
// connection. Where MPI waits for the rest of a word, it does so in whatever call the rank is in, and the rank is named; otherwise
// training goes on.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <ostream>
#include <regex>
#include <string>

#include "core/file_io.h"
#include "tests/app/program.h"
#include "tests/nodes/nodes_script.h"

namespace trident {
namespace {

// Runs a job on three nodes; once it trains, the login node speaks to the port of the rank on node $2. Prints how the job ended and
// after how many tenths of a second, or, when it trains on for ten seconds, how many steps it did meanwhile, and how it ended when
// asked to.
const char* const kVisitScript = R"(
run=$1 node=$2 words=$3; shift 3
mpirun "$@" >"$run.log" 2>&1 &
job=$!
for i in $(seq 600); do [ -s "$run/metrics.jsonl" ] && break; sleep 0.1; done
port=$("$ON_NODE" n$node ss -ltnpH | grep '"trident"' | sed -E 's/.*[^0-9]([0-9]+) +[^ ]+:\* .*/\1/' | head -n 1)
[ -n "$port" ] || { echo "no port of a rank"; cat "$run.log"; kill $job; exit 1; }
exec 3<>/dev/tcp/10.77.0.$node/$port
eval "$words" >&3
steps=$(wc -l <"$run/metrics.jsonl")
for i in $(seq 200); do
  kill -0 $job 2>/dev/null || break
  if [ $i -ge 100 ] && [ $(wc -l <"$run/metrics.jsonl") -gt $((steps + 5)) ]; then
    echo "trains on"
    kill -USR1 $job
    wait $job
    echo "status $?"
    exit 0
  fi
  sleep 0.1
done
kill -0 $job 2>/dev/null && { echo "hangs"; kill -KILL $job; exit 1; }
wait $job
echo "status $? after $i"
)";

enum class Words : std::uint8_t { kNone, kByte, kGarbage, kHalfAFrame };

const char* command_of(Words words) {
  switch (words) {
    case Words::kNone: return ":";
    case Words::kByte: return "printf x";
    case Words::kGarbage: return "head -c 65536 /dev/urandom";
    case Words::kHalfAFrame: return "printf OPAL-TCP";  // how MPI's own connections begin
  }
  return ":";
}

struct Visit {
  int node;  // 1: of rank 0, which is the hub; 2: of its deputy; 3: of another rank
  Words words;
  bool holds() const { return words == Words::kByte || words == Words::kHalfAFrame; }
};
void PrintTo(const Visit& visit, std::ostream* out) {
  *out << "`" << command_of(visit.words) << "` to the rank on n" << visit.node;
}

class Strangers : public ::testing::TestWithParam<Visit> {};

TEST_P(Strangers, AtAnMpiPortAreNamedOrHoldUpNobody) {
  const ProgramOutcome probe = run_command({kNodes, "1", "true"});
  if (probe.exit_code == kCannotMakeNodes) GTEST_SKIP() << probe.err;
  const Visit visit = GetParam();
  const Workplace place;
  const std::string run = place / "run";
  const ProgramOutcome outcome =
      run_command({kNodes, "--slots", "1", "3", "bash", "-c", kVisitScript, "bash", run, std::to_string(visit.node),
                   command_of(visit.words), TRIDENT_BINARY, "train", "--config", place / "config.json", "--set",
                   "run.steps=1000000", "--set", "parallel=3DP", "--set", "batch.global=6"});
  const std::string said = std::filesystem::exists(run + ".log") ? read_file(run + ".log") : "";
  if (!visit.holds()) {
    EXPECT_EQ(outcome.out, "trains on\nstatus 138\n") << outcome.err << said;
    return;
  }
  std::smatch match;
  ASSERT_TRUE(std::regex_search(outcome.out, match, std::regex("status ([0-9]+) after ([0-9]+)")))
      << outcome.out << outcome.err << said;
  EXPECT_EQ(match[1], "76") << said;
  EXPECT_LE(std::stoi(match[2]), 130) << "tenths of a second";
  const std::string expected = fmt::format(
      R"(rank {0} \(host n{1}, pid [0-9]+\) has stood in MPI_[A-Za-z]+ for ([89]|[1-9][0-9])\.[0-9] s in training, step [0-9]+, .*)"
      R"(a process outside the job holds a connection to the MPI port of rank {0}; )"
      R"(let no host outside the job reach the ranks' MPI ports)",
      visit.node - 1, visit.node);
  EXPECT_TRUE(std::regex_search(said, std::regex(expected))) << said;
}

std::string name(const ::testing::TestParamInfo<Visit>& info) {
  constexpr const char* kRanks[] = {"Hub", "Deputy", "OtherRank"};
  constexpr const char* kWords[] = {"Nothing", "OneByte", "Garbage", "HalfAFrame"};
  return std::string(kWords[static_cast<std::size_t>(info.param.words)]) + "To" + kRanks[info.param.node - 1];
}

INSTANTIATE_TEST_SUITE_P(Some, Strangers,
                         ::testing::Values(Visit{1, Words::kByte}, Visit{2, Words::kHalfAFrame}, Visit{3, Words::kGarbage}),
                         name);
INSTANTIATE_TEST_SUITE_P(Full, Strangers,
                         ::testing::Values(Visit{1, Words::kHalfAFrame}, Visit{1, Words::kNone}, Visit{2, Words::kNone},
                                         Visit{2, Words::kByte}, Visit{2, Words::kGarbage}, Visit{1, Words::kGarbage},
                                         Visit{3, Words::kHalfAFrame}, Visit{3, Words::kByte}, Visit{3, Words::kNone}),
                         name);

// Three nodes with two networks each (network namespaces, scripts/nodes.sh), of which the job is to use one: its lifelines listen
// on that one only, and who calls there without the job's secret is sent away while the job goes on.
//
// Lifelines listen for a moment while a job starts. A preloaded library (tests/mpi/held_gpu.cpp) holds the job in it for as long
// as the strangers need.

// The nodes are n1 ... n3, on 10.77.0.0/24 (eth0) and 10.88.0.0/24 (eth1). What the login node, which is on both and no part of the
// job, sees while the job is held, and how the job ends. MPI's own sockets listen on all addresses (docs/stopping.md).
const char* const kScript = R"(
folder=$1 stranger=$2; shift 2
ip link add other type bridge
ip address add 10.88.0.254/24 dev other
ip link set other up
for i in 1 2 3; do
  ip link add other$i type veth peer name eth1 netns /dev/shm/nodes/n$i/net
  ip link set other$i master other up
  "$ON_NODE" n$i ip address add 10.88.0.$i/24 dev eth1
  "$ON_NODE" n$i ip link set eth1 up
done
unset OMPI_MCA_btl_tcp_if_include
mpirun "$@" >"$folder/job.log" 2>&1 &
job=$!
until [ -e "$folder/held" ]; do
  kill -0 $job 2>/dev/null || { echo "the job ended before it was held"; exit 1; }
  sleep 0.05
done
for i in 1 2 3; do
  doors=$("$ON_NODE" n$i ss -ltnpH | grep '"trident"' | tr -s ' ' | cut -d ' ' -f 4 | grep -vE '^(\*|0\.0\.0\.0|\[::\]):' || true)
  echo "n$i listens at" $(for door in $doors; do echo ${door%:*}; done | sort)
  for door in $doors; do
    refusal=$( (exec 3<>/dev/tcp/10.88.0.$i/${door##*:}) 2>&1) && echo "10.88.0.$i takes the call"
    echo "$refusal" | grep -o -m 1 'Connection refused'
    "$stranger" ${door%:*} ${door##*:}
    exec {silent}<>/dev/tcp/${door%:*}/${door##*:}
  done
done
touch "$folder/go"
wait $job
echo "status $?"
)";

const char* const kExpected = R"(n1 listens at 10.77.0.1
Connection refused
nonsense: turned away
a proof without the secret: turned away
n2 listens at 10.77.0.2
Connection refused
nonsense: turned away
a proof without the secret: turned away
n3 listens at
status 0
)";

struct Interfaces {
  const char *option, *value;
};
void PrintTo(const Interfaces& chosen, std::ostream* out) { *out << chosen.option << ' ' << chosen.value; }

class LifelineAcceptor : public ::testing::TestWithParam<Interfaces> {};

TEST_P(LifelineAcceptor, IsOnTheChosenNetworkAndKeepsStrangersOut) {
  const ProgramOutcome probe = run_command({kNodes, "1", "true"});
  if (probe.exit_code == kCannotMakeNodes) GTEST_SKIP() << probe.err;
  const Workplace place;
  const std::string folder = place / "door", preload = std::string("LD_PRELOAD=") + HELD_GPU, hold = "HOLD_GPU=" + folder;
  std::filesystem::create_directory(folder);
  const ProgramOutcome outcome =
      run_command({kNodes, "--slots", "1", "3", "bash", "-c", kScript, "bash", folder, DOOR_STRANGER, "--mca", GetParam().option,
                   GetParam().value, "-x", preload, "-x", hold, TRIDENT_BINARY, "train", "--config", place / "config.json", "--set",
                   "run.steps=2", "--set", "parallel=3DP", "--set", "batch.global=6"});
  const std::string log = folder + "/job.log";
  EXPECT_EQ(outcome.out, kExpected) << outcome.err << (std::filesystem::exists(log) ? read_file(log) : "");
  EXPECT_EQ(place.metrics().size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Included, LifelineAcceptor, ::testing::Values(Interfaces{"btl_tcp_if_include", "10.77.0.0/24"}),
                         [](const auto&) { return std::string("ByNetwork"); });
INSTANTIATE_TEST_SUITE_P(FullExcluded, LifelineAcceptor, ::testing::Values(Interfaces{"btl_tcp_if_exclude", "lo,eth1"}),
                         [](const auto&) { return std::string("ByName"); });

}  // namespace
}  // namespace trident
