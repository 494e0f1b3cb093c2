// trident completion bash|zsh|fish
#include <algorithm>
#include <ostream>
#include <sstream>

#include "app/completion_script.h"
#include "app/subcommands.h"
#include "core/json_reader.h"
#include "core/nearest_name.h"

namespace trident {
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
