// trident completion bash|zsh|fish
#include "app/completion_script.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>
#include <sstream>

#include "app/subcommands.h"
#include "core/json_reader.h"
#include "core/nearest_name.h"
#include "train/config/option_table.h"

namespace trident {
namespace {

using Value = CompletionFlag::Value;

// In single quotes, for any of the three shells.
std::string shell_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') out += "'\\''";
    else out += c;
  }
  return fmt::format("'{}'", out);
}

// The values that a key can be completed with.
std::vector<std::string_view> values_of(const Option& option) {
  std::vector<std::string_view> values = option.choices;
  if (takes(option.takes, Takes::kBool)) values.insert(values.end(), {"true", "false"});
  if (takes(option.takes, Takes::kNull)) values.emplace_back("null");
  return option.reserved ? std::vector<std::string_view>{} : values;
}

std::vector<std::string_view> setting_keys() {
  std::vector<std::string_view> keys;
  for (const Option& option : option_table())
    if (option.path.front() != '$') keys.push_back(option.path);
  keys.emplace_back("parallel");  // "2DP x 2TP"
  return keys;
}

// Lines "KEY) OPEN VALUES CLOSE" of a case over keys.
std::string value_cases(std::string_view open, std::string_view close) {
  std::string out;
  for (const Option& option : option_table())
    if (const auto values = values_of(option); !values.empty() && option.path.front() != '$')
      out += fmt::format("    {}) {}{}{} ;;\n", option.path, open, fmt::join(values, " "), close);
  return out;
}

CompletionFlag::Value value_kind(std::string_view name) {
  if (name == "--config") return Value::kConfigFile;
  if (name == "--set") return Value::kSetting;
  return name == "--input" || name == "--import" || name == "--output" || name == "--tokenizer" ? Value::kFile : Value::kText;
}

std::string names_for_help(const std::vector<CompletionCommand>& commands) {
  std::vector<std::string_view> names;
  for (const CompletionCommand& command : commands) names.push_back(command.name);
  for (const OptionBlock& block : option_blocks())
    if (std::find(names.begin(), names.end(), block.name) == names.end()) names.push_back(block.name);
  for (const Option& option : option_table())
    if (option.path.front() != '$') names.push_back(option.path);
  return fmt::format("{}", fmt::join(names, " "));
}

// For _arguments, where brackets and colons mean something.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_argument(const CompletionFlag& flag) {
  std::string after;
  switch (flag.value) {
    case Value::kNone: break;
    case Value::kOptional: after = fmt::format("::value:({})", fmt::join(flag.values, " ")); break;
    case Value::kText: after = ":value:"; break;
    case Value::kFile: after = ":file:_files"; break;
    case Value::kConfigFile: after = ":file:_files -g \"*.json*(-.)\""; break;
    case Value::kSetting: after = ":setting:_trident_setting"; break;
  }
  std::string text = shell_quoted(
      fmt::format("*{}{}[{}]{}", flag.name, flag.value == Value::kOptional ? "=-" : "", zsh_text(flag.description), after));
  if (!flag.short_name.empty())
    text += fmt::format(" {}", shell_quoted(fmt::format("*{}[{}]{}", flag.short_name, zsh_text(flag.description), after)));
  return text;
}

}  // namespace

std::vector<CompletionFlag> flags_of_help(const std::string& help) {
  std::vector<CompletionFlag> flags;
  std::istringstream lines(help);
  bool in_flag = false;  // lines that follow may go on with its description
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  -")) {
      if (in_flag && line.starts_with("          ")) flags.back().description += line.substr(line.find_first_not_of(' ') - 1);
      else in_flag = false;
      continue;
    }
    in_flag = true;
    const std::size_t gap = line.find("  ", 2);
    std::istringstream head(line.substr(2, gap == line.npos ? gap : gap - 2));
    std::string names, value;
    head >> names >> value;
    CompletionFlag flag;
    if (gap != line.npos) flag.description = line.substr(line.find_first_not_of(' ', gap));
    if (names.size() > 3 && names[2] == ',') flag.short_name = names.substr(0, 2), names.erase(0, 3);
    flag.name = names.substr(0, names.find('['));
    if (!value.empty()) flag.value = value_kind(flag.name);
    if (flag.name == "--print-config") flag.value = Value::kOptional, flag.values = {"json", "origins"};
    flags.push_back(std::move(flag));
  }
  return flags;
}

std::string bash_completion(const std::vector<CompletionCommand>& commands) {
  std::string names, words, flags_text, files = "-c";
  for (const CompletionCommand& command : commands) {
    names += fmt::format("{}{}", names.empty() ? "" : " ", command.name);
    if (command.explains) words += fmt::format("    {}) words='{}' ;;\n", command.name, names_for_help(commands));
    else if (!command.actions.empty())
      words += fmt::format("    {}) words='{}' ;;\n", command.name, fmt::join(command.actions, " "));
    if (command.flags.empty()) continue;
    flags_text += fmt::format("    {}) flags='", command.name);
    for (const CompletionFlag& flag : command.flags) {
      flags_text += fmt::format("{}{}", &flag == &command.flags.front() ? "" : " ", flag.name);
      if (flag.value == Value::kFile && files.find(flag.name + "|") == files.npos) files = fmt::format("{}|{}", flag.name, files);
    }
    flags_text += "' ;;\n";
  }
  files.resize(files.size() - 3);  // -c and --config have a line of their own
  return fmt::format(R"sh(# Completion of trident for bash, made by: trident completion bash. Use: source <(trident completion bash)
_trident_values() {{
  case $1 in
{}    --print-config) echo json origins ;;
  esac
}}
_trident() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} name='' words='' flags=''
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '{} --help --version' -- "$cur")
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  case ${{COMP_WORDS[1]}} in
{}  esac
  # bash makes '=' a word of its own: --set parallel.zero=z is --set, parallel.zero, =, z.
  if [[ $cur == = ]]; then
    name=$prev cur=''
  elif [[ $prev == = ]]; then
    name=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  case ${{name:-$prev}} in
    --set)
      mapfile -t COMPREPLY < <(compgen -S = -W '{}' -- "$cur")
      compopt -o nospace 2>/dev/null ;;
    --config|-c)
      mapfile -t COMPREPLY < <(compgen -d -- "$cur"; compgen -f -X '!*.json*' -- "$cur")
      compopt -o filenames 2>/dev/null ;;
    {})
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      compopt -o filenames 2>/dev/null ;;
    *)
      if [[ -n $name ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_trident_values "$name")" -- "$cur")
      elif [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$cur")
      elif ((COMP_CWORD == 2)) && [[ -n $words ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$cur")
      fi ;;
  esac
}}
complete -F _trident trident
)sh",
                     value_cases("echo '", "'"), names, words, flags_text, fmt::join(setting_keys(), " "), files);
}

std::string zsh_completion(const std::vector<CompletionCommand>& commands) {
  std::string summaries, cases, keys;
  for (const CompletionCommand& command : commands) {
    summaries += fmt::format("    {}\n", shell_quoted(fmt::format("{}:{}", command.name, command.summary)));
    std::string flags;
    for (const CompletionFlag& flag : command.flags) flags += fmt::format(" \\\n        {}", zsh_argument(flag));
    if (!command.actions.empty() && !flags.empty())
      flags += fmt::format(" \\\n        ':action:({})' '*:file:_files'", fmt::join(command.actions, " "));
    const std::string words = command.explains ? names_for_help(commands) : fmt::format("{}", fmt::join(command.actions, " "));
    cases += fmt::format("    ({})\n", command.name);
    if (!words.empty())
      cases += fmt::format("      if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then compadd {}; return; fi\n", words);
    cases += flags.empty() ? "      ;;\n" : fmt::format("      _arguments{} ;;\n", flags);
  }
  for (const Option& option : option_table())
    if (option.path.front() != '$') keys += fmt::format("    {}\n", shell_quoted(fmt::format("{}:{}", option.path, option.doc)));
  return fmt::format(R"sh(#compdef trident
# Completion of trident for zsh, made by: trident completion zsh > "${{fpath[1]}}/_trident"
_trident_setting() {{
  local -a keys
  if compset -P '*='; then
    case ${{${{IPREFIX%=}}##*=}} in
{}    (*) _message value ;;
    esac
    return
  fi
  keys=(
{}  )
  _describe -t keys key keys -S = -q
}}
_trident() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe -t commands subcommand commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
{}  esac
}}
if [[ $funcstack[1] == _trident ]]; then _trident "$@"; else compdef _trident trident; fi
)sh",
                     value_cases("compadd ", ""), keys, summaries, cases);
}

std::string fish_completion(const std::vector<CompletionCommand>& commands) {
  std::string settings, lines;
  for (const Option& option : option_table()) {
    if (option.path.front() == '$') continue;
    const auto values = values_of(option);
    settings += fmt::format("    printf '%s\\t%s\\n' {}= {}\n", option.path, shell_quoted(option.doc));
    for (const std::string_view value : values) settings += fmt::format("    printf '%s\\n' {}={}\n", option.path, value);
  }
  for (const CompletionCommand& command : commands) {
    lines += fmt::format("complete -c trident -n __fish_use_subcommand -a {} -d {}\n", command.name, shell_quoted(command.summary));
    const std::string seen = fmt::format("complete -c trident -n '__fish_seen_subcommand_from {}'", command.name);
    const std::string words = command.explains ? names_for_help(commands) : fmt::format("{}", fmt::join(command.actions, " "));
    if (!words.empty()) lines += fmt::format("{} -a '{}'\n", seen, words);
    for (const CompletionFlag& flag : command.flags) {
      lines += seen;
      if (!flag.short_name.empty()) lines += fmt::format(" -s {}", flag.short_name.substr(1));
      lines += fmt::format(" -l {}", flag.name.substr(2));
      if (flag.value == Value::kOptional) lines += fmt::format(" -a '{}'", fmt::join(flag.values, " "));
      if (flag.value == Value::kText) lines += " -x";
      if (flag.value == Value::kFile || flag.value == Value::kConfigFile) lines += " -r -F";
      if (flag.value == Value::kSetting) lines += " -x -a '(__trident_settings)'";
      lines += fmt::format(" -d {}\n", shell_quoted(flag.description));
    }
  }
  return "# Completion of trident for fish, made by: trident completion fish > ~/.config/fish/completions/trident.fish\n"
         "function __trident_settings\n" +
         settings + "end\ncomplete -c trident -f\n" + lines;
}

namespace {

// Flags as the command's own help lists them, so that no second list of them can go stale.
std::vector<CompletionFlag> flags_of(const Subcommand& command, const CommandContext& context) {
  std::vector<CompletionFlag> flags;
  const auto add = [&](const Arguments& arguments) {
    std::ostringstream help;
    run_subcommand(command, arguments, {help, context.err});
    for (CompletionFlag& flag : flags_of_help(help.str()))
      if (std::ranges::find(flags, flag.name, &CompletionFlag::name) == flags.end()) flags.push_back(std::move(flag));
  };
  if (command.run != nullptr) add({"--help"});
  for (const Subcommand::Action& action : command.actions) add({std::string(action.name), "--help"});
  return flags;
}

}  // namespace

void completion_command(const Arguments& arguments, const CommandContext& context) {
  const std::string shell = arguments.empty() ? "" : arguments.front();
  if (shell == "--help" || shell == "-h") {
    context.out << "usage: trident completion bash|zsh|fish\n\n"
                   "  bash: source <(trident completion bash)      in ~/.bashrc\n"
                   "  zsh:  trident completion zsh > \"${fpath[1]}/_trident\"\n"
                   "  fish: trident completion fish > ~/.config/fish/completions/trident.fish\n";
    return;
  }
  if (arguments.size() != 1 || (shell != "bash" && shell != "zsh" && shell != "fish"))
    throw ConfigError("trident completion: name one shell; choose bash, zsh or fish" + name_hint(shell, {"bash", "zsh", "fish"}));

  std::vector<CompletionCommand> commands;
  for (const Subcommand& command : subcommands()) {
    CompletionCommand& entry = commands.emplace_back(CompletionCommand{command.name, command.summary});
    for (const Subcommand::Action& action : command.actions) entry.actions.push_back(action.name);
    if (command.run == help_command) entry.explains = true;
    else if (command.run != completion_command) entry.flags = flags_of(command, context);
  }
  context.out << (shell == "bash"  ? bash_completion(commands)
                  : shell == "zsh" ? zsh_completion(commands)
                                   : fish_completion(commands));
}

}  // namespace trident
