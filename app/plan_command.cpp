// trident plan --config FILE [--set path=value ...] [--ranks N] [--json] [--program]
#include <ostream>

#include "app/command_line.h"
#include "app/flag_answer.h"

namespace trident {
namespace {

constexpr int kMaxRanks = 1 << 24;

}  // namespace

void plan_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Say what a configuration takes, without training: memory of the ranks of every pipeline stage by use, and the bytes that a "
      "step sends over every axis. One rank of each stage is run dry, with addresses in place of memory: no data is read, and this "
      "machine needs neither the memory nor the ranks.",
      "trident plan");
  ConfigFlags flags;
  PlanOptions options;
  add_config_flags(app, flags);
  app.add_option("--ranks", options.ranks, "ranks of the job, where parallel.data is auto");
  app.add_flag("--json", options.json, "print one JSON object, with every allocation");
  app.add_flag("--program", options.program, "add what every pipeline stage does in a step, instruction by instruction");
  if (parse_flags(app, arguments, context.out, {{}, flag_answer, context.columns}) == ParseResult::kHelpPrinted) return;
  if (options.ranks < 0 || options.ranks > kMaxRanks)
    throw ConfigError(fmt::format("--ranks = {}: must be from 1 to {}, or left out", options.ranks, kMaxRanks));
  OptionValues values;
  context.out << context.plan(load_train_config(flags.file, flags.settings, values), options);
}

}  // namespace trident
