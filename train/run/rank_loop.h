// The loop of one rank: steps, evaluations, and on rank 0 everything that a person or a file gets to see of them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/batch_loader.h"
#include "train/log/run_sink.h"
#include "train/log/step_times.h"
#include "train/run/job_rank.h"
#include "train/run/peak_flops.h"
#include "train/run/rank_trainer.h"
#include "train/run/run_checkpoints.h"
#include "train/run/run_inputs.h"
#include "train/run/run_forecast.h"
#include "train/run/run_report.h"
#include "train/run/step_tracer.h"
#include "train/run/stop_request.h"

namespace trident {

// How far a run is, for whoever has to say it when the run fails.
struct RunProgress {
  std::atomic<std::int64_t> start = 0;    // that run.json knows this start by (write_run_start); 0: it does not
  std::atomic<std::int64_t> updates = 0;  // made so far
};

// The process offers these to the loops of its ranks; each may be absent.
struct RankServices {
  const StopRequest* stop = nullptr;  // looked at between steps
  RunForecast* forecast = nullptr;     // of rank 0
  RunProgress* progress = nullptr;     // written by one rank of the process
  std::function<void(const std::string& folder)> report = {};  // of rank 0: writes report.html of the run in `folder`; may throw
  // Called when training is over, before it is reported, with what run() returns: what fails from then on does not fail the run.
  std::function<void(const RunEnd& end)> trained = {};
};

class RankLoop {
 public:
  // Collective over the job's ranks. `inputs`, `output` and what `here` and `services` point to outlive the loop.
  RankLoop(const RunInputs& inputs, const TrainOutput& output, JobRank here, const RankServices& services);

  // From the run directory to the closing lines. Collective.
  RunEnd run();

 private:
  int rank() { return trainer_.context().rank(); }
  Communicator& world() { return trainer_.context().world(); }
  Stream& stream() { return trainer_.context().host_stream(); }
  std::int64_t updates() const { return trainer_.position().updates; }  // made so far
  void open();
  TrainingState state();
  std::int64_t new_updates() const { return updates() - begun_.updates; }  // of this start
  std::int64_t tokens() const { return begun_.tokens + new_updates() * plan_.tokens_per_step(); }
  void save_what_is_left();
  void open_run_folder(std::int64_t largest_arena);
  void ask_reference();
  void write_start_file(FunctionRef<void()> write);
  void warn_of_gaps(const std::vector<std::int64_t>& steps);
  bool goes_on() const { return updates() < plan_.config.run.steps && !summary_.out_of_time && stop_signal_ == 0; }
  bool is_at(const StepInterval& every) const;
  void agree_to_stop();
  void set_phase(RunPhase phase);
  void one_step();
  void prefetch(BatchLoader& loader, std::int64_t batch);
  bool is_logged(std::int64_t update) const;
  void note_times(const std::array<double, kNumWaitedFor>& waited_before, double seconds);
  double masked_flops_share() const;
  StepMetrics metrics_of(const StepResult& result, double seconds) const;
  void log(const StepResult& result, double seconds);
  void evaluate();
  void show_last_step();
  bool write_report();
  void close();

  const RunInputs& inputs_;
  const RunPlan& plan_;
  JobRank here_;
  RunSink sink_;
  Say say_;  // a line to who watches the run
  RankServices services_;
  RankTrainer trainer_;
  RunCheckpoints checkpoints_;
  BatchLoader loader_;
  std::vector<ValidationSet> validation_sets_;  // empty: nothing is evaluated
  std::vector<float> valid_reference_;          // of all their pairs, with loss.type "dpo"
  std::optional<StepTracer> tracer_;
  bool leaves_files_ = false;  // the files that say what the run is stay as they are
  bool has_start_files_ = false;  // on rank 0: they are there, from an earlier start
  std::int64_t run_start_ = 0;  // as RunProgress::start
  RunSummary summary_;
  StepTimes since_log_, since_start_;  // of this rank; since_start_ without the first step, in which much happens once
  double start_ = 0, first_update_at_ = 0;  // monotonic times when training began, and when this start had made an update
  PeakFlops peak_flops_;  // of rank 0
  std::int64_t last_eval_at_ = -1;
  TrainingState begun_;  // that the run goes on from
  std::optional<double> first_loss_;  // of step 1, where an earlier start made it
  // Seconds of the last kSpreadSteps, in any order; without the first one of several.
  static constexpr std::size_t kSpreadSteps = 1000;
  std::vector<double> last_steps_;
  std::int64_t taken_before_ = 0;  // position() behind the update before the last one
  int skipped_in_a_row_ = 0, stop_signal_ = 0, attempts_ = 0;
  RunEnd end_;
};

}  // namespace trident
