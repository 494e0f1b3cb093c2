// trident help [SUBCOMMAND|KEY|SECTION], and the texts of other commands' help.
#include "app/help_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>
#include <sstream>

#include "app/subcommands.h"
#include "core/json_reader.h"
#include "core/nearest_name.h"
#include "model/config/model_presets.h"
#include "train/config/option_check.h"
#include "train/config/option_docs.h"

namespace trident {

const std::vector<ExitCodeText>& exit_code_texts() {
  constexpr auto code = [](ExitCode exit_code) { return static_cast<int>(exit_code); };
  static const std::vector<ExitCodeText> table{
      {code(ExitCode::kOk), "done", ""},
      {kExitDifferent, "trident ckpt diff found a difference", ""},
      {code(ExitCode::kConfig), "the configuration or the command line",
       "correct what the message names, which may be a file that is not there"},
      {code(ExitCode::kData), "data, model, run or checkpoint files",
       "correct or prepare what is missing or wrong there, such as a chat template"},
      {code(ExitCode::kInternal), "a bug in trident, or a host out of memory",
       "report it with the configuration; for want of memory the message says what to make smaller"},
      {code(ExitCode::kStorage), "the file system refused", "make room or repair it, then start again"},
      {code(ExitCode::kRequeue), "saved, or disturbed", "the same command again (scripts/slurm/train.sbatch requeues itself)"},
      {code(ExitCode::kCommunication), "a rank is gone, late or out of step", "look at the first message; start again"},
      {code(ExitCode::kNoProgress), "no progress",
       "ten batches in a row had non-finite gradients, or three supervised starts saved nothing; change the run"},
      {128, "+ n, stopped by signal n", "nothing was saved since the last checkpoint"},
  };
  return table;
}

std::string exit_codes_help(std::size_t width, ExitCodes codes) {
  std::string out = "Exit codes:\n";
  for (const ExitCodeText& text : exit_code_texts()) {
    const bool of_training = text.code == exit_status(ExitCode::kRequeue) || text.code == exit_status(ExitCode::kNoProgress);
    if (codes != ExitCodes::kAll && text.code == kExitDifferent) continue;
    if (codes == ExitCodes::kOfUse && of_training) continue;
    std::string line =
        help_paragraph(fmt::format("{}{}{}", text.meaning, text.what_next.empty() ? "" : ": ", text.what_next), 7, width);
    out += line.replace(0, 7, fmt::format("  {:<5}", text.code));
  }
  return out;
}

std::string launch_help(std::size_t width, std::string_view command) {
  const std::string alone(command), processes = fmt::format("mpirun -np 32 {}", command);
  return folded(fmt::format("Ranks:\n"
                            "  {:<{}}  threads of one process, as parallel.* says\n"
                            "  {}  one process each\n"
                            "  srun --mpi=pmix -N 4 --ntasks-per-node=8 {}\n",
                            alone, processes.size(), processes, command),
                width) +
         help_paragraph(
             "A launcher is known by OMPI_COMM_WORLD_SIZE, PMI_SIZE or SLURM_STEP_NUM_TASKS above 1. parallel.data \"auto\" takes "
             "what remains of its ranks. docs/slurm.md says more.",
             2, width);
}

std::string folded(const std::string& help, std::size_t width) {
  std::istringstream lines(help);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() && out.ends_with("\n\n")) continue;  // between groups of flags
    // The description begins after the last run of two spaces; without one the line continues where it began.
    const std::size_t gap = line.rfind("  ");
    const std::size_t indent = gap == line.npos ? 0 : line.find_first_not_of(' ', gap);
    if (line.size() <= width || indent == line.npos) {
      out += line + '\n';
      continue;
    }
    std::string paragraph = help_paragraph(line.substr(indent), indent, width);
    paragraph.replace(0, indent, line.substr(0, indent));
    out += paragraph;
  }
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

namespace {

void print_overview(std::ostream& out, std::size_t columns) {
  out << help_paragraph("Trident trains GPT- and Llama-class language models with tensor, pipeline and data parallelism at once.",
                        0, columns)
      << "\nusage: trident SUBCOMMAND [ARGUMENTS]\n\n";
  for (const Subcommand& command : subcommands())
    out << folded(fmt::format("  {:<11}  {}\n", command.name, command.summary), columns);
  out << "\n  trident train --config configs/laptop.json --set run.steps=50\n"
      << folded(
             "  trident train --help-all           flags, ranks, every key\n"
             "  trident help parallel.zero         one key; parallel: a section\n"
             "  source <(trident completion bash)  completion of flags and keys\n"
             "  trident --color never ...          no colours; also always, and auto: on a terminal without NO_COLOR\n"
             "  trident --version\n\n",
             columns)
      << '\n'
      << exit_codes_help(columns);
}

[[noreturn]] void refuse(const std::string& name) {
  constexpr std::string_view kOthers = "coming-from";  // the page about what other systems say
  std::string hint = page_about(name) == kOthers
                         ? fmt::format("; trident import FILE reads its files and commands, trident docs {} has its words", kOthers)
                         : did_you_mean(name);
  std::vector<std::string_view> names;
  for (const Subcommand& command : subcommands()) {
    names.push_back(command.name);
    if (std::ranges::find(command.actions, name, &Subcommand::Action::name) != command.actions.end())
      hint = fmt::format("; did you mean trident help {} {}?", command.name, name);
  }
  if (const std::string_view near = likely_name(name, names); !near.empty()) hint = fmt::format("; did you mean {}?", near);
  if (const std::string_view page = page_about(name); hint.empty() && !page.empty())
    hint = fmt::format("; trident docs {} is about it", page);
  if (hint.empty()) hint = "; see trident help for subcommands, trident train --help-all for keys";
  throw ConfigError(fmt::format("trident help: {} is not a subcommand, key or section{}", in_quotes(name), hint));
}

// Words of the field that are neither, and what logs and reports mean by them.
constexpr std::pair<std::string_view, std::string_view> kFieldWords[] = {
    {"perplexity", "e to the power of the loss in nats per token; trident docs evaluation"},
    {"bits_per_byte", "loss in nats per token / ln 2 / bytes of text per token, comparable between tokenizers; trident docs "
                      "evaluation"},
    {"mfu", "model FLOPs utilization: FLOPs of the model per second, without recomputation, over the peak of all ranks; trident "
            "docs logs"},
    {"bubble", "the time in which pipeline stages idle over the ideal time of a step: (p - 1) / m with p stages and m "
               "micro-batches, (p - 1) / (v m) with v chunks a rank (interleaved); trident docs learn"},
    {"validation", "the loss on text that is not trained on, each eval.every steps: of data.valid, or of the second share of "
                   "data.split; trident docs evaluation"},
};

}  // namespace

void help_command(const Arguments& arguments, const CommandContext& context) {
  if (arguments.empty() || arguments.front() == "--help" || arguments.front() == "-h")
    return print_overview(context.out, context.columns);
  const std::string& name = arguments.front();
  const Subcommand* command = find_subcommand(name);
  if (command != nullptr) {
    Arguments rest(arguments.begin() + 1, arguments.end());
    rest.emplace_back("--help");
    run_subcommand(*command, rest, context);
    // A word can be a section, too: data, eval.
    if (const std::string keys = option_help(name, context.columns); arguments.size() == 1 && !keys.empty())
      context.out << "\nKeys of the configuration:\n" << keys;
    return;
  }
  if (arguments.size() > 1)
    throw ConfigError(fmt::format("trident help: unknown argument {}; name one key or section", in_quotes(arguments[1])));
  const std::string text = option_help(name, context.columns);
  const auto* const word = std::ranges::find(kFieldWords, name, &std::pair<std::string_view, std::string_view>::first);
  if (text.empty() && word != std::end(kFieldWords))
    return void(context.out << help_paragraph(fmt::format("{}: {}", word->first, word->second), 0, context.columns));
  if (text.empty() && (name == "exit" || name.starts_with("exit-"))) return void(context.out << exit_codes_help(context.columns));
  if (text.empty()) refuse(name);
  context.out << text;
  if (name == "model.preset")
    context.out << help_paragraph(fmt::format("presets: {}", fmt::join(model_preset_names(), ", ")), 2, context.columns);
}

}  // namespace trident
