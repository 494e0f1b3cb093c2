// The ranks of one start of the program: threads of this process, or processes that mpirun or srun started, of which this one is a
// rank. Training, evaluation and generation are work that a job does: its processes agree() on what is to be done, which refuses
// what can be refused, and run() does it on every rank.
//
// Processes watch each other while they work (parallel/health/lifeline.h): where one is lost the rest end with one line and 76.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/function_ref.h"
#include "core/logging.h"
#include "parallel/health/lifeline.h"
#include "parallel/mpi/process_world.h"
#include "train/config/train_config.h"
#include "train/launch/failure_file.h"
#include "train/launch/prepare_run.h"
#include "train/launch/rank_devices.h"
#include "train/launch/start_watch.h"
#include "train/run/job_rank.h"
#include "train/run/run_together.h"
#include "train/run/stop_request.h"

namespace trident {

class Job {
 public:
  // Leaves word of why the job failed, in the one process that says it, perhaps on a thread of its own. May throw an Error.
  using LeaveFailure = std::function<void(const RunFailure& failure)>;

  // Joins the other processes, if there are any. `log`, `cuda` and what `leave` refers to outlive the job. ConfigError where the
  // launcher's processes cannot reach each other, or the MPI library sees another number of them.
  Job(LogSink& log, CudaBackend& cuda, LeaveFailure leave = {});
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Whether this process has all ranks.
  bool is_threads() const { return world_ == nullptr; }
  // Whether this process has rank 0, and the first rank of its node.
  bool is_first() const { return is_threads() || world_->rank() == 0; }
  bool leads_node() const { return is_threads() || world_->local_rank() == 0; }

  // Collective. What all processes throw alike (AgreedError) is said by rank 0 before anybody ends, because launchers kill the rest
  // as soon as one has: throws ReportedElsewhere.
  void agree(FunctionRef<void()> prepare);

  // ---- to be called by prepare() ----

  // Names what this process does from here on, for the line that says why a job does not begin. `stage` outlives the job.
  void begin(const char* stage);
  Rendezvous& processes();
  void together(const std::function<void()>& step) { run_together(processes(), step); }
  // Collective. Gives every rank a device, compares configurations, builds and machines, and returns what a plan may count on.
  MachineFacts agree_on_machine(const TrainConfig& config);
  // Collective, on rank 0 with warnings: what is to be said of how ranks of different processes exchange.
  std::vector<std::string> notes_of(const ProcessGrid& grid);
  // These are known once the machine is agreed on.
  int ranks() const { return ranks_; }
  LaunchSite site() const;
  const DeviceChoice& devices() const { return devices_; }
  TransportChoice transport() const;

  // ---- the work ----

  // Runs `work` on all ranks of this process. The first cause of a failure is thrown, or said by the lifeline, which leaves
  // ReportedElsewhere. `devices`: those of rank 0; their GPU slots and memory are the job's.
  void run(const RankDeviceOptions& devices, const std::function<void(JobRank rank)>& work);
  // To be called by the work of rank 0, and of every process: it is over. What fails from here on is a warning, and run() ends with
  // an Error of this code, unless that is 0.
  void set_end(const RunEnd& end) { end_ = end; }

 private:
  using Work = std::function<void(JobRank rank)>;

  void make_lifeline();
  void connect_lifeline();
  void run_threads(const RankDeviceOptions& devices, const Work& work);
  void run_process(const RankDeviceOptions& devices, const Work& work);
  void work_watched(RankDeviceOptions options, const Work& work);
  void part();
  void report(std::string_view error, ExitCode code);
  [[noreturn]] void end_with(const LifelineVerdict& verdict);
  void leave_failure(RunFailure failure) const;
  void leave_failure(const LifelineVerdict& verdict) const;

  LogSink& log_;
  const Logger logger_;
  CudaBackend& cuda_;
  const LeaveFailure leave_;
  int ranks_ = 1;
  DeviceChoice devices_;
  std::vector<std::string> warnings_;  // of the machines
  bool one_machine_ = false;           // as LaunchSite::one_machine
  std::optional<RunEnd> end_;
  // The rest is of processes.
  std::optional<StartWatch> start_watch_;  // until the lifeline watches
  std::unique_ptr<ProcessWorld> world_;
  std::thread failure_writer_;        // started by the lifeline, which ends the process if the disk does not let it end
  std::optional<Lifeline> lifeline_;  // after the world: its thread wakes ranks through it
};

}  // namespace trident
