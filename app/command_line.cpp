#include "app/command_line.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "app/help_text.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/nearest_name.h"
#include "core/printable.h"
#include "core/shell_word.h"
#include "train/config/option_check.h"
#include "train/config/option_table.h"

namespace trident {
namespace {

std::string nearest_flag(const CLI::App& app, const std::string& argument) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::string flag = argument.substr(0, argument.find('='));
  return std::string(likely_name(flag, std::vector<std::string_view>(names.begin(), names.end())));
}

[[noreturn]] void refuse_incomplete(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    if (option->get_required() && option->count() == 0) names.push_back(option->get_name());
  throw ConfigError(fmt::format("{0}: {1} {2} required; see {0} --help", app.get_name(), fmt::join(names, ", "),
                                names.size() == 1 ? "is" : "are"));
}

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& c : text) c = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return text;
}

// A word without a flag is most often what the command works on.
std::string flag_of_word(const CLI::App& app, const std::string& word) {
  const auto takes = [&](const char* flag) {
    const CLI::Option* const option = app.get_option_no_throw(flag);
    return option != nullptr && option->count() == 0;
  };
  if (word.starts_with('-')) return "";
  if (takes("--from")) return fmt::format("say --from ckpt {0} or --from hf {0}", for_shell(word));
  if (takes("--ckpt") && takes("--hf")) return fmt::format("say --ckpt {}", for_shell(word));
  for (const char* const flag : {"--input", "--prompt", "--data", "--config"})
    if (takes(flag)) return fmt::format("say {} {}", flag, for_shell(word));
  return "";
}

// Told before whatever else is wrong: a misspelt flag is the reason why another one is missing.
void refuse_extras(const CLI::App& app, const FlagTexts& texts) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return;
  std::string remedy = texts.instead ? texts.instead(extras.front(), extras.size() > 1 ? extras[1] : "") : "";
  if (remedy.empty()) remedy = flag_of_word(app, extras.front());
  if (remedy.empty()) {
    const std::string near = nearest_flag(app, extras.front());
    remedy = near.empty() ? fmt::format("see {} --help", app.get_name()) : fmt::format("did you mean {}?", near);
  }
  throw ConfigError(fmt::format("{}: unknown argument {}; {}", app.get_name(), in_quotes(extras.front()), remedy));
}

// Where words are missing behind a flag, this says what it takes: " (path=value: ...)".
std::string what_is_missing(const CLI::App& app, const CLI::ParseError& error) {
  const std::string what = error.what();
  const bool is_count = dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
  const CLI::Option* const option = is_count ? app.get_option_no_throw(what.substr(0, what.find(':'))) : nullptr;
  return option == nullptr ? "" : fmt::format(" ({})", option->get_description());
}

// Another system's configuration is no broken JSON to its user.
std::string refuse_other_forms(std::string& path) {
  const bool is_other = path.ends_with(".yaml") || path.ends_with(".yml") || path.ends_with(".toml");
  if (!is_other || !file_exists(path)) return "";
  try {
    read_json_file(path);
    return "";
  } catch (const ConfigError&) {
    throw ConfigError(fmt::format("--config {}: is no JSON; import it: trident import {}", in_quotes(path), for_shell(path)));
  }
}

}  // namespace

bool parse_flags(CLI::App& app, const Arguments& arguments, const CommandContext& context, const FlagTexts& texts) {
  app.allow_extras();
  if (texts.all) app.set_help_all_flag("--help-all", "print everything: how ranks start, exit codes, all keys");
  try {
    app.parse(Arguments(arguments.rbegin(), arguments.rend()));  // CLI11 wants them last first
  } catch (const CLI::Success& asked) {  // for help
    const auto& details = dynamic_cast<const CLI::CallForAllHelp*>(&asked) != nullptr ? texts.all : texts.details;
    context.out << folded(app.help(), context.columns);
    if (details) context.out << '\n' << details();
    return false;
  } catch (const ConfigError&) {  // of in_range()
    refuse_extras(app, texts);
    throw;
  } catch (const CLI::RequiredError&) {
    refuse_extras(app, texts);
    refuse_incomplete(app);
  } catch (const CLI::ParseError& error) {
    refuse_extras(app, texts);
    throw ConfigError(fmt::format("{}: {}{}; see {} --help", app.get_name(), one_line(error.what()), what_is_missing(app, error),
                                  app.get_name()));
  }
  refuse_extras(app, texts);
  return true;
}

void add_config_flags(CLI::App& app, ConfigFlags& flags) {
  CLI::Option* const config = app.add_option("-c,--config", flags.file, "configuration file (JSON, comments allowed)")->required();
  config->check(CLI::Validator(refuse_other_forms, ""));
  app.add_option("--set", flags.settings, "path=value: change a key of the configuration; repeatable, later ones win")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

OptionValues values_of_file(const ConfigFlags& flags) {
  OptionValues values;
  if (!flags.file.empty()) values.take_file(read_json_file(flags.file), flags.file);
  return values;
}

void take_import(OptionValues& values, const Import& import) {
  for (const ImportedValue& it : import.values) values.take_import(it.path, it.value, it.origin, it.is_default);
}

std::string said_text(const ForeignLeaf& leaf) {
  const std::string value = leaf.value.is_string() ? leaf.value.as_string() : value_text(leaf.value);
  if (!leaf.key.starts_with('-')) return fmt::format("{}: {}", leaf.key, value);
  return leaf.value == JsonValue(true) ? leaf.key : fmt::format("{} {}", leaf.key, value);
}

bool is_reserved(const ImportedValue& value) {
  const Option* const option = find_option(value.path);
  if (option == nullptr) return false;
  const auto is_it = [&](const ReservedValue& it) { return JsonValue(it.value) == value.value; };
  if (option->status != OptionStatus::kReserved) return std::ranges::any_of(option->reserved_values, is_it);
  try {
    checked_value(*option, value.value, "");
    return false;  // a neutral one
  } catch (const ConfigError&) {
    return true;
  }
}

std::string neutral_setting(const ImportedValue& value) {
  const JsonValue neutral = default_value(*find_option(value.path));
  const std::string text = neutral.is_string() ? neutral.as_string() : to_json_text(neutral);
  return fmt::format("--set {}", for_shell(fmt::format("{}={}", value.path, text)));
}

void in_range(CLI::Option* option, double least, double most) {
  const auto check = [=](std::string& text) {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && !(value >= least && value <= most))
      throw ConfigError(fmt::format("{} = {}: must be from {} to {}", option->get_name(), value, least, most));
    return std::string();
  };
  option->check(CLI::Validator(check, ""));
}

std::string on_screen(const std::string& text, const CommandContext& context) {
  if (context.console != ConsoleMode::kTerminal) return on_lines(text);
  std::istringstream lines(on_lines(text));
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
    const bool is_whole = line.find("  ", begin) != line.npos || line.find("--set ") != line.npos;
    out += (is_whole ? line : folded_between_words(line, begin + 2, context.columns)) + '\n';
  }
  return out;
}

void refuse_given(const CLI::App& app, std::initializer_list<const char*> flags, std::string_view why, std::string_view instead) {
  for (const char* const flag : flags)
    if (app.count(flag) > 0) throw ConfigError(fmt::format("{0}: {1}; {2}, or leave {0} out", flag, why, instead));
}

}  // namespace trident
