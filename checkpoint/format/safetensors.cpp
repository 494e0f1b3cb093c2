#include "checkpoint/format/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "core/at.h"
#include "core/check.h"
#include "core/int_math.h"
#include "core/json_scanner.h"

namespace trident {

namespace {

static_assert(std::endian::native == std::endian::little, "the length is copied as it lies in memory");

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::size_t kMaxKey = 4096;
constexpr std::size_t kMaxEntryRank = 16, kMaxEntryValues = 64;
constexpr std::size_t kMaxMetadata = std::size_t{1} << 16;
constexpr std::size_t kHeaderLengthBytes = sizeof(std::uint64_t);

constexpr DType kDTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16,
                             DType::kI64, DType::kI32, DType::kU16,  DType::kU8};

// The format's others, and the bits of a value.
struct OtherDType {
  std::string_view name;
  std::int64_t bits;
};
constexpr OtherDType kOtherDTypes[] = {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"I8", 8},
                                       {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
                                       {"I16", 16},    {"U32", 32},    {"C64", 64},    {"U64", 64}};

constexpr std::string_view kSafetensorsRemedy = "the file is damaged, or not a safetensors file: copy it again";

[[noreturn]] void refuse_file(std::string_view source, std::string_view what) {
  throw DataError(fmt::format("{}: {}; {}", source, what, kSafetensorsRemedy));
}

[[noreturn]] void refuse_entry(std::string_view source, std::string_view tensor, std::string_view what) {
  throw DataError(fmt::format("{}: tensor {}: {}; {}", source, in_quotes(tensor), what, kSafetensorsRemedy));
}

// Member `key` of a tensor's entry: integers that are not negative.
std::vector<std::int64_t> sizes_of(const JsonMember& entry, std::string_view key, std::string_view source) {
  const JsonValue* list = entry.value.find(key);
  if (list == nullptr || !list->is_array()) refuse_entry(source, entry.key, fmt::format("{} is not a list", key));
  std::vector<std::int64_t> sizes;
  for (const JsonValue& item : list->items()) {
    if (!item.is_integer() || item.as_integer() < 0)
      refuse_entry(source, entry.key, fmt::format("{} holds something that is not a size", key));
    sizes.push_back(item.as_integer());
  }
  return sizes;
}

void set_dtype(const JsonMember& member, std::string_view source, SafetensorsEntry* entry) {
  const JsonValue* name = member.value.find("dtype");
  if (name == nullptr || !name->is_string() || name->as_string().empty()) refuse_entry(source, member.key, "has no dtype");
  for (const DType dtype : kDTypes) {
    if (safetensors_name(dtype) != name->as_string()) continue;
    entry->dtype = dtype;
    return;
  }
  entry->other_dtype = name->as_string();
}

// Nothing: the format has no such dtype, or has it since.
std::optional<std::int64_t> bits_of_value(const SafetensorsEntry& entry) {
  if (entry.other_dtype.empty()) return 8 * size_of(entry.dtype);
  const auto* const known = std::ranges::find(kOtherDTypes, entry.other_dtype, &OtherDType::name);
  return known == std::end(kOtherDTypes) ? std::nullopt : std::optional(known->bits);
}

// Multiplied from the left, as the reference reader does: what overflows before a 0 is refused.
std::int64_t bytes_of(const SafetensorsEntry& entry, std::string_view source) {
  const std::optional<std::int64_t> bits_of_one = bits_of_value(entry);
  if (!bits_of_one) return entry.end - entry.begin;
  std::int64_t bits = *bits_of_one;
  for (const std::int64_t extent : entry.shape)
    if (__builtin_mul_overflow(bits, extent, &bits)) refuse_entry(source, entry.name, "the shape is too large");
  if (bits % 8 != 0) refuse_entry(source, entry.name, "its shape makes no whole number of bytes");
  return bits / 8;
}

SafetensorsEntry entry_from(const JsonMember& member, std::string_view source) {
  if (member.key.size() > kMaxKey) refuse_entry(source, member.key, fmt::format("a name of more than {} bytes", kMaxKey));
  if (!member.value.is_object()) refuse_entry(source, member.key, "its entry is not an object");
  SafetensorsEntry entry;
  entry.name = member.key;
  set_dtype(member, source, &entry);
  entry.shape = sizes_of(member, "shape", source);
  if (entry.shape.size() > kMaxEntryRank) refuse_entry(source, entry.name, fmt::format("more than {} dimensions", kMaxEntryRank));
  const std::vector<std::int64_t> offsets = sizes_of(member, "data_offsets", source);
  if (offsets.size() != 2 || offsets[1] < offsets[0]) refuse_entry(source, entry.name, "data_offsets is not a range");
  entry.begin = offsets[0];
  entry.end = offsets[1];
  return entry;
}

void add_metadata(JsonScanner& scanner, std::string_view source, SafetensorsHeader* header) {
  if (scanner.kind() != JsonValue::Kind::kObject) refuse_file(source, "__metadata__ is not an object");
  scanner.members([&](const std::string& key) {
    if (scanner.kind() != JsonValue::Kind::kString)
      refuse_file(source, fmt::format("__metadata__: {} is not a text", in_quotes(key)));
    if (header->metadata.size() == kMaxMetadata)
      refuse_file(source, fmt::format("__metadata__ has more than {} members", kMaxMetadata));
    header->metadata.emplace_back(key, scanner.string());
  });
}

// Back to back from 0 on, to the last byte, each as long as its shape says.
void check_places(const SafetensorsHeader& header, std::int64_t data_bytes, std::string_view source) {
  std::int64_t expected = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != expected)
      refuse_entry(source, entry.name, fmt::format("begins at {}, the tensor before it ends at {}", entry.begin, expected));
    if (const std::int64_t bytes = bytes_of(entry, source); entry.end - entry.begin != bytes)
      refuse_entry(source, entry.name,
                    fmt::format("its shape needs {} bytes, data_offsets give {}", bytes, entry.end - entry.begin));
    if (entry.end > data_bytes)
      refuse_entry(source, entry.name, fmt::format("ends at {}, the data have {} bytes", entry.end, data_bytes));
    expected = entry.end;
  }
  if (expected != data_bytes) refuse_file(source, fmt::format("{} bytes after the last tensor", data_bytes - expected));
}

// JSON readers take -0 for 0. Nothing in a header is negative, so that a minus belongs into strings.
void refuse_minus(std::string_view json, std::string_view source) {
  bool in_text = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (in_text && json[i] == '\\')
      ++i;
    else if (json[i] == '"')
      in_text = !in_text;
    else if (json[i] == '-' && !in_text)
      refuse_file(source, fmt::format("a negative number at byte {} of the header", i));
  }
}

}  // namespace

const std::string* SafetensorsHeader::find_metadata(std::string_view key) const {
  for (const auto& [name, value] : metadata)
    if (name == key) return &value;
  return nullptr;
}

std::string_view safetensors_name(DType dtype) {
  constexpr std::array<std::string_view, 8> kNames{"F64", "F32", "BF16", "F16", "I64", "I32", "U16", "U8"};
  return at(kNames, dtype);
}

std::string_view safetensors_name(const SafetensorsEntry& entry) {
  return entry.other_dtype.empty() ? safetensors_name(entry.dtype) : entry.other_dtype;
}

std::string to_text(const SafetensorsHeader& header, std::int64_t alignment) {
  TRIDENT_CHECK(alignment >= 8 && std::has_single_bit(static_cast<std::uint64_t>(alignment)), "alignment {}", alignment);
  JsonValue::Object root;
  if (!header.metadata.empty()) {
    JsonValue::Object metadata;
    for (const auto& [key, value] : header.metadata) metadata.push_back({key, value});
    root.push_back({std::string(kMetadata), std::move(metadata)});
  }
  std::int64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    TRIDENT_CHECK(entry.begin == end && entry.end >= entry.begin, "tensor {} at {} to {}, the one before it ends at {}", entry.name,
                  entry.begin, entry.end, end);
    end = entry.end;
    JsonValue::Object object;
    object.push_back({"dtype", safetensors_name(entry)});
    object.push_back({"shape", entry.shape});
    object.push_back({"data_offsets", JsonValue::Array{entry.begin, entry.end}});
    root.push_back({entry.name, std::move(object)});
  }
  std::string text(kHeaderLengthBytes, '\0');
  text += to_json_text(root);
  text.resize(static_cast<std::size_t>(round_up(std::ssize(text), alignment)), ' ');
  const std::uint64_t length = text.size() - kHeaderLengthBytes;
  std::memcpy(text.data(), &length, kHeaderLengthBytes);
  return text;
}

std::int64_t safetensors_header_bytes(std::string_view first_8, std::int64_t file_bytes, std::string_view source) {
  if (first_8.size() < kHeaderLengthBytes || file_bytes < static_cast<std::int64_t>(kHeaderLengthBytes))
    refuse_file(source, fmt::format("a file of {} bytes is not a safetensors file", file_bytes));
  std::uint64_t length = 0;
  std::memcpy(&length, first_8.data(), kHeaderLengthBytes);
  if (length < 2 || length > static_cast<std::uint64_t>(kMaxSafetensorsHeader))
    refuse_file(source, fmt::format("a header of {} bytes, there are from 2 to {}", length, kMaxSafetensorsHeader));
  const auto bytes = static_cast<std::int64_t>(length);
  if (bytes > file_bytes - static_cast<std::int64_t>(kHeaderLengthBytes))
    refuse_file(source, fmt::format("truncated: the header alone has {} bytes, the file {}", length, file_bytes));
  return bytes;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes, std::string_view source) {
  if (!json.starts_with('{')) refuse_file(source, "the header is no JSON object");
  JsonScanner scanner(json, source, kSafetensorsRules);
  SafetensorsHeader header;
  scanner.members([&](const std::string& key) {
    if (key == kMetadata) add_metadata(scanner, source, &header);
    else if (header.entries.size() == kMaxSafetensorsEntries)
      refuse_file(source, fmt::format("more than {} tensors", kMaxSafetensorsEntries));
    else {
      std::size_t values_left = kMaxEntryValues;
      header.entries.push_back(entry_from({key, scanner.value(values_left)}, source));
    }
  });
  scanner.end();
  refuse_minus(json, source);
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_places(header, data_bytes, source);
  return header;
}

}  // namespace trident
