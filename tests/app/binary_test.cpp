// The executable itself: exit codes and streams as a shell_program sees them.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "core/file_io.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

struct ProgramOutcome {
  int exit_code = -1;
  std::string text;
};

// Runs the program through the shell_program; `arguments` may redirect.
ProgramOutcome run(const std::string& arguments) {
  ProgramOutcome outcome;
  std::FILE* pipe = ::popen((std::string(TRIDENT_BINARY) + " " + arguments).c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) outcome.text.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

TEST(Binary, SuccessSpeaksOnStandardOutput) {
  const ProgramOutcome version = run("--version 2>/dev/null");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.text.rfind("trident ", 0), 0u);
  EXPECT_EQ(run("schema").exit_code, 0);
}

TEST(Binary, DrawsAStep) {
  const ProgramOutcome picture = run("docs timeline --config " TRIDENT_SOURCE_DIR "/configs/demo_2dp_4pp_4tp.json");
  EXPECT_EQ(picture.exit_code, 0);
  EXPECT_EQ(picture.text.rfind("<svg ", 0), 0u);
  expect_parts(picture.text, {"2DP x 4PP x 4TP"});
  const ProgramOutcome other =
      run("docs timeline --config " TRIDENT_SOURCE_DIR "/configs/demo_2dp_4pp_4tp.json --set parallel=2PP --set batch.global=64");
  EXPECT_EQ(other.exit_code, 0);
  expect_parts(other.text, {"2PP"});
  EXPECT_EQ(other.text.find("4TP"), std::string::npos);
}

// The batch that the message proposes is drawn, one more micro-batch is not.
TEST(Binary, DrawsNoMoreThanCanBeTold) {
  const std::string config = "docs timeline --config " TRIDENT_SOURCE_DIR "/configs/learn_1f1b.json";
  const ProgramOutcome many = run(config + " --set batch.global=100000 2>&1 >/dev/null");
  EXPECT_EQ(many.exit_code, 64) << many.text;
  const std::string set = "set batch.global to ";
  const std::size_t at = many.text.find(set);
  ASSERT_NE(at, std::string::npos) << many.text;
  const int most = std::stoi(many.text.substr(at + set.size()));
  const ProgramOutcome drawn = run(config + " --set batch.global=" + std::to_string(most));
  EXPECT_EQ(drawn.exit_code, 0);
  EXPECT_EQ(drawn.text.rfind("<svg ", 0), 0u);
  EXPECT_LT(drawn.text.size(), std::size_t{32} << 20);
  EXPECT_EQ(run(config + " --set batch.global=" + std::to_string(2 * most) + " 2>/dev/null").exit_code, 64);
}

TEST(Binary, FailureIsOneLineOnStandardError) {
  for (const char* arguments :
       {"trian", "plan", "train", "train --config /nonexistent.json", "train --confg x", "data prepare"}) {
    const ProgramOutcome quiet = run(std::string(arguments) + " 2>/dev/null");
    EXPECT_EQ(quiet.exit_code, 64) << arguments;
    EXPECT_EQ(quiet.text, "") << arguments;
    const ProgramOutcome outcome = run(std::string(arguments) + " 2>&1 >/dev/null");
    EXPECT_EQ(outcome.text.rfind("trident: ", 0), 0u) << outcome.text;
    EXPECT_EQ(outcome.text.find('\n'), outcome.text.size() - 1) << outcome.text;
  }
}

TEST(Binary, FullStandardOutputIsNoticed) { EXPECT_EQ(run("schema 2>&1 >/dev/full").exit_code, 74); }

// The program is below the checkout that has the pages, as it is below a package's folder.
TEST(Binary, ListsAndPrintsThePages) {
  const ProgramOutcome all = run("docs");
  EXPECT_EQ(all.exit_code, 0);
  for (const char* part : {"Pages, in ", "\n  slurm            Several nodes, and Slurm\n", "\n  zero             ZeRO\n"})
    EXPECT_NE(all.text.find(part), std::string::npos) << all.text;
  EXPECT_EQ(run("docs slurm").text, read_file(TRIDENT_SOURCE_DIR "/docs/slurm.md"));
  EXPECT_NE(run("docs lora 2>&1").text.find("; did you mean finetuning?"), std::string::npos);
}

}  // namespace
}  // namespace trident
