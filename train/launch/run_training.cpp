#include "train/launch/run_training.h"

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_path.h"
#include "core/host_name.h"
#include "train/launch/added_tokens.h"
#include "train/launch/job.h"
#include "train/plan/preflight.h"
#include "train/run/checkpoint_dir.h"
#include "train/run/earlier_run.h"
#include "train/run/rank_loop.h"
#include "train/run/run_files.h"
#include "train/run/stop_request.h"

namespace trident {
namespace {

class Training {
 public:
  Training(const TrainOutput& output, CudaBackend& cuda, const TrainHooks& hooks)
      : hooks_(hooks),
        job_(output.log, cuda, [this](const RunFailure& failure) { leave(failure); }),
        // mpirun gives every rank a terminal of its own, wherever its output goes: plain lines.
        output_{output.console, job_.is_threads() ? output.mode : ConsoleMode::kPlain, output.log, output.descriptor} {}

  void run(const std::function<TrainConfig()>& read_config) {
    job_.agree([&] { prepare(read_config); });
    RankDeviceOptions devices;
    devices.cpu.threads_per_rank = inputs_.plan.threads_per_rank;
    devices.cpu.first_core = inputs_.first_core;
    devices.cpu.bf16_products = inputs_.plan.bf16_products();
    devices.cuda = inputs_.plan.config.cuda;
    job_.run(devices, [this](JobRank rank) {
      const bool is_first = rank.world->rank() == 0;
      RankServices services;
      services.stop = &stop_;
      if (is_first) services.forecast = forecast_.get(), services.report = hooks_.report;
      if (is_first || !job_.is_threads()) services.progress = &progress_;
      // Where ranks are threads rank 0's end is the job's: it writes the last metrics after the others.
      services.trained = [this, is_first](const RunEnd& end) {
        if (is_first || !job_.is_threads()) job_.set_end(end);
      };
      RankLoop(inputs_, output_, std::move(rank), services).run();
    });
  }

 private:
  void prepare(const std::function<TrainConfig()>& read_config) {
    TrainConfig config;
    job_.begin("compares its configuration and checkpoint.dir with the others'");
    job_.together([&] {
      config = read_config();
      check_run_folder(config.run.dir);
    });
    const std::string saves_to = saves_checkpoints(config) ? checkpoint_folder_of(config) : "";
    if (job_.is_first() && !saves_to.empty()) made_folder_.emplace(saves_to);
    Rendezvous& processes = job_.processes();
    const bool was_given = !processes.broadcast(config.checkpoint.every_was_given ? "given" : "", 0).empty();
    const std::string checkpoint_fault =
        fault_unless(was_given, [&] { check_checkpoint_dir(processes, job_.leads_node(), saves_to); });
    const MachineFacts machine = job_.agree_on_machine(config);
    job_.together([&] {
      check_nccl_register(config.cuda, job_.devices(), job_.ranks(), job_.transport());
      if (job_.is_first() && hooks_.check_profile) hooks_.check_profile(config, job_.devices().kind);
    });
    job_.begin("opens the data and compares it with the others'");
    job_.together([&] { config = with_steps_of_epochs(with_added_tokens(std::move(config))); });
    RunInputs origin = agree_on_origin(config, machine);
    job_.together([&] { inputs_ = prepare_run(config, job_.site(), machine, std::move(origin), hooks_.find_samples); });
    inputs_.checkpoint_fault = checkpoint_fault;
    compare_data(processes, processes.broadcast(host_name(), 0), inputs_.data_facts);
    // To read a tokenizer takes longer than everything else here: one process of a node does, and all take the result from rank 0.
    inputs_.token_bytes = of_rank_0(processes, inputs_.token_bytes);
    const std::vector<std::string> notes = job_.notes_of(inputs_.plan.grid);
    inputs_.plan.notes.insert(inputs_.plan.notes.end(), notes.begin(), notes.end());
    job_.together([&] {
      if (!job_.is_first()) return;
      check_run_dir(config, inputs_.resume);
      if (hooks_.forecast)
        forecast_ = hooks_.forecast(inputs_, {job_.devices().kind, job_.devices().found.gpus, inputs_.local_ranks,
                                            job_.is_threads() ? job_.ranks() : 1, machine.core_share.at_once()});
    });
  }

  // Rank 0 says which checkpoint the run goes on from, or takes its weights from, and which run it is; all read the manifest.
  RunInputs agree_on_origin(TrainConfig& config, const MachineFacts& machine) {
    RunInputs origin;
    const auto agree = [&](std::optional<Resume>& found, const std::function<std::optional<Resume>()>& find,
                           const std::function<Resume(const std::string& folder)>& open, const std::function<void()>& use) {
      job_.together([&] {
        if (job_.is_first()) found = find();
      });
      const std::string folder = job_.processes().broadcast(found ? found->folder : "", 0);
      if (folder.empty()) return;
      job_.together([&] {
        if (!job_.is_first()) found = open(folder);
        use();
      });
    };
    agree(origin.resume, [&] { return find_resume(config); },
          [&](const std::string& folder) {
            Manifest manifest = open_found(folder, "checkpoint.resume", to_string(config.checkpoint.resume));
            return Resume{{folder, std::move(manifest)}};
          },
          [&] { adopt_if_sound(config, *origin.resume, job_.site(), machine, hooks_.find_samples); });
    if (origin.resume && !origin.resume->manifest.base.empty()) {
      std::optional<Resume> base;
      agree(
          base, [&] { return find_base(*origin.resume, config.model.init_from); },
          [](const std::string& folder) { return open_initial(folder, folder); },
          [&] { set_base(*origin.resume, *std::move(base)); });
    }
    config.run.id = job_.processes().broadcast(job_.is_first() ? run_id_for(config, origin.resume) : "", 0);
    if (origin.resume) return origin;
    agree(origin.initial, [&] { return find_initial(config); },
          [&](const std::string& folder) { return open_initial(folder, config.model.init_from.value_or("")); },
          [&] { open_adapter(*origin.initial, config); });
    agree(
        origin.reference, [&] { return find_reference(config); },
        [&](const std::string& folder) { return open_initial(folder, config.reference, TiedCopies::kTrusted, "reference"); },
        [] {});
    return origin;
  }

  void leave(const RunFailure& failure) {
    // A start that is refused leaves no folder, and no failure.json in one.
    if (failure.rank == 0) made_folder_.reset();
    // Where another run writes, it is not this one that failed. Among processes the writer may be this run's.
    if (job_.is_threads()) refuse_if_written(inputs_.plan.config.run.dir);
    const std::string& folder = inputs_.plan.config.run.dir;
    write_failure(folder, failure);
    try {
      say_where_it_goes_on(failure);  // first, as mpirun soon ends the ranks that are left
    } catch (const std::exception&) {
    }  // the checkpoints cannot be listed
    if (progress_.start == 0) return;
    write_run_end(folder, inputs_.plan, progress_.start, progress_.updates, failure.exit_code, failure.message);
    try {
      if (inputs_.plan.config.log.report && hooks_.report) hooks_.report(folder);
    } catch (const std::exception&) {
      return;  // why the run failed is what is to be said
    }
  }

  // Once for all processes, where a rank was lost and nobody starts the run again.
  void say_where_it_goes_on(const RunFailure& failure) {
    const TrainConfig& config = inputs_.plan.config;
    const bool speaks = job_.processes().rank() == (failure.rank == 0 ? 1 : 0);
    if (!speaks || failure.exit_code != exit_status(ExitCode::kCommunication) || !failure.start.empty()) return;
    const bool is_newest = config.checkpoint.resume.kind == ResumeFrom::Kind::kNewest && !config.run.overwrite;
    if (!is_newest || !saves_checkpoints(config) || !can_go_on(config)) return;
    const auto newest = newest_checkpoint(checkpoint_folder_of(config));
    Logger(output_.log).info("{}", newest ? fmt::format("the same command goes on from the checkpoint {}", *newest)
                                          : "the same command begins anew: there is no checkpoint yet");
  }

  const TrainHooks& hooks_;
  const StopRequest stop_;  // from the first moment: a job may be told to stop while it starts
  std::optional<MadeFolder> made_folder_;  // checkpoint.dir, on rank 0
  RunInputs inputs_;
  RunProgress progress_;
  std::unique_ptr<RunForecast> forecast_;  // of rank 0
  Job job_;                               // behind all that its threads use
  const TrainOutput output_;
};

}  // namespace

void run_training(const std::function<TrainConfig()>& read_config, const TrainOutput& output, CudaBackend& cuda,
                  const TrainHooks& hooks) {
  Training(output, cuda, hooks).run(read_config);
}

}  // namespace trident
