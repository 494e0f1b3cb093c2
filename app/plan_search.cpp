#include "app/plan_search.h"

#include <algorithm>
#include <ostream>

#include "app/command_line.h"
#include "app/foreign_flag_hint.h"
#include "app/path_arguments.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/printable.h"

namespace trident {
namespace {

constexpr int kMostSearchedGpus = 1 << 20;  // fewer than are planned: what is tried grows with them
constexpr int kMostReported = 100;

void check(const CLI::App& app, const SearchOptions& options) {
  if (options.cluster.empty()) throw ConfigError("--search: for which GPUs? Name a cluster: --cluster h100_sxm_ndr, or its file");
  if (app.count("--gpus") == 0) throw ConfigError("--gpus: missing; write --gpus N, how many GPUs the search is for");
  if (options.gpus < 1 || options.gpus > kMostSearchedGpus)
    throw ConfigError(fmt::format("--gpus = {}: how many GPUs the search is for, from 1 to {}", options.gpus, kMostSearchedGpus));
  if (options.best < 1 || options.best > kMostReported)
    throw ConfigError(fmt::format("--best = {}: must be from 1 to {}", options.best, kMostReported));
}

}  // namespace

bool asks_search(const Arguments& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) { return argument == "--search"; });
}

void plan_search(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Find the fastest layouts of a model on a cluster: degrees, schedule, virtual stages, micro-batch, ZeRO preset, "
      "recomputation. The configuration names the model, the precision, the global batch and the sequence length; its own layout "
      "does not count.",
      "trident plan --search");
  ConfigFlags flags;
  SearchOptions options;
  std::string write;
  bool search = false;
  add_config_flags(app, flags);
  app.add_flag("--search", search, "look for layouts (docs/planner.md)");
  // Required, but refused by check(): it says what to write.
  app.add_option("--cluster", options.cluster, "a cluster by name, or the path of its file")->type_name("NAME|FILE REQUIRED");
  app.add_option("--gpus", options.gpus, "how many GPUs of it")->type_name("INT REQUIRED");
  app.add_option("--best", options.best, "how many layouts to show")->capture_default_str();
  app.add_option("--write", write, "write the configuration with the best layout to this file, as trident train takes it");
  app.add_flag("--json", options.json, "print one JSON object");
  if (parse_flags(app, arguments, context.out, {{}, foreign_flag_hint, context.columns}) == ParseResult::kHelpPrinted) return;
  check_named_files(app, {"--config", "--cluster"}, {"--write"});
  check(app, options);
  OptionValues values;
  const SearchAnswer answer = context.search(load_train_config(flags.file, flags.settings, values), options);
  context.out << answer.text;
  if (write.empty()) return;
  write_file(write, to_json_text(to_json(answer.best), 2) + '\n');
  if (!options.json) context.out << "\nwritten: " << on_one_line(write) << '\n';
}

}  // namespace trident
