#include "device/cuda/cublaslt_choices.h"

#include <array>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/file_io.h"
#include "core/int_math.h"
#include "core/json_reader.h"

namespace trident {

namespace {

constexpr std::int64_t kFormat = 1;
constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;
constexpr std::size_t kHexDigits = 2 * sizeof(cublasLtMatmulAlgo_t);

std::string to_hex(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}

// The inverse; `text` was checked.
cublasLtMatmulAlgo_t from_hex(const std::string& text) {
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t at = 0;
  for (std::uint64_t& word : algorithm.data) word = std::stoull(text.substr(at, 16), nullptr, 16), at += 16;
  return algorithm;
}

// Complaints about one file.
class FileReader {
 public:
  explicit FileReader(const std::string& path) : path_(path) {}

  [[noreturn]] void refuse(const JsonValue& at, std::string_view what) const {
    throw ConfigError(
        fmt::format("{}:{}:{}: {}; delete the file, and the next run makes it anew", path_, at.line(), at.column(), what));
  }
  const JsonValue& member(const JsonValue& object, std::string_view key, JsonValue::Kind kind) const {
    const JsonValue* value = object.find(key);
    if (value == nullptr || !(value->kind() == kind || (kind == JsonValue::Kind::kNumber && value->is_number())))
      refuse(object, fmt::format("\"{}\" must be {}", key, describe(kind)));
    return *value;
  }

 private:
  const std::string& path_;
};

// Other processes and threads hold it for milliseconds.
AppendFile lock(const std::string& path) {
  constexpr int kTries = 200;
  for (int i = 1;; ++i) {
    try {
      return AppendFile(path, AppendFile::Start::kAppend);
    } catch (const StorageError&) {
      if (i == kTries || !file_exists(path)) throw;  // held too long; cannot be made
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

}  // namespace

AlgorithmChoices::AlgorithmChoices(std::string path, std::string device_name, std::size_t library_version)
    : path_(std::move(path)), device_name_(std::move(device_name)), library_version_(checked_cast<std::int64_t>(library_version)) {
  choices_ = read();
}

AlgorithmChoices::Choices AlgorithmChoices::read() const {
  Choices choices;
  if (!file_exists(path_)) return choices;
  const JsonValue root = read_json_file(path_, {.comments = false, .max_bytes = kMaxFileBytes, .max_depth = 8});
  const FileReader file(path_);
  using Kind = JsonValue::Kind;
  if (!root.is_object()) file.refuse(root, "not a file of matrix product algorithms");
  if (const std::int64_t format = file.member(root, "format", Kind::kInteger).as_integer(); format != kFormat)
    file.refuse(root, fmt::format("format {}, this program reads format {}", format, kFormat));
  for (const JsonValue& item : file.member(root, "choices", Kind::kArray).items()) {
    Key key{file.member(item, "device", Kind::kString).as_string(), file.member(item, "library", Kind::kInteger).as_integer(),
            file.member(item, "product", Kind::kString).as_string()};
    Choice choice{file.member(item, "algorithm", Kind::kString).as_string(),
                  file.member(item, "microseconds", Kind::kNumber).as_number()};
    if (choice.algorithm.size() != kHexDigits || choice.algorithm.find_first_not_of("0123456789abcdef") != std::string::npos)
      file.refuse(item, fmt::format("\"algorithm\" must be {} hexadecimal digits", kHexDigits));
    choices.insert_or_assign(std::move(key), std::move(choice));
  }
  return choices;
}

void AlgorithmChoices::write() const {
  JsonValue::Array items;
  for (const auto& [key, choice] : choices_) {
    JsonValue item;
    item.set("device", key.device);
    item.set("library", key.library);
    item.set("product", key.product);
    item.set("algorithm", choice.algorithm);
    item.set("microseconds", choice.microseconds);
    items.push_back(std::move(item));
  }
  JsonValue root;
  root.set("format", kFormat);
  root.set("choices", std::move(items));
  write_file(path_, to_json_text(root, 2) + "\n");
}

std::optional<Algorithm> AlgorithmChoices::find(const std::string& product) const {
  const auto found = choices_.find({device_name_, library_version_, product});
  if (found == choices_.end()) return std::nullopt;
  return Algorithm{from_hex(found->second.algorithm), 0};
}

void AlgorithmChoices::add(const std::string& product, const Algorithm& algorithm, double seconds) {
  TRIDENT_CHECK(std::isfinite(seconds), "{} took {} s", product, seconds);
  const AppendFile held = lock(path_ + ".lock");
  choices_.merge(read());
  choices_.insert_or_assign({device_name_, library_version_, product}, Choice{to_hex(algorithm.data), seconds * 1e6});
  write();
}

}  // namespace trident
