// Learning from preferences as docs/data.md has it, in small: pairs of answers as text or as messages, references, what a run logs,
// and runs that go on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/app/checkpoint_runs.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/log_text.h"

namespace trident {
namespace {

constexpr std::size_t kAskedBytes = 10, kChosenBytes = 30, kRejectedBytes = 20;  // of every pair
constexpr std::size_t kChosenTokens = kChosenBytes + 1, kRejectedTokens = kRejectedBytes + 1;  // with the end of the sequence
constexpr std::int64_t kNumPairs = 32;

// Each pair goes on with a verse's beginning: rightly, or backwards.
std::vector<nlohmann::json> answer_pairs() {
  const std::string text = read_file(TRIDENT_SOURCE_DIR "/data/excerpt/train.txt");
  std::vector<nlohmann::json> pairs;
  for (std::size_t at = 0; std::ssize(pairs) < kNumPairs;) {
    const std::size_t end = text.find('\n', at);
    if (end - at > 60 && end - at < 90) {
      const std::string right = text.substr(at + kAskedBytes, kChosenBytes), wrong = text.substr(at + 40, kRejectedBytes);
      pairs.push_back({{"prompt", text.substr(at, kAskedBytes)},
                       {"chosen", right},
                       {"rejected", std::string(wrong.rbegin(), wrong.rend())}});
    }
    at = end + 1;
  }
  return pairs;
}

std::string lines_of(const std::vector<nlohmann::json>& rows) {
  std::string lines;
  for (const nlohmann::json& row : rows) lines += row.dump() + "\n";
  return lines;
}

nlohmann::json turn_of(const char* role, const nlohmann::json& text) { return {{"role", role}, {"content", text}}; }

class PreferenceRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(place_ / "pairs.jsonl", lines_of(answer_pairs()));
    prepare("pairs", {});
  }
  std::string prepare(const std::string& name, const std::vector<std::string>& more) const {
    return succeeded(run_program(plus({"data", "prepare", "--preference", "--input", place_ / (name + ".jsonl"), "--tokenizer",
                                       "bytes", "--output", place_ / name}, more))).out;
  }
  // trident train into <place>/`run`, one step a record.
  ProgramOutcome start(const std::string& run, const std::vector<std::string>& settings) const {
    write_file(place_ / "config.json",
               R"({"run": {"steps": 3, "threads_per_rank": 1}, "model": {"model_type": "llama", "vocab_size": 257,
                   "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                   "num_key_value_heads": 2, "max_position_embeddings": 80, "rms_norm_eps": 1e-6},
                   "batch": {"global": 8, "micro": 2, "sequence": 80}, "precision": {"compute": "fp32"},
                   "optimizer": {"lr": 3e-3}, "loss": {"type": "dpo", "beta": 0.2},
                   "lr_schedule": {"type": "constant", "warmup_steps": 0}, "log": {"every": 1, "report": false},
                   "data": {"train": ")" + (place_ / "pairs") + R"(", "samples": "packed"}})");
    std::vector<std::string> arguments{"train", "--config", place_ / "config.json", "--set", "run.dir=" + (place_ / run)};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return run_program(arguments);
  }
  std::vector<JsonValue> train(const std::string& run, const std::vector<std::string>& settings = {}) const {
    succeeded(start(run, settings));
    return records_of(run, "/metrics.jsonl");
  }
  std::vector<JsonValue> records_of(const std::string& run, const std::string& file) const {
    return json_lines(read_file(place_ / (run + file)));
  }
  std::string setting(const std::string& key, const std::string& run) const { return key + "=" + (place_ / run); }
  std::string reference_file(const std::string& run) const { return place_ / (run + "/reference.f32"); }
  // Reads what the weights before the first step say of the pairs' answers, two numbers of each.
  std::vector<float> reference_values(const std::string& run, const char* name = "/reference.f32") const {
    const std::string file = read_file(place_ / (run + name));
    std::vector<float> values((file.size() - 32) / sizeof(float));
    std::memcpy(values.data(), file.data() + 32, values.size() * sizeof(float));
    return values;
  }
  TemporaryFolder place_;
};

double number_of(const JsonValue& record, const char* key) { return record.find(key)->as_number(); }

const std::vector<std::string> kPairKeys{"step", "loss", "grad_norm", "rewards_chosen", "rewards_rejected", "accuracy", "margin"};

void expect_no_reward_yet(const std::vector<JsonValue>& records, double loss = std::numbers::ln2) {
  EXPECT_NEAR(number_of(records.at(0), "loss"), loss, 1e-6);
  for (const char* key : {"rewards_chosen", "rewards_rejected", "accuracy", "margin"})
    EXPECT_EQ(number_of(records.at(0), key), 0) << key;
}

void expect_alike(const std::vector<JsonValue>& records, const std::vector<JsonValue>& others, const char* what) {
  ASSERT_EQ(records.size(), others.size()) << what;
  for (std::size_t i = 0; i < records.size(); ++i)
    for (const std::string& key : kPairKeys)
      EXPECT_NEAR(number_of(records[i], key.c_str()), number_of(others[i], key.c_str()), 1e-5) << what << ": " << key;
}

// Behind the lines with which a start opens.
void expect_refused(ProgramOutcome outcome, const std::vector<std::string>& parts) {
  outcome.out = "";
  // Some of these runs are evaluated on what they train on.
  if (outcome.err.starts_with("warning: data.valid: ")) outcome.err.erase(0, outcome.err.find('\n') + 1);
  expect_one_line(outcome, 65, parts);
}

TEST_F(PreferenceRuns, PairsAreReadAsTextsAndAsMessages) {
  const JsonValue texts = parse_json(succeeded(run_program({"data", "inspect", place_ / "pairs", "--json"})).out, "inspect");
  EXPECT_EQ(texts.find("documents")->as_integer(), kNumPairs);
  EXPECT_EQ(texts.find("sequences")->as_integer(), 2 * kNumPairs);
  EXPECT_EQ(texts.find("tokens")->as_integer(), kNumPairs * (70 + 2));
  EXPECT_EQ(texts.find("counted_tokens")->as_integer(), kNumPairs * (50 + 2));

  std::vector<nlohmann::json> with_prompt = answer_pairs(), without = with_prompt, equal = with_prompt;
  equal[0]["rejected"] = equal[0]["chosen"];
  write_file(place_ / "equal.jsonl", lines_of(equal));
  expect_parts(prepare("equal", {}), {"warning: chosen and rejected are equal in 1 pair, "});
  for (nlohmann::json& row : with_prompt) {
    for (const char* key : {"chosen", "rejected"}) row[key] = nlohmann::json::array({turn_of("assistant", row[key])});
    row["prompt"] = nlohmann::json::array({turn_of("user", row["prompt"])});
  }
  for (std::size_t i = 0; i < without.size(); ++i) {
    without[i].erase("prompt");
    for (const char* key : {"chosen", "rejected"})
      without[i][key] = nlohmann::json::array({with_prompt[i]["prompt"][0], with_prompt[i][key][0]});
  }
  write_file(place_ / "turns.jsonl", lines_of(with_prompt));
  write_file(place_ / "dialogues.jsonl", lines_of(without));
  for (const char* name : {"turns", "dialogues"}) prepare(name, {"--template", "chatml"});
  EXPECT_EQ(read_file(place_ / "turns.bin"), read_file(place_ / "dialogues.bin"));
  EXPECT_EQ(read_file(place_ / "turns.mask"), read_file(place_ / "dialogues.mask"));
  // 22 bytes of <|im_start|>assistant are the prompt's; 11 of <|im_end|> and a line's end count with the answer.
  const JsonValue turns = parse_json(succeeded(run_program({"data", "inspect", place_ / "turns", "--json"})).out, "inspect");
  EXPECT_EQ(turns.find("counted_tokens")->as_integer(), kNumPairs * (50 + 2 * 11));
}

TEST_F(PreferenceRuns, BeginAtLn2AndAreTheSameInEveryLayout) {
  const std::vector<JsonValue> one = train("one");
  ASSERT_EQ(one.size(), 3U);
  expect_parts(read_file(place_ / "one/run.log"), {fmt::format(" per pair, accuracy {:.4f}, margin {:.4f}",
                                                               number_of(one[2], "accuracy"), number_of(one[2], "margin"))});
  expect_parts(succeeded(run_program({"eval", "--ckpt", place_ / "one", "--data", place_ / "pairs"})).err,
               {"warning: " + (place_ / "pairs") + ": has pairs of answers, and the loss is the mean of chosen and rejected ones"});
  expect_no_reward_yet(one);
  EXPECT_EQ(read_file(reference_file("one")).size(), 32U + 8 * kNumPairs);
  for (const JsonValue& record : one) {
    EXPECT_NEAR(number_of(record, "margin"), number_of(record, "rewards_chosen") - number_of(record, "rewards_rejected"), 1e-9);
    EXPECT_EQ(record.find("loss_tokens")->as_integer(), 8 * 52);
  }
  EXPECT_GT(number_of(one[2], "margin"), 0.05);
  EXPECT_GT(number_of(one[2], "accuracy"), 0.5);
  EXPECT_LT(number_of(one[2], "loss"), number_of(one[1], "loss"));
  expect_alike(train("dp_pp", {"parallel.data=2", "parallel.pipeline=2", "parallel.zero=zero2"}), one, "dp 2 x pp 2");
  expect_alike(train("tp", {"parallel.tensor=2"}), one, "tp 2");
}

// One pair a step, so that its rewards say what its loss is.
TEST_F(PreferenceRuns, VariantsAreFunctionsOfTheRewards) {
  const auto expect = [&](const std::string& run, std::vector<std::string> settings, const auto& loss_of) {
    settings.insert(settings.end(), {"batch.global=1", "batch.micro=1", "data.shuffle=false"});
    const std::vector<JsonValue> records = train(run, settings);
    for (const JsonValue& record : records)
      EXPECT_NEAR(number_of(record, "loss"),
                  loss_of(number_of(record, "rewards_chosen"), number_of(record, "rewards_rejected")), 1e-5)
          << run << to_json_text(record);
    EXPECT_GT(std::abs(number_of(records.at(2), "margin")), 1e-3) << run;
  };
  const auto log_sigmoid = [](double x) { return -std::log1p(std::exp(-x)); };
  expect("sigmoid", {}, [&](double chosen, double rejected) { return -log_sigmoid(chosen - rejected); });
  expect("smoothed", {"loss.label_smoothing=0.3"}, [&](double chosen, double rejected) {
    return -0.7 * log_sigmoid(chosen - rejected) - 0.3 * log_sigmoid(rejected - chosen);
  });
  expect("hinge", {"loss.variant=hinge"}, [](double chosen, double rejected) { return std::max(0.0, 1 - (chosen - rejected)); });
  expect("ipo", {"loss.variant=ipo"}, [](double chosen, double rejected) {
    const double off = chosen / 0.2 / kChosenTokens - rejected / 0.2 / kRejectedTokens - 1 / (2 * 0.2);
    return off * off;
  });
  expect("normalized", {"loss.length_normalized=true"}, [&](double chosen, double rejected) {
    return -log_sigmoid(chosen / kChosenTokens - rejected / kRejectedTokens);
  });
  const std::vector<JsonValue> with_nll = train("with_nll", {"loss.nll_weight=0.5", "run.steps=1", "batch.global=32"});
  double nats = 0;  // of a chosen answer's token
  const std::vector<float> values = reference_values("with_nll");
  for (std::size_t pair = 0; pair < kNumPairs; ++pair) nats -= double{values.at(2 * pair)} / (kNumPairs * kChosenTokens);
  expect_no_reward_yet(with_nll, std::numbers::ln2 + 0.5 * nats);
}

TEST_F(PreferenceRuns, ReferencesAreNamedByPath) {
  train("base", {"run.steps=1"});
  const std::string from = setting("model.init_from", "base");
  const std::vector<JsonValue> initial = train("initial", {from});
  expect_no_reward_yet(initial);
  succeeded(run_program({"convert", "--from", "ckpt", place_ / "base", "--to", "hf", place_ / "base_hf"}));
  const std::vector<JsonValue> same = train("same", {from, setting("reference", "base_hf")});
  EXPECT_EQ(compared(same, kPairKeys), compared(initial, kPairKeys)) << "the same weights, as a folder";
  EXPECT_EQ(reference_values("same"), reference_values("initial"));

  const std::vector<JsonValue> other = train("other", {from, setting("reference", "initial")});
  EXPECT_LT(number_of(other.at(0), "rewards_chosen"), -1e-3) << "the reference has learned, and what trains has not";
  EXPECT_GT(number_of(other.at(0), "loss"), std::numbers::ln2 + 1e-3);

  // New adapters change nothing at first, and the reference does without them.
  const std::vector<std::string> lora{from, "adapter.type=lora", "adapter.r=4", "optimizer.lr=0.03"};
  const std::vector<JsonValue> adapted = train("adapted", lora);
  expect_no_reward_yet(adapted);
  EXPECT_GT(number_of(adapted.at(2), "margin"), 1e-2);
  EXPECT_EQ(compared(train("adapted_to", plus(lora, {setting("reference", "base_hf")})), kPairKeys), compared(adapted, kPairKeys));

  const std::string adapters = setting("reference", "adapted");
  expect_one_line(start("refused", {from, adapters}), 64,
                  {"reference = ", "adapted", "has adapters, and model.init_from has none"});
  const std::string from_adapters = setting("model.init_from", "adapted");
  expect_one_line(start("refused", {from_adapters, "adapter.type=lora", "adapter.r=4", setting("reference", "base_hf")}), 64,
                  {"base_hf", "has no adapters, and model.init_from has some"});
  expect_one_line(start("refused", {from, setting("reference", "none")}), 65, {"reference = ", "none", "no such folder"});
  train("wider", {"run.steps=1", "model.vocab_size=258"});
  expect_one_line(start("refused", {from, setting("reference", "wider")}), 64,
                  {"reference = ", "wider", "vocab_size is 258, and this one's is 257"});
  expect_one_line(start("refused", {from, "reference=adapter_off"}), 64,
                  {"reference = \"adapter_off\"", "no adapters", "set adapter.type"});
  EXPECT_FALSE(file_exists(place_ / "refused")) << "a start that is refused leaves nothing";
}

// New adapters add nothing; trained ones are left out, so that the reference is what they were trained beside.
TEST_F(PreferenceRuns, AReferenceLeavesAdaptersOut) {
  train("base", {"run.steps=1"});
  const std::vector<std::string> lora{"adapter.type=lora", "adapter.r=4", "adapter.alpha=16", "optimizer.lr=0.03"},
      off{"reference=adapter_off"};
  const std::vector<std::string> fresh = plus({setting("model.init_from", "base")}, lora);
  const std::vector<JsonValue> initial = train("initial", fresh), without = train("without", plus(fresh, off));
  expect_no_reward_yet(without);
  EXPECT_EQ(compared(without, kPairKeys), compared(initial, kPairKeys));
  EXPECT_EQ(reference_values("without"), reference_values("initial"));

  const std::vector<std::string> tuned = plus({setting("model.init_from", "initial")}, lora);
  expect_no_reward_yet(train("again", tuned));
  EXPECT_NE(reference_values("again"), reference_values("initial"));
  const std::vector<JsonValue> beside = train("beside", plus(tuned, off));
  EXPECT_EQ(reference_values("beside"), reference_values("initial")) << "the base is the same, and the pairs are";
  EXPECT_GT(std::abs(number_of(beside.at(0), "margin")), 1e-2) << "what trains has learned, and the reference has not";
  const std::vector<JsonValue> layout = train("layout", plus(tuned, plus(off, {"parallel.tensor=2", "parallel.pipeline=2"})));
  for (const std::string& key : kPairKeys) {
    const double expected = number_of(beside.at(0), key.c_str());
    EXPECT_NEAR(number_of(layout.at(0), key.c_str()), expected, 1e-5 * std::max(1.0, std::abs(expected))) << key;
  }

  std::vector<std::string> dora = lora;
  dora.front() = "adapter.type=dora";
  train("magnitudes", plus({setting("model.init_from", "base")}, dora));
  train("dora_off", plus({setting("model.init_from", "magnitudes")}, plus(dora, off)));
  EXPECT_EQ(reference_values("dora_off"), reference_values("initial")) << "magnitudes are left out, too";
  expect_one_line(start("refused", plus({setting("model.init_from", "magnitudes"), setting("reference", "initial")}, dora)), 64,
                  {"reference = ", "initial", "has adapters of another type"});

  succeeded(run_program({"convert", "--from", "ckpt", place_ / "initial", "--to", "peft", place_ / "adapter"}));
  // Dropout is how the adapter was trained, and DPO trains it without.
  const std::string file = place_ / "adapter/adapter_config.json";
  JsonValue config = read_json_file(file);
  config.set("lora_dropout", 0.05);
  write_file(file, to_json_text(config));
  const std::vector<std::string> from_folder{setting("model.init_from", "base"), setting("adapter.init_from", "adapter"),
                                             "optimizer.lr=0.03"};
  EXPECT_EQ(compared(train("goes_on", plus(from_folder, off)), kPairKeys), compared(train("tuned", plus(tuned, off)), kPairKeys));
  expect_one_line(start("refused", {setting("model.init_from", "base"), setting("adapter.init_from", "adapter"),
                                    setting("reference", "base")}),
                  64, {"reference = ", "base", "has no adapters, and model.init_from has some"});
}

TEST_F(PreferenceRuns, CrossEntropyIsNotLearnedOfPairs) {
  const std::vector<std::string> plain{"loss.type=cross_entropy", "loss.beta=0.1"};
  expect_one_line(start("refused", {plain[0]}), 64, {"loss.beta: only loss.type \"dpo\" has it"});
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"data.samples=stream"}})
    expect_one_line(start("refused", plus(plain, more)), 64,
                    {"loss.type = \"cross_entropy\"", place_ / "pairs", "a chosen and a rejected answer", "loss.type to \"dpo\""});
  for (const char* const other : {"kto", "orpo", "grpo"})
    expect_one_line(start("refused", {std::string("loss.variant=") + other}), 64,
                    {std::string("loss.variant = \"") + other + "\": not built yet", "loss.type dpo"});
}

// As PEFT's disable_adapter leaves them out: modules that trained whole beside adapters are what they were, too.
TEST_F(PreferenceRuns, AReferenceHasTheBasesModulesInThePlaceOfSavedOnes) {
  train("base", {"run.steps=1"});
  const std::vector<std::string> saves{"adapter.type=lora", "adapter.r=4", "optimizer.lr=0.03", "adapter.modules_to_save=lm_head"},
      off{"reference=adapter_off"};
  train("whole", plus({setting("model.init_from", "base")}, saves));
  const JsonValue first = train("beside", plus({setting("model.init_from", "whole")}, plus(saves, off))).at(0);
  EXPECT_EQ(reference_values("beside"), reference_values("whole")) << "the base is the same, and the pairs are";
  EXPECT_GT(std::abs(number_of(first, "margin")), 1e-2) << "what trains has learned, and the reference has not";

  train("alone", saves);  // its own random weights are no base
  expect_one_line(start("refused", plus({setting("model.init_from", "alone")}, plus(saves, off))), 64,
                  {"reference = \"adapter_off\"", "adapter.modules_to_save", "no base"});
}

// Copies of a PEFT folder stand in the places of the base's tensors, and its adapters are in what training begins with.
TEST_F(PreferenceRuns, AReferenceBesideAPeftFolderIsWhatTrainingBeginsWith) {
  train("base", {"run.steps=1"});
  const std::string base = setting("model.init_from", "base");
  train("tuned", {base, "adapter.type=lora", "adapter.r=4", "adapter.modules_to_save=norm", "optimizer.lr=0.03"});
  succeeded(run_program({"convert", "--from", "ckpt", place_ / "tuned", "--to", "peft", place_ / "peft"}));
  const std::string peft = setting("adapter.init_from", "peft");
  expect_no_reward_yet(train("from", {base, peft}));
  train("on", {setting("model.init_from", "tuned"), "adapter.type=lora", "adapter.r=4", "adapter.modules_to_save=norm"});
  EXPECT_EQ(reference_values("from"), reference_values("on"));
  expect_one_line(start("refused", {base, peft, "reference=adapter_off"}), 64,
                  {"reference = \"adapter_off\": adapter.init_from = ", "input_layernorm (modules_to_save)", "\"initial\""});
}

// All pairs a step, so that an evaluation before a step says what the step says.
TEST_F(PreferenceRuns, AreEvaluatedAsTheyAreTrained) {
  const std::vector<std::string> evaluated{"batch.global=32", "eval.every=1", setting("data.valid", "pairs")};
  const auto expect_same = [&](const std::string& run, const std::vector<JsonValue>& steps) {
    const std::vector<JsonValue> evals = records_of(run, "/eval.jsonl");
    ASSERT_EQ(evals.size(), steps.size() + 1) << run;
    EXPECT_NEAR(number_of(evals.at(0), "valid_loss"), std::numbers::ln2, 1e-6) << run;
    for (std::size_t i = 0; i < steps.size(); ++i)
      for (const char* key : {"loss", "rewards_chosen", "rewards_rejected", "accuracy", "margin"})
        EXPECT_NEAR(number_of(evals[i], fmt::format("valid_{}", key).c_str()), number_of(steps[i], key), 1e-5)
            << run << ", " << key << " before step " << i + 1;
    for (const char* key : {"valid_perplexity", "valid_bits_per_byte"}) EXPECT_TRUE(evals.at(0).find(key)->is_null()) << key;
  };
  const std::vector<JsonValue> one = train("one", evaluated);
  expect_same("one", one);
  EXPECT_EQ(reference_values("one", "/reference_valid.f32"), reference_values("one"));
  EXPECT_GT(number_of(records_of("one", "/eval.jsonl").back(), "valid_margin"), 0.05);
  const std::string said = read_file(place_ / "one/run.log");
  EXPECT_NE(said.find("; validation loss 0.6931 -> "), std::string::npos) << said;
  EXPECT_EQ(said.find("nats per token"), std::string::npos) << said;
  expect_same("dp_pp", train("dp_pp", plus(evaluated, {"parallel.data=2", "parallel.pipeline=2", "parallel.zero=zero2"})));
  expect_same("tp", train("tp", plus(evaluated, {"parallel.tensor=2"})));

  // Two sets, one of them with another reference than its neighbour's pairs.
  std::vector<nlohmann::json> fewer = answer_pairs();
  fewer.erase(fewer.begin(), fewer.begin() + 20);
  write_file(place_ / "fewer.jsonl", lines_of(fewer));
  prepare("fewer", {});
  const std::vector<std::string> two{"batch.global=4", "eval.every=3", "eval.steps=100", "run.steps=3",
                                     fmt::format(R"(data.valid=["{}","{}"])", place_ / "pairs", place_ / "fewer")};
  train("two", two);
  const JsonValue last = records_of("two", "/eval.jsonl").back();
  const JsonValue &all = *last.find("sets")->find("pairs"), &some = *last.find("sets")->find("fewer");
  EXPECT_NE(number_of(all, "margin"), number_of(some, "margin"));
  EXPECT_NEAR(number_of(last, "valid_margin"), (number_of(all, "margin") + number_of(some, "margin")) / 2, 1e-9);
  const std::vector<float> values = reference_values("two", "/reference_valid.f32");
  EXPECT_TRUE(std::equal(values.begin() + 2 * kNumPairs, values.end(), values.begin() + 2 * 20, values.begin() + 2 * kNumPairs));

  // Its 12 pairs count once each, whatever the batch, beside a reference that differs.
  const auto before_training = [&](const std::string& run, const std::vector<std::string>& settings) {
    train(run, plus({setting("model.init_from", "one"), setting("reference", "two"), setting("data.valid", "fewer"), "eval.every=1",
                     "run.steps=1"}, settings));
    return records_of(run, "/eval.jsonl").at(0);
  };
  const JsonValue fours = before_training("fours", {"batch.global=4"});
  EXPECT_NE(number_of(fours, "valid_margin"), 0);
  for (const std::string layout : {"parallel.data=1", "parallel.data=2"}) {
    const JsonValue eights = before_training("eights_" + layout.substr(layout.size() - 1), {"batch.global=8", layout});
    for (const char* key : {"valid_loss", "valid_margin", "valid_accuracy"})
      EXPECT_NEAR(number_of(eights, key), number_of(fours, key), 1e-6) << key;
  }

  // A start that goes on reads what the first one has written.
  train("stopped", plus(two, {"run.steps=2"}));
  EXPECT_EQ(compared(train("stopped", two), kPairKeys), compared(train("whole", two), kPairKeys));
  EXPECT_EQ(number_of(records_of("stopped", "/eval.jsonl").back(), "valid_margin"),
            number_of(records_of("whole", "/eval.jsonl").back(), "valid_margin"));
  std::filesystem::remove(place_ / "stopped/reference_valid.f32");
  expect_refused(start("stopped", plus(two, {"run.steps=4"})), {"reference_valid.f32: is missing", "--set eval.every=0"});
}

// A pair has 72 tokens: two in a pack, or three and two in the last one. All pairs a step, so that packs change no batch.
TEST_F(PreferenceRuns, PacksOfPairsTrainAsTheirPairs) {
  const auto pack = [&](const char* name, const char* sequence) {
    return succeeded(run_program({"data", "pack", place_ / "pairs", "--sequence", sequence, "--output", place_ / name})).out;
  };
  EXPECT_NE(pack("twos", "160").find("16 packs of at most 160 tokens, 2,304 tokens of 32 pairs"), std::string::npos);
  EXPECT_NE(pack("threes", "240").find("11 packs of at most 240 tokens, 2,304 tokens of 32 pairs"), std::string::npos);
  EXPECT_NE(succeeded(run_program({"data", "inspect", place_ / "twos"})).out.find("64, in pairs"), std::string::npos);
  const std::vector<std::string> alone{"batch.global=32", "model.max_position_embeddings=240"};
  const auto packed = [&](const char* name) {
    const bool twos = std::string_view(name) == "twos";
    return std::vector<std::string>{"model.max_position_embeddings=240", setting("data.train", name), "batch.micro=1",
                                    fmt::format("batch.global={}", twos ? 16 : 11),
                                    fmt::format("batch.sequence={}", twos ? 160 : 240)};
  };
  const std::vector<JsonValue> one = train("one", alone);
  expect_alike(train("twos", packed("twos")), one, "two in a pack");
  expect_alike(train("threes", packed("threes")), one, "three in a pack");
  const std::vector<std::string> layout{"parallel.data=2", "parallel.pipeline=2", "parallel.zero=zero2"};
  expect_alike(train("layout", plus(packed("twos"), layout)), one, "dp 2 x pp 2");
  EXPECT_EQ(reference_values("threes").size(), 2U * kNumPairs);

  // Other pairs in every step, evaluated, on the way another layout.
  const std::vector<std::string> few = plus(packed("twos"), {"batch.global=4", "run.steps=6", "eval.every=3", "eval.steps=4",
                                                             setting("data.valid", "twos"), setting("checkpoint.dir", "saved")});
  const std::vector<JsonValue> whole = train("whole", plus(few, {setting("checkpoint.dir", "saved_whole")}));
  train("stopped", plus(few, {"run.steps=3"}));
  expect_alike(train("stopped", plus(few, layout)), whole, "one that went on");
  EXPECT_NEAR(number_of(records_of("stopped", "/eval.jsonl").back(), "valid_margin"),
              number_of(records_of("whole", "/eval.jsonl").back(), "valid_margin"), 1e-5);
  EXPECT_EQ(reference_values("whole", "/reference_valid.f32"), reference_values("whole"));

  // References by path, and without adapters.
  train("base", plus(alone, {"run.steps=1"}));
  const std::vector<std::string> by_path{setting("model.init_from", "base"), setting("reference", "one")};
  expect_alike(train("path", plus(packed("threes"), by_path)), train("alone", plus(alone, by_path)), "a reference by path");
  const std::vector<std::string> lora{setting("model.init_from", "base"), "adapter.type=lora", "adapter.r=4", "optimizer.lr=0.03"};
  train("tuned", plus(alone, plus(lora, {"run.steps=1"})));
  std::vector<std::string> off = plus(lora, {"reference=adapter_off", "run.steps=1"});
  off.front() = setting("model.init_from", "tuned");
  expect_alike(train("off", plus(packed("threes"), off)), train("alone_off", plus(alone, off)), "adapter_off");
}

TEST_F(PreferenceRuns, GoOnWithTheReferenceThatTheyBeganWith) {
  const std::vector<JsonValue> whole = train("whole", {"run.steps=4"});
  train("stopped", {"run.steps=2"});
  const std::string reference = read_file(reference_file("stopped"));
  EXPECT_EQ(reference, read_file(reference_file("whole")));

  const auto refused_with = [&](const std::string& content, const std::vector<std::string>& parts,
                                const std::vector<std::string>& settings = {}) {
    write_file(reference_file("stopped"), content);
    expect_refused(start("stopped", plus({"run.steps=4"}, settings)), plus({reference_file("stopped")}, parts));
  };
  std::string damaged = reference;
  damaged[damaged.size() - 3] ^= 1;
  refused_with(damaged, {"is damaged", "put the run's own file back"});
  refused_with(reference.substr(0, reference.size() - 8), {"has 280 bytes, and 32 pairs take 288"});
  refused_with("nothing", {"is no file of a reference's log-probabilities"});
  train("seeded", {"run.steps=1", "run.seed=7"});
  refused_with(read_file(reference_file("seeded")), {"belongs to other training data or to another reference"});
  std::vector<nlohmann::json> changed = answer_pairs();
  changed[5]["chosen"] = "And God said, Let there be lit";
  write_file(place_ / "changed.jsonl", lines_of(changed));
  prepare("changed", {});
  refused_with(reference, {"belongs to other training data"},
               {setting("data.train", "changed"), R"(checkpoint.allow=["data.train"])"});
  std::filesystem::remove(reference_file("stopped"));
  expect_refused(start("stopped", {"run.steps=4"}), {reference_file("stopped"), "is missing", "put the copy of the folder"});

  write_file(reference_file("stopped"), reference);
  EXPECT_EQ(compared(train("stopped", {"run.steps=4"}), kPairKeys), compared(whole, kPairKeys));
  EXPECT_EQ(read_file(reference_file("stopped")), reference);
}

TEST_F(PreferenceRuns, DataWithoutPairsIsRefused) {
  std::vector<nlohmann::json> chats;
  for (const nlohmann::json& pair : answer_pairs()) chats.push_back({{"prompt", pair["prompt"]}, {"completion", pair["chosen"]}});
  write_file(place_ / "chats.jsonl", lines_of(chats));
  succeeded(run_program({"data", "prepare", "--chat", "--loss", "completion", "--template", "chatml", "--input",
                         place_ / "chats.jsonl", "--tokenizer", "bytes", "--output", place_ / "chats"}));
  expect_one_line(start("refused", {setting("data.train", "chats")}), 65,
                  {"chats: has 32 sequences in 32 documents", "trident data prepare --preference"});
  // Two conversations in a pack are no pair.
  succeeded(run_program({"data", "pack", place_ / "chats", "--sequence", "160", "--output", place_ / "packs"}));
  expect_one_line(start("refused", {setting("data.train", "packs")}), 65,
                  {"packs: has 32 sequences in ", " documents, which are packed without regard to pairs", "a pack of pairs"});
  const std::string pairs = place_ / "pairs";
  expect_one_line(run_program({"data", "pack", pairs, "--sequence", "70", "--output", place_ / "short"}), 65,
                  {"pair 0 of ", "has 72 tokens", "32 pairs are longer", "truncate"});
  expect_one_line(run_program({"data", "pack", pairs, "--sequence", "70", "--overflow", "split", "--output", place_ / "short"}), 64,
                  {"--overflow = split", "pairs of answers"});
  expect_one_line(run_program({"data", "pack", pairs, place_ / "chats", "--sequence", "220", "--output", place_ / "both"}), 65,
                  {"pairs", "chats", "the other is not"});
  expect_one_line(start("refused", {"batch.sequence=64"}), 65, {"document 0 has 72 tokens", "64"});
  expect_one_line(start("refused", {"eval.every=1", setting("data.valid", "chats")}), 65,
                  {"chats: has 32 sequences in 32 documents", "trident data prepare --preference"});
  expect_one_line(start("refused", {"data.samples=stream"}), 64, {"loss.type = \"dpo\"", "data.samples"});

  EXPECT_FALSE(file_exists(place_ / "refused")) << "a start that is refused leaves nothing";

  std::vector<nlohmann::json> rows = answer_pairs();
  rows[2].erase("rejected");
  write_file(place_ / "halves.jsonl", lines_of(rows));
  expect_one_line(run_program({"data", "prepare", "--preference", "--input", place_ / "halves.jsonl", "--tokenizer", "bytes",
                               "--output", place_ / "halves"}),
                  65, {"halves.jsonl:3", "the row has no \"rejected\""});
}

}  // namespace
}  // namespace trident
