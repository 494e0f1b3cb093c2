#include "tests/app/program.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "core/file_io.h"
#include "tests/support/log_text.h"

namespace trident {
namespace {

std::string quoted(const std::string& text) {
  std::string result;
  result += '\'';
  for (const char c : text) {
    if (c == '\'') result += "'\\''";
    else result += c;
  }
  result += '\'';
  return result;
}

// The token files text and valid, which a process prepares once.
const TemporaryFolder& token_files() {
  static const TemporaryFolder folder;
  if (folder.names().empty()) {
    for (const auto& [input, output] : {std::pair{"train.txt", "text"}, std::pair{"valid.txt", "valid"}}) {
      const ProgramOutcome prepared =
          run_program({"data", "prepare", "--input", fmt::format("{}/data/excerpt/{}", TRIDENT_SOURCE_DIR, input), "--tokenizer",
                       "gpt2", "--output", folder / output, "--append-eod"});
      EXPECT_EQ(prepared.exit_code, 0) << prepared.err;
    }
  }
  return folder;
}

}  // namespace

ProgramOutcome run_program(const std::vector<std::string>& arguments, const std::string& environment) {
  return run_command(plus({TRIDENT_BINARY}, arguments), environment);
}

ProgramOutcome run_command(const std::vector<std::string>& words, const std::string& environment) {
  const TemporaryFolder streams;
  std::string command = fmt::format("env {} timeout 250", environment);
  for (const std::string& word : words) command += fmt::format(" {}", quoted(word));
  command += fmt::format(" >{} 2>{}", quoted(streams / "out"), quoted(streams / "err"));
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(streams / "out"), read_file(streams / "err")};
}

ProgramOutcome succeeded(ProgramOutcome outcome, std::source_location where) {
  if (outcome.exit_code != 0)
    ADD_FAILURE_AT(where.file_name(), static_cast<int>(where.line()))
        << "exit code " << outcome.exit_code << "\n" << outcome.out << outcome.err;
  return outcome;
}

Workplace::Workplace() {
  std::filesystem::copy(token_files().path(), folder_.path());
  write_file(folder_ / "config.json", fmt::format(R"({{
    "run": {{"dir": "{0}/run", "steps": 2, "threads_per_rank": 1}},
    "model": {{"model_type": "llama", "vocab_size": 50257, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
               "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64}},
    "batch": {{"global": 8, "micro": 1, "sequence": 32}},
    "precision": {{"compute": "fp32"}},
    "optimizer": {{"lr": 1e-3}},
    "data": {{"train": "{0}/text"}}, "checkpoint": {{"every": 0}},
    "log": {{"every": 1}}
  }})", folder_.path()));
}

ProgramOutcome Workplace::train(const std::vector<std::string>& settings, const std::string& environment,
                                const std::string& config) const {
  std::vector<std::string> arguments{"train", "--config", folder_ / config};
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  return run_program(arguments, environment);
}

std::vector<std::string> Workplace::files() const {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<JsonValue> Workplace::records(const std::string& file) const {
  return json_lines(read_file(folder_ / file));
}

void expect_one_line(const ProgramOutcome& outcome, int exit_code, const std::vector<std::string>& parts) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("trident: ", 0), 0u) << outcome.err;
  std::istringstream lines(outcome.err.substr(outcome.err.find('\n') + 1));  // of further faults
  for (std::string line; std::getline(lines, line);) EXPECT_TRUE(line.starts_with("  also ")) << outcome.err;
  expect_parts(outcome.err, parts);
}

}  // namespace trident
