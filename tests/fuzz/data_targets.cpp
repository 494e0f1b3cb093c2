// What `trident data` reads: token files and their record, tokenizers, compressed text.
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/utf8.h"
#include "data/dataset_record.h"
#include "data/dataset_sample.h"
#include "data/dataset_summary.h"
#include "data/document_reader.h"
#include "data/indexed_dataset.h"
#include "data/tokenizer/byte_level_bpe.h"
#include "data/tokenizer/tokenizer_json.h"
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

void check_tokenizer(std::string_view vocab, std::string_view merges, std::string_view text, bool& accepted) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (!accepts([&] { tokenizer = make_byte_level_bpe({"x", vocab, merges, "vocab.json", "merges.txt"}); })) return;
  accepted = true;
  if (valid_prefix(text) != text.size()) return;
  const std::vector<std::int32_t> ids = tokenizer->encode(text);
  require(tokenizer->decode(ids) == text, "{} ids do not stand for the text they were made from", ids.size());
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
  std::array<std::string_view, 3> parts;
  for (std::string_view& part : parts) {
    const std::size_t end = input.find('\0');
    part = input.substr(0, end);
    input.remove_prefix(end == input.npos ? input.size() : end + 1);
  }
  static const std::string kBytes = bytes_as_tokens();
  bool accepted = false;
  check_tokenizer(parts[0], parts[1], parts[2], accepted);
  // In front of the 257 others, so that members which are none are refused before those are read.
  if (parts[0].starts_with(','))
    check_tokenizer(fmt::format("{{{},{}}}", parts[0].substr(1), kBytes), parts[1], parts[2], accepted);
  return accepted;
}

bool tokenizer_json(std::string_view input) {
  std::optional<BpeTexts> texts;
  if (!accepts([&] { texts = read_tokenizer_json(input, "tokenizer.json"); })) return false;
  bool accepted = false;
  check_tokenizer(texts->vocab_json, texts->merges_txt, "a text", accepted);
  return true;
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
