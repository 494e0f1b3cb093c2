// trident train --config FILE [--import FILE ...] [--set path=value ...] [--print-config[=origins]]
#include <unistd.h>

#include <array>
#include <csignal>
#include <ostream>

#include "app/command_line.h"
#include "app/foreign_flag_hint.h"
#include "app/help_text.h"
#include "core/nearest_name.h"
#include "core/printable.h"
#include "core/shell_word.h"
#include "infer/generate/eval_samples.h"
#include "planner/predict/simulated_run_forecast.h"
#include "report/run_page.h"
#include "train/config/option_check.h"
#include "train/config/option_docs.h"
#include "train/launch/run_training.h"
#include "train/run/stored_model.h"

namespace trident {
namespace {

constexpr std::size_t kMostDifferences = 12;

// Refuses what a run cannot have as the inputs say it, unless --set says it: an argument of a script, and what is not built.
void check_import(const OptionValues& values, const Import& import) {
  std::string refusals;
  const auto refuse = [&](const std::string& why) { refusals += (refusals.empty() ? "" : "; also ") + why; };
  for (const ImportedValue& value : import.values) {
    const JsonValue* const of_model = values.model_origins().find(value.path.substr(value.path.find('.') + 1));
    const bool is_set = find_option(value.path) != nullptr ? values.at(value.path).origin == "--set"
                                                           : of_model != nullptr && *of_model == JsonValue("--set");
    if (value.is_default || is_set) continue;
    if (!value.unknown.empty())
      refuse(fmt::format("{}: {}; give its value: --set {}=...", value.origin, value.unknown, value.path));
    if (value.not_built.empty()) continue;
    std::string remedy = fmt::format("not built yet; leave it out there, or train without: {}", neutral_setting(value));
    for (const ReservedValue& reserved : find_option(value.path)->reserved_values)
      if (JsonValue(reserved.value) == value.value) remedy = fmt::format("{} (--set {}=...)", reserved.remedy, value.path);
    refuse(fmt::format("{}: {} = {}: {}", value.origin, value.path, value_text(value.value), remedy));
  }
  // The key beside which the report says how to give what is missing.
  for (const auto& [path, words] : {std::pair{"batch.global", "which no input counts"}, {"data.train", "give token files of it"}})
    for (const ImportedKey& key : import.keys)
      if (values.at(path).value.is_null() && key.note.find(words) != std::string::npos) {
        refuse(fmt::format("{} {}: {}", place_of(key.leaf), said_text(key.leaf), key.note));
        break;  // every key that batch.global follows from has the same note
      }
  if (!refusals.empty()) throw ConfigError(refusals);
}

// A line for each key that means something else here, and what shows the rest.
std::vector<std::string> differences(const Import& import, const std::vector<std::string>& files) {
  std::vector<std::string> lines;
  for (const ImportedKey& key : import.keys)
    if (key.verdict == Verdict::kDiffers)
      lines.push_back(on_one_line(fmt::format("different here: {} {}: {}", place_of(key.leaf), said_text(key.leaf), key.note)));
  if (lines.size() <= kMostDifferences) return lines;
  std::string names;
  for (const std::string& file : files) names += ' ' + for_shell(file);
  const std::string rest = fmt::format("and {} more: trident import{} shows all", lines.size() - kMostDifferences, names);
  lines.resize(kMostDifferences);
  lines.push_back(rest);
  return lines;
}

// `notes`: lines to open with, which read_config may write.
void train(const std::function<TrainConfig()>& read_config, const std::vector<std::string>& notes, const CommandContext& context) {
  std::signal(SIGPIPE, SIG_IGN);  // who no longer reads the console does not end the run
  LogSink log(context.err, LogLevel::kInfo, context.dress);
  const std::unique_ptr<CudaBackend> cuda = context.make_cuda();
  const auto check_lines = [&] {
    context.out.flush();
    if (context.out) return;
    context.out.clear();  // what was trained is written: a place that takes none of its lines does not fail it
    Logger(log).warning("standard output could not be written: lines of this run are missing there");
  };
  const auto forecast = [&notes](RunInputs& inputs, const RunHardware& hardware) {
    inputs.plan.notes.insert(inputs.plan.notes.end(), notes.begin(), notes.end());
    return make_run_forecast(inputs, hardware);
  };
  try {
    run_training(read_config, {context.out, context.console, log, STDOUT_FILENO}, *cuda,
                 {find_eval_samples, check_hardware_profile, forecast, write_run_page});
  } catch (...) {
    check_lines();
    throw;
  }
  check_lines();
}

// The keys that most runs change, and examples.
std::string changed_keys_help() {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kKeys = {
      {{"model.preset", "the model; trident help model.preset has a list"},
       {"data.train", "token files, which trident data prepare makes"},
       {"run.steps", "updates"},
       {"run.dir", "the folder for logs and checkpoints"},
       {"parallel", "the layout, as \"2DP x 4PP x 4TP\""},
       {"parallel.zero", "ddp, zero1, zero2 or zero3"},
       {"batch.global", "sequences of a step, of all ranks"},
       {"batch.micro", "sequences that a rank computes at once"},
       {"batch.sequence", "tokens of a sequence"},
       {"precision.compute", "fp32, bf16 or fp16"},
       {"recompute.policy", "none, selective or full"},
       {"optimizer.lr", "the highest learning rate"},
       {"checkpoint.every", "steps between checkpoints"}}};
  std::string text = "Keys that most runs change, with their defaults:\n";
  for (const auto& [key, words] : kKeys) {
    const Option* const option = find_option(key);
    const bool has_default = option != nullptr && !option->fallback.empty();
    text += fmt::format("  {:<30} {}\n", has_default ? fmt::format("{} = {}", key, option->fallback) : key, words);
  }
  return text + "trident help KEY says more of one; --help-all has all of them.\n\n"
                "Examples:\n"
                "  trident train --config configs/laptop.json --set run.steps=50\n"
                "  mpirun -np 4 --oversubscribe trident train --config configs/laptop.json \\\n"
                "    --set parallel=\"2DP x 2TP\"\n";
}

}  // namespace

void train_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app("Train a model. The ranks are threads of this process, or what mpirun or srun started.", "trident train");
  ConfigFlags flags;
  std::string print_config;
  std::vector<std::string> imports, without;
  add_config_flags(app, flags);
  app.add_option("--import", imports, "another system's file or command, over what --config says: see trident import")
      ->type_name("FILE");
  add_repeatable(app, "--without", without, "with --import: a key or flag that counts for nothing, such as neftune_noise_alpha");
  app.add_flag("--print-config{json}", print_config,
               "print the resolved configuration and end; =origins: with where each value comes from");
  const auto everything = [&context] {
    return launch_help(context.columns) + '\n' + exit_codes_help(context.columns, ExitCodes::kOfTraining) + '\n' +
           options_help(context.columns);
  };
  if (!parse_flags(app, arguments, context, {changed_keys_help, foreign_flag_hint, everything})) return;
  if (!print_config.empty() && print_config != "json" && print_config != "origins")
    throw ConfigError(fmt::format("trident train: --print-config={}: must be json or origins{}", print_config,
                                  name_hint(print_config, {"json", "origins"})));

  if (imports.empty()) refuse_given(app, {"--without"}, "nothing is imported", "add --import FILE");
  if (flags.file.empty() && imports.empty())
    throw ConfigError(
        "trident train: nothing says what to train; give --config FILE (JSON, such as configs/laptop.json), or --import FILE, "
        "another "
        "system's configuration or command (docs/coming_from.md); see trident train --help");

  OptionValues values;
  std::vector<std::string> notes;
  const auto read_config = [&] {
    values = values_of_file(flags);
    Import import;
    if (!imports.empty()) import = import_files(imports, {"", {}, &values, flags.settings, without});
    take_import(values, import);
    values.take_settings(with_stored_model(values, flags.settings));
    check_import(values, import);
    notes = differences(import, imports);
    return make_train_config(values);
  };
  if (print_config.empty()) return train(read_config, notes, context);
  const TrainConfig config = read_config();
  if (print_config == "json") context.out << to_json_text(to_json(config), 2) << '\n';
  else context.out << on_lines(config_with_origins(config, values));
}

}  // namespace trident
