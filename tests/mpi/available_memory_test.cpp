#include "core/available_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "core/check.h"
#include "parallel/health/descriptor_handover.h"
#include "tests/data/temporary_folder.h"
#include "tests/mpi/child_process.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

// A tree like /, with what the test writes into it.
class AvailableMemoryTest : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  void write_group(const std::string& group, const std::string& most, std::int64_t used, std::int64_t cache) {
    write("/sys/fs/cgroup" + group + "/memory.max", most + "\n");
    write("/sys/fs/cgroup" + group + "/memory.current", std::to_string(used) + "\n");
    write("/sys/fs/cgroup" + group + "/memory.stat",
          "anon 5\nactive_file 7\ninactive_file " + std::to_string(cache) + "\nslab 9\n");
  }
  // Version 1 of control groups, where the memory of a group counts that of the groups below it and its own cache is another line.
  void write_group_v1(const std::string& group, std::int64_t most, std::int64_t used, std::int64_t cache) {
    write("/sys/fs/cgroup/memory" + group + "/memory.limit_in_bytes", std::to_string(most) + "\n");
    write("/sys/fs/cgroup/memory" + group + "/memory.usage_in_bytes", std::to_string(used) + "\n");
    write("/sys/fs/cgroup/memory" + group + "/memory.stat",
          "cache 5\ninactive_file 7\ntotal_cache 9\ntotal_inactive_file " + std::to_string(cache) + "\n");
  }
  void expect(std::int64_t bytes, const char* limit) {
    const AvailableMemory memory = available_memory(root);
    EXPECT_EQ(memory.bytes, bytes);
    EXPECT_EQ(memory.limit, limit);
  }
  const TemporaryFolder folder;
  const std::string root = folder.path();
};

TEST_F(AvailableMemoryTest, IsUnlimitedWhereNothingSays) { expect(std::numeric_limits<std::int64_t>::max(), "this node"); }

TEST_F(AvailableMemoryTest, IsTheMachinesOutsideGroups) {
  write("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:         10 kB\nMemAvailable:    600 kB\n");
  write("/proc/self/cgroup", "0::/\n");
  expect(600 * 1024, "this node");
}

TEST_F(AvailableMemoryTest, IsTheTightestGroupsAboveTheProcess) {
  write("/proc/meminfo", "MemAvailable:    600000 kB\n");
  write("/proc/self/cgroup", "12:pids:/elsewhere\n0::/slurm/job_7/step_0\n");
  write_group("/slurm/job_7/step_0", "max", 100, 0);
  expect(600'000 * 1024, "this node");
  write_group("/slurm/job_7", "500000", 100'000, 30'000);
  expect(430'000, "this job's control group");
  write_group("/slurm", "90000", 100'000, 0);
  expect(0, "this job's control group");
}

TEST_F(AvailableMemoryTest, IsTheContainersWhichSeesItselfAsTheRoot) {
  write("/proc/meminfo", "MemAvailable:    600000 kB\n");
  write("/proc/self/cgroup", "0::/\n");
  write_group("", "1000000", 200'000, 0);
  expect(800'000, "this job's control group");
}

TEST_F(AvailableMemoryTest, AGroupsLimitDoesNotDependOnItsUse) {
  EXPECT_EQ(control_group_limit(root), std::numeric_limits<std::int64_t>::max());
  write("/proc/self/cgroup", "0::/slurm/job_7\n");
  write_group("/slurm/job_7", "max", 100, 0);
  write_group("/slurm", "90000", 80'000, 0);
  EXPECT_EQ(control_group_limit(root), 90'000);
  write_group("/slurm/job_7", "70000", 1, 0);
  EXPECT_EQ(control_group_limit(root), 70'000);
}

constexpr std::int64_t kNoLimitV1 = 9223372036854771712;  // what version 1 says for none

TEST_F(AvailableMemoryTest, IsTheTightestGroupsOfVersionOne) {
  write("/proc/meminfo", "MemAvailable:    600000 kB\n");
  write("/proc/self/cgroup", "11:cpuset:/slurm\n9:cpu,memory:/slurm/uid_0/job_7\n1:name=systemd:/x\n");
  write_group_v1("", kNoLimitV1, 5'000'000, 0);
  write_group_v1("/slurm/uid_0/job_7", kNoLimitV1, 100, 0);
  expect(600'000 * 1024, "this node");
  EXPECT_EQ(control_group_limit(root), std::numeric_limits<std::int64_t>::max());
  write_group_v1("/slurm", 500'000, 100'000, 30'000);
  expect(430'000, "this job's control group");
  EXPECT_EQ(control_group_limit(root), 500'000);
  write_group_v1("/slurm/uid_0/job_7", 90'000, 100'000, 0);
  expect(0, "this job's control group");
  EXPECT_EQ(control_group_limit(root), 90'000);
}

// A container of Docker's on a machine with version 1: the path is the machine's, the files are the container's own at the top.
TEST_F(AvailableMemoryTest, IsTheContainersOfVersionOne) {
  write("/proc/meminfo", "MemAvailable:    600000 kB\n");
  write("/proc/self/cgroup", "9:memory:/docker/0123456789ab\n");
  write_group_v1("", 1'000'000, 200'000, 0);
  expect(800'000, "this job's control group");
  EXPECT_EQ(control_group_limit(root), 1'000'000);
}

// Both versions at once: memory belongs to one of them, and the other's tree has no such files.
TEST_F(AvailableMemoryTest, IsThatOfWhicheverVersionHasTheMemory) {
  write("/proc/meminfo", "MemAvailable:    600000 kB\n");
  write("/proc/self/cgroup", "9:memory:/job_7\n0::/system.slice/slurmd.service\n");
  write_group_v1("/job_7", 300'000, 100'000, 0);
  expect(200'000, "this job's control group");
  write("/proc/self/cgroup", "1:name=systemd:/job_7\n0::/job_7\n");
  expect(600'000 * 1024, "this node");
  write_group("/job_7", "250000", 100'000, 0);
  expect(150'000, "this job's control group");
}

// A process outside the tree that its container shows is said to lie above it.
TEST_F(AvailableMemoryTest, IsTheTopsOfWhatIsSeenForAPathOutsideOfIt) {
  write("/proc/meminfo", "MemAvailable:    600000 kB\n");
  write("/proc/self/cgroup", "0::/../../other\n");
  write("/sys/memory.max", "1\n");  // where a careless path would lead
  write("/sys/memory.current", "0\n");
  write_group("", "400000", 100'000, 0);
  expect(300'000, "this job's control group");
}

TEST_F(AvailableMemoryTest, IsSaidByThisMachineToo) {
  const AvailableMemory memory = available_memory();
  EXPECT_GT(memory.bytes, 0);
  EXPECT_LT(memory.bytes, std::int64_t{1} << 50);
}

using ::testing::HasSubstr;

TEST(DescriptorHandover, ServesOnlyThoseWhoKnowItsName) {
  DescriptorHandover one, other;
  EXPECT_NE(one.name(), other.name());
  EXPECT_EQ(one.name().size(), std::strlen("trident-") + 32);
  EXPECT_THAT(error_of<CommunicationError>([] { receive_descriptor("trident-nobody", 1); }),
              HasSubstr("first rank cannot be reached over a Unix socket: Connection refused"));
}

TEST(DescriptorHandover, EndsWithItsObject) {
  std::optional<DescriptorHandover> handover(std::in_place);
  const std::string name = handover->name();
  handover.reset();
  EXPECT_THAT(error_of<CommunicationError>([&] { receive_descriptor(name, 1); }), HasSubstr("cannot be reached"));
}

TEST(DescriptorHandover, SaysHowManyCame) {
  DescriptorHandover handover;
  ChildProcess one([&] { return bool(receive_descriptor(handover.name(), 100)); });
  // On a busy machine it comes to a later call.
  std::string said = "0 of this";
  for (double seconds = 0.25; seconds <= 64 && said.starts_with("0 of this"); seconds *= 2) {
    said = error_of<CommunicationError>([&] { handover.give(0, 2, seconds); });
    EXPECT_THAT(said, HasSubstr(fmt::format(" of this node's 2 other ranks came for the node's memory within {} s", seconds)));
  }
  EXPECT_THAT(said, HasSubstr("1 of this node's 2 other ranks"));
  EXPECT_TRUE(one.wait());
}

TEST(DescriptorHandover, NoticesAGiverThatEnds) {
  int channel[2];
  ASSERT_EQ(pipe(channel), 0);
  ChildProcess giver([&] {
    DescriptorHandover handover;
    const bool written = write(channel[1], handover.name().data(), handover.name().size()) > 0;
    usleep(200'000);  // the receiver is in the queue by then, or finds nobody: it is told either way
    return written;
  });
  std::string name(40, ' ');
  ASSERT_EQ(read(channel[0], name.data(), name.size()), 40);
  EXPECT_THAT(error_of<CommunicationError>([&] { receive_descriptor(name, 10); }), HasSubstr("this node's first rank"));
  EXPECT_TRUE(giver.wait());
}

// SA_RESTART says nothing of a socket with a time limit.
TEST(DescriptorHandover, IsNotEndedByASignal) {
  DescriptorHandover handover;
  ChildProcess receiver([&] {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = SA_RESTART;
    const itimerval often{{0, 10'000}, {0, 10'000}};
    return sigaction(SIGALRM, &action, nullptr) == 0 && setitimer(ITIMER_REAL, &often, nullptr) == 0 &&
           receive_descriptor(handover.name(), 10);
  });
  usleep(200'000);  // it waits by then
  handover.give(0, 1, 10);
  EXPECT_TRUE(receiver.wait());
}

TEST(DescriptorHandover, RefusesOtherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  DescriptorHandover handover;
  ChildProcess stranger([&] {
    if (setuid(65534) != 0) return false;
    return error_of<CommunicationError>([&] { receive_descriptor(handover.name(), 10); }).find("runs as another user") !=
           std::string::npos;
  });
  do {
    EXPECT_THAT(error_of<CommunicationError>([&] { handover.give(0, 1, 0.25); }), HasSubstr("0 of this node's 1 other ranks"));
  } while (!stranger.ended());
  EXPECT_TRUE(stranger.wait());
}

TEST(DescriptorHandover, SaysThatThereIsNoRoomForAReceiver) {
  DescriptorHandover handover;
  ChildProcess giver([&] {
    const int next = dup(0);
    close(next);
    limit(RLIMIT_NOFILE, static_cast<rlim_t>(next));
    return error_of<ConfigError>([&] { handover.give(0, 1, 10); }) ==
           "this node's first rank has no room for the connection of another: Too many open files; raise ulimit -n";
  });
  ChildProcess receiver([&] { return bool(receive_descriptor(handover.name(), 10)); });
  EXPECT_TRUE(giver.wait());
  kill(receiver.id(), SIGKILL);  // this process listens too: it would wait for it
  EXPECT_FALSE(receiver.wait());
}

TEST(DescriptorHandover, SaysThatTheSystemRefusesSockets) {
  ChildProcess child([] {
    limit(RLIMIT_NOFILE, 3);
    const bool giver = error_of<ConfigError>([] { DescriptorHandover(); }).find("which this system refuses: Too many open files") !=
                       std::string::npos;
    const bool receiver =
        error_of<CommunicationError>([] { receive_descriptor("trident-x", 1); }).find("Too many open files") != std::string::npos;
    return giver && receiver;
  });
  EXPECT_TRUE(child.wait());
}

}  // namespace
}  // namespace trident
