// The command line: one function per subcommand, and the table that finds it.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "infer/convert/convert.h"
#include "infer/eval/eval_report.h"
#include "planner/bench/bench_report.h"
#include "planner/bench/calibrate.h"
#include "planner/predict/cluster_question.h"
#include "planner/study/study_result.h"
#include "supervise/supervisor.h"
#include "train/config/train_config.h"
#include "train/log/console.h"

namespace trident {

struct GenerateOptions;  // infer/generate/run_generate.h
struct GenerateResult;

struct PlanOptions {
  int ranks = 0;  // of the job; 0: as many as the configuration's degrees say
  bool json = false;
  bool program = false;  // with the instructions of every stage
  bool csv = false;      // of a cluster: one table of all numbers
  ClusterQuestion question = {};
};

struct SearchOptions {
  std::string cluster;  // a name, or a file's path
  int gpus = 0;
  int best = 10;  // layouts to show
  bool json = false;
};

struct SearchAnswer {
  std::string text;  // to print
  TrainConfig best;  // the configuration with the best layout
};

struct ConvertRequest {
  bool to_hf = false;     // false: from a Hugging Face folder to a checkpoint
  std::string from, to;   // folders
  std::optional<DType> dtype = {};
  std::optional<std::int64_t> shard_bytes = {};
  ConvertProgress progress = {};
};

// What subcommands work with besides their arguments.
struct CommandContext {
  std::ostream& out;
  // Calls `read_config` once in every process of a job, so that they fail together.
  std::function<void(const std::function<TrainConfig()>& read_config)> run_training;
  std::function<std::string(const TrainConfig&)> draw_timeline = {};
  ConsoleMode console = ConsoleMode::kPlain;  // of `out`
  std::size_t columns = 80;                   // of `out`
  // Nothing on processes of a job that leave printing to another.
  std::function<std::optional<BenchReport>(const TrainConfig&, const BenchOptions&)> run_bench = {};
  std::function<int(const SuperviseOptions&)> supervise = {};  // returns the exit code, which is explained already
  std::function<std::string(const TrainConfig&, const PlanOptions&)> plan = {};  // the text to print
  // Both call `read` once in every process of a job, so that they fail together. Nothing on processes that leave printing to
  // another.
  std::function<std::optional<GenerateResult>(const std::function<GenerateOptions()>& read,
                                              const std::function<void(std::int64_t, const std::string&)>& show)>
      generate = {};
  std::function<std::optional<EvalReport>(const std::function<EvalOptions()>& read)> run_eval = {};
  std::function<ConvertReport(const ConvertRequest&)> convert = {};
  // `say` is told of every part that is measured.
  std::function<CpuRates(const CalibrateOptions&, const std::function<void(const std::string&)>& say)> calibrate = {};
  std::function<SearchAnswer(const TrainConfig&, const SearchOptions&)> search = {};
  std::function<StudyResult(const StudySpec&, bool executes)> study = {};  // executes: points that fit this machine, too
};

using Arguments = std::vector<std::string>;  // after the subcommand's name

// Each throws Error for what goes wrong; returning means success.
void train_command(const Arguments& arguments, const CommandContext& context);
void report_command(const Arguments& arguments, const CommandContext& context);
void supervise_command(const Arguments& arguments, const CommandContext& context);
void plan_command(const Arguments& arguments, const CommandContext& context);
void study_command(const Arguments& arguments, const CommandContext& context);
void generate_command(const Arguments& arguments, const CommandContext& context);
void bench_command(const Arguments& arguments, const CommandContext& context);
void data_command(const Arguments& arguments, const CommandContext& context);    // trident data prepare|inspect|merge
void convert_command(const Arguments& arguments, const CommandContext& context);
void ckpt_command(const Arguments& arguments, const CommandContext& context);    // trident ckpt ls|show|verify|diff|prune
void eval_command(const Arguments& arguments, const CommandContext& context);
void schema_command(const Arguments& arguments, const CommandContext& context);
void docs_command(const Arguments& arguments, const CommandContext& context);  // trident docs configuration|megatron-flags|timeline
void help_command(const Arguments& arguments, const CommandContext& context);    // trident help [SUBCOMMAND|KEY|SECTION]
void completion_command(const Arguments& arguments, const CommandContext& context);  // trident completion bash|zsh|fish

struct Subcommand {
  std::string_view name;
  std::string_view summary;
  void (*run)(const Arguments&, const CommandContext&) = nullptr;  // nullptr: not built yet, refused by name
  std::vector<std::string_view> actions = {};  // words that may follow the name
};

const std::vector<Subcommand>& subcommands();
const Subcommand* find_subcommand(std::string_view name);  // nullptr: there is none

// Runs `arguments` (without the program's name). Returns the process's exit code; an error is one line "trident: <message>" on
// `err`.
int run_command_line(const Arguments& arguments, const CommandContext& context, std::ostream& err);

}  // namespace trident
