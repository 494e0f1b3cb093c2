#include "checkpoint/format/box_file.h"

#include <charconv>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/check.h"
#include "core/json_reader.h"
#include "core/json_scanner.h"

namespace trident {

namespace {

constexpr std::string_view kFormat = "format", kFormatValue = "pt";
constexpr std::string_view kDcpVersion = "DCP_VERSION", kDcpVersionValue = "1.0";
constexpr std::string_view kOffsets = "DCP_SHARDING_INFO", kSavedOffsets = "saved_offsets";
constexpr std::string_view kBlockBytesKey = "trident.block_bytes", kBlocksKey = "trident.blocks";

constexpr std::int64_t kSmallestBlock = 4096;
constexpr std::size_t kLengthBytes = 8, kMaxOffsetsValues = 64;
constexpr std::string_view kRemedy = "the file is damaged: copy it again, or use an older checkpoint";

[[noreturn]] void refuse(std::string_view source, std::string_view what) {
  throw DataError(fmt::format("{}: {}; {}", source, what, kRemedy));
}

[[noreturn]] void refuse_tensor(std::string_view source, std::string_view tensor, std::string_view what) {
  throw DataError(fmt::format("{}: tensor {}: {}; {}", source, in_quotes(tensor), what, kRemedy));
}

std::string offsets_text(const FileTable& table) {
  JsonValue::Object info;
  for (const FileBox& box : table.boxes) {
    const std::vector<std::int64_t>& offset = box.box.offset;
    info.push_back({box.key, JsonValue::Object{{std::string(kSavedOffsets), offset}}});
  }
  return to_json_text(info);
}

const std::string& metadata(const SafetensorsHeader& header, std::string_view key, std::string_view source) {
  const std::string* value = header.find_metadata(key);
  if (value == nullptr) refuse(source, fmt::format("{} is missing: no file of a checkpoint", key));
  return *value;
}

std::int64_t block_bytes_of(const std::string& text, std::string_view source) {
  std::int64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc{} || end != text.data() + text.size() || bytes < kSmallestBlock || bytes > kBlockBytes)
    refuse(source, fmt::format("{} is {}, there are from {} to {}", kBlockBytesKey, in_quotes(text), kSmallestBlock, kBlockBytes));
  return bytes;
}

std::vector<Hash128> blocks_of(std::string_view text, std::int64_t num_blocks, std::string_view source) {
  if (text.size() % kHashDigits != 0 || static_cast<std::int64_t>(text.size() / kHashDigits) != num_blocks)
    refuse(source, fmt::format("{} has {} digits, {} blocks have {} each", kBlocksKey, text.size(), num_blocks, kHashDigits));
  std::vector<Hash128> blocks;
  blocks.reserve(static_cast<std::size_t>(num_blocks));
  for (; !text.empty(); text.remove_prefix(kHashDigits)) {
    const std::optional<Hash128> hash = hash_from(text.substr(0, kHashDigits));
    if (!hash) refuse(source, fmt::format("{}: {} is not a hash", kBlocksKey, in_quotes(text.substr(0, kHashDigits))));
    blocks.push_back(*hash);
  }
  return blocks;
}

// The box's place in its tensor.
std::vector<std::int64_t> offset_from(const JsonMember& member, const std::vector<std::int64_t>& shape, std::string_view source) {
  const JsonValue* list = member.value.find(kSavedOffsets);
  if (list == nullptr || !list->is_array()) refuse_tensor(source, member.key, "saved_offsets is not a list");
  if (list->items().size() != shape.size())
    refuse_tensor(source, member.key, fmt::format("{} offsets, {} dimensions", list->items().size(), shape.size()));
  std::vector<std::int64_t> offset;
  for (const JsonValue& item : list->items()) {
    std::int64_t end = 0;
    if (!item.is_integer() || item.as_integer() < 0 || __builtin_add_overflow(item.as_integer(), shape[offset.size()], &end))
      refuse_tensor(source, member.key, "saved_offsets holds something that is not an offset");
    offset.push_back(item.as_integer());
  }
  return offset;
}

void add_offsets(const std::string& text, std::string_view source, FileTable* table) {
  const std::string where = fmt::format("{}: {}", source, kOffsets);
  JsonScanner scanner(text, where, kSafetensorsRules);
  if (scanner.kind() != JsonValue::Kind::kObject) refuse(source, fmt::format("{} is not an object", kOffsets));
  std::unordered_map<std::string_view, FileBox*> boxes;
  for (FileBox& box : table->boxes) boxes.emplace(box.key, &box);
  std::size_t named = 0;
  scanner.members([&](const std::string& key) {
    ++named;
    const auto found = boxes.find(key);
    if (found == boxes.end()) {
      scanner.skip();
      return;
    }
    FileBox& box = *found->second;
    std::size_t values_left = kMaxOffsetsValues;
    box.box.offset = offset_from({key, scanner.value(values_left)}, box.box.shape, source);
    boxes.erase(found);
  });
  scanner.end();
  if (named != table->boxes.size())
    refuse(source, fmt::format("{} has {} tensors, the file {}", kOffsets, named, table->boxes.size()));
  for (const FileBox& box : table->boxes)
    if (boxes.contains(box.key)) refuse_tensor(source, box.key, fmt::format("{} does not name it", kOffsets));
}

}  // namespace

std::string to_text(const FileTable& table) {
  TRIDENT_CHECK(std::ssize(table.blocks) == table.num_blocks(), "{} hashes of {} blocks", table.blocks.size(), table.num_blocks());
  TRIDENT_CHECK(table.block_bytes >= kSmallestBlock && table.block_bytes <= kBlockBytes, "blocks of {} bytes", table.block_bytes);
  SafetensorsHeader header;
  std::string blocks;
  for (const Hash128& hash : table.blocks) blocks += to_string(hash);
  header.metadata = {{std::string(kFormat), std::string(kFormatValue)},
                     {std::string(kDcpVersion), std::string(kDcpVersionValue)},
                     {std::string(kOffsets), offsets_text(table)},
                     {std::string(kBlockBytesKey), fmt::format("{}", table.block_bytes)},
                     {std::string(kBlocksKey), std::move(blocks)}};
  std::unordered_set<std::string_view> keys;
  for (const FileBox& box : table.boxes) {
    TRIDENT_CHECK(keys.insert(box.key).second, "key {} twice in a file", box.key);
    TRIDENT_CHECK(box.box.offset.size() == box.box.shape.size(), "a box of {} has {} offsets and {} dimensions", box.key,
                  box.box.offset.size(), box.box.shape.size());
    header.entries.push_back({box.key, box.dtype, box.box.shape, box.begin, box.begin + box.bytes()});
  }
  std::string text = to_text(header, kDataAlignment);
  TRIDENT_CHECK(std::ssize(text) - static_cast<std::int64_t>(kLengthBytes) <= kMaxSafetensorsHeader &&
                    table.boxes.size() <= kMaxSafetensorsEntries,
                "a table of {} bytes and {} boxes, more than readers take; write more files", text.size(), table.boxes.size());
  return text;
}

FileTable parse_file_table(std::string_view text, std::int64_t file_bytes, std::string_view source) {
  const std::int64_t length = safetensors_header_bytes(text.substr(0, kLengthBytes), file_bytes, source);
  const std::string_view json = text.substr(kLengthBytes);
  if (std::ssize(json) != length) refuse(source, fmt::format("its header has {} bytes, {} are here", length, json.size()));
  if (std::ssize(text) % kDataAlignment != 0)
    refuse(source, fmt::format("the data begin at byte {}, not a multiple of {}", text.size(), kDataAlignment));
  SafetensorsHeader header = parse_safetensors_header(json, file_bytes - std::ssize(text), source);

  FileTable table;
  table.boxes.reserve(header.entries.size());
  for (SafetensorsEntry& entry : header.entries) {
    if (!entry.other_dtype.empty())
      refuse(source, fmt::format("tensor {} is {}, of which checkpoints have none", in_quotes(entry.name),
                                 in_quotes(entry.other_dtype)));
    table.boxes.push_back({std::move(entry.name), entry.dtype, {{}, std::move(entry.shape)}, entry.begin});
  }
  add_offsets(metadata(header, kOffsets, source), source, &table);
  table.block_bytes = block_bytes_of(metadata(header, kBlockBytesKey, source), source);
  table.blocks = blocks_of(metadata(header, kBlocksKey, source), table.num_blocks(), source);
  return table;
}

}  // namespace trident
