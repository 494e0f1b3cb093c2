#include "app/subcommands.h"

#include <algorithm>
#include <exception>
#include <new>
#include <ostream>

#include "core/json_reader.h"
#include "core/nearest_name.h"
#include "core/printable.h"
#include "core/version.h"

namespace trident {
namespace {

std::string nearest_subcommand(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Subcommand& command : subcommands()) names.push_back(command.name);
  const std::string_view near = likely_name(name, names);
  return near.empty() ? "see trident help" : fmt::format("did you mean {}?", near);
}

void dispatch(const Arguments& arguments, const CommandContext& context) {
  if (arguments.empty()) throw ConfigError("no subcommand; see trident help");
  const std::string& name = arguments.front();
  if (name == "--version") {
    context.out << "trident " << kVersion << '\n';
    return;
  }
  if (name == "--help" || name == "-h") return help_command({}, context);
  const Subcommand* found = find_subcommand(name);
  if (found == nullptr) throw ConfigError(fmt::format("unknown subcommand {}; {}", in_quotes(name), nearest_subcommand(name)));
  if (found->run == nullptr) throw ConfigError(fmt::format("subcommand {} is not built yet; see trident help for what is", name));
  found->run(Arguments(arguments.begin() + 1, arguments.end()), context);
}

// Foreign text in a message must neither break the line nor reach the terminal as control codes. std::cerr writes what it is
// given at once: a line in pieces would be mixed with another rank's.
int report(std::ostream& err, std::string_view message, ExitCode code) {
  err << fmt::format("trident: {}\n", on_one_line(message)) << std::flush;
  return static_cast<int>(code);
}

}  // namespace

const std::vector<Subcommand>& subcommands() {
  static const std::vector<Subcommand> table = {
      {.name = "train", .summary = "train a model", .run = train_command},
      {.name = "report", .summary = "one page about runs: curves, texts, steps, memory, configuration", .run = report_command},
      {.name = "supervise", .summary = "run trident train, and start it again when a rank died", .run = supervise_command},
      {.name = "plan", .summary = "predict time, memory and traffic; search layouts", .run = plan_command},
      {.name = "study", .summary = "compare settings and numbers of GPUs: scaling tables", .run = study_command},
      {.name = "data",
       .summary = "prepare, inspect and merge token files",
       .run = data_command,
       .actions = {"prepare", "inspect", "merge"}},
      {.name = "tokenizer", .summary = "train a tokenizer, encode, decode"},
      {.name = "convert", .summary = "Hugging Face folders to checkpoints and back", .run = convert_command},
      {.name = "ckpt",
       .summary = "list, show, verify, compare and remove checkpoints",
       .run = ckpt_command,
       .actions = {"ls", "show", "verify", "diff", "prune"}},
      {.name = "eval", .summary = "loss of a checkpoint on data, and its answers to questions", .run = eval_command},
      {.name = "generate", .summary = "let a model continue texts", .run = generate_command},
      {.name = "bench", .summary = "measure this machine, and where the time of a step goes", .run = bench_command},
      {.name = "schema", .summary = "print the configuration's JSON Schema", .run = schema_command},
      {.name = "help", .summary = "explain a subcommand or a key of the configuration", .run = help_command},
      {.name = "completion",
       .summary = "print what lets bash, zsh or fish complete commands and keys",
       .run = completion_command,
       .actions = {"bash", "zsh", "fish"}},
      {.name = "docs",
       .summary = "print pages of docs/",
       .run = docs_command,
       .actions = {"configuration", "megatron-flags", "timeline"}},
  };
  return table;
}

const Subcommand* find_subcommand(std::string_view name) {
  const auto found =
      std::find_if(subcommands().begin(), subcommands().end(), [&](const Subcommand& command) { return command.name == name; });
  return found == subcommands().end() ? nullptr : &*found;
}

int run_command_line(const Arguments& arguments, const CommandContext& context, std::ostream& err) {
  try {
    dispatch(arguments, context);
    context.out.flush();
    if (!context.out) throw StorageError("standard output cannot be written; check where it goes");
    return exit_status(ExitCode::kOk);
  } catch (const ReportedElsewhere& error) {
    return exit_status(error.code());
  } catch (const Error& error) {
    return report(err, error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return report(err, "out of memory; use a smaller model, micro-batch or sequence, or more ranks", ExitCode::kInternal);
  } catch (const std::exception& error) {
    return report(err, fmt::format("internal error: {}; this is a bug in trident, please report it with the config", error.what()),
                  ExitCode::kInternal);
  }
}

}  // namespace trident
