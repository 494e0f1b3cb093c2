#include "data/dataset_record.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "core/fnv1a.h"
#include "core/number_text.h"
#include "core/shell_word.h"
#include "core/utf8.h"
#include "data/dataset_files.h"
#include "data/indexed_dataset.h"
#include "data/input_file.h"
#include "data/tokenizer/json_part.h"

namespace trident {

namespace {

// Programs that know version 1 alone would train on every token.
constexpr std::int64_t kVersion = 1, kVersionWithMask = 2;
constexpr std::int64_t kBlocks = 16, kBlockBytes = 4096;
constexpr std::string_view kRemedy = "prepare the data again, or remove this file if the pair is right as it is";
constexpr std::string_view kDamaged =
    "damaged, or of another version: prepare the data again, or remove this file if the pair is right as it is";

// The sampled bytes, one block after the other.
std::string sampled_bytes(const RandomAccessFile& file) {
  std::string bytes(static_cast<std::size_t>(std::min(file.size(), kBlocks * kBlockBytes)), '\0');
  const std::span<std::byte> out = std::as_writable_bytes(std::span(bytes));
  if (std::ssize(out) == file.size()) {
    file.read(0, out);
    return bytes;
  }
  const std::int64_t last = file.size() - kBlockBytes, step = last / (kBlocks - 1);
  for (std::int64_t i = 0; i < kBlocks; ++i)
    file.read(i + 1 < kBlocks ? i * step : last, out.subspan(static_cast<std::size_t>(i * kBlockBytes), kBlockBytes));
  return bytes;
}

std::string well_formed(const std::string& text) {
  std::string out;
  replace_ill_formed(text, &out);
  return out;
}

std::vector<std::int32_t> ids_of(JsonPart& part, std::string_view key) {  // none where it is missing
  std::vector<std::int32_t> ids;
  for (const JsonValue& id : part.find(key) == nullptr ? JsonValue::Array() : part.list(key)) {
    if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() > INT32_MAX) part.refuse(key, id, "a token id");
    ids.push_back(static_cast<std::int32_t>(id.as_integer()));
  }
  return ids;
}

SampledFile sampled_from(JsonPart& top, std::string_view key) {
  JsonPart file = top.part(key);
  return {file.count("bytes"), file.text("sampled_hash")};
}

DatasetRecord record_from(const std::string& path, const JsonValue& json) {
  JsonPart top(json, "", path, kDamaged);
  const std::int64_t version = top.count("version");
  if (version != kVersion && version != kVersionWithMask) top.refuse("version", JsonValue(version), "1 or 2");
  DatasetRecord record;
  if (top.find("tokenizer") != nullptr) {
    JsonPart tokenizer = top.part("tokenizer");
    record.origin.tokenizer = {tokenizer.text("name"), tokenizer.text("fingerprint"), tokenizer.count("vocab_size"),
                               ids_of(tokenizer, "before"), ids_of(tokenizer, "after"), tokenizer.find("special") != nullptr,
                               tokenizer.optional_count("eod")};
  } else if (json.find("tokenizer") == nullptr) {
    top.refuse("tokenizer", JsonValue(), "an object, or null that is written");
  }
  for (const JsonValue& item : top.list("sources")) {
    JsonPart source(item, "sources", path, kDamaged);
    record.origin.sources.push_back({source.text("name"), source.count("bytes")});
  }
  record.origin.num_sources = top.count("num_sources");
  record.origin.source_bytes = top.count("source_bytes");
  const std::size_t listed = record.origin.sources.size();
  if (listed != std::min(static_cast<std::size_t>(record.origin.num_sources), DatasetOrigin::kRecordedSources))
    top.refuse("num_sources", JsonValue(record.origin.num_sources), fmt::format("the {} of sources", listed));
  std::int64_t bytes = 0;
  for (const RecordedSource& source : record.origin.sources) bytes += source.bytes;
  const bool has_all = std::cmp_equal(listed, record.origin.num_sources);
  if (has_all ? bytes != record.origin.source_bytes : bytes > record.origin.source_bytes)
    top.refuse("source_bytes", JsonValue(record.origin.source_bytes), fmt::format("the {} of sources", bytes));
  record.counts = {top.count("documents"), top.count("sequences"), top.count("tokens")};
  record.origin.packed = top.optional_count("packed");
  record.origin.pairs = top.flag("pairs", false);
  record.origin.chat_template = top.text("chat_template", "");
  record.origin.options = top.text("options", "");
  record.bin = sampled_from(top, "bin");
  record.idx = sampled_from(top, "idx");
  if (version == kVersionWithMask) record.mask = sampled_from(top, "mask");
  return record;
}

void refuse_other_file(const std::string& record, const std::string& path, const SampledFile& recorded, const ReadAt& read_at) {
  const SampledFile found = sample_file(path, read_at);
  if (found == recorded) return;
  const std::string what = found.bytes != recorded.bytes
                               ? fmt::format("has {} bytes, the record says {}", found.bytes, recorded.bytes)
                               : fmt::format("has the recorded {} bytes, but other content", found.bytes);
  throw DataError(fmt::format("{}: does not belong to this pair of files: {} {}; {}", record, path, what, kRemedy));
}

// Without its mask a data set would train on every token, and with one of another data set on the wrong ones.
void refuse_other_mask(const std::string& record, const std::string& path, const std::optional<SampledFile>& recorded,
                       const ReadAt& read_at) {
  if (recorded && !is_there(path))
    throw DataError(fmt::format("{}: names {}, which says what tokens count as targets and is missing; put it back, or prepare the "
                                "data again", record, path));
  if (!recorded && is_there(path))
    throw DataError(fmt::format("{}: names no mask, and {} is there; remove that file if every token is to count, or prepare the "
                                "data again", record, path));
  if (recorded) refuse_other_file(record, path, *recorded, read_at);
}

void refuse_other_counts(const std::string& record, const DatasetCounts& recorded, const IndexedDataset& dataset) {
  for (const auto& [what, says, has] : {std::tuple{"documents", recorded.documents, dataset.num_documents()},
                                        {"sequences", recorded.sequences, dataset.num_sequences()},
                                        {"tokens", recorded.tokens, dataset.num_tokens()}})
    if (says != has)
      throw DataError(fmt::format("{}: does not belong to this pair of files: it says {} {}, {} and its .bin have {}; {}", record,
                                  says, what, idx_path(dataset.prefix()), has, kRemedy));
}

JsonValue to_json(const SampledFile& file) { return JsonValue::Object{{"bytes", file.bytes}, {"sampled_hash", file.hash}}; }

}  // namespace

void DatasetOrigin::add(const RecordedSource& source) {
  if (sources.size() < kRecordedSources) sources.push_back({well_formed(source.name), source.bytes});
  ++num_sources;
  source_bytes += source.bytes;
}

void DatasetOrigin::add_sources(const DatasetOrigin& other) {
  const std::size_t room = kRecordedSources - sources.size();
  const auto taken = static_cast<std::ptrdiff_t>(std::min(room, other.sources.size()));
  sources.insert(sources.end(), other.sources.begin(), other.sources.begin() + taken);
  num_sources += other.num_sources;
  source_bytes += other.source_bytes;
}

RecordedTokenizer recorded(const Tokenizer& tokenizer, const TextRule& rule) {
  const bool adds = rule.around == Around::kAdded;
  const SpecialIds& special = tokenizer.special_ids();
  return {well_formed(tokenizer.name()),  tokenizer.fingerprint(),           tokenizer.vocab_size(),
          adds ? special.before : std::vector<std::int32_t>(), adds ? special.after : std::vector<std::int32_t>(),
          rule.specials == Specials::kPlain, special.eod};
}

void refuse_other_around(const std::string& record, const RecordedTokenizer& recorded, std::string_view whose,
                         const RecordedTokenizer& other) {
  if (recorded.before == other.before && recorded.after == other.after) return;
  const auto around = [](const RecordedTokenizer& rule) {
    return rule.before.empty() && rule.after.empty()
               ? std::string("nothing")
               : fmt::format("the ids [{}] before and [{}] behind", fmt::join(rule.before, " "), fmt::join(rule.after, " "));
  };
  throw DataError(fmt::format("{}: its texts have {} each, {} {}; use --no-special for all of them or for none", record,
                              around(recorded), whose, around(other)));
}

TextRule rule_of_data(std::span<const std::string> prefixes, const Tokenizer& tokenizer, const ReadAt& read_at) {
  const RecordedTokenizer usual = recorded(tokenizer);
  if (usual.before.empty() && usual.after.empty()) return {};
  for (const std::string& prefix : prefixes) {
    const std::optional<DatasetRecord> record = read_record(prefix, read_at);
    if (!record || !record->origin.tokenizer) continue;
    const bool has_none = record->origin.tokenizer->before.empty() && record->origin.tokenizer->after.empty();
    return {.around = has_none ? Around::kLeftOut : Around::kAdded};
  }
  return {};
}

std::string described(const RecordedTokenizer& tokenizer) {
  return fmt::format("tokenizer {} of {} tokens ({})", in_quotes(tokenizer.name), tokenizer.vocab_size, tokenizer.fingerprint);
}

std::string described(const std::optional<DatasetRecord>& record) {
  if (!record) return "not recorded: written by another tool, or by an earlier version";
  const DatasetOrigin& origin = record->origin;
  return fmt::format("{}, from {} file{} of {} bytes",
                     origin.tokenizer ? described(*origin.tokenizer) : "a tokenizer that is not known", origin.num_sources,
                     origin.num_sources == 1 ? "" : "s", with_commas(origin.source_bytes));
}

SampledFile sample_file(const std::string& path, const ReadAt& read_at) {
  const RandomAccessFile file(path, read_at);
  Fnv1a hash;
  hash.add(sampled_bytes(file));
  return {.bytes = file.size(), .hash = hash.text()};
}

namespace {

// Without a look at the files that it is of.
std::optional<DatasetRecord> record_alone(const std::string& prefix) {
  const std::string path = record_path(prefix);
  if (!is_there(path)) return std::nullopt;
  JsonValue json;
  try {
    json = read_json_file(path, {.comments = false, .blame = ExitCode::kData});
  } catch (const NotPermitted&) {
    throw;  // it may be right
  } catch (DataError& error) {
    error.add_context(fmt::format("; {}", kRemedy));
    throw;
  }
  return record_from(path, json);
}

}  // namespace

std::unique_ptr<Tokenizer> load_recorded(const std::string& name, const RecordedTokenizer& recorded_then) {
  try {
    std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(name, "data.tokenizer");
    if (recorded(*tokenizer) == recorded_then) return tokenizer;
  } catch (const Error&) {  // it has moved
  }
  return nullptr;
}

DatasetOrigin origin_in_record(const std::string& prefix) {
  std::optional<DatasetRecord> record = record_alone(prefix);
  return record ? std::move(record->origin) : DatasetOrigin();
}

std::optional<DatasetRecord> read_record(const std::string& prefix, const ReadAt& read_at) {
  std::optional<DatasetRecord> record = record_alone(prefix);
  if (!record) return record;
  const std::string path = record_path(prefix);
  refuse_other_file(path, bin_path(prefix), record->bin, read_at);
  refuse_other_file(path, idx_path(prefix), record->idx, read_at);
  refuse_other_mask(path, mask_path(prefix), record->mask, read_at);
  refuse_other_counts(path, record->counts, IndexedDataset(prefix, read_at));
  return record;
}

std::string shared_text(const std::string& prefix, const std::string& other, std::map<std::string, DatasetOrigin>& origins) {
  std::error_code ignored;  // of files that are gone
  if (std::filesystem::equivalent(bin_path(prefix), bin_path(other), ignored)) return fmt::format("has the files of {}", other);
  try {
    const auto origin_of = [&origins](const std::string& of) -> const DatasetOrigin& {  // without a record it is its own source
      const auto [at, is_new] = origins.try_emplace(of);
      DatasetOrigin& origin = at->second;
      if (is_new) origin = origin_in_record(of);
      if (is_new && origin.num_sources == 0) origin.add({bin_path(of), RandomAccessFile(bin_path(of)).size()});
      return origin;
    };
    const DatasetOrigin &origin = origin_of(prefix), &of_other = origin_of(other);
    for (const RecordedSource& source : origin.sources)
      if (source.name != kStandardInput && std::ranges::find(of_other.sources, source) != of_other.sources.end())
        return fmt::format("was made of {}, as {} was", source.name, other);
  } catch (const Error&) {  // a record that cannot be read says nothing
  }
  return "";
}

bool is_made_of(const std::string& prefix, const DatasetOrigin& origin) {
  try {
    const std::optional<DatasetRecord> record = read_record(prefix);
    if (!record || !record->origin.tokenizer || !origin.tokenizer) return false;
    const RecordedTokenizer &then = *record->origin.tokenizer, &now = *origin.tokenizer;
    const auto rule = [](const RecordedTokenizer& of) { return std::tie(of.fingerprint, of.before, of.after, of.plain, of.eod); };
    return rule(then) == rule(now) && !origin.options.empty() && record->origin.options == origin.options;
  } catch (const Error&) {
    return false;
  }
}

JsonValue to_json(const DatasetRecord& record) {
  JsonValue json, tokenizer;
  json.set("version", record.mask ? kVersionWithMask : kVersion);
  if (const auto& known = record.origin.tokenizer) {
    tokenizer.set("name", known->name);
    tokenizer.set("fingerprint", known->fingerprint);
    tokenizer.set("vocab_size", known->vocab_size);
    for (const auto& [key, ids] : {std::pair{"before", &known->before}, {"after", &known->after}})
      if (!ids->empty()) tokenizer.set(key, JsonValue::Array(ids->begin(), ids->end()));
    if (known->plain) tokenizer.set("special", "plain");
    if (known->eod) tokenizer.set("eod", *known->eod);
  }
  json.set("tokenizer", std::move(tokenizer));
  json.set("documents", record.counts.documents);
  json.set("sequences", record.counts.sequences);
  json.set("tokens", record.counts.tokens);
  if (record.origin.packed) json.set("packed", *record.origin.packed);
  if (record.origin.pairs) json.set("pairs", true);
  if (!record.origin.chat_template.empty()) json.set("chat_template", record.origin.chat_template);
  if (!record.origin.options.empty()) json.set("options", record.origin.options);
  json.set("bin", to_json(record.bin));
  json.set("idx", to_json(record.idx));
  if (record.mask) json.set("mask", to_json(*record.mask));
  json.set("num_sources", record.origin.num_sources);
  json.set("source_bytes", record.origin.source_bytes);
  JsonValue::Array sources;
  for (const RecordedSource& source : record.origin.sources)
    sources.push_back(JsonValue::Object{{"name", source.name}, {"bytes", source.bytes}});
  json.set("sources", std::move(sources));
  return json;
}

namespace {

// Says whether another one has its name now, as far as it can be read.
bool is_another_now(const RecordedTokenizer& tokenizer) {
  try {
    return load_tokenizer(tokenizer.name, "--tokenizer")->fingerprint() != tokenizer.fingerprint;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::vector<std::string> check_records(std::span<const std::string> prefixes, const Tokenizer* tokenizer, std::string_view key,
                                       std::int64_t vocab_size, const ReadAt& read_at, const TextRule* rule) {
  std::optional<std::pair<std::string, RecordedTokenizer>> first;  // whose, and which
  if (tokenizer != nullptr) first = {"the one in use", recorded(*tokenizer)};
  std::optional<std::pair<std::string, RecordedTokenizer>> around;
  if (first && rule != nullptr) around = {std::string("texts of this command"), recorded(*tokenizer, *rule)};
  std::vector<std::string> notes;
  for (const std::string& prefix : std::set<std::string>(prefixes.begin(), prefixes.end())) {
    const std::optional<DatasetRecord> record = read_record(prefix, read_at);
    if (!record || !record->origin.tokenizer) {
      notes.push_back(fmt::format("{}: no record of the tokenizer that made it ({}); nothing tells whether it is the model's",
                                  prefix, record ? "parts of the merge have none" : record_path(prefix)));
      continue;
    }
    const RecordedTokenizer& made_by = *record->origin.tokenizer;
    if (made_by.vocab_size > vocab_size) {
      throw DataError(fmt::format("{}: was made by {}, the model's vocabulary has {}; set the model's vocab_size to {} or more, "
                                  "prepare the text with the model's tokenizer, or where a run begins with a Hugging Face folder "
                                  "whose tokens this one has, name it in data.tokenizer, which adds rows for the others",
                                  record_path(prefix), described(made_by), vocab_size, made_by.vocab_size));
    }
    if (!first) first = {record_path(prefix), made_by};
    if (made_by == first->second) {
      if (!around) around = {record_path(prefix), made_by};
      refuse_other_around(record_path(prefix), made_by, around->first, around->second);
      continue;
    }
    const std::string name = for_shell(made_by.name);
    const std::string setting = key.starts_with("--") ? fmt::format("{} {}", key, name) : fmt::format("--set {}={}", key, name);
    throw DataError(fmt::format("{}: was made by {}, {} is {}; {}, or prepare the text with one tokenizer", record_path(prefix),
                                described(made_by), first->first, described(first->second),
                                is_another_now(made_by)
                                    ? fmt::format("put the one that made the data back, which {} no longer is", name)
                                    : fmt::format("name the one that made the data, {}", setting)));
  }
  return notes;
}

}  // namespace trident
