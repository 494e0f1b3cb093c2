#include "train/launch/prepare_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "core/int_math.h"
#include "core/shell_word.h"
#include "data/dataset_files.h"
#include "data/dataset_record.h"
#include "data/dataset_sample.h"
#include "data/tokenizer/tokenizer.h"
#include "device/cpu/cpu_device.h"
#include "train/launch/added_tokens.h"
#include "train/launch/rank_devices.h"
#include "train/plan/preflight.h"
#include "train/run/adopt.h"
#include "train/run/arena_check.h"
#include "train/run/earlier_run.h"
#include "train/run/model_tokenizer.h"
#include "train/run/rank_trainer.h"
#include "train/run/reference.h"
#include "train/run/run_manifest.h"
#include "train/run/run_together.h"
#include "train/run/zero_cost.h"

namespace trident {
namespace {

// Where data.eod is not what ends the documents that a tokenizer of the records made.
std::vector<std::string> other_ends(const DataConfig& data, const std::vector<std::string>& prefixes, const ReadAt& read_at) {
  std::vector<std::string> warnings;
  if (!data.eod || !data.finds_documents() || data.boundaries == DocumentBoundaries::kIndex) return warnings;
  for (const std::string& prefix : std::set<std::string>(prefixes.begin(), prefixes.end())) {
    const std::optional<DatasetRecord> record = read_record(prefix, read_at);
    if (!record || !record->origin.tokenizer || record->origin.tokenizer->eod.value_or(*data.eod) == *data.eod) continue;
    warnings.push_back(fmt::format("data.eod = {}: {} says that its tokenizer {} ends documents with {}; leave the key out, unless "
                                   "the data was prepared otherwise", *data.eod, record_path(prefix),
                                   in_quotes(record->origin.tokenizer->name), *record->origin.tokenizer->eod));
  }
  return warnings;
}

// Such data is learned from, where rows suffice: a tokenizer may be replaced on purpose. A loss that begins high does not say why.
std::vector<std::string> other_tokenizer_of_weights(const RunInputs& inputs, const Tokenizer* named,
                                                    const std::vector<std::string>& prefixes, const ReadAt& read_at) {
  const std::unique_ptr<Tokenizer> theirs =
      inputs.initial ? find_tokenizer({}, nullptr, *inputs.initial, "model.init_from").tokenizer : nullptr;
  if (theirs == nullptr || (named != nullptr && has_tokens_of(*named, *theirs))) return {};
  // A checkpoint says more than the files that lie beside its base now.
  const std::string learned = tokenizer_of_data(inputs.initial->manifest.data);
  for (const std::string& prefix : prefixes) {
    const std::optional<DatasetRecord> record = read_record(prefix, read_at);
    if (!record || !record->origin.tokenizer) continue;
    const RecordedTokenizer& made_by = *record->origin.tokenizer;
    if (learned.empty() ? made_by == recorded(*theirs) : made_by.fingerprint == learned) continue;
    return {fmt::format("{}: was made by {}, and the weights of model.init_from by {}, to which its ids mean other texts; prepare "
                        "the data with that one, unless another is meant to take its place",
                        record_path(prefix), described(made_by),
                        learned.empty() ? described(recorded(*theirs)) : "tokenizer " + learned)};
  }
  return {};
}

// A turn of a conversation ends with a token that a tokenizer also calls the end of a document.
std::vector<std::string> cut_conversations(const TrainConfig& config, const TokenSources& sources) {
  const auto masked = std::ranges::find_if(sources.train, [](const TokenSource& it) { return it.dataset->mask() != nullptr; });
  if (masked == sources.train.end() || !config.data.finds_documents() || config.data.boundaries == DocumentBoundaries::kIndex)
    return {};
  return {fmt::format("data.boundaries = \"eod\": {} has a .mask, as conversations have, whose turns often end with that token; "
                      "set data.boundaries to \"index\", which keeps each of them whole", masked->label)};
}

// The loss there is no measure of other text.
std::vector<std::string> validation_in_training(const DataConfig& data) {
  std::vector<std::string> warnings;
  std::map<std::string, DatasetOrigin> origins;
  for (const WeightedPath& valid : data.valid)
    for (const WeightedPath& train : data.train)
      if (const std::string shared = shared_text(valid.path, train.path, origins); !shared.empty()) {
        warnings.push_back(fmt::format("data.valid: {} {}, on which the run trains; take other text, or hold out a part of the "
                                       "training data by data.split", valid.path, shared));
        break;
      }
  return warnings;
}

// Rows of the embedding that no token of the data has cost memory and time as others do.
std::optional<std::string> unused_rows(const RunInputs& inputs, const Tokenizer& tokenizer) {
  const ModelSource& model = inputs.plan.config.model;
  if (inputs.initial || inputs.resume || model.preset || model.hf_config) return {};  // of a preset the size cannot be set
  const std::int64_t tokens = tokenizer.vocab_size();
  if (inputs.plan.model.vocab_size / 4 < tokens) return {};
  return fmt::format("model.vocab_size = {}, the tokenizer has {}: --set model.vocab_size={} trains a smaller embedding",
                     inputs.plan.model.vocab_size, tokens, (tokens + 3) / 4 * 4);
}

// The tokenizer's lengths, and whether it is the one that made the data. Before ids are looked at: a record says more about why one
// is outside the vocabulary.
void compare_tokenizers(RunInputs& inputs, const ReadAt& read_at) {
  const std::int64_t vocabulary = inputs.plan.model.vocab_size;
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of_run(inputs.plan.config.data);
  if (tokenizer != nullptr) {
    inputs.token_bytes = tokenizer->text_lengths();
    inputs.token_bytes.resize(std::max(inputs.token_bytes.size(), static_cast<std::size_t>(vocabulary)));
    if (std::optional<std::string> note = unused_rows(inputs, *tokenizer)) inputs.plan.notes.push_back(*std::move(note));
  }
  const Tokenizer* const named = inputs.plan.config.data.tokenizer ? tokenizer.get() : nullptr;
  std::vector<std::string> prefixes;
  for (const auto* part : {&inputs.sources.train, &inputs.sources.valid})
    for (const TokenSource& source : *part) prefixes.push_back(source.dataset->prefix());
  for (std::string& note : check_records(prefixes, named, "data.tokenizer", vocabulary, read_at))
    inputs.plan.details.push_back(std::move(note));
  for (std::vector<std::string> warnings :
       {other_ends(inputs.plan.config.data, prefixes, read_at), other_tokenizer_of_weights(inputs, named, prefixes, read_at),
        cut_conversations(inputs.plan.config, inputs.sources), validation_in_training(inputs.plan.config.data)})
    std::ranges::move(warnings, std::back_inserter(inputs.warnings));
}

// Every process needs them, whoever looks at the data.
void set_documents(RunInputs& inputs) {
  const DataConfig& data = inputs.plan.config.data;
  if (!data.finds_documents()) return;
  std::unique_ptr<Tokenizer> tokenizer;
  const bool by_index = data.boundaries == DocumentBoundaries::kIndex;
  // Data may have been prepared with another --eod than the end of their tokenizer: only who names it says that it ends documents.
  if (!by_index && !data.eod && data.tokenizer) tokenizer = load_tokenizer(*data.tokenizer, "data.tokenizer");
  inputs.documents = document_rules(data, inputs.plan.model.vocab_size, tokenizer.get());
  for (const TokenSource& source : inputs.sources.train)
    if (by_index && !data.is_packed() && source.dataset->num_sequences() < 2)
      throw DataError(
          fmt::format("{}: data.boundaries = \"index\", and it is one sequence, in which no document ends; prepare the "
                      "text as several documents (trident data prepare --separator-line), or set data.boundaries to "
                      "\"eod\"",
                      source.dataset->idx().path()));
}

// The plan was made by what was there a moment before.
void refuse_other_masks(const RunInputs& inputs) {
  const auto has_mask = [](const TokenSource& source) { return source.dataset->mask() != nullptr; };
  const TokenSources& sources = inputs.sources;
  if ((std::ranges::any_of(sources.train, has_mask) || std::ranges::any_of(sources.valid, has_mask)) ==
      inputs.plan.config.data.has_mask)
    return;
  throw DataError(fmt::format("{}: another command replaced its mask while the run started; start again",
                              sources.train.front().label));
}

// Files that `trident data pack` made go with data.samples "packed", and with each other.
void compare_packs(RunInputs& inputs) {
  const TokenSource* packed = nullptr;
  const TokenSource* other = nullptr;
  for (const TokenSource& source : inputs.sources.train)
    (origin_in_record(source.dataset->prefix()).packed ? packed : other) = &source;
  const TrainConfig& config = inputs.plan.config;
  const auto note = [&](const std::string& why, const std::string& more = "") {
    const std::string& prefix = other->dataset->prefix();
    inputs.plan.notes.push_back(
        fmt::format("data.samples = {}: {} {}; pack them: {}, and train with --set data.samples=packed --set {}{}",
                    in_quotes(to_string(config.data.samples)), other->label, why, pack_command(prefix, config.batch.sequence),
                    for_shell(fmt::format("data.train={}-packed", prefix)), more));
  };
  if (packed == nullptr && config.data.is_packed() &&
      2 * other->num_tokens < other->num_samples(config.batch.sequence) * config.batch.sequence) {
    const double in_pack = static_cast<double>(other->num_samples(config.batch.sequence) * config.batch.sequence) /
                           static_cast<double>(std::max<std::int64_t>(1, other->num_tokens));
    const char* const things = config.loss.is_dpo() ? "pairs" : "documents";
    note(fmt::format("is of single {}, and most of a sample is padding", things),
         fmt::format("; a pack has about {0:.1f} {1}, so that a step of batch.global = {2} learns from {3:.0f} {1} in place of {2}",
                     in_pack, things, config.batch.global, in_pack * static_cast<double>(config.batch.global)));
  }
  if (packed == nullptr && other->dataset->mask() != nullptr && !config.data.finds_documents())
    note("has a .mask, as conversations have, and samples run across them");
  if (packed == nullptr) return;
  const std::string_view samples = to_string(inputs.plan.config.data.samples);
  if (other != nullptr)
    throw ConfigError(fmt::format("data.samples = {}: {} is of packs (trident data pack) and {} is not, and a sample is the same "
                                  "of all files; pack both, or none",
                                  in_quotes(samples), packed->label, other->label));
  if (!inputs.plan.config.data.is_packed())
    inputs.warnings.push_back(fmt::format("data.samples = {}: {} is of packs (trident data pack), and samples run across them; set "
                                          "data.samples to \"packed\"",
                                          in_quotes(samples), packed->label));
}

// Cross-entropy would teach the rejected answers, too.
void refuse_pairs(const RunInputs& inputs) {
  if (inputs.plan.config.loss.is_dpo()) return;
  for (const auto* part : {&inputs.sources.train, &inputs.sources.valid})
    for (const TokenSource& source : *part)
      if (origin_in_record(source.dataset->prefix()).pairs)
        throw ConfigError(fmt::format("loss.type = \"cross_entropy\": {} has pairs of a chosen and a rejected answer (trident data "
                                      "prepare --preference), and both would be learned; set loss.type to \"dpo\", or prepare the "
                                      "chosen answers alone as conversations (trident data prepare --chat)",
                                      source.label));
}

// A record says whether its data are pairs; without one the number of sequences does. look_at_packs() reads them all.
void refuse_other_than_pairs(const TokenSource& source) {
  const IndexedDataset& data = *source.dataset;
  const DatasetOrigin origin = origin_in_record(data.prefix());
  if (origin.pairs || (!origin.packed && data.num_sequences() == 2 * data.num_documents())) return;
  throw DataError(
      fmt::format("{}: has {} in {}{}, and with loss.type = \"dpo\" a document is a pair of two, or a pack of pairs; prepare the "
                  "data by trident data prepare --preference, again where an earlier version did, and pack what that has made",
                  data.prefix(), counted(data.num_sequences(), "sequence"), counted(data.num_documents(), "document"),
                  origin.packed ? ", which are packed without regard to pairs" : ""));
}

// Looks at documents that are samples.
void look_at_samples(RunInputs& inputs) {
  const TrainConfig& config = inputs.plan.config;
  const bool evaluates = config.eval.every.ever();
  for (auto* part : {&inputs.sources.train, &inputs.sources.valid}) {
    const bool pairs = config.loss.is_dpo() && (evaluates || part == &inputs.sources.train);
    for (TokenSource& source : *part) {
      if (pairs) refuse_other_than_pairs(source);
      source.targets = look_at_packs(source, config.batch.sequence, pairs ? PackContent::kPairs : PackContent::kSequences);
    }
  }
}

// The ranks compare these facts of the data, with `looks` also a look at it.
void describe_data(RunInputs& inputs, bool looks) {
  std::map<const IndexedDataset*, std::uint64_t> samples;  // the parts of a split are of one dataset
  for (const auto* part : {&inputs.sources.train, &inputs.sources.valid}) {
    for (const TokenSource& source : *part) {
      const IndexedDataset& dataset = *source.dataset;
      DataFacts& facts = inputs.data_facts.emplace_back();
      facts.label = source.label;
      facts.sizes = fmt::format("{}, {}, {} of type {}, from {} for {}", counted(dataset.num_documents(), "document"),
                                counted(dataset.num_sequences(), "sequence"), counted(dataset.num_tokens(), "token"),
                                name_of(dataset.type()), source.first_token, source.num_tokens);
      if (dataset.mask() != nullptr) facts.sizes += ", with a mask of targets";
      if (!looks) continue;
      if (!samples.contains(&dataset)) samples[&dataset] = sample_dataset(dataset, inputs.plan.model.vocab_size);
      facts.content = fmt::format("content {:016x}", samples[&dataset]);
      if (const auto tokenizer = origin_in_record(dataset.prefix()).tokenizer) facts.tokenizer = tokenizer->fingerprint;
    }
  }
}

// Judged by the configuration alone, so that no later start of the same command is refused what this one was not. ConfigError where
// the steps behind the decay would change nothing.
std::vector<std::string> warnings_of(const TrainConfig& config) {
  std::vector<std::string> warnings;
  const LrSchedule schedule = lr_schedule_of(config);
  const std::int64_t steps = config.run.steps, decay = schedule.decay_steps;
  if (steps > decay && schedule.type != LrScheduleType::kConstant && schedule.min_lr < schedule.lr) {
    const std::string rate = fmt::format("lr_schedule.decay_steps = {}: the learning rate is {:.4g} from step {} to the last, {}",
                                         decay, schedule.min_lr, decay + 1, steps);
    const std::string remedy = fmt::format("--set lr_schedule.decay_steps={} lets it fall until the run ends", steps);
    if (schedule.min_lr == 0) throw ConfigError(fmt::format("{}, which would change nothing; {}", rate, remedy));
    warnings.push_back(fmt::format("{}, its minimum; {}", rate, remedy));
  }
  const CheckpointConfig& saved = config.checkpoint;
  if (saves_checkpoints(config) && saved.content == CheckpointContent::kWeights && saved.resume.kind == ResumeFrom::Kind::kNewest)
    warnings.emplace_back(
        "checkpoint.content = \"weights\": no run goes on from weights alone, so the same command is refused once they are "
        "saved; --set checkpoint.resume=never begins anew each time, --set checkpoint.content=all goes on");
  for (const JsonValue& sample : config.eval.samples) {
    std::error_code ignored;  // of texts that are no names of files
    if (sample.is_string() && std::filesystem::is_regular_file(sample.as_string(), ignored))
      warnings.push_back(fmt::format("eval.samples: {} is continued as a text, and the file of that name is not read; give the "
                                     "texts themselves, or lists of messages", in_quotes(sample.as_string())));
  }
  return warnings;
}

// The one update of a run is the last of its schedule, whose learning rate is 0 as a rule.
void refuse_one_update(const RunInputs& inputs) {
  const TrainConfig& config = inputs.plan.config;
  if (!config.run.epochs || inputs.resume || lr_schedule_of(config).at(1) != 0) return;
  const std::int64_t samples = samples_of(inputs.sources.train, config.batch.sequence), least = inputs.plan.grid.degrees().data;
  const std::int64_t most = steps_of_epochs(*config.run.epochs, samples, least);
  const std::string smaller =
      most < 2 ? "" : fmt::format("; --set batch.global={} --set batch.micro=1 makes {} updates", least, most);
  throw ConfigError(fmt::format(
      "run.epochs = {0}: {0} x {1} make one update of batch.global = {2}. It is the last of lr_schedule, at rate 0, and would "
      "change nothing; a larger run.epochs makes more{3}{4}",
      *config.run.epochs, counted(samples, config.data.is_packed() ? "pack" : "sample"), config.batch.global, smaller,
      config.data.is_packed() ? "; a smaller --sequence of trident data pack makes more packs" : ""));
}

// Each rank to cores of its own.
bool bound_by_launcher(const MachineFacts& machine) { return std::ssize(machine.cores.ids) < machine.core_share.cores; }

void place_on_cores(RunInputs& inputs, const LaunchSite& place, const MachineFacts& machine) {
  const CoreShare& share = machine.core_share;
  const int local = inputs.local_ranks, threads = inputs.plan.threads_per_rank;
  const int machines = place.one_machine ? 1 : place.nodes, beside = place.nodes / machines;  // nodes on a machine
  inputs.ranks_at_once = static_cast<double>(machines * std::min(share.at_once(), beside * local * threads)) / threads;
  inputs.one_machine = place.one_machine;
  if (!inputs.plan.config.run.pin || bound_by_launcher(machine)) return;
  inputs.first_core = first_core_here(place, machine, local, threads);
  if (inputs.first_core) return;
  const std::string cores = counted(share.cores, "core");
  inputs.plan.details.push_back(share.at_once() < share.cores
                                  ? fmt::format("not pinned: a CPU quota of {:.3g} on {}", *share.quota, cores)
                                  : fmt::format("not pinned: {} on {}", counted(local * threads, "thread"), cores));
}

// The share of a file's targets that count, of eight stretches of it: 4 KiB are read.
double counted_share_of(const IndexedDataset& dataset) {
  constexpr std::int64_t kStretches = 8, kStretch = 4096;
  const std::int64_t tokens = dataset.num_tokens(), length = std::min(kStretch, ceil_div(tokens, kStretches));
  if (dataset.mask() == nullptr || tokens == 0) return 1;
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < kStretches; ++i)
    counted += dataset.mask()->counted((tokens - length) * i / (kStretches - 1), length);
  return static_cast<double>(counted) / static_cast<double>(kStretches * length);
}

// A checkpoint without adapters begins a run with them: they are drawn.
std::vector<ManifestTensor> tensors_to_begin_with(const RunPlan& plan, const Resume& initial) {
  const std::vector<ManifestTensor>& stored = initial.manifest.tensors;
  std::vector<ManifestTensor> tensors = stored_tensors(plan);
  return without_adapters(stored) == stored ? without_adapters(std::move(tensors)) : tensors;
}

}  // namespace

std::optional<int> first_core_here(const LaunchSite& place, const MachineFacts& machine, int local_ranks, int threads) {
  // Under a quota the cores belong to others, too, whose programs would all take the first ones.
  if (bound_by_launcher(machine) || machine.core_share.at_once() < machine.core_share.cores) return std::nullopt;
  return core_for_rank(place.first_local, local_ranks, threads);
}

namespace {

TokenSources open_sources(const TrainConfig& config, const ReadAt& read_at) {
  const DataConfig& data = config.data;
  PrepareHint hint{data.tokenizer.value_or(""), data.is_packed() ? config.batch.sequence : 0};
  if (hint.tokenizer.empty() && config.model.init_from && is_hf_folder(hub_snapshot(*config.model.init_from)))
    hint.tokenizer = *config.model.init_from;
  return open_token_sources(data.train, data.valid, data.split, read_at, data.samples, hint);
}

}  // namespace

TrainConfig with_steps_of_epochs(TrainConfig config) {
  if (!config.run.epochs) return config;
  const TokenSources sources = open_sources(config, ::pread);
  config.run.steps = steps_of_epochs(*config.run.epochs, samples_of(sources.train, config.batch.sequence), config.batch.global);
  return config;
}

TrainConfig with_facts_of_files(TrainConfig config, bool reads_masks) {
  try {
    config = with_steps_of_epochs(with_added_tokens(config));
  } catch (const DataError&) {  // as below; the plan's notes say so
  }
  DataConfig& data = config.data;
  for (const auto* part : {&data.train, &data.valid})
    for (const WeightedPath& source : *part) data.has_mask = data.has_mask || is_there(mask_path(source.path));
  const bool measures_documents = data.reset_attention_mask && !data.mean_document;
  if (!data.has_mask && !measures_documents) return config;
  double documents = 0, counted = 0, weights = 0;  // of a token of the blend
  try {
    for (const WeightedPath& source : data.train) {
      const IndexedDataset dataset(source.path);
      counted += source.weight * (reads_masks ? counted_share_of(dataset) : 1);
      const bool by_index = data.boundaries == DocumentBoundaries::kIndex;
      const std::int64_t count = by_index ? dataset.num_sequences() : dataset.num_documents();
      documents +=
          source.weight * static_cast<double>(count) / static_cast<double>(std::max<std::int64_t>(1, dataset.num_tokens()));
      weights += source.weight;
    }
  } catch (const Error&) {
    return config;  // a plan needs no data, and a run says what is wrong with it
  }
  if (weights > 0) data.counted_share = counted / weights;
  if (documents > 0 && measures_documents) data.measured_document = weights / documents;
  return config;
}

void open_data(RunInputs& inputs, bool looks, const ReadAt& read_at) {
  const TrainConfig& config = inputs.plan.config;
  inputs.sources = open_sources(config, read_at);
  if (looks) compare_tokenizers(inputs, read_at), compare_packs(inputs), refuse_pairs(inputs);
  refuse_other_masks(inputs);
  if (looks && config.data.is_packed()) look_at_samples(inputs);
  set_documents(inputs);
  train_loader(inputs, inputs.resume);  // refuses files without one sample
  if (config.eval.every.ever()) {
    if (inputs.sources.valid.empty()) {
      throw ConfigError(
          fmt::format("eval.every = {} ({}): there is no validation data; set data.valid or data.split, or eval.every to 0",
                      config.eval.every.epochs ? "\"epoch\"" : std::to_string(config.eval.every.steps), config.eval.every_origin));
    }
    validation_sets(inputs);
  }
  describe_data(inputs, looks);
}

RunInputs prepare_run(const TrainConfig& config, const LaunchSite& place, const MachineFacts& machine, RunInputs inputs,
                      const FindSamples& find_samples) {
  if (place.world_size == 0) check_thread_ranks(config);
  const bool is_over = inputs.resume && inputs.resume->manifest.state.updates >= config.run.steps;
  if (!is_over) inputs.warnings = warnings_of(config);
  const ModelConfig model = resolve_model(config);
  // All memory together; machines and GPUs are judged one by one when arenas are known.
  check_model_fits(model, config, machine.bytes());
  if (find_samples) inputs.samples = find_samples(config, model);
  RunPlan plan = make_run_plan(with_facts_of_files(config, place.reads_all), model, place.world_size, machine);
  if (inputs.samples) plan.generation = inputs.samples->shapes();
  inputs.plan = settle_grad_sync(std::move(plan), machine);
  inputs.local_ranks = place.local_ranks > 0 ? place.local_ranks : inputs.plan.world_size();
  const auto stages_of_plan = [&](const RunPlan& plan) { return dry_stages_here(plan, machine.device, DryWork::kConstruct); };
  const std::vector<DryRun> stages = stages_of_plan(inputs.plan);
  for (const DryRun& stage : stages) {
    inputs.dry_arenas.push_back(stage.arena.total_bytes());
    if (config.checkpoint.every.on_the_way().ever())
      inputs.dry_staging += stage.staging * inputs.plan.world_size() / std::ssize(stages);
  }
  check_arenas(inputs.plan, arena_needs(inputs.plan, stages), [&](std::int64_t micro) {
    const RunPlan other = with_micro_batch(inputs.plan, micro);
    return arena_needs(other, stages_of_plan(other));
  });
  if (inputs.initial) {
    check_initial_model(config, tensors_to_begin_with(inputs.plan, *inputs.initial), *inputs.initial);
    if (std::optional<std::string> line = added_rows_line(model, *inputs.initial)) inputs.plan.notes.push_back(*std::move(line));
  }
  if (inputs.reference || (inputs.initial && config.reference == kAdapterOffReference)) check_reference(inputs);
  open_data(inputs, place.reads_all);
  refuse_one_update(inputs);
  if (inputs.initial && place.reads_all)
    if (std::optional<std::string> warning = refuse_frozen_rows(config, tensors_to_begin_with(inputs.plan, *inputs.initial),
                                                                *inputs.initial, inputs.sources.train))
      inputs.warnings.push_back(*std::move(warning));
  if (inputs.resume && place.reads_all) check_resumed_data(config, inputs.training_facts(), *inputs.resume);
  if (saves_checkpoints(config)) check_manifest(inputs);
  if (machine.device == DeviceKind::kCuda) {
    inputs.ranks_at_once = static_cast<double>(place.gpus.size());
    inputs.peak_flops = named_peak_flops(place.gpus, inputs.plan.compute).value_or(0);
    return inputs;  // cores are for those who compute on them
  }
  place_on_cores(inputs, place, machine);
  return inputs;
}

void adopt_if_sound(TrainConfig& config, Resume& resume, const LaunchSite& place, const MachineFacts& machine,
                    const FindSamples& find_samples) {
  const TrainConfig asked = config;
  try {
    adopt(config, resume);
  } catch (const ConfigError&) {
    prepare_run(asked, place, machine, {}, find_samples);
    throw;
  }
}

void check_run_dir(const TrainConfig& config, const std::optional<Resume>& resume) {
  refuse_if_written(config.run.dir, checkpoint_folder_of(config));
  if (!goes_on_in_run_dir(config, resume)) check_earlier_run(config);
  if (!config.log.prometheus || resume) return;  // a run that goes on does so without what its logs cannot take
  try {
    const AtomicFile could_be(*config.log.prometheus);
  } catch (const StorageError& error) {
    throw StorageError(fmt::format("log.prometheus = {}; or name another file in log.prometheus", error.what()),
                       error.system_error());
  }
}

void compare_data(Rendezvous& job, const std::string& host_of_rank_0, const std::vector<DataFacts>& mine) {
  for (const auto field : {&DataFacts::sizes, &DataFacts::content}) {
    std::string text;
    for (const DataFacts& facts : mine) text += facts.*field + "\n";
    std::istringstream of_rank_0(job.broadcast(text, 0));
    run_together(job, [&] {
      for (const DataFacts& facts : mine) {
        std::string there;
        std::getline(of_rank_0, there);
        if ((facts.*field).empty() || facts.*field == there) continue;  // another process of the node looked
        throw DataError(fmt::format("the training data differs: {} has {}; on rank 0 ({}) it has {}; give all nodes the same files",
                                    facts.label, facts.*field, host_of_rank_0, there));
      }
    });
  }
}

}  // namespace trident
