// trident train --config FILE [--set path=value ...] [--print-config[=origins]]
#include <csignal>
#include <ostream>

#include "app/command_line.h"
#include "app/foreign_flag_hint.h"
#include "app/help_text.h"
#include "core/printable.h"
#include "infer/generate/eval_samples.h"
#include "planner/predict/simulated_run_forecast.h"
#include "train/config/option_docs.h"
#include "train/launch/run_training.h"
#include "train/run/stored_model.h"

namespace trident {
namespace {

void train(const std::function<TrainConfig()>& read_config, const CommandContext& context) {
  std::signal(SIGPIPE, SIG_IGN);  // who no longer reads the console does not end the run
  LogSink log(context.err);
  const std::unique_ptr<CudaBackend> cuda = context.make_cuda();
  const auto check_lines = [&] {
    context.out.flush();
    if (context.out) return;
    context.out.clear();  // what was trained is written: a place that takes none of its lines does not fail it
    Logger(log).warning("standard output could not be written: lines of this run are missing there");
  };
  try {
    run_training(read_config, {context.out, context.console, log}, *cuda,
                 {find_eval_samples, check_hardware_profile, make_run_forecast});
  } catch (...) {
    check_lines();
    throw;
  }
  check_lines();
}

}  // namespace

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
  if (!parse_flags(app, arguments, context, {details, foreign_flag_hint})) return;
  if (!print_config.empty() && print_config != "json" && print_config != "origins")
    throw ConfigError(fmt::format("trident train: --print-config={}: must be json or origins", print_config));

  OptionValues values;
  const auto read_config = [&] {
    return load_train_config(flags.file, with_stored_model(flags.file, flags.settings), values);
  };
  if (print_config.empty()) return train(read_config, context);
  const TrainConfig config = read_config();
  if (print_config == "json") context.out << to_json_text(to_json(config), 2) << '\n';
  else context.out << on_lines(config_with_origins(config, values));
}

}  // namespace trident
