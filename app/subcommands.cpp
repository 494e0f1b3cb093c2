#include "app/subcommands.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <ostream>
#include <utility>

#include "app/foreign_flag_hint.h"
#include "app/version_text.h"
#include "core/json_reader.h"
#include "core/nearest_name.h"
#include "core/printable.h"
#include "import/text_limits.h"

namespace trident {
namespace {

// Commands of ours, and what other programs call them, or, behind a dot, their actions.
constexpr std::pair<std::string_view, std::string_view> kOtherCommands[] = {
    {"train", "pretrain finetune fine-tune fit sft dpo lora run launch resume accelerate torchrun deepspeed"},
    {"generate", "inference infer complete sample serve"},
    {"generate --chat --ckpt RUN, or --hf FOLDER,", "chat"},
    {"eval", "evaluate lm_eval lm-eval perplexity"},
    {"report RUN", "plot log logs status monitor watch tensorboard wandb mlflow"},
    {"report RUN RUN", "compare"},
    {"data prepare", "preprocess tokenize data.preprocess data.tokenize data.import data.encode"},
    {"data merge", "data.concat data.join"},
    {"data inspect", "data.info data.show data.stats"},
    {"convert", "merge merge-weights ckpt.merge ckpt.convert"},
    {"convert --from ckpt RUN --to hf FOLDER", "export ckpt.export"},
    {"ckpt ls", "checkpoint checkpoints ckpt.list"},
    {"ckpt diff", "ckpt.compare"},
    {"ckpt show", "ckpt.info ckpt.inspect"},
    {"plan", "estimate estimate-memory"},
    {"plan search", "search autotune"},
    {"train, or trident plan search for a layout,", "tune"},
    {"--version", "version env info"},
    {"tokenizer show", "tokenizer.info"},
    {"tokenizer render", "tokenizer.apply"},
};

// "trident data prepare" of "data.tokenize"; "": no other program's word.
std::string other_command(std::string_view word) {
  for (const auto& [ours, theirs] : kOtherCommands)
    if (is_listed(word, theirs)) return fmt::format("trident {}", ours);
  return "";
}

std::string nearest_subcommand(std::string_view name) {
  if (const std::string ours = other_command(name); !ours.empty()) return fmt::format("that is {0} here; see trident help", ours);
  if (const std::string hint = foreign_flag_hint(std::string(name), ""); !hint.empty() && !name.starts_with('-'))
    return fmt::format("trident train takes such a file: {}", hint);
  std::string actions;  // "verify"
  for (const Subcommand& command : subcommands())
    for (const Subcommand::Action& action : command.actions)
      if (action.name == name) actions += fmt::format("{}trident {} {}", actions.empty() ? "" : " or ", command.name, name);
  if (!actions.empty()) return fmt::format("did you mean {}?", actions);
  std::vector<std::string_view> names{"--version", "--help"};
  for (const Subcommand& command : subcommands()) names.push_back(command.name);
  const std::string_view near = likely_name(name, names);
  return near.empty() ? "see trident help" : fmt::format("did you mean {}?", near);
}

// --color WORD and --color=WORD, wherever they stand before "--": what follows that is another command's.
void take_color(Arguments& arguments, Color& color) {
  constexpr std::array<std::pair<std::string_view, Color>, 3> kWords{
      {{"auto", Color::kAuto}, {"always", Color::kAlways}, {"never", Color::kNever}}};
  constexpr std::string_view kFlag = "--color";
  for (auto at = arguments.begin(); at != arguments.end() && *at != "--";) {
    if (*at != kFlag && !at->starts_with("--color=")) {
      ++at;
      continue;
    }
    const bool apart = *at == kFlag;
    const std::string word = !apart ? at->substr(kFlag.size() + 1) : at + 1 != arguments.end() ? at[1] : "";
    const auto found = std::ranges::find(kWords, word, &std::pair<std::string_view, Color>::first);
    if (found == kWords.end())
      throw ConfigError(fmt::format("--color: {} is none of its words; say auto, always or never", in_quotes(word)));
    color = found->second;
    at = arguments.erase(at, at + (apart ? 2 : 1));
  }
}

void dispatch(Arguments arguments, const CommandContext& context) {
  Color color = Color::kAuto;
  take_color(arguments, context.color != nullptr ? *context.color : color);
  if (arguments.empty()) {
    help_command({}, {context.err, context.err, {}, ConsoleMode::kPlain, context.columns});
    throw ReportedElsewhere(ExitCode::kConfig, "no subcommand");
  }
  const std::string& name = arguments.front();
  if (name == "--version") {
    context.out << version_text();
    return;
  }
  if (name == "--help" || name == "-h") return help_command({}, context);
  const Subcommand* found = find_subcommand(name);
  if (found == nullptr) throw ConfigError(fmt::format("unknown subcommand {}; {}", in_quotes(name), nearest_subcommand(name)));
  run_subcommand(*found, Arguments(arguments.begin() + 1, arguments.end()), context);
}

// "prepare, inspect, merge or pack".
std::string names_of(const std::vector<Subcommand::Action>& actions) {
  std::vector<std::string_view> names;
  for (const Subcommand::Action& action : actions) names.push_back(action.name);
  const std::string_view last = names.back();
  names.pop_back();
  return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

// Foreign text in a message must neither break the line nor reach the terminal as control codes. std::cerr writes what it is
// given at once: a line in pieces would be mixed with another rank's.
int report(std::ostream& err, const LogSink::Dress& dress, std::string_view message, ExitCode code) {
  std::string line = fmt::format("trident: {}", on_one_line(message));
  for (std::size_t at = 0; (at = line.find("; also ", at)) != line.npos; ++at)
    line.replace(at, 1, ";\n ");  // a line for each fault
  err << (dress ? dress(LogLevel::kError, line) : line) + '\n' << std::flush;
  return static_cast<int>(code);
}

}  // namespace

const std::vector<Subcommand>& subcommands() {
  static const std::vector<Subcommand> table = {
      {.name = "train", .summary = "train a model", .run = train_command},
      {.name = "report", .summary = "one page about runs: curves, texts, steps, memory, configuration", .run = report_command},
      {.name = "supervise", .summary = "run trident train, and start it again when a rank died", .run = supervise_command},
      {.name = "plan",
       .summary = "predict time, memory and traffic; search layouts",
       .run = plan_command,
       .actions = {{.name = "cluster", .run = plan_cluster_command}, {.name = "search", .run = plan_search_command}}},
      {.name = "import",
       .summary = "take over configurations and commands of other systems",
       .run = import_command},
      {.name = "study", .summary = "compare settings and numbers of GPUs: scaling tables", .run = study_command},
      {.name = "data",
       .summary = "prepare, inspect, merge and pack token files",
       .actions = {{"prepare", "--input F... --tokenizer T --output PREFIX", "text to token files", data_prepare_command},
                   {"inspect", "PREFIX", "what token files hold", data_inspect_command},
                   {"merge", "--input PREFIX... --output PREFIX", "several token files to one", data_merge_command},
                   {"pack", "PREFIX... --sequence T --output PREFIX", "sequences to packs of T tokens", data_pack_command}}},
      {.name = "tokenizer",
       .summary = "text to token ids and back; show and compare tokenizers",
       .actions = {{"encode", "[--tokenizer T] [FILE|-]", "the ids of each line", tokenizer_encode_command},
                   {"decode", "[--tokenizer T] [FILE|-]", "the text of each line of ids", tokenizer_decode_command},
                   {"show", "[--tokenizer T] [FILE]", "what it does to a text", tokenizer_show_command},
                   {"render", "--messages F", "the text that a chat template makes", tokenizer_render_command},
                   {"diff", "A B", "whether two give the same ids: 0 they do, 1 a text differs", tokenizer_diff_command}}},
      {.name = "convert", .summary = "Hugging Face folders to checkpoints and back", .run = convert_command},
      {.name = "ckpt",
       .summary = "checkpoints: ls, show, verify, diff and prune",
       .actions = {{"ls", "DIR", "which checkpoints a folder has, and whether their files are there", ckpt_ls_command},
                   {"show", "DIR[/STEP]", "what one holds: state of training, tensors", ckpt_show_command},
                   {"verify", "DIR[/STEP]", "read every byte of one, or of all in DIR, and compare hashes", ckpt_verify_command},
                   {"diff", "A B", "compare two, whatever layouts wrote them: 0 equal, 1 different", ckpt_diff_command},
                   {"prune", "DIR [--keep-last N] [--keep-every N] [--dry-run]",
                    "remove those that a run with its rules would", ckpt_prune_command}}},
      {.name = "eval", .summary = "loss of a checkpoint on data, and its answers to questions", .run = eval_command},
      {.name = "generate", .summary = "let a model continue texts", .run = generate_command},
      {.name = "bench", .summary = "measure this machine, and where the time of a step goes", .run = bench_command},
      {.name = "schema", .summary = "print the configuration's JSON Schema", .run = schema_command},
      {.name = "help", .summary = "explain a subcommand or a key of the configuration", .run = help_command},
      {.name = "completion",
       .summary = "print what lets bash, zsh or fish complete commands and keys",
       .run = completion_command,
       .actions = {{"bash"}, {"zsh"}, {"fish"}}},
      {.name = "docs",
       .summary = "print pages of docs/",
       .run = docs_command,
       .actions = {{"configuration"}, {"coming-from"}, {"timeline"}}},
  };
  return table;
}

const Subcommand* find_subcommand(std::string_view name) {
  const auto found = std::ranges::find(subcommands(), name, &Subcommand::name);
  return found == subcommands().end() ? nullptr : &*found;
}

void run_subcommand(const Subcommand& command, const Arguments& arguments, const CommandContext& context) {
  const std::string word = arguments.empty() ? "" : arguments.front();
  const auto action = std::ranges::find(command.actions, word, &Subcommand::Action::name);
  if (action != command.actions.end() && action->run != nullptr)
    return action->run(Arguments(arguments.begin() + 1, arguments.end()), context);
  if (command.run != nullptr) return command.run(arguments, context);
  if (word == "--help" || word == "-h") {
    for (const Subcommand::Action& it : command.actions)
      context.out << fmt::format("{:<6} trident {} {} {}\n           {}\n", &it == &command.actions.front() ? "usage:" : "",
                                 command.name, it.name, it.arguments, it.summary);
    context.out << fmt::format("\ntrident {} {} --help and so on say more.\n", command.name, command.actions.front().name);
    return;
  }
  const std::string names = fmt::format("{} (see trident {} --help)", names_of(command.actions), command.name);
  if (arguments.empty()) throw ConfigError(fmt::format("trident {}: no action; name one: {}", command.name, names));
  std::vector<std::string_view> actions;
  for (const Subcommand::Action& it : command.actions) actions.push_back(it.name);
  const std::string ours = other_command(fmt::format("{}.{}", command.name, word));
  throw ConfigError(fmt::format("trident {} {}: {}; use {}{}", command.name, in_quotes(word),
                                word.starts_with('-') ? "a flag, not an action" : "not an action", names,
                                ours.empty() ? name_hint(word, actions) : fmt::format("; that is {} here", ours)));
}

int run_command_line(const Arguments& arguments, const CommandContext& context) {
  try {
    dispatch(arguments, context);
    context.out.flush();
    if (!context.out) throw StorageError("standard output cannot be written; check where it goes");
    return exit_status(ExitCode::kOk);
  } catch (const ReportedElsewhere& error) {
    return exit_status(error.code());
  } catch (const Error& error) {
    return report(context.err, context.dress, error.what(), error.code());
  } catch (const std::bad_alloc&) {
    if (std::ranges::find(arguments, "data") != arguments.end())  // not while a document was read: that error says which
      return report(context.err, context.dress, "trident data: out of memory; use fewer --workers, or more memory (see ulimit -v)",
                    ExitCode::kData);
    return report(context.err, context.dress, "out of memory; use a smaller model, micro-batch or sequence, or more ranks",
                  ExitCode::kInternal);
  } catch (const std::exception& error) {
    return report(context.err, context.dress,
                  fmt::format("internal error: {}; this is a bug in trident, please report it with the config", error.what()),
                  ExitCode::kInternal);
  }
}

}  // namespace trident
