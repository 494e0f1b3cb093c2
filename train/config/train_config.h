// A training run as the user asked for it: plain nested structs, one per block of the configuration file.
//
// Member names are the file's keys; meanings, units, ranges and defaults stand in the option table (docs/configuration.md). What
// depends on the world size or the model is decided later, by the run plan.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cuda_options.h"
#include "core/document_boundaries.h"
#include "core/json_reader.h"
#include "core/parallel_axis.h"
#include "core/recompute_policy.h"
#include "core/weighted_path.h"
#include "core/zero_policy.h"
#include "optim/lr_schedule.h"
#include "optim/update_rule.h"
#include "pipeline/schedule/schedule_generators.h"
#include "train/config/config_enums.h"
#include "train/config/option_values.h"

namespace trident {

// A number, or "auto", which is nothing.
template <class T>
struct OrAuto : std::optional<T> {
  using std::optional<T>::optional;
};

struct RunConfig {
  std::string dir;
  std::string id;  // no key: drawn when the run begins, kept where it goes on; "": not drawn
  bool overwrite = false;  // another run's files in dir are moved aside
  std::int64_t seed = 0;
  std::int64_t steps = 0;        // 0: by epochs, until the data are known (with_steps_of_epochs())
  std::optional<double> epochs;  // in the place of steps
  double max_minutes = 0;
  OrAuto<std::int64_t> threads_per_rank;
  bool pin = true;
  std::optional<std::string> hardware_profile;  // of what predictions are priced with; nothing: the program's own
};

// Exactly one of preset, hf_config and keys (an object with "model_type") names the model; beside a preset or hf_config, keys may
// have "sliding_window", which then counts instead of theirs.
struct ModelSource {
  std::optional<std::string> preset;
  std::optional<std::string> hf_config;
  JsonValue keys;  // Hugging Face's config.json keys as written; null where none were
  std::optional<std::string> init_from;  // a checkpoint whose weights training begins with
  std::optional<double> dropout;
};

struct GradSync {
  enum class Kind : std::uint8_t { kPreset, kStep, kAuto, kEvery } kind = Kind::kPreset;
  std::int64_t every = 0;  // micro-batches, for kEvery
  bool operator==(const GradSync&) const = default;
};

struct ParallelConfig {
  OrAuto<std::int64_t> data;  // data-parallel ranks
  std::int64_t pipeline = 1, tensor = 1, context = 1, virtual_stages = 1;
  ScheduleKind schedule = ScheduleKind::k1f1b;
  bool sequence_parallel = false;
  ZeroPreset zero = ZeroPreset::kZero1;
  GradSync grad_sync;
  std::optional<ParamGather> param_gather;
  std::optional<std::vector<std::int64_t>> layers;
  AxisOrder order = kMegatronOrder;
  bool overlap = true;
  double bucket_mb = 25;
};

struct BatchConfig {
  std::int64_t global = 0, micro = 1, sequence = 0;
};

// The factor of the loss: a power of two.
struct LossScale {
  enum class Kind : std::uint8_t { kByFormat, kDynamic, kFixed };  // kByFormat: dynamic with fp16, 1 with other formats
  Kind kind = Kind::kByFormat;
  double fixed = 1;
};

struct PrecisionConfig {
  ComputeFormat compute = ComputeFormat::kAuto;
  std::optional<double> bf16_over_fp32;  // no key: of the machines where the run began, by which auto was settled
  std::string master, reduce;
  LossScale loss_scale;
  bool stochastic_rounding = false;  // of bf16 weights after an update
};

// Low-rank adapters, which alone train where there are any.
struct AdapterConfig {
  std::optional<std::string> type;  // nothing: there are none
  std::optional<std::string> init_from;  // a PEFT folder; the other members are what it says
  std::int64_t r = 8;
  double alpha = 8, dropout = 0;
  std::vector<std::string> target_modules{"all-linear"}, exclude_modules;
  std::vector<std::string> modules_to_save;         // train whole
  std::optional<std::vector<std::int64_t>> layers;  // nothing: all
  bool rslora = false;
  std::string dtype = "fp32";
};

// Steps, or a share of those until the decay ends.
struct ScheduleLength {
  std::int64_t steps = 0;
  std::optional<double> share;

  std::int64_t within(std::int64_t decay_length) const {
    return share ? static_cast<std::int64_t>(std::ceil(*share * static_cast<double>(decay_length))) : steps;
  }
};

struct LrScheduleConfig {
  LrScheduleType type = LrScheduleType::kConstant;
  ScheduleLength warmup;
  double min_lr = 0;
  std::optional<std::int64_t> decay_steps;  // as given; decay_length() is the one in force
  std::int64_t earlier_decay_length = 0;    // no key: in force at the checkpoint that the run goes on from; 0: it begins
  bool adds_one_step = false;               // no key: this start lengthens the decay by the only step that it makes
  std::optional<ScheduleLength> wsd_decay_steps;
  LrDecay wsd_decay_type = LrDecay::kExponential;
};

struct DataConfig {
  std::vector<WeightedPath> train;
  std::vector<WeightedPath> valid;  // empty: none given
  std::optional<std::string> split;
  bool shuffle = true;
  SampleKind samples = SampleKind::kStream;
  std::optional<std::string> tokenizer;  // nothing: unknown
  bool tokenizer_was_auto = false;       // it was not named, but found by the vocabulary
  bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false;
  DocumentBoundaries boundaries = DocumentBoundaries::kEod;
  std::optional<std::int64_t> eod;          // nothing: the tokenizer's
  std::optional<double> mean_document;      // tokens, as given; mean_document_tokens() is the one in force
  std::optional<double> measured_document;  // no key: of the training files' .idx
  bool has_mask = false;                    // no key: a training or validation file has a mask of targets
  double counted_share = 1;                 // no key: of the training files' targets, by a sample of their masks

  std::optional<double> mean_document_tokens() const { return mean_document ? mean_document : measured_document; }

  // Whether something depends on where documents begin within a sample.
  bool finds_documents() const { return eod_mask_loss || needs_starts(); }
  // Whether targets may not count; and for messages by what, and where to look when none does.
  bool masks_targets() const { return eod_mask_loss || has_mask; }
  std::string_view masked_by() const {
    if (is_packed()) return has_mask ? "PREFIX.mask" : "packs of sequences of one token";
    return !has_mask ? "data.eod_mask_loss" : eod_mask_loss ? "data.eod_mask_loss, PREFIX.mask" : "PREFIX.mask";
  }
  std::string_view masks_remedy() const {
    return eod_mask_loss && !is_packed() ? "look at the data and at data.eod" : "look at the data (trident data inspect)";
  }
  bool is_packed() const { return samples == SampleKind::kPacked; }
  // Whether each token's document is to be known, and not only which targets belong to another one.
  bool needs_starts() const { return reset_position_ids || reset_attention_mask; }
};

// The weights before the first step, and these without their adapters.
inline constexpr std::string_view kInitialReference = "initial", kAdapterOffReference = "adapter_off";

struct LossConfig {
  LossType type = LossType::kCrossEntropy;
  LossNormalize normalize = LossNormalize::kToken;
  double beta = 0.1;
  DpoVariant variant = DpoVariant::kSigmoid;
  double label_smoothing = 0, nll_weight = 0;
  bool length_normalized = false;

  // Whether losses of tokens have weights of their own (MicroBatch::row_weights).
  bool weighs_rows() const { return normalize != LossNormalize::kToken || is_dpo(); }
  bool is_dpo() const { return type == LossType::kDpo; }
};

// Every so many steps, or where an epoch of the training data ends.
struct StepInterval {
  std::int64_t steps = 0;  // 0: never
  bool epochs = false;
  bool ever() const { return steps > 0 || epochs; }
  bool operator==(const StepInterval&) const = default;
};

struct EvalConfig {
  StepInterval every;
  std::string every_origin;  // no key: who says so, "c.json:12" or another system's flag
  std::int64_t steps = 0;
  std::vector<JsonValue> samples;       // prompts: texts and conversations
  std::vector<std::string> sample_ids;  // token ids as "5 17 2"
  std::int64_t sample_tokens = 0;
  double sample_temperature = 1;

  bool has_samples() const { return !samples.empty() || !sample_ids.empty(); }
};

// On the way and where the run ends, there alone ("end"), or never (0).
struct SaveInterval {
  std::int64_t steps = 0;
  bool at_end = false;
  bool epochs = false;
  StepInterval on_the_way() const { return {steps, epochs}; }
  bool operator==(const SaveInterval&) const = default;
};

struct CheckpointConfig {
  std::optional<std::string> dir;  // nothing: a folder of run.dir
  SaveInterval every;
  bool every_was_given = false;  // in the file or by --set: then the run is refused where nothing can be saved
  std::optional<std::int64_t> keep_last, keep_every;  // nothing or 0: all; none
  bool keep_best = false;
  CheckpointContent content = CheckpointContent::kAll;
  OrAuto<double> staging;  // MB
  OnError on_error = OnError::kContinue;
  ResumeFrom resume;
  std::vector<std::string> allow;  // keys that may differ from the checkpoint's
};

struct LogConfig {
  std::int64_t every = 10;
  bool tensorboard = true;
  std::vector<std::int64_t> trace_steps;  // first and last, or empty
  bool report = false;
  std::optional<std::string> prometheus;  // a file; nothing: none
  bool verbose = false;
  OnError on_error = OnError::kContinue;
};

struct TrainConfig {
  RunConfig run;
  AskedDevice device = AskedDevice::kAuto;
  ModelSource model;
  struct {
    std::vector<std::string> only, freeze;  // patterns of tensor names (resolve_tuning()); at most one of the two has any
  } train;
  ParallelConfig parallel;
  BatchConfig batch;
  AdapterConfig adapter;
  PrecisionConfig precision;
  struct {
    RecomputePolicy policy = RecomputePolicy::kNone;
    std::int64_t head_chunk = 0;  // tokens; 0: the whole micro-batch
  } recompute;
  OptimizerConfig optimizer;
  LrScheduleConfig lr_schedule;
  LossConfig loss;
  std::string reference = std::string(kInitialReference);  // of dpo: one of these, or what model.init_from takes
  DataConfig data;
  EvalConfig eval;
  CheckpointConfig checkpoint;
  std::vector<JsonValue> elastic;  // layouts: texts, or objects with keys of parallel
  LogConfig log;
  CudaOptions cuda;
  struct {
    bool no_alloc = false, check_collectives = true;
  } debug;
  std::vector<std::string> replaced;  // no key: OptionValues::replaced()
  std::vector<std::string> given;     // no key: paths of options that have no default's value

  // Whether the reference lies in another place than the weights that training begins with.
  bool names_reference() const { return reference != kInitialReference && reference != kAdapterOffReference; }
  // Whether targets may not count: then ranks count those that do.
  bool counts_targets() const { return data.masks_targets() || loss.weighs_rows(); }
  // Whether the head may leave rows out whose targets do not count. A preference is judged between forward and backward, for
  // which logits would be made twice.
  bool may_leave_rows_out() const { return counts_targets() && !loss.is_dpo(); }
  // Whether they also count those that the model finds right (mean_token_accuracy): where a mask says which are answers.
  bool counts_correct() const { return data.has_mask && !loss.is_dpo(); }
  // Numbers that ranks add up with a batch's loss: counted targets, and behind them correct ones, or RewardSums.
  std::size_t num_counts() const { return !counts_targets() ? 0 : loss.is_dpo() ? 5 : counts_correct() ? 2 : 1; }
};

// The configuration that complete values stand for; validated, and with data.tokenizer "auto" settled, for which the model is made
// (resolve_model()). Throws ConfigError; DataError for a model's file that is none.
TrainConfig make_train_config(const OptionValues& values);
// The same with its contradictions, which validate() would refuse.
TrainConfig unvalidated_config(const OptionValues& values);

// Reads a file and then --set arguments, in order, a later one winning, into `values`, which know where each comes from. Throws
// ConfigError naming file and line.
TrainConfig load_train_config(const std::string& file, const std::vector<std::string>& settings, OptionValues& values);
// The same from text; `source` stands for the file's name.
TrainConfig parse_train_config(std::string_view text, std::string_view source, const std::vector<std::string>& settings = {});

// Contradictions that need neither world size nor model to be seen. Throws ConfigError.
void validate(const TrainConfig& config);

// Throws ConfigError for a wsd tail that begins within the warm-up, where decay_length() is the one in force.
void check_wsd_tail(const TrainConfig& config);

// The resolved configuration: every key of the table, defaults included, in the table's order. parse_train_config reads it back to
// an equal configuration.
JsonValue to_json(const TrainConfig& config);

// The value at a path of keys and blocks, "parallel.tensor"; where there is none yet it is made, null, with the blocks around it.
JsonValue& slot_at(JsonValue& root, std::string_view path);

// Where the decay ends: lr_schedule.decay_steps, or if nobody gave it the longest run.steps that this run was started with.
std::int64_t decay_length(const TrainConfig& config);

// The paths of the keys of `section` ("cuda") that are not at their defaults, for sections whose defaults are TrainConfig's own.
std::vector<std::string> keys_set_in(const TrainConfig& config, std::string_view section);

}  // namespace trident
