// How many compute threads a rank gets: cores of a node, shared by its ranks, within what control groups allow.
#include "train/plan/core_share.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/data/temporary_folder.h"
#include "tests/support/meeting.h"
#include "train/launch/start_up.h"

namespace trident {
namespace {

void put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(CoreShare, ListsOfNumbers) {
  const std::vector<int> some{0, 1, 2, 7, 9, 10};
  EXPECT_EQ(number_ranges(some), "0-2,7,9-10");
  EXPECT_EQ(numbers_in("0-2,7,9-10"), some);
  EXPECT_EQ(number_ranges({}), "");
  EXPECT_TRUE(numbers_in("").empty());
  for (const char* bad : {"x", "1,", "1-", "-1", "1 2"}) EXPECT_THROW(numbers_in(bad), InternalError) << bad;
}

TEST(CoreShare, ThisProcessRunsOnItsAffinity) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const std::vector<int> all = usable_cores_of_this_process().ids;
  EXPECT_EQ(static_cast<int>(all.size()), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(all.back()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const std::vector<int> now = usable_cores_of_this_process().ids;
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(now, std::vector<int>{all.back()});
}

// The group itself, those above it, "max", and no files at all.
TEST(CoreShare, QuotaOfVersion2) {
  const TemporaryFolder root;
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, std::nullopt);
  put(root / "proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, std::nullopt);
  put(root / "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, std::nullopt);
  put(root / "sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, 2.5);
  put(root / "sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, 2.5) << "the group above binds, too";
  put(root / "proc/self/cgroup", "0::/\n");
  put(root / "sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, 0.5) << "a container's root";
}

TEST(CoreShare, QuotaOfVersion1) {
  const TemporaryFolder root;
  put(root / "proc/self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/job/step\n0::/\n");
  put(root / "sys/fs/cgroup/cpu,cpuacct/job/step/cpu.cfs_quota_us", "-1\n");
  put(root / "sys/fs/cgroup/cpu,cpuacct/job/step/cpu.cfs_period_us", "100000\n");
  put(root / "sys/fs/cgroup/memory/job/cpu.cfs_quota_us", "100000\n");
  put(root / "sys/fs/cgroup/memory/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, std::nullopt);
  put(root / "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
  put(root / "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(usable_cores_of_this_process(root.path()).quota, 4.0);
}

TEST(CoreShare, TheUnionOfMasksOverTheRanks) {
  const std::vector<UsableCores> pinned{{{0, 1}, {}}, {{2, 3}, {}}, {{4, 5}, {}}, {{6, 7}, {}}};
  EXPECT_EQ(share_cores(pinned, 4).threads(), 2);
  EXPECT_EQ(threads_line(share_cores(pinned, 4)), "2 threads per rank: 8 cores of this node for 4 ranks");
  const std::vector<UsableCores> free(4, UsableCores{{0, 1, 2, 3, 4, 5, 6, 7}, {}});
  EXPECT_EQ(share_cores(free, 4).threads(), 2);
  EXPECT_EQ(share_cores({free.data(), 1}, 3).threads(), 2) << "the rest of a division stays idle";
  EXPECT_EQ(share_cores({free.data(), 1}, 32).threads(), 1);
  EXPECT_EQ(threads_line(share_cores({free.data(), 1}, 1)), "8 threads per rank: 8 cores of this node for 1 rank");
  EXPECT_EQ(share_cores({}, 0).threads(), 1) << "a kernel that says nothing";
}

TEST(CoreShare, AQuotaCaps) {
  std::vector<UsableCores> processes(2, UsableCores{{0, 1, 2, 3, 4, 5, 6, 7}, 5.5});
  processes[1].quota.reset();
  EXPECT_EQ(share_cores(processes, 2).threads(), 2);
  EXPECT_EQ(threads_line(share_cores(processes, 2)), "2 threads per rank: a CPU quota of 5.5 on 8 cores of this node for 2 ranks");
  processes[0].quota = 0.5;
  EXPECT_EQ(share_cores(processes, 2).threads(), 1);
  processes[0].quota = 64;
  EXPECT_EQ(threads_line(share_cores(processes, 2)), "4 threads per rank: 8 cores of this node for 2 ranks");
}

// Masks go to the node's first rank; the node that has fewest cores for a rank decides for all.
TEST(CoreShare, TheNodeThatHasFewestDecides) {
  const auto on = [](const std::string& host, std::vector<int> cores) {
    StartUpFacts facts;
    facts.host = host;
    facts.machine.memory = {{"this machine", {}, 1}};
    facts.machine.cores = {std::move(cores), std::nullopt};
    return facts;
  };
  const std::vector<StartUpFacts> ranks{on("n1", {0, 1, 2, 3}), on("n1", {4, 5, 6, 7}), on("n2", {0, 1, 2}), on("n2", {0, 1, 2})};
  const auto lines = [&](const std::vector<int>& nodes) {
    std::vector<std::string> said(nodes.size());
    testing::on_meeting_ranks(nodes, [&](Rendezvous& job, Rendezvous& node) {
      const auto r = static_cast<std::size_t>(job.rank());
      said[r] = threads_line(weakest(job, node, ranks[r]).core_share);
    });
    return said;
  };
  for (const std::string& line : lines({0, 0, 1, 1}))
    EXPECT_EQ(line, "1 thread per rank: 3 cores of n2, where a rank has fewest, for 2 ranks");
  for (const std::string& line : lines({0, 0})) EXPECT_EQ(line, "4 threads per rank: 8 cores of this node for 2 ranks");
}

}  // namespace
}  // namespace trident
