// Two runs and one checkpoint.dir, and folders in which no run can save: refused before anything is touched, with the holder, the
// numbers and the remedy.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/lease.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "tests/app/background_program.h"
#include "tests/app/program.h"
#include "tests/data/token_files.h"

namespace trident {
namespace {

class CheckpointDir : public ::testing::Test {
 protected:
  CheckpointDir() {
    write_dataset(place_ / "counting", counting_documents(2000, 512), 512);
    write_file(place_ / "config.json", fmt::format(R"({{
      "run": {{"dir": "{0}/run", "steps": 4, "threads_per_rank": 1}},
      "model": {{"model_type": "llama", "vocab_size": 512, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                 "intermediate_size": 64, "max_position_embeddings": 64}},
      "batch": {{"global": 4, "micro": 1, "sequence": 32}},
      "precision": {{"compute": "fp32"}}, "data": {{"train": "{0}/counting", "tokenizer": null}},
      "checkpoint": {{"dir": "{0}/shared/ckpt", "every": 2}}, "log": {{"every": 1}}
    }})",
                                                   place_.path()));
  }

  std::vector<std::string> words(const std::vector<std::string>& settings) const {
    std::vector<std::string> all{"train", "--config", place_ / "config.json"};
    for (const std::string& setting : settings) all.insert(all.end(), {"--set", setting});
    return all;
  }
  ProgramOutcome train(const std::vector<std::string>& settings = {}, const std::string& environment = "") const {
    return run_program(words(settings), environment);
  }
  std::vector<std::string> saved() const {
    std::vector<std::string> names;
    for (const CheckpointEntry& entry : list_checkpoints(place_ / "shared/ckpt")) names.push_back(entry.name);
    return names;
  }
  std::string lease(std::int64_t generation) const { return place_ / ("shared/ckpt/" + lease_name(generation)); }
  // A run on another node that has the folder.
  void leave_lease(std::int64_t generation, const std::string& token) const {
    LeaseRecord record{.holder = this_process(token), .generation = generation};
    record.holder.host = "faraway";
    write_file(lease(generation), to_text(record));
  }

  TemporaryFolder place_;
};

const std::vector<std::string> kEndless{"run.steps=1000000", "checkpoint.every=1000000"};
const char* const kWatches = "waiting up to 15 s for a sign of life";  // said before it does

// Another run directory, so that its files stop nobody.
TEST_F(CheckpointDir, ASecondRunIsRefusedWhileTheFirstLives) {
  BackgroundProgram first(words(kEndless));
  ASSERT_TRUE(within(150, [&] { return file_exists(place_ / "run/metrics.jsonl"); })) << first.err();
  create_folder(place_ / "shared/ckpt/step-00000005.tmp-1234/weights");  // that a second one would remove
  const std::string before = read_file(lease(1)).substr(0, 100);
  expect_one_line(train({"run.dir=" + (place_ / "other")}), 64,
                  {"checkpoint.dir = " + (place_ / "shared/ckpt"), "another run saves there",
                   fmt::format("pid {} on ", first.process()), "kill -USR1", "another folder"});
  EXPECT_FALSE(is_there(place_ / "other/metrics.jsonl"));
  EXPECT_EQ(read_file(lease(1)).substr(0, 100), before);
  EXPECT_TRUE(folder_exists(place_ / "shared/ckpt/step-00000005.tmp-1234/weights"));
  kill(first.process(), SIGKILL);
  EXPECT_EQ(first.wait_to_end(150), 137);
  const ProgramOutcome second = succeeded(train({"run.dir=" + (place_ / "other")}));
  EXPECT_EQ(second.err.find(kWatches), std::string::npos) << "a holder that is gone is not watched for 15 s: " << second.err;
  EXPECT_EQ(saved(), (std::vector<std::string>{checkpoint_name(2), checkpoint_name(4)}));
  EXPECT_TRUE(lease_from(read_file(lease(2)))->done);
}

const std::vector<std::string> kSavesAtItsEnd{"run.steps=1000000", "checkpoint.every=end"};

// Neither of whom has set anything aside of the other's.
TEST_F(CheckpointDir, ARunThatSavesAtItsEndAloneHasTheFolderFromItsStart) {
  BackgroundProgram first(words(kSavesAtItsEnd));
  ASSERT_TRUE(within(150, [&] { return first.steps_said() > 0; })) << first.err();
  for (const char* every : {"checkpoint.every=end", "checkpoint.every=2"})
    expect_one_line(train({"run.dir=" + (place_ / "other"), every}), 64,
                    {"checkpoint.dir = ", "another run saves there", fmt::format("pid {} on ", first.process()), "another folder"});
  EXPECT_EQ(lease_from(read_file(lease(1)))->counter, 0) << "nothing is renewed before the save";
  kill(first.process(), SIGUSR1);
  EXPECT_EQ(first.wait_to_end(150), 75) << first.err();
  EXPECT_EQ(saved().size(), 1u);
  EXPECT_TRUE(lease_from(read_file(lease(1)))->done);
  const ProgramOutcome second = train({"run.dir=" + (place_ / "other"), "checkpoint.every=end", "run.steps=1000000",
                                        "run.max_minutes=0.001"});
  EXPECT_EQ(second.exit_code, 75) << second.err;
  for (const std::string& name : saved()) EXPECT_EQ(name.find("aside"), name.npos) << name;
}

// On a file system without locks another one may have it by then.
TEST_F(CheckpointDir, ASaveAtTheEndWaitsForWhoeverHasTheFolder) {
  BackgroundProgram run(words(kSavesAtItsEnd));
  ASSERT_TRUE(within(150, [&] { return run.steps_said() > 0; })) << run.err();
  LeaseRecord another{.holder = this_process("another"), .generation = 2};
  write_file(lease(2), to_text(another));
  kill(run.process(), SIGUSR1);
  const std::string waits = "waiting up to 60 s for it to end";
  EXPECT_TRUE(within(150, [&] { return run.ended() || run.err().find(waits) != std::string::npos; })) << run.err();
  another.done = true;
  write_file(lease(2), to_text(another));
  EXPECT_EQ(run.wait_to_end(150), 75) << run.err();
  EXPECT_EQ(saved().size(), 1u);
}

TEST_F(CheckpointDir, WhoIsTakenOverEnds) {
  BackgroundProgram run(words(kEndless));
  ASSERT_TRUE(within(150, [&] { return file_exists(place_ / "run/metrics.jsonl"); })) << run.err();
  leave_lease(2, "another");
  EXPECT_EQ(run.wait_to_end(150), 64) << run.err();
  expect_parts(run.err(), {"checkpoint.dir = ", "on faraway has taken the folder over", "this run ends"});
  EXPECT_EQ(std::ranges::count(run.err(), '\n'), 1) << run.err();
  EXPECT_TRUE(saved().empty());
}

TEST_F(CheckpointDir, AFolderThatWasRemovedEndsARunSoThatItIsStartedAgain) {
  BackgroundProgram run(words(kEndless));
  ASSERT_TRUE(within(150, [&] { return file_exists(place_ / "run/metrics.jsonl"); })) << run.err();
  std::filesystem::remove_all(place_ / "shared/ckpt");
  EXPECT_EQ(run.wait_to_end(150), 74) << run.err();
  expect_parts(run.err(), {"was removed: this run ends"});
}

TEST_F(CheckpointDir, TheSupervisorsTokenOpensItAtOnce) {
  create_folder(place_ / "shared/ckpt");
  int generation = 7;
  for (const std::string name : kLeaseTokenVariables) {
    leave_lease(generation, "of the supervisor");
    const ProgramOutcome outcome = succeeded(train({fmt::format("run.steps={}", generation)}, name + "='of the supervisor'"));
    EXPECT_EQ(outcome.err.find(kWatches), std::string::npos) << outcome.err;
    EXPECT_TRUE(lease_from(read_file(lease(generation + 1)))->done);
    generation += 2;
  }

  // It hands the same one to each of its starts, under both names.
  const std::string script = fmt::format("echo ${} >> '{}'; test \"${}\" = \"${}\" && exit 74", kLeaseTokenVariables[0],
                                         place_ / "tokens", kLeaseTokenVariables[0], kLeaseTokenVariables[1]);
  for (int i = 0; i < 2; ++i)
    run_program({"supervise", "--max-restarts", "1", "--checkpoints", place_ / "none", "--", "sh", "-c", script});
  const std::string tokens = read_file(place_ / "tokens");
  ASSERT_EQ(tokens.size(), 4 * 17u) << tokens;
  EXPECT_EQ(tokens.substr(0, 17), tokens.substr(17, 17));
  EXPECT_NE(tokens.substr(0, 17), tokens.substr(34, 17));
  EXPECT_EQ(tokens.substr(34, 17), tokens.substr(51, 17));
}

TEST_F(CheckpointDir, AStartThatIsRefusedLeavesNothing) {
  const auto entries = [&] { return place_.names(); };
  const std::vector<std::string> before = entries();
  expect_one_line(train({"data.train=" + (place_ / "none")}), 65, {"none"});  // after the folder was looked at
  EXPECT_EQ(entries(), before);
  write_file(place_ / "file", "");
  expect_one_line(
      train({"checkpoint.dir=" + (place_ / "file/a/ckpt")}), 64,
      {"checkpoint.dir = " + (place_ / "file/a/ckpt: the folder cannot be created"), "Not a directory", "another folder"});
}

// A disk of a few megabytes; a mount of this test alone.
class SmallDisk : public CheckpointDir {
 protected:
  void SetUp() override {
    create_folder(place_ / "shared/ckpt");
    if (::geteuid() != 0) unshare_.insert(unshare_.end(), {"--user", "--map-root-user"});
    const ProgramOutcome probe = on_disk_of(4096, "true");
    if (probe.exit_code != 0) GTEST_SKIP() << "no mounts of its own: " << probe.err;
  }
  ProgramOutcome on_disk_of(std::int64_t bytes, const std::string& script) const {
    std::vector<std::string> all = unshare_;
    all.insert(all.end(),
               {"sh", "-c", fmt::format("mount -t tmpfs -o size={} tmpfs '{}' && {{ {}; }}", bytes, place_ / "shared", script)});
    return run_command(all);
  }
  std::string command(const std::vector<std::string>& settings) const {
    std::string text = TRIDENT_BINARY;
    for (const std::string& word : words(settings)) text += " '" + word + "'";
    return text;
  }
  // Returns the bytes that the last save of a run takes of the disk, in its blocks, without the file `but`.
  std::int64_t bytes_of_a_save(const std::string& run, std::string_view but = {}) const {
    EXPECT_EQ(train({"run.dir=" + run}).exit_code, 0);
    std::int64_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(place_ / "shared/ckpt/step-00000004"))
      if (entry.is_regular_file() && entry.path().filename() != but)
        bytes += (static_cast<std::int64_t>(entry.file_size()) + 4095) / 4096 * 4096;
    return bytes;
  }
  std::vector<std::string> unshare_{"unshare", "--mount"};
};

TEST_F(SmallDisk, WithoutRoomIsRefusedWithTheNumbers) {
  const std::int64_t save = bytes_of_a_save(place_ / "elsewhere", kManifestName);
  ASSERT_GT(save, 500'000);
  // Three saves, and what is not the values: manifests, folders, the lease.
  const std::int64_t three = 3 * save, beside = 100'000;
  const std::string says = fmt::format("(a save has {:.2f} MB)", 1e-6 * static_cast<double>(save));
  const ProgramOutcome refused =
      on_disk_of(three - 4096, command({}) + "; status=$?; ls -A '" + (place_ / "shared") + "'; exit $status");
  expect_one_line(
      refused, 64,
      {"checkpoint.dir = ", "checkpoint.keep_last = 2 and the save being written, of which 0 are there", says,
       fmt::format("need {:.2f} MB (a save", 1e-6 * static_cast<double>(three)), "free some space, lower checkpoint.keep_last"});
  // A start that is refused leaves neither its folders nor a failure.json in them.
  const std::string list = "; status=$?; ls -A '" + (place_ / "shared") + "'; exit $status";
  const ProgramOutcome gone = on_disk_of(save / 2, command({"checkpoint.dir=null", "run.dir=" + (place_ / "shared/run")}) + list);
  expect_one_line(gone, 64, {"checkpoint.dir = ", "/shared/run/ckpt"});
  succeeded(on_disk_of(three + beside, command({})));
  EXPECT_EQ(on_disk_of(three - 4096, command({"checkpoint.keep_last=1", "run.dir=" + (place_ / "one")})).exit_code, 0);
  expect_one_line(on_disk_of(save - 4096, command({"checkpoint.keep_last=0", "run.dir=" + (place_ / "all")})), 64,
                  {"one save needs"});
  EXPECT_EQ(
      on_disk_of(save + beside, command({"checkpoint.keep_last=0", "run.dir=" + (place_ / "all"), "checkpoint.every=4"})).exit_code,
      0);
}

// Where nobody gave the key, room for one save is enough, and without it the run warns.
TEST_F(SmallDisk, WithoutRoomARunThatSavesByDefaultWarns) {
  std::string config = read_file(place_ / "config.json");
  const std::string every = R"(, "every": 2)";
  write_file(place_ / "config.json", config.erase(config.find(every), every.size()));
  const std::int64_t save = bytes_of_a_save(place_ / "elsewhere");
  const std::string list = "; ls '" + (place_ / "shared/ckpt") + "'";
  const ProgramOutcome fits = on_disk_of(save + 100'000, command({"run.dir=" + (place_ / "fits")}) + list);
  expect_parts(fits.out, {"\nstep-00000004\n"});
  const ProgramOutcome none = succeeded(on_disk_of(save / 2, command({"run.dir=" + (place_ / "none")})));
  EXPECT_EQ(std::ranges::count(none.err, '\n'), 2) << none.err;
  EXPECT_EQ(none.out.find("--set checkpoint.every=end"), std::string::npos) << "this is refused for the same disk: " << none.out;
  expect_parts(none.err, {"nothing of this run is saved: checkpoint.dir = ", "one save needs", "checkpoint.every=0"});
  expect_one_line(on_disk_of(save / 2, command({"checkpoint.every=end", "run.dir=" + (place_ / "given")})), 64, {"one save needs"});
}

TEST_F(SmallDisk, WhatMayPassIsNoFaultOfTheConfiguration) {
  expect_one_line(on_disk_of(8192, fmt::format("head -c 8192 /dev/zero > '{}'; {}", place_ / "shared/x", command({}))), 74,
                  {"checkpoint.dir = ", "No space left on device"});
}

// A checkpoint that was set aside stays: it has its bytes, and newer ones do not replace it.
TEST_F(SmallDisk, WhatIsSetAsideMakesNoRoom) {
  const std::int64_t save = bytes_of_a_save(place_ / "elsewhere");
  const auto second_start = [&](const std::string& between, const std::vector<std::string>& settings) {
    return on_disk_of(3 * save + 100'000, fmt::format("{} > /dev/null && {} && {}",
                                                      command({"run.dir=" + (place_ / "first"), "lr_schedule.decay_steps=8"}),
                                                      between, command(settings)));
  };
  const std::string anew = "run.dir=" + (place_ / "anew");
  expect_one_line(
      second_start("true", {"checkpoint.resume=never", anew}), 64,
      {"of which 0 are there", "free some space (2 checkpoints, which would be set aside and which no run removes, have "});
  const std::string left = place_ / "shared/ckpt/step-00000099.aside-1";
  const std::string aside = fmt::format("mkdir -p '{0}' && head -c {1} /dev/zero > '{0}/x'", left, save);
  expect_one_line(second_start(aside, {"run.steps=8", "run.dir=" + (place_ / "on")}), 64,
                  {"of which 2 are there", "free some space (1 checkpoint, which is set aside and which no run removes, has "});
}

// Bytes that lie there already, and a killed save's, do not count twice.
class FullSmallDisk : public SmallDisk {};
TEST_F(FullSmallDisk, AFullDiskIsNoReasonToRefuseARestart) {
  const std::int64_t save = bytes_of_a_save(place_ / "elsewhere");
  const std::string left = place_ / "shared/ckpt/step-00000099.tmp-dead";
  const std::string kill = fmt::format("mkdir -p '{0}' && head -c {1} /dev/zero > '{0}/x'", left, save);
  const ProgramOutcome outcome =
      succeeded(on_disk_of(3 * save + 60'000, fmt::format("{} && {} && {}", command({}), kill, command({"run.steps=8"}))));
  expect_parts(outcome.out, {"goes on from step 4\n"});
}

// As a run leaves it that was killed after a commit, before it removed the oldest: one more than there is room for.
TEST_F(FullSmallDisk, WhatIsNoLongerKeptMakesRoomForARestart) {
  const std::int64_t save = bytes_of_a_save(place_ / "elsewhere");
  const std::string list = "ls '" + (place_ / "shared/ckpt") + "' | grep step-";
  const ProgramOutcome outcome = succeeded(
      on_disk_of(3 * save + 60'000,
                 fmt::format("{} && {} && {} && {} && {} && {} && {}", command({"run.steps=2", "checkpoint.keep_last=0"}),
                             command({"run.steps=4", "checkpoint.keep_last=0"}), command({"run.steps=6", "checkpoint.keep_last=0"}),
                             list, command({"run.steps=8"}), list, command({"run.steps=8", "checkpoint.keep_last=5"}))));
  expect_parts(outcome.out,
               {"goes on from step 6\n", "step-00000002\nstep-00000004\nstep-00000006\n", "step-00000006\nstep-00000008\n"});
  EXPECT_NE(outcome.out.find("there is nothing to train"), std::string::npos) << "a run that is finished asks for no room\n"
                                                                              << outcome.out;
}

// Fifteen seconds, in which the run that seemed dead commits: what this one has read is no longer the newest.
class FullCheckpointDir : public CheckpointDir {};

TEST_F(FullCheckpointDir, WhatIsCommittedWhileAStartWaitsIsNotLost) {
  ASSERT_EQ(train().exit_code, 0);
  std::filesystem::rename(place_ / "shared/ckpt/step-00000004", place_ / "later");
  leave_lease(2, "another");
  const double began = monotonic_seconds();
  BackgroundProgram start(words({"run.steps=6"}));
  ASSERT_TRUE(within(150, [&] { return start.err().find(kWatches) != std::string::npos; }))
      << start.err();
  expect_parts(start.err(), {"on faraway had it"});
  std::filesystem::rename(place_ / "later", place_ / "shared/ckpt/step-00000004");
  EXPECT_EQ(start.wait_to_end(150), 74) << start.err();
  EXPECT_GT(monotonic_seconds() - began, 15);
  expect_parts(start.err(), {"step-00000004 now and was ", "step-00000002 when this run started", "start this one again"});
  const ProgramOutcome again = succeeded(train({"run.steps=6"}));
  expect_parts(again.out, {"goes on from step 4\n"});
}

}  // namespace
}  // namespace trident
