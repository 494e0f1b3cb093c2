// Fuzz targets of what `trident data` reads: token files and their record, tokenizers, compressed text.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/utf8.h"
#include "data/chat/chat_source.h"
#include "data/dataset_record.h"
#include "data/dataset_sample.h"
#include "data/dataset_summary.h"
#include "data/document_reader.h"
#include "data/indexed_dataset.h"
#include "data/tokenizer/chain_tokenizer.h"
#include "data/tokenizer/vocabulary_files.h"
#include "tests/data/compress.h"
#include "tests/fuzz/byte_tokens.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/recorded_pair.h"

namespace trident::fuzz {

namespace {

std::string without_ending(const std::string& path) { return path.substr(0, path.rfind('.')); }

template <class T> void append(std::string& bytes, T value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }

// The index as its readers understand it, byte by byte.
std::string index_again(const IndexedDataset& dataset) {
  std::string bytes(kIndexMagic);
  append(bytes, kIndexVersion);
  append(bytes, dataset.type());
  append(bytes, dataset.num_sequences());
  append(bytes, dataset.num_documents() + 1);
  IndexReader index(dataset);
  for (std::int64_t s = 0; s < dataset.num_sequences(); ++s) append(bytes, static_cast<std::int32_t>(index.sequence_length(s)));
  for (std::int64_t s = 0; s < dataset.num_sequences(); ++s) append(bytes, index.byte_offset(s));
  for (std::int64_t d = 0; d <= dataset.num_documents(); ++d) append(bytes, index.first_sequence(d));
  return bytes;
}

// The documents of a compressed text, or nothing where it is refused. The limit is one that inputs of the fuzzer pass, and small
// because a reader takes memory for it.
std::optional<std::string> text_of(const InputFile& file) {
  std::string text;
  const bool accepted = accepts([&] {
    DocumentReader reader(file, std::nullopt, {std::int64_t{1} << 15, std::int64_t{1} << 15});
    while (const std::optional<RawDocument> document = reader.next()) text += document->bytes;
    require(reader.bytes_done() == file.bytes, "{} bytes of {} were read", reader.bytes_done(), file.bytes);
  });
  return accepted ? std::optional(text) : std::nullopt;
}

template <class Pack>
bool compressed(std::string_view input, ScratchFile& file, Compression compression, Pack pack) {
  file.set(input);
  const auto described = [&](std::int64_t bytes) { return InputFile{file.path(), InputKind::kText, compression, bytes}; };
  const std::optional<std::string> text = text_of(described(std::ssize(input)));
  if (!text) return false;
  const std::string again = pack(*text);
  file.set(again);
  require(text_of(described(std::ssize(again))) == *text, "packed and read again it is another text");
  return true;
}

// Encodes and decodes the text, where the parts make a tokenizer.
void check_tokenizer(ChainParts parts, std::string_view text, bool& accepted) {
  // A tokenizer that changes no text gives it back. An added token may take white space along, and is decoded as its own spelling.
  const bool is_plain =
      parts.rules.over_bytes && parts.text.normalizers.empty() && parts.text.splits.size() == 1 && !parts.text.splits[0].invert &&
      parts.text.splits[0].behavior == SplitStep::Behavior::kIsolated && parts.of_text.empty() && parts.of_token.size() <= 1 &&
      std::ranges::all_of(parts.added, [](const AddedToken& token) {
        return !token.lstrip && !token.rstrip && std::ranges::all_of(token.content, [](char c) { return c > 0x20 && c < 0x7F; });
      });
  std::unique_ptr<Tokenizer> tokenizer;
  if (!accepts([&] { tokenizer = make_chain_tokenizer(std::move(parts)); })) return;
  accepted = true;
  if (valid_prefix(text) != text.size()) return;
  const auto encoder = tokenizer->new_encoder();
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> ends;
  if (!accepts([&] { encoder->encode(text, &ids, {.around = Around::kLeftOut, .ends = &ends}); })) return;
  require(ids.size() == ends.size() && std::ranges::is_sorted(ends), "{} ends of {} ids", ends.size(), ids.size());
  const std::string decoded = tokenizer->decode(ids);
  require(!is_plain || encoder->num_unknown() > 0 || decoded == text, "{} ids do not stand for the text they were made from",
          ids.size());
}

void check_pair(std::string_view vocab, std::string_view merges, std::vector<AddedToken> added, std::string_view text,
                bool& accepted) {
  ChainParts parts = gpt2_parts();
  parts.added = std::move(added);
  if (accepts([&] { read_vocabulary({vocab, merges, "vocab.json", "merges.txt"}, parts); }))
    check_tokenizer(std::move(parts), text, accepted);
}

// Every added token between words.
std::string text_with(const std::vector<AddedToken>& tokens) {
  std::string text = "a text";
  for (const AddedToken& token : tokens) text += fmt::format(" a{0} {0}{0}\n", token.content);
  return text;
}

}  // namespace

// Two bytes, how many the .bin has; then the .idx.
bool token_index(std::string_view input) {
  static ScratchFile idx("x.idx");
  static const std::string prefix = without_ending(idx.path());
  static std::int64_t in_bin = -1;
  if (input.size() < 2) return false;
  std::uint16_t bytes = 0;
  std::memcpy(&bytes, input.data(), sizeof bytes);
  if (bytes != in_bin) {
    std::string tokens;
    for (int i = 0; i < bytes; ++i) tokens += static_cast<char>(i % 4 == 0 ? i / 4 : 0);  // small ids in u8, u16 and i32
    write_file(bin_path(prefix), tokens);
    in_bin = bytes;
  }
  idx.set(input.substr(2));
  std::optional<IndexedDataset> dataset;
  if (!accepts([&] { dataset.emplace(prefix); })) return false;
  accepts([&] { sample_dataset(*dataset, 1000); });
  accepts([&] { dataset->document_begin(dataset->num_documents() / 2); });
  if (!accepts([&] { summarize(*dataset, {}); })) return false;
  require(index_again(*dataset) == input.substr(2), "written again it is another index");
  return true;
}

// A byte, how many tokens the .bin has; then the mask.
bool loss_mask(std::string_view input) {
  static ScratchFile file("x.mask");
  if (input.empty()) return false;
  std::vector<std::uint8_t> counts(static_cast<std::uint8_t>(input[0]));
  const auto read = [&](std::string_view bytes) {
    file.set(bytes);
    const LossMask mask(RandomAccessFile(file.path()), std::ssize(counts));
    mask.read(0, counts);
    require(mask.counted(0, std::ssize(counts)) == std::ranges::count(counts, 1), "other tokens are counted than are read");
  };
  if (!accepts([&] { read(input.substr(1)); })) return false;
  const std::vector<std::uint8_t> first = counts;
  AtomicFile again(file.path() + ".again");
  LossMaskWriter writer(again, std::ssize(counts));
  for (const std::uint8_t count : counts) writer.append(count != 0);
  writer.finish();
  again.finish();
  read(read_file(again.temporary_path()));
  require(counts == first, "written and read again it is another mask");
  return true;
}

// The record of a pair of files that are always the same.
bool dataset_record(std::string_view input) {
  static ScratchFile file("x.trident.json");
  static const std::string prefix = [] {
    const std::string record = file.path();
    const std::string name = record.substr(0, record.size() - std::string_view(".trident.json").size());
    write_recorded_pair(name);
    return name;
  }();
  const auto read = [&](std::string_view text) {
    file.set(text);
    return read_record(prefix);
  };
  std::optional<DatasetRecord> record;
  if (!accepts([&] { record = read(input); })) return false;
  const std::string text = to_json_text(to_json(*record), 2);
  require(to_json_text(to_json(*read(text)), 2) == text, "written and read again it is another record");
  return true;
}

// vocab.json, a zero byte, merges.txt, a zero byte, a text. What begins with a comma is tried as members beside the vocabulary of
// all bytes: few changes of a complete vocabulary leave it one.
bool vocab_and_merges(std::string_view input) {
  const std::vector<std::string_view> parts = parts_of_input(input, 3);
  static const std::string kBytes = bytes_as_tokens();
  bool accepted = false;
  check_pair(parts[0], parts[1], plain_added_tokens(), parts[2], accepted);
  // In front of the 257 others, so that members which are none are refused before those are read.
  const std::string beside = parts[0].starts_with(',') ? fmt::format("{{{},{}}}", parts[0].substr(1), kBytes) : "";
  if (!beside.empty()) check_pair(beside, parts[1], plain_added_tokens(), parts[2], accepted);
  return accepted;
}

bool tokenizer_json(std::string_view input) {
  std::optional<ChainParts> parts;
  if (!accepts([&] { parts = read_tokenizer_json(input, "tokenizer.json"); })) return false;
  bool accepted = false;
  const std::string text = text_with(parts->added);
  check_tokenizer(std::move(*parts), text, accepted);
  return accepted;
}

// Lines of ranks behind those of all bytes, a zero byte, the file of control tokens, a zero byte, a text.
bool rank_file(std::string_view input) {
  static ScratchFile special("special.json");
  static const std::string bytes = bytes_as_ranks();
  const std::vector<std::string_view> sections = parts_of_input(input, 3);
  special.set(sections[1].empty() ? "{}" : sections[1]);
  std::optional<ChainParts> parts;
  const std::string ranks = bytes + std::string(sections[0]);
  if (!accepts([&] {
        parts = read_ranks(ranks, "x.tiktoken");
        read_special_file(special.path(), *parts);
        set_pattern("cl100k", "x", *parts);
      }))
    return false;
  bool accepted = false;
  const std::string text = text_with(parts->added) + std::string(sections[2]);
  check_tokenizer(std::move(*parts), text, accepted);
  return accepted;
}

bool tekken_json(std::string_view input) {
  std::optional<ChainParts> parts;
  if (!accepts([&] { parts = read_tekken(input, "tekken.json"); })) return false;
  bool accepted = false;
  const std::string text = text_with(parts->added);
  check_tokenizer(std::move(*parts), text, accepted);
  return accepted;
}

// tokenizer_config.json, a zero byte, added_tokens.json, a zero byte, a text; beside the vocabulary of all bytes.
bool added_tokens(std::string_view input) {
  static ScratchFile config("tokenizer_config.json");
  static const std::string folder = config.path().substr(0, config.path().rfind('/'));
  static const std::string vocab = fmt::format("{{{}}}", bytes_as_tokens());
  const std::vector<std::string_view> parts = parts_of_input(input, 3);
  config.set(parts[0].empty() ? "{}" : parts[0]);
  write_file(folder + "/added_tokens.json", parts[1].empty() ? "{}" : parts[1]);
  ChainParts beside = gpt2_parts();
  if (!accepts([&] { add_named_tokens(folder, tokenizer_config_of(folder), beside); })) return false;
  bool accepted = false;
  check_pair(vocab, "", beside.added, text_with(beside.added), accepted);
  check_pair(vocab, "", beside.added, parts[2], accepted);
  return accepted;
}

bool gzip(std::string_view input) {
  static ScratchFile file("x.txt.gz");
  return compressed(input, file, Compression::kGzip, gzipped);
}

bool zstd(std::string_view input) {
  static ScratchFile file("x.txt.zst");
  return compressed(input, file, Compression::kZstd, zstd_packed);
}

}  // namespace trident::fuzz
