#include "tests/support/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "core/file_io.h"
#include "core/json_reader.h"

namespace trident::test {

namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and copied as they are");

// In the order in which the reference writer puts tensors.
constexpr std::pair<DType, std::string_view> kDTypes[] = {
    {DType::kI64, "I64"}, {DType::kF32, "F32"}, {DType::kI32, "I32"}, {DType::kBF16, "BF16"}};

std::size_t rank_of(DType dtype) {
  const auto* found = std::ranges::find(kDTypes, dtype, &std::pair<DType, std::string_view>::first);
  TRIDENT_CHECK(found != std::end(kDTypes), "safetensors of {}", to_string(dtype));
  return static_cast<std::size_t>(found - std::begin(kDTypes));
}

}  // namespace

std::int64_t NamedTensor::num_elements() const {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

TensorMap parse_safetensors(std::string_view bytes, std::string_view source) {
  std::uint64_t header_size = 0;
  TRIDENT_CHECK(bytes.size() >= sizeof header_size, "{}: {} bytes", source, bytes.size());
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  TRIDENT_CHECK(header_size <= bytes.size() - sizeof header_size, "{}: a header of {} bytes", source, header_size);
  const std::string_view data = bytes.substr(sizeof header_size + header_size);
  JsonRules rules;
  rules.max_bytes = header_size;
  const JsonValue root = parse_json(bytes.substr(sizeof header_size, header_size), source, rules);

  std::vector<std::tuple<std::int64_t, std::int64_t, const JsonMember*>> places;  // begin, end, entry
  for (const JsonMember& member : root.members()) {
    if (member.key == "__metadata__") continue;
    const JsonValue::Array& offsets = member.value.find("data_offsets")->items();
    TRIDENT_CHECK(offsets.size() == 2, "{}: data_offsets of {}", source, member.key);
    places.emplace_back(offsets[0].as_integer(), offsets[1].as_integer(), &member);
  }
  std::ranges::sort(places);
  TensorMap tensors;
  std::int64_t expected = 0;
  for (const auto& [begin, end, member] : places) {
    NamedTensor tensor;
    const auto* dtype =
        std::ranges::find(kDTypes, member->value.find("dtype")->as_string(), &std::pair<DType, std::string_view>::second);
    TRIDENT_CHECK(dtype != std::end(kDTypes), "{}: dtype of {}", source, member->key);
    tensor.dtype = dtype->first;
    for (const JsonValue& extent : member->value.find("shape")->items()) tensor.shape.push_back(extent.as_integer());
    TRIDENT_CHECK(begin == expected && end - begin == tensor.num_elements() * size_of(tensor.dtype) && end <= std::ssize(data),
                  "{}: {} lies at {} to {}, after {}, of {} bytes", source, member->key, begin, end, expected, data.size());
    const auto* first = reinterpret_cast<const std::byte*>(data.data());
    tensor.data.assign(first + begin, first + end);
    expected = end;
    tensors.emplace(member->key, std::move(tensor));
  }
  TRIDENT_CHECK(expected == std::ssize(data), "{}: {} bytes of tensors, {} of data", source, expected, data.size());
  return tensors;
}

TensorMap read_safetensors(const std::string& path) { return parse_safetensors(read_file(path), path); }

void write_safetensors(const std::string& path, const TensorMap& tensors) { write_file(path, to_safetensors(tensors)); }

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
    entry.set("dtype", std::string(kDTypes[rank_of(tensor.dtype)].second));
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

}  // namespace trident::test
