#include "train/run/data_summary.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/counted.h"
#include "core/int_math.h"
#include "core/number_text.h"
#include "data/sample_order.h"
#include "train/run/run_inputs.h"

namespace trident {
namespace {

constexpr std::size_t kShown = 8;

std::string tokens_text(std::int64_t tokens) {
  const auto n = static_cast<double>(tokens);
  if (n >= 1e12) return fmt::format("{:.1f} T tokens", 1e-12 * n);
  if (n >= 1e9) return fmt::format("{:.1f} G tokens", 1e-9 * n);
  return n >= 1e6 ? fmt::format("{:.1f} M tokens", 1e-6 * n) : with_commas(tokens) + " tokens";
}

std::string size_text(const TokenSource& source, std::int64_t sequence) {
  const std::int64_t samples = source.num_samples(sequence);
  const bool has_mask = source.dataset != nullptr && source.dataset->mask() != nullptr;
  const bool packed = source.samples == SampleKind::kPacked;
  std::string text =
      fmt::format("{}, {}, {} {}{} of {} tokens{}", source.label, tokens_text(source.num_tokens), with_commas(samples),
                  packed ? "pack" : "sample", samples == 1 ? "" : "s", with_commas(sequence),
                  has_mask ? ", targets by its .mask" : "");
  if (!packed) return text;
  const auto share = [&](std::int64_t part, std::int64_t all) {
    return 100 * static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(1, all));
  };
  text += fmt::format(", {:.1f} % full", share(source.num_tokens, samples * sequence));
  if (source.targets) text += fmt::format(", {:.1f} % of its tokens carry loss", share(*source.targets, source.num_tokens));
  return text;
}

// `line` for each of the first sources, and how many more there are.
template <class Line>
void add_lines(std::vector<std::string>& lines, std::span<const TokenSource> sources, Line line) {
  for (const TokenSource& source : sources.first(std::min(kShown, sources.size()))) lines.push_back(line(source));
  if (sources.size() > kShown)
    lines.push_back(fmt::format("  and {}", counted(std::ssize(sources) - static_cast<std::int64_t>(kShown), "more file")));
}

// Where run.epochs says how long the run is, how many steps that is.
std::string epochs_text(const TrainConfig& config, std::int64_t samples, std::int64_t taken) {
  const double epochs = config.run.epochs.value(), wanted = epochs * static_cast<double>(samples);
  const std::int64_t over = taken - std::llround(wanted);
  std::string text = fmt::format("run.epochs = {}: {} of {} samples", epochs, counted(config.run.steps, "step"),
                                 with_commas(config.batch.global));
  if (taken != config.run.steps * config.batch.global)
    text += fmt::format("; with those of the steps until now it takes {}{}", counted(taken, "sample"),
                        over < 0 ? fmt::format(" and leaves {} out; --set run.epochs lengthens it", counted(-over, "sample")) : "");
  else if (over > 0)
    text += fmt::format("; the last one takes {} {}", counted(over, "sample"),
                        epochs == std::floor(epochs) ? "of the next epoch" : "more than that, as no batch is cut");
  return text;
}

bool same_shares(const std::string& a, const std::string& b) {
  constexpr std::int64_t kMany = 1'000'000;
  return std::ranges::equal(split_documents(a, kMany), split_documents(b, kMany));
}

// The third share of data.split is neither trained on nor held out.
std::int64_t unused_documents(const std::string& split, std::span<const TokenSource> sources, std::int64_t& documents) {
  std::int64_t unused = 0;
  for (const TokenSource& source : sources) {
    const IndexRange last = split_documents(split, source.dataset->num_documents())[2];
    unused += last.end - last.begin;
    documents += source.dataset->num_documents();
  }
  return unused;
}

}  // namespace

DataSummary data_summary(const RunPlan& plan, const TokenSources& sources, std::optional<std::int64_t> taken) {
  const TrainConfig& config = plan.config;
  const std::int64_t of_run = taken.value_or(config.run.steps * config.batch.global);
  const std::int64_t sequence = config.batch.sequence;
  TokenSource all;
  all.label = fmt::format("{} files", sources.train.size());
  all.weight = 0;
  all.samples = config.data.samples;
  all.targets = 0;
  for (const TokenSource& source : sources.train) {
    all.weight += source.weight, all.num_tokens += source.num_tokens;
    all.documents.end += source.documents.end - source.documents.begin;
    all.targets = source.targets && all.targets ? std::optional(*all.targets + *source.targets) : std::nullopt;
  }
  const auto line_of = [&](const TokenSource& source, std::string_view more) {
    const double own = source.weight / all.weight * static_cast<double>(of_run),
                 epochs = own / static_cast<double>(std::max<std::int64_t>(1, source.num_samples(sequence)));
    return fmt::format("data: {}{}; this run takes {:.{}f} epochs", size_text(source, sequence), more, epochs,
                       epochs < 0.1  ? 4
                       : epochs < 10 ? 2
                                     : 0);
  };
  const bool is_blend = sources.train.size() > 1;
  DataSummary lines;
  lines.line = line_of(is_blend ? all : sources.train.front(), "");
  if (config.run.epochs) lines.notes.push_back(epochs_text(config, samples_of(sources.train, sequence), of_run));
  if (is_blend) {
    add_lines(lines.details, sources.train, [&](const TokenSource& source) {
      return line_of(source, fmt::format(", {:.3g} % of every batch", 100 * source.weight / all.weight));
    });
  }
  if (config.eval.every.ever()) {
    std::int64_t there = 0, some = 0, largest = 0;
    for (const TokenSource& source : sources.valid) {
      const std::int64_t samples = source.num_samples(sequence);
      there += samples, some += eval_samples(config, samples), largest = std::max(largest, samples);
    }
    if (some < there)
      lines.evaluation = fmt::format("eval: {} of {} samples each time, eval.steps x batch.global; --set eval.steps={} takes all",
                                     with_commas(some), with_commas(there), ceil_div(largest, config.batch.global));
    add_lines(lines.details, sources.valid, [&](const TokenSource& source) {
      return fmt::format("validation data: {}; an evaluation takes {}", size_text(source, sequence),
                         with_commas(eval_samples(config, source.num_samples(sequence))));
    });
  }
  constexpr const char* kOfMegatron = "969,30,1";
  if (!config.data.split || same_shares(*config.data.split, kOfMegatron)) return lines;
  std::int64_t documents = 0;
  if (const std::int64_t unused = unused_documents(*config.data.split, sources.train, documents); unused > 0) {
    lines.notes.push_back(fmt::format("data.split = {}: nothing reads its third share, {} of {} document{}", *config.data.split,
                                with_commas(unused), with_commas(documents), documents == 1 ? "" : "s"));
  }
  return lines;
}

std::vector<std::string> empty_share_warnings(const TrainConfig& config, const TokenSources& sources) {
  std::vector<std::string> lines;
  if (!config.data.split) return lines;
  constexpr std::int64_t kMany = 1'000'000'000;
  const IndexRange wanted = split_documents(*config.data.split, kMany)[1];
  if (wanted.begin == wanted.end) return lines;
  for (const TokenSource& source : sources.valid) {
    if (source.num_tokens > 0) continue;
    const char* const advice = source.samples == SampleKind::kPacked
                                   ? "packs: give a larger share, such as --set data.split=80,20"
                                   : "documents: prepare the text as several (trident data prepare --separator-line)";
    lines.push_back(fmt::format("data.split = {}: nothing is held out, {}; a split goes by whole {}, or name held-out text in "
                                "data.valid", *config.data.split, source.label, advice));
  }
  return lines;
}

}  // namespace trident
