// The micro-batches of one rank's step: token ids in, losses out, on the device and in host memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/document_starts.h"
#include "data/sample_order.h"
#include "device/arena.h"
#include "device/device.h"
#include "model/model_constants.h"
#include "model/sequence_rotations.h"
#include "pipeline/stage.h"
#include "train/plan/run_plan.h"
#include "train/run/preference_loss.h"

namespace trident {

// Fills the spans that are not empty with the samples at positions first .. first+count-1.
using LoadSamples = std::function<void(std::int64_t first, std::int64_t count, const SampleSpans& spans)>;

// kOfTokens: every token's loss beside each micro-batch's, and how far its logit is below the largest.
enum class LossDetail : std::uint8_t { kOfBatches, kOfTokens };

// The tensors on the device; one that a run does not need is not booked.
struct BatchTensors {
  BookedTensor tokens, targets, positions_by_row, positions_by_sample, first_key, first_key_in_window, samples, losses;
  BookedTensor token_losses, row_weights, target_logits;
  BookedTensor row_order;  // [2m, T*b]: RowOrder::row_of of each micro-batch, then place_of
  void bind(Arena& arena);
};
// Books them for `micro_batches` of batch.micro samples of batch.sequence tokens, of a run of `config`. `window`:
// ModelConfig::sliding_window. `leaves_rows_out`: RunPlan's.
BatchTensors book_batch(const TrainConfig& config, const BatchConfig& batch, std::int64_t window, std::int64_t micro_batches,
                        LossDetail detail, bool leaves_rows_out, ArenaPlan& arena_plan);

// m micro-batches of b samples of T tokens. What is read or written on the device is so on its compute stream.
class BatchBuffers {
 public:
  // Books all memory in `arena_plan`. `stage`: this rank's place in the pipeline.
  BatchBuffers(const RunPlan& plan, Device& device, int stage, LossDetail detail, ArenaPlan& arena_plan);
  void bind(Arena& arena);

  // The samples that data rank `data` has of a global batch, and which keys their tokens see. Without bytes on the device nothing
  // is loaded.
  void load(const LoadSamples& load, std::int64_t batch, const BatchSlicing& slicing, int data);

  // Positions of the samples that were loaded. `tokens` is how many each has without its padding (nothing: T), for which kOfTokens
  // is asked. With data.reset_position_ids they count from each document's beginning. Rotary ones become the rows of `constants`
  // for the length of sample or document, or of a table of the sample's own.
  using SampleTokens = std::function<std::int64_t(std::int64_t sample)>;
  void set_positions(const SampleTokens& tokens, const ModelConstants& constants, std::int64_t batch, const BatchSlicing& slicing,
                     int data);

  std::vector<MicroBatch>& micro_batches() { return micro_batches_; }
  // The losses of micro-batches, once they are computed. f64 [m].
  std::span<const double> read_losses();
  // The losses of tokens; of others 0. f32 [m, T, b].
  std::span<const float> read_token_losses();
  // LossOutputs::target_logits. f32 [m, T, b].
  std::span<const float> read_target_logits();
  // How many of the counted targets have the largest logit of their row, once losses are computed, where
  // TrainConfig::counts_correct(); else 0.
  std::int64_t read_correct();
  // Targets that count among those loaded, where RunPlan::counts_targets(), on the last stage of a device with bytes; 0 elsewhere.
  std::int64_t counted() const { return counted_; }
  // How many sequences have counted targets among those loaded, under the same conditions where LossConfig::weighs_rows().
  std::int64_t sequences() const { return sequences_; }
  // Each of these sequences weighs `targets` in the loss of MicroBatch::row_weights, shared evenly among its own.
  void weigh_sequences(double targets);
  // Micro-batches have these weights, or none.
  void use_row_weights(bool weighted);
  // Preferences make every two sequences a pair of answers, and `reference` has the log-probabilities of each, from
  // SampleSpans::numbers on. Each pair weighs `targets`; weights are made when the head asks for them, from the losses of its
  // forward.
  void weigh_pairs(double targets, std::span<const float> reference);
  // The same of the pairs of micro-batch k, where nobody asks: behind a forward alone. Then losses and rewards are there.
  void judge_pairs(std::int64_t k);
  const RewardSums& rewards() const { return rewards_; }
  // Writes the log-probabilities of the answers of micro-batch k's i-th sample into such a reference, once losses are read.
  void refer_pairs(std::int64_t k, std::int64_t i, std::span<float> reference) const;
  // Keys that a token of those loaded sees on average, where RunPlan::has_intervals(): in layers without a window, and with one.
  struct Seen {
    double keys = 0, keys_in_window = 0;
  };
  Seen seen() const;
  // As loaded, i32 [m, T, b]; only the last stage has them.
  std::span<const std::int32_t> targets() const { return host_.targets; }

 private:
  void write_positions();
  // Puts rows with counted targets first on the device; host memory has all rows in their own order.
  void order_rows();
  // Between host memory [m, T, b] and what is of rows on the device.
  template <class T>
  void write_rows(TensorView to, std::span<const T> from, std::vector<T>& by_place);
  void read_rows(std::vector<float>& to, ConstTensorView from);
  void write_first_keys();
  TensorView first_keys(TensorView all, std::int64_t k) const;
  std::int64_t share_among_targets(double targets);
  // f(first row, one behind the last, counted targets) of every document of a sample that has such targets.
  template <class F>
  void each_sequence(std::int64_t k, std::int64_t i, F&& f) const;
  // f(the two of a pair, the number of the first) of every pair of a sample, once losses are read.
  struct AnswerRows {
    std::int64_t first = 0, end = 0;
    Answer answer;
  };
  template <class F>
  void each_pair(std::int64_t k, std::int64_t i, F&& f) const;
  std::size_t row(std::int64_t k, std::int64_t s, std::int64_t i) const {
    return static_cast<std::size_t>((k * plan_.config.batch.sequence + s) * plan_.config.batch.micro + i);
  }
  bool has_token_losses() const { return detail_ == LossDetail::kOfTokens || plan_.config.loss.is_dpo(); }
  bool has_target_logits() const { return detail_ == LossDetail::kOfTokens || plan_.config.counts_correct(); }
  bool restarts() const { return plan_.config.data.reset_position_ids; }
  bool is_first() const { return stage_ == 0; }
  bool weighs() const { return plan_.config.loss.weighs_rows() && detail_ == LossDetail::kOfBatches; }
  bool is_last() const { return plan_.is_last(stage_); }

  const RunPlan& plan_;
  Device& device_;
  int stage_ = 0;
  LossDetail detail_;
  std::int64_t counted_ = 0, sequences_ = 0;
  SequenceRotations angles_;  // of each sample, with kOfTokens
  BatchTensors tensors_;
  struct {  // the same in host memory, on the way to the device and back
    std::vector<std::int32_t> tokens, targets, positions_by_row, positions_by_sample;
    std::vector<std::int32_t> document_starts, first_key_in_window;  // [m, b, T]
    std::vector<std::int64_t> samples, numbers;
    std::vector<double> losses;
    std::vector<float> token_losses, row_weights, target_logits;
    std::vector<std::int32_t> row_order, targets_by_place;
    std::vector<float> floats_by_place;
  } host_;
  bool judges_pairs_ = false;  // the losses in host memory are theirs
  double pair_targets_ = 0;
  std::span<const float> reference_;
  RewardSums rewards_;
  std::vector<std::function<void()>> weigh_;  // of each micro-batch
  std::vector<MicroBatch> micro_batches_;
};

}  // namespace trident
