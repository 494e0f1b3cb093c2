// Tests what --vary and study files say, and what they may not.
#include "planner/study/study_spec.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "core/file_io.h"
#include "planner/study/study.h"
#include "planner/study/study_keys.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/support/error_text.h"
#include "train/config/option_table.h"
#include "train/config/resolve_model.h"
#include "train/launch/prepare_run.h"

namespace trident {
namespace {

const std::string kConfigs = TRIDENT_SOURCE_DIR "/configs/";

using Texts = std::vector<std::string>;

// The message of the ConfigError that `call` throws.
template <class Call>
std::string refusal(Call call) {
  return error_of<ConfigError>([&] { call(); });
}

TEST(Vary, OneTextMayHaveSeveralKeys) {
  EXPECT_EQ(split_varied("gpus=64..4096,zero=zero1|zero3,micro=1|2"), (Texts{"gpus=64..4096", "zero=zero1|zero3", "micro=1|2"}));
  EXPECT_EQ(split_varied("parallel.layers=4,4|3,5"), (Texts{"parallel.layers=4,4|3,5"})) << "values with commas";
  EXPECT_EQ(split_varied("data.split=99,1|95,5,gpus=8"), (Texts{"data.split=99,1|95,5", "gpus=8"}));
}

TEST(Vary, RangesDoubleAndListsMix) {
  EXPECT_EQ(parse_varied("gpus=64..4096"), (VariedKey{"gpus", {"64", "128", "256", "512", "1024", "2048", "4096"}}));
  EXPECT_EQ(parse_varied("gpus=3..23").values, (Texts{"3", "6", "12"}));  // 24 is beyond
  EXPECT_EQ(parse_varied("gpus=8..8").values, (Texts{"8"}));
  EXPECT_EQ(parse_varied("gpus=96|8..32").values, (Texts{"8", "16", "32", "96"}));  // in order, whatever the list's
  EXPECT_EQ(parse_varied("gpus=1..16777216").values.size(), 25u);
  EXPECT_EQ(parse_varied("run.seed=4611686018427387904..9223372036854775807").values,
            (Texts{"4611686018427387904"}));  // no overflow
}

TEST(Vary, KeysArePathsOrTheirEnds) {
  EXPECT_EQ(parse_varied("zero=zero1|zero3"), (VariedKey{"parallel.zero", {"zero1", "zero3"}}));
  EXPECT_EQ(parse_varied("micro=1|2|4").key, "batch.micro");
  EXPECT_EQ(parse_varied("tp=1..8").key, "parallel.tensor");
  EXPECT_EQ(parse_varied("pp=2").key, "parallel.pipeline");
  EXPECT_EQ(parse_varied("recompute.policy=none|full").key, "recompute.policy");
  EXPECT_EQ(parse_varied("parallel=4DP x 2PP|2DP x 4PP").values, (Texts{"4DP x 2PP", "2DP x 4PP"}));
  EXPECT_EQ(parse_varied("model.num_hidden_layers=8..32").values, (Texts{"8", "16", "32"}));
  EXPECT_EQ(parse_varied("data.train=../a|../b").values, (Texts{"../a", "../b"}));  // dots of paths are no ranges
}

// Settings are read by the names of users where tables write their own.
TEST(Vary, ShortNamesAreReadAndWritten) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"tp", "parallel.tensor"},        {"pp", "parallel.pipeline"},        {"dp", "parallel.data"},
      {"cp", "parallel.context"},       {"vpp", "parallel.virtual_stages"}, {"sp", "parallel.sequence_parallel"},
      {"zero", "parallel.zero"},        {"micro", "batch.micro"},           {"global", "batch.global"},
      {"seq", "batch.sequence"},        {"recompute", "recompute.policy"},  {"layers", "model.num_hidden_layers"},
      {"hidden", "model.hidden_size"},  {"ffn", "model.intermediate_size"}, {"heads", "model.num_attention_heads"},
      {"schedule", "parallel.schedule"}, {"kv_heads", "model.num_key_value_heads"}, {"vocab", "model.vocab_size"}};
  for (const auto& [name, path] : names) {
    EXPECT_EQ(varied_path(name, "--vary"), path);
    EXPECT_EQ(short_key(path), name);
  }
  EXPECT_EQ(varied_path("n_layer", "--vary"), "model.n_layer");
  EXPECT_EQ(varied_path("head_dim", "--vary"), "model.head_dim");
  EXPECT_EQ(varied_path("sequence", "--vary"), "batch.sequence");
  EXPECT_EQ(short_key("parallel.layers"), "parallel.layers");  // "layers" are the model's
  EXPECT_EQ(short_key("eval.steps"), "eval.steps");            // "steps" may be run.steps
  for (const Option& option : option_table()) EXPECT_EQ(varied_path(short_key(option.path), "--vary"), option.path);
}

TEST(Vary, NamesWhatIsWrong) {
  const std::vector<std::pair<std::string, Texts>> cases = {
      {"gpus", {"--vary", "KEY=VALUES"}},
      {"=3", {"KEY=VALUES"}},
      {"gpus=", {"empty value"}},
      {"gpus=8||16", {"empty value"}},
      {"gpus=64..8", {"empty", "write 8..64"}},
      {"gpus=0..8", {"begin at 1"}},
      {"gpus=-4..8", {"begin at 1"}},
      {"gpus=8..", {"A..B"}},
      {"gpus=8...64", {"A..B"}},
      {"gpus=0", {"gpus", "from 1"}},
      {"gpus=many", {"\"many\"", "whole number"}},
      {"gpus=8|8", {"twice"}},
      {"gpus=4..16|8", {"\"8\"", "twice"}},
      {"zero=zero7", {"--vary: parallel.zero", "zero7"}},
      {"micro=0|1", {"--vary: batch.micro = 0"}},
      {"zeroo=zero1", {"unknown key \"zeroo\"", "did you mean zero?"}},
      {"qwertyuiop=1", {"unknown key", "trident help"}},
      {"every=1|2", {"checkpoint.every", "eval.every", "log.every", "whole path"}},
      {"dp=auto", {"parallel.data = \"auto\"", "whole number"}},
      {"gpus=1..1000000000", {"\"1..1000000000\"", "33554432", "from 1 to 16777216"}},
      {"gpus=8|08", {"gpus has \"8\" twice"}},  // however it is written
      {"gpus=99999999999999999999", {"whole number"}},
      {"hiden=64", {"unknown key \"hiden\"", "did you mean hidden?"}},
      {"num_hidden_layer=2", {"did you mean num_hidden_layers?"}},
      {"zero_stage=1", {"did you mean parallel.zero?"}},  // DeepSpeed's word
      {"parallel.zer=zero1", {"did you mean parallel.zero?"}},
      {"layers=", {"empty value"}},
  };
  for (const auto& [text, parts] : cases) {
    const std::string why = refusal([&] { parse_varied(text); });
    for (const std::string& part : parts) EXPECT_NE(why.find(part), std::string::npos) << text << ": " << why;
  }
  EXPECT_EQ(refusal([] { parse_varied("gpus=64..8", "a.json:3: vary"); }).rfind("a.json:3: vary: ", 0), 0u);
}

StudySpec gpt3(const Texts& varied, Scaling scaling) {
  StudySpec spec;
  spec.config = kConfigs + "gpt3_175b_tp8_pp8.json";  // 16 replicas of 64 ranks, 1,536 sequences
  spec.scaling = scaling;
  for (const std::string& text : varied) spec.varied.push_back(parse_varied(text));
  return spec;
}

TEST(StudyPoints, EveryCombinationWithGpusInnermost) {
  StudySpec spec = gpt3({"gpus=64..256", "zero=zero1|zero3", "micro=1|2|4"}, Scaling::kStrong);
  spec.arms = {{"a", {}}, {"b", {}}};
  const std::vector<StudyPoint> points = points_of(spec);
  ASSERT_EQ(points.size(), 2u * 3 * 2 * 3);
  EXPECT_EQ(points[0].values, (Texts{"64", "zero1", "1"}));
  EXPECT_EQ(points[1].values, (Texts{"128", "zero1", "1"}));
  EXPECT_EQ(points[3].values, (Texts{"64", "zero1", "2"}));
  EXPECT_EQ(points[9].values, (Texts{"64", "zero3", "1"}));
  EXPECT_EQ(points[17].arm, 0u);
  EXPECT_EQ(points[18].arm, 1u);
  EXPECT_EQ(points[20].gpus, 256);
  spec.varied = {parse_varied("batch.sequence=1..2048"), parse_varied("micro=1..2048"), parse_varied("gpus=1..2097152")};
  expect_parts(refusal([&] { points_of(spec); }), {"more than 4096 points"});
}

TEST(StudyPoints, StrongKeepsTheGlobalBatchAndWeakThatOfAReplica) {
  const StudySpec strong = gpt3({"gpus=64..4096"}, Scaling::kStrong), weak = gpt3({"gpus=64..4096"}, Scaling::kWeak);
  EXPECT_EQ(replica_batch(weak, 0), 96);
  const std::vector<StudyPoint> points = points_of(weak);
  ASSERT_EQ(points.size(), 7u);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::int64_t replicas = std::int64_t{1} << i;
    const PointConfig grown = config_of(weak, points[i]);
    EXPECT_EQ(grown.replicas, replicas);
    EXPECT_EQ(grown.gpus, 64 * replicas);
    EXPECT_EQ(grown.config.parallel.data, replicas);
    EXPECT_EQ(grown.config.batch.global, 96 * replicas);
    EXPECT_EQ(config_of(strong, points[i]).config.batch.global, 1536);
  }
}

TEST(StudyPoints, OfADataAutoConfigurationTheSmallestPointHasItsBatch) {
  StudySpec spec = gpt3({"gpus=128..512", "tp=4|8"}, Scaling::kWeak);
  spec.settings = {"parallel.data=auto"};
  EXPECT_EQ(replica_batch(spec, 0), 1536 / 2);
  EXPECT_EQ(config_of(spec, {0, {"512", "4"}, 512}).config.batch.global, 768 * 16);
}

// Six documents of 20 tokens: the plan of a configuration prices attention by them, and a study of it does the same.
TEST(StudyPoints, GoByTheMeasuredDocumentsAsPlansDo) {
  const TemporaryFolder folder;
  write_dataset(folder / "text", Documents(6, std::vector<std::int32_t>(20, 7)), 100);
  StudySpec spec = gpt3({"zero=zero1|zero3"}, Scaling::kStrong);
  spec.settings = {"data.reset_attention_mask=true", "data.eod=0", "data.train=" + folder / "text"};
  TrainConfig studied;
  run_study(spec, {"none", "GPU", [&](const PointConfig& point, StudyRow&) { studied = point.config; }});
  OptionValues values;
  const TrainConfig planned = with_facts_of_files(load_train_config(spec.config, spec.settings, values));
  EXPECT_EQ(studied.data.mean_document_tokens(), 20);
  EXPECT_EQ(studied.data.mean_document_tokens(), planned.data.mean_document_tokens());
}

TEST(StudyPoints, ReplicasMakeGpus) {
  StudySpec spec = gpt3({"dp=4|1|2", "tp=4|8"}, Scaling::kStrong);
  EXPECT_TRUE(spec.varies_gpus());
  const std::vector<StudyPoint> points = points_of(spec);
  ASSERT_EQ(points.size(), 6u);
  EXPECT_EQ(points[1].values, (Texts{"2", "4"}));  // replicas innermost, in order
  const PointConfig two = config_of(spec, points[1]), four = config_of(spec, points[5]);
  EXPECT_EQ(two.gpus, 2 * 4 * 8);
  EXPECT_EQ(two.replicas, 2);
  EXPECT_EQ(four.gpus, 4 * 8 * 8);
  EXPECT_EQ(four.config.batch.global, 1536);
  spec.scaling = Scaling::kWeak;
  spec.settings = {"parallel.data=auto"};
  EXPECT_EQ(replica_batch(spec, 0), 1536);  // of the smallest point, one replica
  EXPECT_EQ(config_of(spec, points[5]).config.batch.global, 1536 * 4);
  check_spec(spec);
  spec.gpus = 64;
  expect_parts(refusal([&] { check_spec(spec); }), {"follow from each other"});
  spec.gpus = 0;
  spec.varied.push_back(parse_varied("gpus=64"));
  expect_parts(refusal([&] { check_spec(spec); }), {"follow from each other"});
}

// A model that is named is varied as one that is spelled out: what does not vary stays that of the name.
TEST(StudyPoints, VaryModelsByTheirOwnKeys) {
  const auto model = [](const StudySpec& spec) { return resolve_model(config_of(spec, points_of(spec).front()).config); };
  const StudySpec named = gpt3({"layers=16", "hidden=6144", "heads=48"}, Scaling::kStrong);  // model.preset, spelled n_layer
  StudySpec free = named;
  free.settings = {"parallel.layers=null"};
  const ModelConfig gpt = model(free);
  EXPECT_EQ(gpt.layers, 16);
  EXPECT_EQ(gpt.hidden, 6144);
  EXPECT_EQ(gpt.heads, 48);
  EXPECT_EQ(gpt.ffn, 4 * 6144);
  EXPECT_EQ(gpt.max_positions, 2048);
  EXPECT_EQ(gpt.family, ModelFamily::kGpt2);
  StudySpec llama;
  llama.config = kConfigs + "learn_1f1b.json";  // keys in the file
  llama.varied = {parse_varied("n_layer=12"), parse_varied("model.rope_theta=500000")};
  check_spec(llama);
  EXPECT_EQ(model(llama).layers, 12);
  EXPECT_EQ(model(llama).hidden, 128);
  EXPECT_EQ(model(llama).rope.theta, 500000);
  llama.varied = {parse_varied("model.num_hidden_layer=12")};
  expect_parts(refusal([&] { check_spec(llama); }), {"did you mean model.num_hidden_layers?"});
  llama.varied = {parse_varied("model.attn_pdrop=0")};  // GPT-2's
  expect_parts(refusal([&] { check_spec(llama); }), {"models of model_type \"llama\" do not have it"});
  llama.varied = {parse_varied("hidden=130")};  // a known key; the value is the point's matter
  check_spec(llama);
  expect_parts(refusal([&] { model(llama); }), {"130"});
}

TEST(StudyPoints, ThatCannotBeSayWhy) {
  const StudySpec weak = gpt3({"gpus=96|128", "tp=1..4096"}, Scaling::kWeak);
  expect_parts(refusal([&] { config_of(weak, {0, {"96", "8"}, 96}); }),
               {"96 ranks are not a multiple of the 64", ", as 64 or 128 are"});
  EXPECT_EQ(refusal([&] { config_of(weak, {0, {"128", "8"}, 128}); }), "no error");
  StudySpec odd = gpt3({"gpus=64..128"}, Scaling::kWeak);
  odd.settings = {"parallel.data=5"};
  expect_parts(refusal([&] { config_of(odd, {0, {"64"}, 64}); }), {"batch.global = 1536 is not divided by 5 replicas"});
  StudySpec both = gpt3({"gpus=64", "batch.global=64..256"}, Scaling::kWeak);
  expect_parts(refusal([&] { config_of(both, points_of(both)[0]); }), {"--scaling strong"});
  StudySpec absent = gpt3({}, Scaling::kStrong);
  absent.config = "no_such.json";
  expect_parts(refusal([&] { config_of(absent, points_of(absent)[0]); }), {"no_such.json"});
}

class StudyFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    write_file(folder_ / "study.json", text);
    return folder_ / "study.json";
  }
  std::string refused(const std::string& text) {
    const std::string file = write(text);
    return refusal([&] { read_study(file); });
  }
  TemporaryFolder folder_;
};

TEST_F(StudyFile, SaysEverythingThatTheCommandLineSays) {
  const StudySpec spec = read_study(write(R"({
    // a comment
    "study": "two of them", "config": "sub/../base.json", "cluster": "clusters/c.json", "gpus": 4, "scaling": "weak",
    "set": {"parallel.grad_sync": "step", "batch.micro": 2},
    "arms": [{"name": "DDP", "set": {"parallel.zero": "ddp"}}, {"name": "as it is"}],
    "vary": ["gpus=4..16", "micro=1|2"]})"));
  EXPECT_EQ(spec.title, "two of them");
  EXPECT_EQ(spec.config, folder_ / "base.json");
  EXPECT_EQ(spec.cluster, folder_ / "clusters/c.json");
  EXPECT_EQ(spec.gpus, 4);
  EXPECT_EQ(spec.scaling, Scaling::kWeak);
  EXPECT_EQ(spec.settings, (Texts{"parallel.grad_sync=\"step\"", "batch.micro=2"}));
  ASSERT_EQ(spec.arms.size(), 2u);
  EXPECT_EQ(spec.arms[0].name, "DDP");
  EXPECT_EQ(spec.arms[0].settings, (Texts{"parallel.zero=\"ddp\""}));
  EXPECT_EQ(spec.varied, (std::vector<VariedKey>{{"gpus", {"4", "8", "16"}}, {"batch.micro", {"1", "2"}}}));
}

TEST_F(StudyFile, NamesLineAndMemberOfWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"config": "a.json"})", "no member \"study\""},
      {R"({"study": "x"})", "config: missing"},
      {R"({"study": 3, "config": "a.json"})", "study: missing or no text"},
      {"{\"study\": \"x\",\n\"config\": \"a.json\",\n\"varry\": []}", "study.json:3: unknown key \"varry\"; did you mean vary?"},
      {"{\"study\": \"x\",\n\"config\": \"a.json\",\n\"cluster\": \"h10\"}",
       "study.json:3: cluster = \"h10\": there is no such one"},
      {R"({"study": "x", "config": "a.json", "gpus": 0})", "gpus: must be a whole number"},
      {R"({"study": "x", "config": "a.json", "gpus": "4"})", "gpus: must be a whole number"},
      {R"({"study": "x", "config": "a.json", "scaling": "stong"})", "must be strong"},
      {R"({"study": "x", "config": "a.json", "scaling": 1})", "must be \"strong\""},
      {R"({"study": "x", "config": "a.json", "set": []})", "set: must be an object"},
      {R"({"study": "x", "config": "a.json", "set": {"parallel.zeroo": "zero1"}})", "unknown key parallel.zeroo"},
      {R"({"study": "x", "config": "a.json", "set": {"parallel.zero": "zero9"}})", "parallel.zero = \"zero9\""},
      {R"({"study": "x", "config": "a.json", "arms": []})", "arms: must be a list"},
      {R"({"study": "x", "config": "a.json", "arms": [3]})", "arms: must be a list"},
      {R"({"study": "x", "config": "a.json", "arms": [{"set": {}}]})", "name: missing"},
      {R"({"study": "x", "config": "a.json", "arms": [{"name": "a"}, {"name": "a"}]})", "two arms are called \"a\""},
      {R"({"study": "x", "config": "a.json", "vary": "gpus=1..8"})", "vary: must be a list"},
      {R"({"study": "x", "config": "a.json", "vary": [8]})", "vary: must be a list"},
      {"{\"study\": \"x\", \"config\": \"a.json\",\n\n\"vary\": [\"gpus=8..1\"]}", "study.json:3: vary: \"8..1\" is empty"},
      {R"({"study": "x", "config": "a.json", "vary": ["micro=1", "batch.micro=2"]})", "batch.micro stands there twice"},
  };
  for (const auto& [text, part] : cases) {
    const std::string why = refused(text);
    EXPECT_NE(why.find(part), std::string::npos) << text << ": " << why;
  }
}

}  // namespace
}  // namespace trident
