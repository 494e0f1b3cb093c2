// Ranks of a running job are killed, stopped, and fail: the others end soon, one line says who and where, and nothing stays behind.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/file_descriptor.h"
#include "tests/mpi/launched_job.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

constexpr double kSecondsToEnd = 12;

constexpr std::chrono::milliseconds kHeartbeats{500};  // until the others know that a rank trains

const std::vector<std::string> kEndless = {"run.steps=1000000", "log.every=1"};

struct Victim {
  int ranks;
  const char* layout;
  int rank;
  int steps;  // logged before it is disturbed
};

std::set<std::string> listing(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

int count_lines(const std::string& text, const std::regex& pattern) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += std::regex_search(line, pattern) ? 1 : 0;
  return count;
}

class Dying : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
    shared_before_ = listing("/dev/shm");
  }

  std::unique_ptr<LaunchedJob> start(const Victim& v, const std::vector<std::string>& more = {}) {
    return std::make_unique<LaunchedJob>(place_, "job" + std::to_string(started_++), v.ranks,
                                         plus(plus(kEndless, {std::string("parallel=") + v.layout}), more));
  }

  // Disturbs one rank in each of the jobs, all of them at once, and looks at how they end.
  void disturb(const std::vector<Victim>& victims, int signal, const std::string& verb) {
    std::vector<std::unique_ptr<LaunchedJob>> jobs;
    for (std::size_t i = 0; i < victims.size(); ++i) jobs.push_back(start(victims[i], {"checkpoint.every=1000000"}));
    std::mt19937 moments(20261121);
    std::vector<double> disturbed(victims.size());
    for (std::size_t i = 0; i < victims.size(); ++i) {
      ASSERT_TRUE(jobs[i]->wait_for_steps(victims[i].steps)) << jobs[i]->said();
      std::this_thread::sleep_for(kHeartbeats + std::chrono::microseconds(moments() % 50000));  // anywhere in a step
      ASSERT_EQ(kill(jobs[i]->rank(victims[i].rank), signal), 0);
      disturbed[i] = monotonic_seconds();
    }
    for (std::size_t i = 0; i < victims.size(); ++i) {
      SCOPED_TRACE(
          fmt::format("rank {} of {} ({}) after {} steps", victims[i].rank, victims[i].ranks, victims[i].layout, victims[i].steps));
      const int code = jobs[i]->wait_to_end(disturbed[i] + kSecondsToEnd - monotonic_seconds());
      EXPECT_NE(code, -1) << "still there after " << kSecondsToEnd << " s\n" << jobs[i]->said();
      EXPECT_NE(code, 0);
      expect_one_line(jobs[i]->said(), victims[i].rank, jobs[i]->rank(victims[i].rank), verb);
      EXPECT_EQ(count_lines(jobs[i]->said(), std::regex("^the same command begins anew")), 1) << jobs[i]->said();
      EXPECT_EQ(jobs[i]->survivors(), "");
    }
  }

  static void expect_one_line(const std::string& said, int rank, pid_t process, const std::string& verb) {
    // Who (rank, host, pid), what, which phase and step, which collective and its number.
    const std::regex line(fmt::format(
        R"(rank {} \(host [^ ,]+, pid {}\) {}.* in training, step [0-9]+, )"
        R"(.*(all_reduce|all_gather|reduce_scatter|send|recv|broadcast|barrier)[^,;]* #[0-9]+ over )",
        rank, process, verb));
    EXPECT_EQ(count_lines(said, line), 1) << said;
    EXPECT_EQ(count_lines(said, std::regex("exit code 76 on all ranks")), 1) << said;
  }

  bool is_over_without_its_trace(int processes, int steps);

  void TearDown() override {
    for (const std::string& name : listing("/dev/shm")) {
      if (name.starts_with("vader_segment.") || name.starts_with("sm_segment.")) continue;  // Open MPI's own, of 4 and of 5
      EXPECT_TRUE(shared_before_.contains(name)) << "/dev/shm/" << name << " was left behind";
    }
  }

  Workplace place_;
  int started_ = 0;  // jobs; each has a run directory of its own
  std::set<std::string> shared_before_;
};

TEST_F(Dying, AKillInAPairEndsBoth) {
  for (const int steps : {1, 3}) {
    disturb({{2, "2DP x 1PP x 1TP", 1, steps},
             {2, "1DP x 2PP x 1TP", 0, steps},
             {2, "1DP x 1PP x 2TP", 1, steps},
             {2, "1DP x 2PP x 1TP", 1, steps + 1}},
            SIGKILL, "was killed");
    if (HasFailure()) return;
  }
}

TEST_F(Dying, AKillAmongFourEndsAll) {
  for (const int steps : {1, 2}) {
    disturb({{4, "2DP x 2PP x 1TP", 3, steps},
             {4, "1DP x 2PP x 2TP", 0, steps + 1},
             {4, "2DP x 1PP x 2TP", 2, steps},
             {4, "4DP x 1PP x 1TP", 1, steps}},
            SIGKILL, "was killed");
    if (HasFailure()) return;
  }
}

TEST_F(Dying, AKillAmongEightEndsAll) {
  for (const int rank : {0, 1, 5, 7}) {
    disturb({{8, "2DP x 2PP x 2TP", rank, 1 + rank % 3}}, SIGKILL, "was killed");
    if (HasFailure()) return;
  }
}

TEST_F(Dying, AStopInAPairEndsBoth) {
  disturb({{2, "2DP x 1PP x 1TP", 1, 1},
           {2, "1DP x 2PP x 1TP", 0, 2},
           {2, "1DP x 1PP x 2TP", 1, 1},
           {2, "1DP x 2PP x 1TP", 1, 3},
           {2, "2DP x 1PP x 1TP", 0, 2}},
          SIGSTOP, "stopped|was stopped");
}

TEST_F(Dying, AStopAmongFourEndsAll) {
  disturb({{4, "2DP x 2PP x 1TP", 3, 1},
           {4, "1DP x 2PP x 2TP", 0, 2},
           {4, "2DP x 1PP x 2TP", 2, 1},
           {4, "4DP x 1PP x 1TP", 1, 3},
           {4, "1DP x 4PP x 1TP", 2, 1}},
          SIGSTOP, "stopped|was stopped");
}

// mpirun 4.1.4 itself may never end where a rank dies while it introduces itself to mpirun, although every rank has ended: another
// start shows what becomes of one that does not hit that moment. (`trident supervise` ends a launcher that waits for the dead.)
TEST_F(Dying, AKillWhileStartingEndsAll) {
  constexpr int kMostTries = 4;
  for (const int rank : {0, 2}) {
    for (int tries = 1;; ++tries) {
      const auto job = start({4, "2DP x 2PP x 1TP", rank, 0});
      ASSERT_TRUE(job->wait_for_ranks()) << job->said();
      const double killed = monotonic_seconds();
      kill(job->rank(rank), SIGKILL);
      const int code = job->wait_to_end(killed + kSecondsToEnd - monotonic_seconds());
      EXPECT_EQ(job->survivors(), "");
      if (code < 0 && tries < kMostTries && job->said().find("PMIX ERROR: UNREACHABLE") != std::string::npos) continue;
      EXPECT_GT(code, 0) << job->said();
      break;
    }
  }
}

// Rank 0 cannot write its metrics and was told to end then: an error of one rank, not of all.
TEST_F(Dying, AnExceptionEndsAll) {
  const auto job = start({4, "2DP x 2PP x 1TP", 0, 0}, {"log.on_error=stop"});
  ASSERT_TRUE(job->wait_for_steps(1)) << job->said();
  const rlimit full{1, 1};
  ASSERT_EQ(::prlimit(job->rank(0), RLIMIT_FSIZE, &full, nullptr), 0);
  EXPECT_EQ(job->wait_to_end(150), 74) << job->said();
  const std::regex line(
      R"(rank 0 \(host [^ ,]+, pid [0-9]+\) failed: .*(metrics\.jsonl|timing\.jsonl|run\.log|events\.out\.[^ ]*): cannot be written: .*; in training, step [0-9]+,.*exit code 74 on all ranks)");
  EXPECT_EQ(count_lines(job->said(), line), 1) << job->said();
  EXPECT_EQ(job->survivors(), "");
}

// The trace cannot be renamed into place when all is over. Under mpirun one rank is a process of threads.
TEST_F(Dying, AReportThatFailsDoesNotFailTheRun) {
  for (const int processes : {4, 1})
    for (int steps = 8; !is_over_without_its_trace(processes, steps); steps *= 8) ASSERT_LT(steps, 10'000);
}

// False where the run was over before anything was in its way: a longer one is to be tried.
bool Dying::is_over_without_its_trace(int processes, int steps) {
  const std::string run = fmt::format("job{}-{}", processes, steps);
  LaunchedJob job(place_, run, processes, {fmt::format("run.steps={}", steps), "log.every=1", "log.on_error=stop",
                                           "log.trace_steps=[2,3]", "parallel=2DP x 2PP x 1TP"});
  job.wait_for_steps(2);
  std::error_code in_place;
  std::filesystem::create_directories((place_ / run) + "/trace/steps_2-3.json/in_the_way", in_place);
  if (job.steps_logged() == steps) return false;
  EXPECT_EQ(job.wait_to_end(150), 0) << job.said();
  const std::regex line("warning: .*training is over and its metrics are written, but not all of it is reported: .*steps_2-3.json");
  EXPECT_EQ(count_lines(job.said(), line), 1) << job.said();
  EXPECT_EQ(job.steps_logged(), steps);
  return true;
}

class Stopping : public Dying, public ::testing::WithParamInterface<int> {};

// Whoever gets the signal, all end at the same step boundary with 128 + its number.
TEST_P(Stopping, AllStopAtOneStepBoundary) {
  const int signal = GetParam();
  const auto job = start({4, "2DP x 2PP x 1TP", 0, 0});
  ASSERT_TRUE(job->wait_for_steps(2)) << job->said();
  if (signal == SIGUSR1) kill(job->launcher(), signal);  // mpirun passes it on to all ranks
  else kill(job->rank(3), signal);                       // one rank is enough
  EXPECT_EQ(job->wait_to_end(kSecondsToEnd), 128 + signal) << job->said();
  const std::string name = signal == SIGUSR1 ? "SIGUSR1" : signal == SIGTERM ? "SIGTERM" : "SIGINT";
  EXPECT_EQ(count_lines(job->said(), std::regex("^trident: stopped by " + name)), 1) << job->said();
  EXPECT_EQ(count_lines(job->said(), std::regex("^result: step .*")), 1) << "the closing lines come all the same\n"
                                                                            << job->said();
  EXPECT_EQ(job->survivors(), "");
}

INSTANTIATE_TEST_SUITE_P(Signals, Stopping, ::testing::Values(SIGUSR1, SIGTERM, SIGINT),
                         [](const auto& info) { return "Signal" + std::to_string(info.param); });

// Strangers can do nothing to a job of one node, since no rank listens; and where the user asked for MPI's ports, they cannot
// fail it.

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
  expect_parts(said, {fmt::format("result: step {0}/{0}", steps)});
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
