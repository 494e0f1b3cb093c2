#include "infer/generate/token_loop.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/clock.h"
#include "core/int_math.h"

namespace trident {
namespace {

TensorView view_of(std::vector<double>& values) { return {values.data(), DType::kF64, {std::ssize(values)}}; }

// A row of candidates as tensor ranks send it: largest, sum, then id, logit, score of each; id -1 where a shard has fewer.
constexpr std::int64_t kTotalNumbers = 2, kCandidateNumbers = 3;

// In place of an id where logits were not finite.
constexpr std::int32_t kNoToken = -1;

bool is_finite(const LogSumExp& total) { return std::isfinite(total.largest) && std::isfinite(total.sum); }

void pack(double* row, const LogSumExp& total, std::span<const Candidate> best, std::int64_t places) {
  *row++ = total.largest;
  *row++ = total.sum;
  for (std::int64_t i = 0; i < places; ++i) {
    const bool there = i < std::ssize(best);
    const Candidate c = there ? best[static_cast<std::size_t>(i)] : Candidate{-1, 0, 0};
    *row++ = c.id;
    *row++ = c.logit;
    *row++ = c.score;
  }
}

LogSumExp unpack(const double* row, std::int64_t places, std::vector<Candidate>& candidates) {
  for (std::int64_t i = 0; i < places; ++i) {
    const double* const c = row + kTotalNumbers + i * kCandidateNumbers;
    if (c[0] >= 0) candidates.push_back({static_cast<std::int32_t>(c[0]), static_cast<float>(c[1]), static_cast<float>(c[2])});
  }
  return {row[0], row[1]};
}

}  // namespace

TokenLoop::TokenLoop(const GenerateRequest& request, CachedStage& stage, const KvCacheShape& shapes, std::int64_t vocabulary,
                     ParallelContext& context, ShowText show)
    : request_(request),
      stage_(stage),
      shapes_(shapes),
      vocabulary_(vocabulary),
      context_(context),
      show_(std::move(show)),
      slots_(static_cast<std::size_t>(shapes.slots)),
      continuations_(static_cast<std::size_t>(request.sequences())) {
  for (std::size_t i = 0; i < continuations_.size(); ++i) {
    continuations_[i].prompt = static_cast<std::int64_t>(i) / request_.samples;
    continuations_[i].sample = static_cast<std::int64_t>(i) % request_.samples;
  }
}

std::vector<Continuation> TokenLoop::run() {
  const int data = request_.each_data_rank ? 1 : context_.grid().degrees().data;
  std::int64_t waiting = request_.each_data_rank ? 0 : context_.coordinates().data;
  const auto is_busy = [](const Slot& slot) { return slot.sequence >= 0; };
  while (waiting < request_.sequences() || std::ranges::any_of(slots_, is_busy)) {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      // A continuation may be over with its first token.
      while (!is_busy(slots_[slot]) && waiting < request_.sequences()) {
        start(slot, waiting);
        waiting += data;
      }
    }
    if (std::ranges::any_of(slots_, is_busy)) step();
  }
  stage_.drain();
  collect();
  return std::move(continuations_);
}

// A vocabulary may be padded: the model has tokens then that stand for nothing.
std::string TokenLoop::bytes_of(std::int32_t id) const {
  return id < request_.tokenizer->vocab_size() ? std::string(request_.tokenizer->token_text(id)) : std::string();
}

DrawKey TokenLoop::place_of(const Slot& slot) const {
  const Continuation& c = continuations_[static_cast<std::size_t>(slot.sequence)];
  return {static_cast<std::uint32_t>(c.prompt), static_cast<std::uint32_t>(c.sample), slot.seen.size()};
}

void TokenLoop::fill(std::size_t number, std::int64_t tokens, bool choose_next) {
  const std::span<const std::int32_t> seen = slots_[number].seen;
  std::int64_t first = 0;
  for (const std::int64_t rows : pieces_of_prompt(tokens, shapes_.piece_rows)) {
    const std::int64_t count = std::min(rows, tokens - first);
    stage_.extend(static_cast<std::int64_t>(number), first,
                  seen.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), rows,
                  choose_next && first + count == tokens);
    first += count;
  }
}

void TokenLoop::start(std::size_t number, std::int64_t sequence) {
  const double begin = monotonic_seconds(), cpu_begin = thread_cpu_seconds();
  Slot& slot = slots_[number];
  slot = {sequence, request_.prompts[static_cast<std::size_t>(sequence / request_.samples)], TextStream(request_.stops)};
  stage_.set_length(static_cast<std::int64_t>(number), std::ssize(slot.seen));
  fill(number, std::ssize(slot.seen), true);
  const Choice choice = choose(std::span(&number, 1), true).front();
  const double seconds = monotonic_seconds() - begin, cpu_seconds = thread_cpu_seconds() - cpu_begin;
  if (watch_) watch_({.is_prompt = true, .seconds = seconds, .cpu_seconds = cpu_seconds, .tokens = std::ssize(slot.seen)});
  accept(number, choice);
}

void TokenLoop::step() {
  const double begin = monotonic_seconds(), cpu_begin = thread_cpu_seconds();
  std::vector<std::size_t> busy;
  std::int64_t positions = 0;
  next_.assign(slots_.size(), {});
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].sequence < 0) continue;
    busy.push_back(i);
    const std::int64_t length = std::ssize(slots_[i].seen);
    if (stage_.set_length(static_cast<std::int64_t>(i), length)) fill(i, length - 1, false);
    next_[i] = {slots_[i].seen.back(), length - 1};
    positions += stage_.positions_seen(length);
  }
  stage_.step(next_);
  const std::vector<Choice> choices = choose(busy, false);
  const double seconds = monotonic_seconds() - begin, cpu_seconds = thread_cpu_seconds() - cpu_begin;
  if (watch_) watch_({.seconds = seconds, .cpu_seconds = cpu_seconds, .tokens = std::ssize(busy), .positions = positions});
  for (std::size_t i = 0; i < busy.size(); ++i) accept(busy[i], choices[i]);
}

void TokenLoop::accept(std::size_t number, const Choice& choice) {
  Slot& slot = slots_[number];
  Continuation& continuation = continuations_[static_cast<std::size_t>(slot.sequence)];
  if (choice.id == kNoToken) return finish(number, EndReason::kNonFinite);
  continuation.ids.push_back(choice.id);
  continuation.log_probabilities.push_back(choice.log_probability);
  slot.seen.push_back(choice.id);
  if (std::ranges::find(request_.ends, choice.id) != request_.ends.end()) return finish(number, EndReason::kEnd);
  if (request_.tokenizer != nullptr) {
    const std::string text = slot.stream.push(bytes_of(choice.id));
    continuation.text += text;
    if (show_ && !text.empty()) show_(slot.sequence, text);
    if (slot.stream.stopped()) return finish(number, EndReason::kStop);
  }
  if (std::ssize(continuation.ids) == request_.max_new_tokens) finish(number, EndReason::kLength);
}

void TokenLoop::finish(std::size_t number, EndReason reason) {
  Slot& slot = slots_[number];
  Continuation& continuation = continuations_[static_cast<std::size_t>(slot.sequence)];
  continuation.reason = reason;
  const std::string text = slot.stream.finish();
  continuation.text += text;
  if (show_ && !text.empty()) show_(slot.sequence, text);
  slot.sequence = -1;
}

std::vector<Choice> TokenLoop::choose(std::span<const std::size_t> slots, bool one_row) {
  const int stages = context_.grid().degrees().pipeline;
  std::vector<double> told(slots.size() * 2);
  if (stage_.is_last_stage()) {
    const std::vector<Choice> choices = choose_on_last_stage(slots, one_row);
    if (stages == 1) return choices;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      told[2 * i] = choices[i].id;
      told[2 * i + 1] = choices[i].log_probability;
    }
  }
  context_.statistics(Axis::kPipeline).broadcast(context_.host_stream(), view_of(told), stages - 1);
  context_.host_stream().synchronize();
  std::vector<Choice> choices(slots.size());
  for (std::size_t i = 0; i < choices.size(); ++i) choices[i] = {static_cast<std::int32_t>(told[2 * i]), told[2 * i + 1]};
  return choices;
}

std::vector<Choice> TokenLoop::choose_on_last_stage(std::span<const std::size_t> slots, bool one_row) {
  const ConstTensorView all = stage_.logits();
  const std::int64_t columns = all.shape()[1];
  logits_.resize(static_cast<std::size_t>(all.num_elements()));
  context_.device().read(context_.compute_stream(), logits_.data(), all);
  context_.compute_stream().synchronize();
  if (const auto cap = static_cast<float>(stage_.logit_softcap()); cap > 0)
    for (float& logit : logits_) logit = cap * std::tanh(logit / cap);
  const int parts = context_.grid().degrees().tensor, part = context_.coordinates().tensor;
  const std::int64_t places = candidates_needed(request_.sampling, columns), row = kTotalNumbers + places * kCandidateNumbers;
  const std::int64_t rows = std::ssize(slots);
  std::vector<Choice> choices;
  std::vector<Candidate> candidates;
  const auto choose_one = [&](std::int64_t i, const LogSumExp& total) {
    const Slot& slot = slots_[slots[static_cast<std::size_t>(i)]];
    if (!is_finite(total) && !request_.refuses_non_finite) {
      choices.push_back({.id = kNoToken});
      return;
    }
    if (!is_finite(total)) {
      const std::int64_t prompt = slot.sequence / request_.samples, tokens = std::ssize(slot.seen);
      throw DataError(
          fmt::format("prompt {}: the model's logits after {} tokens are not finite; its weights are damaged, or hold NaN "
                      "or infinity",
                      prompt, tokens));
    }
    choices.push_back(trident::choose(request_.sampling, candidates, total, place_of(slot)));
  };
  offer_.resize(parts == 1 ? 0 : static_cast<std::size_t>(rows * row));
  for (std::int64_t i = 0; i < rows; ++i) {
    const Slot& slot = slots_[slots[static_cast<std::size_t>(i)]];
    const auto at = static_cast<std::size_t>(one_row ? 0 : static_cast<std::int64_t>(slots[static_cast<std::size_t>(i)]) * columns);
    const LogitShard shard{std::span(logits_).subspan(at, static_cast<std::size_t>(columns)), part * columns, vocabulary_};
    const LogSumExp of_shard = log_sum_exp(shard);
    candidates = is_finite(of_shard) ? best_candidates(request_.sampling, shard, slot.seen, places) : std::vector<Candidate>();
    if (parts == 1)
      choose_one(i, of_shard);
    else
      pack(offer_.data() + i * row, of_shard, candidates, places);
  }
  if (parts == 1) return choices;
  offers_.resize(offer_.size() * static_cast<std::size_t>(parts));
  context_.statistics(Axis::kTensor).all_gather(context_.host_stream(), view_of(offers_), view_of(offer_));
  context_.host_stream().synchronize();
  for (std::int64_t i = 0; i < rows; ++i) {
    candidates.clear();
    LogSumExp total{-INFINITY, 0};
    for (int p = 0; p < parts; ++p) total = combine(total, unpack(offers_.data() + (p * rows + i) * row, places, candidates));
    choose_one(i, total);
  }
  return choices;
}

// Data rank 0 gets what the others have, in equal messages of the most that there may be.
void TokenLoop::collect() {
  const int data = context_.grid().degrees().data;
  if (data == 1 || request_.each_data_rank) return;
  const std::int64_t each = ceil_div(request_.sequences(), data), row = 2 + 2 * request_.max_new_tokens;
  std::vector<double> mine(static_cast<std::size_t>(each * row)), all(mine.size() * static_cast<std::size_t>(data));
  for (std::int64_t i = 0, s = context_.coordinates().data; s < request_.sequences(); ++i, s += data) {
    const Continuation& c = continuations_[static_cast<std::size_t>(s)];
    double* to = mine.data() + i * row;
    *to++ = static_cast<double>(c.ids.size());
    *to++ = static_cast<double>(c.reason);
    std::ranges::copy(c.ids, to);
    std::ranges::copy(c.log_probabilities, to + request_.max_new_tokens);
  }
  context_.statistics(Axis::kData).all_gather(context_.host_stream(), view_of(all), view_of(mine));
  context_.host_stream().synchronize();
  for (std::int64_t s = 0; s < request_.sequences(); ++s) {
    if (s % data == context_.coordinates().data) continue;
    Continuation& c = continuations_[static_cast<std::size_t>(s)];
    const double* from = all.data() + ((s % data) * each + s / data) * row;
    const auto count = static_cast<std::int64_t>(*from++);
    c.reason = static_cast<EndReason>(static_cast<int>(*from++));
    for (std::int64_t i = 0; i < count; ++i) {
      c.ids.push_back(static_cast<std::int32_t>(from[i]));
      c.log_probabilities.push_back(from[request_.max_new_tokens + i]);
    }
    if (request_.tokenizer == nullptr) continue;
    TextStream stream(request_.stops);
    const std::int64_t shown = c.reason == EndReason::kEnd ? count - 1 : count;
    for (std::int64_t i = 0; i < shown; ++i) c.text += stream.push(bytes_of(c.ids[static_cast<std::size_t>(i)]));
    c.text += stream.finish();
  }
}

}  // namespace trident
