// Bad configurations and layouts, through the real program: one line that names key, value and remedy, an exit code, nothing left
// behind.
#include <gtest/gtest-spi.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_io.h"
#include "core/printable.h"
#include "core/utf8.h"
#include "tests/app/program.h"

namespace trident {
namespace {

struct BadConfig {
  const char* name;
  std::vector<std::string> settings;
  std::vector<std::string> parts;
  int exit_code = 64;
};

void PrintTo(const BadConfig& bad, std::ostream* out) { *out << bad.name; }

class BadInput : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadInput, IsRefusedInOneLineAndLeavesNothing) {
  const Workplace place;
  const std::vector<std::string> before = place.files();
  expect_one_line(place.train(GetParam().settings), GetParam().exit_code, GetParam().parts);
  EXPECT_EQ(place.files(), before);
}

std::string name_of(const ::testing::TestParamInfo<BadConfig>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Layout, BadInput,
    ::testing::Values(
        BadConfig{"HeadsNotDivisible", {"parallel.tensor=3"}, {"parallel.tensor = 3", "4 attention heads", "use one of 1, 2, 4"}},
        BadConfig{"KvHeadsNotDivisible",
                  {"model.num_attention_heads=12", "model.num_key_value_heads=6", "model.head_dim=8", "model.intermediate_size=48",
                   "parallel.tensor=4"},
                  {"parallel.tensor = 4", "6 key/value heads", "use one of 1, 2, 3, 6, 12"}},
        BadConfig{"FewerLayersThanStages", {"parallel.pipeline=5"}, {"layers = 4", "parallel.pipeline = 5", "at most 4"}},
        BadConfig{"FewerLayersThanVirtualStages",
                  {"parallel.pipeline=4", "parallel.virtual_stages=2", "parallel.schedule=interleaved"},
                  {"layers = 4", "parallel.virtual_stages = 2", "at most 4"}},
        BadConfig{"InterleavedNeedsAMultiple",
                  {"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.schedule=interleaved", "batch.global=7"},
                  {"batch.global", "7 micro-batches", "multiple of parallel.pipeline = 2", "the nearest is 6"}},
        BadConfig{"LayerListOfOtherSum",
                  {"parallel.pipeline=2", "parallel.layers=[1,2]"},
                  {"parallel.layers = [1, 2]", "the sum is 3", "4 layers"}},
        BadConfig{
            "BatchOverDataRanks", {"parallel.data=3"}, {"batch.global = 8", "batch.micro x parallel.data = 1 x 3", "use 6 or 9"}},
        BadConfig{"MoreDataRanksThanSamples", {"parallel=16DP"}, {"use 16, or at most 8 data ranks with batch.micro = 1"}},
        BadConfig{"SequenceLongerThanPositions", {"batch.sequence=65"}, {"batch.sequence = 65", "64 positions", "use at most 64"}},
        BadConfig{"MoreRanksThanThreads",
                  {"parallel.data=65536", "batch.global=65536"},
                  {"65536 ranks", "at most 1024", "lower the degrees"}},
        BadConfig{"DegreesThatOverflow",
                  {"parallel.data=65536", "parallel.pipeline=65536", "parallel.tensor=65536"},
                  {"281474976710656 ranks", "1024"}},
        BadConfig{"BatchThatOverflows",
                  {"batch.global=9000000000000000000"},
                  {"batch.global = 9000000000000000000", "from 1 to 2147483647"}},
        BadConfig{"MicroBatchThatOverflows",
                  {"batch.global=1000000000", "batch.micro=1000000000"},
                  {"batch.micro = 1000000000", "use at most 67108863"}},
        BadConfig{"ProgramTooLong",
                  {"batch.global=100000000"},
                  {"batch.global = 100000000", "micro-batches", "raise batch.micro or parallel.data"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Values, BadInput,
    ::testing::Values(BadConfig{"LrBeyondDouble", {"optimizer.lr=1e999"}, {"optimizer.lr", "1e999", "must be a number > 0"}},
                      BadConfig{
                          "UnknownModelKey",
                          {"model.hiden_size=2"},
                          {"model.hiden_size = 2", "unknown key", "remove it if it does not", "did you mean \"hidden_size\"?"}},
                      BadConfig{"LossScale",
                                {"precision.compute=bf16", "precision.loss_scale=1024"},
                                {"precision.loss_scale = 1024", "set precision.compute to \"fp16\""}},
                      BadConfig{"Cuda", {"device=cuda"}, {"device = cuda: "}},
                      BadConfig{"UnknownTokenizer", {"data.tokenizer=gpt3"}, {"data.tokenizer = \"gpt3\"", "use \"gpt2\""}},
                      BadConfig{"EvaluationWithoutData",
                                {"eval.every=1"},
                                {"eval.every = 1 (--set)", "no validation data", "set data.valid or data.split"}},
                      BadConfig{"OddHiddenSize", {"model.hidden_size=33"}, {"33", "4 attention heads"}}),
    name_of);

TEST(BadInputFiles, MalformedConfigurationsAreRefused) {
  const Workplace place;
  write_file(place / "broken.json", "{\n \"run\": ");
  write_file(place / "nan.json", "{\n \"optimizer\": {\"lr\": NaN}}");
  write_file(place / "list.json", "[]");
  const std::vector<std::string> before = place.files();
  expect_one_line(place.train({}, "", "broken.json"), 64, {"broken.json:2:", "not valid JSON"});
  expect_one_line(place.train({}, "", "nan.json"), 64, {"nan.json:2:", "not valid JSON"});
  expect_one_line(place.train({}, "", "list.json"), 64, {"list.json", "must be an object"});
  expect_one_line(place.train({}, "", "none.json"), 64, {"none.json", "cannot be opened", "check the path"});
  EXPECT_EQ(place.files(), before);
}

TEST(BadInputFiles, BadHuggingFaceConfigurationsAreRefused) {
  const Workplace place;
  const auto train = [&](const std::string& name, const std::string& text) {
    if (!text.empty()) write_file(place / name, text);
    write_file(place / "c.json", R"({"run": {"dir": ")" + (place / "run") + R"(", "steps": 1}, "model": {"hf_config": ")" +
                                     (place / name) + R"("}, "batch": {"global": 1, "sequence": 8}, "data": {"train": ")" +
                                     (place / "text") + "\"}}");
    const std::vector<std::string> before = place.files();
    const ProgramOutcome outcome = place.train({}, "", "c.json");
    EXPECT_EQ(place.files(), before);
    return outcome;
  };
  expect_one_line(train("missing.json", ""), 64, {"model.hf_config = ", "missing.json", "check the path"});
  expect_one_line(train("damaged.json", "{\"model_type\": \"gpt2\", "), 65,
                  {"model.hf_config = ", "damaged.json", "not valid JSON"});
  expect_one_line(train("gpt2.json", R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "attn_pdrop": 0.1})"), 64,
                  {"model.hf_config = ", "attn_pdrop", "0.1"});
  expect_one_line(train("bert.json", R"({"model_type": "bert"})"), 64, {"model_type", "bert"});
}

TEST(BadInputFiles, ALauncherThatSaysTooLittleIsRefused) {
  const Workplace place;
  const std::vector<std::string> before = place.files();
  expect_one_line(place.train({}, "SLURM_STEP_NUM_TASKS=2"), 64, {"srun started 2 processes", "use srun --mpi=pmix"});
  expect_one_line(place.train({}, "WORLD_SIZE=2 TORCHELASTIC_RUN_ID=1"), 64, {"WORLD_SIZE = 2", "torchrun", "mpirun -np 2"});
  EXPECT_EQ(place.files(), before);
  EXPECT_EQ(place.train({"run.steps=1"}, "OMPI_COMM_WORLD_SIZE=1").exit_code, 0);
}

TEST(BadInputFiles, RunFoldersThatCannotBeAreRefused) {
  const Workplace place;
  const std::vector<std::string> before = place.files();
  expect_one_line(place.train({"run.dir=" + (place / "config.json")}), 74,
                  {"run.dir = ", "config.json is not a folder", "choose another path"});
  expect_one_line(place.train({"run.dir=" + (place / "config.json") + "/run"}), 74, {"run.dir = ", "is not a folder"});
  const ProgramOutcome late = place.train({"run.dir=" + (place / "new") + "/" + std::string(300, 'x')});
  EXPECT_EQ(late.exit_code, 74);
  expect_parts(late.err, {"cannot be created"});
  EXPECT_EQ(place.files(), before);
}

TEST(BadInputFiles, MoreMemoryThanThereIsIsRefused) {
  const Workplace place;
  const auto model = [&](const std::string& preset) {
    write_file(place / "big.json", R"({"run": {"dir": ")" + (place / "run") + R"(", "steps": 1}, "model": {"preset": ")" + preset +
                                       R"("}, "batch": {"global": 64, "sequence": 1024}, "data": {"train": ")" + (place / "text") +
                                       "\"}}");
    return "big.json";
  };
  const std::string huge = model("llama3.1-405b");
  const std::vector<std::string> before = place.files();
  expect_one_line(place.train({}, "", huge), 64, {"405.9B parameters", "this machine has", "take a model of at most"});
  model("gpt2-124m");

  expect_one_line(place.train({"parallel.data=1024", "batch.global=1024", "parallel.zero=ddp"}, "", huge), 64,
                  {"the arena of rank 0 needs", "1024 ranks there", "alone are", "with parallel.zero = ddp"});
  expect_one_line(place.train({"batch.micro=65536", "batch.global=65536"}, "", huge), 64,
                  {"batch.micro = 65536", "for activations", "the head", "would fit, or set recompute.policy to full"});
  EXPECT_EQ(place.files(), before);
}

// No command lets a control character of foreign text through to what it prints: names, values, keys and contents of files.

// ESC, the one-byte CSI of C1, and a mark that turns the direction of writing.
constexpr const char* kHostile = "x\x1b[31m\xc2\x9b" "32m\xe2\x80\xae" "y";

// The first control character but line feeds and tabs, or byte that is not UTF-8; "" without one.
std::string first_control(std::string_view text) {
  const std::size_t valid = valid_prefix(text);
  if (valid < text.size()) return fmt::format("a byte that is not UTF-8 at {}", valid);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (is_control(c.value) && c.value != '\n' && c.value != '\t')
      return fmt::format("U+{:04X} at {}", static_cast<std::uint32_t>(c.value), at);
    at += c.size;
  }
  return "";
}

class ControlCharacters : public ::testing::Test {
 protected:
  ControlCharacters() { create_folder(evil()); }
  std::string evil(std::string_view more = "") const { return place_ / kHostile + std::string(more); }
  void expect_none(const std::vector<std::string>& words) const {
    const ProgramOutcome outcome = run_program(words);
    std::string command;
    for (const std::string& word : words) command += on_one_line(word) + ' ';
    for (const std::string& said : {outcome.out, outcome.err})
      EXPECT_EQ(first_control(said), "") << command << "\n" << on_lines(said.substr(0, 2000));
  }
  void write(const std::string& path, const std::string& text) const { write_file(path, text); }

  Workplace place_;
};

TEST_F(ControlCharacters, OfWordsAreNotRepeated) {
  const std::string config = place_ / "config.json", word = kHostile;
  const std::vector<std::vector<std::string>> commands = {
      {word},
      {"help", word},
      {"completion", word},
      {"schema", word},
      {"docs", word},
      {"train", word},
      {"train", "--config", evil("/none")},
      {"train", "--config", config, "--" + word},
      {"train", "--config", config, "--set", word},
      {"train", "--config", config, "--set", word + "=1"},
      {"train", "--config", config, "--set", "model.preset=" + word},
      {"train", "--config", config, "--set", "parallel=" + word},
      {"train", "--config", config, "--set", "data.train=" + evil()},
      {"train", "--config", config, "--set", "checkpoint.resume=" + evil()},
      {"train", "--config", config, "--set", "model.init_from=" + evil()},
      {"train", "--config", config, "--set", "run.dir=" + evil(), "--print-config"},
      {"train", "--config", config, "--set", "run.dir=" + evil(), "--print-config=origins"},
      {"train", "--config", config, "--print-config=" + word},
      {"plan", "--config", evil("/none")},
      {"plan", "--config", config, "--cluster", word},
      {"plan", "--config", config, "--cluster", word, "--json"},
      {"plan", "--search", "--config", config, "--cluster", "h100_sxm_ndr", "--gpus", "8", "--write", evil("/none/w.json")},
      {"study", "--config", evil("/none")},
      {"study", word},
      {"bench", "--config", evil("/none")},
      {"supervise", word},
      {"supervise", "--", evil("/none")},
      {"data", word},
      {"data", "inspect", evil("/none")},
      {"data", "prepare", "--input", evil("/none"), "--tokenizer", "gpt2", "--output", place_ / "o"},
      {"data", "prepare", "--input", config, "--tokenizer", evil(), "--output", place_ / "o"},
      {"data", "prepare", "--input", config, "--tokenizer", "gpt2", "--output", evil("/none/o")},
      {"eval", "--ckpt", evil()},
      {"eval", "--hf", evil(), "--json"},
      {"generate", "--ckpt", evil(), "--prompt", word},
      {"generate", "--config", config, "--prompt-ids", word},
      {"generate", "--config", config, "--random-weights", "--prompt-ids", "1", "--end", word},
      {"convert", "--from", "hf", evil(), "--to", "ckpt", place_ / "c"},
      {"convert", "--from", word, evil(), "--to", word, place_ / "c"},
      {"ckpt", word},
      {"ckpt", "ls", evil()},
      {"ckpt", "show", evil()},
      {"ckpt", "verify", evil("/none")},
      {"ckpt", "diff", evil(), evil()},
      {"ckpt", "prune", evil(), "--keep-last", "1"},
  };
  for (const std::vector<std::string>& words : commands) expect_none(words);
}

TEST_F(ControlCharacters, OfFilesAreNotRepeated) {
  const std::string key = "\"x\\u001b[31m\\u009b32m\\u202ey\"";
  write(evil("/key.json"), "{" + key + ": 1}");
  write(evil("/value.json"), R"({"run": {"dir": "r", "steps": 1}, "model": {"preset": )" + key + "}}");
  write(evil("/bad.json"), std::string("{\"a\": ") + kHostile + "}");
  write(evil("/config.json"), R"({"model_type": )" + key + "}");
  write(evil("/lines.jsonl"), "{" + key + ": 1}\n");
  write(evil("/bad.jsonl"), std::string("{\"text\": ") + kHostile + "}\n");
  create_folder(evil("/tokenizer"));
  write(evil("/tokenizer/tokenizer.json"), R"({"normalizer": {"type": )" + key + "}}");
  create_folder(evil("/hf"));
  write(evil("/hf/config.json"), R"({"model_type": "llama", "hidden_act": )" + key + "}");
  const std::string header = "{" + key + R"(: {"dtype": )" + key + R"(, "shape": [1], "data_offsets": [0, 4]}})";
  std::string safetensors(8, '\0');
  safetensors[0] = static_cast<char>(header.size());
  write(evil("/hf/model.safetensors"), safetensors + header + "abcd");
  for (const char* file : {"/key.json", "/value.json", "/bad.json"})
    for (const char* command : {"train", "plan"}) expect_none({command, "--config", evil(file)});
  for (const char* file : {"/lines.jsonl", "/bad.jsonl"})
    expect_none({"data", "prepare", "--input", evil(file), "--tokenizer", "gpt2", "--output", place_ / "o"});
  expect_none({"data", "prepare", "--input", evil("/bad.jsonl"), "--tokenizer", "gpt2", "--output", place_ / "o",
               "--skip-bad-lines"});
  expect_none({"data", "prepare", "--input", evil("/lines.jsonl"), "--tokenizer", evil("/tokenizer"), "--output", place_ / "o"});
  for (const char* folder : {"", "/hf"})
    for (const char* command : {"eval", "generate"}) expect_none({command, "--hf", evil(folder), "--ids", "1"});
}

TEST_F(ControlCharacters, OfARunsNamesAreNotRepeated) {
  // ESC is refused in a configuration's paths; these two are not.
  const auto evil = [&](const std::string& more) { return place_ / "x\xc2\x9b" "31m\xe2\x80\xaey" + more; };
  create_folder(evil(""));
  const std::string data = evil("/d");
  for (const char* ending : {".bin", ".idx"}) std::filesystem::copy(place_ / "text" + ending, data + ending);
  const std::vector<std::string> train{"train", "--config", place_ / "config.json", "--set", "data.train=" + data, "--set",
                                       "run.dir=" + evil("/run"), "--set", "run.steps=2", "--set", "checkpoint.every=1"};
  expect_none(train);
  ASSERT_TRUE(folder_exists(evil("/run/ckpt/step-00000002")));
  expect_none(train);  // which is over
  for (const char* action : {"ls", "show", "verify"}) expect_none({"ckpt", action, evil("/run/ckpt")});
  expect_none({"eval", "--ckpt", evil("/run"), "--data", data, "--json"});
  expect_none({"eval", "--ckpt", evil("/run"), "--data", data});
  expect_none({"convert", "--from", "ckpt", evil("/run/ckpt"), "--to", "hf", evil("/hf")});
  expect_none({"data", "inspect", data});
}

TEST(Succeeded, AnotherExitCodeIsAFailure) {
  EXPECT_NONFATAL_FAILURE(succeeded({.exit_code = 64, .out = "", .err = "no"}), "exit code 64");
}

}  // namespace
}  // namespace trident
