#include "data/indexed_dataset.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <utility>

#include "core/check.h"
#include "core/shell_word.h"
#include "data/document_reader.h"
#include "data/dataset_files.h"

namespace trident {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and its fields are copied as they are");

namespace {

constexpr std::int64_t kHeaderBytes = 34;
constexpr std::int64_t kVersionAt = 9, kTypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26;
constexpr std::int64_t kIndexBlock = std::int64_t{1} << 18;  // bytes that an IndexReader reads at once

constexpr IdRange kAnyId{std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};

// Where a look at tokens stopped, or -1: nowhere; and at which id.
using BadToken = std::pair<std::int64_t, std::int64_t>;

template <class T>
BadToken copy_checked(const std::byte* source, std::int64_t count, std::int64_t vocab_size, std::int32_t* out,
                      std::int64_t stride) {
  for (std::int64_t i = 0; i < count; ++i) {
    T stored;
    std::memcpy(&stored, source + i * static_cast<std::int64_t>(sizeof stored), sizeof stored);
    const auto id = static_cast<std::int64_t>(stored);
    if (id < 0 || id >= vocab_size) [[unlikely]] return {i, id};
    out[i * stride] = static_cast<std::int32_t>(id);
  }
  return {-1, 0};
}

template <class T> IdRange range_of(std::span<const T> ids) {
  T low = ids[0], high = ids[0];
  for (const T id : ids) low = std::min(low, id), high = std::max(high, id);
  return {static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)};
}

// The extremes of all ids, found in blocks that are worked on without a branch per token, until one holds an id that is not
// allowed.
template <class T>
BadToken find_outside(const std::byte* source, std::int64_t count, const IdRange& allowed, IdRange* all) {
  constexpr std::int64_t kBlock = 4096;
  std::array<T, kBlock> block;
  *all = {kAnyId.largest, kAnyId.smallest};
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const auto n = static_cast<std::size_t>(std::min(kBlock, count - begin));
    std::memcpy(block.data(), source + begin * static_cast<std::int64_t>(sizeof(T)), n * sizeof(T));
    const IdRange range = range_of(std::span<const T>(block.data(), n));
    if (range.smallest < allowed.smallest || range.largest > allowed.largest) {
      for (std::size_t i = 0;; ++i) {
        const auto id = static_cast<std::int64_t>(block[i]);
        if (id < allowed.smallest || id > allowed.largest) return {begin + static_cast<std::int64_t>(i), id};
      }
    }
    *all = {std::min(all->smallest, range.smallest), std::max(all->largest, range.largest)};
  }
  return {-1, 0};
}

// function(T{}) for the C++ type T that holds a stored token.
template <class Function> auto with_stored_type(TokenType type, Function&& function) {
  switch (type) {
    case TokenType::kU8: return function(std::uint8_t{});
    case TokenType::kI8: return function(std::int8_t{});
    case TokenType::kI16: return function(std::int16_t{});
    case TokenType::kI32: return function(std::int32_t{});
    case TokenType::kI64: return function(std::int64_t{});
    case TokenType::kU16: return function(std::uint16_t{});
  }
  throw InternalError("a token type of unknown width");
}

// Says what to type where `prefix` has no `path`: it may be one of its files, a text or a table, a folder, or a name of the hub.
[[noreturn]] void refuse_no_files(const std::string& prefix, const std::string& path, const PrepareHint& hint) {
  const auto refuse = [&](const std::string& why) { throw DataError(fmt::format("{}: no such file; {}", path, why)); };
  const auto ends_in = [&](std::initializer_list<const char*> endings) {
    return std::ranges::any_of(endings, [&](const char* ending) { return prefix.ends_with(ending); });
  };
  const std::size_t name = prefix.rfind('/') + 1, dot = prefix.find('.', name + 1);  // of no folder, too
  const std::string stem = dot == prefix.npos ? prefix : prefix.substr(0, dot);
  const std::string own = prefix.substr(0, std::max<std::size_t>(prefix.size(), 4) - 4);  // of a file of it
  const bool is_known = !hint.tokenizer.empty();
  const std::string tokenizer = is_known ? for_shell(hint.tokenizer) : "gpt2";
  const std::string_view or_folder = is_known ? "" : " (or the model's folder for gpt2)";
  if (ends_in({".bin", ".idx"}) && is_there(idx_path(own))) refuse(fmt::format("give the prefix alone: {}", own));
  if (folder_exists(prefix)) {
    for (const std::string& file : names_in(prefix))
      if (file.ends_with(".idx"))
        refuse(fmt::format("{} is a folder; give the prefix of files in it, such as {}/{}", prefix, prefix,
                           file.substr(0, file.size() - 4)));
    refuse(
        fmt::format("{} is a folder; make token files of the texts in it: trident data prepare --input {} --append-eod --tokenizer "
                    "{} --output {}{}, and give {}-tokens",
                    prefix, for_shell(prefix), tokenizer, for_shell(prefix + "-tokens"), or_folder, prefix));
  }
  if (ends_in({".bin"}) && file_exists(prefix))
    refuse(
        fmt::format("{} is without an index, as llm.c and nanoGPT write tokens, which are not read; prepare the text that it was "
                    "made of: trident data prepare --input FILE --append-eod --tokenizer {} --output {}",
                    prefix, tokenizer, for_shell(stem)));
  const bool is_table = ends_in({".parquet", ".arrow", ".csv", ".tsv", ".npy", ".feather"});
  if (is_table || file_exists(prefix) || ends_in({".txt", ".json", ".jsonl", ".gz", ".zst"})) {
    const std::string output = stem == prefix ? stem + "-tokens" : stem, input = is_table ? stem + ".jsonl" : prefix;
    if (const std::string_view flag = is_table ? "" : flag_for_lines_of(prefix); !flag.empty()) {
      const std::string packed = output + "-packed";
      const std::string pack = hint.pack == 0 ? "" : fmt::format(", pack them: trident data pack {} --sequence {} --output {}",
                                                                 for_shell(output), hint.pack, for_shell(packed));
      refuse(fmt::format("{} has {}: make token files of them: trident data prepare {} --input {} --tokenizer {} --output {}{}{}, "
                         "and give {}",
                         prefix, flag == "--chat" ? "conversations" : "pairs of answers", flag, for_shell(input),
                         is_known ? tokenizer : "DIR", for_shell(output), is_known ? "" : " (DIR: the model's folder)", pack,
                         hint.pack == 0 ? output : packed));
    }
    refuse(fmt::format(
        "{} {}make token files of it: trident data prepare --input {} {}--append-eod --tokenizer {} --output {}{}, and give {}",
        prefix, is_table ? "is a table: write its texts as JSON lines, {\"text\": ...} each, and " : "is text: ", for_shell(input),
        prefix.ends_with(".txt") ? "--separator-line '' " : "", tokenizer, for_shell(output), or_folder, output));
  }
  if (name > 0 && dot == prefix.npos && prefix.find('/') + 1 == name && !folder_exists(prefix.substr(0, name)))
    refuse(
        fmt::format("give the prefix that `trident data prepare --output` was given; nothing is downloaded: a data set of the hub "
                    "is fetched before, by hf download --repo-type dataset {} --local-dir DIR",
                    for_shell(prefix)));
  throw DataError(
      fmt::format("{}: no such file; give the prefix that `trident data prepare --output` was given, without .bin or .idx", path));
}

RandomAccessFile open_part(const std::string& prefix, const std::string& path, const ReadAt& read_at, const PrepareHint& hint) {
  if (file_exists(path)) return RandomAccessFile(path, read_at);
  refuse_no_files(prefix, path, hint);
}

// Which file a path leads to; nothing where there is none.
std::optional<std::pair<dev_t, ino_t>> identity_of(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return std::pair(status.st_dev, status.st_ino);
}

}  // namespace

std::int64_t size_of(TokenType type) {
  switch (type) {
    case TokenType::kU8: case TokenType::kI8: return 1;
    case TokenType::kI16: case TokenType::kU16: return 2;
    case TokenType::kI32: return 4;
    case TokenType::kI64: return 8;
  }
  return 0;
}

std::string_view name_of(TokenType type) {
  switch (type) {
    case TokenType::kU8: return "uint8";
    case TokenType::kI8: return "int8";
    case TokenType::kI16: return "int16";
    case TokenType::kI32: return "int32";
    case TokenType::kI64: return "int64";
    case TokenType::kU16: return "uint16";
  }
  return "?";
}

std::string bin_path(const std::string& prefix) { return prefix + ".bin"; }
std::string idx_path(const std::string& prefix) { return prefix + ".idx"; }

void refuse_dataset(const RandomAccessFile& file, const std::string& what) {
  throw DataError(fmt::format("{}: {}; prepare the data again (trident data prepare)", file.path(), what));
}

// Whoever replaces a data set takes the .idx away first and puts the new one in place last. So an .idx that is the same before it
// is opened and after the .bin is belongs to that .bin.
IndexedDataset::Files IndexedDataset::open(const std::string& prefix, const ReadAt& read_at, const PrepareHint& hint) {
  refuse_half_way(prefix);
  const std::string path = idx_path(prefix);
  const auto before = identity_of(path);
  Files files{open_part(prefix, path, read_at, hint), open_part(prefix, bin_path(prefix), read_at, hint)};
  if (is_there(mask_path(prefix))) files.mask.emplace(mask_path(prefix), read_at);
  if (identity_of(path) == before) return files;
  throw DataError(fmt::format("{}: another command replaced it while it was opened; start again", prefix));
}

IndexedDataset::IndexedDataset(const std::string& prefix, const ReadAt& read_at, const PrepareHint& hint)
    : IndexedDataset(prefix, open(prefix, read_at, hint)) {}

IndexedDataset::IndexedDataset(const std::string& prefix, Files files)
    : prefix_(prefix), idx_(std::move(files.idx)), bin_(std::move(files.bin)) {
  read_header();
  check_ends();
  if (files.mask) mask_.emplace(*std::move(files.mask), num_tokens_);
}

void IndexedDataset::read_header() {
  if (idx_.size() < kHeaderBytes)
    refuse_dataset(idx_, fmt::format("truncated: {} bytes, the header alone has {}", idx_.size(), kHeaderBytes));
  std::array<std::byte, kHeaderBytes> header;
  idx_.read(0, header);
  const auto field = [&]<class T>(std::int64_t at, T value) {
    std::memcpy(&value, header.data() + at, sizeof value);
    return value;
  };
  if (std::memcmp(header.data(), kIndexMagic.data(), kIndexMagic.size()) != 0)
    refuse_dataset(idx_, "magic is not MMIDIDX: not an index of Megatron's format");
  if (const auto version = field(kVersionAt, std::uint64_t{}); version != kIndexVersion)
    refuse_dataset(idx_, fmt::format("version = {}, expected 1", version));
  const auto code = field(kTypeAt, std::uint8_t{});
  type_ = static_cast<TokenType>(code);
  if (size_of(type_) == 0) refuse_dataset(idx_, fmt::format("dtype code = {}, expected an integer type (1 to 5, or 8)", code));

  // Each count is compared with the file's length alone first, so that the sum below cannot overflow.
  const auto sequences = field(kSequencesAt, std::uint64_t{}), entries = field(kDocumentsAt, std::uint64_t{});
  const auto bytes = static_cast<std::uint64_t>(idx_.size());
  if (sequences > bytes / 12 || entries > bytes / 8 || kHeaderBytes + 12 * sequences + 8 * entries != bytes) {
    refuse_dataset(idx_, fmt::format("sequence_count = {} and document_count = {} do not fit its {} bytes: truncated or damaged",
                                     sequences, entries, bytes));
  }
  if (entries == 0) refuse_dataset(idx_, "document_count = 0, expected documents + 1");
  num_sequences_ = static_cast<std::int64_t>(sequences);
  num_documents_ = static_cast<std::int64_t>(entries) - 1;
  num_tokens_ = bin_.size() / size_of(type_);
}

// Refuses a file that was cut or not finished.
void IndexedDataset::check_ends() const {
  IndexReader index(*this, IndexReader::Blocks::kNone);
  if (const std::int64_t first = index.first_sequence(0); first != 0)
    refuse_dataset(idx_, fmt::format("document index entry 0 = {}, expected 0", first));
  if (const std::int64_t last = index.first_sequence(num_documents_); last != num_sequences_) {
    refuse_dataset(
        idx_, fmt::format("document index ends at sequence {}, expected {}: the index was not finished", last, num_sequences_));
  }
  if (num_sequences_ > 0)
    index.check_sequence(num_sequences_ - 1);
  else if (bin_.size() != 0)
    refuse_dataset(bin_, fmt::format("{} bytes, its .idx describes 0", bin_.size()));
}

std::int64_t IndexedDataset::document_begin(std::int64_t document) const {
  return IndexReader(*this, IndexReader::Blocks::kNone).document_begin(document);
}

void IndexedDataset::will_need(std::int64_t first, std::int64_t count) const {
  TRIDENT_CHECK(first >= 0 && count >= 0 && first <= num_tokens_ - count, "tokens {}+{} of {}", first, count, num_tokens_);
  bin_.will_need(first * size_of(type_), count * size_of(type_));
  if (mask_) mask_->will_need(first, count);
}

void IndexedDataset::read_tokens(std::int64_t first, std::int64_t count, std::span<std::byte> stored) const {
  TRIDENT_CHECK(first >= 0 && count >= 0 && first <= num_tokens_ - count, "tokens {}+{} of {}", first, count, num_tokens_);
  TRIDENT_CHECK(std::ssize(stored) == count * size_of(type_), "{} bytes for {} tokens", stored.size(), count);
  bin_.read(first * size_of(type_), stored);
}

std::int64_t IndexedDataset::token_at(std::int64_t position) const {
  std::array<std::byte, 8> stored;
  read_tokens(position, 1, std::span(stored).first(static_cast<std::size_t>(size_of(type_))));
  return with_stored_type(type_, [&]<class T>(T id) {
    std::memcpy(&id, stored.data(), sizeof id);
    return static_cast<std::int64_t>(id);
  });
}

void IndexedDataset::decode_tokens(const std::byte* stored, std::int64_t first, std::int64_t count, std::int64_t vocab_size,
                                   std::int32_t* out, std::int64_t stride) const {
  const auto [at, id] =
      with_stored_type(type_, [&]<class T>(T) { return copy_checked<T>(stored, count, vocab_size, out, stride); });
  if (at >= 0) refuse_token(first + at, id, vocab_size);
}

IdRange IndexedDataset::check_tokens(const std::byte* stored, std::int64_t first, std::int64_t count,
                                     std::optional<std::int64_t> vocab_size) const {
  TRIDENT_CHECK(count > 0, "{} tokens", count);
  const IdRange allowed = vocab_size ? IdRange{0, *vocab_size - 1} : kAnyId;
  IdRange range;
  const auto [at, id] = with_stored_type(type_, [&]<class T>(T) { return find_outside<T>(stored, count, allowed, &range); });
  if (at >= 0) refuse_token(first + at, id, *vocab_size);
  return range;
}

std::string IndexedDataset::place_of(std::int64_t position) const {
  constexpr const char* kUnknown = "in a document that its .idx does not tell: damaged";
  IndexReader index(*this, IndexReader::Blocks::kNone);
  try {
    std::int64_t low = 0, high = num_documents_;  // the document is one of low .. high - 1: the last that does not begin later
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (index.document_begin(middle) <= position ? low : high) = middle;
    }
    const std::int64_t begin = index.document_begin(low);
    if (low == num_documents_ || begin > position || index.document_begin(low + 1) <= position) return kUnknown;
    return fmt::format("document {}, its token {}", low, position - begin);
  } catch (const DataError&) {  // what is said is the token's fault
    return kUnknown;
  }
}

void IndexedDataset::refuse_token(std::int64_t position, std::int64_t id, std::int64_t vocab_size) const {
  throw DataError(
      fmt::format("{}: token {} has id {} ({}), outside the model's vocabulary of {} tokens; set the model's vocab_size to that of "
                  "the tokenizer which made the file, or prepare the text with the model's tokenizer",
                  bin_.path(), position, id, place_of(position), vocab_size));
}

IndexReader::IndexReader(const IndexedDataset& dataset, Blocks blocks)
    : dataset_(dataset),
      lengths_(dataset.idx_, blocks == Blocks::kAhead ? kIndexBlock : 0),
      offsets_(dataset.idx_, blocks == Blocks::kAhead ? kIndexBlock : 0),
      documents_(dataset.idx_, blocks == Blocks::kAhead ? kIndexBlock : 0) {}

std::int64_t IndexReader::sequence_length(std::int64_t sequence) {
  TRIDENT_CHECK(sequence >= 0 && sequence < dataset_.num_sequences(), "sequence {} of {}", sequence, dataset_.num_sequences());
  const std::int64_t length = lengths_.value_at<std::int32_t>(kHeaderBytes + 4 * sequence);
  if (length < 0) refuse_dataset(dataset_.idx_, fmt::format("length of sequence {} = {}", sequence, length));
  return length;
}

std::int64_t IndexReader::byte_offset(std::int64_t sequence) {
  TRIDENT_CHECK(sequence >= 0 && sequence < dataset_.num_sequences(), "sequence {} of {}", sequence, dataset_.num_sequences());
  const auto offset = offsets_.value_at<std::int64_t>(kHeaderBytes + 4 * dataset_.num_sequences() + 8 * sequence);
  const std::int64_t end = dataset_.bin_.size(), step = size_of(dataset_.type());
  if (offset >= 0 && offset <= end && offset % step == 0) return offset;
  if (offset > end && sequence == dataset_.num_sequences() - 1)  // what a .bin looks like that was cut
    refuse_dataset(dataset_.bin_, fmt::format("too short: {} bytes, the last sequence of its .idx begins at {}", end, offset));
  refuse_dataset(dataset_.idx_, fmt::format("offset of sequence {} = {}: must be a multiple of {} up to the {} bytes of its .bin",
                                            sequence, offset, step, end));
}

void IndexReader::refuse_document(std::int64_t document, std::int64_t first) const {
  refuse_dataset(dataset_.idx_, fmt::format("document index entry {} = {}: entries must ascend from 0 to {}", document, first,
                                            dataset_.num_sequences()));
}

std::int64_t IndexReader::first_sequence(std::int64_t document) {
  TRIDENT_CHECK(document >= 0 && document <= dataset_.num_documents(), "document {} of {}", document, dataset_.num_documents());
  const auto first = documents_.value_at<std::int64_t>(kHeaderBytes + 12 * dataset_.num_sequences() + 8 * document);
  if (first < 0 || first > dataset_.num_sequences()) refuse_document(document, first);
  return first;
}

std::int64_t IndexReader::check_document(std::int64_t document) {
  const std::int64_t before = document > 0 ? first_sequence(document - 1) : 0, first = first_sequence(document);
  if (first < before) refuse_document(document, first);
  return first;
}

std::int64_t IndexReader::document_begin(std::int64_t document) {
  const std::int64_t sequence = first_sequence(document);
  return sequence == dataset_.num_sequences() ? dataset_.num_tokens() : byte_offset(sequence) / size_of(dataset_.type());
}

std::int64_t IndexReader::check_sequence(std::int64_t sequence) {
  const std::int64_t begin = byte_offset(sequence), end = begin + sequence_length(sequence) * size_of(dataset_.type());
  const RandomAccessFile &idx = dataset_.idx_, &bin = dataset_.bin_;
  if (sequence == 0 && begin != 0) refuse_dataset(idx, fmt::format("offset of sequence 0 = {}, expected 0", begin));
  if (end > bin.size())
    refuse_dataset(bin, fmt::format("too short: {} bytes, sequence {} of its .idx ends at {}", bin.size(), sequence, end));
  if (sequence + 1 == dataset_.num_sequences()) {
    if (end != bin.size()) refuse_dataset(bin, fmt::format("{} bytes, its .idx describes {}", bin.size(), end));
  } else if (const std::int64_t next = byte_offset(sequence + 1); next != end) {
    refuse_dataset(
        idx, fmt::format("offset of sequence {} = {}, expected {}: sequences must follow each other", sequence + 1, next, end));
  }
  return end;
}

}  // namespace trident
