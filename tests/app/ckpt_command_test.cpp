// trident ckpt ls, show, verify, diff and prune inside this process.
#include <gtest/gtest.h>

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <sstream>

#include "app/subcommands.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/commit.h"
#include "core/file_io.h"
#include "tests/checkpoint/small_checkpoint.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "train/config/train_config.h"

namespace trident {
namespace {

struct Outcome {
  int code;
  std::string out, err;
};

class CkptCommand : public ::testing::Test {
 protected:
  // Steps 100 (bf16) and 200 (f32, other cut, other values), one damaged, one incomplete, one set aside.
  CkptCommand() {
    write(100, DType::kBF16, 0, test::some_value);
    write(200, DType::kF32, 1, [](const std::string& key, std::int64_t i) { return test::some_value(key, i + 1); });
    write_file(folder_ / "step-00000300/manifest.json", "{}");
  }
  void write(std::int64_t step, DType weights, int cut, const test::ValueOf& value, const std::string& mark = "") {
    create_folder(folder_ / "step-00000300");
    Manifest manifest = test::small_manifest(weights);
    manifest.state.updates = manifest.state.batches = step;
    manifest.written_unix = static_cast<std::int64_t>(std::time(nullptr)) - 7200 * 30;
    manifest.writer = JsonValue::Object{{"saved_with", JsonValue::Object{{"ranks", 32}, {"tp", 4}, {"pp", 4}, {"dp", 2},
                                                                         {"virtual_stages", 1}, {"zero", "zero1"}}}};
    test::write_checkpoint(folder_ / (checkpoint_name(step) + mark), manifest, test::small_files(manifest, cut), value);
  }
  static Outcome run(Arguments arguments) {
    arguments.insert(arguments.begin(), "ckpt");
    std::ostringstream out, err;
    const int code = run_command_line(arguments, {out, err});
    return {code, out.str(), err.str()};
  }
  static void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_TRUE(contains(text, part)) << "no \"" << part << "\" in:\n" << text;
  }

  TemporaryFolder folder_;
};

TEST_F(CkptCommand, LsNamesStepsAndTheirHealth) {
  write(150, DType::kF32, 2, test::some_value, ".aside-1");
  create_folder(folder_ / "step-00000400.tmp-ab12");
  write_file(folder_ / "step-00000400.tmp-ab12/w", std::string(1500, 'x'));
  std::filesystem::resize_file(folder_ / "step-00000200/weights/w-00001-0.safetensors", 99);
  write_file(folder_ / "run.json", R"({"starts": [{"step": 200}, {"step": 100, "resumed_from": ")" +
                                       (folder_ / "step-00000100") + "\"}]}");
  const Outcome seen = run({"ls", folder_.path()});
  EXPECT_EQ(seen.code, 0) << seen.err;
  std::istringstream lines(seen.out);
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(line);
  ASSERT_EQ(rows.size(), 6u) << seen.out;
  expect_parts(rows[0], {"step ", "size", "age", "files", "content"});
  expect_parts(rows[1], {"100 ", " KB  2 days  all there ",
                         "bf16 weights, masters, exp_avg, exp_avg_sq; the last start went on from it"});
  expect_parts(rows[2], {"150.aside-1   ", "set aside", "f32 weights, exp_avg, exp_avg_sq"});
  expect_parts(rows[3], {"200 ", "damaged", "w-00001-0.safetensors: has 99 bytes, the manifest says "});
  expect_parts(rows[4], {"300 ", "2 bytes", "damaged", "does not end with its hash"});
  expect_parts(rows[5], {"400.tmp-ab12", "1.5 KB", " - ", "incomplete", "has no manifest"});
  std::istringstream objects(run({"ls", folder_.path(), "--json"}).out);
  std::vector<JsonValue> listed;
  for (std::string line; std::getline(objects, line);) listed.push_back(parse_json(line, "ls --json"));
  ASSERT_EQ(listed.size(), 5u);
  EXPECT_EQ(*listed[0].find("step"), JsonValue(100));
  EXPECT_EQ(*listed[0].find("health"), JsonValue("all there"));
  EXPECT_EQ(*listed[1].find("folder"), JsonValue(folder_ / "step-00000150.aside-1"));
  EXPECT_EQ(*listed[0].find("resumed_from"), JsonValue(true));
  EXPECT_EQ(*listed[1].find("resumed_from"), JsonValue(false));
  EXPECT_EQ(*listed[4].find("bytes"), JsonValue(1500));
  EXPECT_TRUE(listed[4].find("written_unix")->is_null());
  for (const std::string start : {R"({"step": 100})", R"({"step": 100, "resumed_from": "/elsewhere/step-00000100"})"}) {
    write_file(folder_ / "run.json", R"({"starts": [)" + start + "]}");
    EXPECT_FALSE(contains(run({"ls", folder_.path()}).out, "went on from it")) << start;
  }
  const Outcome one = run({"ls", folder_ / "step-00000100"});
  EXPECT_EQ(one.code, 65);
  expect_parts(one.err, {"step-00000100: is one checkpoint", "ckpt show"});
  create_folder(folder_ / "empty");
  const Outcome none = run({"ls", folder_ / "empty"});
  EXPECT_EQ(none.code, 65);
  expect_parts(none.err, {"has no checkpoints", "checkpoint.dir"});
}

TEST_F(CkptCommand, ShowSaysWhatOneHolds) {
  const Outcome newest = run({"show", folder_.path()});  // 300 is no checkpoint
  EXPECT_EQ(newest.code, 0) << newest.err;
  expect_parts(newest.out, {"step-00000200\n", "200 of 200 batches", "f32 weights",
                            "written by       saved_with 2DP x 4PP x 4TP, zero1\n"});
  const Outcome seen = run({"show", folder_ / "100"});
  EXPECT_EQ(seen.code, 0) << seen.err;
  expect_parts(seen.out, {"step-00000100\n", "  updates          100 of 100 batches\n", "3 tensors",
                          "  files            2, ", "  w      [6,10]  bf16  ", "  scale  []      bf16  "});
  const JsonValue json = parse_json(run({"show", folder_ / "100", "--json"}).out, "show --json");
  EXPECT_EQ(*json.find("step"), JsonValue(100));
  EXPECT_EQ(*json.find("writer")->find("saved_with")->find("tp"), JsonValue(4));
  const JsonValue& first = json.find("tensors")->items().front();
  EXPECT_EQ(to_json_text(*first.find("shape")), "[6,10]");
  expect_parts(seen.out, {fmt::format("  w      [6,10]  bf16  {:.6g}\n", first.find("norm")->as_number())});
  for (const char* other : {"step-00000100", "step-100"}) EXPECT_EQ(run({"show", folder_ / other}).out, seen.out) << other;
  for (const std::string& given : {folder_.path(), folder_ / ""})
    expect_parts(run({"show", given, "4"}).err, {"unknown argument \"4\"; say " + (folder_ / "4") + " for step 4"});
  expect_parts(run({"show", "a b/ckpt", "3"}).err, {"; say 'a b/ckpt/3' for step 3"});
  for (const char* step : {"/400", "/nothing", "/step-00000300"}) EXPECT_EQ(run({"show", folder_.path() + step}).code, 65) << step;
  expect_parts(run({"show", folder_ / "400"}).err, {"there is no", "step-00000400"});
  const Manifest manifest = test::small_manifest(DType::kF32);
  std::vector<test::SmallFile> files = test::small_files(manifest, 0);
  files.insert(files.begin() + 1, {"weights/w-00001-0.safetensors", {files[0].boxes.back()}});
  files[0].boxes.pop_back();
  test::write_checkpoint(folder_ / "step-00000007", manifest, files, test::some_value);
  const std::string last = folder_ / "step-00000007/weights/w-00001-0.safetensors", content = read_file(last);
  write_file(last, content.substr(0, content.size() - 1) + static_cast<char>(content.back() ^ 1));
  const Outcome broken = run({"show", folder_ / "7"});
  EXPECT_EQ(broken.code, 65) << broken.err;
  expect_parts(broken.out, {"\n  b      [7]     f32  "});  // what is read before stands there
}

TEST_F(CkptCommand, ShowHasALossScaleOnlyWhereTrainingHasOne) {
  write(250, DType::kF16, 0, test::some_value);
  expect_parts(run({"show", folder_ / "250"}).out, {"  loss scale       1"});
  for (const char* step : {"100", "200"}) EXPECT_FALSE(contains(run({"show", folder_ / step}).out, "loss scale")) << step;
}

TEST_F(CkptCommand, VerifyReadsEveryByte) {
  const Outcome whole = run({"verify", folder_ / "100"});
  EXPECT_EQ(whole.code, 0) << whole.err;
  expect_parts(whole.out, {"step-00000100: whole: 3 tensors in 2 files"});
  const std::string path = folder_ / "step-00000100/optim/o-00000-0.safetensors";
  std::string content = read_file(path);
  content.back() = static_cast<char>(content.back() ^ 1);
  write_file(path, content);
  const Outcome damaged = run({"verify", folder_ / "100"});
  EXPECT_EQ(damaged.code, 65);
  expect_parts(damaged.out, {path + ": block 0", "tensors \"master/w\" to \"exp_avg_sq/scale\""});
  expect_parts(damaged.err, {"step-00000100: damaged: 1 problem"});
  EXPECT_EQ(run({"verify", folder_ / "step-00000300"}).code, 65);
  // A folder with a checkpoint's name that is none hides no damage.
  const Outcome all = run({"verify", folder_.path()});
  EXPECT_EQ(all.code, 65) << all.out;
  expect_parts(all.out, {path + ": block 0", "step-00000200: whole: ", "step-00000100: damaged: 1 problem",
                         "step-00000300/manifest.json: "});
  expect_parts(all.err, {": 2 of 3 checkpoints are not whole"});
}

TEST_F(CkptCommand, DiffEndsWithOneWhereTheyDiffer) {
  TemporaryFolder other;
  std::filesystem::copy(folder_ / "step-00000100", other / "same", std::filesystem::copy_options::recursive);
  const Outcome equal = run({"diff", folder_ / "100", other / "same"});
  EXPECT_EQ(equal.code, 0) << equal.err;
  EXPECT_EQ(equal.out, "equal: 12 tensors of 3 names, and the state of training\n");
  const Outcome different = run({"diff", folder_ / "100", folder_ / "200"});
  EXPECT_EQ(different.code, 1);
  expect_parts(different.out, {"state: updates: 100 and 200\n",
                               "master/w: 60 of 60 elements differ, the first at [0,0]: ", "exp_avg_sq/b: 7 of 7"});
  expect_parts(different.err, {"differ: 9 of 9 tensors compared, 2 numbers of the state"});
  EXPECT_EQ(run({"diff", folder_ / "100", folder_ / "step-00000300"}).code, 65);
}

TEST_F(CkptCommand, DiffNotesTheBestLossAndDoesNotCountIt) {
  TemporaryFolder other;
  std::filesystem::copy(folder_ / "step-00000100", other / "same", std::filesystem::copy_options::recursive);
  Manifest manifest = open_manifest(other / "same");
  manifest.state.best_valid_loss = 2.5;
  manifest.state.best_valid_step = 50;
  test::write_manifest(other / "same", manifest);
  const Outcome seen = run({"diff", folder_ / "100", other / "same"});
  EXPECT_EQ(seen.code, 0) << seen.err;
  expect_parts(seen.out, {"best_valid_loss: null and 2.5, ", "best_valid_step: 0 and 50, ", "equal: 12 tensors of 3 names"});
}

TEST_F(CkptCommand, DiffOfTwoModelsCountsWhatItCouldNotCompare) {
  TemporaryFolder other;
  Manifest manifest = test::small_manifest(DType::kBF16);
  const std::vector<test::SmallFile> files = test::small_files(manifest, 0);
  manifest.state.updates = manifest.state.batches = 100;
  manifest.tensors[0].name = "v";
  std::vector<test::SmallFile> renamed = files;
  for (test::SmallFile& file : renamed)
    for (FileBox& box : file.boxes)
      if (box.key.ends_with('w')) box.key.back() = 'v';
  test::write_checkpoint(other / "model", manifest, renamed);
  const Outcome different = run({"diff", folder_ / "100", other / "model"});
  EXPECT_EQ(different.code, 1);
  expect_parts(different.out, {"w: is in A only\n", "v: is in B only\n"});
  expect_parts(different.err, {"differ: 0 of 8 tensors compared, 2 that could not be compared, 0 numbers of the state"});
  // Nothing is alike but one tensor's name, and its shape is another.
  Manifest alien;
  alien.state.updates = alien.state.batches = 101;
  alien.tensors = {{"w", {2}}};
  alien.complete = false;
  test::write_checkpoint(other / "alien", alien, {{"weights/w-00000-0.safetensors", {{"w", DType::kF32, {{0}, {2}}}}}});
  expect_parts(run({"diff", other / "alien", folder_ / "100"}).err,
               {"differ: none of 3 tensors could be compared, 2 numbers of the state"});
}

class CkptPrune : public CkptCommand {
 protected:
  // Steps 100 to 700; 300 is damaged.
  CkptPrune() {
    for (const std::int64_t step : {400, 500, 600, 700}) write(step, DType::kF32, 0, test::some_value);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const CheckpointEntry& entry : list_checkpoints(folder_.path())) names.push_back(entry.name);
    return names;
  }
  static std::vector<std::string> named(const std::vector<std::int64_t>& steps) {
    std::vector<std::string> names;
    for (const std::int64_t step : steps) names.push_back(checkpoint_name(step));
    return names;
  }
};

TEST_F(CkptPrune, RemovesWhatARunWould) {
  const std::vector<std::string> all = names();
  const Outcome dry = run({"prune", folder_.path(), "--keep-last", "2", "--keep-every", "200", "--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  expect_parts(dry.out, {"step-00000500 would be removed, ", "step-00000100 would be removed, ",
                         ": 2 checkpoints would be removed, ", "; 4 stay\n"});
  EXPECT_EQ(names(), all);
  const Outcome seen = run({"prune", folder_.path(), "--keep-last", "2", "--keep-every", "200"});
  EXPECT_EQ(seen.code, 0) << seen.err;
  expect_parts(seen.out, {"step-00000500 is removed, ", ": 2 checkpoints removed, ", "; 4 stay\n"});
  EXPECT_EQ(names(), named({200, 300, 400, 600, 700}));
  for (const std::string& name : folder_.names()) EXPECT_EQ(name.find(".trash-"), std::string::npos) << name;
  write(650, DType::kF32, 0, test::some_value, ".aside-1");
  expect_parts(run({"prune", folder_.path(), "--keep-last=9"}).out,
               {"step-00000650.aside-1 stays: it was set aside; to remove it: rm -r " + (folder_ / "step-00000650.aside-1\n"),
                ": 0 checkpoints removed, 0 bytes; 4 stay\n"});
  expect_parts(run({"prune", folder_.path(), "--keep", "1"}).err, {"did you mean --keep-last or --keep-every?"});
}

TEST_F(CkptPrune, RulesAreThoseOfTheRunThatWroteTheNewest) {
  EXPECT_EQ(run({"prune", folder_.path()}).code, 64);  // no run's: nothing says how many
  const TrainConfig config = parse_train_config(
      R"({"run": {"steps": 9}, "batch": {"global": 1, "sequence": 1}, "model": {"preset": "gpt2-124m"}, "data": {"train": "t"},
    "checkpoint": {"keep_last": 1, "keep_every": 300, "keep_best": true}})",
      "test");
  Manifest manifest = open_manifest(folder_ / "step-00000700");
  manifest.config = to_json(config);
  manifest.state.best_valid_loss = 2.5;
  manifest.state.best_valid_step = 200;
  test::write_manifest(folder_ / "step-00000700", manifest);
  expect_parts(run({"show", folder_ / "700"}).out, {"  trained on       t, batches of 1 x 1 tokens, learning rate 0.0003\n"});
  const Outcome seen = run({"prune", folder_.path()});
  EXPECT_EQ(seen.code, 0) << seen.err;
  EXPECT_EQ(names(), named({200, 300, 600, 700}));
  EXPECT_EQ(run({"prune", folder_.path(), "--keep-last", "1", "--keep-every", "0"}).code, 0);
  EXPECT_EQ(names(), named({200, 300, 700}));
}

TEST_F(CkptPrune, NothingGoesWhereTheNewestIsDamaged) {
  create_folder(folder_ / "step-00000700.aside-1");  // into which mv would move it
  const std::vector<std::string> all = names();
  const std::string path = folder_ / "step-00000700/optim/o-00000-0.safetensors", content = read_file(path);
  write_file(path, content.substr(0, content.size() - 1) + static_cast<char>(content.back() ^ 1));
  const Outcome refused = run({"prune", folder_.path(), "--keep-last", "1"});
  EXPECT_EQ(refused.code, 65);
  expect_parts(refused.err, {"nothing is removed", "o-00000-0.safetensors", "; mv ", "step-00000700.aside-2, then older"});
  EXPECT_EQ(names(), all);
  std::filesystem::remove(folder_ / "step-00000700.aside-1");
  EXPECT_EQ(run({"prune", folder_.path(), "--keep-last", "1", "--unread"}).code, 0);
  EXPECT_EQ(names(), named({300, 700}));
}

TEST_F(CkptPrune, WhatIsReadStays) {
  const CheckpointReadLock reader(folder_ / "step-00000100");
  const Outcome seen = run({"prune", folder_.path(), "--keep-last", "1"});
  EXPECT_EQ(seen.code, 0) << seen.err;
  expect_parts(seen.out, {"step-00000100 stays: a reader has locked it\n", "; 2 stay\n"});
  EXPECT_EQ(names(), named({100, 300, 700}));
}

TEST_F(CkptPrune, NotWhileARunWritesThere) {
  // The run's files lie above the checkpoints, or where the manifest's configuration says.
  const TemporaryFolder run_dir;
  create_folder(folder_ / "run/ckpt");
  for (const std::int64_t step : {600, 700})
    std::filesystem::rename(folder_ / checkpoint_name(step), folder_ / ("run/ckpt/" + checkpoint_name(step)));
  const std::string folder = folder_ / "run/ckpt";
  const TrainConfig config =
      parse_train_config(fmt::format(R"({{"run": {{"steps": 9, "dir": "{}"}}, "batch": {{"global": 1, "sequence": 1}},
    "model": {{"preset": "gpt2-124m"}}, "data": {{"train": "t"}}}})",
                                     run_dir.path()),
                         "test");
  Manifest manifest = open_manifest(folder + "/step-00000700");
  manifest.config = to_json(config);
  test::write_manifest(folder + "/step-00000700", manifest);
  for (const std::string& metrics : {folder_ / "run/metrics.jsonl", run_dir / "metrics.jsonl"}) {
    const AppendFile alive(metrics, AppendFile::Start::kNewFile);
    const Outcome refused = run({"prune", folder, "--keep-last", "1"});
    EXPECT_EQ(refused.code, 74) << refused.out;
    expect_parts(refused.err, {metrics.substr(metrics.rfind('/')), "another run is writing it"});
    EXPECT_EQ(list_checkpoints(folder).size(), 2u);
    EXPECT_EQ(run({"prune", folder, "--keep-last", "1", "--dry-run"}).code, 0);
  }
  EXPECT_EQ(run({"prune", folder, "--keep-last", "1"}).code, 0);
  EXPECT_EQ(list_checkpoints(folder).size(), 1u);
}

TEST_F(CkptPrune, IsRefused) {
  EXPECT_EQ(run({"prune"}).code, 64);
  expect_parts(run({"prune", folder_.path(), "--keep-last", "0"}).err, {"--keep-last 0", "at least 1"});
  expect_parts(run({"prune", folder_.path(), "--keep-last", "1", "--keep-every", "-1"}).err, {"--keep-every -1"});
  const Outcome one = run({"prune", folder_ / "step-00000700", "--keep-last", "1"});
  EXPECT_EQ(one.code, 65);
  expect_parts(one.err, {"step-00000700: is a checkpoint, not a folder of them"});
  EXPECT_EQ(run({"prune", folder_ / "700", "--keep-last", "1"}).code, 65);
  EXPECT_EQ(run({"prune", folder_ / "nothing", "--keep-last", "1"}).code, 65);
  EXPECT_EQ(names().size(), 7u);
}

TEST_F(CkptCommand, Usage) {
  EXPECT_EQ(run({"--help"}).code, 0);
  expect_parts(run({"--help"}).out, {"ckpt ls DIR", "ckpt show", "ckpt verify", "ckpt diff A B", "ckpt prune DIR"});
  for (const char* action : {"ls", "show", "verify", "diff", "prune"}) EXPECT_EQ(run({action, "--help"}).code, 0) << action;
  EXPECT_EQ(run({}).code, 64);
  EXPECT_EQ(run({"show"}).code, 64);
  EXPECT_EQ(run({"diff", "a"}).code, 64);
  expect_parts(run({"lss"}).err, {"use ls, show, verify, diff or prune"});
}

}  // namespace
}  // namespace trident
