#include "tests/support/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "core/bf16.h"
#include "core/check.h"
#include "core/file_io.h"
#include "core/json_reader.h"

namespace trident::test {

namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and copied as they are");

struct DTypeName {
  DType dtype;
  std::string_view name;
};
// In the order in which the reference writer puts tensors.
constexpr DTypeName kDTypes[] = {{DType::kI64, "I64"}, {DType::kF32, "F32"}, {DType::kI32, "I32"}, {DType::kBF16, "BF16"}};

std::size_t rank_of(DType dtype) {
  const auto* found = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const DTypeName& d) { return d.dtype == dtype; });
  TRIDENT_CHECK(found != std::end(kDTypes), "safetensors of {}", to_string(dtype));
  return static_cast<std::size_t>(found - std::begin(kDTypes));
}

[[noreturn]] void fail(std::string_view source, std::string_view tensor, std::string_view what) {
  throw DataError(fmt::format("{}: tensor {}: {}", source, in_quotes(tensor), what));
}

// Member `key` of a tensor's entry: a list of integers that are not negative.
std::vector<std::int64_t> integers(const JsonMember& entry, std::string_view key, std::string_view source) {
  const JsonValue* list = entry.value.find(key);
  if (list == nullptr || !list->is_array()) fail(source, entry.key, fmt::format("{} is not a list", key));
  std::vector<std::int64_t> values;
  for (const JsonValue& item : list->items()) {
    if (!item.is_integer() || item.as_integer() < 0)
      fail(source, entry.key, fmt::format("{} holds something that is not a size", key));
    values.push_back(item.as_integer());
  }
  return values;
}

struct Entry {
  std::string name;
  NamedTensor tensor;  // without data
  std::int64_t begin = 0, end = 0;
};

Entry read_entry(const JsonMember& member, std::string_view source) {
  Entry entry;
  entry.name = member.key;
  const JsonValue* dtype = member.value.find("dtype");
  if (dtype == nullptr || !dtype->is_string()) fail(source, member.key, "has no dtype");
  const auto* known =
      std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const DTypeName& d) { return d.name == dtype->as_string(); });
  if (known == std::end(kDTypes)) fail(source, member.key, fmt::format("dtype {} is not supported", in_quotes(dtype->as_string())));
  entry.tensor.dtype = known->dtype;
  entry.tensor.shape = integers(member, "shape", source);
  const std::vector<std::int64_t> offsets = integers(member, "data_offsets", source);
  if (offsets.size() != 2 || offsets[1] < offsets[0]) fail(source, member.key, "data_offsets is not a range");
  entry.begin = offsets[0];
  entry.end = offsets[1];
  std::int64_t bytes = size_of(entry.tensor.dtype);
  for (const std::int64_t extent : entry.tensor.shape) {
    if (extent != 0 && bytes > std::numeric_limits<std::int64_t>::max() / extent)
      fail(source, member.key, "the shape is too large");
    bytes *= extent;
  }
  if (entry.end - entry.begin != bytes)
    fail(source, member.key, fmt::format("shape needs {} bytes, data_offsets give {}", bytes, entry.end - entry.begin));
  return entry;
}

}  // namespace

std::int64_t NamedTensor::num_elements() const {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

TensorMap parse_safetensors(std::string_view bytes, std::string_view source) {
  std::uint64_t header_size = 0;
  if (bytes.size() < sizeof header_size)
    throw DataError(fmt::format("{}: a file of {} bytes is not a safetensors file", source, bytes.size()));
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  if (header_size > bytes.size() - sizeof header_size)
    throw DataError(fmt::format("{}: truncated: the header alone has {} bytes, the file {}", source, header_size, bytes.size()));
  const std::string_view header = bytes.substr(sizeof header_size, header_size);
  const std::string_view data = bytes.substr(sizeof header_size + header_size);

  JsonRules rules;
  rules.comments = JsonComments::kRefused;
  rules.max_bytes = std::size_t{100} * 1000 * 1000;
  rules.max_depth = 8;
  rules.blame = ExitCode::kData;
  const JsonValue root = parse_json(header, source, rules);
  if (!root.is_object() || !header.starts_with('{')) throw DataError(fmt::format("{}: the header is no JSON object", source));
  std::vector<Entry> entries;
  for (const JsonMember& member : root.members())
    if (member.key != "__metadata__") entries.push_back(read_entry(member, source));
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });

  TensorMap tensors;
  std::int64_t expected = 0;
  for (Entry& entry : entries) {
    if (entry.begin != expected)
      fail(source, entry.name, fmt::format("begins at {}, the tensor before it ends at {}", entry.begin, expected));
    if (entry.end > static_cast<std::int64_t>(data.size())) fail(source, entry.name, "truncated");
    const auto* first = reinterpret_cast<const std::byte*>(data.data());
    entry.tensor.data.assign(first + entry.begin, first + entry.end);
    expected = entry.end;
    tensors.emplace(std::move(entry.name), std::move(entry.tensor));
  }
  if (expected != static_cast<std::int64_t>(data.size()))
    throw DataError(fmt::format("{}: {} bytes after the last tensor", source, static_cast<std::int64_t>(data.size()) - expected));
  return tensors;
}

TensorMap read_safetensors(const std::string& path) { return parse_safetensors(read_file(path), path); }

std::string to_safetensors(const TensorMap& tensors) {
  std::vector<const TensorMap::value_type*> order;
  for (const TensorMap::value_type& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return rank_of(a->second.dtype) < rank_of(b->second.dtype); });

  JsonValue root;
  root.set("__metadata__", JsonValue::Object{{"format", "pt"}});
  std::string data;
  for (const auto* item : order) {
    const auto& [name, tensor] = *item;
    const auto begin = static_cast<std::int64_t>(data.size());
    data.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
    JsonValue::Array shape;
    for (const std::int64_t extent : tensor.shape) shape.emplace_back(extent);
    JsonValue entry;
    entry.set("dtype", std::string(kDTypes[rank_of(tensor.dtype)].name));
    entry.set("shape", std::move(shape));
    entry.set("data_offsets", JsonValue::Array{begin, static_cast<std::int64_t>(data.size())});
    root.set(name, std::move(entry));
  }
  std::string header = to_json_text(root);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t size = header.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  return bytes + header + data;
}

void write_safetensors(const std::string& path, const TensorMap& tensors) { write_file(path, to_safetensors(tensors)); }

}  // namespace trident::test
