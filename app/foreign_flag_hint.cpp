#include "app/foreign_flag_hint.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "core/shell_word.h"
#include "import/foreign_input.h"
#include "train/config/foreign_answers.h"
#include "train/config/option_check.h"
#include "train/config/option_table.h"
#include "train/config/option_values.h"

namespace trident {

std::string system_of_json(const JsonValue& root, const std::string& path) {
  const auto is_ours = [](const JsonMember& it) { return find_block(it.key) != nullptr || find_option(it.key) != nullptr; };
  if (!root.is_object() || std::ranges::all_of(root.members(), is_ours)) return "";
  try {
    const std::vector<ForeignLeaf> leaves = read_foreign_inputs({path});
    return leaves.empty() ? "" : std::string(name_of(leaves.front().system));
  } catch (const ConfigError&) {  // it is of nobody, or of Trident
    return "";
  }
}

namespace {

struct Written {
  std::string name;   // "tensor-model-parallel-size"
  std::string value;  // "4"; empty: none was given
};

Written taken_apart(const std::string& argument, const std::string& next) {
  Written written;
  const std::size_t begin = std::min(argument.size(), argument.find_first_not_of('-')), equals = argument.find('=', begin);
  written.name = argument.substr(begin, equals == argument.npos ? equals : equals - begin);
  written.value = equals == argument.npos ? next : argument.substr(equals + 1);
  if (written.value.starts_with("--")) written.value.clear();  // the next flag
  return written;
}

// Hyphens, underscores and dots are one.
std::string plain(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = c == '-' || c == '.' ? '_' : c;
  return text;
}

std::string setting(std::string_view key, std::string_view value) {
  return fmt::format("say --set {}", for_shell(fmt::format("{}={}", key, value.empty() ? "..." : value)));
}

std::string without_quotes(std::string_view json) {
  return std::string(json.size() > 2 && json.starts_with('"') ? json.substr(1, json.size() - 2) : json);
}

// The option whose path, whose key alone, or whose other name this is.
const Option* option_called(const Written& written) {
  const std::string wanted = plain(written.name);
  for (const Option& option : option_table())
    if (plain(option.path) == wanted) return &option;
  JsonValue value;
  try {
    if (!written.value.empty()) value = setting_value(written.value, "--" + written.name);
  } catch (const ConfigError&) {  // "[2" is no JSON; that no command has the flag goes before it
    value = written.value;
  }
  if (const Option* const option = option_with_key(wanted, value)) return option;
  for (const Option& option : option_table())
    if (std::ranges::find(option.aka, wanted) != option.aka.end()) return &option;
  return nullptr;
}

// The value that another spelling of it means: "zero2" of stage 2.
std::string plain_value(const Option* option, const std::string& value) {
  if (option == nullptr) return value;
  const auto alias = std::ranges::find(option->aliases, value, &Alias::written);
  return alias == option->aliases.end() ? value : std::string(alias->means);
}

// A file that another system's program is told by.
bool is_of_others(std::string_view file) {
  return std::ranges::any_of(std::array{".yaml", ".yml", ".toml", ".sh"}, [&](const char* end) { return file.ends_with(end); });
}
bool is_json_of_others(const std::string& file) {
  try {
    return !system_of_json(read_json_file(file), file).empty();
  } catch (const Error&) {  // told where a configuration is read
    return false;
  }
}
bool names_configuration(std::string_view flag) { return flag.find("config") != flag.npos || flag.find("deepspeed") != flag.npos; }

}  // namespace

std::string foreign_flag_hint(const std::string& argument, const std::string& next) {
  const Written written = taken_apart(argument, next);
  const bool is_letter = written.name.size() == 1 && !argument.starts_with("--");  // which every program has for another thing
  if (written.name.empty() || is_letter) return "";
  if (!argument.starts_with('-')) {  // a setting without --set, a configuration without --config, or a stray word
    const bool known = argument.find('=') != argument.npos && (find_option(written.name) != nullptr || written.name == "parallel");
    const std::string import =
        fmt::format("import it: trident train --import {0} (trident import {0} shows what it comes to)", for_shell(argument));
    if (!known && argument.ends_with(".json"))
      return is_json_of_others(argument) ? import : fmt::format("say --config {}", for_shell(argument));
    if (!known && argument.ends_with(".py"))
      return "no Python is run; write the command that starts it into a file, run.sh, and import that: trident train --import "
             "run.sh";
    if (!known && is_of_others(argument)) return import;
    return known ? setting(written.name, written.value) : "";
  }
  const std::vector<ForeignAnswer> answers = foreign_answers(written.name, written.value);
  const bool has_key = std::ranges::any_of(answers, [](const ForeignAnswer& it) { return !it.key.empty(); });
  const bool is_file = is_of_others(written.value) || (names_configuration(written.name) && written.value.ends_with(".json"));
  if (is_file && !has_key) return fmt::format("import its file: trident train --import {}", for_shell(written.value));
  std::vector<std::string> texts;
  for (const ForeignAnswer& answer : answers) {
    const std::string value =
        answer.takes_value ? plain_value(find_option(answer.key), written.value) : without_quotes(answer.value);
    texts.push_back(answer_text(answer, setting(answer.key, value)));
  }
  const bool leads = std::ranges::any_of(answers, leads_somewhere);
  if (const Option* const option = leads ? nullptr : option_called(written)) {
    return setting(option->path, plain_value(option, written.value));
  }
  return joined_answers(answers, texts);
}

}  // namespace trident
