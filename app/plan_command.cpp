// trident plan --config FILE [--set path=value ...] [--ranks N] [--json] [--program]
//              [--cluster NAME [--gpus N] [--tokens N] [--csv] [--html FILE] [--trace FILE]]
#include <cmath>
#include <ostream>

#include "app/command_line.h"
#include "app/foreign_flag_hint.h"
#include "app/path_arguments.h"
#include "app/plan_search.h"
#include "core/printable.h"
#include "planner/price/cluster.h"

namespace trident {
namespace {

void add_cluster_flags(CLI::App& app, PlanOptions& options) {
  ClusterQuestion& question = options.question;
  app.add_option("--cluster", question.cluster,
                 "price a step on GPUs or processors that need not be here: a name like h100_sxm_ndr, cpu, or the path of a file "
                 "(docs/planner.md)");
  app.add_option("--gpus", question.gpus,
                 "with --cluster: GPUs of the job (of processors: ranks); parallel.data becomes what they make of it");
  app.add_option("--tokens", question.tokens, "with --cluster: say what training on so many tokens takes; else those of run.steps");
  app.add_flag("--csv", options.csv, "with --cluster: print one table of all numbers, with commas");
  app.add_option("--html", question.html, "with --cluster: write a report to look at in a browser, in one file");
  app.add_option("--trace", question.trace, "with --cluster: write the simulated step as a trace for ui.perfetto.dev");
}

void check_cluster_flags(const CLI::App& app, const PlanOptions& options) {
  if (options.question.cluster.empty()) {
    for (const char* flag : {"--gpus", "--tokens", "--csv", "--html", "--trace"})
      if (app.count(flag) > 0) throw ConfigError(fmt::format("{}: needs a cluster to price a step on; add --cluster NAME", flag));
    return;
  }
  if (options.ranks != 0) throw ConfigError("--ranks: with --cluster say how many GPUs there are; write --gpus instead");
  if (options.csv && options.json) throw ConfigError("--csv: is another form of what --json prints; leave one of them out");
  if (app.count("--gpus") > 0 && (options.question.gpus < 1 || options.question.gpus > kMostGpus))
    throw ConfigError(fmt::format("--gpus = {}: must be from 1 to {}, or left out", options.question.gpus, kMostGpus));
  if (app.count("--tokens") > 0 && !(options.question.tokens >= 1 && options.question.tokens <= 1e18))
    throw ConfigError(fmt::format("--tokens = {}: must be from 1 to 1e18, or left out", options.question.tokens));
}

}  // namespace

void plan_command(const Arguments& arguments, const CommandContext& context) {
  if (asks_search(arguments)) return plan_search(arguments, context);
  CLI::App app(
      "Say what a configuration takes, without training: memory of the ranks of every pipeline stage by use, and the bytes that a "
      "step sends over every axis. One rank of each stage is run dry, with addresses in place of memory: no data is read, and this "
      "machine needs neither the memory nor the ranks. With --cluster also the time of a step by part, what bounds it, and what "
      "would make it fit or faster.",
      "trident plan");
  ConfigFlags flags;
  PlanOptions options;
  add_config_flags(app, flags);
  app.add_option("--ranks", options.ranks, "ranks of the job, where parallel.data is auto");
  add_cluster_flags(app, options);
  const auto refuse_cases = [](const std::string& rows) {
    throw ConfigError(fmt::format("--cases: another program answers tables of published runs; run trident_cases {}, which is built "
                                  "with the tests", rows));
  };
  app.add_option_function<std::string>("--cases", refuse_cases)->group("");
  app.add_flag("--json", options.json, "print one JSON object, with every allocation");
  app.add_flag_callback("--search", [] {}, "find the fastest layouts on a cluster instead: trident plan --search --help");
  app.add_flag("--program", options.program, "add what every pipeline stage does in a step, instruction by instruction");
  if (parse_flags(app, arguments, context.out, {{}, foreign_flag_hint, context.columns}) == ParseResult::kHelpPrinted) return;
  if (options.ranks < 0 || options.ranks > kMostGpus)
    throw ConfigError(fmt::format("--ranks = {}: must be from 1 to {}, or left out", options.ranks, kMostGpus));
  check_named_files(app, {"--config", "--cluster"}, {"--html", "--trace"});
  check_cluster_flags(app, options);
  OptionValues values;
  context.out << on_lines(context.plan(load_train_config(flags.file, flags.settings, values), options));
}

}  // namespace trident
