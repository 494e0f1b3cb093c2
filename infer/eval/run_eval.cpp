#include "infer/eval/run_eval.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/counted.h"
#include "core/int_math.h"
#include "data/dataset_record.h"
#include "data/document_starts.h"
#include "data/indexed_dataset.h"
#include "data/token_source.h"
#include "data/tokenizer/token_ids.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/eval/choices_file.h"
#include "infer/eval/eval_windows.h"
#include "train/launch/run_forward.h"
#include "train/run/load_checkpoint.h"
#include "train/run/model_tokenizer.h"
#include "train/run/rank_evaluator.h"

namespace trident {
namespace {

// Tokens that windows are cut from: a part of a token file, or ids.
struct EvalText {
  const IndexedDataset* dataset = nullptr;  // or `ids`
  std::int64_t first = 0, tokens = 0;       // within the dataset
  std::vector<std::int32_t> ids = {};
  bool has_documents = false;  // what depends on where documents begin does so in this text

  // Tokens begin .. begin + out.size() - 1.
  void read(std::int64_t begin, std::int64_t vocab_size, std::span<std::int32_t> out) const {
    if (dataset == nullptr) {
      std::copy_n(ids.begin() + begin, out.size(), out.begin());
      return;
    }
    const auto count = std::ssize(out);
    std::vector<std::byte> stored(static_cast<std::size_t>(count * size_of(dataset->type())));
    dataset->read_tokens(first + begin, count, stored);
    dataset->decode_tokens(stored.data(), first + begin, count, vocab_size, out.data(), 1);
  }
};

// All that is to be computed, the same on every rank.
struct EvalWork {
  std::vector<std::shared_ptr<const IndexedDataset>> datasets;
  std::vector<EvalText> texts;
  std::vector<EvalWindow> windows;
  std::vector<std::int64_t> texts_of_set;  // by set: how many texts
  std::vector<Question> questions;
  DocumentRules documents;
  SampleKind samples = SampleKind::kStream;
  bool finds_documents = false;           // windows keep sequences apart
  std::vector<std::int32_t> token_bytes;  // by id; empty without a tokenizer
  std::string why_no_bytes;               // where that is so
  std::int64_t vocab_size = 0, sequence = 0;  // tokens of a window
};

void add_set(EvalWork& work, const NamedPrefix& set, const EvalOptions& options, bool packed, const Tokenizer* tokenizer) {
  const PrepareHint hint{tokenizer == nullptr ? "" : tokenizer->name(), packed ? work.sequence : 0};
  const auto& held = work.datasets.emplace_back(std::make_shared<const IndexedDataset>(set.prefix, ::pread, hint));
  const IndexedDataset& dataset = *held;
  const std::size_t before = work.texts.size();
  IndexRange part{0, dataset.num_documents()};
  if (set.split) part = split_documents(*set.split, part.end)[1];
  const std::int64_t first = set.split ? dataset.document_begin(part.begin) : 0;
  if (packed) {
    TokenSource packs;
    packs.dataset = held, packs.documents = part;
    look_at_packs(packs, work.sequence);
  }
  if (!options.per_document && !packed) {
    work.texts.push_back({&dataset, first, (set.split ? dataset.document_begin(part.end) : dataset.num_tokens()) - first});
  } else {
    IndexReader index(dataset);
    for (std::int64_t d = part.begin, begin = first; d < part.end; ++d) {
      const std::int64_t end = index.document_begin(d + 1);
      work.texts.push_back({&dataset, begin, end - begin});
      begin = end;
    }
  }
  work.texts_of_set.push_back(std::ssize(work.texts) - static_cast<std::int64_t>(before));
  std::int64_t targets = 0;
  for (std::size_t t = before; t < work.texts.size(); ++t) targets += std::max<std::int64_t>(0, work.texts[t].tokens - 1);
  if (targets == 0)
    throw DataError(fmt::format("{}: no {} has two tokens, so that there is nothing to predict; give data with text",
                                bin_path(set.prefix), options.per_document || packed ? "document" : "part of it"));
}

void add_ids(EvalWork& work, const std::vector<std::int32_t>& ids) {
  check_token_ids(ids, work.vocab_size, "--ids", nullptr);
  EvalText text;
  text.ids = ids;
  text.tokens = std::ssize(text.ids);
  if (text.tokens < 2)
    throw ConfigError(fmt::format("--ids: {} given; the first is not predicted, so that there must be two or more", text.tokens));
  work.texts.push_back(std::move(text));
  work.texts_of_set.push_back(1);
}

EvalWork make_work(const EvalOptions& options, const DataConfig& data, const ModelConfig& model, std::int64_t sequence,
                   const ModelTokenizer& found) {
  const Tokenizer* const tokenizer = found.tokenizer.get();  // or nothing
  const bool finds_documents = data.finds_documents();
  EvalWork work;
  work.samples = data.samples;
  work.finds_documents = finds_documents;
  work.documents = document_rules(data, model.vocab_size, tokenizer);
  work.vocab_size = model.vocab_size;
  work.sequence = sequence;
  if (tokenizer != nullptr) {
    work.token_bytes = tokenizer->text_lengths();
    work.token_bytes.resize(static_cast<std::size_t>(std::max(tokenizer->vocab_size(), model.vocab_size)));
  }
  std::vector<std::string> prefixes;
  for (const NamedPrefix& set : options.sets) {
    add_set(work, set, options, data.is_packed(), tokenizer);
    prefixes.push_back(set.prefix);
  }
  const TextRule rule{.around = options.no_special ? Around::kLeftOut : Around::kAdded};
  check_records(prefixes, tokenizer, "--tokenizer", model.vocab_size, ::pread, &rule);
  if (options.ids) add_ids(work, *options.ids);
  for (EvalText& text : work.texts) text.has_documents = finds_documents;  // a question is one document, whatever is in it
  for (std::size_t t = 0; t < work.texts.size(); ++t)
    add_windows(static_cast<std::int32_t>(t), work.texts[t].tokens, sequence, options.stride.value_or(sequence), work.windows);
  if (!options.choices) return work;
  const ChoicesRules rules{
      .tokenizer = tokenizer,
      .rule = rule,
      .no_tokenizer = found.refused ? fmt::format(" that can be read ({})", found.refused->what()) : "",
      .vocab_size = model.vocab_size,
      .sequence = sequence,
      .delimiter = options.delimiter};
  work.questions = read_choices(*options.choices, rules);
  for (Question& question : work.questions)
    for (ChoiceTokens& choice : question.choices) {
      const auto text = static_cast<std::int32_t>(work.texts.size()), tokens = static_cast<std::int32_t>(choice.tokens.size());
      work.windows.push_back(last_window(text, tokens, sequence, choice.scored));
      work.texts.push_back({nullptr, 0, tokens, std::move(choice.tokens)});
    }
  return work;
}

// Sample i of `count` in the spans becomes this window.
void load_window(const EvalWork& work, const EvalWindow& window, std::int64_t sequence, std::int64_t i, std::int64_t count,
                 const SampleSpans& spans) {
  const EvalText& text = work.texts[static_cast<std::size_t>(window.text)];
  std::vector<std::int32_t> ids(static_cast<std::size_t>(window.inputs) + 1), begins;
  text.read(window.begin, work.vocab_size, ids);
  for (std::int64_t s = 0; s < window.inputs; ++s) {
    const auto at = static_cast<std::size_t>(s * count + i), token = static_cast<std::size_t>(s);
    if (!spans.tokens.empty()) spans.tokens[at] = ids[token];
    if (!spans.targets.empty() && s >= window.counted_from) spans.targets[at] = ids[token + 1];
  }
  const LossMask* const mask = text.dataset == nullptr ? nullptr : text.dataset->mask();
  if (mask != nullptr && !spans.targets.empty()) {
    std::vector<std::uint8_t> counts(static_cast<std::size_t>(window.inputs));
    mask->read(text.first + window.begin + 1, counts);
    hide_uncounted(counts, i, count, spans.targets);
  }
  if (text.has_documents && work.documents.boundaries == DocumentBoundaries::kEod) {
    find_behind_eod(std::span(ids).first(static_cast<std::size_t>(window.inputs)), work.documents.eod, begins);
  } else if (text.has_documents && text.dataset != nullptr) {
    IndexReader index(*text.dataset, IndexReader::Blocks::kNone);
    find_sequences(index, text.first + window.begin, window.inputs, begins);
  }
  mark_documents(begins, work.documents.masks_targets, sequence, i, count, spans);
}

// Loads windows as tokens and targets: a sample is a window, and behind the last one there are empty ones.
LoadSamples loader_of(const EvalWork& work, std::int64_t sequence) {
  return [&work, sequence](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    std::ranges::fill(spans.tokens, 0);
    std::ranges::fill(spans.targets, -1);
    std::ranges::fill(spans.document_starts, 0);
    for (std::int64_t i = 0; i < count && first + i < std::ssize(work.windows); ++i)
      load_window(work, work.windows[static_cast<std::size_t>(first + i)], sequence, i, count, spans);
  };
}

// The sums of every text, and the losses of single tokens if they are `wanted`.
class TextSums {
 public:
  TextSums(const EvalWork& work, bool wanted) : work_(work), wanted_(wanted), sums_(work.texts.size()) {}

  void add(const EvalWindow& window, std::span<const float> losses, std::span<const float> target_logits) {
    LossSum& sum = sums_[static_cast<std::size_t>(window.text)];
    targets_.assign(static_cast<std::size_t>(window.inputs), -1);
    load_window(work_, window, window.inputs, 0, 1, {.targets = targets_});
    for (std::int64_t s = window.counted_from; s < window.inputs; ++s) {
      const double nats = losses[static_cast<std::size_t>(s)];
      const std::int32_t target = targets_[static_cast<std::size_t>(s)];
      if (wanted_) token_nats_.push_back(target < 0 ? std::numeric_limits<double>::quiet_NaN() : nats);
      if (target < 0) continue;
      sum.nats += nats;
      ++sum.tokens;
      sum.correct += target_logits[static_cast<std::size_t>(s)] == 0 ? 1 : 0;
      if (!work_.token_bytes.empty()) sum.bytes += work_.token_bytes[static_cast<std::size_t>(target)];
    }
  }

  const std::vector<LossSum>& sums() const { return sums_; }
  const std::vector<double>& token_nats() const { return token_nats_; }

 private:
  const EvalWork& work_;
  bool wanted_;
  std::vector<LossSum> sums_;
  std::vector<double> token_nats_;
  std::vector<std::int32_t> targets_;
};

// The first of the largest.
template <class Score>
std::int64_t best(std::int64_t count, Score&& score) {
  std::int64_t largest = 0;
  for (std::int64_t i = 1; i < count; ++i)
    if (score(i) > score(largest)) largest = i;
  return largest;
}

ChoicesReport judge(const std::vector<Question>& questions, std::span<const LossSum> sums, bool per_question) {
  ChoicesReport report;
  std::int64_t normalised = 0;
  bool has_lengths = true;
  for (const Question& question : questions) {
    const auto count = std::ssize(question.choices);
    const auto likelihood = [&](std::int64_t i) { return -sums[static_cast<std::size_t>(i)].nats; };
    const auto length = [&](std::int64_t i) { return static_cast<double>(question.choices[static_cast<std::size_t>(i)].length); };
    for (std::int64_t i = 0; i < count; ++i)
      if (!std::isfinite(likelihood(i)) && !report.not_finite) report.not_finite = report.questions;
    ++report.questions;
    QuestionReport of_question{{}, best(count, likelihood), {}};
    if (of_question.chosen == question.answer) ++report.right;
    for (std::int64_t i = 0; i < count; ++i) has_lengths = has_lengths && length(i) > 0;
    if (has_lengths) of_question.chosen_normalised = best(count, [&](std::int64_t i) { return likelihood(i) / length(i); });
    if (of_question.chosen_normalised == question.answer) ++normalised;
    for (std::int64_t i = 0; per_question && i < count; ++i) of_question.log_likelihoods.push_back(likelihood(i));
    if (per_question) report.each.push_back(std::move(of_question));
    sums = sums.subspan(static_cast<std::size_t>(count));
  }
  if (has_lengths) report.right_normalised = normalised;
  return report;
}

EvalReport report_of(const EvalOptions& options, const EvalWork& work, const TextSums& sums, const Resume& weights) {
  EvalReport report;
  report.model = weights.folder;
  if (weights.hf == nullptr) report.updates = weights.manifest.state.updates;
  report.knows_bytes = !work.token_bytes.empty();
  report.sequence = work.sequence;
  report.stride = options.stride.value_or(work.sequence);
  report.token_nats = sums.token_nats();
  std::span<const LossSum> left = sums.sums();
  for (std::size_t s = 0; s < work.texts_of_set.size(); ++s) {
    SetReport& set = report.sets.emplace_back();
    const bool is_ids = s == options.sets.size();
    set.name = is_ids ? "ids" : options.sets[s].name;
    const auto texts = static_cast<std::size_t>(work.texts_of_set[s]);
    for (const LossSum& sum : left.first(texts)) set.sum += sum;
    if (options.per_document && !is_ids) set.documents.assign(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(texts));
    left = left.subspan(texts);
  }
  if (options.choices) report.choices = judge(work.questions, left, options.per_question);
  return report;
}

// For questions alone a window need not be longer than they are.
std::int64_t longest_needed(const EvalWork& work) {
  std::int64_t longest = 1;
  for (const EvalWindow& window : work.windows) longest = std::max(longest, window.inputs);
  return longest;
}

// A run's own validation data: data.valid, or its part of data.train.
std::vector<NamedPrefix> validation_sets(const DataConfig& data) {
  std::vector<NamedPrefix> sets;
  const bool is_split = data.valid.empty();
  if (is_split && !data.split) return sets;
  const std::vector<WeightedPath>& paths = is_split ? data.train : data.valid;
  for (const WeightedPath& it : paths)
    sets.push_back({paths.size() == 1 ? "valid" : it.path, it.path, is_split ? data.split : std::nullopt});
  return sets;
}

// Names what a run has trained on, since its loss there is no measure of other text.
void warn_of_training_data(const EvalOptions& options, const DataConfig& data, std::vector<std::string>& notes) {
  std::map<std::string, DatasetOrigin> origins;
  for (const NamedPrefix& set : options.sets)
    for (const WeightedPath& it : data.train) {
      const std::string shared = set.split ? "" : shared_text(set.prefix, it.path, origins);
      if (shared.empty()) continue;
      if (!shared.starts_with("has ")) {
        notes.push_back(fmt::format("warning: {} {}, on which the run trains", set.prefix, shared));
        continue;
      }
      const std::int64_t all = IndexedDataset(set.prefix).num_documents();
      const std::int64_t trained = data.split ? split_documents(*data.split, all)[0].end : all;
      notes.push_back(fmt::format("warning: {}: the run trains on {} of its {}{}", set.prefix, trained, counted(all, "document"),
                                  validation_sets(data).empty() ? "" : "; leave out --data for its validation data alone"));
    }
}

// The mean is over answers of which half are bad ones.
void warn_of_pairs(const EvalOptions& options, std::vector<std::string>& notes) {
  for (const NamedPrefix& set : options.sets)
    if (origin_in_record(set.prefix).pairs)
      notes.push_back(
          fmt::format("warning: {}: has pairs of answers, and the loss is the mean of chosen and rejected ones alike; a "
                      "run says accuracy and margin of pairs in data.valid",
                      set.prefix));
}

ForwardModel read_model(EvalOptions& options, EvalWork& work) {
  refuse_unused_settings(options.settings);
  ForwardModel model = options.hf_folder.empty()
                           ? forward_model_of_checkpoint(options.checkpoint, options.settings, "--ckpt")
                           : forward_model_of_hf(options.hf_folder, options.settings, "--hf", options.adapter);
  TrainConfig& config = model.config;
  if (options.hf_folder.empty() && options.sets.empty() && !options.ids && !options.choices) {
    options.sets = validation_sets(config_of(model.checkpoint).config.data);
    if (options.sets.empty())
      throw ConfigError("nothing to evaluate, and the run has no validation data; give --data PREFIX, --ids \"5 17 2\" or "
                        "--choices FILE");
  }
  if (options.hf_folder.empty())
    warn_of_training_data(options, config_of(model.checkpoint).config.data, model.checkpoint.notes);
  warn_of_pairs(options, model.checkpoint.notes);
  const ModelConfig architecture = resolve_model(config);
  if (options.sequence) config.batch.sequence = *options.sequence;
  const std::int64_t sequence = config.batch.sequence;
  if (sequence > architecture.longest_sequence())
    throw ConfigError(
        fmt::format("--sequence = {}: the model has {} positions; use at most that", sequence, architecture.max_positions));
  if (options.stride && *options.stride > sequence)
    throw ConfigError(fmt::format("--stride = {}: windows of {} tokens would leave tokens out; use at most --sequence",
                                  *options.stride, sequence));
  const ModelTokenizer tokenizer = find_tokenizer(options.tokenizer, &config.data, model.checkpoint, model.key);
  if (tokenizer.other) model.checkpoint.notes.push_back("warning: " + *tokenizer.other);
  work = make_work(options, config.data, architecture, sequence, tokenizer);
  work.why_no_bytes = tokenizer.refused ? tokenizer.refused->what() : "none is named, and the model's folder has none";
  // Sequences that tensor ranks share out must be a multiple of the tensor degree.
  const std::int64_t unit = config.parallel.sequence_parallel ? config.parallel.tensor : 1;
  config.batch.sequence = round_up(std::min(sequence, longest_needed(work)), unit);
  if (config.batch.sequence > architecture.longest_sequence())
    throw ConfigError(fmt::format("--sequence = {}: {} tensor ranks share out {} tokens (parallel.sequence_parallel), and the "
                                  "model has {} positions; use at most {}, or set parallel.sequence_parallel to false",
                                  sequence, unit, config.batch.sequence, architecture.max_positions, sequence / unit * unit));
  if (model.halves_micro) config.batch.micro = windows_at_once(std::ssize(work.windows), config.batch.sequence);
  return model;
}

}  // namespace

std::optional<EvalReport> run_eval(const std::function<EvalOptions()>& read, LogSink& log, CudaBackend& cuda,
                                   const OnProgress& progress) {
  EvalOptions options;
  EvalWork work;
  std::optional<EvalReport> report;
  const auto on_rank = [&](const ForwardInputs& inputs, JobRank rank) {
    RankEvaluator evaluator(inputs.plan, rank.device, std::move(rank.world), rank.board, rank.on_device);
    const bool reports = evaluator.model().context().rank() == 0;
    const auto is_done = [&](std::int64_t windows) {
      if (reports && progress) progress(windows, std::ssize(work.windows));
    };
    is_done(0);
    const Resume weights =
        load_newest_weights(inputs.model.checkpoint, evaluator.model(), rank.logger, inputs.model.key, inputs.model.path);
    if (rank.board != nullptr) rank.board->set_phase(RunPhase::kEvaluating);
    const std::int64_t global = inputs.plan.config.batch.global, sequence = inputs.plan.config.batch.sequence;
    const LoadSamples load = loader_of(work, sequence);
    const auto tokens = [&work](std::int64_t window) {
      return window < std::ssize(work.windows) ? work.windows[static_cast<std::size_t>(window)].inputs : 0;
    };
    TextSums sums(work, options.token_losses);
    for (std::int64_t batch = 0; batch * global < std::ssize(work.windows); ++batch) {
      is_done(batch * global);
      const std::span<const float> losses = evaluator.losses(load, batch, tokens);
      const auto of_window = [&](std::span<const float> all, std::int64_t i) {
        return all.subspan(static_cast<std::size_t>(i * sequence), static_cast<std::size_t>(sequence));
      };
      for (std::int64_t i = 0; reports && i < global && batch * global + i < std::ssize(work.windows); ++i)
        sums.add(work.windows[static_cast<std::size_t>(batch * global + i)], of_window(losses, i),
                 of_window(evaluator.target_logits(), i));
    }
    if (reports) report = report_of(options, work, sums, weights);
    evaluator.drain();
  };
  const auto read_all = [&] {
    options = read();
    return read_model(options, work);
  };
  run_forward(read_all, on_rank, log, cuda);
  if (report && report->choices && report->choices->not_finite)
    throw DataError(fmt::format("{}: question {}: a choice's log-likelihood is no finite number, so that none is likeliest; the "
                                "model's weights are damaged, or hold NaN or infinity",
                                *options.choices, *report->choices->not_finite + 1));
  for (std::size_t s = 0; report && s < report->sets.size(); ++s) {
    const SetReport& set = report->sets[s];
    DataConfig masks;
    masks.eod_mask_loss = work.documents.masks_targets;
    masks.samples = work.samples;
    masks.has_mask = s < work.datasets.size() && work.datasets[s]->mask() != nullptr;
    if (!std::isfinite(set.sum.nats))
      throw DataError(
          fmt::format("{}: the loss of {} is no finite number; the model's weights are damaged, or hold NaN or infinity",
                      report->model, in_quotes(set.name)));
    if (set.sum.tokens == 0)
      log.write(LogLevel::kWarning, "trident: ",
                fmt::format("no loss of {}: none of its targets counts ({}); {}", in_quotes(set.name), masks.masked_by(),
                            masks.masks_remedy()));
    else if (!set.sum.bits_per_byte() && report->knows_bytes)
      log.write(LogLevel::kWarning,
                "trident: ", fmt::format("no bits per byte of {}: its tokens have no text", in_quotes(set.name)));
  }
  for (std::size_t s = 0; report && !options.hf_folder.empty() && !options.per_document && s < work.datasets.size(); ++s)
    if (const IndexedDataset& data = *work.datasets[s];
        !work.finds_documents && (data.mask() != nullptr || origin_in_record(data.prefix()).packed))
      log.write(LogLevel::kWarning, "trident: ",
                fmt::format("{}: windows run across its conversations, because a Hugging Face folder does not say how it was "
                            "trained; --set data.samples=packed keeps them apart",
                            data.prefix()));
  if (report && !report->sets.empty() && !report->knows_bytes)
    log.write(LogLevel::kWarning,
              "trident: ", fmt::format("no bits per byte without a tokenizer ({}); give --tokenizer", work.why_no_bytes));
  return report;
}

}  // namespace trident
