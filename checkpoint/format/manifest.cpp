#include "checkpoint/format/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <chrono>
#include <limits>
#include <span>
#include <unordered_set>

#include "checkpoint/format/safetensors.h"
#include "core/function_ref.h"
#include "core/json_scanner.h"

namespace trident {

namespace {

// The one list of a state's members, for writing and for reading.
template <class State, class Visitor>
void visit_members(State& s, Visitor&& v) {
  v("updates", s.updates), v("batches", s.batches), v("skipped", s.skipped), v("skipped_in_a_row", s.skipped_in_a_row);
  v("position", s.position), v("samples", s.samples), v("tokens", s.tokens), v("loss_scale", s.loss_scale);
  v("loss_scale_clean_steps", s.loss_scale_clean_steps), v("loss_scale_overflows_left", s.loss_scale_overflows_left);
  v("blend_start", s.blend_start), v("blend_taken", s.blend_taken), v("blend_now", s.blend_now);
  v("best_valid_loss", s.best_valid_loss), v("best_valid_step", s.best_valid_step), v("last_eval", s.last_eval);
}

}  // namespace

JsonValue to_json(const TrainingState& state) {
  TRIDENT_CHECK(std::isfinite(state.loss_scale), "loss scale {}", state.loss_scale);
  JsonValue json;
  visit_members(state, [&](std::string_view key, const auto& member) { json.set(key, member); });
  return json;
}

namespace {

JsonValue to_json(const ManifestTensor& tensor) {
  JsonValue json = JsonValue::Object{{"name", tensor.name}, {"shape", tensor.shape}};
  if (tensor.frozen) json.set("frozen", true);
  if (tensor.base) json.set("base", fmt::format("{:016x}", *tensor.base));
  return json;
}

JsonValue to_json(const ManifestFile& file) {
  JsonValue::Array runs;
  for (const TensorRun& run : file.runs) runs.push_back(JsonValue::Array{run.first, run.count, run.begin, run.end});
  return JsonValue::Object{{"path", file.path},
                           {"bytes", file.bytes},
                           {"table_bytes", file.table_bytes},
                           {"table", to_string(file.table)},
                           {"runs", std::move(runs)}};
}

// The way back; nothing of the text is believed.

constexpr std::string_view kHashBegin = ",\"hash\":\"", kHashEnd = "\"}\n";
constexpr std::size_t kTail = kHashBegin.size() + kHashDigits + kHashEnd.size();
constexpr std::size_t kMaxManifestName = 4096, kMaxManifestRank = 16, kMaxItemValues = 1024;
constexpr std::int64_t kSmallestTable = 8 + 2;
constexpr JsonRules kManifestRules{.comments = false,
                                   .max_bytes = static_cast<std::size_t>(kMaxManifestBytes),
                                   .blame = ExitCode::kData,
                                   .max_values = std::size_t{1} << 17};
constexpr std::string_view kManifestRemedy = "the checkpoint is damaged: use an older one, or copy it again";

[[noreturn]] void refuse_manifest(std::string_view source, std::string_view what) {
  throw DataError(fmt::format("{}: {}; {}", source, what, kManifestRemedy));
}

// Reads the members of one object. `where`: "state", "tensor \"name\"", ...; in messages.
class ObjectReader {
 public:
  ObjectReader(std::string_view source, std::string where, const JsonValue& object)
      : source_(source), where_(std::move(where)), object_(object) {
    if (!object.is_object()) fail("is not an object");
  }

  const JsonValue& member(std::string_view key) const {
    const JsonValue* value = object_.find(key);
    if (value == nullptr) fail(fmt::format("{} is missing", key));
    return *value;
  }
  std::int64_t integer(std::string_view key, std::int64_t smallest = 0) const {
    const JsonValue& value = member(key);
    if (!value.is_integer() || value.as_integer() < smallest)
      fail(fmt::format("{} is not an integer of at least {}", key, smallest));
    return value.as_integer();
  }
  double number(std::string_view key) const {
    const JsonValue& value = member(key);
    if (!value.is_number() || !std::isfinite(value.as_number())) fail(fmt::format("{} is not a number", key));
    return value.as_number();
  }
  bool truth(std::string_view key) const {
    const JsonValue& value = member(key);
    if (!value.is_bool()) fail(fmt::format("{} is neither true nor false", key));
    return value.as_bool();
  }
  const std::string& text(std::string_view key) const {
    const JsonValue& value = member(key);
    if (!value.is_string()) fail(fmt::format("{} is not a string", key));
    return value.as_string();
  }
  const JsonValue::Array& list(std::string_view key) const {
    const JsonValue& value = member(key);
    if (!value.is_array()) fail(fmt::format("{} is not a list", key));
    return value.items();
  }
  std::vector<std::int64_t> integers(std::string_view key) const {
    std::vector<std::int64_t> values;
    for (const JsonValue& item : list(key)) {
      if (!item.is_integer() || item.as_integer() < 0) fail(fmt::format("{} holds something that is not a count", key));
      values.push_back(item.as_integer());
    }
    return values;
  }
  // A count may be as small as what it is where nothing is counted.
  void read(std::string_view key, std::int64_t& out) const { out = integer(key, out); }
  void read(std::string_view key, double& out) const { out = number(key); }
  void read(std::string_view key, std::vector<std::int64_t>& out) const { out = integers(key); }
  void read(std::string_view key, std::optional<double>& out) const {
    if (!member(key).is_null()) out = number(key);
  }
  [[noreturn]] void fail(std::string_view what) const {
    if (where_.empty()) refuse_manifest(source_, what);
    refuse_manifest(source_, fmt::format("{}: {}", where_, what));
  }

 private:
  std::string_view source_;
  std::string where_;
  const JsonValue& object_;
};

TrainingState state_from(const ObjectReader& json) {
  TrainingState state;
  visit_members(state, [&](std::string_view key, auto& member) { json.read(key, member); });
  if (state.updates > state.batches) json.fail(fmt::format("{} updates of {} batches", state.updates, state.batches));
  if (state.skipped > state.batches || state.skipped_in_a_row > state.skipped)
    json.fail(fmt::format("of {} batches {} were skipped, {} in a row", state.batches, state.skipped, state.skipped_in_a_row));
  if (state.loss_scale <= 0) json.fail(fmt::format("loss_scale is {}", state.loss_scale));
  return state;
}

DType weights_from(const ObjectReader& json) {
  const std::string& name = json.text("weights");
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    if (safetensors_name(dtype) == name) return dtype;
  json.fail(fmt::format("weights are {}, there are F32, BF16 and F16", in_quotes(name)));
}

// A '/' would make the name of one tensor the key of another's state.
void check_name(const ObjectReader& json, std::string_view kind, const std::string& name) {
  if (name.empty() || name.size() > kMaxManifestName || name.find('/') != std::string::npos)
    json.fail(fmt::format("{} {}: no name", kind, in_quotes(name)));
}

std::vector<std::string> states_from(const ObjectReader& json) {
  std::vector<std::string> states;
  std::unordered_set<std::string_view> seen{"master"};  // taken
  for (const JsonValue& item : json.list("optimizer_states")) {
    if (!item.is_string()) json.fail("optimizer_states holds something that is not a string");
    check_name(json, "optimizer state", item.as_string());
    if (!seen.insert(item.as_string()).second) json.fail(fmt::format("optimizer state {} twice", in_quotes(item.as_string())));
    states.push_back(item.as_string());
  }
  return states;
}

ManifestTensor tensor_from(std::string_view source, std::size_t index, const JsonValue& item) {
  const ObjectReader unnamed(source, fmt::format("tensor {}", index), item);
  const std::string& name = unnamed.text("name");
  check_name(unnamed, "tensor", name);
  const ObjectReader json(source, fmt::format("tensor {}", in_quotes(name)), item);
  ManifestTensor tensor{name, json.integers("shape")};
  tensor.frozen = item.find("frozen") != nullptr && json.truth("frozen");
  if (item.find("base") != nullptr) {
    const std::string& digits = json.text("base");
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), tensor.base.emplace(), 16);
    if (error != std::errc{} || end != digits.data() + digits.size()) json.fail("base is not a hash");
    if (!tensor.frozen) json.fail("has a base, and is not frozen");
  }
  if (tensor.shape.size() > kMaxManifestRank) json.fail(fmt::format("more than {} dimensions", kMaxManifestRank));
  std::int64_t bytes = size_of(DType::kF32);
  for (const std::int64_t extent : tensor.shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) json.fail("the shape is too large");
  return tensor;
}

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > kMaxManifestName || path == "manifest.json") return false;
  for (;;) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (part.empty() || part == "." || part == "..") return false;
    for (const char c : part) {
      const bool letter_or_digit = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      if (!letter_or_digit && c != '.' && c != '_' && c != '-') return false;
    }
    if (part.size() == path.size()) return true;
    path.remove_prefix(part.size() + 1);
  }
}

struct ListText {
  std::string_view key, text;
};

// The members of the manifest, with an empty list for each of `lists`, which may hold more than memory has room for as values:
// their text goes there.
JsonValue members_but(std::string_view text, std::string_view source, std::span<ListText> lists) {
  JsonScanner scanner(text, source, kManifestRules);
  std::size_t values_left = kManifestRules.max_values;
  if (scanner.kind() != JsonValue::Kind::kObject) return scanner.value(values_left);
  JsonValue::Object members;
  scanner.members([&](const std::string& key) {
    const auto list = std::ranges::find(lists, key, &ListText::key);
    const bool is_left_out = list != lists.end() && scanner.kind() == JsonValue::Kind::kArray;
    if (is_left_out) list->text = scanner.skip();
    members.push_back({key, is_left_out ? JsonValue(JsonValue::Array()) : scanner.value(values_left)});
  });
  scanner.end();
  return members;
}

void for_each_item(const ListText& list, std::string_view source, FunctionRef<void(const JsonValue&)> item) {
  const std::string where = fmt::format("{}: {}", source, list.key);
  JsonScanner scanner(list.text, where, kManifestRules);
  scanner.items([&] {
    std::size_t values_left = kMaxItemValues;
    item(scanner.value(values_left));
  });
}

TensorRun run_from(const ObjectReader& file, const JsonValue& item, std::int64_t num_tensors) {
  std::vector<std::int64_t> numbers;
  if (item.is_array())
    for (const JsonValue& number : item.items()) numbers.push_back(number.is_integer() ? number.as_integer() : -1);
  if (numbers.size() != 4) file.fail("a run is not [first, count, begin, end]");
  const std::int64_t first = numbers[0], count = numbers[1], begin = numbers[2], end = numbers[3];
  if (first < 0 || count < 1 || first > num_tensors || count > num_tensors - first)
    file.fail(fmt::format("a run of {} tensors from {} on, there are {}", count, first, num_tensors));
  if (begin < 0 || begin >= end || end > kTensorParts)
    file.fail(fmt::format("a run of parts {} to {}, there are {}", begin, end, kTensorParts));
  return {first, count, static_cast<int>(begin), static_cast<int>(end)};
}

ManifestFile file_from(std::string_view source, std::size_t index, const JsonValue& item, std::int64_t num_tensors) {
  const ObjectReader unnamed(source, fmt::format("file {}", index), item);
  const std::string& path = unnamed.text("path");
  if (!is_safe_path(path))
    unnamed.fail(fmt::format("path {} leaves the checkpoint, or has characters that no file of it has", in_quotes(path)));
  const ObjectReader json(source, fmt::format("file {}", path), item);
  ManifestFile file{path, json.integer("bytes"), json.integer("table_bytes", kSmallestTable), {}, {}};
  if (file.table_bytes > file.bytes || file.table_bytes > 8 + kMaxSafetensorsHeader)
    json.fail(fmt::format("{} bytes, of which the table has {}", file.bytes, file.table_bytes));
  const std::optional<Hash128> table = hash_from(json.text("table"));
  if (!table) json.fail("table is not a hash");
  file.table = *table;
  const JsonValue::Array& runs = json.list("runs");
  // A writer that finds no neighbours to join has a run for each tensor.
  if (runs.size() > kMaxTensors) json.fail(fmt::format("{} runs, there are at most {}", runs.size(), kMaxTensors));
  for (const JsonValue& run : runs) file.runs.push_back(run_from(json, run, num_tensors));
  return file;
}

template <class Item>
void refuse_twice(const ObjectReader& root, std::string_view kind, const std::vector<Item>& items, std::string Item::* name) {
  std::vector<std::string_view> names;
  names.reserve(items.size());
  for (const Item& item : items) names.push_back(item.*name);
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end())
    root.fail(fmt::format("{} {} twice", kind, in_quotes(*twice)));
}

// The text before the hash, which must be right.
void check_hash(std::string_view text, std::string_view source) {
  const std::string_view tail = text.size() < kTail ? std::string_view() : text.substr(text.size() - kTail);
  if (!tail.starts_with(kHashBegin) || !tail.ends_with(kHashEnd))
    refuse_manifest(source, "does not end with its hash: no manifest, or truncated");
  const std::string_view digits = tail.substr(kHashBegin.size(), kHashDigits);
  const Hash128 found = hash128(text.substr(0, text.size() - kTail));
  if (hash_from(digits) != found)
    refuse_manifest(source, fmt::format("its text has the hash {}, it says {}", to_string(found), in_quotes(digits)));
}

void check_version(const ObjectReader& root, std::string_view source) {
  if (root.text("format") != "trident-checkpoint") root.fail(fmt::format("format is {}", in_quotes(root.text("format"))));
  const std::int64_t version = root.integer("version", 1), needed = root.integer("min_reader_version", 1);
  if (needed > version) root.fail(fmt::format("version {} for readers from {} on", version, needed));
  if (needed > Manifest::kVersion)
    throw NewerFormat(
        fmt::format("{}: format {}, which readers of format {} and later understand, this is one of {}; use a newer trident",
                    source, version, needed, Manifest::kVersion));
}

}  // namespace

std::int64_t total_bytes(const Manifest& manifest) {
  std::int64_t bytes = 0;
  for (const ManifestFile& file : manifest.files) bytes += file.bytes;
  return bytes;
}

std::int64_t written_now() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(since_1970).count());
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return to_json_text(shape);
}

std::string to_text(const Manifest& manifest) {
  JsonValue::Array tensors, files;
  for (const ManifestTensor& tensor : manifest.tensors) tensors.push_back(to_json(tensor));
  for (const ManifestFile& file : manifest.files) files.push_back(to_json(file));
  JsonValue root;
  root.set("format", "trident-checkpoint");
  const int version = manifest.base.empty() ? 1 : Manifest::kVersion;
  root.set("version", version);
  root.set("min_reader_version", version);
  root.set("state", to_json(manifest.state));
  root.set("weights", safetensors_name(manifest.weights));
  root.set("complete", manifest.complete);
  root.set("optimizer_states", manifest.optimizer_states);
  if (!manifest.base.empty()) root.set("base", manifest.base);
  root.set("tensors", std::move(tensors));
  root.set("files", std::move(files));
  root.set("generation", manifest.generation);
  root.set("written_unix", manifest.written_unix);
  root.set("config", manifest.config);
  root.set("data", manifest.data);
  root.set("writer", manifest.writer);
  std::string text = to_json_text(root);
  text.pop_back();  // the brace, which comes behind the hash
  const std::string hash = to_string(hash128(text));
  return text + ",\"hash\":\"" + hash + "\"}\n";
}

Manifest parse_manifest(std::string_view text, std::string_view source) {
  check_hash(text, source);
  std::array<ListText, 2> lists{{{"tensors", {}}, {"files", {}}}};
  const JsonValue json = members_but(text, source, lists);
  const ObjectReader root(source, "", json);
  check_version(root, source);

  Manifest manifest;
  manifest.state = state_from({source, "state", root.member("state")});
  manifest.weights = weights_from(root);
  manifest.complete = root.truth("complete");
  manifest.optimizer_states = states_from(root);
  root.list("tensors");
  for_each_item(lists[0], source, [&](const JsonValue& item) {
    if (manifest.tensors.size() == kMaxTensors) root.fail(fmt::format("more than {} tensors", kMaxTensors));
    manifest.tensors.push_back(tensor_from(source, manifest.tensors.size(), item));
  });
  refuse_twice(root, "tensor", manifest.tensors, &ManifestTensor::name);
  if (json.find("base") != nullptr) manifest.base = root.text("base");
  if (manifest.base.empty() &&
      std::ranges::any_of(manifest.tensors, [](const ManifestTensor& tensor) { return tensor.base.has_value(); }))
    root.fail("base is missing, and tensors lie there");
  const std::int64_t num_tensors = std::ssize(manifest.tensors);
  root.list("files");
  std::int64_t countable = std::numeric_limits<std::int64_t>::max();  // bytes that further files may have
  for_each_item(lists[1], source, [&](const JsonValue& item) {
    const ManifestFile& file = manifest.files.emplace_back(file_from(source, manifest.files.size(), item, num_tensors));
    if (file.bytes > countable)
      root.fail(fmt::format("file {}: {} bytes, more than all files together can have", file.path, file.bytes));
    countable -= file.bytes;
  });
  refuse_twice(root, "file", manifest.files, &ManifestFile::path);
  manifest.generation = root.text("generation");
  manifest.written_unix = root.integer("written_unix");
  manifest.config = root.member("config");
  manifest.data = root.member("data");
  manifest.writer = root.member("writer");
  return manifest;
}

}  // namespace trident
