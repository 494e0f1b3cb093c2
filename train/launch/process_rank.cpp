#include "train/launch/process_rank.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "core/host_name.h"
#include "device/cpu/cpu_device.h"
#include "parallel/mpi/network_facts.h"
#include "train/launch/failure_file.h"
#include "train/launch/prepare_run.h"
#include "train/launch/rank_devices.h"
#include "train/launch/rank_lifeline.h"
#include "train/launch/start_up.h"
#include "train/plan/machine.h"
#include "train/plan/preflight.h"
#include "train/run/checkpoint_dir.h"
#include "train/run/rank_loop.h"
#include "train/run/run_together.h"
#include "train/run/stop_request.h"

namespace trident {
namespace {

int count_nodes(const std::vector<int>& nodes) { return 1 + *std::max_element(nodes.begin(), nodes.end()); }

// The job of this process, from joining to what every rank agreed on.
class ProcessRank {
 public:
  // mpirun gives every rank a terminal of its own, wherever its output goes: plain lines.
  ProcessRank(const Launcher& launcher, const TrainOutput& output, CudaBackend& cuda, const TrainHooks& hooks)
      : cuda_(cuda),
        hooks_(hooks),
        output_{output.console, ConsoleMode::kPlain, output.log},
        logger_(output.log),
        start_watch_(std::in_place, "joins the other ranks", start_watch_options(logger_)),
        world_(join_job(launcher)) {}

  ~ProcessRank() {
    start_watch_.reset();
    if (failure_writer_.joinable()) failure_writer_.join();
    lifeline_.reset();  // a last verdict may have started it since
    if (failure_writer_.joinable()) failure_writer_.join();
  }
  ProcessRank(const ProcessRank&) = delete;
  ProcessRank& operator=(const ProcessRank&) = delete;

  void agree(const std::function<TrainConfig()>& read_config) {
    agree_in_job(*world_, [&] { prepare(read_config); }, [this](const std::string& line) { say(line); });
  }

  // The loop, with deaths noticed.
  void train() {
    start_watch_->next("connects its lifeline");
    try {
      try_to_train();
    } catch (...) {
      const auto verdict = lifeline_->wait_for_verdict(0);
      if (verdict && !failure_writer_.joinable()) leave_failure(*verdict);
      throw;
    }
  }

 private:
  void try_to_train() {
    const auto connect_and_train = [this] {
      connect_lifeline(*lifeline_, *world_);
      start_watch_.reset();
      const RunEnd end = run_loop();
      const int code = end.exit_code();
      if (code != 0 && world_->rank() == 0) say(end.message());
      part(code);
      if (code != 0) throw ReportedElsewhere(static_cast<ExitCode>(code), "stopped");
    };
    work_under_lifeline(*lifeline_, connect_and_train, [this](std::string_view error, ExitCode code) { report(error, code); },
                        [this](const LifelineVerdict& verdict) { end_with(verdict); });
  }

  // The rank that printed why the job ends calls it.
  void leave_failure(const LifelineVerdict& verdict) const {
    if (verdict.rank < 0 || verdict.exit_code == 0) return;
    try {
      write_failure(inputs_.plan.config.run.dir,
                    {verdict.rank, verdict.host, verdict.what, verdict.exit_code, verdict.step, verdict.line, start_given()});
    } catch (const Error& error) {
      logger_.warning("{}; the reason is only in the log", error.what());
    }
  }

  // At once, because the launcher leaves this process a second or two; and beside the lifeline, which no disk may hold up.
  void start_to_leave_failure(const LifelineVerdict& verdict) {
    if (verdict.rank < 0) return;
    try {
      failure_writer_ = std::thread([this, verdict] { leave_failure(verdict); });
    } catch (const std::system_error&) {
      return;  // train() does it, if it comes to it in time
    }
  }

  void say(const std::string& message) { output_.log.write(LogLevel::kInfo, "trident: ", message); }

  void prepare(const std::function<TrainConfig()>& read_config) {
    TrainConfig config;
    start_watch_->next("compares its configuration and checkpoint.dir with the others'");
    run_together(*world_, [&] {
      config = read_config();
      check_run_folder(config.run.dir);
    });
    const std::string saves_to = saves_checkpoints(config) ? checkpoint_folder_of(config) : "";
    if (world_->rank() == 0 && !saves_to.empty()) made_folder_.emplace(saves_to);
    const bool was_given = !world_->broadcast(config.checkpoint.every_was_given ? "given" : "", 0).empty();
    const std::string checkpoint_fault =
        fault_unless(was_given, [&] { check_checkpoint_dir(*world_, world_->local_rank() == 0, saves_to); });
    GpuSearch found = look_for_gpus(config.device, cuda_, ranks_with_gpus(config.device));
    run_together(*world_, [&] { choice_ = choose_device(config.device, cuda_, std::move(found)); });
    const StartUpFacts mine = facts_of_this_process(config, world_->local_size(), choice_);
    const StartUpAgreement agreement = compare_start_up(*world_, mine);
    run_together(*world_, [&] {
      check_nccl_register(config.cuda, choice_, world_->size(), transport());
      if (world_->rank() != 0) return;  // who predicts, and writes there
      if (hooks_.check_profile) hooks_.check_profile(config, choice_.kind);
    });
    start_watch_->next("opens the data and compares it with the others'");
    LaunchSite place;
    place.world_size = world_->size();
    place.first_local = world_->local_rank();
    place.nodes = count_nodes(world_->nodes());
    place.local_ranks = world_->local_size();
    place.reads_all = world_->local_rank() == 0;
    place.gpus = choice_.found.gpus;
    MachineFacts machine = weakest(*world_, world_->node(), mine);
    machine.description = agreement.description;
    const RunOrigin origin = agree_on_origin(config, place, machine);
    run_together(*world_, [&] { inputs_ = prepare_run(config, place, machine, origin, hooks_.find_samples); });
    inputs_.checkpoint_fault = checkpoint_fault;
    cores_of_node_ = machine.core_share.at_once();
    compare_data(*world_, agreement.host_of_rank_0, inputs_.data_facts);
    // To read a tokenizer takes longer than everything else here: one process of a node does, and all take the result from rank 0.
    inputs_.token_bytes = of_rank_0(*world_, inputs_.token_bytes);
    run_together(*world_, [&] {
      if (world_->rank() == 0) check_run_dir(config, inputs_.resume);
      make_lifeline();
    });
    if (choice_.kind == DeviceKind::kCuda) {
      const TransportChoice chosen = transport();
      inputs_.plan.notes.push_back(fmt::format("ranks exchange {}: {}", to_string(chosen.transport), chosen.why));
    }
    std::vector<std::string> warnings = agreement.warnings;
    warnings.push_back(topology_warning(*world_, inputs_.plan.grid, world_->nodes(), host_name()));
    if (world_->rank() == 0) warn(warnings);
  }

  // Rank 0 says which checkpoint the run goes on from, or takes its weights from, and which run it is; all read the manifest.
  RunOrigin agree_on_origin(TrainConfig& config, const LaunchSite& place, const MachineFacts& machine) {
    RunOrigin origin;
    const auto agree = [&](std::optional<Resume>& found, const std::function<std::optional<Resume>()>& find,
                           const std::function<Resume(const std::string& folder)>& open, const std::function<void()>& use) {
      run_together(*world_, [&] {
        if (world_->rank() == 0) found = find();
      });
      const std::string folder = world_->broadcast(found ? found->folder : "", 0);
      if (folder.empty()) return;
      run_together(*world_, [&] {
        if (world_->rank() != 0) found = open(folder);
        use();
      });
    };
    agree(origin.resume, [&] { return find_resume(config); },
          [&](const std::string& folder) {
            Manifest manifest = open_found(folder, "checkpoint.resume", to_string(config.checkpoint.resume));
            return Resume{{folder, std::move(manifest)}};
          },
          [&] { adopt_if_sound(config, *origin.resume, place, machine, hooks_.find_samples); });
    config.run.id = world_->broadcast(world_->rank() == 0 ? run_id_for(config, origin.resume) : "", 0);
    if (origin.resume) return origin;
    agree(origin.initial, [&] { return find_initial(config); },
          [&](const std::string& folder) { return open_initial(folder, config.model.init_from.value_or("")); }, [] {});
    return origin;
  }

  // Where nobody sees a GPU no rank has to hear of another's.
  RunRanks ranks_with_gpus(AskedDevice asked) {
    if (first_rank(*world_, sees_gpus(asked, cuda_)) < 0) return thread_ranks(1);
    return {{world_->rank()}, [this](const std::string& mine) { return world_->all_gather(mine); }};
  }

  // Of devices. Every rank has one where any has.
  TransportChoice transport() const {
    return choose_transport(static_cast<std::size_t>(world_->size()), choice_.found.gpus.size());
  }

  void warn(const std::vector<std::string>& lines) {
    for (const std::string& line : lines)
      if (!line.empty()) logger_.warning("{}", line);
    if (count_nodes(world_->nodes()) == 1) return;
    const NetworkFacts network = network_facts();
    inputs_.plan.notes.push_back(describe(network));
    // NCCL finds its network later, by itself.
    const std::string idle = network_warning(network);
    if (choice_.kind != DeviceKind::kCuda && !idle.empty()) logger_.warning("{}", idle);
  }

  void make_lifeline() {
    LifelineOptions options = lifeline_options(*world_, logger_);
    options.on_failure = [this, wake = options.on_failure](const LifelineVerdict& verdict) {
      wake(verdict);
      start_to_leave_failure(verdict);
    };
    lifeline_.emplace(std::move(options));
  }

  // Tells the others that this rank failed, unless they cannot be reached. Once training is over the job still ends here, and with
  // training's code.
  void report(std::string_view error, ExitCode code) {
    made_folder_.reset();  // a start that is refused leaves no folder, and no failure.json in one
    const int ends_with = trained_ ? trained_->exit_code() : static_cast<int>(code);
    const std::string what = trained_ ? not_reported(error) : std::string(error);
    if (lifeline_->report_failure(what, ends_with)) end_with({what, ends_with});
  }

  // A launcher that sees 0 wants to be told by MPI, too. The lifeline, which has pronounced the verdict, ends whoever hangs in that.
  [[noreturn]] void end_with(const LifelineVerdict& verdict) {
    if (verdict.exit_code == 0) {
      output_.console << std::flush;
      world_->leave();
    }
    throw ReportedElsewhere(static_cast<ExitCode>(verdict.exit_code), verdict.line);
  }

  // Training is over and what it wrote is complete. Whatever happens to a rank from here on is said, and does not fail the run;
  // only a rank that has not come as far may.
  void part(int code) {
    output_.console << std::flush;  // a rank that is ended from here on writes no more
    part_from_job(*lifeline_, *world_, logger_, code, [this](const LifelineVerdict& verdict) { end_with(verdict); });
  }

  RunEnd run_loop() {
    RankDeviceOptions options;
    options.threads_per_rank = inputs_.plan.threads_per_rank;
    options.first_core = inputs_.first_core;
    options.cuda = inputs_.plan.config.cuda;
    options.host_memory = [this](std::int64_t bytes, const std::string& name) { return world_->allocate(bytes, name); };
    const std::unique_ptr<Device> device = make_rank_device(choice_, cuda_, world_->doorbell(), options);
    device->progress().set_wait_observer([this](double seconds, FunctionRef<std::string()> describe) {
      lifeline_->board().set_waiting(describe(), seconds);
    });
    const RunHardware hardware{choice_.kind, choice_.found.gpus, world_->local_size(), 1, cores_of_node_};
    std::unique_ptr<RunForecast> outlook;
    if (world_->rank() == 0 && hooks_.outlook) outlook = hooks_.outlook(inputs_, hardware);
    RankServices services;
    services.stop = &stop_;
    services.outlook = outlook.get();
    services.board = &lifeline_->board();
    services.inter_node_bytes = [this] { return world_->inter_node_bytes(); };
    services.on_device = on_device(choice_, cuda_, *device, transport().transport);
    services.trained = [this](const RunEnd& end) { trained_ = end; };
    return RankLoop(inputs_, output_, *device, world_->communicator(device->progress()), services).run();
  }

  CudaBackend& cuda_;
  const TrainHooks& hooks_;
  DeviceChoice choice_;
  const StopRequest stop_;  // from the first moment: a job may be told to stop while it starts
  const TrainOutput output_;
  Logger logger_;
  std::optional<StartWatch> start_watch_;  // until the lifeline watches
  std::unique_ptr<ProcessWorld> world_;
  RunInputs inputs_;
  int cores_of_node_ = 0;  // that the node's ranks keep busy at once
  std::optional<MadeFolder> made_folder_;  // checkpoint.dir, on rank 0
  std::optional<RunEnd> trained_;  // once it is over
  std::thread failure_writer_;        // started by the lifeline, which ends the process if the disk does not let it end
  std::optional<Lifeline> lifeline_;  // after the world: its thread wakes ranks through it
};

}  // namespace

void run_as_process(const Launcher& launcher, const std::function<TrainConfig()>& read_config, const TrainOutput& output,
                    CudaBackend& cuda, const TrainHooks& hooks) {
  ProcessRank self(launcher, output, cuda, hooks);
  self.agree(read_config);
  self.train();
}

std::string not_reported(std::string_view error) {
  return fmt::format("training is over and its metrics are written, but not all of it is reported: {}", error);
}

}  // namespace trident
