// trident eval --ckpt DIR | --hf DIR --data PREFIX ... [--ids IDS] [--choices FILE]
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <ostream>
#include <set>
#include <sstream>

#include "app/command_line.h"
#include "app/help_text.h"
#include "app/progress_line.h"
#include "core/json_reader.h"
#include "data/tokenizer/token_ids.h"
#include "infer/eval/run_eval.h"

namespace trident {
namespace {

// PREFIX, called by its last part, or NAME=PREFIX.
NamedPrefix named(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return {text.substr(text.find_last_of('/') + 1), text};
  NamedPrefix set{text.substr(0, equals), text.substr(equals + 1)};
  if (set.name.empty() || set.prefix.empty())
    throw ConfigError(fmt::format("--data = {}: must be PREFIX or NAME=PREFIX", in_quotes(text)));
  return set;
}

// Refuses by name what cannot be, and flags that mean nothing without others.
void check(const CLI::App& app, const EvalOptions& options) {
  if (options.checkpoint.empty() == options.hf_folder.empty())
    throw ConfigError("trident eval: no model, or two; give either --ckpt DIR, a checkpoint, or --hf DIR, a Hugging Face folder");
  if (options.hf_folder.empty())
    refuse_given(app, {"--adapter"}, "it is merged into a Hugging Face folder", "name its base in --hf");
  const bool is_bare = options.sets.empty() && !options.ids && !options.choices;  // a run has validation data
  if (is_bare && !options.hf_folder.empty())
    throw ConfigError("trident eval: nothing to evaluate; give --data PREFIX, --ids \"5 17 2\" or --choices FILE");
  std::set<std::string> names;
  for (const NamedPrefix& set : options.sets)
    if (!names.insert(set.name).second)
      throw ConfigError(
          fmt::format("--data: two sets are called {}; name them, as in --data first={}", in_quotes(set.name), set.prefix));
  for (const auto& [name, value] : {std::pair{"--sequence", options.sequence}, {"--stride", options.stride}})
    if (value && *value < 1) throw ConfigError(fmt::format("{} = {}: must be at least 1", name, *value));
  if (options.token_losses && (!options.ids || !options.sets.empty() || options.choices))
    throw ConfigError("--token-losses: prints a number for each of --ids; give those, and neither --data nor --choices");
  if (!options.choices) refuse_given(app, {"--per-question", "--delimiter"}, "there are no questions", "give --choices FILE");
  if (options.sets.empty() && !is_bare) refuse_given(app, {"--per-document"}, "there are no documents", "give --data PREFIX");
  if (options.sets.empty() && !options.ids && !is_bare)
    refuse_given(app, {"--stride"}, "a question is given in one window", "give --data PREFIX or --ids");
}

struct EvalFlags {
  EvalOptions options;
  std::vector<std::string> data;
  std::string ids;
  bool json = false;
};

void add_flags(CLI::App& app, EvalFlags& flags) {
  EvalOptions& options = flags.options;
  app.add_option("--ckpt", options.checkpoint, "a checkpoint's folder, or that of a run's checkpoints, for the newest");
  app.add_option("--hf", options.hf_folder, "in its place a Hugging Face folder: config.json and safetensors");
  app.add_option("--adapter", options.adapter, std::string(kAdapterHelp));
  app.add_option("--tokenizer", options.tokenizer,
                 "for bits per byte and for questions as text; not given: data.tokenizer of its training, or the folder's own");
  app.add_flag("--no-special", options.no_special, "leave out what the tokenizer puts around a text, such as <|begin_of_text|>");
  put_in_group(app, "Model", {"--ckpt", "--hf", "--adapter", "--tokenizer", "--no-special"});
  app.add_option("--data", flags.data,
                 "prefix of .bin and .idx, or NAME=PREFIX; as often as wanted; not given: the validation data of the run");
  app.add_option("--ids", flags.ids, "a text as token ids, \"5 17 2\"");
  app.add_option("--choices", options.choices, "lines {\"context\": ..., \"choices\": [...], \"answer\": 0}");
  app.add_option("--delimiter", options.delimiter, "what stands between a context and a choice; not given: a space");
  app.add_option("--sequence", options.sequence,
                 "tokens that the model is given at a time; not given: batch.sequence of its training, with --hf at most 1024");
  app.add_option("--stride", options.stride, "how far a window begins behind the one before it; not given: --sequence");
  put_in_group(app, "Input", {"--data", "--ids", "--choices", "--delimiter", "--sequence", "--stride"});
  app.add_flag("--per-document", options.per_document, "each document by itself, and a loss for each");
  app.add_flag("--token-losses", options.token_losses, "of --ids: a loss for each token but the first");
  app.add_flag("--per-question", options.per_question, "of --choices: the log-likelihood of every choice");
  app.add_flag("--json", flags.json, "print one JSON object");
  put_in_group(app, "Output", {"--per-document", "--token-losses", "--per-question", "--json"});
  app.add_option("--set", options.settings,
                 "PATH=VALUE, as often as wanted: parallel=\"2DP x 2TP\", batch.micro=4, precision.compute=fp32, ...");
  put_in_group(app, "Machine", {"--set"});
}

}  // namespace

void eval_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "The loss of a checkpoint on token files, or its answers to multiple-choice questions. The ranks are threads of this "
      "process, "
      "or what mpirun or srun started.",
      "trident eval");
  EvalFlags flags;
  add_flags(app, flags);
  const auto example = [] {
    return std::string("Example:\n  trident eval --ckpt runs/a --data corpus/valid --set parallel=\"2DP x 2PP\"\n");
  };
  const auto all = [&] {
    return example() + '\n' + launch_help(context.columns, "trident eval --ckpt D ...") + '\n' +
           exit_codes_help(context.columns, ExitCodes::kOfUse);
  };
  std::exception_ptr wrong;  // which the ranks of a job say once
  try {
    if (!parse_flags(app, arguments, context, {example, {}, all})) return;
    for (const std::string& text : flags.data) flags.options.sets.push_back(named(text));
    if (app.count("--ids") > 0) flags.options.ids = parse_token_ids(flags.ids, "--ids");
    check(app, flags.options);
  } catch (const ConfigError&) {
    wrong = std::current_exception();
  }
  LogSink log(context.err, LogLevel::kInfo, context.dress);
  const auto read = [&] {
    if (wrong) std::rethrow_exception(wrong);
    return flags.options;
  };
  ProgressLine line(context, "eval");
  const auto progress = [&line](std::int64_t done, std::int64_t all) { line.count(done, all, "windows"); };
  const std::optional<EvalReport> report = run_eval(read, log, *context.make_cuda(), progress);
  if (!report) return;  // another process prints
  line.finish();
  if (flags.json) return void(context.out << to_json_text(to_json(*report)) << '\n');
  std::istringstream rows(to_text(*report));
  for (std::string row; std::getline(rows, row);) context.out << shown_line(row, context.console, STDOUT_FILENO) << '\n';
}

}  // namespace trident
