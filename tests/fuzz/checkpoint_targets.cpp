// Fuzz targets of the beginning of a checkpoint's files, and of its manifest.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>

#include "checkpoint/format/box_file.h"
#include "checkpoint/format/hash128.h"
#include "checkpoint/format/hf_index.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/safetensors.h"
#include "core/int_math.h"
#include "tests/fuzz/fuzz_target.h"

namespace trident::fuzz {

namespace {

constexpr std::int64_t kLengthBytes = 8;

// Where the data of a header end that is as the writers write it: a guess, so that what the fuzzer changes is not always refused for
// the size of a file which there is not.
std::int64_t data_end_of(std::string_view json) {
  constexpr std::string_view kOffsets = "\"data_offsets\":[";
  std::int64_t largest = 0;
  for (std::size_t at = json.find(kOffsets); at != json.npos; at = json.find(kOffsets, at + 1)) {
    const std::size_t comma = json.find(',', at + kOffsets.size());
    if (comma == json.npos) break;
    std::int64_t end = 0;
    std::from_chars(json.data() + comma + 1, json.data() + json.size(), end);
    largest = std::max(largest, end);
  }
  return std::min(largest, std::numeric_limits<std::int64_t>::max() / 2);  // a file has room for its header, too
}

// `text` with the hash that belongs to it, in the place of the one that it has.
std::string sealed(std::string_view text) {
  const std::string body(text.substr(0, text.rfind(",\"hash\":\"")));
  return body + ",\"hash\":\"" + to_string(hash128(body)) + "\"}\n";
}

}  // namespace

bool manifest(std::string_view input) {
  std::optional<Manifest> found;
  bool accepted = accepts([&] { found = parse_manifest(input, "manifest.json"); });
  accepted = accepts([&] { found = parse_manifest(sealed(input), "manifest.json"); }) || accepted;
  if (found) require(parse_manifest(to_text(*found), "manifest.json") == *found, "written and read again it is another manifest");
  return accepted;
}

bool safetensors_header(std::string_view input) {
  constexpr std::string_view kSource = "x.safetensors";
  std::int64_t length = 0;
  if (accepts([&] { length = safetensors_header_bytes(input.substr(0, 8), std::ssize(input), kSource); }))
    require(length >= 2 && length + kLengthBytes <= std::ssize(input), "a header of {} bytes in {}", length, input.size());

  const std::int64_t data_bytes = data_end_of(input);
  std::optional<SafetensorsHeader> header;
  if (!accepts([&] { header = parse_safetensors_header(input, data_bytes, kSource); })) return false;
  require(header->data_bytes() == data_bytes, "{} bytes of data, {} in the header", data_bytes, header->data_bytes());
  const std::string text = to_text(*header);
  const std::int64_t written = safetensors_header_bytes(text, std::ssize(text) + data_bytes, kSource);
  require(written + kLengthBytes == std::ssize(text), "a header of {} bytes says {}", text.size(), written);
  require(parse_safetensors_header(std::string_view(text).substr(kLengthBytes), data_bytes, kSource) == *header,
          "written and read again it is another header");
  return true;
}

bool hf_index(std::string_view input) {
  std::optional<HfIndex> index;
  if (!accepts([&] { index = parse_hf_index(input, "model.safetensors.index.json"); })) return false;
  for (const auto& [tensor, file] : index->files)
    require(file.find('/') == file.npos && file.find("..") == file.npos, "tensor {} is looked for in {}", tensor, file);
  HfIndex again = parse_hf_index(to_text(*index), "again");
  std::ranges::sort(index->files);
  require(again == *index, "written and read again it is another index");
  return true;
}

bool box_table(std::string_view input) {
  const std::int64_t data_bytes = data_end_of(input);
  std::string text(static_cast<std::size_t>(kLengthBytes), '\0');
  text.append(input).resize(static_cast<std::size_t>(round_up(kLengthBytes + std::ssize(input), kDataAlignment)), ' ');
  const std::int64_t length = std::ssize(text) - kLengthBytes;
  std::memcpy(text.data(), &length, sizeof length);

  std::optional<FileTable> table;
  if (!accepts([&] { table = parse_file_table(text, std::ssize(text) + data_bytes, "o-00000-0.safetensors"); })) return false;
  const std::string again = to_text(*table);
  require(parse_file_table(again, std::ssize(again) + data_bytes, "again") == *table, "written and read again it is another table");
  return true;
}

}  // namespace trident::fuzz
