// Flags of a subcommand.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "app/subcommands.h"
#include "import/import.h"
#include "report/report_page.h"
#include "train/config/option_docs.h"

namespace trident {

// A command's own additions to its flags.
struct FlagTexts {
  std::function<std::string()> details = {};  // printed after the help
  // Proposes a word for an unknown argument, given the one that follows it or ""; "" without an idea.
  std::function<std::string(const std::string& argument, const std::string& next)> instead = {};
  std::function<std::string()> all = {};  // printed after the help in place of `details` by --help-all
};

// These flags name a run's configuration: --config FILE, and --set PATH=VALUE as often as wanted.
struct ConfigFlags {
  std::string file;
  std::vector<std::string> settings;
};
// `flags` is written by parse_flags and outlives `app`.
void add_config_flags(CLI::App& app, ConfigFlags& flags);
// A flag that takes one text each time it is given.
CLI::Option* add_repeatable(CLI::App& app, const char* name, std::vector<std::string>& values, const char* help);
// Returns the values of the file, if one is named; no settings. Throws ConfigError as OptionValues::take_file().
OptionValues values_of_file(const ConfigFlags& flags);
// Likewise; settings alone may say a configuration. ConfigError with what to type where neither is given.
OptionValues values_of_config(const CLI::App& app, const ConfigFlags& flags);
// Takes the import over what the file says.
void take_import(OptionValues& values, const Import& import);
// "--lr 1e-5", "--bf16", "zero_stage: 2".
std::string said_text(const ForeignLeaf& leaf);
// "sbatch --nodes=2 --ntasks-per-node=8 --gpus-per-task=1 scripts/slurm/train.sbatch", which a configuration follows.
std::string sbatch_start(int nodes, int ranks_per_node);
// "--set offload.optimizer=none": asks for nothing that is not built.
std::string neutral_setting(const ImportedValue& value);

// --adapter DIR, beside --hf.
inline constexpr std::string_view kAdapterHelp =
    "to --hf: a PEFT folder (adapter_config.json, adapter_model.safetensors), merged into the weights while they are read";

// Puts flags under a title in the help; titles come in the order of their first flags.
void put_in_group(CLI::App& app, const char* title, std::initializer_list<const char*> flags);

// Refuses (ConfigError) other numbers: "--steps = 0: must be from 1 to 1000".
void in_range(CLI::Option* option, double least, double most);

// Refuses (ConfigError) each of `flags` that was given: what has no effect is not taken in silence. `why`: "there are
// no questions"; `instead`: "give --choices FILE".
void refuse_given(const CLI::App& app, std::initializer_list<const char*> flags, std::string_view why, std::string_view instead);

// on_lines(); on a terminal lines of words, also behind a label, are folded between them, while tables and what is to be pasted
// stay whole.
std::string on_screen(const std::string& text, const CommandContext& context);

// Writes the page, with the command that made it, its time and the program's version at its end.
void write_page(const std::string& file, ReportPage page, const CLI::App& app, const Arguments& arguments);
// "FILE: open it in a browser" below an empty line, for each that is named, with what opens it.
std::string files_text(std::initializer_list<std::pair<std::string, const char*>> files);

// Prints a line as on_screen(), a "warning: " with the colour that it has on standard error.
void say(const CommandContext& context, const std::string& line);

// Parses into what was bound to `app`. Where --help is among the arguments, prints the help: then false, and nothing is left to do.
// Throws ConfigError with the nearest flag for an unknown one.
bool parse_flags(CLI::App& app, const Arguments& arguments, const CommandContext& context, const FlagTexts& texts = {});

}  // namespace trident
