#include "infer/generate/prompt_file.h"

#include <sstream>

#include "core/file_io.h"
#include "core/json_reader.h"

namespace trident {
namespace {

// A line of JSON: a text, or an object with "prompt" or "ids".
Prompt json_prompt(const std::string& line, const std::string& where) {
  const JsonValue value = parse_json(line, where, {.comments = false, .blame = ExitCode::kData});
  if (value.is_string()) return {.text = value.as_string()};
  if (value.get("prompt").is_string()) return {.text = value.text_at("prompt")};
  const auto refuse = [&] {
    throw DataError(fmt::format(
        "{}: not a prompt; a line is a JSON text, or an object with \"prompt\" (a text) or \"ids\" (whole numbers)", where));
  };
  if (!value.get("ids").is_array()) refuse();
  Prompt prompt;
  for (const JsonValue& id : value.items_at("ids")) {
    if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() > INT32_MAX) refuse();
    prompt.ids.push_back(static_cast<std::int32_t>(id.as_integer()));
  }
  return prompt;
}

}  // namespace

std::vector<Prompt> read_prompts(const std::string& path) {
  if (!is_there(path)) throw DataError(fmt::format("{}: no such file; a text itself is given by --prompt", path));
  std::vector<Prompt> prompts;
  std::istringstream lines(read_file(path));
  const bool json = path.ends_with(".jsonl");
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (json && line.empty()) continue;
    prompts.push_back(json ? json_prompt(line, fmt::format("{}:{}", path, number)) : Prompt{.text = line});
  }
  if (prompts.empty()) throw DataError(fmt::format("{}: holds no prompt; write one a line", path));
  return prompts;
}

}  // namespace trident
