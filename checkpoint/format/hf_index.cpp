#include "checkpoint/format/hf_index.h"

#include <algorithm>

#include "checkpoint/format/manifest.h"
#include "core/check.h"
#include "core/json_reader.h"
#include "core/json_scanner.h"

namespace trident {
namespace {

constexpr std::size_t kMaxTensorName = 4096, kMaxFileName = 255, kMaxMetadataValues = std::size_t{1} << 16;
constexpr std::string_view kExtension = ".safetensors";
constexpr std::string_view kIndexRemedy = "the file is damaged or no index of safetensors files: copy it again";

[[noreturn]] void refuse_index(std::string_view source, std::string_view what) {
  throw DataError(fmt::format("{}: {}; {}", source, what, kIndexRemedy));
}

void check_file_name(std::string_view source, const std::string& tensor, const std::string& file) {
  const auto refuse_name = [&](std::string_view why) {
    throw DataError(
        fmt::format("{}: tensor {}: its file {} {}; expected the name of a file beside the index, such as "
                    "model-00001-of-00002.safetensors",
                    source, in_quotes(tensor), in_quotes(file), why));
  };
  if (file.empty() || file == "." || file == "..") refuse_name("is no file's name");
  if (file.find_first_of("/\\") != file.npos) refuse_name("has a path separator, which could lead out of the folder");
  if (file.find("..") != file.npos) refuse_name("has \"..\", which could lead out of the folder");
  if (std::ranges::any_of(file, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
    refuse_name("has a control character");
  if (file.size() > kMaxFileName) refuse_name(fmt::format("is longer than {} bytes", kMaxFileName));
  if (!file.ends_with(kExtension)) refuse_name("does not end with .safetensors");
}

std::optional<std::int64_t> size_of_member(const JsonValue& metadata, std::string_view key, std::string_view source) {
  const JsonValue* value = metadata.find(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  // Some writers have divided: 1234.0 is an integer there.
  const double number = value->is_number() ? value->as_number() : -1;
  if (value->is_integer() && value->as_integer() >= 0) return value->as_integer();
  constexpr double kLargestExact = 9007199254740992.0;
  if (number >= 0 && number <= kLargestExact && number == static_cast<double>(static_cast<std::int64_t>(number)))
    return static_cast<std::int64_t>(number);
  refuse_index(source, fmt::format("metadata.{} is no size", key));
}

void add_metadata(JsonScanner& scanner, std::string_view source, HfIndex* index) {
  std::size_t values_left = kMaxMetadataValues;
  const JsonValue metadata = scanner.value(values_left);
  if (metadata.is_null()) return;
  if (!metadata.is_object()) refuse_index(source, "metadata is not an object");
  index->total_bytes = size_of_member(metadata, "total_size", source);
  index->total_parameters = size_of_member(metadata, "total_parameters", source);
}

void add_files(JsonScanner& scanner, std::string_view source, HfIndex* index) {
  scanner.members([&](const std::string& tensor) {
    if (tensor.empty() || tensor.size() > kMaxTensorName)
      refuse_index(source, fmt::format("tensor {}: a name of {} bytes", in_quotes(tensor), tensor.size()));
    if (scanner.kind() != JsonValue::Kind::kString)
      refuse_index(source, fmt::format("tensor {}: its file is not a text", in_quotes(tensor)));
    if (index->files.size() == kMaxTensors) refuse_index(source, fmt::format("weight_map names more than {} tensors", kMaxTensors));
    std::string file = scanner.string();
    check_file_name(source, tensor, file);
    index->files.emplace_back(tensor, std::move(file));
  });
}

}  // namespace

HfIndex parse_hf_index(std::string_view text, std::string_view source) {
  constexpr JsonRules kRules{.comments = false,
                             .max_bytes = static_cast<std::size_t>(kMaxHfIndexBytes),
                             .max_depth = 16,
                             .blame = ExitCode::kData};
  JsonScanner scanner(text, source, kRules);
  if (scanner.kind() != JsonValue::Kind::kObject) refuse_index(source, "is not an object");
  HfIndex index;
  bool has_map = false;
  scanner.members([&](const std::string& key) {
    if (key == "metadata") add_metadata(scanner, source, &index);
    else if (key == "weight_map" && scanner.kind() == JsonValue::Kind::kObject) has_map = true, add_files(scanner, source, &index);
    else scanner.skip();
  });
  scanner.end();
  if (!has_map) refuse_index(source, "weight_map is missing, or not an object");
  if (index.files.empty()) refuse_index(source, "weight_map names no tensor");
  return index;
}

std::string to_text(const HfIndex& index) {
  JsonValue metadata{JsonValue::Object{}};
  if (index.total_parameters) metadata.set("total_parameters", *index.total_parameters);
  if (index.total_bytes) metadata.set("total_size", *index.total_bytes);
  std::vector<std::pair<std::string, std::string>> files = index.files;
  std::ranges::sort(files);
  JsonValue::Object map;
  for (auto& [tensor, file] : files) map.push_back({std::move(tensor), std::move(file)});
  return to_json_text(JsonValue::Object{{"metadata", std::move(metadata)}, {"weight_map", std::move(map)}}, 2) + "\n";
}

}  // namespace trident
