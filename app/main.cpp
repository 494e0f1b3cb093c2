#include <unistd.h>

#include <csignal>
#include <iostream>

#include <fmt/core.h>

#include "app/subcommands.h"
#include "app/waiting_threads.h"
#include "infer/convert/convert.h"
#include "infer/eval/run_eval.h"
#include "infer/generate/eval_samples.h"
#include "infer/generate/run_generate.h"
#include "parallel/cuda/cuda_backend.h"
#include "planner/bench/bench.h"
#include "planner/bench/calibrate.h"
#include "planner/predict/dry_plan.h"
#include "planner/predict/plan_on_cluster.h"
#include "planner/predict/simulated_run_forecast.h"
#include "planner/predict/timeline_svg.h"
#include "planner/price/price_book.h"
#include "planner/search/layout_costs.h"
#include "planner/search/search_run.h"
#include "planner/search/search_text.h"
#include "planner/study/study_run.h"
#include "train/launch/run_training.h"
#include "train/plan/machine.h"

namespace {

trident::PlanDetail detail_of(const trident::PlanOptions& options) {
  return options.program ? trident::PlanDetail::kProgram : trident::PlanDetail::kSums;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace trident;
  reexec_with_passive_omp(argv);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that reaches ulimit -f is then an error that names it
  const auto train = [](const std::function<TrainConfig()>& read_config) {
    std::signal(SIGPIPE, SIG_IGN);  // who no longer reads the console does not end the run
    LogSink log(std::cerr);
    const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
    const auto check_lines = [&log] {
      std::cout.flush();
      if (std::cout) return;
      std::cout.clear();  // what was trained is written: a place that takes none of its lines does not fail it
      Logger(log).warning("standard output could not be written: lines of this run are missing there");
    };
    try {
      run_training(read_config, {std::cout, console_mode_of(STDOUT_FILENO), log}, *cuda,
                   {find_eval_samples, check_hardware_profile, make_run_forecast});
    } catch (...) {
      check_lines();
      throw;
    }
    check_lines();
  };
  const auto timeline = [](const TrainConfig& config) {
    const ModelConfig model = resolve_model(config);
    check_can_be_drawn(config, model);
    return timeline_svg(make_run_plan(config, model, 0, kAnyMachine));
  };
  const auto bench = [](const TrainConfig& config, const BenchOptions& options) {
    return run_bench_here(config, options, *make_cuda_backend());
  };
  const auto supervised = [](const SuperviseOptions& options) {
    std::signal(SIGPIPE, SIG_IGN);
    LogSink log(std::cerr);
    return supervise(options, log);
  };
  const auto plan = [](const TrainConfig& config, const PlanOptions& options) {
    if (!options.question.cluster.empty())
      return plan_on_cluster(config, options.question, detail_of(options), options.json  ? PlanForm::kJson
                                                                           : options.csv ? PlanForm::kCsv
                                                                                         : PlanForm::kText);
    const PlannedRun planned = plan_run(config, options.ranks, *make_cuda_backend());
    return options.json ? to_json_text(to_json(planned.report, planned.plan, detail_of(options))) + '\n'
                        : to_text(planned.report, planned.plan, detail_of(options));
  };
  const auto search = [](const TrainConfig& config, const SearchOptions& options) {
    if (find_processors(options.cluster))
      throw ConfigError(fmt::format("--search: looks for layouts on clusters of GPUs, and {} is a profile of processors; price "
                                    "configurations one by one with trident plan --config FILE --cluster {}, or several with "
                                    "trident study", options.cluster, options.cluster));
    const SearchResult found = search_layouts({.config = config,
                                               .cluster = find_cluster(shipped_price_book(), options.cluster),
                                               .gpus = options.gpus,
                                               .keep = static_cast<std::size_t>(options.best)});
    const TrainConfig best = with_layout(config, found.best.front().layout);
    return SearchAnswer{options.json ? to_json_text(to_json(found)) + '\n' : to_text(found), best};
  };
  const auto convert = [](const ConvertRequest& request) {
    if (request.to_hf) return checkpoint_to_hf(request.from, request.to, {request.dtype, request.shard_bytes}, request.progress);
    return hf_to_checkpoint(request.from, request.to, request.dtype, request.progress);
  };
  const auto generate = [](const std::function<GenerateOptions()>& read, const ShowText& show) {
    LogSink log(std::cerr);
    return run_generate(read, show, log, *make_cuda_backend());
  };
  const auto eval = [](const std::function<EvalOptions()>& read) {
    LogSink log(std::cerr);
    return run_eval(read, log, *make_cuda_backend());
  };
  const auto calibrate = [](const CalibrateOptions& options, const std::function<void(const std::string&)>& say) {
    return calibrate_cpu(options, say);
  };
  const auto study = [](const StudySpec& spec, bool executes) {
    return run_study_here(spec, executes, *make_cuda_backend());
  };
  return run_command_line(Arguments(argv + 1, argv + argc),
                          {.out = std::cout,
                           .run_training = train,
                           .draw_timeline = timeline,
                           .console = console_mode_of(STDOUT_FILENO),
                           .columns = terminal_columns(STDOUT_FILENO),
                           .run_bench = bench,
                           .supervise = supervised,
                           .plan = plan,
                           .generate = generate,
                           .run_eval = eval,
                           .convert = convert,
                           .calibrate = calibrate,
                           .search = search,
                           .study = study},
                          std::cerr);
}
