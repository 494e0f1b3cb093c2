// eval.samples: what a model says while it is trained, through the real program, and that training does not notice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/app/checkpoint_runs.h"
#include "tests/support/log_text.h"
#include "tests/support/sanitized.h"
#include "tests/train/event_file.h"

namespace trident {
namespace {

constexpr int kSkipped = 77;

struct Layout {
  const char* name;
  bool gathers;  // on use, on one stage or more; others keep what they have gathered
  std::vector<std::string> settings;
};

std::string prompts() {
  return R"(eval.samples=["Once upon a time", "A", "The dog saw a longer text that is cut into pieces of eight"])";
}
const std::vector<std::string> kIds{R"(eval.sample_ids=["50256"])", "eval.sample_tokens=9"};

class Samples : public ::testing::Test {
 protected:
  std::vector<std::string> settings(const std::string& run, const std::vector<std::string>& more) const {
    return plus({"run.dir=" + (place_ / run), "data.valid=" + (place_ / "valid"), "run.steps=4", "eval.every=2", "eval.steps=1",
                 "batch.global=12", "optimizer.lr=3e-4"},
                more);
  }
  ProgramOutcome train(const std::string& run, const std::vector<std::string>& more) const {
    return place_.train(settings(run, more));
  }
  std::vector<std::string> log_of(const std::string& path) const { return lines_without_clocks(read_file(place_ / path)); }
  std::vector<std::string> text_of(const std::string& run) const { return log_of(run + "/samples.jsonl"); }
  void expect_equal_numbers(const std::string& a, const std::string& b) const {
    EXPECT_EQ(compared(place_.metrics(a), kComparedKeys), compared(place_.metrics(b), kComparedKeys));
    EXPECT_EQ(log_of(a + "/eval.jsonl"), log_of(b + "/eval.jsonl"));
  }
  Workplace place_;
};

// Its blocks are large beside its vocabulary, so that there is something to gather on use.
const std::vector<std::string> kModel{"model.num_hidden_layers=8", "model.intermediate_size=4096"};

const std::vector<Layout> kLayouts{
    {"dp2_pp2_tp2_zero3_sp", false, {"parallel=2DP x 2PP x 2TP", "parallel.zero=zero3", "parallel.sequence_parallel=true"}},
    {"dp3_pp2_tp2_zero3_sp", true, {"parallel=3DP x 2PP x 2TP", "parallel.zero=zero3", "parallel.sequence_parallel=true"}},
    {"dp3_zero2", false, {"parallel=3DP x 1PP x 1TP", "parallel.zero=zero2"}},
    {"dp3_pp2_interleaved_zero3", true,
     {"parallel=3DP x 2PP x 1TP", "parallel.zero=zero3", "parallel.schedule=interleaved", "parallel.virtual_stages=2",
      "parallel.overlap=false"}},
    {"dp2_zero3_full_recompute", true,
     {"parallel=2DP x 1PP x 1TP", "parallel.zero=zero3", "recompute.policy=full", "recompute.head_chunk=8", "batch.micro=2"}},
    {"dp4_zero3", true, {"parallel=4DP x 1PP x 1TP", "parallel.zero=zero3"}},
};

TEST_F(Samples, AreTheSameInEveryLayoutAndLeaveTrainingsNumbersEqual) {
  const std::vector<std::string> sampled = plus(kModel, plus({prompts()}, kIds));
  ASSERT_EQ(train("one", kModel).exit_code, 0);
  const ProgramOutcome one = succeeded(train("one_sampled", sampled));
  EXPECT_EQ(one.err, "");
  expect_equal_numbers("one", "one_sampled");
  const std::vector<std::string> expected = text_of("one_sampled");
  EXPECT_EQ(expected.size(), 3u * 4) << "evaluations after 0, 2 and 4 steps";
  for (const Layout& layout : kLayouts) {
    ASSERT_EQ(train(layout.name, plus(layout.settings, kModel)).exit_code, 0) << layout.name;
    const std::string with = std::string(layout.name) + "_sampled";
    const ProgramOutcome outcome = train(with, plus(layout.settings, sampled));
    ASSERT_EQ(outcome.exit_code, 0) << layout.name << ": " << outcome.err;
    expect_equal_numbers(layout.name, with);
    EXPECT_EQ(text_of(with), expected) << layout.name;
    const bool all_keep = outcome.out.find("ranks of 2 of 2 stages keep") != std::string::npos ||
                          outcome.out.find("ranks of 1 of 1 stage keep") != std::string::npos;
    if (layout.gathers) {
      EXPECT_FALSE(all_keep) << layout.name << ": units are to be gathered on use here\n" << outcome.out;
    }
  }
}

TEST_F(Samples, OfProcessesAreThoseOfThreads) {
  if (test::kSanitized) GTEST_SKIP() << "Open MPI does not run cleanly under sanitizers";
  const std::vector<std::string> layout{"parallel=3DP x 2PP x 2TP", "parallel.zero=zero3"};
  const auto launch = [&](const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> words{TRIDENT_SOURCE_DIR "/scripts/mpirun_local", "12", TRIDENT_BINARY, "train", "--config",
                                   place_ / "config.json"};
    for (const std::string& setting : settings(run, plus(layout, more))) words.insert(words.end(), {"--set", setting});
    return run_command(words);
  };
  const ProgramOutcome plain = launch("processes", {});
  if (plain.exit_code == kSkipped) GTEST_SKIP() << plain.out;
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  succeeded(launch("processes_sampled", plus({prompts()}, kIds)));
  expect_equal_numbers("processes", "processes_sampled");
  ASSERT_EQ(train("threads_sampled", plus(layout, plus({prompts()}, kIds))).exit_code, 0);
  expect_equal_numbers("processes", "threads_sampled");
  EXPECT_EQ(text_of("processes_sampled"), text_of("threads_sampled"));
  // A run that cannot have what it asks for ends before it begins, once for all its processes.
  const ProgramOutcome refused = launch("refused", {"eval.sample_ids=5 70000"});
  EXPECT_EQ(refused.exit_code, 64) << refused.err;
  expect_parts(refused.err, {"eval.sample_ids[0]: token 70000"});
  EXPECT_FALSE(file_exists(place_ / "refused/metrics.jsonl"));
}

TEST_F(Samples, SayWhatTheCheckpointOfTheSameStepSays) {
  ASSERT_EQ(train("run", plus({prompts(), "checkpoint.every=4", "run.seed=77"}, kIds)).exit_code, 0);
  const std::vector<JsonValue> lines = place_.records("run/samples.jsonl");
  ASSERT_EQ(lines.size(), 12u);
  const std::vector<std::string> texts{"Once upon a time", "A", "The dog saw a longer text that is cut into pieces of eight"};
  std::vector<std::string> words{"generate", "--ckpt", place_ / "run/ckpt", "--json", "--max-new-tokens", "9", "--seed", "77",
                                 "--set", "precision.compute=fp32"};
  for (const std::string& text : texts) words.insert(words.end(), {"--prompt", text});
  words.insert(words.end(), {"--prompt-ids", "50256"});
  const ProgramOutcome generated = succeeded(run_program(words));
  write_file(place_ / "generated.jsonl", generated.out);
  const std::vector<JsonValue> expected = place_.records("generated.jsonl");
  ASSERT_EQ(expected.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const JsonValue& line = lines[8 + i];
    EXPECT_EQ(line.find("step")->as_integer(), 4);
    for (const char* key : {"ids", "text", "end"}) EXPECT_EQ(*line.find(key), *expected[i].find(key)) << key << " of prompt " << i;
    if (i < 3) {
      EXPECT_EQ(line.find("prompt")->as_string(), texts[i]);
    }
    EXPECT_EQ(line.find("tokens")->as_integer(), std::ssize(line.find("ids")->items()));
    EXPECT_EQ(line.find("seed")->as_integer(), 77);
    EXPECT_EQ(line.find("temperature")->as_number(), 1.0);
  }
  EXPECT_TRUE(lines[11].find("prompt")->is_null());
  EXPECT_EQ(to_json_text(*lines[11].find("prompt_ids")), "[50256]");
  EXPECT_NE(*lines[0].find("ids"), *lines[8].find("ids")) << "the same draws from other weights";
  // TensorBoard has the same, at the same steps.
  std::vector<std::int64_t> steps;
  for (const std::string& file : testing::event_files(place_ / "run")) {
    for (const testing::ReadEvent& event : testing::read_event_file(file)) {
      if (!event.texts.contains("samples/0")) continue;
      const JsonValue& line = lines[4 * steps.size()];
      steps.push_back(event.step);
      EXPECT_EQ(event.texts.at("samples/0"),
                "```\nOnce upon a time\n```\n\ncontinues:\n\n```\n" + line.find("text")->as_string() + "\n```");
    }
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{0, 2, 4}));
}

TEST_F(Samples, OfMessagesAreTheAnswersThatGenerateGives) {
  const std::string messages = R"([{"role": "system", "content": "Be <|endoftext|>"}, {"role": "user", "content": "Hi"}])";
  write_file(place_ / "chats.jsonl", R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]})"
                                     "\n");
  write_file(place_ / "question.json", messages);
  succeeded(run_program({"data", "prepare", "--chat", "--template", "chatml", "--tokenizer", "gpt2", "--input",
                         place_ / "chats.jsonl", "--output", place_ / "chats"}));
  const std::string data = place_ / "chats", samples = "eval.samples=[\"Hi\", " + messages + ", {\"messages\": " + messages + "}]";
  succeeded(train("run", {"data.train=" + data, "data.valid=" + data, "data.samples=packed", "batch.sequence=64", samples,
                          "eval.sample_tokens=9", "checkpoint.every=4"}));
  const std::vector<JsonValue> lines = place_.records("run/samples.jsonl");
  ASSERT_EQ(lines.size(), 9u);
  write_file(place_ / "generated.json",
             succeeded(run_program({"generate", "--ckpt", place_ / "run/ckpt", "--json", "--max-new-tokens", "9", "--seed", "1234",
                                    "--set", "precision.compute=fp32", "--template", "chatml", "--prompt", "Hi", "--messages",
                                    place_ / "question.json", "--messages", place_ / "question.json"}))
                 .out);
  const std::vector<JsonValue> expected = place_.records("generated.json");
  for (std::size_t i = 0; i < 3; ++i)
    for (const char* key : {"ids", "text", "end"})
      EXPECT_EQ(*lines[6 + i].find(key), *expected[i].find(key)) << key << " of prompt " << i;
  EXPECT_EQ(lines[7].find("prompt")->as_string(),
            "<|im_start|>system\nBe <|endoftext|><|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(*lines[7].find("prompt_ids"), *lines[8].find("prompt_ids"));
  EXPECT_EQ(to_json_text(*lines[7].find("prompt_ids")).find("50256"), std::string::npos) << "a message's text is no control token";
}

TEST_F(Samples, OfARunThatGoesOnAreThoseOfOneThatWasNotStopped) {
  const std::vector<std::string> saves = plus({prompts(), "checkpoint.every=2", "eval.sample_temperature=0"}, kIds);
  ASSERT_EQ(train("whole", saves).exit_code, 0);
  const std::vector<std::string> expected = text_of("whole");
  ASSERT_EQ(train("run", plus(saves, {"run.steps=2", "lr_schedule.decay_steps=4"})).exit_code, 0);
  // As if the run had ended between the samples of an evaluation and its loss, and in the middle of a line.
  const std::string eval = place_ / "run/eval.jsonl", samples = place_ / "run/samples.jsonl", losses = read_file(eval);
  write_file(eval, losses.substr(0, losses.find('\n') + 1));
  write_file(samples, read_file(samples) + R"({"step":3,"prompt":"On)");
  succeeded(train("run", plus(saves, {"lr_schedule.decay_steps=4"})));
  EXPECT_EQ(text_of("run"), expected);
  EXPECT_EQ(log_of("run/eval.jsonl"), log_of("whole/eval.jsonl"));
  // A sample that was made is not made again.
  ASSERT_EQ(train("run", plus(saves, {"lr_schedule.decay_steps=4"})).exit_code, 0);
  EXPECT_EQ(text_of("run"), expected);
}

TEST_F(Samples, AreInThePlanOfMemory) {
  const std::vector<std::string> layout{"parallel=2DP x 2PP x 2TP", "parallel.zero=zero3"};
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"plan", "--config", place_ / "config.json", "--json"};
    for (const std::string& setting : settings("run", plus(layout, more))) words.insert(words.end(), {"--set", setting});
    const ProgramOutcome outcome = succeeded(run_program(words));
    return parse_json(outcome.out, "plan");
  };
  const std::vector<std::string> sampled = plus({prompts()}, kIds);
  const JsonValue with = plan(sampled), without = plan({});
  std::int64_t most = 0, keys = 0;
  for (const JsonValue& stage : with.find("stages")->items()) {
    most = std::max(most, stage.find("bytes")->as_integer());
    for (const JsonValue& entry : stage.find("allocations")->items()) {
      if (entry.find("name")->as_string().starts_with("keys of block ")) keys += entry.find("bytes")->as_integer();
    }
  }
  // 4 blocks of 4 slots of 13 + 9 - 1 positions of a key/value head of 8 f32 on each of 2 tensor ranks.
  const std::int64_t longest = 13;
  EXPECT_EQ(keys, 4 * 4 * (longest + 9 - 1) * 8 * 4);
  EXPECT_GT(with.find("stages")->items()[0].find("bytes")->as_integer(),
            without.find("stages")->items()[0].find("bytes")->as_integer());
  EXPECT_EQ(*with.find("step_comm_bytes"), *without.find("step_comm_bytes"));
  ASSERT_EQ(train("run", plus(layout, sampled)).exit_code, 0);
  const std::vector<JsonValue> metrics = place_.metrics("run");
  EXPECT_EQ(metrics.back().find("peak_bytes")->as_integer(), most) << "planned and used";
}

TEST_F(Samples, AreRefusedBeforeARunBegins) {
  const auto refused = [&](const std::vector<std::string>& more, const std::vector<std::string>& parts, int code = 64) {
    expect_one_line(train("run", more), code, parts);
    EXPECT_FALSE(file_exists(place_ / "run/metrics.jsonl"));
  };
  const std::string one = R"(eval.samples=["Once upon a time"])";
  refused({one, "data.tokenizer=null"}, {"eval.samples", "data.tokenizer is null", "eval.sample_ids"});
  refused({one, "eval.every=0"}, {"eval.samples", "eval.every is 0", "--set eval.samples=[]"});
  refused({"eval.sample_ids=5", "eval.every=0"}, {"eval.sample_ids"});
  refused({"eval.sample_ids=[\"5 x\"]"}, {"eval.sample_ids = \"5 x\"", "\"x\" is no token id"});
  refused({"eval.sample_ids=[\"5\", \" \"]"}, {"eval.sample_ids[1] has no token"});
  refused({"eval.samples=[\"\"]"}, {"eval.samples", "must not be empty"});
  refused({"eval.sample_ids=[\"5 50257\"]"}, {"eval.sample_ids[0]", "50257", "0 .. 50256"});
  refused({one, "model.vocab_size=100", "data.tokenizer=gpt2"},
          {"eval.samples[0]", "vocabulary 0 .. 99", "\"gpt2\" is not the model's"});
  refused({one, "eval.sample_tokens=61"}, {"eval.sample_tokens = 61", "longest prompt, of 4 tokens", "64 positions", "at most 60"});
  refused({one, "eval.sample_tokens=0"}, {"eval.sample_tokens = 0"});
  refused({one, "eval.sample_temperature=-1"}, {"eval.sample_temperature = -1"});
  refused({"eval.samples=[1]"}, {"eval.samples", "a list of texts or of lists of messages"});
  refused({R"(eval.samples=[[{"role": "user", "content": "Hi"}]])"},
          {"eval.samples[0]", "tokenizer \"gpt2\"", "--chat --template"}, 65);
  // The name of a file is a text like others.
  write_file(place_ / "prompts.jsonl", "");
  expect_parts(succeeded(train("named", {"eval.samples=" + (place_ / "prompts.jsonl"), "eval.sample_tokens=3"})).err,
               {"warning: eval.samples: ", "prompts.jsonl\" is continued as a text, and the file of that name is not read"});
  // Without a tokenizer ids do.
  const ProgramOutcome ids = succeeded(train("run", {"data.tokenizer=null", "eval.sample_ids=5 17 2", "eval.sample_tokens=3"}));
  const JsonValue line = place_.records("run/samples.jsonl").front();
  EXPECT_TRUE(line.find("text")->is_null());
  EXPECT_EQ(line.find("ids")->items().size(), 3u);
}

}  // namespace
}  // namespace trident
