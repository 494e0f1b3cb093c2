// trident plan --config FILE [--set path=value ...] [--ranks N] [--json] [--program]
//              [--cluster NAME [--gpus N] [--tokens N] [--csv] [--html FILE] [--trace FILE]]
// trident plan --cases ROWS [--book FOLDER] [--json]
#include <algorithm>
#include <cmath>
#include <ostream>

#include "app/command_line.h"
#include "app/flag_answer.h"
#include "app/named_files.h"
#include "app/plan_search.h"
#include "core/printable.h"
#include "planner/price/cluster.h"
#include "planner/published/plan_cases.h"

namespace trident {
namespace {

bool names(const std::string& argument, std::string_view flag) {
  return argument == flag || argument.starts_with(std::string(flag) + '=');
}

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

// Whatever has no effect on answers to rows.
void refuse_beside_cases(const CLI::App& app) {
  for (const CLI::Option* const option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() > 0 && name != "--cases" && name != "--book" && name != "--json")
      throw ConfigError(fmt::format("--cases: rows bring their own configurations and clusters; leave out {}", name));
  }
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
  std::string cases, book;
  add_config_flags(app, flags);
  app.add_option("--ranks", options.ranks, "ranks of the job, where parallel.data is auto");
  add_cluster_flags(app, options);
  app.add_option("--cases", cases, "instead of a configuration: answer each row of a table of cases (JSON; docs/planner.md)");
  app.add_option("--book", book, "with --cases: a folder with hardware/ and stacks/ in place of the program's (docs/planner.md)");
  app.add_flag("--json", options.json, "print one JSON object, with every allocation; of cases one for each row");
  app.add_flag_callback("--search", [] {}, "find the fastest layouts on a cluster instead: trident plan --search --help");
  app.add_flag("--program", options.program, "add what every pipeline stage does in a step, instruction by instruction");
  const bool asks_cases =
      std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) { return names(argument, "--cases"); });
  CLI::Option* const config = app.get_option("--config")->required(false);
  config->description(config->get_description() + "; needed unless there is --cases");
  if (parse_flags(app, arguments, context.out, {{}, flag_answer, context.columns}) == ParseResult::kHelpPrinted) return;
  if (asks_cases) {
    refuse_beside_cases(app);
    check_named_files(app, {"--cases", "--book"}, {});
    return answer_cases(cases, book, options.json, context.out);
  }
  if (flags.file.empty())
    throw ConfigError("trident plan: --config is required; or name a table with --cases; see trident plan --help");
  if (!book.empty()) throw ConfigError("--book: prices rows of --cases; leave it out");
  if (options.ranks < 0 || options.ranks > kMostGpus)
    throw ConfigError(fmt::format("--ranks = {}: must be from 1 to {}, or left out", options.ranks, kMostGpus));
  check_named_files(app, {"--config", "--cluster"}, {"--html", "--trace"});
  check_cluster_flags(app, options);
  OptionValues values;
  context.out << on_lines(context.plan(load_train_config(flags.file, flags.settings, values), options));
}

}  // namespace trident
