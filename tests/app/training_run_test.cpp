// Whole runs of the real program on thread ranks: what a run directory holds, and that runs repeat.
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/file_io.h"
#include "tests/app/json_answer.h"
#include "tests/app/program.h"

namespace trident {
namespace {

const char* const kLayout = "parallel=2DP x 2PP x 2TP";

std::vector<std::string> keys_of(const JsonValue& object) {
  std::vector<std::string> keys;
  for (const JsonMember& member : object.members()) keys.push_back(member.key);
  return keys;
}

class TrainingRun : public ::testing::Test {
 protected:
  std::vector<JsonValue> train(std::vector<std::string> settings, const std::string& run,
                               const std::string& config = "config.json") {
    settings.push_back("run.dir=" + (place_ / run));
    const ProgramOutcome outcome = succeeded(place_.train(settings, "", config));
    EXPECT_EQ(outcome.err, "");
    return place_.metrics(run);
  }
  static void expect_same_losses(const std::vector<JsonValue>& a, const std::vector<JsonValue>& b, double relative) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double expected = number(a[i], "loss");
      EXPECT_LE(std::abs(number(b[i], "loss") - expected), relative * expected) << to_json_text(a[i]) << '\n' << to_json_text(b[i]);
    }
  }

  Workplace place_;
};

TEST_F(TrainingRun, MetricsHaveTheirFieldsAndSaneValues) {
  const std::vector<JsonValue> metrics = train({kLayout, "run.steps=5"}, "run");
  ASSERT_EQ(metrics.size(), 5u);
  const std::vector<std::string> fields{"step",    "loss",         "grad_norm", "lr",  "loss_scale", "tokens",
                                        "step_ms", "tokens_per_s", "mfu",       "peak_bytes", "comm_bytes"};
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const JsonValue& m = metrics[i];
    EXPECT_EQ(keys_of(m), fields);
    EXPECT_EQ(number(m, "step"), static_cast<double>(i + 1));
    EXPECT_EQ(number(m, "tokens"), static_cast<double>((i + 1) * 8 * 32));
    EXPECT_GT(number(m, "loss"), 5.0);
    EXPECT_LT(number(m, "loss"), std::log(50257.0) + 1);
    EXPECT_GT(number(m, "grad_norm"), 0);
    EXPECT_LE(number(m, "lr"), 1e-3);
    EXPECT_TRUE(m.find("loss_scale")->is_null());
    EXPECT_GT(number(m, "step_ms"), 0);
    EXPECT_NEAR(number(m, "tokens_per_s") * number(m, "step_ms"), 1e3 * 8 * 32, 1);
    EXPECT_GT(number(m, "mfu"), 0);
    EXPECT_LE(number(m, "mfu"), 1);
    EXPECT_GT(number(m, "peak_bytes"), 50257 * 16 * 4);  // half an embedding table at the least
    const JsonValue& bytes = *m.find("comm_bytes");
    EXPECT_EQ(keys_of(bytes), (std::vector<std::string>{"tp", "cp", "dp", "pp"}));
    for (const char* axis : {"tp", "dp", "pp"}) EXPECT_GT(number(bytes, axis), 0) << axis;
    EXPECT_EQ(number(bytes, "cp"), 0);
  }
  EXPECT_LT(number(metrics.back(), "loss"), number(metrics.front(), "loss"));
  EXPECT_NEAR(number(metrics.back(), "lr"), 0, 1e-12);  // the cosine ends at lr_schedule.min_lr
}

TEST_F(TrainingRun, TheDirectoryHoldsPlanAndAConfigurationThatRepeatsTheRun) {
  const std::vector<JsonValue> first = train({kLayout, "run.steps=3"}, "run");
  const JsonValue plan = parse_json(read_file(place_ / "run/plan.json"), "plan.json");
  EXPECT_EQ(number(plan, "world_size"), 8);
  EXPECT_EQ(number(plan, "micro_batches"), 4);
  EXPECT_TRUE(plan.find("step_comm_bytes") != nullptr);
  const std::vector<JsonValue> again = train({}, "again", "run/config.resolved.json");
  ASSERT_EQ(again.size(), first.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "peak_bytes"})
      EXPECT_EQ(number(first[i], key), number(again[i], key)) << key;
    EXPECT_EQ(*first[i].find("comm_bytes"), *again[i].find("comm_bytes"));
  }
  for (const std::string& path : place_.files()) EXPECT_EQ(path.find(".tmp"), std::string::npos) << path;
}

TEST_F(TrainingRun, EveryLayoutHasTheSameLosses) {
  const std::vector<JsonValue> alone = train({"run.steps=4"}, "alone");
  expect_same_losses(alone, train({"run.steps=4", kLayout, "parallel.sequence_parallel=true"}, "eight"), 1e-6);
  expect_same_losses(alone, train({"run.steps=4", "parallel=4DP", "parallel.zero=FULL_SHARD"}, "sharded"), 1e-6);
  expect_same_losses(alone,
                     train({"run.steps=4", "parallel=2PP x 2DP", "parallel.zero=SHARD_GRAD_OP", "parallel.schedule=interleaved",
                            "parallel.virtual_stages=2"},
                           "interleaved"),
                     1e-6);
}

TEST_F(TrainingRun, EvaluationsAreRecorded) {
  const auto evaluated = [&](const std::vector<std::string>& settings, const std::string& run) {
    std::vector<std::string> all{"run.steps=3", "eval.every=2", "eval.steps=2"};
    all.insert(all.end(), settings.begin(), settings.end());
    std::vector<double> losses;
    std::vector<int> steps;
    std::vector<std::string> expected_keys{"step", "valid_loss", "valid_perplexity", "valid_bits_per_byte"};
    if (run == "both") expected_keys.emplace_back("sets");
    for (const JsonValue& m : train(all, run)) EXPECT_NE(m.find("loss"), nullptr);
    for (const JsonValue& m : place_.records(run + "/eval.jsonl")) {
      EXPECT_EQ(keys_of(m), expected_keys);
      EXPECT_GT(number(m, "valid_bits_per_byte"), 1);
      EXPECT_LT(number(m, "valid_bits_per_byte"), 8);
      steps.push_back(static_cast<int>(number(m, "step")));
      losses.push_back(number(m, "valid_loss"));
    }
    EXPECT_EQ(steps, (std::vector<int>{0, 2, 3}));
    return losses;
  };
  const std::string valid = place_ / "valid";
  const std::vector<double> one = evaluated({"data.valid=" + valid}, "one");
  const std::vector<double> eight = evaluated({"data.valid=" + valid, kLayout}, "eight");
  ASSERT_EQ(one.size(), eight.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], eight[i], 1e-6 * one[i]);
  // Several files have numbers of their own, those that each has alone, beside their mean.
  const std::string text = place_ / "text";
  const std::vector<double> other = evaluated({"data.valid=" + text, kLayout}, "other");
  const std::string sets = "data.valid=[{\"path\":\"" + valid + "\",\"weight\":3},\"" + text + "\"]";
  const std::vector<double> both = evaluated({sets, kLayout}, "both");
  ASSERT_EQ(both.size(), 3u);
  EXPECT_NEAR(both.front(), (3 * eight.front() + other.front()) / 4, 1e-12 * both.front());
  const JsonValue first = place_.records("both/eval.jsonl").front();
  EXPECT_EQ(keys_of(*first.find("sets")), (std::vector<std::string>{"valid", "text"}));
  EXPECT_EQ(number(*first.find("sets")->find("valid"), "loss"), eight.front());
  EXPECT_EQ(number(*first.find("sets")->find("text"), "loss"), other.front());
  EXPECT_EQ(number(*first.find("sets")->find("text"), "perplexity"), std::exp(other.front()));
}

TEST_F(TrainingRun, AModelOfAHuggingFaceFolderIsTrained) {
  std::filesystem::create_directory(place_ / "hf");
  write_file(place_ / "hf/config.json",
             R"({"model_type": "llama", "vocab_size": 50257, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                 "num_key_value_heads": 2, "intermediate_size": 16, "max_position_embeddings": 64})");
  write_file(place_ / "hf.json", fmt::format(R"({{"run": {{"steps": 1}}, "model": {{"hf_config": "{0}/hf"}},
      "batch": {{"global": 1, "sequence": 32}}, "data": {{"train": "{0}/text"}}}})", place_ / "."));
  EXPECT_EQ(train({}, "folder", "hf.json").size(), 1u);
  EXPECT_EQ(train({"model.hf_config=" + (place_ / "hf/config.json")}, "file", "hf.json").size(), 1u);
  expect_one_line(place_.train({"run.dir=" + (place_ / "no"), "model.hf_config=" + (place_ / ".")}, "", "hf.json"), 64,
                  {"model.hf_config = ", "config.json"});
}

TEST_F(TrainingRun, TenBatchesInARowWithoutAnUpdateEndTheRun) {
  const ProgramOutcome outcome = place_.train({"optimizer.lr=1e30", "run.steps=30", "parallel.data=2"});
  EXPECT_EQ(outcome.exit_code, 93) << outcome.err;
  std::size_t warnings = 0;
  for (auto at = outcome.err.find("gradient is not finite"); at != std::string::npos;
       at = outcome.err.find("gradient is not finite", at + 1))
    ++warnings;
  EXPECT_GE(warnings, 10u);
  expect_parts(outcome.err, {"warning: gradient is not finite, no rank applies the update: rank 0: model.",
                             "trident: 10 batches in a row had non-finite gradients"});
}

// Overflows of fp16 are expected as long as a smaller scale may help, and no longer.
TEST_F(TrainingRun, Fp16FindsItsScaleAndSaysSo) {
  const ProgramOutcome outcome =
      succeeded(place_.train({"precision.compute=fp16", "run.steps=3", "log.every=1", "parallel.data=2"}));
  expect_parts(outcome.out, {"loss scale 4294967296 -> 2147483648: gradients overflowed f16, the batch after update 0 is skipped"});
  EXPECT_EQ(outcome.err.find("gradient is not finite"), std::string::npos) << outcome.err;
  const std::vector<JsonValue> metrics = place_.metrics();
  ASSERT_EQ(metrics.size(), 3u);
  const double scale = number(metrics[0], "loss_scale");
  EXPECT_GE(scale, 1024);
  EXPECT_LT(scale, 4294967296.0);
  const int skipped = 1 + static_cast<int>(32 - std::log2(scale));
  expect_parts(outcome.out,
               {fmt::format("  loss scale {:.0f}  skipped {}\n", scale, skipped),
                fmt::format(" {} batches skipped for non-finite gradients", skipped), "compute in f16 (precision.compute = fp16"});
}

TEST_F(TrainingRun, Fp16WithoutAScaleThatHelpsEnds) {
  const ProgramOutcome fixed = place_.train({"precision.compute=fp16", "precision.loss_scale=4294967296", "run.steps=30"});
  EXPECT_EQ(fixed.exit_code, 93) << fixed.err;
  expect_parts(fixed.err,
               {"trident: 10 batches in a row had non-finite gradients after update 0 at loss scale 4294967296, which is "
                "fixed; lower precision.loss_scale or set it to \"dynamic\"",
                "warning: gradient is not finite, no rank applies the update: rank 0: model."});
  const ProgramOutcome dynamic =
      place_.train({"precision.compute=fp16", "optimizer.lr=1e30", "run.steps=30", "run.overwrite=true"});
  EXPECT_EQ(dynamic.exit_code, 93) << dynamic.err;
  expect_parts(dynamic.err,
               {"at loss scale 1, the smallest; lower optimizer.lr, look at the data or set precision.compute to \"bf16\""});
}

// The program in a run directory that was used before, and how its compute threads wait.

const std::vector<std::string> kShort{"run.steps=1", "parallel.data=2"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.end(), kShort.begin(), kShort.end());
  return more;
}

TEST(RunFolder, TheSameRunAgainKeepsWhatWasThere) {
  const Workplace place;
  const std::vector<std::string> settings =
      with({"eval.every=1", "eval.steps=1", "data.valid=" + (place / "valid"), "log.trace_steps=[1,1]"});
  ASSERT_EQ(place.train(settings).exit_code, 0);
  const std::string metrics = read_file(place / "run/metrics.jsonl"), eval = read_file(place / "run/eval.jsonl");
  const ProgramOutcome again = succeeded(place.train(settings));
  expect_parts(again.out,
               {"the files of an earlier run are in " + (place / "run/earlier-1") + " now; this run begins at step 1\n"});
  EXPECT_EQ(read_file(place / "run/earlier-1/metrics.jsonl"), metrics);
  EXPECT_EQ(read_file(place / "run/earlier-1/eval.jsonl"), eval);
  const auto names_in = [&](const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(place / folder))
      names.push_back(entry.path().filename().string().substr(0, 10));
    std::sort(names.begin(), names.end());
    return names;
  };
  const std::vector<std::string> whole = names_in("run/earlier-1");
  EXPECT_EQ(whole, (std::vector<std::string>{"comparison", "config.res", "eval.jsonl", "events.out", "memory.jso", "metrics.js",
                                             "plan.json", "timing.jso", "trace"}));
  std::vector<std::string> now = names_in("run");
  std::erase(now, "earlier-1");
  EXPECT_EQ(now, whole);
  EXPECT_EQ(place.metrics().size(), 1u);
}

TEST(RunFolder, AnotherRunsFilesAreMovedOnlyWhenAskedAndOnlyByARunThatStarts) {
  const Workplace place;
  ASSERT_EQ(place.train(kShort).exit_code, 0);
  const std::vector<std::string> before = place.files();
  expect_one_line(place.train(with({"optimizer.lr=2e-3"})), 64,
                  {"run.dir = " + (place / "run"), "another run, whose optimizer.lr is 0.001, not 0.002", "run.overwrite=true"});
  EXPECT_EQ(place.train(with({"run.overwrite=true", "data.train=" + (place / "missing")})).exit_code, 65);
  EXPECT_EQ(place.train(with({"run.overwrite=true", "batch.global=3"})).exit_code, 64);
  EXPECT_EQ(place.files(), before);
  const std::string metrics = read_file(place / "run/metrics.jsonl");
  succeeded(place.train(with({"run.overwrite=true", "optimizer.lr=2e-3"})));
  EXPECT_EQ(read_file(place / "run/earlier-1/metrics.jsonl"), metrics);
}

TEST(RunFolder, APipeInTheWayDoesNotHoldTheRun) {
  const Workplace place;
  std::filesystem::create_directory(place / "run");
  ASSERT_EQ(::mkfifo((place / "run/metrics.jsonl").c_str(), 0600), 0);
  const std::vector<std::string> before = place.files();
  expect_one_line(place.train(kShort), 74, {"run.dir = ", "metrics.jsonl is a named pipe", "remove it or choose another run.dir"});
  EXPECT_EQ(place.files(), before);
}

// As many as there are cores for the ranks, and no rank bound to cores that others compute on.
TEST(ComputeThreads, ShareTheCoresThatThereAre) {
  const Workplace place;
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  const int cores = CPU_COUNT(&mask);
  int first = 0;
  while (!CPU_ISSET(static_cast<std::size_t>(first), &mask)) ++first;
  const auto line = [](int threads, int of, int ranks) {
    return fmt::format("\n{} thread{} per rank: {} core{} of this node for {} rank{}\n", threads, threads == 1 ? "" : "s", of,
                       of == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s");
  };
  const ProgramOutcome alone = place.train({"run.threads_per_rank=auto", "run.steps=1", "device=cpu"});
  expect_parts(alone.out, {line(cores, cores, 1), fmt::format(", {} thread", cores)});
  EXPECT_EQ(alone.out.find("not pinned"), std::string::npos) << alone.out;
  const ProgramOutcome bound =
      run_command({"taskset", "-c", std::to_string(first), TRIDENT_BINARY, "train", "--config", place / "config.json", "--set",
                   "run.threads_per_rank=auto", "--set", "run.overwrite=true", "--set", "parallel.data=2", "--set", "device=cpu"});
  expect_parts(bound.out, {line(1, 1, 2), "\nnot pinned: 2 threads on 1 core\n"});
}

// The OpenMP library says how it waits, each time the program is loaded.
TEST(WaitingThreads, SleepUnlessTheUserSaysOtherwise) {
  const Workplace place;
  const auto loaded = [&](const std::string& environment) {
    const std::string err = place.train({"model.preset=xyzzy", "model.model_type=null"}, "OMP_DISPLAY_ENV=true " + environment).err;
    std::vector<std::string> policies;
    for (std::size_t at = err.find("OMP_WAIT_POLICY = '"); at != err.npos; at = err.find("OMP_WAIT_POLICY = '", at + 1))
      policies.push_back(err.substr(at + 19, err.find('\'', at + 19) - at - 19));
    return policies;
  };
  EXPECT_EQ(loaded(""), (std::vector<std::string>{"PASSIVE", "PASSIVE"})) << "as libgomp shows what is not set, and once more";
  EXPECT_EQ(loaded("OMP_WAIT_POLICY=active"), std::vector<std::string>{"ACTIVE"});
  EXPECT_EQ(loaded("GOMP_SPINCOUNT=1000").size(), 1u);
  EXPECT_EQ(run_program({"help"}, "OMP_DISPLAY_ENV=true").err.find("WAIT_POLICY"),
            run_program({"help"}, "OMP_DISPLAY_ENV=true").err.rfind("WAIT_POLICY"));
}

// Names, arguments and process stay what they were: a program that is stopped by the id it was started with, and known to ps.
TEST(WaitingThreads, TheProcessIsTheSame) {
  const Workplace place;
  const std::string script = fmt::format(
      "(exec -a some-name '{}' train --config '{}' --set 'run.steps=1000000') >/dev/null 2>&1 & p=$!\n"
      "until [ -s '{}' ]; do sleep 0.05; done\n"
      "tr '\\0' ' ' </proc/$p/cmdline; cat /proc/$p/comm; kill -TERM $p; wait $p; echo $?",
      TRIDENT_BINARY, place / "config.json", place / "run/metrics.jsonl");
  const ProgramOutcome outcome = run_command({"bash", "-c", script});
  EXPECT_EQ(outcome.out, fmt::format("some-name train --config {} --set run.steps=1000000 trident\n143\n", place / "config.json"))
      << outcome.err;
}

}  // namespace
}  // namespace trident
