#include "train/run/run_checkpoints.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <span>
#include <sstream>
#include <thread>

#include "checkpoint/box_reader.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/commit.h"
#include "checkpoint/file_record.h"
#include "checkpoint/shard_boxes.h"
#include "core/clock.h"
#include "core/host_name.h"
#include "core/available_memory.h"
#include "core/file_io.h"
#include "core/random_token.h"
#include "train/run/between_steps.h"
#include "train/run/checkpoint_dir.h"
#include "train/run/earlier_run.h"
#include "train/run/run_files.h"
#include "train/run/run_manifest.h"

namespace trident {
namespace {

constexpr double kStagingMegabytes = 256;  // where memory does not allow more, or nothing has to go on meanwhile
constexpr double kAnothersSeconds = 60;    // a save at the end waits so long for a run that has taken the folder over

}  // namespace

RunCheckpoints::RunCheckpoints(const RunInputs& inputs, RankTrainer& trainer, const Logger& logger, LogErrors& log_errors)
    : inputs_(inputs),
      plan_(inputs.plan),
      trainer_(trainer),
      logger_(logger),
      log_errors_(log_errors),
      directory_(checkpoint_folder_of(inputs.plan.config)),
      tensors_(stored_tensors(inputs.plan)),
      rank_(trainer.context().rank()) {
  const bool has_base = inputs.resume ? !inputs.resume->manifest.base.empty() : inputs.initial.has_value();
  if (has_base) leave_frozen(tensors_);
}

RunCheckpoints::~RunCheckpoints() {
  trainer_.set_update_hook({});
  if (!set_aside_.empty()) logger_.warning("{}", set_aside_);
}

std::string RunCheckpoints::path_of(std::int64_t step) const { return directory_ + "/" + checkpoint_name(step); }

std::optional<TrainingState> RunCheckpoints::begin(const Say& say) {
  std::optional<SavePlan> plan;
  std::int64_t bytes = 0;  // of a save, all ranks
  fault_ = inputs_.checkpoint_fault;
  const auto unless_unfit = [&](const auto& work) {  // what the folder lacks ends only a run that was asked to save
    try {
      work();
    } catch (const UnfitFolderError& error) {
      if (plan_.config.checkpoint.every_was_given) throw;
      fault_ = error.what();
    }
  };
  if (saves_checkpoints(plan_.config) && fault_.empty()) {
    plan = save_plan_of(plan_, trainer_, tensors_);
    unless_unfit([&] { bytes = take_directory(*plan); });
  }
  tensors_ = stored_tensors(plan_);
  loaded_ = load_checkpoint(inputs_, trainer_, logger_, say, tensors_);
  if (plan) plan = save_plan_of(plan_, trainer_, tensors_);
  const TrainingState* const state = loaded_ ? &loaded_->resume.manifest.state : nullptr;
  if (state != nullptr) {
    committed_step_ = started_step_ = state->updates;
    best_valid_ = {state->best_valid_loss, state->best_valid_step};
  }
  if (plan) {
    if (lease_) unless_unfit([&] { prepare_directory(bytes, say); });
    const std::string token = lease_ && fault_.empty() ? random_token() : "";
    token_ = broadcast_text(trainer_.context().world(), trainer_.context().host_stream(), token, 0);
  }
  if (saves_on_the_way())
    make_writer(*std::move(plan), say);
  else if (lease_ && !saves())
    lease_->withdraw(), lease_.reset();
  if (rank_ == 0 && !saves()) say_that_nothing_is_saved(say);
  return state != nullptr ? std::optional(*state) : std::nullopt;
}

SavePlan save_plan_of(const RunPlan& plan, RankTrainer& trainer, const std::vector<ManifestTensor>& tensors) {
  std::set<std::string_view> left;
  for (const ManifestTensor& tensor : tensors)
    if (tensor.base) left.insert(tensor.name);
  std::vector<ShardBox> boxes = boxes_written(trainer.store().shards(), trainer.shard_holder());
  std::erase_if(boxes, [&](const ShardBox& box) { return left.contains(box.tensor); });
  return make_save_plan(boxes, trainer.shard_tensors(), state_keys(plan.config.optimizer.type), trainer.update_order(),
                        plan.config.checkpoint.content, trainer.context().rank());
}

// Refuses a folder of a run that is alive before anything there is touched.
std::int64_t RunCheckpoints::take_directory(const SavePlan& plan) {
  ParallelContext& context = trainer_.context();
  const std::int64_t bytes = over_ranks(context.world(), context.host_stream(), bytes_on_disk(plan), ReduceOp::kSum);
  if (rank_ != 0) return bytes;
  refuse_if_written(plan_.config.run.dir, directory_);
  lease_ = take_checkpoint_dir(inputs_, bytes, logger_);
  return bytes;
}

// A run that begins anew says what became of an earlier one's checkpoints together with its other files.
Say RunCheckpoints::set_aside_says() {
  return [this](const std::string& line) { set_aside_ += (set_aside_.empty() ? "" : "; ") + line; };
}

// Called on rank 0, which has the lease.
void RunCheckpoints::prepare_directory(std::int64_t bytes_of_a_save, const Say& say) {
  prepare_checkpoint_folder(directory_, committed_step_, loaded_ ? say : set_aside_says());
  if (loaded_ && committed_step_ < plan_.config.run.steps) make_room(bytes_of_a_save);
}

void RunCheckpoints::say_that_nothing_is_saved(const Say& say) {
  const bool is_own = !plan_.config.checkpoint.dir && folder_exists(directory_);
  if (fault_.empty() && plan_.config.run.overwrite && !loaded_ && is_own) {
    const std::unique_ptr<Lease> lease = take_lease(directory_, logger_);  // no other run saves there meanwhile
    prepare_checkpoint_folder(directory_, -1, set_aside_says());
  }
  if (fault_.empty())
    say("nothing of this run is saved: checkpoint.every is 0");
  else
    logger_.warning("nothing of this run is saved: {}; or set checkpoint.every=0 if nothing is to be", fault_);
}

// Collective. For a run that saves at its end alone: what the others have from the start. The folder may be another run's by now,
// where the file system has no locks, or because somebody removed the lease.
bool RunCheckpoints::make_ready(const Say& say) {
  const auto all_can = [this](const auto& work) {
    std::optional<std::string> error;
    try {
      work();
    } catch (const Error& why) {
      error = why.what();
    }
    if (agree(error)) return true;
    writer_.reset();
    lease_.reset();
    return false;
  };
  const bool is_ours = all_can([&] {
    if (rank_ != 0) return;
    // Whoever took the folder over may be this run's next start, with the supervisor's token, which must not open it to this one.
    if (!lease_->renew()) lease_ = take_lease(directory_, logger_, {.ending_seconds = kAnothersSeconds}, random_token());
    prepare_checkpoint_folder(directory_, committed_step_, say);
  });
  return is_ours && all_can([&] { make_writer(save_plan_of(plan_, trainer_, tensors_), say); });
}

// Whoever was killed before it pruned left one more than there is room for; the newest, which the run went on from, was just read.
void RunCheckpoints::make_room(std::int64_t bytes_of_a_save) {
  const std::int64_t keep_last = keep_last_for_room(plan_.config);
  const bool went_on_here = loaded_->resume.folder.starts_with(directory_ + "/");
  if (went_on_here && !has_room(directory_, bytes_of_a_save, keep_last)) prune_checkpoints(directory_, keep_rules(best_valid_));
  check_room(directory_, bytes_of_a_save, keep_last);
}

KeepRules RunCheckpoints::keep_rules(const BestValid& best) const {
  const CheckpointConfig& c = plan_.config.checkpoint;
  KeepRules rules{.newest = c.keep_last.value_or(0), .every = c.keep_every.value_or(0), .loaded = loaded_ ? loaded_->resume.folder : ""};
  if (c.keep_best && best.loss) rules.best = best.step;
  return rules;
}

// Collective, on GPUs.
void RunCheckpoints::make_writer(SavePlan plan, const Say& say) {
  ShardWriterOptions options;
  options.warn = [this](std::string_view line) { logger_.warning("{}", line); };
  const std::int64_t bytes = staging_bytes_ = staging_of(plan_.config, plan, spare_bytes());
  if (on_gpu()) {
    say_page_locked(bytes + ShardWriter::transposing_bytes(plan), say);  // all have seen what there is before one takes of it
    reads_ = trainer_.device().make_background_reads(plan.units.size());
    options.reads = reads_.get();
  }
  const std::string name = "checkpoint staging (checkpoint.staging)";
  Buffer staging = on_gpu() ? reads_->allocate(bytes, name) : allocate_host(bytes, name);
  writer_ = std::make_unique<ShardWriter>(std::move(plan), std::move(staging), std::move(options));
  if (saves_on_the_way()) trainer_.set_update_hook([this](int unit) { blocked_seconds_ += writer_->before_update(unit); });
}

// The unplanned memory of this rank's machine: a share for each of its ranks.
double RunCheckpoints::spare_bytes() const {
  if (on_gpu()) return static_cast<double>(available_memory().bytes) / std::max(1, inputs_.local_ranks);
  return spare_host_bytes(plan_, rank_, trainer_.arena_plan().total_bytes());
}

double spare_host_bytes(const RunPlan& plan, int rank, std::int64_t arena_bytes) {
  for (const MemoryPool& pool : plan.memory) {
    if (std::ranges::find(pool.ranks, rank) == pool.ranks.end()) continue;
    return static_cast<double>(pool.bytes) / static_cast<double>(pool.ranks.size()) - static_cast<double>(arena_bytes);
  }
  return 0;
}

std::int64_t staging_of(const TrainConfig& config, const SavePlan& plan, double spare) {
  const std::int64_t whole = ShardWriter::whole_staging(plan), least = ShardWriter::least_staging(plan);
  const std::optional<double>& megabytes = config.checkpoint.staging;
  double bytes = 1e6 * megabytes.value_or(kStagingMegabytes);
  if (!megabytes && !config.checkpoint.every.on_the_way().ever()) bytes = std::min(bytes, spare / 2);
  else if (!megabytes && static_cast<double>(whole) <= spare / 2) bytes = static_cast<double>(whole);
  return std::clamp(static_cast<std::int64_t>(bytes), least, whole);
}

// Memory that the system can neither move nor swap out is not taken without a word.
void RunCheckpoints::say_page_locked(std::int64_t bytes, const Say& say) const {
  bytes = over_ranks(trainer_.context().world(), trainer_.context().host_stream(), bytes, ReduceOp::kMax);
  if (rank_ != 0) return;
  say(fmt::format("checkpoints go through page-locked host memory, at most {:.1f} MB of it on a rank (checkpoint.staging)",
                  1e-6 * static_cast<double>(bytes)));
}

void RunCheckpoints::save(const TrainingState& state, const Say& say) {
  const double start = monotonic_seconds(), blocked_before = blocked_seconds_;
  if (plan_.config.checkpoint.every.on_the_way().epochs) finish(say);  // few saves, each of which somebody wants
  if (stage_ != Stage::kNone) {
    if (rank_ == 0) say(fmt::format("no checkpoint of step {}: that of step {} is still being written", state.updates, state_.updates));
    return;
  }
  state_ = state;
  started_step_ = state.updates;
  started_ = monotonic_seconds();
  if (writer_ == nullptr && !make_ready(say)) return;
  writer_->start(directory_ + "/" + temporary_name(state.updates, token_));
  stage_ = Stage::kWriting;
  blocked_seconds_ = blocked_before + monotonic_seconds() - start;  // finish() adds only a part of its time
}

// Whether no rank has an error; the first that has one says so.
bool RunCheckpoints::agree(const std::optional<std::string>& error) {
  const int first = first_rank(trainer_.context().world(), trainer_.context().host_stream(), error.has_value());
  if (first == rank_) logger_.warning("the checkpoint of step {} failed here: {}; earlier ones are as they were", state_.updates, *error);
  return first < 0;
}

void RunCheckpoints::note_failure(const std::string& what, const Say& say) {
  stage_ = Stage::kPruning;  // until rank 0 has removed what is there of it
  if (rank_ == 0) {
    say(fmt::format("no checkpoint of step {}: {}", state_.updates, what));
    const std::string name = temporary_name(state_.updates, token_);
    writer_->run([this, name] {
      writer_->note(fmt::format("removing {}/{}", directory_, name));
      remove_checkpoint_folder(directory_, name);
    });
  }
  if (plan_.config.checkpoint.on_error == OnError::kStop)
    throw StorageError(fmt::format("no checkpoint of step {}: {}; the run ends because checkpoint.on_error is \"stop\"", state_.updates, what));
}

// The committed files are not those that were written, or not everybody sees them. They stay for inspection, and so do the
// earlier ones.
void RunCheckpoints::note_unreadable(const Say& say) {
  stage_ = Stage::kNone;
  const std::string what = fmt::format("the checkpoint of step {} cannot be read back; earlier ones are kept", state_.updates);
  if (rank_ == 0) say(what);
  if (plan_.config.checkpoint.on_error == OnError::kStop) throw StorageError(fmt::format("{}; the run ends because checkpoint.on_error is \"stop\"", what));
}

void RunCheckpoints::advance(const Say& say) {
  if (lease_) lease_->refuse_if_lost();
  if (stage_ == Stage::kNone) return;
  const double start = monotonic_seconds();
  next_stage(say);
  blocked_seconds_ += monotonic_seconds() - start;
}

void RunCheckpoints::next_stage(const Say& say) {
  switch (stage_) {
    case Stage::kNone: return;
    case Stage::kWriting:
      if (!agree(writer_->error())) return note_failure("a rank could not write its part", say);
      begin_commit();
      stage_ = Stage::kCommitting;
      return;
    case Stage::kCommitting:
      if (!agree(writer_->error())) return note_failure("it could not be committed", say);
      if (rank_ == 0) say(fmt::format("checkpoint of step {}: written within {:.2f} s, {}", state_.updates, monotonic_seconds() - started_, path_of(state_.updates)));
      begin_check();
      stage_ = Stage::kChecking;
      return;
    case Stage::kChecking:
      if (!agree(writer_->error())) return note_unreadable(say);
      committed_step_ = state_.updates;
      best_valid_ = {state_.best_valid_loss, state_.best_valid_step};
      begin_prune();
      stage_ = Stage::kPruning;
      return;
    case Stage::kPruning:
      if (rank_ == 0 && writer_->error()) logger_.warning("a checkpoint that is no longer kept could not be removed: {}; remove it by hand", *writer_->error());
      stage_ = Stage::kNone;
      return;
  }
}

void RunCheckpoints::begin_commit() {
  files_.clear();
  std::string lines;
  for (const SaveFile& file : writer_->files()) lines += to_line(files_.emplace_back(manifest_file(file, tensors_)));
  const std::vector<std::string> of_ranks = gather_texts(trainer_.context().world(), trainer_.context().host_stream(), lines);
  if (rank_ != 0) return;
  auto manifest = std::make_shared<Manifest>(manifest_of(inputs_, state_, token_));
  manifest->config = config_of_manifest(config());
  manifest->tensors = tensors_;
  if (std::ranges::any_of(tensors_, [](const ManifestTensor& tensor) { return tensor.base.has_value(); }))
    manifest->base = recorded_path(loaded_ ? loaded_->resume.base->folder : inputs_.initial->folder);
  for (const std::string& text : of_ranks) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) manifest->files.push_back(manifest_file_from(line));
  }
  writer_->run([this, manifest] {
    writer_->note("flushing the logs in " + plan_.config.run.dir);
    // The logs up to this step outlive the machine as the checkpoint does; those that cannot be flushed cost no checkpoint.
    try {
      sync_run_files(plan_.config.run.dir);
    } catch (const StorageError& error) {
      log_errors_.note(error);
    }
    writer_->note("committing " + path_of(manifest->state.updates));
    commit_checkpoint(directory_, temporary_name(manifest->state.updates, token_), manifest->state.updates, *manifest, lease_.get());
  });
}

void RunCheckpoints::begin_check() {
  writer_->run([this, folder = path_of(state_.updates)] {
    if (rank_ == 0) open_manifest(folder);  // as whoever goes on from it will
    const Buffer memory = allocate_host(kBlockBytes, "a block that is read back");
    const std::span block(memory.data(), static_cast<std::size_t>(kBlockBytes));
    for (const ManifestFile& file : files_) {
      writer_->note(fmt::format("reading {}/{} back", folder, file.path));
      BoxReader reader(folder, file);
      const std::int64_t bytes = reader.table().data_bytes();
      for (std::int64_t at = 0; at < bytes; at += kBlockBytes)
        reader.read(at, block.first(static_cast<std::size_t>(std::min(kBlockBytes, bytes - at))));
    }
  });
}

void RunCheckpoints::begin_prune() {
  if (rank_ != 0) return;
  writer_->run([this, rules = keep_rules({state_.best_valid_loss, state_.best_valid_step})] {
    writer_->note("removing checkpoints from " + directory_);
    prune_checkpoints(directory_, rules);
  });
}

// The run has nothing to do but to wait: who keeps it waiting, and with which file.
void RunCheckpoints::warn_of_hang() {
  constexpr double kFirst = 10, kAgain = 60;  // seconds without a block written
  const std::optional<ShardWriter::Activity> activity = writer_ ? writer_->activity() : std::nullopt;
  if (!activity || activity->seconds < kFirst) {
    hang_said_ = 0;
    return;
  }
  if (hang_said_ > 0 && activity->seconds < hang_said_ + kAgain) return;
  hang_said_ = activity->seconds;
  logger_.warning("the run waits for the checkpoint of step {}: host {} has been {} for {:.0f} s; see whether the disk hangs; a second signal ends the run without it",
                  state_.updates, host_name(), activity->what, activity->seconds);
}

void RunCheckpoints::finish(const Say& say) {
  Communicator& world = trainer_.context().world();
  Stream& stream = trainer_.context().host_stream();
  while (stage_ != Stage::kNone) {
    // Short collectives instead of one long one: a rank that waits is not one that hangs.
    if (agree_to_stop(world, stream, {.busy = busy()}).busy) {
      warn_of_hang();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    } else {
      advance(say);
    }
  }
}

}  // namespace trident
