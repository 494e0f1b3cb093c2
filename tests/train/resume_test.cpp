// A run that is stopped after every step leaves what a run leaves that nobody stopped: metrics, evaluations, TensorBoard's events,
// and in the end the same bits of every tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_diff.h"
#include "checkpoint/checkpoint_folder.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/support/error_text.h"
#include "tests/support/log_text.h"
#include "tests/support/no_gpus.h"
#include "tests/support/train_hooks.h"
#include "tests/train/event_file.h"
#include "tests/train/stored_runs.h"
#include "train/launch/run_training.h"
#include "train/run/resume.h"

namespace trident::testing {
namespace {

// These updates matter. Evaluations are made after every third, lines written after every seventh.
constexpr int kFirst = 2;   // then the loss scale is made one that will soon grow
constexpr int kWarm = 4;    // the warm-up ends
constexpr int kSwitch = 9;  // the sets are blended by other weights from here on
constexpr int kScaleGrows = 12;
constexpr int kDecay = 17;      // the learning rate begins to fall
constexpr int kOverflows = 18;  // then the loss scale is made one that is too large
constexpr int kSteps = 25;
constexpr int kGrowthInterval = 1000;  // clean steps before the scale grows

constexpr int kVocab = 61, kSequence = 8;

struct Kind {
  const char* name;
  std::vector<std::string> settings;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

// 12 and 7 samples: while batches take three of one set and one of the other, or the other way round, epochs end in the middle of
// batches and between them.
void write_tokens(const std::string& prefix, int samples, int factor) {
  Documents documents(1);
  for (int i = 0; i <= samples * kSequence; ++i) documents[0].push_back(i * i * factor % kVocab);
  write_dataset(prefix, documents, kVocab);
}

using Steps = std::set<std::int64_t>;

// Returns what of a file must be the same whenever the run stopped, by step, without the lines of some steps.
std::map<std::int64_t, std::string> compared(const std::string& path, const Steps& without = {}) {
  std::map<std::int64_t, std::string> lines;
  for (const std::string& line : lines_without_clocks(read_file(path))) {
    const std::int64_t step = parse_json(line, path).find("step")->as_integer();
    if (without.contains(step)) continue;
    EXPECT_TRUE(lines.emplace(step, line).second) << step << " is there twice: " << path;
  }
  return lines;
}
Steps steps_in(const std::string& path, const Steps& without = {}) {
  Steps steps;
  for (const auto& [step, line] : compared(path, without)) steps.insert(step);
  return steps;
}

// All scalars of a folder's event files but times. A step that is there twice is named.
using Scalars = std::map<std::pair<std::int64_t, std::string>, float>;
Scalars scalars_in(const std::string& folder) {
  Scalars scalars;
  for (const std::string& file : event_files(folder)) {
    for (const ReadEvent& event : read_event_file(file)) {
      for (const auto& [tag, value] : event.scalars) {
        const bool is_time = tag.starts_with("perf/") || tag.starts_with("time_ms/");
        if (is_time) continue;
        EXPECT_TRUE(scalars.emplace(std::pair(event.step, tag), value).second)
            << tag << " of step " << event.step << ", again in " << file;
      }
    }
  }
  return scalars;
}

// Steps that a folder's event files have times of.
std::multiset<std::int64_t> timed_steps_in(const std::string& folder) {
  std::multiset<std::int64_t> steps;
  for (const std::string& file : event_files(folder))
    for (const ReadEvent& event : read_event_file(file))
      if (event.scalars.contains("perf/step_ms")) steps.insert(event.step);
  return steps;
}

class Resumption : public ::testing::TestWithParam<Kind> {
 protected:
  Resumption() {
    write_tokens(folder_ / "a", 12, 1);
    write_tokens(folder_ / "b", 7, 3);
  }

  std::vector<std::string> settings_for(const std::string& run, int steps) const {
    const int a = steps <= kSwitch ? 3 : 1, b = 4 - a;
    std::vector<std::string> settings = GetParam().settings;
    settings.insert(settings.end(),
                    {"run.dir=" + (folder_ / run), fmt::format("run.steps={}", steps),
                     fmt::format(R"(data.train=[{{"path": "{0}/a", "weight": {1}}}, {{"path": "{0}/b", "weight": {2}}}])",
                                 folder_.path(), a, b),
                     fmt::format(R"(data.valid=["{0}/a", "{0}/b"])", folder_.path())});
    return settings;
  }
  // Whether training up to `steps` came to its end, and what a person got to see of it.
  bool start(const std::string& run, int steps, const std::vector<std::string>& more, std::string& said) {
    std::ostringstream out;
    LogSink sink(out);
    const std::vector<std::string> settings = plus(settings_for(run, steps), more);
    NoGpus no_gpus;
    bool is_over = true;
    try {
      run_training([&] { return parse_train_config(kConfig, "test", settings); },
                   {.console = out, .log = sink}, no_gpus, train_hooks());
    } catch (const Error& error) {
      if (error.code() != ExitCode::kRequeue) throw;
      is_over = false;
    }
    said += out.str();
    return is_over;
  }
  void train(const std::string& run, int steps, std::string& said) { EXPECT_TRUE(start(run, steps, {}, said)); }
  // A start makes one step: its time is less than the shortest takes. None, where the machine was busy elsewhere meanwhile, or
  // where the batch is skipped: such a start saves nothing, and the next one tries that batch again. After a few of them one goes
  // on to the next update.
  void train_step_by_step(const std::string& run, int steps, std::string& said) {
    std::int64_t at = newest_step(run);
    if (at == 0 && is_fp16()) {  // begins with batches that are skipped
      train(run, 1, said);
      at = 1;
    }
    int starts = 0;
    for (int in_vain = 0; !start(run, steps, {"run.max_minutes=1e-6"}, said);) {
      ASSERT_LT(++starts, 300) << said;
      const std::int64_t before = std::exchange(at, newest_step(run));
      in_vain = at == before ? in_vain + 1 : 0;
      if (in_vain < 3 || at == 0) continue;
      in_vain = 0;
      train(run, static_cast<int>(++at), said);
      if (at == steps) return;
      if (at != 1 && at % 7 != 0) logged_in_parts_.insert(at);
    }
  }
  std::int64_t newest_step(const std::string& run) const {
    const std::vector<CheckpointEntry> there = list_checkpoints(folder_ / (run + "/ckpt"));
    return there.empty() ? 0 : there.back().parts.step;
  }
  // As if the state that was saved there had been another.
  void change_state(const std::string& run, int step, const std::function<void(TrainingState&)>& change) const {
    const std::string folder = fmt::format("{}/ckpt/{}", folder_ / run, checkpoint_name(step));
    Manifest manifest = open_manifest(folder);
    change(manifest.state);
    write_file(fmt::format("{}/{}", folder, kManifestName), to_text(manifest));
  }
  void let_the_scale_grow(const std::string& run) const {
    change_state(run, kFirst, [](TrainingState& state) {
      state.loss_scale /= 64;  // it must not overflow before
      state.loss_scale_clean_steps = kGrowthInterval - (kScaleGrows - kFirst);
    });
  }
  void let_the_scale_overflow(const std::string& run) const {
    change_state(run, kOverflows, [](TrainingState& state) { state.loss_scale *= 4096; });
  }
  // Returns what a person got to see.
  std::string whole_run(const std::string& run, const std::function<void(int steps, std::string& said)>& train_to) {
    std::string said;
    train_to(kFirst, said);
    if (is_fp16()) let_the_scale_grow(run);
    train_to(kSwitch, said);
    if (is_fp16()) {
      train_to(kOverflows, said);
      let_the_scale_overflow(run);
    }
    train_to(kSteps, said);
    return said;
  }
  bool is_fp16() const { return std::string(GetParam().name).starts_with("Fp16"); }

  static constexpr const char* kConfig = R"({
    "run": {"threads_per_rank": 1, "pin": false},
    "device": "cpu",
    "model": {"model_type": "llama", "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
              "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 16},
    "batch": {"global": 4, "micro": 1, "sequence": 8},
    "optimizer": {"lr": 1e-3},
    "lr_schedule": {"type": "wsd", "warmup_steps": 4, "decay_steps": 25, "wsd_decay_steps": 8, "min_lr": 1e-5},
    "data": {"tokenizer": null},
    "eval": {"every": 3, "steps": 1},
    "checkpoint": {"every": 5, "allow": ["data.train"]},
    "log": {"every": 7},
    "debug": {"no_alloc": true}
  })";
  TemporaryFolder folder_;
  Steps logged_in_parts_;  // what only the run in parts has lines of, because a part of it ended there as runs do
};

TEST_P(Resumption, AfterEveryStepChangesNothing) {
  static_assert(kWarm == 4 && kDecay == kSteps - 8, "as the configuration says");
  const std::string whole_said = whole_run("whole", [this](int steps, std::string& said) { train("whole", steps, said); });
  const std::string parts_said =
      whole_run("parts", [this](int steps, std::string& said) { train_step_by_step("parts", steps, said); });
  for (int step = 1; step < kSteps; ++step) EXPECT_TRUE(contains(parts_said, fmt::format("goes on from step {}\n", step))) << step;
  for (const std::string& said : {whole_said, parts_said}) {
    EXPECT_TRUE(contains(said, "data.train.weights was ")) << "new weights of the blend are said: " << said;
    if (!is_fp16()) continue;
    EXPECT_TRUE(contains(said, fmt::format(": {} steps without an overflow", kGrowthInterval))) << said;
    EXPECT_TRUE(contains(said, fmt::format("the batch after update {} is skipped", kOverflows))) << said;
  }

  const std::string whole = folder_ / "whole", parts = folder_ / "parts";
  Steps logged{1, 2, 7, 9, 14, 21, 25};
  if (is_fp16()) logged.insert(18);
  EXPECT_EQ(compared(parts + "/metrics.jsonl", logged_in_parts_), compared(whole + "/metrics.jsonl"));
  for (const char* file : {"/metrics.jsonl", "/timing.jsonl"}) {
    EXPECT_EQ(steps_in(whole + file), logged);
    EXPECT_EQ(steps_in(parts + file, logged_in_parts_), logged);
  }
  const Steps evaluated{0, 2, 3, 6, 9, 12, 15, 18, 21, 24, 25};
  Steps evaluated_in_parts;  // and not in the whole: each part evaluates when its time is up
  for (int step = 1; step <= kSteps; ++step)
    if (!evaluated.contains(step)) evaluated_in_parts.insert(step);
  EXPECT_EQ(compared(parts + "/eval.jsonl", evaluated_in_parts), compared(whole + "/eval.jsonl"));
  EXPECT_EQ(steps_in(whole + "/eval.jsonl"), evaluated);

  const Scalars expected = scalars_in(whole);
  Scalars scalars = scalars_in(parts);
  std::erase_if(scalars, [&](const auto& scalar) {
    const auto& [step, tag] = scalar.first;
    return (tag.starts_with("val/") ? evaluated_in_parts : logged_in_parts_).contains(step);
  });
  EXPECT_EQ(scalars, expected);
  EXPECT_TRUE(expected.contains({21, "train/loss"}) && expected.contains({24, "val/loss"}));
  EXPECT_EQ(expected.contains({21, "train/loss_scale"}), is_fp16());
  EXPECT_EQ(timed_steps_in(parts).size(), logged.size() + logged_in_parts_.size());

  const std::string last = "/ckpt/" + checkpoint_name(kSteps);
  StoredTensors first(whole + last), second(parts + last);
  const CheckpointDifference difference = compare_checkpoints(first, second);
  EXPECT_EQ(difference.state, std::vector<std::string>());
  EXPECT_TRUE(difference.tensors.empty()) << difference.tensors.front().key;
  EXPECT_GT(difference.compared, 3 * 30);
}

const std::vector<Kind> kKinds{
    {"Fp16WhoseScaleGrowsAndOverflows", {"parallel=2DP x 2PP", "precision.compute=fp16"}},
    {"Bf16RoundedAtRandomWithDropout",
     {"parallel=2DP x 2TP", "parallel.zero=zero3", "precision.compute=bf16", "precision.stochastic_rounding=true",
      "model.dropout=0.1"}},
    {"Bf16", {"parallel=2DP x 2PP", "parallel.zero=shard_grad_op", "precision.compute=bf16"}},
    {"Fp32", {"parallel=2PP x 2TP", "precision.compute=fp32"}},
};
std::string name_of(const ::testing::TestParamInfo<Kind>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Kinds, Resumption, ::testing::ValuesIn(kKinds), name_of);

// Learning rates of runs that go on with more steps, and what their last lines say.

// As versions before 2026-12 left it: the first start's run.steps, in the place of a length that nobody gave.
TEST_F(StoredRuns, ALengthBelowTheWarmUpIsReadWithAWarning) {
  const std::vector<std::string> warm{"lr_schedule.warmup_steps=5"};
  train(settings("run", {"run.steps=3", warm[0]}));
  const std::string step = newest(folder_ / "run/ckpt");
  Manifest manifest = open_manifest(step);
  manifest.config.find("lr_schedule")->set("decay_steps", 2);
  std::erase_if(manifest.config.members(), [](const JsonMember& member) { return member.key == kResolvedMember; });
  // It is the user's once it is given as --config: what trains refuses it, and nothing else does.
  const std::string file = folder_ / "run/config.resolved.json";
  write_file(file, to_json_text(manifest.config));
  OptionValues values;
  expect_error<ConfigError>([&] { load_train_config(file, {}, values); },
                            {"warmup_steps = 5: must be below", "(--set lr_schedule.decay_steps=null: to run.steps)"});
  EXPECT_NO_THROW(load_train_config(file, {"lr_schedule.decay_steps=null"}, values));
  generate([&](GenerateOptions& options) { options.config = file; });
  manifest.config.set("of_later_versions", JsonValue::Object{{"key", 1}});
  write_file(step + "/manifest.json", to_text(manifest));
  const std::vector<std::string> faults = read_stored(manifest.config, step).faults;
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_TRUE(contains(faults[0], "lr_schedule.warmup_steps = 5: must be below lr_schedule.decay_steps = 2"));
  evaluate_and_convert(step);
  train(settings("begun", {"model.init_from=" + step}));
  const std::string said = train(settings("run", {"run.steps=9", warm[0]}));
  EXPECT_TRUE(contains(said, "warning: read as it stands: " + step + "/manifest.json: lr_schedule.warmup_steps = 5")) << said;
  EXPECT_TRUE(contains(said, "decay_steps was 2 and is 9 from here on")) << said;
  read("run");
}

// A schedule that is over before the run's new end.
TEST_F(StoredRuns, StepsThatWouldChangeNothingAreRefused) {
  const std::string linear = "lr_schedule.type=linear", minimum = "lr_schedule.min_lr=1e-4";
  const std::vector<std::string> first{"run.steps=4", linear, "lr_schedule.decay_steps=4"};
  train(settings("run", first));
  const auto on = [&](const std::vector<std::string>& more) { return train(settings("run", more)); };
  const std::vector<std::string> before = folder_.names();
  const std::vector<std::string> refused{
      "lr_schedule.decay_steps = 4: the learning rate is 0 from step 5 to the last, 9, which would change nothing; "
      "--set lr_schedule.decay_steps=9"};
  for (const char* type : {"linear", "cosine", "inverse_sqrt", "wsd"}) {  // the first start, and one that goes on
    std::vector<std::string> longer{"run.steps=9", fmt::format("lr_schedule.type={}", type), "lr_schedule.decay_steps=4",
                                    "lr_schedule.wsd_decay_steps=1"};
    for (const std::string run : {"new", "run"}) expect_error<ConfigError>([&] { train(settings(run, longer)); }, refused);
  }
  expect_error<ConfigError>(
      [&] { on({"run.steps=9", "lr_schedule.type=wsd", "lr_schedule.warmup_steps=5", "lr_schedule.wsd_decay_steps=0.6"}); },
      {"lr_schedule.wsd_decay_steps = 0.6: of 9 steps, lr_schedule.warmup_steps = 5 leaves 4 for the final decay; "
       "--set lr_schedule.wsd_decay_steps=4"});
  EXPECT_EQ(folder_.names(), before);
  EXPECT_NO_THROW(on(first)) << "a run that is over";
  EXPECT_FALSE(contains(on({"run.steps=4", "lr_schedule.decay_steps=2", "optimizer.lr=1"}), "from here on"))
      << "nothing is made any more";
  std::filesystem::remove_all(folder_ / "run/ckpt/step-00000004");
  EXPECT_NO_THROW(on(first)) << "one that was killed before its last step, whose rate is 0 as it should be";
  const std::vector<std::string> low{"run.steps=6", linear, minimum, "lr_schedule.decay_steps=4"};
  const std::string warned =
      "\nwarning: lr_schedule.decay_steps = 4: the learning rate is 0.0001 from step 5 to the last, 6, its minimum; ";
  EXPECT_TRUE(contains(on(low), warned));
  EXPECT_FALSE(contains(on(low), warned)) << "it is over";
  EXPECT_TRUE(contains(train(settings("warned", low)), warned));
  for (const std::string same : {"lr_schedule.type=constant", "lr_schedule.min_lr=1e-3"})
    EXPECT_FALSE(contains(train(settings(same, {"run.steps=3", "lr_schedule.decay_steps=2", "checkpoint.every=0", same})),
                          "decay_steps = "));
  EXPECT_TRUE(contains(on({"run.steps=8", linear, minimum}),
                       "decay_steps was 4 and is 8 from here on, as run.steps grew and it is not given: the learning rate of "
                       "step 7 was 0.0001 and is 0.0002125"));
  train(settings("long", {"run.steps=8", linear, "checkpoint.keep_last=0"}));
  for (int step = 5; step <= 8; ++step) std::filesystem::remove_all(folder_ / fmt::format("long/ckpt/step-{:08}", step));
  EXPECT_TRUE(contains(train(settings("long", {"run.steps=6", linear})),
                       "the learning rate decays until step 8, which an earlier start asked for; --set lr_schedule.decay_steps=6"));
  const std::string shorter = on({"run.steps=7", linear, minimum});
  EXPECT_FALSE(contains(shorter, "decay_steps")) << shorter;
  const JsonValue resolved = read_json_file(folder_ / "run/config.resolved.json");
  EXPECT_TRUE(resolved.find("lr_schedule")->find("decay_steps")->is_null());
  EXPECT_EQ(resolved.find("resolved")->find("decay_length")->as_integer(), 8);
}

TEST_F(StoredRuns, AWarmUpThatIsAShareGrowsWithTheDecay) {
  const auto on = [&](const std::string& steps, const std::string& decay) {
    return train(settings("run", {"run.steps=" + steps, "lr_schedule.decay_steps=" + decay, "lr_schedule.type=linear",
                                  "lr_schedule.warmup_steps=0.5", "log.every=1"}));
  };
  const std::string first = on("2", "4"), longer = on("8", "null");
  EXPECT_TRUE(contains(first, "  lr 5.00e-04")) << first;
  EXPECT_TRUE(contains(longer, "the learning rate of step 3 was 0.0005 and is 0.00075")) << longer;
  EXPECT_EQ(*read_json_file(folder_ / "run/config.resolved.json").find("lr_schedule")->find("warmup_steps"), JsonValue(0.5));
}

TEST_F(StoredRuns, AStartSaysTheLayoutBeforeItAndThatTheLastOneWasKilled) {
  const auto on = [&](const std::string& steps, const std::string& ranks) {
    return train(settings("run", {"run.steps=" + steps, "parallel.data=" + ranks}));
  };
  on("2", "1");
  const std::string path = folder_ / "run/run.json", saved = "its checkpoint was saved with 1DP x 1PP x 1TP, zero1";
  JsonValue run = read_json_file(path);
  JsonValue::Array starts = run.find("starts")->items();
  std::erase_if(starts.back().members(), [](const JsonMember& member) { return member.key == "ended"; });
  run.set("starts", std::move(starts));
  write_file(path, to_json_text(run));
  const std::string killed = on("3", "2"), whole = on("4", "2");
  EXPECT_TRUE(contains(killed, saved + "\nthe last start has no end on record: it was killed or cut off\n")) << killed;
  EXPECT_FALSE(contains(whole, "killed") || contains(whole, "was saved with")) << whole;
  run = read_json_file(path);
  starts = run.find("starts")->items();
  const JsonValue::Object end{{"time", 1.0}, {"step", 4}, {"exit_code", 76}, {"why", "rank 1 was killed; start again"}};
  starts.back().set("ended", end);
  run.set("starts", std::move(starts));
  write_file(path, to_json_text(run));
  const std::string back = on("5", "1");
  EXPECT_TRUE(contains(back, "with 2DP x 1PP x 1TP, zero1\nthe last start ended with 76: rank 1 was killed\n")) << back;
  std::string layouts;
  run = read_json_file(path);
  for (const JsonValue& start : run.find("starts")->items())
    layouts += to_json_text(*start.find("layout")->find("dp"));
  EXPECT_EQ(layouts, "1221");
  const auto after_failure = [&](const std::string& steps, const std::string& time) {
    run = read_json_file(path);
    starts = run.find("starts")->items();
    std::erase_if(starts.back().members(), [](const JsonMember& member) { return member.key == "ended"; });
    run.set("starts", std::move(starts));
    write_file(path, to_json_text(run));
    write_file(folder_ / "run/failure.json", "{\"unix_time\": " + time + ", \"message\": \"rank 4 was killed\"}");
    return on(steps, "1");
  };
  EXPECT_TRUE(contains(after_failure("6", "1"), "killed or cut off\n")) << "the failure is of an earlier start";
  EXPECT_TRUE(contains(after_failure("7", "1e12"), "the last start failed: rank 4 was killed\n"));
}

// The changes are those to the checkpoint that is gone on from, not to the damaged one before it.
TEST_F(StoredRuns, ADamagedCheckpointRepeatsNoChange) {
  const auto on = [&](const std::string& steps) { return train(settings("run", {"run.steps=" + steps})); };
  on("2");
  on("4");
  const std::string path = folder_ / "run/ckpt/step-00000004/weights/w-00000-0.safetensors";
  std::string content = read_file(path);
  content.back() = static_cast<char>(content.back() ^ 1);
  write_file(path, content);
  const std::string said = on("8");
  const std::size_t first = said.find("lr_schedule.decay_steps was 4 and is 8 from here on");
  EXPECT_NE(first, said.npos) << said;
  EXPECT_EQ(said.find("decay_steps was "), said.rfind("decay_steps was ")) << said;
  EXPECT_TRUE(contains(said, "goes on from step 3\n")) << said;
  EXPECT_TRUE(contains(on("6"), "the run is over at step 8, beyond run.steps = 6: there is nothing to train; --set run.steps=N"));
}

// The last step of a decay to 0 changes nothing; a start that makes that step alone would change nothing at all.
TEST_F(StoredRuns, AStepThatIsAddedAloneHasARate) {
  const auto on = [&](const std::string& steps, const std::string& more = "log.every=1") {
    return train(settings("run", {"run.steps=" + steps, "lr_schedule.type=linear", more}));
  };
  const auto rate = [](const std::string& said) { return said.substr(said.find("  lr "), 13); };
  on("2");
  const std::string third = on("3");
  EXPECT_TRUE(contains(third, "lr_schedule.decay_steps was 2 and is 3 from here on, as run.steps grew and it is not given: the "
                              "learning rate of step 3 was 0 and is 0.00025, as if another step came: a last step's is 0 "
                              "(lr_schedule.min_lr)"))
      << third;
  EXPECT_EQ(rate(third), "  lr 2.50e-04");
  std::filesystem::remove_all(folder_ / "run/ckpt/step-00000003");
  EXPECT_EQ(rate(on("3")), rate(third)) << "it was killed, and started again";
  EXPECT_EQ(rate(on("4")), "  lr 2.00e-04") << "one more";
  const JsonValue resolved = read_json_file(folder_ / "run/config.resolved.json");
  EXPECT_EQ(resolved.find("resolved")->find("decay_length")->as_integer(), 4);
  std::filesystem::remove_all(folder_ / "run/ckpt/step-00000004");
  EXPECT_EQ(rate(on("5")), "  lr 2.00e-04") << "the first of two";
  std::filesystem::remove_all(folder_ / "run/ckpt/step-00000005");
  EXPECT_EQ(rate(on("5")), "  lr 0.00e+00") << "the second";
  EXPECT_EQ(rate(on("6", "lr_schedule.min_lr=1e-4")), "  lr 1.00e-04");
}

TEST(SkippedCheckpoints, KeepTheRemedyOfStorageAlone) {
  EXPECT_EQ(skipped_text("step-4", DataError("its table is cut off; copy it again")), "step-4 is skipped: its table is cut off");
  EXPECT_EQ(skipped_text("step-4", StorageError("cannot be read; mount it again")),
            "step-4 is skipped: cannot be read; mount it again");
}

// The losses that training began with are the run's, not the last start's.
TEST_F(StoredRuns, ARunThatGoesOnEndsWithItsFirstLoss) {
  const auto result_of = [&](const std::string& said) {
    const std::size_t at = said.find("training loss ");
    return said.substr(at, said.find(' ', at + 20) - at);
  };
  const std::string first = result_of(train(settings("run", {"run.steps=1"}))), second = train(settings("run", {"run.steps=3"}));
  EXPECT_EQ(result_of(second), first) << second;
  const auto validation_of = [&](const std::string& steps, const std::string& batches = "1") {
    const std::string said = train(settings("evaluated", {"run.steps=" + steps, "eval.every=3", "eval.steps=" + batches,
                                                          "data.valid=" + (folder_ / "text")}));
    const std::size_t at = said.find("; validation loss ");
    return said.substr(at, said.find(" nats", at) - at);
  };
  const std::string at_first = validation_of("1");
  EXPECT_TRUE(validation_of("2").starts_with(at_first.substr(0, at_first.find(" -> ") + 4))) << at_first;
  EXPECT_EQ(validation_of("3", "2").find(" -> "), std::string::npos) << "this start evaluates other tokens";
  std::filesystem::remove(folder_ / "run/metrics.jsonl");  // logs that were rotated
  EXPECT_NE(result_of(train(settings("run", {"run.steps=4"}))), first);
}

}  // namespace
}  // namespace trident::testing
