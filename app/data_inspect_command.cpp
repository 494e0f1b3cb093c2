// trident data inspect PREFIX [--check [--vocab-size V]] [--documents N] [--tokens M] [--tokenizer T] [--sequence S] [--json]: the
// numbers of a pair of token files, and the beginnings of its documents.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <ostream>
#include <sstream>

#include "app/command_line.h"
#include "app/progress_line.h"
#include "core/counted.h"
#include "core/json_reader.h"
#include "core/number_text.h"
#include "core/printable.h"
#include "core/utf8.h"
#include "data/dataset_record.h"
#include "data/dataset_summary.h"
#include "data/sample_order.h"
#include "data/tokenizer/tokenizer.h"

namespace trident {
namespace {

constexpr std::int64_t kAnyVocabulary = std::int64_t{1} << 31;  // ids are 32 bits wide in a batch

struct InspectOptions {
  std::int64_t documents = 1;  // whose beginnings are shown
  std::optional<std::int64_t> tokens = {};  // of each; nothing: 32, with a mask 512
  std::int64_t sequence = 0;   // 0: samples are not counted
  bool check = false;          // ids against a vocabulary
  std::optional<std::int64_t> vocab_size = {};  // nothing: the tokenizer's, or whatever 32 bits hold
};

// The beginning of a document.
struct Excerpt {
  std::int64_t document, length;  // in tokens
  std::vector<std::int64_t> ids;
  std::vector<std::uint8_t> counts;  // of each of them; empty without a mask
  std::optional<std::string> text;  // of `ids`, well-formed UTF-8; nothing without a tokenizer
  std::optional<std::int64_t> counted;  // of its tokens, as targets; nothing without a mask

  bool is_cut() const { return static_cast<std::int64_t>(ids.size()) < length; }
};

struct Inspection {
  const IndexedDataset& dataset;
  std::optional<DatasetRecord> record;
  DatasetSummary summary;
  const Tokenizer* tokenizer;  // or nullptr
  InspectOptions options;
  std::vector<Excerpt> excerpts;

  bool is_packed() const { return record && record->origin.packed; }
  std::int64_t num_samples() const {
    return is_packed() ? dataset.num_documents() : num_samples_of(dataset.num_tokens(), options.sequence);
  }
};

// Ids are checked against these.
std::int64_t vocabulary_of(const InspectOptions& options, const Tokenizer* tokenizer, const std::optional<DatasetRecord>& record) {
  if (options.vocab_size) return *options.vocab_size;
  if (tokenizer != nullptr) return tokenizer->vocab_size();
  return record && record->origin.tokenizer ? record->origin.tokenizer->vocab_size : kAnyVocabulary;
}

void refuse_foreign_tokenizer(const IndexedDataset& dataset, const IdRange& ids, const Tokenizer& tokenizer) {
  if (ids.smallest >= 0 && ids.largest < tokenizer.vocab_size()) return;
  throw DataError(fmt::format("{}: its ids go from {} to {}, --tokenizer {} has 0 to {}; name the tokenizer that made the file",
                              bin_path(dataset.prefix()), ids.smallest, ids.largest, tokenizer.name(), tokenizer.vocab_size() - 1));
}

DatasetSummary read_whole(const IndexedDataset& dataset, const Tokenizer* tokenizer, const std::optional<DatasetRecord>& record,
                          const InspectOptions& options, const CommandContext& context) {
  SummaryOptions wanted;
  if (tokenizer != nullptr) wanted.end_token = tokenizer->special_ids().eod;
  if (options.check) wanted.vocab_size = vocabulary_of(options, tokenizer, record);
  ProgressLine line(context, "data inspect");
  return summarize(dataset, wanted, [&](std::int64_t done, std::int64_t all) {
    line.bytes(done * size_of(dataset.type()), all * size_of(dataset.type()));
  });
}

// Well-formed UTF-8: a token may end inside a character.
std::string text_of(const Tokenizer& tokenizer, const std::vector<std::int64_t>& ids) {
  std::string text;
  replace_ill_formed(tokenizer.decode(std::vector<std::int32_t>(ids.begin(), ids.end())), &text);
  return text;
}

std::vector<Excerpt> excerpts_of(const IndexedDataset& dataset, const Tokenizer* tokenizer, const InspectOptions& options) {
  std::vector<Excerpt> excerpts;
  for (std::int64_t d = 0; d < std::min(options.documents, dataset.num_documents()); ++d) {
    const std::int64_t begin = dataset.document_begin(d);
    Excerpt excerpt{.document = d, .length = dataset.document_begin(d + 1) - begin, .ids = {}, .counts = {}, .text = {},
                    .counted = {}};
    const std::int64_t shown = std::min(options.tokens.value_or(dataset.mask() == nullptr ? 32 : 512), excerpt.length);
    for (std::int64_t i = 0; i < shown; ++i) excerpt.ids.push_back(dataset.token_at(begin + i));
    if (dataset.mask() != nullptr) {
      excerpt.counted = dataset.mask()->counted(begin, excerpt.length);
      excerpt.counts.resize(excerpt.ids.size());
      dataset.mask()->read(begin, excerpt.counts);
    }
    if (tokenizer != nullptr) excerpt.text = text_of(*tokenizer, excerpt.ids);
    excerpts.push_back(std::move(excerpt));
  }
  return excerpts;
}

// Quoted text in which nothing moves the cursor, changes colours or turns the direction of writing. `text` is well-formed.
std::string printable(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const auto [value, size] = code_point_at(text, 0);
    if (value == '\n') out += "\\n";
    else if (value == '\t') out += "\\t";
    else if (value == '"' || value == '\\') (out += '\\') += static_cast<char>(value);
    else if (is_control(value)) out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(value));
    else out += text.substr(0, size);
    text.remove_prefix(size);
  }
  return out + '"';
}

std::string end_line(const Inspection& seen) {
  const DatasetSummary& summary = seen.summary;
  if (!summary.end_token) return "no tokens";
  const std::int64_t with_text = seen.dataset.num_documents() - summary.empty_documents;
  const bool every = summary.every_document_ends(seen.dataset);
  const std::string count =
      fmt::format("{} of {} end in token {}", summary.documents_with_end_token, counted(with_text, "document"), *summary.end_token);
  if (seen.tokenizer == nullptr) return every ? count : count + "; --tokenizer tells which token is eod";
  const std::string ends = fmt::format("{}, {}'s eod", count, seen.tokenizer->name());
  if (every) return "yes: " + ends;
  return seen.dataset.mask() == nullptr ? "no: " + ends : ends + "; a template may write a newline behind it";
}

std::string counted_line(const Inspection& seen) {
  const std::int64_t counted = seen.summary.counted_tokens, tokens = seen.dataset.num_tokens();
  return fmt::format("{} count as targets ({:.1f} %); {} of the documents with text have none", with_commas(counted),
                     100 * static_cast<double>(counted) / static_cast<double>(std::max<std::int64_t>(1, tokens)),
                     seen.summary.documents_without_counted);
}

std::string check_line(const Inspection& seen) {
  const std::int64_t vocabulary = vocabulary_of(seen.options, seen.tokenizer, seen.record);
  return fmt::format("ok: {} and {} in order, {} below {}", counted(seen.dataset.num_sequences(), "sequence"),
                     counted(seen.dataset.num_documents(), "document"), counted(seen.dataset.num_tokens(), "id"), vocabulary);
}

// A line for each stretch of tokens that count, or do not.
void print_stretches(const Excerpt& excerpt, const Tokenizer* tokenizer, std::ostream& out) {
  const auto first = excerpt.counts.begin();
  for (auto begin = first, end = begin; begin != excerpt.counts.end(); begin = end) {
    end = std::find(begin, excerpt.counts.end(), *begin == 0 ? 1 : 0);
    const std::vector<std::int64_t> ids(excerpt.ids.begin() + (begin - first), excerpt.ids.begin() + (end - first));
    out << fmt::format("  {} {}{}\n", *begin == 0 ? "context" : "target ",
                       tokenizer == nullptr ? fmt::format("{}", fmt::join(ids, " ")) : printable(text_of(*tokenizer, ids)),
                       end == excerpt.counts.end() && excerpt.is_cut() ? " ..." : "");
  }
}

void print_text(const Inspection& seen, const CommandContext& context) {
  std::ostringstream out;
  const IndexedDataset& dataset = seen.dataset;
  const DatasetSummary& summary = seen.summary;
  const auto line = [&](std::string_view name, const std::string& value) {
    out << fmt::format("  {:<16} {}\n", name, on_one_line(value));
  };
  const auto bytes = [](std::int64_t count) {
    return with_commas(count) + " bytes" + (count < 1000 ? "" : fmt::format(" ({})", bytes_text(count)));
  };
  out << on_one_line(dataset.prefix()) << '\n';
  line("dtype", std::string(name_of(dataset.type())));
  line("documents", fmt::format("{}, {} of them empty", dataset.num_documents(), summary.empty_documents));
  if (seen.is_packed())
    line("packed", fmt::format("each a pack of at most {}, {:.1f} % full", counted(*seen.record->origin.packed, "token"),
                               100 * summary.mean_length / static_cast<double>(*seen.record->origin.packed)));
  line("sequences", fmt::format("{}{}", dataset.num_sequences(), seen.record && seen.record->origin.pairs ? ", in pairs" : ""));
  line("tokens", with_commas(dataset.num_tokens()));
  if (dataset.mask() != nullptr) line("targets", counted_line(seen));
  line("document length", fmt::format("{} to {} tokens, mean {:.1f}", summary.shortest, summary.longest, summary.mean_length));
  line("ids", summary.ids ? fmt::format("{} to {}", summary.ids->smallest, summary.ids->largest) : "none");
  line("eod at the ends", end_line(seen));
  if (seen.options.sequence > 0)
    line("samples", fmt::format("{} of {}", seen.num_samples(), counted(seen.options.sequence, "token")));
  line(".bin", bytes(dataset.bin().size()));
  line(".idx", bytes(dataset.idx().size()));
  if (dataset.mask() != nullptr) line(".mask", bytes(dataset.mask()->file().size()));
  line("made by", described(seen.record));
  if (seen.options.check) line("check", check_line(seen));
  for (const Excerpt& excerpt : seen.excerpts) {
    const char* rest = excerpt.is_cut() ? " ..." : "";
    out << fmt::format("document {}: {}{}\n", excerpt.document, counted(excerpt.length, "token"),
                       excerpt.counted ? fmt::format(", {} count as targets", *excerpt.counted) : "");
    if (excerpt.counted) {
      print_stretches(excerpt, seen.tokenizer, out);
      continue;
    }
    out << "  ids ";
    for (const std::int64_t id : excerpt.ids) out << ' ' << id;
    out << rest << '\n';
    if (excerpt.text) out << fmt::format("  text {}{}\n", printable(*excerpt.text), rest);
  }
  context.out << on_screen(out.str(), context);
}

JsonValue to_json(const Inspection& seen) {
  const IndexedDataset& dataset = seen.dataset;
  const DatasetSummary& summary = seen.summary;
  JsonValue json;
  json.set("prefix", dataset.prefix());
  json.set("dtype", name_of(dataset.type()));
  json.set("documents", dataset.num_documents());
  json.set("empty_documents", summary.empty_documents);
  json.set("sequences", dataset.num_sequences());
  json.set("tokens", dataset.num_tokens());
  json.set("shortest_document", summary.shortest);
  json.set("longest_document", summary.longest);
  json.set("mean_document", summary.mean_length);
  json.set("smallest_id", summary.ids ? JsonValue(summary.ids->smallest) : JsonValue());
  json.set("largest_id", summary.ids ? JsonValue(summary.ids->largest) : JsonValue());
  json.set("end_token", summary.end_token);
  json.set("documents_with_end_token", summary.documents_with_end_token);
  json.set("eod_at_ends", seen.tokenizer != nullptr ? JsonValue(summary.every_document_ends(dataset)) : JsonValue());
  if (seen.options.sequence > 0) json.set("samples", seen.num_samples());
  json.set("bin_bytes", dataset.bin().size());
  json.set("idx_bytes", dataset.idx().size());
  if (dataset.mask() != nullptr) {
    json.set("mask_bytes", dataset.mask()->file().size());
    json.set("counted_tokens", summary.counted_tokens);
    json.set("documents_without_counted", summary.documents_without_counted);
  }
  json.set("record", seen.record ? to_json(*seen.record) : JsonValue());
  if (seen.options.check) json.set("ids_checked_below", vocabulary_of(seen.options, seen.tokenizer, seen.record));
  JsonValue::Array excerpts;
  for (const Excerpt& excerpt : seen.excerpts) {
    JsonValue item;
    item.set("document", excerpt.document);
    item.set("tokens", excerpt.length);
    if (excerpt.counted) item.set("counted", *excerpt.counted);
    item.set("ids", excerpt.ids);
    if (excerpt.counted) item.set("counts", excerpt.counts);
    if (excerpt.text) item.set("text", *excerpt.text);
    excerpts.push_back(std::move(item));
  }
  json.set("first_documents", std::move(excerpts));
  return json;
}

}  // namespace

void data_inspect_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app("Show what PREFIX.bin, .idx and .mask hold, and which tokens count. Reads the index and every token once.",
               "trident data inspect");
  std::string prefix, tokenizer_name;
  InspectOptions options;
  bool json = false;
  app.add_option("PREFIX", prefix, "prefix of .bin and .idx")->required();
  app.add_flag("--check", options.check,
               "look for ids outside the vocabulary; ends with 65 and the first fault: document, token, id");
  app.add_option("--vocab-size", options.vocab_size,
                 "the model's vocabulary, for --check; not given: the tokenizer's, else the record's");
  app.add_option("--documents", options.documents, "how many documents to show the beginnings of")->capture_default_str();
  app.add_option("--tokens", options.tokens, "how many tokens of each to show; not given: 32, or 512 of data with a mask");
  app.add_option("--tokenizer", tokenizer_name,
                 "the tokenizer that made the files: shows text, knows eod; not given: the recorded one, where it is still there");
  app.add_option("--sequence", options.sequence, "count the samples of so many tokens (batch.sequence)");
  app.add_flag("--json", json, "print one JSON object");
  if (!parse_flags(app, arguments, context)) return;
  for (const auto& [name, value] : {std::pair{"--documents", options.documents},
                                    {"--tokens", options.tokens.value_or(0)},
                                    {"--sequence", options.sequence}})
    if (value < 0) throw ConfigError(fmt::format("{} = {}: must not be negative", name, value));
  if (options.vocab_size && *options.vocab_size < 1)
    throw ConfigError(fmt::format("--vocab-size = {}: must be at least 1", *options.vocab_size));
  if (options.vocab_size && !options.check)
    throw ConfigError(fmt::format("--vocab-size = {}: only --check compares ids with it; add --check", *options.vocab_size));

  auto tokenizer = tokenizer_name.empty() ? nullptr : load_tokenizer(tokenizer_name, "--tokenizer");
  const IndexedDataset dataset(prefix);
  check_records(std::vector{prefix}, tokenizer.get(), "--tokenizer", std::numeric_limits<std::int64_t>::max());
  std::optional<DatasetRecord> record = read_record(prefix);
  const bool is_named = tokenizer != nullptr;
  if (const auto& made_by = record ? record->origin.tokenizer : std::nullopt; !is_named && made_by)
    tokenizer = load_recorded(made_by->name, *made_by);
  const DatasetSummary summary = read_whole(dataset, tokenizer.get(), record, options, context);
  if (is_named && summary.ids) refuse_foreign_tokenizer(dataset, *summary.ids, *tokenizer);
  const Inspection seen{dataset,         std::move(record), summary,
                        tokenizer.get(), options,           excerpts_of(dataset, tokenizer.get(), options)};
  if (json) context.out << to_json_text(to_json(seen)) << '\n';
  else
    print_text(seen, context);
}

}  // namespace trident
