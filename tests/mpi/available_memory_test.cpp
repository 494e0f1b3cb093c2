#include "parallel/available_memory.h"

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
class AvailableMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "available_memory_XXXXXX";
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

TEST_F(AvailableMemoryTest, IsSaidByThisMachineToo) {
  const AvailableMemory memory = available_memory();
  EXPECT_GT(memory.bytes, 0);
  EXPECT_LT(memory.bytes, std::int64_t{1} << 50);
}

}  // namespace
}  // namespace trident
