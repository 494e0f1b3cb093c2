#include "train/process_rank.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "core/host_name.h"
#include "device/cpu/cpu_device.h"
#include "parallel/lifeline.h"
#include "parallel/lifeline_dial.h"
#include "parallel/network_facts.h"
#include "parallel/process_world.h"
#include "parallel/shared_world.h"
#include "train/earlier_run.h"
#include "train/machine.h"
#include "train/rank_devices.h"
#include "train/rank_loop.h"
#include "train/run_inputs.h"
#include "train/start_up.h"
#include "train/stop_request.h"

namespace trident {
namespace {

constexpr int kManyRanks = 64;         // of more, rank 0 hears less often
constexpr double kVerdictSeconds = 3;  // a rank that noticed a failure waits as long for the line that says whose it was

TransportChoice transport_between(const std::vector<StartUpFacts>& ranks) {
  std::vector<std::string> cards;
  for (const StartUpFacts& rank : ranks) cards.push_back(rank.card);
  return choose_transport(cards);
}

int count_nodes(const std::vector<int>& nodes) { return 1 + *std::max_element(nodes.begin(), nodes.end()); }

StartUpFacts facts_of_this_process(const TrainConfig& config, const ProcessWorld& world, const DeviceChoice& choice) {
  const CpuFeatures features = detect_cpu_features();
  StartUpFacts facts;
  facts.host = host_name();
  facts.build = build_id();
  facts.machine = machine_facts(choice, world.local_size());
  facts.instruction_set = fmt::format("{}{}", to_string(features.level),
                                      !has_bf16_products(features, features.level) ? "" : features.amx_bf16 ? " with AMX bf16" : " with AVX512-BF16");
  facts.config = to_json_text(to_json(config));
  facts.device_why = choice.why;
  if (choice.kind == DeviceKind::kCuda) facts.card = choice.found.seats.front().card.id;
  return facts;
}

// The job of this process, from joining to what every rank agreed on.
class ProcessRank {
 public:
  // mpirun gives every rank a terminal of its own, wherever its output goes: plain lines.
  ProcessRank(const Launcher& launcher, const TrainOutput& output, CudaBackend& cuda)
      : cuda_(cuda), output_{output.console, ConsoleMode::kPlain, output.log}, logger_(output.log), world_(join_process_world()) {
    if (world_->size() == launcher.processes) return;
    throw ConfigError(fmt::format(
        "{} started {} processes, the MPI library that trident was built with sees {}; start it with that library's mpirun",
        launcher.description, launcher.processes, world_->size()));
  }

  // What all ranks throw alike is said by rank 0 before anybody ends: launchers kill the rest as soon as one has.
  void agree(const std::function<TrainConfig()>& read_config) {
    try {
      prepare(read_config);
    } catch (const ReportedElsewhere&) {
      world_->finish();
      throw;
    } catch (const AgreedError& error) {
      say(error.what());
      world_->finish();
      throw ReportedElsewhere(error.code(), error.what());
    }
  }

  // The loop, with deaths noticed.
  void train() {
    try {
      lifeline_->connect(world_->all_gather(lifeline_->card()));
      const int signal = run_loop();
      if (signal != 0 && world_->rank() == 0) say(stopped_by_signal(signal).what());
      const int code = code_of(signal);
      part(code);
      if (code != 0) throw ReportedElsewhere(static_cast<ExitCode>(code), "stopped");
    } catch (const ReportedElsewhere&) {
      throw;
    } catch (const PeerFailure&) {
      const auto verdict = lifeline_->wait_for_verdict(kVerdictSeconds);
      if (verdict) end_with(*verdict);
      throw;
    } catch (const Error& error) {
      report(error.what(), error.code());
      throw;
    } catch (const std::exception& error) {
      report(error.what(), ExitCode::kInternal);
      throw;
    }
  }

 private:
  void say(const std::string& message) { output_.log.write(LogLevel::kInfo, "trident: ", message); }

  void prepare(const std::function<TrainConfig()>& read_config) {
    TrainConfig config;
    run_together(exchange(), world_->rank(), [&] { config = read_config(); });
    CardSearch found = look_for_cards(config.device, cuda_, {{world_->rank()}, exchange()});
    run_together(exchange(), world_->rank(), [&] { choice_ = choose_device(config.device, cuda_, std::move(found)); });
    const StartUpFacts mine = facts_of_this_process(config, *world_, choice_);
    const BroadcastText broadcast = [this](const std::string& text) { return world_->broadcast(text); };
    facts_ = compare_start_up(exchange(), broadcast, world_->rank(), mine);
    run_together(exchange(), world_->rank(), [&] {
      check_nccl_register(config.cuda, choice_, world_->size(), transport_between(facts_));
      if (world_->rank() == 0) check_earlier_run(config);  // the rank that writes there
    });
    RunPlace place;
    place.world_size = world_->size();
    place.first_local = world_->local_rank();
    place.nodes = count_nodes(world_->nodes());
    place.local_ranks = world_->local_size();
    place.reads_all = world_->local_rank() == 0;
    place.cards = choice_.found.cards;
    run_together(exchange(), world_->rank(), [&] { inputs_ = prepare_run(config, place, weakest(mine.machine, facts_)); });
    compare_data(exchange(), world_->rank(), facts_[0].host, inputs_.data_facts);
    // To read a tokenizer takes longer than everything else here: one process of a node does, and all take the result from rank 0.
    inputs_.token_bytes = of_rank_0(broadcast, world_->rank(), inputs_.token_bytes);
    run_together(exchange(), world_->rank(), [&] { make_lifeline(); });
    if (choice_.kind == DeviceKind::kCuda) {
      const TransportChoice transport = transport_between(facts_);
      inputs_.plan.notes.push_back(fmt::format("ranks exchange {}: {}", to_string(transport.transport), transport.why));
    }
    if (world_->rank() == 0) warn();
  }

  ExchangeTexts exchange() {
    return [this](const std::string& mine) { return world_->all_gather(mine); };
  }

  void warn() {
    for (const std::string& line : start_up_warnings(facts_)) logger_.warning("{}", line);
    const std::string topology = topology_warning(inputs_.plan.grid, world_->nodes(), facts_);
    if (!topology.empty()) logger_.warning("{}", topology);
    if (count_nodes(world_->nodes()) == 1) return;
    const NetworkFacts network = network_facts();
    inputs_.plan.notes.push_back(describe(network));
    // NCCL finds its network later, by itself.
    const std::string idle = network_warning(network);
    if (choice_.kind != DeviceKind::kCuda && !idle.empty()) logger_.warning("{}", idle);
  }

  void make_lifeline() {
    LifelineOptions options;
    options.rank = world_->rank();
    options.size = world_->size();
    options.deputy = lifeline_deputy(world_->nodes());
    options.heartbeat_seconds = world_->size() <= kManyRanks ? 0.25 : 1;
    options.host = facts_[static_cast<std::size_t>(world_->rank())].host;
    options.connect_seconds = lifeline_connect_seconds(world_->size());
    options.reach = count_nodes(world_->nodes()) == 1 ? LifelineReach::kNode : LifelineReach::kNetwork;
    options.interfaces = interfaces_for_mpi([](const char* name) -> const char* { return std::getenv(name); });
    options.calls = &world_->calls();
    options.print = [this](const LifelineVerdict& verdict) {
      if (verdict.is_failure && verdict.exit_code != 0) logger_.error("{}", verdict.line);
      else logger_.warning("{}", verdict.line);
    };
    options.on_failure = [this](const LifelineVerdict& verdict) { world_->fail(verdict.line); };
    lifeline_.emplace(std::move(options));
  }

  static int code_of(int signal) { return signal != 0 ? exit_code_of_signal(signal) : 0; }

  // Tells the others that this rank failed, unless they cannot be reached. Once training is over the job still ends here, and with
  // training's code.
  void report(std::string_view error, ExitCode code) {
    const int ends_with = trained_ ? code_of(*trained_) : static_cast<int>(code);
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
    lifeline_->goodbye(code);
    try {
      world_->finish();
    } catch (const Error& error) {
      const auto verdict = lifeline_->wait_for_verdict(kVerdictSeconds);
      if (verdict && verdict->is_failure) end_with(*verdict);
      if (!verdict) logger_.warning("rank {} is done and did not part in order: {}; nothing is lost", world_->rank(), error.what());
    }
  }

  int run_loop() {
    RankDeviceOptions options;
    options.threads_per_rank = inputs_.plan.threads_per_rank;
    options.first_core = inputs_.first_core;
    options.cuda = inputs_.plan.config.cuda;
    options.host_memory = [this](std::int64_t bytes, const std::string& name) { return world_->allocate(bytes, name); };
    const std::unique_ptr<Device> device = make_rank_device(choice_, cuda_, world_->doorbell(), options);
    device->progress().set_wait_observer([this](double seconds, FunctionRef<std::string()> describe) {
      lifeline_->board().set_waiting(describe(), seconds);
    });
    RankServices services;
    services.stop = &stop_;
    services.board = &lifeline_->board();
    services.inter_node_bytes = [this] { return world_->inter_node_bytes(); };
    services.on_device = on_device(choice_, cuda_, *device, transport_between(facts_).transport);
    services.trained = [this](int signal) { trained_ = signal; };
    return RankLoop(inputs_, output_, *device, world_->communicator(device->progress()), services).run();
  }

  CudaBackend& cuda_;
  DeviceChoice choice_;
  const StopRequest stop_;  // from the first moment: a job may be told to stop while it starts
  const TrainOutput output_;
  Logger logger_;
  std::unique_ptr<ProcessWorld> world_;
  std::vector<StartUpFacts> facts_;
  RunInputs inputs_;
  std::optional<int> trained_;  // the signal that ended training, or 0, once it is over
  std::optional<Lifeline> lifeline_;  // after the world: its thread wakes ranks through it
};

}  // namespace

void run_as_process(const Launcher& launcher, const std::function<TrainConfig()>& read_config, const TrainOutput& output,
                    CudaBackend& cuda) {
  ProcessRank self(launcher, output, cuda);
  self.agree(read_config);
  self.train();
}

Error stopped_by_signal(int signal) {
  return Error(static_cast<ExitCode>(exit_code_of_signal(signal)),
               fmt::format("stopped by {} at the end of a step; the model is not saved, this version writes no checkpoints",
                           signal_name(signal)));
}

std::string not_reported(std::string_view error) {
  return fmt::format("training is over and its metrics are written, but not all of it is reported: {}", error);
}

}  // namespace trident
