// trident help [SUBCOMMAND|KEY|SECTION]
#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>

#include "app/help_text.h"
#include "app/subcommands.h"
#include "core/json_reader.h"
#include "core/nearest_name.h"
#include "model/config/model_presets.h"
#include "train/config/option_check.h"
#include "train/config/option_docs.h"

namespace trident {
namespace {

void print_overview(std::ostream& out, std::size_t columns) {
  out << help_paragraph("Trident trains GPT- and Llama-class language models with tensor, pipeline and data parallelism at once.",
                        0, columns)
      << "\nusage: trident SUBCOMMAND [ARGUMENTS]\n\n";
  for (const Subcommand& command : subcommands())
    out << folded(fmt::format("  {:<11}  {}\n", command.name, command.summary), columns);
  out << "\n  trident train --config configs/laptop.json --set run.steps=50\n"
      << folded(
             "  trident train --help-all           flags, ranks, every key\n"
             "  trident help parallel.zero         one key; parallel: a section\n"
             "  source <(trident completion bash)  completion of flags and keys\n"
             "  trident --color never ...          no colours; also always, and auto: on a terminal without NO_COLOR\n"
             "  trident --version\n\n",
             columns)
      << '\n'
      << exit_codes_help(columns);
}

[[noreturn]] void refuse(const std::string& name) {
  std::string hint = did_you_mean(name);
  std::vector<std::string_view> names;
  for (const Subcommand& command : subcommands()) {
    names.push_back(command.name);
    if (std::ranges::find(command.actions, name, &Subcommand::Action::name) != command.actions.end())
      hint = fmt::format("; did you mean trident help {} {}?", command.name, name);
  }
  if (const std::string_view near = likely_name(name, names); !near.empty()) hint = fmt::format("; did you mean {}?", near);
  if (hint.empty()) hint = "; see trident help for subcommands, trident train --help-all for keys";
  throw ConfigError(fmt::format("trident help: {} is not a subcommand, key or section{}", in_quotes(name), hint));
}

}  // namespace

void help_command(const Arguments& arguments, const CommandContext& context) {
  if (arguments.empty() || arguments.front() == "--help" || arguments.front() == "-h")
    return print_overview(context.out, context.columns);
  const std::string& name = arguments.front();
  const Subcommand* command = find_subcommand(name);
  if (command != nullptr) {
    Arguments rest(arguments.begin() + 1, arguments.end());
    rest.emplace_back("--help");
    run_subcommand(*command, rest, context);
    // A word can be a section, too: data, eval.
    if (const std::string keys = option_help(name, context.columns); arguments.size() == 1 && !keys.empty())
      context.out << "\nKeys of the configuration:\n" << keys;
    return;
  }
  if (arguments.size() > 1)
    throw ConfigError(fmt::format("trident help: unknown argument {}; name one key or section", in_quotes(arguments[1])));
  const std::string text = option_help(name, context.columns);
  if (text.empty()) refuse(name);
  context.out << text;
  if (name == "model.preset")
    context.out << help_paragraph(fmt::format("presets: {}", fmt::join(model_preset_names(), ", ")), 2, context.columns);
}

}  // namespace trident
