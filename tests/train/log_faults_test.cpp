// A disk that fails or damages the logs of a run costs their lines and nothing else.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/support/error_text.h"
#include "tests/support/file_faults.h"
#include "tests/support/log_text.h"
#include "tests/support/no_gpus.h"
#include "tests/support/text_counts.h"
#include "tests/support/train_hooks.h"
#include "tests/train/event_file.h"
#include "train/launch/run_training.h"

namespace trident::testing {
namespace {

using LoggedSteps = std::vector<std::int64_t>;

using Look = std::function<void(const std::string& shown)>;

// Lets a test act when a line is shown.
class WatchedText : public std::stringbuf {
 public:
  explicit WatchedText(Look look) : look_(std::move(look)) {}
  int sync() override {
    look_(str());
    return 0;
  }

 private:
  Look look_;
};

// While alive, this process can make files and write nothing into them.
class NoBytes {
 public:
  NoBytes() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoBytes() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  NoBytes(const NoBytes&) = delete;
  NoBytes& operator=(const NoBytes&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

class LogFaults : public ::testing::Test {
 protected:
  LogFaults() {
    Documents documents(1);
    for (int i = 0; i <= 12 * 8; ++i) documents[0].push_back(i * i % 61);
    write_dataset(folder_ / "text", documents, 61);
  }

  // `look` sees the console after each of its lines.
  std::string train(const std::string& run, std::vector<std::string> more, Look look = [](const std::string&) {}) {
    std::ostringstream warnings;
    LogSink sink(warnings);
    WatchedText text(std::move(look));
    std::ostream console(&text);
    NoGpus no_gpus;
    more.insert(more.end(), {"run.dir=" + (folder_ / run), "data.train=" + (folder_ / "text"), "data.valid=" + (folder_ / "text")});
    run_training([&] { return parse_train_config(kConfig, "test", more); },
                 {.console = console, .log = sink}, no_gpus, train_hooks());
    return text.str() + warnings.str();
  }

  std::map<std::int64_t, double> losses(const std::string& run) const {
    std::map<std::int64_t, double> losses;
    for (const JsonValue& value : json_lines(read_file(folder_ / (run + "/metrics.jsonl"))))
      losses[value.find("step")->as_integer()] = value.find("loss")->as_number();
    return losses;
  }
  std::size_t num_events(const std::string& run) const {
    const std::vector<std::string> files = event_files(folder_ / run);
    EXPECT_EQ(files.size(), 1u);
    return read_event_file(files.at(0)).size();
  }
  // The steps of a log, all of whose lines can be read.
  LoggedSteps steps_of(const std::string& log) const {
    LoggedSteps steps;
    for (const JsonValue& value : json_lines(read_file(folder_ / log))) steps.push_back(value.find("step")->as_integer());
    return steps;
  }

  static constexpr const char* kConfig = R"({
    "run": {"threads_per_rank": 1, "pin": false, "steps": 10},
    "device": "cpu",
    "model": {"model_type": "llama", "vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
              "num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 16},
    "batch": {"global": 2, "micro": 1, "sequence": 8},
    "optimizer": {"lr": 1e-3},
    "lr_schedule": {"decay_steps": 12},
    "data": {"tokenizer": null},
    "eval": {"every": 2, "steps": 1, "sample_ids": ["5 17"], "sample_tokens": 2},
    "checkpoint": {"every": 10},
    "log": {"every": 1, "trace_steps": [2, 5]}
  })";
  // While the console has the first text and not the second one, no file can be opened, written or flushed.
  Look no_disk_between(const std::string& first, const std::string& second) {
    return [=, this](const std::string& shown) {
      const bool begins = contains(shown, first), ends = contains(shown, second);
      if (begins && !ends && !no_disk_) no_disk_.emplace(Fault::kErrorsFrom, 0, ENOSPC);
      if (ends) no_disk_.reset();
    };
  }

  const TemporaryFolder folder_;
  std::optional<FileFault> no_disk_;
};

TEST_F(LogFaults, AFullDiskCostsLinesAndNotTheRun) {
  train("whole", {});
  const std::string said = train("full", {}, no_disk_between("step 3/", "step 6/"));
  EXPECT_EQ(occurrences(said, "No space left on device; free some space"), 1u) << said;
  EXPECT_TRUE(contains(said, "missing: 5 of TensorBoard's events, 1 of eval.jsonl, 3 of metrics.jsonl, ") &&
              contains(said, " of run.log, 1 of samples.jsonl, 3 of timing.jsonl;"))
      << said;
  const LoggedSteps logged{1, 2, 3, 7, 8, 9, 10}, evaluated{0, 2, 6, 8, 10};
  EXPECT_EQ(steps_of("full/metrics.jsonl"), logged);
  EXPECT_EQ(steps_of("full/timing.jsonl"), logged);
  EXPECT_EQ(steps_of("full/eval.jsonl"), evaluated);
  EXPECT_EQ(steps_of("full/samples.jsonl"), evaluated);
  EXPECT_EQ(num_events("full"), num_events("whole") - 5);
  EXPECT_TRUE(file_exists(folder_ / "full/trace/steps_2-5.json"));
  // It goes on as the other one does.
  for (const std::string run : {"whole", "full"}) train(run, {"run.steps=12", "log.trace_steps=[]"});
  const std::map<std::int64_t, double> whole = losses("whole"), full = losses("full");
  EXPECT_EQ(whole.size(), 12u);
  EXPECT_EQ(full.size(), 9u);
  for (const auto& [step, loss] : full) EXPECT_EQ(loss, whole.at(step)) << step;
}

TEST_F(LogFaults, ADiskThatStaysFullDoesNotEndTheRunEither) {
  const std::string said = train("full", {"checkpoint.every=0", "log.report=true"}, no_disk_between("step 1/", "never"));
  no_disk_.reset();
  EXPECT_TRUE(contains(said, "step 10/10  loss")) << said;
  EXPECT_TRUE(contains(said, "no trace: its file could not be written")) << said;
  EXPECT_TRUE(contains(said, "9 of metrics.jsonl")) << said;
  EXPECT_TRUE(contains(said, "(run.log, metrics.jsonl)")) << "no page is named that is not there: " << said;
  EXPECT_EQ(steps_of("full/metrics.jsonl"), LoggedSteps{1});
}

// logrotate's copytruncate empties a file that is being written: what follows begins at its beginning, in whole lines. A renamed
// file keeps what this start writes, and the next start makes a new one.
TEST_F(LogFaults, RotatedFilesGoOnWithWholeLines) {
  const std::string metrics = folder_ / "run/metrics.jsonl", evals = folder_ / "run/eval.jsonl";
  bool rotated = false;
  train("run", {"run.steps=6"}, [&](const std::string& shown) {
    if (rotated || !contains(shown, "step 3/6  loss")) return;
    rotated = true;
    std::filesystem::resize_file(metrics, 0);
    std::filesystem::rename(evals, evals + ".1");
  });
  EXPECT_EQ(steps_of("run/metrics.jsonl"), (LoggedSteps{4, 5, 6}));
  EXPECT_EQ(steps_of("run/eval.jsonl.1"), (LoggedSteps{0, 2, 4, 6}));
  EXPECT_FALSE(file_exists(evals));
  const std::string said = train("run", {"run.steps=8"});
  EXPECT_EQ(steps_of("run/metrics.jsonl"), (LoggedSteps{4, 5, 6, 7, 8}));
  EXPECT_EQ(steps_of("run/eval.jsonl"), (LoggedSteps{6, 8})) << "what the new file lacks is made again";
  EXPECT_EQ(steps_of("run/samples.jsonl"), (LoggedSteps{0, 2, 4, 6, 8})) << "and nothing of another file is lost";
  EXPECT_FALSE(contains(said, "has no lines between")) << said;
}

// The file is whole whenever it is read, and says where the run is; where it cannot be, a new run is refused.
TEST_F(LogFaults, PrometheusReadsWhereTheRunIs) {
  const std::string file = folder_ / "run.prom", label = fmt::format("{{run=\"{}\"}} ", folder_ / "run");
  const auto value_of = [&](const std::string& name) {
    const std::string text = file_exists(file) ? read_file(file) : "", line = "\ntrident_" + name + label;
    const std::size_t at = text.find(line);
    return at == std::string::npos ? "" : text.substr(at + line.size(), text.find('\n', at + 1) - at - line.size());
  };
  std::vector<std::string> steps;
  const auto note_step = [&](const std::string&) { steps.push_back(value_of("step")); };
  train("run", {"log.prometheus=" + file, "checkpoint.every=4", "run.steps=9"}, note_step);
  EXPECT_TRUE(std::ranges::find(steps, "3") != steps.end() && std::ranges::find(steps, "8") != steps.end());
  EXPECT_EQ(value_of("step"), "9");
  EXPECT_EQ(value_of("steps"), "9");
  EXPECT_EQ(value_of("eta_seconds"), "0");
  EXPECT_EQ(value_of("last_checkpoint_step"), "9");
  EXPECT_NE(value_of("last_checkpoint_timestamp_seconds"), "");
  EXPECT_EQ(std::stod(value_of("loss")), losses("run").at(9));
  for (const char* name : {"tokens_per_second", "valid_loss", "last_update_timestamp_seconds"})
    EXPECT_GT(std::stod(value_of(name)), 0) << name;
  const std::string nowhere = folder_ / "none/run.prom";
  const std::string error = error_of<StorageError>([&] { train("other", {"log.prometheus=" + nowhere}); });
  EXPECT_EQ(error, fmt::format("log.prometheus = {}: cannot be created: No such file or directory; create its folder first; or "
                               "name another file in log.prometheus", nowhere));
  EXPECT_FALSE(file_exists(folder_ / "other/config.resolved.json")) << "it leaves nothing of a run";
}

// run.json says how every start ended, and its page is there, however it ended.
TEST_F(LogFaults, ARunThatFailsHasAnEndAndAPage) {
  const auto last_start = [&](const std::string& run) {
    return parse_json(read_file(folder_ / (run + "/run.json")), "run.json").find("starts")->items().back();
  };
  const std::string error = error_of<Error>([&] {
    train("lost", {"optimizer.lr=1e30", "optimizer.grad_clip=0", "run.steps=12", "eval.every=0", "eval.sample_ids=[]",
                   "log.trace_steps=[]", "log.report=true"});
  });
  ASSERT_TRUE(contains(error, "10 batches in a row had non-finite gradients")) << error;
  const JsonValue ended = *last_start("lost").find("ended");
  EXPECT_EQ(ended.find("exit_code")->as_integer(), exit_status(ExitCode::kNoProgress));
  EXPECT_EQ(ended.find("why")->as_string(), error);
  EXPECT_TRUE(contains(error, fmt::format("after update {};", ended.find("step")->as_integer()))) << error;
  EXPECT_EQ(last_start("lost").find("working_dir")->as_string(), std::filesystem::current_path().string());
  EXPECT_TRUE(contains(read_file(folder_ / "lost/report.html"), "failed: 10 batches in a row"));
  EXPECT_TRUE(contains(read_file(folder_ / "lost/run.log"), "gradient is not finite")) << "the last warnings are there";

  const Look look = no_disk_between("step 3/", "never");
  EXPECT_NE(error_of<StorageError>([&] { train("full", {"log.on_error=stop"}, look); }), "");
  no_disk_.reset();
  EXPECT_EQ(last_start("full").find("ended"), nullptr) << "there was no room for it";

  train("run", {"run.steps=6"});
  const JsonValue before = last_start("run");
  {
    const NoBytes no_bytes;
    train("run", {"run.steps=8", "checkpoint.every=0"});
  }
  EXPECT_EQ(last_start("run"), before) << "a start that is not on record does not end an earlier one";
}

TEST_F(LogFaults, TheLastLinesNameWhatIsThere) {
  const std::string said = train("run", {"run.steps=6", "log.report=true"});
  EXPECT_TRUE(contains(said, "(run.log, metrics.jsonl, report.html)")) << said;
  EXPECT_TRUE(contains(said, " nats per token; validation loss ")) << said;
  std::filesystem::remove(folder_ / "run/report.html");
  std::filesystem::create_directory(folder_ / "run/report.html");
  std::filesystem::remove(folder_ / "run/comparison.json");
  std::filesystem::create_directory(folder_ / "run/comparison.json");
  std::string again = train("run", {"run.steps=8", "log.report=true"});
  EXPECT_TRUE(contains(again, "(run.log, metrics.jsonl)")) << again;
  EXPECT_TRUE(contains(again, "result: step 8/8, 128 tokens, the last 32 in ")) << again;
  EXPECT_TRUE(contains(again, "no report.html: ")) << again;
  EXPECT_FALSE(contains(again, "no trace: ")) << "an earlier start has it: " << again;
  EXPECT_EQ(occurrences(again, "; validation loss "), 1u)
      << "of the last step, though this start made none before its first: " << again;
  std::filesystem::remove(folder_ / "run/report.html");
  std::filesystem::remove(folder_ / "run/trace/steps_2-5.json");
  again = train("run", {"run.steps=9", "log.report=true"});
  EXPECT_TRUE(contains(again, "no trace: this start began behind log.trace_steps")) << again;
  EXPECT_TRUE(contains(again, "(run.log, metrics.jsonl, report.html)")) << "though comparison.json cannot be written: " << again;
}

// Whoever starts a run again may not be able to make room.
TEST_F(LogFaults, ADiskThatIsFullSinceTheLastStartDoesNotKeepARunFromGoingOn) {
  train("full", {"run.steps=6", "checkpoint.every=4"});
  std::filesystem::remove_all(folder_ / "full/ckpt/step-00000006");
  std::string said;
  {
    const NoBytes no_bytes;
    said = train("full", {"checkpoint.every=0"});
  }
  EXPECT_TRUE(contains(said, "goes on from step 4") && contains(said, "6 of metrics.jsonl")) << said;
  EXPECT_EQ(steps_of("full/metrics.jsonl"), (LoggedSteps{1, 2, 3, 4}));
}

TEST_F(LogFaults, OnErrorStopEndsTheRun) {
  const Look look = no_disk_between("step 3/", "never");
  const std::string error = error_of<StorageError>([&] { train("full", {"log.on_error=stop"}, look); });
  no_disk_.reset();
  EXPECT_TRUE(contains(error, ": cannot be written: No space left on device; free some space; the run ends because log.on_error is "
                              "\"stop\""))
      << error;
  EXPECT_EQ(steps_of("full/metrics.jsonl"), (LoggedSteps{1, 2, 3}));
}

// The start of a run takes out what cannot be read, and no more.
TEST_F(LogFaults, ADamagedLineCostsThatLine) {
  struct Damage {
    const char* name;
    std::size_t line;  // from 0
    std::function<void(std::string&)> change;
    bool costs_it = true, is_said = true;
  };
  const Damage damages[] = {{"its first byte", 2, [](std::string& line) { line[0] = '\0'; }},
                            {"a byte within", 4, [](std::string& line) { line[line.find('p') + 3] = '\x80'; }},
                            {"its last byte", 1, [](std::string& line) { line.back() = ' '; }},
                            {"half of it", 3, [](std::string& line) { line.resize(line.size() / 2); }},
                            {"a later step", 2, [](std::string& line) { line.insert(line.find(':') + 1, "9"); }, true, false},
                            {"another line", 0, [](std::string& line) { line += "\nnot by this program"; }, false}};
  train("whole", {});
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.name);
    std::filesystem::remove_all(folder_ / "run");
    std::filesystem::copy(folder_ / "whole", folder_ / "run", std::filesystem::copy_options::recursive);
    std::map<std::string, LoggedSteps> expected;
    for (const std::string log : {"run/metrics.jsonl", "run/timing.jsonl", "run/eval.jsonl", "run/samples.jsonl"}) {
      expected[log] = steps_of(log);
      const std::string text = read_file(folder_ / log);
      std::vector<std::string> lines;
      std::istringstream in(text);
      for (std::string line; std::getline(in, line);) lines.push_back(line);
      if (damage.costs_it) expected[log].erase(expected[log].begin() + static_cast<std::ptrdiff_t>(damage.line));
      damage.change(lines.at(damage.line));
      std::string changed;
      for (const std::string& line : lines) changed += line + "\n";
      write_file(folder_ / log, changed);
    }
    const std::string said = train("run", {});
    for (const auto& [log, steps] : expected) EXPECT_EQ(steps_of(log), steps) << log << '\n' << said;
    EXPECT_EQ(occurrences(said, ": 1 line cannot be read, and is taken out"), damage.is_said ? 4u : 0u) << said;
  }
}

// A last line that only lacks its end is whole.
TEST_F(LogFaults, AMissingEndOfTheLastLineCostsNothing) {
  train("run", {});
  const std::string path = folder_ / "run/metrics.jsonl", text = read_file(path);
  write_file(path, text.substr(0, text.size() - 1));
  train("run", {});
  EXPECT_EQ(read_file(path), text);
}

// The next start removes what killed starts left, and nothing of others or of starts that live.
TEST_F(LogFaults, LeftoversOfKilledStartsGo) {
  const std::string digits = ".tmp.0123456789abcdef";
  const std::vector<std::string> left{"config.resolved.json" + digits,
                                      "plan.json" + digits,
                                      "memory.json" + digits,
                                      "metrics.jsonl" + digits,
                                      "comparison.json" + digits,
                                      "report.html" + digits,
                                      "hostfile" + digits,
                                      "failure.json.new",
                                      "trace/steps_1-9.json" + digits,
                                      "ckpt/probe-0123456789abcdef",
                                      "ckpt/probe-0123456789abcdef" + digits};
  const std::vector<std::string> stay{"mine.json" + digits, "plan.json.tmp.0123456789abcde", "plan.json.tmp.0123456789ABCDEF",
                                      "ckpt/probe-mine"};
  train("run", {});
  for (const std::vector<std::string>& names : {left, stay})
    for (const std::string& name : names) write_file(folder_ / ("run/" + name), "x");
  AtomicFile alive(folder_ / "run/memory.json"), probe(folder_ / "run/ckpt/probe-00000000aaaaaaaa");
  probe.commit();
  train("run", {});
  for (const std::string& name : left) EXPECT_FALSE(file_exists(folder_ / ("run/" + name))) << name;
  for (const std::string& name : stay) EXPECT_TRUE(file_exists(folder_ / ("run/" + name))) << name;
  EXPECT_TRUE(file_exists(alive.temporary_path()));
  EXPECT_TRUE(file_exists(probe.path()));
}

}  // namespace
}  // namespace trident::testing
