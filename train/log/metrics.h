// metrics.jsonl: one JSON object per logged step. eval.jsonl: one per evaluation. Apart, so that every line of a file has the same
// keys.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/parallel_axis.h"

namespace trident {

// Lines that a run prints; details are in run.log alone, unless log.verbose shows them.
struct LogLines {
  std::vector<std::string> shown, details;
};

// Means over the pairs of a global batch of loss.type "dpo".
struct PairRewards {
  double chosen = 0, rejected = 0;
  double accuracy = 0;  // pairs whose chosen answer has the higher reward
  double margin() const { return chosen - rejected; }
};

struct StepMetrics {
  std::int64_t step = 0;         // completed updates; the first is 1
  double loss = 0;               // mean nats per counted target of this global batch, before the update
  double grad_norm = 0;          // unscaled, before clipping
  double lr = 0;
  std::optional<double> loss_scale;  // of this step; nothing: the compute format needs none
  std::int64_t skipped = 0;          // batches so far that made no update (not in the record)
  std::int64_t tokens = 0;       // trained on so far, this step included
  std::optional<std::int64_t> loss_tokens;  // targets of this global batch that count; nothing: all of them
  std::optional<double> token_accuracy;  // share of these that no other token is likelier than; nothing: no mask says which count
  std::optional<PairRewards> rewards;  // nothing: no pairs
  double step_ms = 0;
  double tokens_per_s = 0;
  std::optional<double> mfu;     // model FLOPs over the peak (train/run/peak_flops.h), in [0, 1]; nothing: peak unknown
  std::optional<double>
      masked_flops_share;        // of those, with the keys that are seen alone; nothing: no token sees less than all before it
  // Returns mfu of the keys and logits that are computed; people are shown this one.
  std::optional<double> computed_mfu() const { return mfu ? std::optional(*mfu * masked_flops_share.value_or(1)) : mfu; }
  std::int64_t peak_bytes = 0;   // arena high-water, maximum over ranks
  std::array<std::int64_t, kNumAxes> comm_bytes{};  // logical ones sent in the step, summed over ranks
  double seconds_left = 0;       // to the last step, as this start's went so far (not in the record)
};

// The loss on validation data.
struct ValidLoss {
  double loss = 0;                      // mean nats per counted target; no number where none counts
  std::optional<double> bits_per_byte = {};   // of the text that the tokens stand for; nothing: tokenizer unknown
  std::optional<double> token_accuracy = {};  // as StepMetrics has it
  std::optional<PairRewards> rewards = {};    // of pairs, whose mean the loss is

  double perplexity() const;  // e to the loss
};

struct NamedLoss {
  std::string name;
  ValidLoss valid;
};

struct EvalMetrics {
  std::int64_t step = 0;        // updates made before the evaluation
  ValidLoss valid;              // the mean of the sets, by their weights
  std::vector<NamedLoss> sets;  // each validation set by itself; empty where there is only one
};

// One line without its end. Doubles in their shortest exact form; a non-finite or absent number is null (JSON has no other word).
// step, loss, grad_norm, lr, loss_scale, tokens, step_ms, tokens_per_s, mfu, peak_bytes, comm_bytes; mfu_masked = mfu *
// masked_flops_share
// and loss_tokens, mean_token_accuracy, and rewards_chosen, rewards_rejected, accuracy, margin, each where it is given
std::string to_json_line(const StepMetrics& metrics);
// step, valid_loss, valid_perplexity, valid_bits_per_byte, and where they are given valid_mean_token_accuracy,
// valid_rewards_chosen and so on; of several sets also sets: {NAME: {loss, perplexity, ...}}. Pairs have no perplexity.
std::string to_json_line(const EvalMetrics& metrics);
// The metrics that such a line was made of; nothing for what is none.
std::optional<EvalMetrics> eval_metrics_from(const JsonValue& line);

// Goes on with an AppendFile, whose errors and guarantees it has, in whole lines that end with "time" (unix seconds, UTC) and
// "elapsed_s" (since `start`, of monotonic_seconds()).
class MetricsWriter {
 public:
  MetricsWriter(const std::string& path, double start) : file_(path, AppendFile::Start::kAppend), start_(start) {}

  void write_line(std::string object);  // a line of JSON without its end

 private:
  AppendFile file_;
  double start_;
};

}  // namespace trident
