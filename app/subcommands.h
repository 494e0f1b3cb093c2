// The command line: one function per subcommand, and the table that finds it.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/cuda/cuda_backend.h"
#include "planner/bench/calibrate.h"
#include "train/log/console.h"

namespace trident {

// Subcommands get this besides their arguments.
struct CommandContext {
  std::ostream& out;
  std::ostream& err;  // errors, warnings and the lines of a log
  std::function<std::unique_ptr<CudaBackend>()> make_cuda = {};
  ConsoleMode console = ConsoleMode::kPlain;  // of `out`
  std::size_t columns = 80;                   // of `out`
  ConsoleMode err_console = ConsoleMode::kPlain;
  std::function<CpuRates(const CalibrateOptions&, const std::function<void(const std::string&)>& say)> calibrate = calibrate_cpu;
  Color* color = nullptr;                     // where --color is left
  LogSink::Dress dress = {};                  // of lines on `err`

  // Columns that a table may have: those of a terminal, and outside one as many as it takes.
  std::size_t table_columns() const { return console == ConsoleMode::kTerminal ? columns : std::string::npos; }
};

using Arguments = std::vector<std::string>;  // after the subcommand's name

// Each throws Error for what goes wrong; returning means success.
using Command = void (*)(const Arguments& arguments, const CommandContext& context);
void train_command(const Arguments& arguments, const CommandContext& context);
void report_command(const Arguments& arguments, const CommandContext& context);
void supervise_command(const Arguments& arguments, const CommandContext& context);
void plan_command(const Arguments& arguments, const CommandContext& context);
void plan_cluster_command(const Arguments& arguments, const CommandContext& context);
void plan_search_command(const Arguments& arguments, const CommandContext& context);
void import_command(const Arguments& arguments, const CommandContext& context);
void study_command(const Arguments& arguments, const CommandContext& context);
void generate_command(const Arguments& arguments, const CommandContext& context);
void bench_command(const Arguments& arguments, const CommandContext& context);
void data_prepare_command(const Arguments& arguments, const CommandContext& context);
void data_inspect_command(const Arguments& arguments, const CommandContext& context);
void data_merge_command(const Arguments& arguments, const CommandContext& context);
void data_pack_command(const Arguments& arguments, const CommandContext& context);
void tokenizer_encode_command(const Arguments& arguments, const CommandContext& context);
void tokenizer_decode_command(const Arguments& arguments, const CommandContext& context);
void tokenizer_show_command(const Arguments& arguments, const CommandContext& context);
void tokenizer_render_command(const Arguments& arguments, const CommandContext& context);
void tokenizer_diff_command(const Arguments& arguments, const CommandContext& context);
void convert_command(const Arguments& arguments, const CommandContext& context);
void ckpt_ls_command(const Arguments& arguments, const CommandContext& context);
void ckpt_show_command(const Arguments& arguments, const CommandContext& context);
void ckpt_verify_command(const Arguments& arguments, const CommandContext& context);
void ckpt_diff_command(const Arguments& arguments, const CommandContext& context);
void ckpt_prune_command(const Arguments& arguments, const CommandContext& context);
void eval_command(const Arguments& arguments, const CommandContext& context);
void schema_command(const Arguments& arguments, const CommandContext& context);
void docs_command(const Arguments& arguments, const CommandContext& context);  // trident docs configuration|coming-from|timeline
void help_command(const Arguments& arguments, const CommandContext& context);  // trident help [SUBCOMMAND|KEY|SECTION]
void completion_command(const Arguments& arguments, const CommandContext& context);  // trident completion bash|zsh|fish

struct Subcommand {
  // A word that may follow the name.
  struct Action {
    std::string_view name, arguments = {}, summary = {};
    Command run = nullptr;  // nullptr: the subcommand takes the word among its arguments
  };
  std::string_view name, summary;
  Command run = nullptr;  // without an action; nullptr: one of them must be named
  std::vector<Action> actions = {};
};

const std::vector<Subcommand>& subcommands();
const Subcommand* find_subcommand(std::string_view name);  // nullptr: there is none
// The action that `arguments` begin with, or the subcommand itself. Throws ConfigError: no action, or an unknown one.
void run_subcommand(const Subcommand& command, const Arguments& arguments, const CommandContext& context);

// Runs `arguments` (without the program's name). Returns the process's exit code; an error is one line "trident: <message>" on
// context.err.
int run_command_line(const Arguments& arguments, const CommandContext& context);

}  // namespace trident
