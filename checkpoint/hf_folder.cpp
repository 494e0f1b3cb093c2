#include "checkpoint/hf_folder.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/format/safetensors.h"
#include "core/fnv1a.h"
#include "core/printable.h"

namespace trident {
namespace {

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kCompareBytes = std::int64_t{1} << 20;

constexpr std::size_t kShownDType = 80;

bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

}  // namespace

std::int64_t added_rows(const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to) {
  const bool are_matrices = from.size() == 2 && to.size() == 2 && from[1] == to[1];
  return are_matrices ? std::max<std::int64_t>(0, to[0] - from[0]) : 0;
}

std::vector<ManifestTensor> tensors_of_hf(const ModelConfig& model) {
  std::vector<ManifestTensor> tensors;
  for (HfTensor& tensor : hf_tensors(model)) tensors.push_back({std::move(tensor.name), std::move(tensor.shape)});
  return tensors;
}

bool is_hf_folder(const std::string& folder) {
  if (is_there(folder + "/" + std::string(kManifestName)) || !file_exists(folder + "/config.json")) return false;
  return is_there(folder + "/" + std::string(kHfWeightsName)) || is_there(folder + "/" + std::string(kHfIndexName));
}

HfFolder::HfFolder(std::string folder, std::span<const ManifestTensor> expected, const HfMeanings& meanings,
                   const HfFiles& files)
    : folder_(std::move(folder)) {
  read_headers(files);
  fit(expected, meanings, files);
}

void HfFolder::read_headers(const HfFiles& files) {
  const std::string index_path = folder_ + "/" + std::string(files.index);
  if (!is_there(index_path)) {
    if (!is_there(folder_ + "/" + std::string(files.weights)))
      throw DataError(fmt::format("{}: has neither {} nor {}; expected a folder with safetensors files", folder_, files.weights,
                                  files.index));
    add_file(std::string(files.weights));
    return;
  }
  has_index_ = true;
  const RandomAccessFile file(index_path);
  if (file.size() > kMaxHfIndexBytes)
    throw DataError(fmt::format("{}: {} bytes, expected at most {}; it is no index", index_path, file.size(), kMaxHfIndexBytes));
  const HfIndex index = parse_hf_index(file.text(0, file.size()), index_path);

  std::map<std::string, std::string> named;  // file, one of its tensors
  for (const auto& [tensor, name] : index.files) named.emplace(name, tensor);
  for (const auto& [name, tensor] : named) {
    if (!is_there(folder_ + "/" + name))
      throw DataError(fmt::format("{}: tensor {}: its file {} is not there; copy the folder again", index_path, in_quotes(tensor),
                                  in_quotes(name)));
    add_file(name);
  }
  for (const auto& [tensor, name] : index.files) {
    const auto found = index_.find(tensor);
    if (found != index_.end() && files_[tensors_[found->second].file] == name) continue;
    throw DataError(fmt::format("{}/{}: has no tensor {}, and {} says it has; copy the folder again", folder_, name,
                                in_quotes(tensor), files.index));
  }
  if (index.files.size() == tensors_.size()) return;
  std::unordered_set<std::string_view> listed;
  for (const auto& [tensor, name] : index.files) listed.insert(tensor);
  for (const HfFileTensor& tensor : tensors_)
    if (!listed.contains(tensor.name))
      throw DataError(fmt::format("{}: has tensor {}, which {} does not name; copy the folder again", path(tensor.file),
                                  in_quotes(tensor.name), files.index));
}

namespace {

// The JSON text of a file's header.
std::string read_header(const RandomAccessFile& file) {
  const std::string first = file.text(0, std::min(kLengthBytes, file.size()));
  return file.text(kLengthBytes, safetensors_header_bytes(first, file.size(), file.path()));
}

std::uint64_t hash_of(const RandomAccessFile& file, std::string_view header) {
  Fnv1a hash;
  hash.add(static_cast<std::uint64_t>(file.size()));
  hash.add(header);
  return hash.value();
}

}  // namespace

void HfFolder::check_unchanged(std::size_t file, const RandomAccessFile& opened) const {
  if (hash_of(opened, read_header(opened)) == headers_[file]) return;
  throw DataError(fmt::format("{}: it was replaced while the run started; leave files alone that a run reads, and start again",
                              opened.path()));
}

void HfFolder::add_file(const std::string& name) {
  const std::size_t number = files_.size();
  files_.push_back(name);
  const RandomAccessFile file(path(number));
  const std::string json = read_header(file);
  headers_.push_back(hash_of(file, json));
  const std::int64_t data = kLengthBytes + std::ssize(json);
  SafetensorsHeader header = parse_safetensors_header(json, file.size() - data, file.path());
  if (const std::string* format = header.find_metadata("format"); format != nullptr && *format != "pt")
    throw DataError(fmt::format("{}: its metadata say format {}, expected \"pt\"; other frameworks lay tensors out otherwise",
                                file.path(), in_quotes(*format)));
  metadata_.insert(header.metadata.begin(), header.metadata.end());
  if (header.entries.size() > kMaxTensors - tensors_.size())
    throw DataError(
        fmt::format("{}: more than {} tensors up to here; no model that can be trained has as many", file.path(), kMaxTensors));
  for (SafetensorsEntry& entry : header.entries) {
    const auto [at, is_new] = index_.emplace(entry.name, tensors_.size());
    if (!is_new)
      throw DataError(fmt::format("{}: has tensor {}, which {} has, too; copy the folder again", file.path(), in_quotes(entry.name),
                                  path(tensors_[at->second].file)));
    tensors_.push_back({std::move(entry.name), std::move(entry.shape), entry.dtype, number, data + entry.begin,
                        entry.end - entry.begin, std::move(entry.other_dtype)});
  }
}

void HfFolder::fit(std::span<const ManifestTensor> expected, const HfMeanings& meanings, const HfFiles& files) {
  const auto refuse_unknown = [&](const HfFileTensor& tensor) {
    throw DataError(fmt::format("{}: has tensor {}, which the model of {} does not have; expected its {} tensors alone",
                                path(tensor.file), in_quotes(tensor.name), files.says, expected.size()));
  };
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const HfFileTensor& tensor = tensors_[t];
    const HfName meaning = meanings(tensor.name);
    if (meaning.kind == HfNameKind::kUnknown) refuse_unknown(tensor);
    if (meaning.kind != HfNameKind::kTensor) continue;
    const auto [at, is_new] = fitted_.emplace(meaning.tensor, t);
    if (!is_new)
      throw DataError(fmt::format("{}: has tensor {}, which is {} of {} again; copy the folder again", path(tensor.file),
                                  in_quotes(tensor.name), in_quotes(tensors_[at->second].name), path(tensors_[at->second].file)));
  }
  for (const std::string& name : files.by_token)
    if (const auto found = fitted_.find(name); found != fitted_.end()) tensors_[found->second].by_token = true;
  for (const ManifestTensor& tensor : expected) {
    const HfFileTensor* const found = find(tensor.name);
    if (found == nullptr)
      throw DataError(fmt::format("{}: has no tensor {}, expected one of shape {} by {}; copy the folder again",
                                  has_index_ ? folder_ : path(0), in_quotes(tensor.name), shape_text(tensor.shape), files.says));
    check(tensor, *found, files);
  }
  for (const ManifestTensor& tensor : files.optional)
    if (const HfFileTensor* const found = find(tensor.name)) check(tensor, *found, files);
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const HfName meaning = meanings(tensors_[t].name);
    if (meaning.kind != HfNameKind::kTiedHead) continue;
    const auto original = fitted_.find(meaning.tensor);
    if (original == fitted_.end()) refuse_unknown(tensors_[t]);
    tied_copies_.emplace_back(t, original->second);
  }
}

void HfFolder::check(const ManifestTensor& expected, const HfFileTensor& found, const HfFiles& files) const {
  const bool has_others = files.may_have_other_tokens && found.by_token &&
                          added_rows(expected.shape, found.shape) + added_rows(found.shape, expected.shape) > 0;
  if (found.shape != expected.shape && !has_others) {
    const std::string wrong = fmt::format("{}: tensor {} has the shape {}, expected {} by {}; ", path(found.file),
                                          in_quotes(found.name), shape_text(found.shape), shape_text(expected.shape), files.says);
    if (files.wrong_shape == ExitCode::kConfig) throw ConfigError(wrong + "it belongs to another model");
    throw DataError(wrong + "copy the folder again");
  }
  if (!found.other_dtype.empty() || !is_float(found.dtype))
    throw DataError(fmt::format("{}: tensor {} is {}, expected F32, BF16 or F16; save the model in one of them", path(found.file),
                                in_quotes(found.name),
                                found.other_dtype.empty() ? safetensors_name(found.dtype)
                                                          : on_one_line(found.other_dtype.substr(0, kShownDType))));
}

void HfFolder::check_tied_copies() const {
  for (const auto& [copy, original] : tied_copies_) {
    const HfFileTensor &head = tensors_[copy], &embedding = tensors_[original];
    const auto refuse = [&](std::string_view what) {
      throw DataError(
          fmt::format("{}: tensor {} {} {}, and tie_word_embeddings of config.json says that they are one; expected equal "
                      "values, or tie_word_embeddings false",
                      path(head.file), in_quotes(head.name), what, in_quotes(embedding.name)));
    };
    if (head.shape != embedding.shape || head.dtype != embedding.dtype || !head.other_dtype.empty())
      refuse("has another shape or dtype than");
    const RandomAccessFile a(path(head.file)), b(path(embedding.file));
    std::vector<std::byte> of_a(static_cast<std::size_t>(kCompareBytes)), of_b(of_a.size());
    for (std::int64_t at = 0; at < head.bytes; at += kCompareBytes) {
      const auto count = static_cast<std::size_t>(std::min(kCompareBytes, head.bytes - at));
      a.read(head.begin + at, std::span(of_a).first(count));
      b.read(embedding.begin + at, std::span(of_b).first(count));
      if (!std::ranges::equal(std::span(of_a).first(count), std::span(of_b).first(count))) refuse("has other values than");
    }
  }
}

const HfFileTensor* HfFolder::find(std::string_view name) const {
  const auto found = fitted_.find(std::string(name));
  return found == fitted_.end() ? nullptr : &tensors_[found->second];
}

DType HfFolder::common_dtype() const {
  std::optional<DType> common;
  for (const auto& [name, tensor] : fitted_) {
    if (common.value_or(tensors_[tensor].dtype) != tensors_[tensor].dtype) return DType::kF32;
    common = tensors_[tensor].dtype;
  }
  return common.value_or(DType::kF32);
}

}  // namespace trident
