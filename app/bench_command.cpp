// trident bench --config FILE [--set path=value ...] [--device auto|cpu|cuda] [--json]
#include <ostream>

#include "app/command_line.h"
#include "app/flag_answer.h"

namespace trident {

void bench_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Measure what this machine reaches (products, copies, collectives), and where the time of one training step goes, beside the "
      "least that "
      "the same work could take here. One rank, random tokens, whatever layout the configuration has; no data is read. Under mpirun also "
      "the rates of collectives between the processes.",
      "trident bench");
  ConfigFlags flags;
  std::string device;
  BenchOptions options;
  bool json = false;
  add_config_flags(app, flags);
  app.add_option("--device", device, "auto, cpu or cuda, in place of the configuration's");
  app.add_option("--seconds", options.seconds, "time for each rate")->capture_default_str();
  app.add_option("--steps", options.steps, "steps of training; the median counts")->capture_default_str();
  app.add_option("--ranks", options.collective_ranks, "ranks of the collectives, threads of this process")->capture_default_str();
  app.add_flag("--json", json, "print one JSON object");
  if (parse_flags(app, arguments, context.out, {{}, flag_answer, context.columns}) == ParseResult::kHelpPrinted) return;
  if (!(options.seconds >= 0 && options.seconds <= 60))
    throw ConfigError(fmt::format("--seconds = {}: must be from 0 to 60", options.seconds));
  if (options.steps < 1 || options.steps > 1000)
    throw ConfigError(fmt::format("--steps = {}: must be from 1 to 1000", options.steps));
  if (options.collective_ranks < 1 || options.collective_ranks > 64)
    throw ConfigError(fmt::format("--ranks = {}: must be from 1 to 64", options.collective_ranks));

  if (!device.empty()) flags.settings.push_back("device=" + device);
  OptionValues values;
  const std::optional<BenchReport> report = context.run_bench(load_train_config(flags.file, flags.settings, values), options);
  if (!report) return;
  context.out << (json ? to_json_text(to_json(*report)) + '\n' : to_text(*report));
}

}  // namespace trident
