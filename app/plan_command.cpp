// trident plan --config FILE [--set path=value ...] [--ranks N] [--json] [--program]
// trident plan cluster NAME --config FILE [--gpus N] [--tokens N] [--json | --csv] [--program] [--html FILE] [--trace FILE]
// trident plan search NAME --config FILE --gpus N [--best N] [--write FILE] [--html FILE] [--json]
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <ostream>
#include <system_error>

#include "app/command_line.h"
#include "app/foreign_flag_hint.h"
#include "app/path_arguments.h"
#include "app/progress_line.h"
#include "core/at.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "core/nearest_name.h"
#include "core/printable.h"
#include "core/shell_word.h"
#include "planner/predict/plan_on_cluster.h"
#include "planner/price/cluster.h"
#include "planner/search/layout_costs.h"
#include "planner/search/search_text.h"
#include "train/launch/prepare_run.h"
#include "train/run/stored_model.h"

namespace trident {
namespace {

constexpr int kMostSearchedGpus = 1 << 20;  // fewer than are planned: what is tried grows with them
constexpr int kMostReported = 100;

bool has_flag(const Arguments& arguments, const std::string& flag) {
  return std::ranges::any_of(arguments, [&](const std::string& it) { return it == flag || it.starts_with(flag + '='); });
}

// "300B" becomes "300e9".
std::string in_digits(std::string& count) {
  constexpr std::string_view kLetters = "KMBT";
  const std::string digits = count.substr(0, count.find_first_not_of("0123456789."));
  if (digits.empty() || digits.size() + 1 != count.size()) return "";
  const std::size_t at = kLetters.find(static_cast<char>(std::toupper(count.back())));
  if (at != kLetters.npos) count = fmt::format("{}e{}", digits, 3 * (at + 1));
  return "";
}

PlanDetail detail_of(bool program) { return program ? PlanDetail::kProgram : PlanDetail::kSums; }

TrainConfig read_config(const CLI::App& app, const ConfigFlags& flags) {
  OptionValues values = values_of_config(app, flags);
  return with_facts_of_files(config_to_plan(values, flags.settings));
}

// Whether `settings` have the key of `given`, too; the degrees stand in them as "parallel=2DP x 1PP x 4TP".
bool is_said_again(const std::string& given, const std::vector<std::string>& settings) {
  const auto key_of = [](const std::string& setting) { return setting.substr(0, setting.find('=')); };
  std::string key = key_of(given);
  if (given.starts_with("parallel={")) return false;  // says other keys as well
  if (key == "parallel.data" || key == "parallel.pipeline" || key == "parallel.tensor") key = "parallel";
  return std::ranges::count(settings, key, key_of) > 0;
}

// "runs/a", or "runs/a-2" where that is there: a start in the folder of another run would go on with that one.
std::string new_folder(const std::string& folder) {
  std::string free = folder;
  std::error_code unseen;  // of another user's folder, say
  for (int n = 2; std::filesystem::exists(free, unseen); ++n) free = fmt::format("{}-{}", folder, n);
  return free;
}

// The command that trains a configuration in a folder of its own, with words that a user replaces where it does not say enough.
std::string command_to_train(const ConfigFlags& flags, const OptionValues& values, int nodes, int gpus_per_node) {
  const auto is_given = [&](const char* key) { return values.at(key).origin != OptionValue().origin; };
  std::vector<std::string> settings = flags.settings;
  const std::string asked = is_given("run.dir") ? values.at("run.dir").value.as_string()
                                                : fmt::format("runs/{}", std::filesystem::path(flags.file).stem().string());
  const std::string folder = new_folder(asked);
  if (!is_given("run.dir") || folder != asked) {
    std::erase_if(settings, [](const std::string& given) { return given.starts_with("run.dir="); });
    settings.push_back("run.dir=" + folder);
  }
  const JsonValue& saves = values.at("checkpoint.dir").value;
  if (std::error_code unseen; saves.is_string() && std::filesystem::exists(saves.as_string(), unseen)) {
    std::erase_if(settings, [](const std::string& given) { return given.starts_with("checkpoint.dir="); });
    settings.push_back(fmt::format("checkpoint.dir={}/ckpt", folder));
  }
  if (!is_given("data.train")) settings.emplace_back("data.train=PREFIX");
  if (!is_given("run.steps") && !is_given("run.epochs")) settings.emplace_back("run.steps=N");
  std::string command = fmt::format("trident train --config {}", for_shell(flags.file));
  if (nodes > 1) command = fmt::format("{} {}", sbatch_start(nodes, gpus_per_node), for_shell(flags.file));
  for (const std::string& setting : settings) command += " --set " + for_shell(setting);
  return command;
}

}  // namespace

void plan_command(const Arguments& arguments, const CommandContext& context) {
  if (has_flag(arguments, "--search")) {  // as these two were spelled at first
    Arguments rest = arguments;
    std::erase(rest, "--search");
    return plan_search_command(rest, context);
  }
  if (has_flag(arguments, "--cluster")) return plan_cluster_command(arguments, context);
  CLI::App app(
      "Say what a configuration takes, without training: memory of the ranks of every pipeline stage by use, and the bytes that a "
      "step sends over every axis. One rank of each stage is run dry, with addresses in place of memory: no data is read, and this "
      "machine needs neither the memory nor the ranks. trident plan cluster also says the time of a step by part, what bounds it, "
      "and what would make it fit or faster; trident plan search finds the fastest layouts.",
      "trident plan");
  ConfigFlags flags;
  int ranks = 0;
  bool json = false, program = false;
  add_config_flags(app, flags);
  in_range(app.add_option("--ranks", ranks, "ranks of the job, where parallel.data is auto"), 1, kMostGpus);
  app.add_flag("--json", json, "print one JSON object, with every allocation");
  app.add_flag("--program", program, "add what every pipeline stage does in a step, instruction by instruction");
  app.add_flag_callback("--cluster", [] {}, "--cluster NAME: as trident plan cluster NAME");
  app.add_flag_callback("--search", [] {}, "as trident plan search");
  const auto instead = [](const std::string& argument, const std::string& next) {
    for (const char* const flag : {"--gpus", "--tokens", "--csv", "--html", "--trace"})
      if (has_flag({argument}, flag))
        throw ConfigError(fmt::format("{}: needs a cluster to price a step on; add --cluster NAME{}", flag,
                                      std::string_view(flag) == "--gpus" ? ", or write --ranks for memory and traffic alone" : ""));
    if (argument == "--cases")
      throw ConfigError(fmt::format("--cases: another program answers tables of published runs; run trident_cases {}, which is "
                                    "built with the tests", next));
    if (const auto near = likely_name(argument, {"cluster", "search"}); !near.empty())
      return fmt::format("did you mean trident plan {}?", near);
    return foreign_flag_hint(argument, next);
  };
  if (!parse_flags(app, arguments, context, {{}, instead})) return;
  check_named_files(app, {"--config"}, {});
  const TrainConfig config = read_config(app, flags);
  const DryPlan planned = plan_run(config, ranks, *context.make_cuda());
  context.out << (json ? on_lines(to_json_text(to_json(planned, detail_of(program))) + '\n')
                       : on_screen(to_text(planned, detail_of(program), context.table_columns()), context));
}

void plan_cluster_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Price a step of a configuration on GPUs or processors that need not be here: whether it fits, memory and time by part, what "
      "bounds it, and what would make it fit or faster. docs/planner.md explains it.",
      "trident plan cluster");
  ConfigFlags flags;
  ClusterQuestion question;
  std::string html;
  bool json = false, csv = false, program = false;
  add_config_flags(app, flags);
  app.add_option("NAME,--cluster", question.cluster,
                 "a name like h100_sxm_ndr, this-machine, cpu, or the path of a file; required, as NAME or --cluster");
  in_range(app.add_option("--gpus", question.gpus,
                          "GPUs of the job (of processors: ranks); parallel.data becomes what they make of it"), 1, kMostGpus);
  in_range(app.add_option("--tokens", question.tokens,
                          "say what training on so many tokens takes, as 300e9 or 300B; else those of run.steps")
               ->transform(CLI::Validator(in_digits, "")), 1, 1e18);
  app.add_flag("--json", json, "print one JSON object, with every allocation");
  app.add_flag("--csv", csv, "print one table of all numbers, with commas");
  app.add_flag("--program", program, "add what every pipeline stage does in a step, instruction by instruction");
  app.add_option("--html", html, "write a report to look at in a browser, in one file");
  app.add_option("--trace", question.trace, "write the simulated step as a trace for ui.perfetto.dev");
  const auto instead = [](const std::string& argument, const std::string& next) {
    if (has_flag({argument}, "--ranks"))
      throw ConfigError("--ranks: with --cluster say how many GPUs there are; write --gpus instead");
    return foreign_flag_hint(argument, next);
  };
  if (!parse_flags(app, arguments, context, {{}, instead})) return;
  check_named_files(app, {"--config", "--cluster"}, {"--html", "--trace"});
  if (csv && json) throw ConfigError("--csv: is another form of what --json prints; leave one of them out");
  const PlanForm form = json ? PlanForm::kJson : csv ? PlanForm::kCsv : PlanForm::kText;
  question.columns = context.table_columns();
  if (!html.empty()) question.take_page = [&](ReportPage page) { write_page(html, std::move(page), app, arguments); };
  const std::string answer = plan_on_cluster(read_config(app, flags), question, detail_of(program), form);
  context.out << (form == PlanForm::kText
                      ? on_screen(answer, context) + files_text({{html, "a browser"}, {question.trace, "ui.perfetto.dev"}})
                      : on_lines(answer));
}

void plan_search_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Find the fastest layouts of a model on a cluster: degrees, schedule, virtual stages, micro-batch, ZeRO preset, "
      "recomputation. The configuration names the model, the precision, the global batch and the sequence length; its own layout "
      "does not count; a key of it that --set gives is kept in every layout. docs/planner.md explains it.",
      "trident plan search");
  ConfigFlags flags;
  std::string cluster, write, html;
  int gpus = 0, best = 10, rank = 1;
  bool json = false;
  add_config_flags(app, flags);
  app.add_option("NAME,--cluster", cluster,
                 "a cluster by name like h100_sxm_ndr, this-machine, cpu, or the path of its file; required, as NAME or --cluster");
  in_range(app.add_option("--gpus", gpus,
                          "how many GPUs of it, required; of processors: ranks, or else 1, 2, 4 and so on up to the cores"),
           1, kMostSearchedGpus);
  in_range(app.add_option("--best", best, "how many layouts to show")->capture_default_str(), 1, kMostReported);
  app.add_option("--write", write,
                 "write what --config and --set say, with the best layout, to this file, as trident train takes it");
  in_range(app.add_option("--rank", rank, "with --write: of the layout with this number, in place of the best"), 1, kMostReported);
  app.add_option("--html", html, "write a page to look at in a browser, in one file");
  app.add_flag("--json", json, "print one JSON object");
  if (!parse_flags(app, arguments, context, {{}, foreign_flag_hint})) return;
  check_named_files(app, {"--config", "--cluster"}, {"--write", "--html"});
  if (write.empty()) refuse_given(app, {"--rank"}, "no configuration is written", "add --write FILE");
  OptionValues values = values_of_config(app, flags);
  take_to_plan(values, flags.settings);
  SearchRequest request{.config = with_facts_of_files(config_to_search(values)),
                        .held = held_keys(values),
                        .gpus = gpus,
                        .keep = static_cast<std::size_t>(best)};
  request.processors = find_processors(cluster);
  if (!request.processors) {
    request.cluster = find_cluster(shipped_price_book(), cluster);
    if (gpus == 0) throw ConfigError("--gpus: missing; write --gpus N, how many GPUs the search is for");
  }
  ProgressLine line(context, "plan search");
  request.progress = [&line](std::string_view what, std::int64_t done, std::int64_t all) {
    if (all > 0) return line.count(done, all, std::string(what));
    line.update(done, all, fmt::format("{} {}", done, what));
  };
  const SearchResult found = search_layouts(request);
  line.finish();
  const auto shown = static_cast<int>(found.best.size());
  if (rank > shown)
    throw ConfigError(fmt::format(
        "--rank = {}: only {} shown; give another, or {}", rank, counted(shown, "layout is", "layouts are"),
        shown == best ? "a larger --best" : "choose among variations with --set, such as parallel.zero=zero1"));
  if (!html.empty()) write_page(html, page_of(found), app, arguments);
  context.out << (json ? to_json_text(to_json(found)) + '\n'
                       : on_screen(to_text(found, rank, context.table_columns()), context) + files_text({{html, "a browser"}}));
  if (!write.empty()) {
    const TrainConfig chosen = config_to_plan(values, at(found.best, rank - 1).settings);
    write_file(write, to_json_text(given_to_json(chosen, values), 2) + '\n');
    flags = {.file = write, .settings = {}};
  } else if (!found.best.empty()) {
    const std::vector<std::string>& more = found.best.front().settings;
    std::erase_if(flags.settings, [&](const std::string& given) { return is_said_again(given, more); });
    std::ranges::copy(more, std::back_inserter(flags.settings));
  }
  if (json || found.best.empty()) return;
  const int nodes = request.processors ? 1 : gpus / request.cluster.gpus_per_node;
  const std::string command = flags.file.empty() ? "add --write FILE: trident train takes it"
                                                 : command_to_train(flags, values, nodes, request.cluster.gpus_per_node);
  context.out << fmt::format("\n{}:\n  {}\n",
                             write.empty() ? "to train layout 1" : fmt::format("written: {}; to train it", on_one_line(write)),
                             on_one_line(command));
}

}  // namespace trident
