// trident train --config FILE [--set path=value ...] [--print-config[=origins]]
#include <ostream>

#include "app/command_line.h"
#include "app/foreign_flag_hint.h"
#include "app/help_text.h"
#include "core/printable.h"
#include "train/config/option_docs.h"
#include "train/run/stored_model.h"

namespace trident {

void train_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app("Train a model. The ranks are threads of this process, or what mpirun or srun started.", "trident train");
  ConfigFlags flags;
  std::string print_config;
  add_config_flags(app, flags);
  app.add_flag("--print-config{json}", print_config,
               "print the resolved configuration and end; =origins: with where each value comes from");
  const auto details = [&context] {
    return "Example:\n"
           "  trident train --config configs/laptop.json --set parallel=\"2DP x 2TP\"\n\n" +
           launch_help(context.columns) + '\n' +
           exit_codes_help(context.columns, ExitCodes::kOfTraining) + '\n' + options_help(context.columns);
  };
  if (parse_flags(app, arguments, context.out, {details, foreign_flag_hint, context.columns}) == ParseResult::kHelpPrinted) return;
  if (!print_config.empty() && print_config != "json" && print_config != "origins")
    throw ConfigError(fmt::format("trident train: --print-config={}: must be json or origins", print_config));

  OptionValues values;
  const auto read_config = [&] {
    return load_train_config(flags.file, with_stored_model(flags.file, flags.settings), values);
  };
  if (print_config.empty()) return context.run_training(read_config);
  const TrainConfig config = read_config();
  if (print_config == "json") context.out << to_json_text(to_json(config), 2) << '\n';
  else context.out << on_lines(config_with_origins(config, values));
}

}  // namespace trident
