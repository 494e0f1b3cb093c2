#include "parallel/launcher.h"

#include <gtest/gtest.h>

#include <map>

#include "core/check.h"

namespace trident {
namespace {

Launcher detect(const std::map<std::string, std::string>& variables) {
  return detect_launcher([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

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

TEST(Launcher, MpirunInsideABatchJob) {
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
  try {
    detect({{"WORLD_SIZE", "8"}, {"TORCHELASTIC_RUN_ID", "none"}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("torchrun"), std::string::npos);
  }
  EXPECT_EQ(detect({{"WORLD_SIZE", "8"}}).kind, Launcher::Kind::kNone) << "a variable that anybody may have set";
}

}  // namespace
}  // namespace trident
