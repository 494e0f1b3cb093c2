// Whole runs of the real program on thread ranks: what a run directory holds, and that runs repeat.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <sstream>

#include "core/file_io.h"
#include "data/pack_datasets.h"
#include "tests/app/json_answer.h"
#include "tests/app/program.h"
#include "tests/data/token_files.h"

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
    const ProgramOutcome outcome = place_.train(settings, "", config);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::istringstream err(outcome.err);
    for (std::string line; std::getline(err, line);)
      EXPECT_TRUE(line.ends_with("hold out a part of the training data by data.split")) << line;
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
                                        "step_ms", "tokens_per_s", "mfu",       "peak_bytes", "comm_bytes",
                                        "time",    "elapsed_s"};
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

TEST_F(TrainingRun, Evaluations) {
  const auto evaluated = [&](const std::vector<std::string>& settings, const std::string& run) {
    const std::vector<std::string> all = plus({"run.steps=3", "eval.every=2", "eval.steps=2"}, settings);
    std::vector<double> losses;
    std::vector<int> steps;
    std::vector<std::string> expected_keys{"step", "valid_loss", "valid_perplexity", "valid_bits_per_byte"};
    if (run == "both") expected_keys.emplace_back("sets");
    expected_keys.insert(expected_keys.end(), {"time", "elapsed_s"});
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

TEST_F(TrainingRun, AModelFromAHuggingFaceFolder) {
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
  EXPECT_EQ(outcome.err.find("[rank 0]"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("warning: gradient is not finite, no rank applies the update: rank 0: model."), std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find(", 10 of 10 in a row)"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("trident: 10 batches in a row had non-finite gradients"), std::string::npos) << outcome.err;
}

// Documents that are one token long predict nothing of each other.
TEST_F(TrainingRun, BatchesWithoutATargetThatCountsAreSkippedByName) {
  write_dataset(place_ / "ends", Documents(400, std::vector<std::int32_t>{7}), 50257);
  const ProgramOutcome outcome =
      place_.train({"data.train=" + (place_ / "ends"), "data.eod_mask_loss=true", "data.eod=7", kLayout});
  EXPECT_EQ(outcome.exit_code, 93) << outcome.err;
  expect_parts(outcome.err, {"warning: no target of the batch after update 0 counts (data.eod_mask_loss), no rank applies an "
                             "update: global batch 3, samples 16 to 23; look at the data and at data.eod"});
  EXPECT_NE(outcome.err.find("trident: 10 batches in a row made no update after update 0, the last one because none of its targets "
                             "counts (data.eod_mask_loss)"),
            std::string::npos)
      << outcome.err;
}

// Nor has a validation set of such documents a loss.
TEST_F(TrainingRun, AValidationSetWithoutATargetThatCountsIsLeftOutOfTheMean) {
  write_dataset(place_ / "ends", Documents(400, std::vector<std::int32_t>{7}), 50257);
  Documents documents;
  for (std::int32_t d = 0; d < 400; ++d) documents.push_back({d, d + 1, d + 2, 7});
  write_dataset(place_ / "fours", documents, 50257);
  const std::vector<std::string> settings{
      "data.eod_mask_loss=true", "data.eod=7", "run.steps=1", "eval.every=1", "eval.steps=1",
      "data.valid=[\"" + (place_ / "fours") + "\",{\"path\":\"" + (place_ / "ends") + "\",\"weight\":2}]"};
  const ProgramOutcome outcome = place_.train(settings);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("warning: no target of validation set \"ends\" counts (data.eod_mask_loss), valid_loss is the mean of "
                             "the others"),
            std::string::npos)
      << outcome.err;
  // The record says what ends the documents of its tokenizer.
  const ProgramOutcome other =
      place_.train({"data.eod_mask_loss=true", "data.eod=7", "run.steps=1", "run.dir=" + (place_ / "other")});
  expect_parts(other.err, {"warning: data.eod = 7: ", "text.trident.json says that its tokenizer \"gpt2\" ends documents with "
                                                      "50256; leave the key out"});
  const auto one_step = [&](const std::string& schedule) {
    return place_.train({"data.eod_mask_loss=true", "data.eod=50256", "run.steps=1", "lr_schedule.type=" + schedule,
                         "run.dir=" + (place_ / schedule)});
  };
  const ProgramOutcome cosine = one_step("cosine"), constant = one_step("constant");
  EXPECT_EQ(cosine.err, "");
  const std::string ends = "the learning rate of every step that is left is 0, at which lr_schedule ends";
  EXPECT_NE(cosine.out.find(ends), std::string::npos) << cosine.out;
  EXPECT_EQ(constant.out.find(ends), std::string::npos) << constant.out;
  const auto decayed = [&](const std::string& steps) {
    return place_.train({"run.steps=" + steps, "lr_schedule.type=cosine", "lr_schedule.decay_steps=2", "checkpoint.every=1",
                         "run.dir=" + (place_ / "decayed")});
  };
  ASSERT_EQ(decayed("1").exit_code, 0);
  const ProgramOutcome resumed = decayed("2");
  expect_parts(resumed.out, {"goes on from step 1"});
  EXPECT_EQ(resumed.out.find(ends), std::string::npos) << "it has learned all that it should: " << resumed.out;
  const JsonValue eval = place_.records("run/eval.jsonl").back();
  const JsonValue& sets = *eval.find("sets");
  EXPECT_TRUE(sets.find("ends")->find("loss")->is_null());
  EXPECT_NEAR(number(eval, "valid_loss"), number(*sets.find("fours"), "loss"), 1e-12);
  EXPECT_NEAR(number(eval, "valid_bits_per_byte"), number(*sets.find("fours"), "bits_per_byte"), 1e-12);
}

TEST_F(TrainingRun, CountedTargetsAreInTheirOwnKey) {
  Documents documents;
  for (std::int32_t d = 0; d < 400; ++d) documents.push_back({d, d + 1, d + 2, 7});
  write_dataset(place_ / "fours", documents, 50257);
  const std::vector<std::string> settings{"data.train=" + (place_ / "fours"), "data.eod_mask_loss=true", "run.steps=2",
                                          "data.valid=" + (place_ / "fours"), "eval.every=1"};
  const auto with = [&](const std::vector<std::string>& more) { return plus(more, settings); };
  const std::vector<JsonValue> by_eod = train(with({"data.eod=7"}), "eod"),
                               by_index = train(with({"data.boundaries=index", kLayout}), "index");
  EXPECT_EQ(keys_of(by_eod.front()).at(11), "loss_tokens");
  EXPECT_EQ(number(by_eod.front(), "loss_tokens"), 8 * 32 * 3 / 4);
  EXPECT_EQ(number(by_index.front(), "loss_tokens"), 8 * 32 * 3 / 4);
  EXPECT_EQ(number(by_eod.back(), "tokens"), 2 * 8 * 32);
  expect_same_losses(by_eod, by_index, 1e-6);
  const std::vector<std::string> hides{settings[0], "run.steps=2", "data.reset_attention_mask=true", "data.eod=7",
                                       "data.shuffle=false"};
  const std::vector<JsonValue> hidden = train(hides, "hidden");
  std::vector<std::string> in_stages = hides;
  in_stages.emplace_back("parallel=1DP x 4PP");  // the middle ones have neither tokens nor targets
  expect_same_losses(hidden, train(in_stages, "stages"), 1e-6);
  EXPECT_EQ(keys_of(hidden.front()).at(11), "mfu_masked");
  EXPECT_LT(number(hidden.front(), "mfu_masked"), number(hidden.front(), "mfu"));
  for (const char* run : {"eod", "index"})
    EXPECT_NEAR(number(place_.records(fmt::format("{}/eval.jsonl", run)).front(), "valid_loss"), number(by_eod.front(), "loss"),
                0.1);
}

// Packs of 37 conversations of 3 to 30 tokens, of which every second token counts.
class PackedRun : public TrainingRun {
 protected:
  void SetUp() override {
    Documents documents;
    std::vector<std::uint8_t> counts;
    for (std::int32_t d = 0; d < 37; ++d) {
      auto& ids = documents.emplace_back();
      for (std::int32_t t = 0; t < 3 + d * 11 % 28; ++t) ids.push_back(100 + 13 * d + t), counts.push_back(t % 2);
    }
    write_masked_dataset(place_ / "chat", documents, counts, 50257);
    stats_ = pack_datasets({place_ / "chat"}, place_ / "packs", {.sequence = 32});
  }
  std::vector<std::string> settings(const std::vector<std::string>& more) const {
    return plus(more, {"data.train=" + (place_ / "packs"), "data.samples=packed", "run.steps=null"});
  }

  PackStats stats_;
};

TEST_F(PackedRun, AnEpochTakesEveryTargetOnceAndTheStartSaysSo) {
  const std::int64_t packs = stats_.packs;
  const std::vector<std::string> one_update = settings({"run.epochs=1", fmt::format("batch.global={}", packs), "batch.micro=1"});
  expect_parts(
      place_.train(plus(one_update, {"lr_schedule.type=cosine"})).err,
      {fmt::format("run.epochs = 1: 1 x {0} packs make one update of batch.global = {0}. It is the last", packs),
       fmt::format("would change nothing; a larger run.epochs makes more; --set batch.global=1 --set batch.micro=1 makes {} "
                   "updates; ", packs)});
  const std::vector<JsonValue> alone = train(plus(one_update, {"lr_schedule.type=constant"}), "alone");
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(number(alone.front(), "loss_tokens"), static_cast<double>(stats_.targets));
  const std::string log = read_file(place_ / "alone/run.log");
  expect_parts(log, {fmt::format("packs, {} tokens, {} packs of 32 tokens, targets by its .mask, {:.1f} % full, {:.1f} % of its "
                                 "tokens carry loss; this run takes 1.00 epochs",
                                 stats_.tokens, packs, 100.0 * static_cast<double>(stats_.tokens) / static_cast<double>(32 * packs),
                                 100.0 * static_cast<double>(stats_.targets) / static_cast<double>(stats_.tokens)),
                     fmt::format("run.epochs = 1: 1 step of {} samples", packs)});
  // The conversations by themselves: each a sample, padded.
  const std::vector<JsonValue> by_itself =
      train({"run.steps=1", "data.train=" + (place_ / "chat"), "data.samples=packed", "batch.global=37", "batch.micro=1"},
            "itself");
  EXPECT_NEAR(number(by_itself.front(), "loss"), number(alone.front(), "loss"), 1e-6 * number(alone.front(), "loss"));
  const double norm = number(alone.front(), "grad_norm");
  EXPECT_NEAR(number(by_itself.front(), "grad_norm"), norm, 1e-5 * norm);
  EXPECT_EQ(number(by_itself.front(), "loss_tokens"), number(alone.front(), "loss_tokens"));
}

// A save takes longer than a step.
TEST_F(PackedRun, EveryEpochIsSaved) {
  train(settings({"run.epochs=8", fmt::format("batch.global={}", stats_.packs), "batch.micro=1", "checkpoint.every=epoch",
                  "checkpoint.keep_last=0"}),
        "epochs");
  for (int epoch = 1; epoch <= 8; ++epoch) EXPECT_TRUE(is_there(place_ / fmt::format("epochs/ckpt/step-{:08}", epoch))) << epoch;
}

TEST_F(PackedRun, GoesOnInTheMiddleOfTheSecondEpochAsIfItHadNeverStopped) {
  const auto with = [&](const std::vector<std::string>& more) {
    return settings(plus(more, {"batch.global=6", "batch.micro=1", "run.epochs=2", "checkpoint.every=epoch",
                                "checkpoint.keep_last=0", "data.valid=" + (place_ / "packs"), "eval.every=epoch", "eval.steps=1",
                                "log.every=1"}));
  };
  const std::int64_t steps = (2 * stats_.packs + 5) / 6, first = (stats_.packs + 5) / 6;
  ASSERT_NE(stats_.packs % 6, 0) << "the last batch of an epoch is to reach into the next";
  const std::vector<JsonValue> whole = train(with({"parallel=2DP", "parallel.zero=zero2"}), "whole");
  ASSERT_EQ(std::ssize(whole), steps);
  std::vector<double> evaluated;
  for (const JsonValue& line : place_.records("whole/eval.jsonl")) evaluated.push_back(number(line, "step"));
  EXPECT_EQ(evaluated, (std::vector<double>{0, static_cast<double>(first), static_cast<double>(steps)}));
  EXPECT_TRUE(is_there(place_ / fmt::format("whole/ckpt/step-{:08}", first)));
  // Stopped a step behind the end of the first epoch; another layout goes on.
  const auto stopped = with({"run.epochs=2", "parallel=2DP", "parallel.zero=zero2"});
  std::vector<std::string> by_steps;
  for (const std::string& setting : stopped)
    if (!setting.starts_with("run.epochs") && !setting.starts_with("run.steps")) by_steps.push_back(setting);
  by_steps.push_back(fmt::format("run.steps={}", first + 1));
  by_steps.push_back(fmt::format("lr_schedule.decay_steps={}", steps));
  train(by_steps, "parts");
  const std::vector<JsonValue> parts =
      train(with({"parallel=2DP x 2PP", "parallel.zero=zero3", fmt::format("lr_schedule.decay_steps={}", steps)}), "parts");
  ASSERT_EQ(std::ssize(parts), steps);
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (const char* key : {"step", "loss", "grad_norm", "lr", "loss_tokens"})
      EXPECT_EQ(number(parts[i], key), number(whole[i], key)) << key << ' ' << i;
}

TEST_F(PackedRun, AnEpochEndsWithItsLastSampleWhateverTheBatchWasBefore) {
  const auto with = [&](const std::vector<std::string>& more) {
    return plus(more, {"data.train=" + (place_ / "packs"), "data.samples=packed", "data.valid=" + (place_ / "packs"),
                       "batch.micro=1", "eval.every=epoch", "eval.steps=1", "log.every=1", "checkpoint.every=end"});
  };
  const std::int64_t steps = 3 + stats_.packs / 2;
  ASSERT_GT(stats_.packs, 14);
  train(with({"batch.global=4", "run.steps=3", "lr_schedule.decay_steps=100"}), "run");
  train(with({"batch.global=2", fmt::format("run.steps={}", steps), "lr_schedule.decay_steps=100",
              R"(checkpoint.allow=["batch.global"])"}), "run");
  std::vector<double> evaluated, expected{0, 3};  // where a start ends, too
  for (const JsonValue& line : place_.records("run/eval.jsonl")) evaluated.push_back(number(line, "step"));
  expected.push_back(static_cast<double>(3 + (stats_.packs - 12 + 1) / 2));
  expected.push_back(static_cast<double>(steps));
  EXPECT_EQ(evaluated, expected);
}

TEST_F(PackedRun, WhatDoesNotFitIsRefusedBeforeTheFirstStep) {
  const auto refused = [&](std::vector<std::string> more, int code, const std::vector<std::string>& parts) {
    const ProgramOutcome outcome = place_.train(settings(std::move(more)));
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    expect_parts(outcome.err, parts);
  };
  refused({"run.epochs=1", "batch.sequence=16"}, 65,
          {"packs.idx: document ", "at most 16", " --sequence 16 --output " + (place_ / "packs-16")});
  refused({"run.epochs=1", "data.reset_attention_mask=false"}, 64,
          {"data.reset_attention_mask = false", "data.samples = \"packed\""});
  refused({}, 64, {"run.steps: missing", "run.epochs"});
  EXPECT_EQ(place_.train({"run.epochs=1", "run.steps=3"}).exit_code, 64);
  const std::string blend = fmt::format(R"(data.train=["{}","{}"])", place_ / "packs", place_ / "text");
  const ProgramOutcome mixed = place_.train({blend, "data.samples=packed", "run.steps=1"});
  EXPECT_EQ(mixed.exit_code, 64);
  expect_parts(mixed.err, {"packs is of packs (trident data pack) and ", "text is not"});
  const ProgramOutcome stream = place_.train({"data.train=" + (place_ / "packs"), "run.steps=1"});
  EXPECT_EQ(stream.exit_code, 0) << stream.err;
  expect_parts(stream.err, {"warning: data.samples = \"stream\": ", "set data.samples to \"packed\""});
}

TEST_F(PackedRun, ConversationsThatAreNotPackedGetTheLineThatPacksThem) {
  const std::string chat = place_ / "chat", pack = fmt::format("trident data pack {0} --sequence 64 --output {0}-packed", chat);
  const auto said = [&](const std::string& samples) {
    const ProgramOutcome outcome = place_.train({"run.dir=" + (place_ / samples), "data.train=" + chat, "data.samples=" + samples,
                                                 "run.steps=1", "batch.sequence=64"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out + outcome.err;
  };
  const std::string remedy =
      "; pack them: " + pack + ", and train with --set data.samples=packed --set data.train=" + chat + "-packed";
  expect_parts(said("stream"),
               {"data.samples = \"stream\": ", "chat has a .mask, as conversations have, and samples run across them" + remedy});
  expect_parts(said("packed"), {"is of single documents, and most of a sample is padding" + remedy, "; a pack has about ",
                                " documents, so that a step of batch.global = ", " documents in place of "});
}

TEST_F(PackedRun, EvaluationsTakePacksAsTrainingDoes) {
  const std::string packs = place_ / "packs", chat = place_ / "chat";
  std::filesystem::remove(chat + ".trident.json");  // as of another tool: the pack's record names its .bin
  pack_datasets({chat}, packs, {.sequence = 32, .overwrite = Overwrite::kYes});
  const std::vector<std::string> with_valid = settings({"run.epochs=0.1", "batch.global=1", "batch.micro=1", "data.valid=" + packs,
                                                        "eval.every=epoch", "eval.steps=1000", "checkpoint.every=end"});
  expect_parts(succeeded(place_.train(plus(with_valid, {"run.dir=" + (place_ / "run")}))).err,
               {fmt::format("warning: data.valid: {0} has the files of {0}, on which the run trains", packs)});
  expect_parts(run_program({"eval", "--ckpt", place_ / "run/ckpt", "--data", chat}).err,
               {fmt::format("warning: {0} was made of {0}.bin, as {1} was, on which the run trains", chat, packs)});
  const ProgramOutcome outcome = run_program({"eval", "--ckpt", place_ / "run/ckpt", "--data", place_ / "packs", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const JsonValue eval = parse_json(outcome.out, "eval");
  EXPECT_EQ(number(eval, "tokens"), static_cast<double>(stats_.targets));
  const JsonValue valid = place_.records("run/eval.jsonl").back();
  EXPECT_NEAR(number(eval, "loss"), number(valid, "valid_loss"), 1e-6);
  EXPECT_EQ(number(eval, "mean_token_accuracy"), number(valid, "valid_mean_token_accuracy"));
  const ProgramOutcome shorter =
      run_program({"eval", "--ckpt", place_ / "run/ckpt", "--data", place_ / "packs", "--sequence", "16"});
  EXPECT_EQ(shorter.exit_code, 65);
  expect_parts(shorter.err, {"packs.idx: document ", "at most 16"});
}

// Every document of four tokens has two targets that count.
TEST_F(TrainingRun, AMaskSaysWhichTargetsCount) {
  const Documents documents(400, std::vector<std::int32_t>{12, 1, 4, 5});  // "-" is 12
  std::vector<std::uint8_t> counts;
  for (int t = 0; t < 1600; ++t) counts.push_back(t % 4 >= 2);
  const std::string chat = place_ / "chat";
  write_masked_dataset(chat, documents, counts, 50257);
  const std::vector<std::string> settings{"data.train=" + chat, "data.valid=" + chat, "eval.every=1"};
  const auto with_chat = [&](const std::vector<std::string>& more) { return plus(more, settings); };
  const std::vector<JsonValue> alone = train(with_chat({"checkpoint.every=end"}), "alone");
  EXPECT_EQ(number(alone.front(), "loss_tokens"), 8 * 32 / 2);
  EXPECT_EQ(number(alone.back(), "tokens"), 2 * 8 * 32);
  const std::vector<JsonValue> eight = train(with_chat({kLayout}), "eight");
  expect_same_losses(alone, eight, 1e-6);
  for (std::size_t i = 0; i < alone.size(); ++i)
    EXPECT_EQ(number(alone[i], "mean_token_accuracy"), number(eight[i], "mean_token_accuracy")) << "step " << i + 1;
  const JsonValue valid = place_.records("alone/eval.jsonl").back();
  expect_parts(read_file(place_ / "alone/run.log"),
               {fmt::format("token accuracy {:.4f}", number(alone.back(), "mean_token_accuracy")),
                fmt::format("token accuracy {:.4f}", number(valid, "valid_mean_token_accuracy"))});
  EXPECT_NE(read_file(place_ / "alone/run.log").find("chat, 1,600 tokens, 49 samples of 32 tokens, targets by its .mask"),
            std::string::npos);
  expect_parts(read_file(place_ / "alone/run.log"), {"next:   trident generate --ckpt ", "alone --prompt TEXT"});
  // The right targets of a mask and of its opposite are those of both.
  const auto correct_of = [&](const char* name, int from, int to) {
    std::vector<std::uint8_t> bits;
    for (int t = 0; t < 1600; ++t) bits.push_back(t % 4 >= from && t % 4 < to);
    write_masked_dataset(place_ / name, documents, bits, 50257);
    const JsonValue step = train({"data.train=" + (place_ / name), "run.steps=1"}, name + std::string("_run")).front();
    return number(step, "mean_token_accuracy") * number(step, "loss_tokens");
  };
  EXPECT_NEAR(correct_of("late", 2, 4) + correct_of("early", 0, 2), correct_of("both", 0, 4), 1e-9);
  // The token behind a turn would cut a conversation.
  const auto cut = [&](const char* boundaries) {
    return place_.train(with_chat({"data.reset_attention_mask=true", fmt::format("data.boundaries={}", boundaries), "data.eod=5",
                                   "run.steps=1", fmt::format("run.dir={}/{}", place_ / ".", boundaries)})).err;
  };
  EXPECT_NE(cut("eod").find("data.boundaries = \"eod\": " + chat + " has a .mask"), std::string::npos);
  EXPECT_EQ(cut("index").find("has a .mask"), std::string::npos);
  // With a file of which every target counts.
  write_dataset(place_ / "plain", documents, 50257);
  const std::string blend = fmt::format(R"(data.train=["{}","{}"])", chat, place_ / "plain");
  EXPECT_EQ(number(train({blend, "run.steps=1"}, "blend").front(), "loss_tokens"), 8 * 32 * 3 / 4);
  const JsonValue plain = train({"data.train=" + (place_ / "plain"), "run.steps=1"}, "plain").front();
  for (const char* key : {"loss_tokens", "mean_token_accuracy"}) EXPECT_EQ(plain.find(key), nullptr) << key;
  // Never silently on every target.
  const std::string path = chat + ".mask", whole = read_file(path);
  const auto refused = [&](std::vector<std::string> words) {
    expect_one_line(place_.train(with_chat({"run.dir=" + (place_ / "refused")})), 65, words);
  };
  write_file(path, whole.substr(0, 100));
  refused({"chat.mask: 100 bytes, 1600 tokens need 216", "prepare the data again"});
  std::string other = whole;
  other[100] = 0;
  write_file(path, other);
  refused({"chat.trident.json: does not belong to this pair of files: ", "chat.mask has the recorded 216 bytes, but other"});
  remove_file(path);
  refused({"chat.trident.json: names ", "chat.mask, which says what tokens count as targets and is missing; put it back"});
}

TEST_F(TrainingRun, AMaskOfWhichNothingCountsIsSaidByName) {
  write_masked_dataset(place_ / "chat", {std::vector<std::int32_t>(1600, 5)}, std::vector<std::uint8_t>(1600, 0), 50257);
  const ProgramOutcome outcome = place_.train({"data.train=" + (place_ / "chat")});
  EXPECT_EQ(outcome.exit_code, 93) << outcome.err;
  expect_parts(outcome.err,
               {"warning: no target of the batch after update 0 counts (PREFIX.mask), no rank applies an update: global batch 1, "
                "samples 0 to 7; look at the data (trident data inspect)",
                ": global batch 10, samples 72 to 79; ", "because none of its targets counts (PREFIX.mask); look at the data"});
}

TEST_F(TrainingRun, DocumentsThatNobodyCanTellApartAreRefused) {
  write_dataset(place_ / "one", {std::vector<std::int32_t>(1000, 5)}, 50257);
  const auto refused = [&](std::vector<std::string> settings, int code, std::vector<std::string> words) {
    settings.push_back("data.eod_mask_loss=true");
    expect_one_line(place_.train(settings), code, words);
  };
  refused({"data.train=" + (place_ / "one"), "data.boundaries=index"}, 65,
          {"one.idx: data.boundaries = \"index\", and it is one sequence"});
  refused({"data.eod=50257"}, 64, {"data.eod = 50257: outside the model's vocabulary of 50257 tokens"});
  refused({"data.tokenizer=null"}, 64, {"data.eod = null: ", "there is no tokenizer", "data.boundaries"});
}

// Overflows of fp16 are expected as long as a smaller scale may help, and no longer.
TEST_F(TrainingRun, Fp16FindsItsScaleAndSaysSo) {
  const ProgramOutcome outcome = place_.train({"precision.compute=fp16", "run.steps=3", "log.every=1", "parallel.data=2"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err.find("gradient is not finite"), std::string::npos) << outcome.err;
  const std::vector<JsonValue> metrics = place_.metrics();
  ASSERT_EQ(metrics.size(), 3u);
  const double scale = number(metrics[0], "loss_scale");
  EXPECT_GE(scale, 1024);
  EXPECT_LT(scale, 4294967296.0);
  const int skipped = 1 + static_cast<int>(32 - std::log2(scale));
  expect_parts(outcome.out,
               {"loss scale 4294967296 -> 2147483648: gradients overflowed f16, the batch after update 0 is skipped",
                fmt::format("  loss scale {:.0f}  skipped {}  ", scale, skipped),
                fmt::format(" {} batches skipped for non-finite gradients", skipped)});
  expect_parts(read_file(place_ / "run/run.log"), {"compute in f16 (precision.compute = fp16"});
}

TEST_F(TrainingRun, Fp16WithoutAScaleThatHelpsEnds) {
  const ProgramOutcome fixed = place_.train({"precision.compute=fp16", "precision.loss_scale=4294967296", "run.steps=30"});
  EXPECT_EQ(fixed.exit_code, 93) << fixed.err;
  expect_parts(fixed.err, {"warning: gradient is not finite, no rank applies the update: rank 0: model.",
                           "trident: 10 batches in a row had non-finite gradients after update 0 at loss scale 4294967296, which "
                           "is fixed; lower precision.loss_scale or set it to \"dynamic\""});
  const ProgramOutcome dynamic =
      place_.train({"precision.compute=fp16", "optimizer.lr=1e30", "run.steps=30", "run.overwrite=true"});
  EXPECT_EQ(dynamic.exit_code, 93) << dynamic.err;
  expect_parts(dynamic.err,
               {"at loss scale 1, the smallest; lower optimizer.lr, look at the data or set precision.compute to \"bf16\""});
}

}  // namespace
}  // namespace trident
