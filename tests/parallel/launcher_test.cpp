#include "parallel/communicator/launcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "parallel/grid/process_grid.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

Launcher detect(const Variables& variables) { return detect_launcher(environment_of(variables)); }

TEST(Launcher, AShellStartsThreads) { EXPECT_EQ(detect({}).kind, Launcher::Kind::kNone); }

TEST(Launcher, OpenMpi) {
  const Launcher l = detect({{"OMPI_COMM_WORLD_SIZE", "32"}, {"OMPI_COMM_WORLD_RANK", "7"}});
  EXPECT_EQ(l.kind, Launcher::Kind::kMpi);
  EXPECT_EQ(l.processes, 32);
}

TEST(Launcher, OneProcessIsNobodysJob) {
  EXPECT_EQ(detect({{"OMPI_COMM_WORLD_SIZE", "1"}}).kind, Launcher::Kind::kNone);
  EXPECT_EQ(detect({{"PMI_SIZE", "1"}}).kind, Launcher::Kind::kNone);
}

TEST(Launcher, SrunKnowsOfMpiOnlyThroughItsPlugin) {
  EXPECT_EQ(detect({{"SLURM_STEP_NUM_TASKS", "8"}, {"PMIX_RANK", "0"}}).kind, Launcher::Kind::kMpi);
  const Launcher plain = detect({{"SLURM_STEP_NUM_TASKS", "8"}});
  EXPECT_EQ(plain.kind, Launcher::Kind::kPlainSrun);
  EXPECT_EQ(plain.processes, 8);
}

TEST(Launcher, ABatchScriptIsNotAStep) {
  EXPECT_EQ(detect({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}}).kind, Launcher::Kind::kNone);
}

TEST(Launcher, MpirunIsFoundInsideABatchJob) {
  const Launcher l = detect({{"SLURM_STEP_NUM_TASKS", "4"}, {"OMPI_COMM_WORLD_SIZE", "8"}});  // orted itself is a step of Slurm
  EXPECT_EQ(l.kind, Launcher::Kind::kMpi);
  EXPECT_EQ(l.processes, 8);
}

TEST(Launcher, MpichIsMpi) { EXPECT_EQ(detect({{"PMI_SIZE", "4"}}).kind, Launcher::Kind::kMpi); }

TEST(Launcher, NonsenseCountsAsAbsent) {
  for (const char* text : {"", "x", "8x", "-3", "99999999999999999999"}) {
    EXPECT_EQ(detect({{"OMPI_COMM_WORLD_SIZE", text}}).kind, Launcher::Kind::kNone) << text;
  }
}

TEST(Launcher, TorchrunIsRefusedByName) {
  expect_parts(error_of<ConfigError>([&] { detect({{"WORLD_SIZE", "8"}, {"TORCHELASTIC_RUN_ID", "none"}}); }), {"torchrun"});
  EXPECT_EQ(detect({{"WORLD_SIZE", "8"}}).kind, Launcher::Kind::kNone) << "a variable that anybody may have set";
}

// Where ranks are

std::string place(const Variables& variables) {
  const Placement p = placement_of(environment_of(variables));
  return fmt::format("{} ranks, {} nodes{}", p.ranks, p.nodes, p.is_rank_0 ? ", rank 0" : "");
}

TEST(Placement, IsWhatTheLauncherSays) {
  EXPECT_EQ(place({}), "1 ranks, 0 nodes");
  EXPECT_EQ(place({{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}, {"OMPI_COMM_WORLD_RANK", "0"}}),
            "8 ranks, 1 nodes, rank 0");
  EXPECT_EQ(place({{"OMPI_COMM_WORLD_SIZE", "9"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}}),
            "9 ranks, 3 nodes");
  EXPECT_EQ(place({{"OMPI_COMM_WORLD_SIZE", "9"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}, {"OMPI_MCA_orte_num_nodes", "2"}}),
            "9 ranks, 2 nodes");
  EXPECT_EQ(place({{"OMPI_COMM_WORLD_SIZE", "8"}}), "8 ranks, 0 nodes");
  EXPECT_EQ(place({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_NUM_NODES", "2"}, {"PMIX_RANK", "0"}}), "4 ranks, 2 nodes, rank 0");
  EXPECT_EQ(place({{"SLURM_STEP_NUM_TASKS", "2"},
                   {"SLURM_STEP_NUM_NODES", "2"},
                   {"OMPI_COMM_WORLD_SIZE", "8"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
            "8 ranks, 2 nodes")
      << "the step is that of mpirun's daemons";
}

// Ports

using Settings = std::vector<std::pair<std::string, std::string>>;

Settings without_ports(Variables more, std::string_view file = "", int major = 4) {
  more.insert({{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}});
  return settings_without_ports(environment_of(more), file, major);
}

TEST(WithoutPorts, OneNodeUsesNoneWhereTheUserSaidNothing) {
  EXPECT_EQ(without_ports({}), (Settings{{"OMPI_MCA_pml", "ob1"}, {"OMPI_MCA_btl", "self,vader"}}));
  EXPECT_EQ(without_ports({}, "", 5), (Settings{{"OMPI_MCA_pml", "ob1"}, {"OMPI_MCA_btl", "self,sm"}}));
  EXPECT_EQ(without_ports({}, "# pml = ucx\nbtl_tcp_if_include = 10.0.0.0/8\nbtl").size(), 2u);
  EXPECT_EQ(without_ports({{"OMPI_MCA_btl_tcp_if_include", "eth0"}}).size(), 2u);
  const Variables slurm{{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_NUM_NODES", "1"}};
  EXPECT_EQ(settings_without_ports(environment_of(slurm), "", 4).size(), 2u);
}

TEST(WithoutPorts, TheUsersWordCounts) {
  for (const char* name : {"OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_mtl", "OMPI_MCA_mca_base_param_files"})
    EXPECT_EQ(without_ports({{name, "x"}}), Settings()) << name;
  for (const char* file : {"btl = self,tcp\n", "a = b\n  pml=ucx", "mtl\t= ofi"})
    EXPECT_EQ(without_ports({}, file), Settings()) << file;
}

TEST(WithoutPorts, NodesAreNotGuessedAt) {
  EXPECT_EQ(without_ports({{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}), Settings());
  EXPECT_EQ(settings_without_ports(environment_of({{"OMPI_COMM_WORLD_SIZE", "8"}}), "", 4), Settings());
  EXPECT_EQ(settings_without_ports(environment_of({{"PMI_SIZE", "8"}}), "", 4), Settings());
}

TEST(SmallShm, AnotherFolderIsTaken) {
  const auto folder = [](Variables more, std::int64_t bytes, int major = 4) {
    more.insert({{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}});
    const auto set = folder_instead_of_shm(environment_of(more), bytes, major);
    return set ? set->first + "=" + set->second : "";
  };
  EXPECT_EQ(folder({}, 2 << 20), "OMPI_MCA_btl_vader_backing_directory=/tmp");
  EXPECT_EQ(folder({{"TMPDIR", "/scratch"}}, 0, 5), "OMPI_MCA_btl_sm_backing_directory=/scratch");
  EXPECT_EQ(folder({}, 64 << 20), "") << "Docker's default";
  EXPECT_EQ(folder({{"OMPI_MCA_btl_vader_backing_directory", "/x"}}, 0), "");
  EXPECT_EQ(folder({{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}, 0), "") << "two nodes";
}

// A path that cannot be looked up: too long, as good as not allowed.
TEST(UserFile, WhatCannotBeReadSaysNothing) {
  const std::string home(5000, 'h');
  EXPECT_EQ(user_file_of_open_mpi(environment_of({{"HOME", home.c_str()}})), "");
  EXPECT_EQ(user_file_of_open_mpi(environment_of({})), "");
}

TEST(Interfaces, AreThoseOfMpi) {
  const Variables variables{{"OMPI_MCA_btl_tcp_if_include", "eth0,10.0.0.0/24"}, {"OMPI_MCA_btl_tcp_if_exclude", "lo"}};
  EXPECT_EQ(interfaces_for_mpi(environment_of(variables), "btl_tcp_if_include = eth1").include, "eth0,10.0.0.0/24");
  EXPECT_EQ(interfaces_for_mpi(environment_of(variables), "").exclude, "lo");
  EXPECT_EQ(interfaces_for_mpi(environment_of({}), "").include, "");
  const InterfaceChoice of_file =
      interfaces_for_mpi(environment_of({}), "# btl_tcp_if_include = a\nbtl_tcp_if_include=eth2 \r\n btl_tcp_if_exclude = lo,eth3");
  EXPECT_EQ(of_file.include, "eth2");
  EXPECT_EQ(of_file.exclude, "lo,eth3");
}

std::set<std::vector<int>> all_groups(const ProcessGrid& grid, const SubAxis& axis) {
  std::set<std::vector<int>> groups;
  for (int r = 0; r < grid.world_size(); ++r) groups.insert(grid.group(r, axis));
  return groups;
}

using Groups = std::set<std::vector<int>>;

// Megatron's worked example: 16 ranks, T = 2, P = 4, C = 1, D = 2 (megatron/core/parallel_state.py).
TEST(ProcessGrid, SixteenRanksStandAsInMegatron) {
  const ProcessGrid grid({.tensor = 2, .context = 1, .data = 2, .pipeline = 4});
  EXPECT_EQ(all_groups(grid, grid.whole(Axis::kTensor)),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(all_groups(grid, grid.whole(Axis::kData)),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(all_groups(grid, grid.whole(Axis::kPipeline)),
            (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
}

// Megatron's alternative mapping (--use-tp-pp-dp-mapping).
TEST(ProcessGrid, MegatronTensorPipelineDataOrder) {
  const ProcessGrid grid({.tensor = 2, .context = 1, .data = 2, .pipeline = 4}, parse_axis_order("tp-cp-pp-dp").value());
  EXPECT_EQ(grid.group(0, grid.whole(Axis::kPipeline)), (std::vector<int>{0, 2, 4, 6}));
  EXPECT_EQ(grid.group(3, grid.whole(Axis::kData)), (std::vector<int>{3, 11}));
}

TEST(ProcessGrid, DefaultOrderIsTheDocumentedFormula) {
  const ProcessGrid grid({.tensor = 2, .context = 3, .data = 2, .pipeline = 2});
  for (int pp = 0; pp < 2; ++pp)
    for (int dp = 0; dp < 2; ++dp)
      for (int cp = 0; cp < 3; ++cp)
        for (int tp = 0; tp < 2; ++tp) {
          const GridCoordinates c{tp, cp, dp, pp};
          EXPECT_EQ(grid.rank(c), tp + 2 * (cp + 3 * (dp + 2 * pp)));
          EXPECT_EQ(grid.coordinates(grid.rank(c)), c);
        }
}

TEST(ProcessGrid, EveryOrderIsABijectionAndGroupsPartitionTheWorld) {
  std::vector<std::string> axes = {"cp", "dp", "pp", "tp"};
  do {
    const std::string order = axes[0] + "-" + axes[1] + "-" + axes[2] + "-" + axes[3];
    const ProcessGrid grid({.tensor = 4, .context = 2, .data = 3, .pipeline = 2}, parse_axis_order(order).value());
    for (int r = 0; r < grid.world_size(); ++r) {
      ASSERT_EQ(grid.rank(grid.coordinates(r)), r) << order;
      for (const SubAxis axis : {grid.whole(Axis::kTensor), grid.whole(Axis::kContext), grid.whole(Axis::kData),
                                 grid.whole(Axis::kPipeline), SubAxis{Axis::kTensor, 2, 2}, SubAxis{Axis::kTensor, 2, 1}}) {
        const std::vector<int> group = grid.group(r, axis);
        ASSERT_EQ(group.size(), static_cast<std::size_t>(axis.size));
        ASSERT_EQ(group[static_cast<std::size_t>(grid.coordinate(r, axis.axis) / axis.stride % axis.size)], r);
        for (const int peer : group) ASSERT_EQ(grid.group(peer, axis), group) << order;
      }
    }
  } while (std::next_permutation(axes.begin(), axes.end()));
}

// tp = 4 over 2 key/value heads: ranks {0,1} and {2,3} hold the same head; {0,2} and {1,3} hold different ones.
TEST(ProcessGrid, SubAxesFactorAnAxis) {
  const ProcessGrid grid({.tensor = 4, .context = 1, .data = 2, .pipeline = 1});
  EXPECT_EQ(all_groups(grid, {Axis::kTensor, 2, 1}), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(all_groups(grid, {Axis::kTensor, 2, 2}), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(to_string(SubAxis{Axis::kTensor, 2, 2}), "tp[2:2]");
  EXPECT_THROW(grid.group(0, {Axis::kTensor, 3, 1}), InternalError);
}

TEST(ProcessGrid, RefusesBadDegreesByKey) {
  expect_parts(error_of<ConfigError>([] { ProcessGrid({.tensor = 0}); }), {"parallel.tensor = 0"});
  expect_parts(error_of<ConfigError>([] { ProcessGrid({.context = -1}); }), {"parallel.context = -1"});
  expect_parts(error_of<ConfigError>([] { ProcessGrid({.data = 0}); }), {"parallel.data = 0"});
  expect_parts(error_of<ConfigError>([] { ProcessGrid({.pipeline = 0}); }), {"parallel.pipeline = 0"});
  expect_parts(error_of<ConfigError>([] { ProcessGrid({.tensor = 1 << 20, .data = 1 << 20}); }), {"more than"});
}

TEST(AxisOrder, IsReadAndWritten) {
  EXPECT_EQ(parse_axis_order("tp-cp-dp-pp"), kMegatronOrder);
  EXPECT_EQ(parse_axis_order("pp-dp-cp-tp"), (AxisOrder{Axis::kPipeline, Axis::kData, Axis::kContext, Axis::kTensor}));
  for (const char* text : {"tp-cp-dp-pp", "tp-cp-pp-dp", "pp-dp-cp-tp"}) EXPECT_EQ(to_string(parse_axis_order(text).value()), text);

  for (const char* order : {"", "tp", "tp-cp-dp", "tp-cp-dp-dp", "tp-cp-dp-pp-", "tp-cp-dp-pp-ep", "tp_cp_dp_pp", "tp-cp-ep-pp"})
    EXPECT_EQ(parse_axis_order(order), std::nullopt) << order;
}

TEST(CheckWorldSize, NamesWhatWouldFit) {
  EXPECT_NO_THROW(check_world_size({.tensor = 4, .context = 1, .data = 2, .pipeline = 4}, 32));
  const std::string data =
      error_of<ConfigError>([] { check_world_size({.tensor = 4, .context = 1, .data = 2, .pipeline = 4}, 64); });
  expect_parts(data, {"parallel = data 2 x pipeline 4 x tensor 4 x context 1", "needs 32 ranks", "64 are running",
                      "set parallel.data to 4"});
  const std::string model =
      error_of<ConfigError>([] { check_world_size({.tensor = 4, .context = 1, .data = 2, .pipeline = 4}, 24); });
  expect_parts(model, {"(now 16) dividing 24"});
  expect_parts(error_of<ConfigError>([] { check_world_size({.data = 0}, 4); }), {"parallel.data = 0"});
}

}  // namespace
}  // namespace trident
