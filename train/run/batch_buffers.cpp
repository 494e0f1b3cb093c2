#include "train/run/batch_buffers.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/check.h"
#include "core/int_math.h"

namespace trident {
namespace {

// From the first keys of a micro-batch to the next, in elements: cuDNN wants operands that begin at multiples of 16 bytes.
std::int64_t first_keys_stride(const BatchConfig& batch) {
  return round_up(batch.micro * batch.sequence, 16 / size_of(DType::kI32));
}

// Attention takes these for granted: of each sample, 0 .. its position, and never less than before.
void check_starts(std::span<const std::int32_t> starts, std::int64_t sequence) {
  for (std::int64_t i = 0; i < std::ssize(starts); ++i) {
    const std::int64_t s = i % sequence, start = starts[static_cast<std::size_t>(i)];
    const std::int64_t before = s == 0 ? 0 : starts[static_cast<std::size_t>(i - 1)];
    TRIDENT_CHECK(start >= before && start <= s, "position {} of a sample is of a document that begins at {}, behind {}", s, start,
                  before);
  }
}

}  // namespace

BatchTensors book_batch(const TrainConfig& config, const BatchConfig& batch, std::int64_t window, std::int64_t micro_batches,
                        LossDetail detail, bool leaves_rows_out, ArenaPlan& arena_plan) {
  const std::int64_t m = micro_batches, tokens = batch.micro * batch.sequence, first_keys = first_keys_stride(batch);
  const auto book = [&](const char* name, DType dtype, const Shape& shape) {
    return BookedTensor(arena_plan, name, MemoryUse::kData, dtype, shape);
  };
  const auto book_if = [&](bool wanted, const char* name, DType dtype, const Shape& shape) {
    return wanted ? book(name, dtype, shape) : BookedTensor();
  };
  const bool hides = config.data.reset_attention_mask, restarts = config.data.reset_position_ids;
  const bool of_tokens = detail == LossDetail::kOfTokens;
  return {book("tokens", DType::kI32, {m, tokens}),
          book("targets", DType::kI32, {m, tokens}),
          book("positions by row", DType::kI32, {restarts ? m : 1, tokens}),
          book("positions by sample", DType::kI32, {of_tokens || restarts ? m : 1, tokens}),
          book_if(hides, "first keys", DType::kI32, {m, first_keys}),
          book_if(window > 0 && window < batch.sequence, "first keys in windows", DType::kI32, {hides ? m : 1, first_keys}),
          book("sample numbers", DType::kI64, {m, batch.micro}),
          book("losses", DType::kF64, {m}),
          book_if(of_tokens || config.loss.is_dpo(), "losses of tokens", DType::kF32, {m, tokens}),
          book_if(config.loss.weighs_rows() && !of_tokens, "weights of targets", DType::kF32, {m, tokens}),
          book_if(of_tokens || config.counts_correct(), "logits of targets", DType::kF32, {m, tokens}),
          book_if(leaves_rows_out, "order of rows", DType::kI32, {2 * m, tokens})};
}

void BatchTensors::bind(Arena& arena) {
  for (BookedTensor* const tensor : {&tokens, &targets, &positions_by_row, &positions_by_sample, &first_key, &first_key_in_window,
                                     &samples, &losses, &token_losses, &row_weights, &target_logits, &row_order})
    tensor->bind(arena);
}

BatchBuffers::BatchBuffers(const RunPlan& plan, Device& device, int stage, LossDetail detail, ArenaPlan& arena_plan)
    : plan_(plan), device_(device), stage_(stage), detail_(detail),
      angles_(plan.model, detail == LossDetail::kOfTokens ? plan.num_micro_batches * plan.config.batch.micro : 0,
              plan.config.batch.sequence, arena_plan) {
  tensors_ = book_batch(plan_.config, plan_.config.batch, plan_.model.sliding_window, plan_.num_micro_batches, detail_,
                        plan_.leaves_rows_out, arena_plan);
}

void BatchBuffers::bind(Arena& arena) {
  const std::int64_t m = plan_.num_micro_batches, b = plan_.config.batch.micro, t = plan_.config.batch.sequence;
  angles_.bind(arena);
  tensors_.bind(arena);
  const bool hides = plan_.config.data.reset_attention_mask;
  const std::int64_t rows = tensors_.positions_by_row.shape()[0], kinds = tensors_.positions_by_sample.shape()[0];
  const std::int64_t windows = plan_.window() == 0 ? 0 : tensors_.first_key_in_window.shape()[0];
  if (device_.has_bytes()) {
    if (plan_.needs_starts(stage_)) host_.document_starts.resize(static_cast<std::size_t>(m * t * b));
    host_.first_key_in_window.resize(static_cast<std::size_t>(windows * t * b));
    write_positions();
    write_first_keys();
    host_.tokens.resize(static_cast<std::size_t>(m * t * b));
    host_.targets.resize(host_.tokens.size());
    host_.samples.resize(static_cast<std::size_t>(m * b));
    if (plan_.config.loss.is_dpo()) host_.numbers.resize(host_.samples.size());
    if (has_token_losses()) host_.token_losses.resize(host_.tokens.size());
    if (weighs()) host_.row_weights.resize(host_.tokens.size());
    if (has_target_logits()) host_.target_logits.resize(host_.tokens.size());
    if (plan_.leaves_rows_out) {
      host_.row_order.resize(2 * host_.tokens.size());
      host_.targets_by_place.resize(host_.tokens.size());
      host_.floats_by_place.resize(host_.tokens.size());
    }
  }
  host_.losses.resize(static_cast<std::size_t>(m));
  micro_batches_.resize(static_cast<std::size_t>(m));
  for (std::int64_t k = 0; k < m && plan_.config.loss.is_dpo(); ++k) weigh_.emplace_back([this, k] { judge_pairs(k); });
  for (std::int64_t k = 0; k < m; ++k) {
    MicroBatch& mb = micro_batches_[static_cast<std::size_t>(k)];
    mb.tokens = tensors_.tokens.rows(k, 1).flat();
    mb.targets = tensors_.targets.rows(k, 1).flat();
    mb.positions_by_row = tensors_.positions_by_row.rows(k % rows, 1).flat();
    mb.positions_by_sample = tensors_.positions_by_sample.rows(k % kinds, 1).reshape({b, t});
    if (hides) mb.first_key = first_keys(tensors_.first_key, k).reshape({b, t});
    if (windows > 0) mb.first_key_in_window = first_keys(tensors_.first_key_in_window, k % windows).reshape({b, t});
    mb.samples = tensors_.samples.rows(k, 1).flat();
    mb.loss = tensors_.losses.range(k, 1);
    if (has_token_losses()) mb.token_losses = tensors_.token_losses.rows(k, 1).flat();
    if (has_target_logits()) mb.target_logits = tensors_.target_logits.rows(k, 1).flat();
    const auto likely = static_cast<std::int64_t>(plan_.config.data.counted_share * static_cast<double>(t * b));  // before a load
    if (plan_.leaves_rows_out)
      mb.loss_order = {tensors_.row_order.rows(k, 1).flat(), tensors_.row_order.rows(m + k, 1).flat(),
                       std::max<std::int64_t>(likely, 1)};
  }
}

void BatchBuffers::write_positions() {
  const std::int64_t b = plan_.config.batch.micro, t = plan_.config.batch.sequence;
  std::vector<std::int32_t>&by_row = host_.positions_by_row, &by_sample = host_.positions_by_sample;
  by_row.resize(static_cast<std::size_t>(tensors_.positions_by_row.shape().num_elements()));
  by_sample.resize(static_cast<std::size_t>(tensors_.positions_by_sample.shape().num_elements()));
  for (std::size_t i = 0; i < by_row.size(); ++i) by_row[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / b % t);
  for (std::size_t i = 0; i < by_sample.size(); ++i) by_sample[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % t);
  device_.write(device_.compute_stream(), tensors_.positions_by_row, by_row.data());
  device_.write(device_.compute_stream(), tensors_.positions_by_sample, by_sample.data());
}

// Cuts out micro-batch k's, i32 [b*T].
TensorView BatchBuffers::first_keys(TensorView all, std::int64_t k) const {
  return all.rows(k, 1).flat().range(0, plan_.config.batch.micro * plan_.config.batch.sequence);
}

// Writes the first keys that attention of every sample sees; without documents a window is the same in all.
void BatchBuffers::write_first_keys() {
  const std::int64_t t = plan_.config.batch.sequence;
  const bool hides = plan_.config.data.reset_attention_mask;
  std::vector<std::int32_t>& in_window = host_.first_key_in_window;
  for (std::size_t i = 0; i < in_window.size(); ++i) {
    const std::int64_t s = static_cast<std::int64_t>(i) % t, first = std::max<std::int64_t>(0, s - plan_.window() + 1);
    in_window[i] = std::max(static_cast<std::int32_t>(first), hides ? host_.document_starts[i] : 0);
  }
  const auto write = [&](TensorView to, const std::vector<std::int32_t>& from) {
    for (std::int64_t at = 0, k = 0; at < std::ssize(from); at += plan_.config.batch.micro * t)
      device_.write(device_.compute_stream(), first_keys(to, k++), from.data() + at);
  };
  write(tensors_.first_key_in_window, in_window);
  if (hides) write(tensors_.first_key, host_.document_starts);
}

BatchBuffers::Seen BatchBuffers::seen() const {
  const std::int64_t t = plan_.config.batch.sequence;
  const auto mean = [t](std::span<const std::int32_t> first_keys) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < first_keys.size(); ++i) sum += static_cast<std::int64_t>(i) % t + 1 - first_keys[i];
    return static_cast<double>(sum) / static_cast<double>(std::max<std::size_t>(1, first_keys.size()));
  };
  const bool hides = plan_.config.data.reset_attention_mask;
  return {hides ? mean(host_.document_starts) : static_cast<double>(t + 1) / 2, mean(host_.first_key_in_window)};
}

void BatchBuffers::set_positions(const SampleTokens& tokens, const ModelConstants& constants, std::int64_t batch,
                                 const BatchSlicing& slicing, int data) {
  const bool by_length = constants.short_rows() > 0 || angles_.any();
  if ((!restarts() && (!by_length || !tokens)) || !device_.has_bytes()) return;  // every sample has the same
  const std::int64_t b = slicing.micro, t = plan_.config.batch.sequence;
  for (std::int64_t k = 0; k < plan_.num_micro_batches; ++k) {
    const std::int64_t first = slicing.first_sample(batch, k, data);
    for (std::int64_t i = 0; i < b; ++i) {
      const std::int64_t length = tokens ? std::max<std::int64_t>(tokens(first + i), 1) : t, sample = (k * b + i) * t;
      if (angles_.any()) angles_.set(k * b + i, length, device_);
      const auto start_of = [&](std::int64_t s) {
        return restarts() ? host_.document_starts[static_cast<std::size_t>(sample + s)] : 0;
      };
      for (std::int64_t s = 0, end = 0; s < t; s = end) {
        const std::int64_t start = start_of(s);
        while (end < t && start_of(end) == start) ++end;
        const std::int64_t document = std::max<std::int64_t>(std::min(end, length) - start, 1);
        const std::int64_t begin = angles_.any() ? i * t : constants.first_row(document);
        // Padding may lie behind the table.
        const std::int64_t last = (angles_.any() ? length : begin == 0 ? t : constants.short_rows()) - 1;
        for (std::int64_t at = s; at < end; ++at) {
          host_.positions_by_sample[static_cast<std::size_t>(sample + at)] =
              static_cast<std::int32_t>(begin + std::min(at - start, last));
          if (restarts())
            host_.positions_by_row[static_cast<std::size_t>((k * t + at) * b + i)] = static_cast<std::int32_t>(at - start);
        }
      }
    }
    if (!angles_.any()) continue;
    MicroBatch& mb = micro_batches_[static_cast<std::size_t>(k)];
    mb.rope_cos = angles_.cos(k * b, b);
    mb.rope_sin = angles_.sin(k * b, b);
  }
  device_.write(device_.compute_stream(), tensors_.positions_by_sample, host_.positions_by_sample.data());
  if (restarts()) device_.write(device_.compute_stream(), tensors_.positions_by_row, host_.positions_by_row.data());
}

void BatchBuffers::load(const LoadSamples& load, std::int64_t batch, const BatchSlicing& slicing, int data) {
  judges_pairs_ = false;
  if (!device_.has_bytes()) return;
  const auto tokens_of_one = static_cast<std::size_t>(plan_.config.batch.micro * plan_.config.batch.sequence);
  for (std::int64_t k = 0; k < plan_.num_micro_batches; ++k) {
    const std::int64_t first = slicing.first_sample(batch, k, data);
    const auto ids = [&](std::vector<std::int32_t>& all, bool wanted) {
      return wanted ? std::span(all).subspan(static_cast<std::size_t>(k) * tokens_of_one, tokens_of_one)
                    : std::span<std::int32_t>();
    };
    const auto numbers = [&](std::int64_t of) {
      const bool wanted = is_last() && !host_.numbers.empty();
      const auto micro = static_cast<std::size_t>(slicing.micro);
      return wanted ? std::span(host_.numbers).subspan(static_cast<std::size_t>(of) * micro, micro) : std::span<std::int64_t>();
    };
    if (plan_.loads_samples(stage_))
      load(first, slicing.micro,
           {.tokens = ids(host_.tokens, is_first()),
            .targets = ids(host_.targets, is_last()),
            .document_starts = ids(host_.document_starts, plan_.needs_starts(stage_)),
            .numbers = numbers(k)});
    for (std::int64_t i = 0; i < slicing.micro; ++i) host_.samples[static_cast<std::size_t>(k * slicing.micro + i)] = first + i;
  }
  check_starts(host_.document_starts, plan_.config.batch.sequence);
  if (plan_.config.data.reset_attention_mask) write_first_keys();
  if (is_last() && plan_.counts_targets())
    counted_ = std::ranges::count_if(host_.targets, [](std::int32_t target) { return target >= 0; });
  if (is_last() && weighs()) sequences_ = share_among_targets(1);
  Stream& stream = device_.compute_stream();
  if (is_first()) device_.write(stream, tensors_.tokens, host_.tokens.data());
  if (is_last() && plan_.leaves_rows_out) order_rows();
  if (is_last()) write_rows<std::int32_t>(tensors_.targets, host_.targets, host_.targets_by_place);
  device_.write(stream, tensors_.samples, host_.samples.data());
}

void BatchBuffers::order_rows() {
  const std::size_t rows = host_.targets.size() / micro_batches_.size();
  for (std::size_t k = 0; k < micro_batches_.size(); ++k) {
    const auto part = [&](std::vector<std::int32_t>& all, std::size_t i) { return std::span(all).subspan(i * rows, rows); };
    const auto row_of = part(host_.row_order, k), place_of = part(host_.row_order, micro_batches_.size() + k);
    const auto targets = part(host_.targets, k);
    std::size_t counted = 0, behind = rows;
    for (std::size_t row = 0; row < rows; ++row) {
      const bool counts = targets[row] >= 0;
      place_of[row] = counts ? static_cast<std::int32_t>(counted) : -1;
      row_of[counts ? counted++ : --behind] = static_cast<std::int32_t>(row);
    }
    micro_batches_[k].loss_order.count = std::max<std::int64_t>(1, static_cast<std::int64_t>(counted));
  }
  device_.write(device_.compute_stream(), tensors_.row_order, host_.row_order.data());
}

template <class T>
void BatchBuffers::write_rows(TensorView to, std::span<const T> from, std::vector<T>& by_place) {
  if (plan_.leaves_rows_out) {
    const std::size_t rows = from.size() / micro_batches_.size();
    for (std::size_t i = 0; i < from.size(); ++i)
      by_place[i] = from[i / rows * rows + static_cast<std::size_t>(host_.row_order[i])];
    from = by_place;
  }
  device_.write(device_.compute_stream(), to, from.data());
}

// Rows that do not count have 0.
void BatchBuffers::read_rows(std::vector<float>& to, ConstTensorView from) {
  if (!device_.has_bytes()) return;
  device_.read(device_.compute_stream(), to.data(), from);
  if (!plan_.leaves_rows_out || !is_last()) return;
  std::vector<float>& by_place = host_.floats_by_place;
  by_place.swap(to);
  const std::size_t rows = to.size() / micro_batches_.size();
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::int32_t place = host_.row_order[to.size() + i];
    to[i] = place < 0 ? 0 : by_place[i / rows * rows + static_cast<std::size_t>(place)];
  }
}

template <class F>
void BatchBuffers::each_sequence(std::int64_t k, std::int64_t i, F&& f) const {
  const std::int64_t t = plan_.config.batch.sequence;
  const auto start = [&](std::int64_t s) {
    return host_.document_starts[static_cast<std::size_t>((k * plan_.config.batch.micro + i) * t + s)];
  };
  for (std::int64_t s = 0, end = 0; s < t; s = end) {
    std::int64_t own = 0;
    for (; end < t && start(end) == start(s); ++end) own += host_.targets[row(k, end, i)] >= 0 ? 1 : 0;
    if (own > 0) f(s, end, own);
  }
}

// Writes the weights in host memory; returns how many sequences have a part. A sequence is a document of a sample.
std::int64_t BatchBuffers::share_among_targets(double targets) {
  std::int64_t sequences = 0;
  for (std::int64_t k = 0; k < plan_.num_micro_batches; ++k)
    for (std::int64_t i = 0; i < plan_.config.batch.micro; ++i)
      each_sequence(k, i, [&](std::int64_t first, std::int64_t end, std::int64_t own) {
        const auto weight = static_cast<float>(targets / static_cast<double>(own));
        for (std::int64_t s = first; s < end; ++s) host_.row_weights[row(k, s, i)] = weight;
        ++sequences;
      });
  return sequences;
}

void BatchBuffers::weigh_sequences(double targets) {
  if (!device_.has_bytes() || !is_last()) return;
  share_among_targets(targets);
  write_rows<float>(tensors_.row_weights, host_.row_weights, host_.floats_by_place);
}

void BatchBuffers::use_row_weights(bool weighted) {
  for (std::int64_t k = 0; k < plan_.num_micro_batches; ++k) {
    MicroBatch& mb = micro_batches_[static_cast<std::size_t>(k)];
    mb.row_weights = weighted ? tensors_.row_weights.rows(k, 1).flat() : TensorView();
    mb.weigh = weighted && plan_.config.loss.is_dpo() ? &weigh_[static_cast<std::size_t>(k)] : nullptr;
  }
}

void BatchBuffers::weigh_pairs(double targets, std::span<const float> reference) {
  pair_targets_ = targets;
  reference_ = reference;
  rewards_ = {};
  judges_pairs_ = device_.has_bytes();
}

template <class F>
void BatchBuffers::each_pair(std::int64_t k, std::int64_t i, F&& f) const {
  const std::int64_t first_number = host_.numbers[static_cast<std::size_t>(k * plan_.config.batch.micro + i)];
  if (first_number < 0) return;  // the sample fills up an evaluation's last batch
  std::int64_t number = first_number;
  std::array<AnswerRows, 2> pair;
  std::size_t found = 0;
  each_sequence(k, i, [&](std::int64_t first, std::int64_t end, std::int64_t own) {
    Answer answer{.targets = own};
    for (std::int64_t s = first; s < end; ++s) answer.nats += double{host_.token_losses[row(k, s, i)]};
    pair[found % 2] = {first, end, answer};
    if (++found % 2 != 0) return;
    f(pair, static_cast<std::size_t>(number));
    number += 2;
  });
  if (found == 0 || found % 2 != 0)
    throw DataError(fmt::format("the sample of pair {} has {} answers with targets that count, and a pair has two; the files "
                                "changed since the run began: prepare them, and start again",
                                first_number / 2, found));
}

void BatchBuffers::refer_pairs(std::int64_t k, std::int64_t i, std::span<float> reference) const {
  each_pair(k, i, [&](const std::array<AnswerRows, 2>& pair, std::size_t number) {
    for (std::size_t a = 0; a < pair.size(); ++a) reference[number + a] = -static_cast<float>(pair[a].answer.nats);
  });
}

// Between forward and backward of micro-batch k, if it has one.
void BatchBuffers::judge_pairs(std::int64_t k) {
  if (!device_.has_bytes()) return;
  const auto rows = static_cast<std::size_t>(plan_.config.batch.micro * plan_.config.batch.sequence);
  const auto part = [&](std::vector<float>& all) { return std::span(all).subspan(static_cast<std::size_t>(k) * rows, rows); };
  Stream& stream = device_.compute_stream();
  device_.read(stream, part(host_.token_losses).data(), tensors_.token_losses.rows(k, 1).flat());
  std::ranges::fill(part(host_.row_weights), 0.0f);
  double& loss = host_.losses[static_cast<std::size_t>(k)];
  loss = 0;
  for (std::int64_t i = 0; i < plan_.config.batch.micro; ++i)
    each_pair(k, i, [&](std::array<AnswerRows, 2>& pair, std::size_t number) {
      for (std::size_t a = 0; a < pair.size(); ++a) pair[a].answer.reference = reference_[number + a];
      const PairLoss of_pair = pair_loss(plan_.config.loss, pair[0].answer, pair[1].answer);
      loss += pair_targets_ * of_pair.loss;
      rewards_.add(of_pair);
      for (const auto& [rows, by_nats] : {std::pair{pair[0], of_pair.d_chosen}, {pair[1], of_pair.d_rejected}})
        for (std::int64_t s = rows.first; s < rows.end; ++s)
          host_.row_weights[row(k, s, i)] = static_cast<float>(pair_targets_ * by_nats);
    });
  device_.write(stream, tensors_.row_weights.rows(k, 1).flat(), part(host_.row_weights).data());
}

std::span<const double> BatchBuffers::read_losses() {
  if (!judges_pairs_) device_.read(device_.compute_stream(), host_.losses.data(), tensors_.losses);
  return host_.losses;
}

std::span<const float> BatchBuffers::read_token_losses() {
  read_rows(host_.token_losses, tensors_.token_losses);
  return host_.token_losses;
}

std::span<const float> BatchBuffers::read_target_logits() {
  read_rows(host_.target_logits, tensors_.target_logits);
  return host_.target_logits;
}

std::int64_t BatchBuffers::read_correct() {
  if (!plan_.config.counts_correct()) return 0;
  const std::span<const float> below = read_target_logits();
  std::int64_t correct = 0;
  for (std::size_t i = 0; i < below.size(); ++i) correct += host_.targets[i] >= 0 && below[i] == 0 ? 1 : 0;
  return correct;
}

}  // namespace trident
