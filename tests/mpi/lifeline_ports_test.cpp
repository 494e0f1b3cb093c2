// What strangers can do to a job of one node: nothing, since no rank listens; and where the user asked for MPI's ports, they cannot
// fail it.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/file_descriptor.h"
#include "tests/mpi/launched_job.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

// The numbers of a process's sockets, as /proc/net has them.
std::set<std::string> sockets_of(pid_t process) {
  std::set<std::string> numbers;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd", gone)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) numbers.insert(target.substr(8, target.size() - 9));
  }
  return numbers;
}

// The ports at which a process takes calls or datagrams, of every address.
std::set<int> open_ports(pid_t process) {
  const std::set<std::string> mine = sockets_of(process);
  std::set<int> ports;
  for (const std::string kind : {"tcp", "tcp6", "udp", "udp6"}) {
    std::ifstream table("/proc/" + std::to_string(process) + "/net/" + kind);
    std::string line;
    std::getline(table, line);  // the head
    while (std::getline(table, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeouts, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeouts >> inode;
      const bool listens = state == "0A" || kind.starts_with("udp");
      if (listens && mine.contains(inode)) ports.insert(std::stoi(local.substr(local.find(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

// One byte to a port of this machine, and the connection, which is to be held; none where it takes IPv6 only.
FileDescriptor hold(int port) {
  FileDescriptor stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool held = connect(stranger.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                    send(stranger.get(), "x", 1, MSG_NOSIGNAL) == 1;
  return held ? std::move(stranger) : FileDescriptor();
}

class Ports : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  }
  void TearDown() override { unsetenv("OMPI_MCA_btl"); }
  bool is_held_while_it_parts(int steps);

  Workplace place_;
};

TEST_F(Ports, NoRankOfOneNodeListens) {
  LaunchedJob job(place_, "job", 3, {"run.steps=1000000", "log.every=1", "parallel=3DP", "batch.global=6"});
  ASSERT_TRUE(job.wait_for_steps(1)) << job.said();
  for (int r = 0; r < 3; ++r) EXPECT_EQ(open_ports(job.rank(r)), std::set<int>()) << "rank " << r;
}

// Training needs no MPI on one node, parting does: a stranger holds rank 1 there. It has to come before that: where the run was
// faster than this process, a longer one is tried.
TEST_F(Ports, AStrangerCannotFailARunThatIsDone) {
  setenv("OMPI_MCA_btl", "self,tcp", 1);                      // the user's word: every rank listens
  LaunchedJob first(place_, "first", 3, {"run.steps=1", "parallel=3DP", "batch.global=6"});
  if (first.wait_to_end(150) != 0 && first.said().find("unable to reach each other") != std::string::npos)
    GTEST_SKIP() << "this Open MPI connects no ranks where loopback is the only interface";
  for (int steps = 12; !is_held_while_it_parts(steps); steps *= 8) ASSERT_LT(steps, 10'000);
}

// False where it was over before the stranger came.
bool Ports::is_held_while_it_parts(int steps) {
  const std::string run = fmt::format("job{}", steps);
  LaunchedJob job(place_, run, 3, {fmt::format("run.steps={}", steps), "log.every=1", "parallel=3DP", "batch.global=6"});
  const bool trains = job.wait_for_steps(1);
  std::vector<FileDescriptor> strangers;
  for (const int port : trains ? open_ports(job.rank(1)) : std::set<int>())
    if (FileDescriptor stranger = hold(port)) strangers.push_back(std::move(stranger));
  if (job.steps_logged() == steps) return false;
  EXPECT_FALSE(strangers.empty()) << job.said();
  // Every rank ends with 0 (lifeline/Lifeline.RanksThatDoNotPartEndAsTheirTrainingDid). Not mpirun: it takes ranks that end without
  // MPI_Finalize for failures, and may itself wait for ever.
  const std::string line = "warning: the job is done and its files are written, but its ranks have not parted for 8 s; ";
  EXPECT_TRUE(job.wait_for_text(line, 150)) << job.said();
  EXPECT_EQ(job.survivors(60), "") << job.said();
  const std::string said = job.said();
  EXPECT_EQ(job.steps_logged(), steps);
  expect_parts(said, {fmt::format("for {} updates", steps)});
  const std::size_t at = said.find(line);
  EXPECT_NE(at, std::string::npos) << said;
  EXPECT_NE(said.find("; exit code 0 on all ranks", std::min(at, said.size())), std::string::npos) << said;
  EXPECT_EQ(said.rfind(line), at) << said;
  return true;
}

TEST_F(Ports, TooFewDescriptorsAreRefusedBeforeMpiStarts) {
  const ProgramOutcome outcome =
      run_command({TRIDENT_SOURCE_DIR "/scripts/mpirun_local", "2", "sh", "-c", "ulimit -n 100; exec \"$@\"", "sh", TRIDENT_BINARY,
                   "train", "--config", place_ / "config.json"});
  EXPECT_EQ(outcome.exit_code, 64) << outcome.err;
  expect_parts(outcome.err,
               {"trident: rank 0 of 2 ranks on 1 node, with 0 network addresses, needs 132 open files, 100 are allowed; raise "
                "the hard limit (ulimit -Hn 132; "});
}

// Without ports Open MPI has shared memory alone, and no way around a /dev/shm that is too small for its files.
TEST_F(Ports, TwoMegabytesOfSharedMemoryAreEnough) {
  if (run_command({"unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=2m", "none", "/dev/shm"}).exit_code != 0)
    GTEST_SKIP() << "may not mount a small /dev/shm";
  succeeded(run_command({"unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=2m none /dev/shm && exec \"$@\"", "sh",
                         TRIDENT_SOURCE_DIR "/scripts/mpirun_local", "4", TRIDENT_BINARY, "train", "--config",
                         place_ / "config.json", "--set", "parallel=2DP x 1PP x 2TP", "--set", "run.steps=2"}));
}

}  // namespace
}  // namespace trident
