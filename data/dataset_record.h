// PREFIX.trident.json: what made the token files of a prefix, and what tells that they are still those. `trident data prepare` and
// `merge` write it; files of other tools have none and are used as they are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "data/tokenizer/tokenizer.h"

namespace trident {

struct RecordedTokenizer {
  std::string name;         // as --tokenizer gave it: a path may mean something else elsewhere
  std::string fingerprint;  // Tokenizer::fingerprint()
  std::int64_t vocab_size = 0;
  std::vector<std::int32_t> before = {}, after = {};  // what was put around each text
  bool plain = false;                                 // control texts were read as text
  std::optional<std::int64_t> eod = {};  // nothing: of an earlier version
  bool operator==(const RecordedTokenizer& other) const { return fingerprint == other.fingerprint; }  // whatever their names
};

struct RecordedSource {
  std::string name;
  std::int64_t bytes = 0;  // as stored
  bool operator==(const RecordedSource&) const = default;
};

// The origin of token files: their tokenizer and their texts.
struct DatasetOrigin {
  std::optional<RecordedTokenizer> tokenizer;  // nothing: not known of all parts of a merge
  std::vector<RecordedSource> sources;         // the first kRecordedSources of them
  std::int64_t num_sources = 0, source_bytes = 0;
  std::optional<std::int64_t> packed = {};  // documents are packs of at most so many tokens (pack_datasets.h)
  bool pairs = false;  // every two sequences are a chosen and a rejected answer
  std::string chat_template = {};  // as --template named it; "": that of the tokenizer's folder, or none
  std::string options = {};  // what else decided the documents, a hash that tells inputs apart included; "": not known

  static constexpr std::size_t kRecordedSources = 256;
  void add(const RecordedSource& source);
  void add_sources(const DatasetOrigin& other);
};

// A file's size and the hash of at most 16 blocks of 4 KiB that are spread over it, its first and last bytes among them.
struct SampledFile {
  std::int64_t bytes = 0;
  std::string hash;
  bool operator==(const SampledFile&) const = default;
};
SampledFile sample_file(const std::string& path, const ReadAt& read_at = ::pread);

struct DatasetCounts {
  std::int64_t documents = 0, sequences = 0, tokens = 0;
};

struct DatasetRecord {
  DatasetOrigin origin;
  DatasetCounts counts;
  SampledFile bin, idx;
  std::optional<SampledFile> mask = {};  // nothing: every token counts as a target
};

RecordedTokenizer recorded(const Tokenizer& tokenizer, const TextRule& rule = {});
// Refuses (DataError) data whose texts have something else around them than `other`, which is what `whose` has.
void refuse_other_around(const std::string& record, const RecordedTokenizer& recorded, std::string_view whose,
                         const RecordedTokenizer& other);
// The rule by which a model that learned from these data sets reads a text: the first record's, else the default.
TextRule rule_of_data(std::span<const std::string> prefixes, const Tokenizer& tokenizer, const ReadAt& read_at = ::pread);
std::string described(const RecordedTokenizer& tokenizer);  // for messages
// The tokenizer of this name, or place, where it is still the recorded one; else nullptr.
std::unique_ptr<Tokenizer> load_recorded(const std::string& name, const RecordedTokenizer& recorded_then);

// The record of a prefix, nothing where there is none. One that cannot be read or does not fit PREFIX.bin, PREFIX.idx and
// PREFIX.mask: DataError that says what differs. Reads at most 64 KiB of each.
std::optional<DatasetRecord> read_record(const std::string& prefix, const ReadAt& read_at = ::pread);

// The origin in a prefix's record, or an empty one where there is no record. Reads the record alone.
DatasetOrigin origin_in_record(const std::string& prefix);

// Says by files and records what two data sets share: "has the files of OTHER", "was made of TEXT, as OTHER was", or "".
// `origins`: those that were read before, by prefix.
std::string shared_text(const std::string& prefix, const std::string& other, std::map<std::string, DatasetOrigin>& origins);

// Whether the files of a prefix are whole and were made by the same tokenizer and options, which tell what they were made of.
// False where that is not known.
bool is_made_of(const std::string& prefix, const DatasetOrigin& origin);

JsonValue to_json(const DatasetRecord& record);

std::string described(const std::optional<DatasetRecord>& record);

// Checks data sets that are used together: records fit their files, and all tokenizers are one, with as many tokens as the model's
// vocabulary or fewer, and the one that `tokenizer` is, which the user named as `key`, where it is not nullptr. All have the same
// around their texts, and what `rule` puts there where texts beside them are read by it. DataError. Returns what is to be said:
// which have no record.
std::vector<std::string> check_records(std::span<const std::string> prefixes, const Tokenizer* tokenizer, std::string_view key,
                                       std::int64_t vocab_size, const ReadAt& read_at = ::pread, const TextRule* rule = nullptr);

}  // namespace trident
