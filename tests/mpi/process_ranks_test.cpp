// Ranks as processes train what thread ranks train, bit for bit, and start together or not at all.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/file_io.h"
#include "tests/app/checkpoint_runs.h"
#include "tests/data/token_files.h"
#include "tests/support/text_counts.h"

namespace trident {
namespace {

const char* const kMpirun = TRIDENT_SOURCE_DIR "/scripts/mpirun_local";
constexpr int kSkipped = 77;

struct Layout {
  const char* name;
  int ranks;
  std::vector<std::string> settings;

  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

class ProcessRanks : public ::testing::TestWithParam<Layout> {
 protected:
  // `program`: what each rank runs, before the arguments of trident train.
  ProgramOutcome launch(int ranks, std::vector<std::string> settings, const std::string& program = TRIDENT_BINARY) {
    std::vector<std::string> words{kMpirun, std::to_string(ranks), program, "train", "--config", place_ / "config.json"};
    settings.push_back("run.dir=" + (place_ / "processes"));
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return run_command(words);
  }
  std::string executable(const std::string& name, const std::string& text) {
    const std::string path = place_ / name;
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

  Workplace place_;
};

TEST_P(ProcessRanks, HaveTheBitsOfThreadRanks) {
  const Layout& layout = GetParam();
  std::vector<std::string> settings = layout.settings;
  settings.insert(settings.end(), {"run.steps=8", "log.every=1", "optimizer.lr=3e-4"});
  const ProgramOutcome processes = launch(layout.ranks, settings);
  if (processes.exit_code == kSkipped) GTEST_SKIP() << processes.out;
  ASSERT_EQ(processes.exit_code, 0) << processes.out << processes.err;
  settings.push_back("run.dir=" + (place_ / "threads"));
  ASSERT_EQ(place_.train(settings).exit_code, 0);

  const auto a = place_.metrics("threads"), b = place_.metrics("processes");
  ASSERT_EQ(a.size(), 8u);
  const std::vector<std::string> keys = plus(kComparedKeys, {"peak_bytes", "comm_bytes"});
  EXPECT_EQ(compared(a, keys), compared(b, keys));
}

// Twelve of the parity matrix: every axis alone, pairs, all three; every preset, every schedule, with and without sequence
// parallelism; bf16 too.
INSTANTIATE_TEST_SUITE_P(
    Mpi, ProcessRanks,
    ::testing::Values(
        Layout{"tp2", 2, {"parallel=1DP x 1PP x 2TP", "parallel.sequence_parallel=false"}},
        Layout{"tp4_sp", 4, {"parallel=1DP x 1PP x 4TP", "parallel.sequence_parallel=true"}},
        Layout{"pp2_gpipe", 2, {"parallel=1DP x 2PP x 1TP", "parallel.schedule=gpipe"}},
        Layout{"pp4_1f1b", 4, {"parallel=1DP x 4PP x 1TP"}},
        Layout{"dp2_ddp", 2, {"parallel=2DP x 1PP x 1TP", "parallel.zero=ddp"}},
        Layout{"dp4_zero2", 4, {"parallel=4DP x 1PP x 1TP", "parallel.zero=zero2"}},
        Layout{"dp2_pp2_interleaved_zero3",
               4,
               {"parallel=2DP x 2PP x 1TP", "parallel.schedule=interleaved", "parallel.virtual_stages=2", "parallel.zero=zero3"}},
        Layout{"dp2_tp2_shard_grad_op_sp",
               4,
               {"parallel=2DP x 1PP x 2TP", "parallel.zero=shard_grad_op", "parallel.sequence_parallel=true"}},
        Layout{"pp2_tp2_sp", 4, {"parallel=1DP x 2PP x 2TP", "parallel.sequence_parallel=true"}},
        Layout{"dp2_pp2_tp2_zero1_sp", 8, {"parallel=2DP x 2PP x 2TP", "parallel.zero=zero1", "parallel.sequence_parallel=true"}},
        Layout{"dp2_pp2_tp2_zero3", 8, {"parallel=2DP x 2PP x 2TP", "parallel.zero=zero3", "parallel.sequence_parallel=false"}},
        Layout{"dp2_pp2_tp2_bf16", 8, {"parallel=2DP x 2PP x 2TP", "parallel.zero=zero2", "precision.compute=bf16"}}),
    [](const auto& info) { return info.param.name; });

class ProcessStart : public ProcessRanks {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  }
  // Everything said, by whom does not matter: mpirun mixes the two streams of all ranks, and adds its own words.
  static void expect_said_once(const ProgramOutcome& outcome, int exit_code, const std::vector<std::string>& parts) {
    const std::string said = outcome.out + outcome.err;
    EXPECT_EQ(outcome.exit_code, exit_code) << said;
    for (const std::string& part : parts) EXPECT_EQ(occurrences(said, part), 1u) << part << " in:\n" << said;
  }
};

// As thread ranks do: tests/train/default_run_test.cpp.
TEST_F(ProcessStart, ARunThatIsToldNothingKeepsItsEnd) {
  std::string config = read_file(place_ / "config.json");
  const std::string never = R"("checkpoint": {"every": 0},)";
  write_file(place_ / "config.json", config.erase(config.find(never), never.size()));
  const ProgramOutcome first = launch(2, {"parallel=2DP"});
  if (first.exit_code == kSkipped) GTEST_SKIP() << first.out;
  ASSERT_EQ(first.exit_code, 0) << first.out << first.err;
  EXPECT_EQ(occurrences(first.out, "checkpoint of step 2: "), 1) << first.out;
  const ProgramOutcome again = launch(2, {"parallel=2DP"});
  EXPECT_EQ(occurrences(again.out, "there is nothing to train; --set run.steps=N"), 1) << again.out;

  write_file(place_ / "file", "");
  const ProgramOutcome warned =
      succeeded(launch(2, {"parallel=2DP", "checkpoint.dir=" + (place_ / "file/ckpt"), "run.overwrite=true", "run.steps=3"}));
  for (const char* part : {"[rank 0] warning: nothing of this run is saved: ", "checkpoint.dir = ", "checkpoint.every=0"})
    EXPECT_EQ(occurrences(warned.err, part), 1) << warned.err;
}

TEST_F(ProcessStart, AWrongConfigurationIsSaidOnce) {
  expect_said_once(launch(4, {"run.steps=-1"}), 64, {"trident: ", "run.steps = -1"});
}

// The mpirun of another library: every process believes that it is alone.
TEST_F(ProcessStart, ALauncherOfAnotherLibraryIsNamed) {
  expect_one_line(place_.train({}, "OMPI_COMM_WORLD_SIZE=4"), 64,
                  {"mpirun started 4 processes", "sees 1", "that library's mpirun"});
}

TEST_F(ProcessStart, AWrongNumberOfRanksIsSaidOnce) {
  expect_said_once(launch(3, {"parallel=1DP x 2PP x 2TP"}), 64, {"trident: "});
}

TEST_F(ProcessStart, ConfigurationsThatDifferAreNamed) {
  const std::string program =
      executable("mixed.sh",
                 "#!/bin/sh\nif [ \"$OMPI_COMM_WORLD_RANK\" = 2 ]; then set -- \"$@\" --set batch.global=16; fi\n"
                 "exec " TRIDENT_BINARY " \"$@\"\n");
  expect_said_once(launch(4, {"parallel=4DP x 1PP x 1TP"}, program), 64, {"batch.global is 8 on rank 0 (", "and 16 on rank 2 ("});
  EXPECT_FALSE(std::filesystem::exists(place_ / "processes")) << "nothing was trained";
}

TEST_F(ProcessStart, AnErrorOfOneRankNamesIt) {
  const std::string program =
      executable("lost.sh",
                 "#!/bin/sh\nif [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then set -- train --config gone.json; fi\n"
                 "exec " TRIDENT_BINARY " \"$@\"\n");
  expect_said_once(launch(2, {"parallel=2DP x 1PP x 1TP"}, program), 64, {"trident: rank 1 (", "gone.json"});
}

// Runs in the test's folder, rank 1 in "other" within it.
std::string ranks_apart(const std::string& folder) {
  return "#!/bin/sh\ncd " + folder + "; if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then cd other; fi\nexec " TRIDENT_BINARY " \"$@\"\n";
}

TEST_F(ProcessStart, DataThatDiffersIsNamed) {
  std::filesystem::create_directory(place_ / "other");
  for (const char* ending : {".bin", ".idx"}) {
    std::filesystem::create_symlink(place_ / (std::string("text") + ending), place_ / (std::string("data") + ending));
    std::filesystem::create_symlink(place_ / (std::string("valid") + ending), place_ / (std::string("other/data") + ending));
  }
  const std::string program = executable("elsewhere.sh", ranks_apart(place_ / "."));
  expect_said_once(launch(2, {"parallel=2DP x 1PP x 1TP", "data.train=[{\"path\":\"data\"}]", "data.valid=null"}, program), 65,
                   {"the training data differs", "rank 1 ("});
}

// Found when the data are opened, by a rank that the others must not wait for; or when it loads a batch, for one process of a node looks at tokens
// ahead.
TEST_F(ProcessStart, DataThatOneRankCannotUseNamesIt) {
  std::filesystem::create_directory(place_ / "other");
  const std::vector<std::int32_t> ids(4000, 7);
  for (const char* name : {"data", "other/data"})
    write_dataset(place_ / name, {ids}, 100'000);  // four bytes a token, of which some stand for none
  const std::string program = executable("elsewhere.sh", ranks_apart(place_ / "."));
  const auto refuse = [&](const std::vector<std::string>& parts) {
    expect_said_once(launch(2, {"parallel=2DP x 1PP x 1TP", "data.train=[{\"path\":\"data\"}]", "data.valid=null"}, program), 65, parts);
  };
  write_file(place_ / "other/data.bin", std::string(16000, '\xff'));
  refuse({"rank 1 (", "has id -1 (document 0, its token "});
  std::filesystem::resize_file(place_ / "other/data.idx", 60);
  refuse({"trident: rank 1 (", "data.idx", "truncated or damaged"});
}

TEST_F(ProcessStart, AnotherBuildIsNamed) {
  const std::string copy = place_ / "trident.other";
  std::filesystem::copy_file(TRIDENT_BINARY, copy);
  // The same program with another build id.
  const std::string id = place_ / "id.note";
  succeeded(run_command(
      {"sh", "-c",
       "objcopy --dump-section .note.gnu.build-id=" + id + " " + copy + " && printf '\\001\\002\\003' | dd of=" + id +
           " bs=1 seek=20 conv=notrunc 2>/dev/null && objcopy --update-section .note.gnu.build-id=" + id + " " + copy}));
  const std::string program = executable("builds.sh", "#!/bin/sh\nif [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then exec " + copy +
                                                          " \"$@\"; fi\nexec " TRIDENT_BINARY " \"$@\"\n");
  expect_said_once(launch(2, {"parallel=2DP x 1PP x 1TP"}, program), 64, {"different builds of trident"});
}

}  // namespace
}  // namespace trident
