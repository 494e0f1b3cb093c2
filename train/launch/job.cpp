#include "train/launch/job.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <system_error>
#include <utility>

#include "core/at.h"
#include "core/counted.h"
#include "core/host_name.h"
#include "parallel/communicator/launcher.h"
#include "parallel/communicator/peer_failure.h"
#include "parallel/health/lifeline_dial.h"
#include "parallel/mpi/network_facts.h"
#include "parallel/shared_memory/thread_world.h"
#include "train/config/rank_count.h"
#include "train/launch/start_up.h"
#include "train/run/step_tracer.h"

namespace trident {
namespace {

// A rank that noticed a failure waits as long for the line that says whose it was.
constexpr double kVerdictSeconds = 3;
constexpr int kManyRanks = 64;  // of more, rank 0 hears less often

const char* variable(const char* name) { return std::getenv(name); }

// The only process of a job is its own rendezvous.
class OneProcess final : public Rendezvous {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(std::span<std::int64_t>, ReduceOp) override {}
  std::string broadcast(const std::string& text, int) override { return text; }
  std::vector<std::string> gather(const std::string& mine) override { return {mine}; }
};

std::unique_ptr<ProcessWorld> join(const Launcher& launcher) {
  std::unique_ptr<ProcessWorld> world = join_process_world();
  if (world->size() == launcher.processes) return world;
  throw ConfigError(
      fmt::format("{} started {}, but the MPI library that trident was built with sees {}; start it with that library's mpirun",
                  launcher.description, counted(launcher.processes, "process", "processes"), world->size()));
}

// Rank 0 speaks; every rank ends its process with 76 when its time is up.
StartWatchOptions start_watch_options(LogSink& log, const Logger& logger) {
  StartWatchOptions options;
  options.speaks = placement_of(variable).is_rank_0;
  options.warn = [rank_0 = Logger(log, 0)](const std::string& line) { rank_0.warning("{}", line); };
  options.end = [&logger](const std::string& line) {
    logger.error("{}", line);
    ::_exit(exit_status(ExitCode::kCommunication));  // a thread that stands in MPI throws nothing
  };
  return options;
}

int num_nodes(const ProcessWorld& world) { return 1 + *std::ranges::max_element(world.nodes()); }

// Collective. Another node than that of rank 0 has its kernel: they are containers or namespaces.
bool has_nodes_of_one_machine(ProcessWorld& world) {
  const std::string mine = std::to_string(clock_identity()), of_rank_0 = world.broadcast(mine, 0);
  return first_rank(world, mine == of_rank_0 && at(world.nodes(), world.rank()) != world.nodes().front()) >= 0;
}

std::string not_reported(std::string_view error) {
  return fmt::format("training is over and its metrics are written, but not all of it is reported: {}", error);
}

}  // namespace

Job::Job(LogSink& log, CudaBackend& cuda, LeaveFailure leave) : log_(log), logger_(log), cuda_(cuda), leave_(std::move(leave)) {
  const Launcher launcher = detect_launcher(variable);
  if (launcher.kind == Launcher::Kind::kPlainSrun) refuse_unconnected_processes(launcher);
  if (launcher.kind == Launcher::Kind::kNone) return;
  start_watch_.emplace("joins the other ranks", start_watch_options(log_, logger_));
  world_ = join(launcher);
}

Job::~Job() {
  start_watch_.reset();
  if (failure_writer_.joinable()) failure_writer_.join();
  lifeline_.reset();  // a last verdict may have started it since
  if (failure_writer_.joinable()) failure_writer_.join();
}

// ---- the start ------------------------------------------------------------------------------------------------------------------

void Job::agree(FunctionRef<void()> prepare) {
  if (is_threads()) return prepare();
  try {
    prepare();
    together([this] { make_lifeline(); });
  } catch (const AgreedError& error) {
    log_.write(LogLevel::kInfo, "trident: ", error.what());
    world_->finish();
    throw ReportedElsewhere(error.code(), error.what());
  } catch (const ReportedElsewhere&) {
    world_->finish();
    throw;
  }
}

void Job::begin(const char* stage) {
  if (start_watch_) start_watch_->next(stage);
}

Rendezvous& Job::processes() {
  static OneProcess one;
  return is_threads() ? static_cast<Rendezvous&>(one) : *world_;
}

MachineFacts Job::agree_on_machine(const TrainConfig& config) {
  ranks_ = is_threads() ? static_cast<int>(ranks_of(config.parallel)) : world_->size();
  RunRanks looking = thread_ranks(is_threads() ? ranks_ : 1);
  // Where nobody sees a GPU no rank has to hear of another's.
  if (!is_threads() && first_rank(*world_, sees_gpus(config.device, cuda_)) >= 0)
    looking = {{world_->rank()}, [this](const std::string& mine) { return world_->all_gather(mine); }};
  GpuSearch found = look_for_gpus(config.device, cuda_, looking);
  together([&] { devices_ = choose_device(config.device, cuda_, std::move(found)); });
  if (is_threads()) return machine_facts(devices_, ranks_);
  const StartUpFacts mine = facts_of_this_process(config, world_->node(), devices_);
  const StartUpAgreement agreement = compare_start_up(*world_, mine);
  warnings_ = agreement.warnings;
  one_machine_ = has_nodes_of_one_machine(*world_);
  MachineFacts machine = weakest(*world_, world_->node(), mine);
  machine.description = agreement.description;
  return machine;
}

std::vector<std::string> Job::notes_of(const ProcessGrid& grid) {
  if (is_threads()) return {};
  std::vector<std::string> notes;
  const bool on_gpus = devices_.kind == DeviceKind::kCuda;
  if (on_gpus) notes.push_back(fmt::format("ranks exchange {}: {}", to_string(transport().transport), transport().why));
  std::vector<std::string> warnings = warnings_;
  warnings.push_back(topology_warning(*world_, grid, world_->nodes(), host_name()));
  if (!is_first()) return notes;
  if (num_nodes(*world_) > 1) {
    const NetworkFacts network = network_facts();
    notes.push_back(describe(network));
    if (!on_gpus) warnings.push_back(network_warning(network));  // NCCL finds its network later, by itself
  }
  for (const std::string& line : warnings)
    if (!line.empty()) logger_.warning("{}", line);
  return notes;
}

LaunchSite Job::site() const {
  LaunchSite site;
  site.gpus = devices_.found.gpus;
  if (is_threads()) return site;
  site.world_size = world_->size();
  site.first_local = world_->local_rank();
  site.nodes = num_nodes(*world_);
  site.one_machine = one_machine_;
  site.local_ranks = world_->local_size();
  site.reads_all = world_->local_rank() == 0;
  return site;
}

TransportChoice Job::transport() const {
  // Every rank has a GPU where any has.
  if (!is_threads()) return choose_transport(static_cast<std::size_t>(ranks_), devices_.found.gpus.size());
  return {DeviceTransport::kThread, ranks_ == 1 ? "the rank is a thread of this process"
                                                : fmt::format("the {} ranks are threads of this process", ranks_)};
}

// ---- the work -------------------------------------------------------------------------------------------------------------------

void Job::run(const RankDeviceOptions& devices, const std::function<void(JobRank rank)>& work) {
  if (is_threads()) run_threads(devices, work);
  else run_process(devices, work);
  if (!end_ || end_->exit_code() == 0) return;
  const auto code = static_cast<ExitCode>(end_->exit_code());
  if (is_threads()) throw Error(code, end_->message());
  throw ReportedElsewhere(code, "stopped");
}

void Job::run_threads(const RankDeviceOptions& devices, const Work& work) {
  ThreadWorld threads(ranks_);
  try {
    run_thread_ranks(threads, [&](int rank) {
      RankDeviceOptions options = devices;
      options.gpu_slot = rank;
      if (options.cpu.first_core) *options.cpu.first_core += rank * options.cpu.threads_per_rank;
      const std::unique_ptr<Device> device = make_rank_device(devices_, cuda_, threads.doorbell(rank), options);
      // In a process of its own rank 0 need not say who speaks.
      work({*device, threads.communicator(rank, device->progress()), on_device(devices_, cuda_, *device, DeviceTransport::kThread),
            Logger(log_, rank == 0 ? Logger::kNoRank : rank)});
    });
  } catch (const Error& error) {
    if (end_) return logger_.warning("{}", not_reported(error.what()));
    // Threads are one process, that of rank 0; which of them failed first stands in the message.
    leave_failure(
        {.rank = 0, .host = host_name(), .cause = "failed", .exit_code = exit_status(error.code()), .message = error.what()});
    throw;
  }
}

void Job::run_process(const RankDeviceOptions& devices, const Work& work) {
  begin("connects its lifeline");
  try {
    work_watched(devices, work);
  } catch (...) {
    const auto verdict = lifeline_->wait_for_verdict(0);
    if (verdict && !failure_writer_.joinable()) leave_failure(*verdict);
    throw;
  }
}

// Where a peer failed this rank ends with the verdict on it, which may take kVerdictSeconds to come.
void Job::work_watched(RankDeviceOptions options, const Work& work) {
  options.cpu.memory = [this](std::int64_t bytes, const std::string& name) { return world_->allocate(bytes, name); };
  try {
    connect_lifeline();
    start_watch_.reset();
    {
      const std::unique_ptr<Device> device = make_rank_device(devices_, cuda_, world_->doorbell(), options);
      StatusBoard& board = lifeline_->board();
      device->progress().set_wait_observer(
          [&board](double seconds, FunctionRef<std::string()> describe) { board.set_waiting(describe(), seconds); });
      work({*device, world_->communicator(device->progress()), on_device(devices_, cuda_, *device, transport().transport),
            Logger(log_, world_->rank()), &board, [this] { return world_->inter_node_bytes(); }});
    }
    part();
  } catch (const ReportedElsewhere&) {
    throw;
  } catch (const PeerFailure&) {
    if (const auto verdict = lifeline_->wait_for_verdict(kVerdictSeconds)) end_with(*verdict);
    throw;
  } catch (const Error& error) {
    report(error.what(), error.code());
    throw;
  } catch (const std::exception& error) {
    report(error.what(), ExitCode::kInternal);
    throw;
  }
}

// ---- how processes watch each other ---------------------------------------------------------------------------------------------

void Job::make_lifeline() {
  const std::vector<int>& nodes = world_->nodes();
  LifelineOptions options;
  options.rank = world_->rank();
  options.size = world_->size();
  options.deputy = lifeline_deputy(nodes);
  options.heartbeat_seconds = world_->size() <= kManyRanks ? 0.25 : 1;
  options.host = host_name();
  options.connect_seconds = lifeline_connect_seconds(world_->size());
  options.reach = num_nodes(*world_) == 1 ? LifelineReach::kNode : LifelineReach::kNetwork;
  options.interfaces = interfaces_for_mpi(variable, user_file_of_open_mpi(variable));
  options.calls = &world_->calls();
  options.print = [this](const LifelineVerdict& verdict) {
    if (verdict.is_failure && verdict.exit_code != 0) logger_.error("{}", verdict.line);
    else logger_.warning("{}", verdict.line);
  };
  options.on_failure = [this](const LifelineVerdict& verdict) {
    world_->fail(verdict.line);
    if (verdict.rank < 0 || !leave_) return;
    // At once, because the launcher leaves this process a second or two; and beside the lifeline, which no disk may hold up.
    try {
      failure_writer_ = std::thread([this, verdict] { leave_failure(verdict); });
    } catch (const std::system_error&) {
      return;  // run_process() does it, if it comes to it in time
    }
  };
  lifeline_.emplace(std::move(options));
}

void Job::connect_lifeline() {
  const std::string contact = lifeline_->contact(), hub = world_->broadcast(contact, 0);
  const int deputy = lifeline_deputy(world_->nodes());
  lifeline_->connect({hub, deputy < world_->size() ? world_->broadcast(contact, deputy) : ""});
}

// The work's result is complete. A failure of others ends this rank; other failures are warnings. A rank that is held from
// here on is ended with the code of the work's end. Work without such an end has a result that rank 0 prints when it is no longer
// in the job: a failure's code, because rank 0 may be ended, too, until it has left MPI.
void Job::part() {
  const int code = end_ ? end_->exit_code() : exit_status(ExitCode::kCommunication);
  if (end_ && code != 0 && is_first()) log_.write(LogLevel::kInfo, "trident: ", end_->message());
  lifeline_->goodbye(code);
  try {
    world_->finish();
    if (!end_) lifeline_->goodbye(0);
  } catch (const Error& error) {
    const auto verdict = lifeline_->wait_for_verdict(kVerdictSeconds);
    if (verdict && verdict->is_failure) end_with(*verdict);
    if (!verdict)
      logger_.warning("rank {} finished but did not leave the job in order: {}; nothing is lost", world_->rank(), error.what());
  }
}

// Tells the others that this rank failed, unless they cannot be reached. Once the work is over the job still ends here, and with
// the code of that end.
void Job::report(std::string_view error, ExitCode code) {
  const int ends_with = end_ ? end_->exit_code() : exit_status(code);
  const std::string what = end_ ? not_reported(error) : std::string(error);
  if (lifeline_->report_failure(what, ends_with)) end_with({what, ends_with});
}

// A launcher that sees 0 wants to be told by MPI, too. The lifeline, which has pronounced the verdict, ends whoever hangs in that.
void Job::end_with(const LifelineVerdict& verdict) {
  if (verdict.exit_code == 0) world_->leave();
  throw ReportedElsewhere(static_cast<ExitCode>(verdict.exit_code), verdict.line);
}

void Job::leave_failure(const LifelineVerdict& verdict) const {
  if (verdict.rank < 0 || verdict.exit_code == 0) return;
  leave_failure({verdict.rank, verdict.host, verdict.what, verdict.exit_code, verdict.step, verdict.line});
}

void Job::leave_failure(RunFailure failure) const {
  if (!leave_) return;
  failure.start = start_given();
  try {
    leave_(failure);
  } catch (const Error& error) {
    // A single process has two errors then; the first is the one to be told.
    if (!is_threads()) logger_.warning("{}; the reason is only in the log", error.what());
  }
}

}  // namespace trident
