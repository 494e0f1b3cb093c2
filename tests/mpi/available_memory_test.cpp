#include "core/available_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

namespace trident {
namespace {

// A tree like /, with what the test writes into it.
class AvailableMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "available_memory_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root); }
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
  std::string root;
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

}  // namespace
}  // namespace trident
