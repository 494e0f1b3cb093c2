// Three nodes with two networks each (network namespaces, scripts/nodes.sh), of which the job is to use one: its lifelines listen
// on that one only, and who calls there without the job's secret is sent away while the job goes on.
//
// Lifelines listen for a moment while a job starts. A preloaded library (tests/mpi/held_gpu.cpp) holds the job in it for as long
// as the strangers need.
#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>
#include <string>

#include "core/file_io.h"
#include "tests/app/program.h"
#include "tests/nodes/nodes_script.h"

namespace trident {
namespace {

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
