// No command lets a control character of foreign text through to what it prints: names, values, keys and contents of files.
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

}  // namespace
}  // namespace trident
