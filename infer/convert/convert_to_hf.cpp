#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "checkpoint/block_stream.h"
#include "checkpoint/box_copy.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/format/hf_index.h"
#include "checkpoint/format/safetensors.h"
#include "core/adapter_spec.h"
#include "core/check.h"
#include "core/foreign_folder.h"
#include "infer/convert/side_files.h"
#include "infer/convert/convert.h"
#include "infer/convert/output_folder.h"
#include "infer/convert/value_check.h"
#include "model/config/hf_config_writer.h"
#include "train/config/train_config.h"
#include "train/run/model_tokenizer.h"
#include "train/run/resume.h"
#include "train/run/weights_source.h"

namespace trident {
namespace {

constexpr std::int64_t kDefaultShardBytes = 5'000'000'000;
constexpr std::int64_t kRowsBytes = std::int64_t{8} << 20;  // that are read at a time
constexpr std::string_view kConfigName = "config.json", kGenerationName = "generation_config.json";

struct OutputFile {
  std::string name;
  std::vector<std::size_t> tensors;  // in the order of the file
};

// The one file, or "model-00001-of-00003.safetensors".
std::string file_name(std::size_t number, std::size_t count) {
  if (count == 1) return std::string(kHfWeightsName);
  return fmt::format("model-{:05}-of-{:05}.safetensors", number + 1, count);
}

// Cuts the files as the index does; nothing where it names other tensors.
std::optional<std::vector<OutputFile>> files_of_index(const HfIndex& index, const std::vector<std::string>& names) {
  std::map<std::string, std::size_t> numbers;
  for (std::size_t t = 0; t < names.size(); ++t) numbers.emplace(names[t], t);
  std::map<std::string, OutputFile> files;
  std::size_t found = 0;
  for (const auto& [tensor, name] : index.files) {
    const auto number = numbers.find(tensor);
    if (number == numbers.end()) return std::nullopt;
    files[name].name = name;
    files[name].tensors.push_back(number->second);
    ++found;
  }
  if (found != names.size()) return std::nullopt;
  std::vector<OutputFile> list;
  for (auto& [name, file] : files) list.push_back(std::move(file));
  return list;
}

// f(box) of all of a tensor's elements, rows at a time; elements of vectors count as such.
template <class F>
void each_rows(const ManifestTensor& tensor, DType stored, F&& f) {
  const TensorBox all = whole(tensor.shape);
  if (all.elements() == 0) return;
  const std::int64_t rows = tensor.shape.empty() ? 1 : tensor.shape.front(), columns = all.elements() / rows;
  const std::int64_t at_once = std::max<std::int64_t>(1, kRowsBytes / (columns * size_of(stored)));
  for (std::int64_t row = 0; row < rows; row += at_once) {
    ShardBox box;
    box.rows = std::min(at_once, rows - row);
    box.columns = columns;
    box.tensor = tensor.name;
    box.tensor_shape = tensor.shape;
    box.box = all;
    if (!tensor.shape.empty()) box.box.offset[0] = row, box.box.shape[0] = box.rows;
    f(box);
  }
}

class Exporter {
 public:
  // `checkpoint`: the one whose base and adapters `source` has; null: `source` itself.
  Exporter(WeightsSource source, const ExportOptions& options, const OnProgress& progress,
           const WeightsSource* checkpoint = nullptr)
      : source_(std::move(source)),
        says_base_(checkpoint != nullptr ? *checkpoint : source_),
        model_(model_of(source_)),
        tensors_(tensors_of_hf(model_)),
        is_dtype_given_(options.dtype.has_value()),
        dtype_(options.dtype.value_or(source_.hf != nullptr ? source_.hf->common_dtype() : source_.manifest.weights)),
        carried_(source_.hf != nullptr ? source_.folder : source_.folder + "/" + std::string(kCarriedFolder)),
        progress_(progress) {
    if (source_.hf != nullptr) {
      for (const ManifestTensor& tensor : tensors_) names_.push_back(source_.hf->find(tensor.name)->name);
    } else {
      open_checkpoint();
    }
    reader_.emplace(source_);
    for (const ManifestTensor& tensor : tensors_) all_bytes_ += whole(tensor.shape).elements() * size_of(dtype_);
    cut(options.shard_bytes);
  }

  void open_checkpoint() {
    const Manifest& manifest = source_.manifest;
    exact_ = dtype_ != manifest.weights;
    stored_ = exact_ ? DType::kF32 : manifest.weights;
    const std::size_t stored = without_adapters(manifest.tensors).size();
    if (stored != tensors_.size())
      throw DataError(fmt::format("{}: has {} tensors, expected {} by its configuration; use another checkpoint", source_.folder,
                                  stored, tensors_.size()));
    const std::string prefix = manifest.writer.text_at(kLeftOutOfNames);
    for (const ManifestTensor& tensor : tensors_)
      names_.push_back(tensor.name.starts_with(prefix) ? tensor.name.substr(prefix.size()) : tensor.name);
  }

  ConvertReport write(const std::string& to) {
    OutputFolder out(to);
    ConvertReport report{std::ssize(tensors_), all_bytes_, dtype_, source_.folder};
    if (model_.attention_softcap > 0 || model_.logit_softcap > 0)
      report.warnings.push_back(fmt::format("config.json bounds scores or logits (attn_logit_softcapping = {}, "
                                            "final_logit_softcapping = {}), and transformers ignores these keys in models of "
                                            "type {}: its numbers are those of a model without bounds",
                                            model_.attention_softcap, model_.logit_softcap, to_string(model_.family)));
    for (OutputFile& file : files_) {
      // As the reference writer orders tensors of one dtype.
      std::ranges::sort(file.tensors, {}, [&](std::size_t t) { return names_[t]; });
      write_weights(out.path() + "/" + file.name, file.tensors);
      report.weight_files.push_back(file.name);
    }
    if (has_index_) write_file(out.path() + "/" + std::string(kHfIndexName), index_text());
    write_file(out.path() + "/" + std::string(kConfigName), config_text());
    carry(out.path(), report.warnings);
    for (const std::string& name : side_files(out.path())) report.other_files.push_back(name);
    check_base(says_base_, hashes_, tensors_);
    out.commit();
    const std::vector<std::string> of_values = check_.warnings();
    for (const std::vector<std::string>& more : {reader_->notes(), of_values})
      report.warnings.insert(report.warnings.end(), more.begin(), more.end());
    return report;
  }

 private:
  std::int64_t bytes_of(std::size_t t) const { return whole(tensors_[t].shape).elements() * size_of(dtype_); }

  // The folder that the checkpoint was made from, if any, says how files are cut.
  void cut(std::optional<std::int64_t> limit) {
    const std::string index = carried_ + "/" + std::string(kHfIndexName);
    const bool was_folder = file_exists(carried_ + "/" + std::string(kConfigName));
    if (!limit && file_exists(index)) {
      if (auto files = files_of_index(parse_hf_index(read_file(index), index), names_)) {
        files_ = std::move(*files);
        has_index_ = true;
        return;
      }
    }
    std::vector<std::int64_t> bytes;
    for (std::size_t t = 0; t < tensors_.size(); ++t) bytes.push_back(bytes_of(t));
    const std::int64_t usual = was_folder && !file_exists(index) ? std::max<std::int64_t>(1, all_bytes_) : kDefaultShardBytes;
    const std::vector<std::vector<std::size_t>> parts = split_into_files(bytes, limit.value_or(usual));
    for (std::size_t p = 0; p < parts.size(); ++p) files_.push_back({file_name(p, parts.size()), parts[p]});
    has_index_ = files_.size() > 1;
  }

  void write_weights(const std::string& path, const std::vector<std::size_t>& tensors) {
    SafetensorsHeader header;
    header.metadata = {{"format", "pt"}};
    std::int64_t end = 0;
    for (const std::size_t t : tensors) {
      header.entries.push_back({names_[t], dtype_, tensors_[t].shape, end, end + bytes_of(t)});
      end += bytes_of(t);
    }
    const std::string text = to_text(header);
    BlockFile out(path, std::ssize(text) + end);
    BlockStream stream(out, 0);
    stream.append(std::as_bytes(std::span(text)));
    for (const std::size_t t : tensors) copy(tensors_[t], stream);
    stream.finish();
    out.finish();
  }

  void copy(const ManifestTensor& tensor, BlockStream& stream) {
    std::int64_t first = 0;
    each_rows(tensor, stored_, [&](const ShardBox& box) {
      const std::int64_t n = box.elements();
      values_.resize(static_cast<std::size_t>(n * size_of(stored_)));
      using Values = WeightsReader::Values;
      reader_->read(exact_ ? Values::kExact : Values::kStored, box, TensorView(values_.data(), stored_, {n}), {},
                    Narrowing::kRefused,
                    source_.adapter != nullptr || reader_->leaves_in_base(tensor.name) ? &hashes_[tensor.name] : nullptr);
      const std::byte* out = values_.data();
      if (stored_ != dtype_) {
        converted_.resize(static_cast<std::size_t>(n * size_of(dtype_)));
        convert_values(values_.data(), stored_, converted_.data(), dtype_, n);
        out = converted_.data();
      }
      check_.look({source_.folder, tensor.name}, tensor.shape, first, values_.data(), stored_, out, dtype_, n);
      first += n;
      stream.append({out, static_cast<std::size_t>(n * size_of(dtype_))});
      done_ += n * size_of(dtype_);
      if (progress_) progress_(done_, all_bytes_);
    });
  }

  std::string index_text() const {
    HfIndex index;
    index.total_bytes = all_bytes_;
    index.total_parameters = all_bytes_ / size_of(dtype_);
    for (const OutputFile& file : files_)
      for (const std::size_t t : file.tensors) index.files.emplace_back(names_[t], file.name);
    // Writers put more, or less, beside the map: their text, where it says the same.
    const std::string carried = carried_ + "/" + std::string(kHfIndexName);
    if (file_exists(carried)) {
      std::string text = read_file(carried);
      HfIndex before = parse_hf_index(text, carried);
      std::ranges::sort(before.files);
      std::ranges::sort(index.files);
      if (before.files == index.files && before.total_bytes == index.total_bytes) return text;
    }
    return to_text(index);
  }

  std::string config_text() const {
    if (const std::string path = carried_ + "/" + std::string(kConfigName); file_exists(path)) {
      std::string text = read_file(path);
      JsonValue json = read_json_file(path);
      if (!model_difference(model_of_hf(carried_), model_) && model_of_hf(carried_).max_positions == model_.max_positions) {
        const JsonValue* stated = json.find("dtype") != nullptr ? json.find("dtype") : json.find("torch_dtype");
        if (stated == nullptr || *stated == JsonValue(hf_dtype_name(dtype_))) return text;
        json.set("torch_dtype", hf_dtype_name(dtype_));
        json.set("dtype", hf_dtype_name(dtype_));
        return to_json_text(json, 2) + "\n";
      }
    }
    JsonValue json = hf_config_json(model_, dtype_);
    for (const JsonMember& id : special_ids()) json.set(id.key, id.value);
    return to_json_text(json, 2) + "\n";
  }

  // Ids of special tokens that the model's keys name.
  JsonValue::Object special_ids() const {
    JsonValue::Object ids;
    for (const std::string_view key : {"bos_token_id", "eos_token_id", "pad_token_id"})
      if (const JsonValue* id = source_.manifest.config.get("model").find(key)) ids.push_back({std::string(key), *id});
    return ids;
  }

  // Generation stops at the ends that were trained. config.json has one, and generation_config.json may have several. Without
  // `replaces` a file keeps the end that it names.
  static void write_ends(const std::string& to, const std::vector<std::int32_t>& ends, bool replaces) {
    if (ends.empty()) return;
    const auto write = [&](std::string_view name, const JsonValue& value) {
      const std::string path = fmt::format("{}/{}", to, name);
      if (!file_exists(path)) return;
      JsonValue json = read_json_file(path);
      if (!replaces && json.find("eos_token_id") != nullptr) return;
      json.set("eos_token_id", value);
      write_file(path, to_json_text(json, 2) + "\n");
    };
    write(kConfigName, ends.front());
    write(kGenerationName, JsonValue(ends));
  }

  // `folder`: that training began with.
  void say_if_narrower(const std::string& folder, std::vector<std::string>& warnings) const {
    const std::string path = folder + "/" + std::string(kConfigName);
    const bool has_masters = source_.manifest.complete && dtype_ != DType::kF32;
    if (is_dtype_given_ || !has_masters || !file_exists(path)) return;
    JsonValue json;
    try {
      json = read_json_file(path);
    } catch (const Error&) {  // it is read for this warning alone
      return;
    }
    const JsonValue* const stated = json.find("dtype") != nullptr ? json.find("dtype") : json.find("torch_dtype");
    if (stated != nullptr && *stated == JsonValue(hf_dtype_name(DType::kF32)))
      warnings.push_back(fmt::format("training began with {} in fp32, and the weights are written in {}, in which the run "
                                     "computed; --dtype fp32 writes its masters", folder, to_string(dtype_)));
  }

  // config.json of a run without a folder before it names no end of a text, and transformers has 2 in its place.
  void write_built_in(const std::string& to, std::vector<std::string>& warnings) const {
    const std::optional<std::string> name = tokenizer_named_by(source_);
    if (!name) return;
    const auto files = files_of_built_in(*name);
    for (const auto& [file, text] : files) write_file(to + "/" + file, text);
    if (!files.empty()) write_ends(to, {*load_tokenizer(*name)->special_ids().eod}, false);
    if (*name == "cl100k")
      warnings.push_back("there are no tokenizer's files, because cl100k is built in; with --hf give --tokenizer cl100k");
  }

  // The side files that were carried along; else the tokenizer of the folder that training began with, or the data's that took its
  // place.
  void carry(const std::string& to, std::vector<std::string>& warnings) const {
    std::vector<std::string> from{carried_};
    const std::optional<std::string> tokenizer = added_tokenizer_of(source_), lost = lost_base(source_.manifest);
    if (const std::optional<std::string> folder = hf_files_begun_with(source_.manifest)) {
      say_if_narrower(*folder, warnings);
      from.push_back(*folder);
    } else if (lost && !tokenizer) {
      warnings.push_back(fmt::format("model.init_from = {}: training began with it, and it is not there from here: if it has a "
                                     "tokenizer, its files are not carried along", *lost));
    }
    if (tokenizer) copy_carried(*tokenizer, tokenizer_files(*tokenizer), to);
    for (const std::string& folder : from) {
      std::vector<std::string> names = side_files(folder);
      std::erase_if(names, [&](const std::string& name) { return name == kHfIndexName || (tokenizer && is_of_tokenizer(name)); });
      copy_carried(folder, names, to);
    }
    if (source_.hf == nullptr && !lost && tokenizer_files(to).empty()) write_built_in(to, warnings);
    const JsonValue::Object ids = special_ids();
    const std::string generation = to + "/" + std::string(kGenerationName);
    if (!is_there(generation) && !ids.empty() && !file_exists(carried_ + "/" + std::string(kConfigName))) {
      JsonValue json;
      json.set("_from_model_config", true);
      for (const JsonMember& id : ids) json.set(id.key, id.value);
      write_file(generation, to_json_text(json, 2) + "\n");
    }
    if (tokenizer) write_ends(to, ends_of_model(source_), true);  // into both files
  }

  WeightsSource source_;
  const WeightsSource& says_base_;  // what values its base is to have
  ModelConfig model_;
  std::vector<ManifestTensor> tensors_;  // in the order of transformers' state_dict()
  std::vector<std::string> names_;       // of the tensors in the files
  bool is_dtype_given_;
  DType dtype_, stored_ = DType::kF32;
  std::string carried_;
  const OnProgress& progress_;
  std::optional<WeightsReader> reader_;  // once the source is known to be one
  ContentHashes hashes_;                 // of what lies in a base
  bool exact_ = false;                   // the most exact values are read, not the weights
  std::vector<OutputFile> files_;
  bool has_index_ = false;
  std::vector<std::byte> values_, converted_;
  ValueCheck check_;
  std::int64_t done_ = 0, all_bytes_ = 0;
};

// For as long as they are merged, the adapters of a checkpoint take PEFT's form beside `to`, and its other weights, where they are
// no Hugging Face folder, that form in f32.
ConvertReport merge_adapters(const Resume& checkpoint, const std::string& to, ExportOptions options, const OnProgress& progress) {
  const OutputFolder beside(to);
  const std::string adapter = beside.path() + "/adapter";
  checkpoint_to_peft(checkpoint.folder, adapter);
  if (const std::optional<std::string> tokenizer = added_tokenizer_of(checkpoint))  // also where the base has moved
    copy_carried(*tokenizer, tokenizer_files(*tokenizer), adapter);
  WeightsSource base = checkpoint.base != nullptr ? *checkpoint.base : checkpoint;
  if (base.hf == nullptr) {
    const WeightsSource* first = &base;  // a folder that adapters were trained beside, run by run, or a checkpoint
    while (first->base != nullptr) first = first->base.get();
    if (!options.dtype) options.dtype = first->hf != nullptr ? first->hf->common_dtype() : base.manifest.weights;
    const std::string folder = beside.path() + "/base";
    Exporter(std::move(base), {.dtype = DType::kF32}, {}).write(folder);
    base = find_hf_weights(folder, "--from ckpt");
  }
  ModelConfig with_rows = model_of_hf(base.folder);
  with_rows.vocab_size = model_of(checkpoint).vocab_size;  // also where rows were added that did not train
  base.adapter = std::make_shared<PeftAdapter>(adapter, with_rows);
  return Exporter(std::move(base), options, progress, &checkpoint).write(to);
}

}  // namespace

std::vector<std::vector<std::size_t>> split_into_files(const std::vector<std::int64_t>& bytes, std::int64_t limit) {
  std::vector<std::vector<std::size_t>> files;
  std::vector<std::size_t> current;
  std::int64_t used = 0;
  for (std::size_t t = 0; t < bytes.size(); ++t) {
    if (bytes[t] > limit) {
      files.push_back({t});
      continue;
    }
    if (used + bytes[t] > limit) {
      files.push_back(std::exchange(current, {}));
      used = 0;
    }
    current.push_back(t);
    used += bytes[t];
  }
  if (!current.empty()) files.push_back(std::move(current));
  return files;
}

ConvertReport checkpoint_to_hf(const std::string& from, const std::string& to, const ExportOptions& options,
                               const OnProgress& progress) {
  if (is_hf_folder(hub_snapshot(from)))
    throw ConfigError(fmt::format("--from ckpt {}: is a Hugging Face folder; write --from hf", from));
  refuse_name_of_step(to);
  return use_newest_weights(from, "--from ckpt", [&](Resume source) {
    if (options.init_from && source.manifest.base.empty())
      throw ConfigError(fmt::format("--set model.init_from={}: {} has all weights, so that it has no effect; leave it out",
                                    *options.init_from, source.folder));
    open_base(source, options.init_from);
    const std::vector<std::string> notes = std::move(source.notes);
    const std::string folder = source.folder;
    const std::optional<std::string> other = find_tokenizer({}, nullptr, source, "--from ckpt").other;  // whose files go along
    const bool adapted = std::ranges::any_of(source.manifest.tensors, is_adapter_tensor, &ManifestTensor::name);
    ConvertReport report = adapted ? merge_adapters(source, to, options, progress)
                                   : Exporter(std::move(source), options, progress).write(to);
    report.warnings.insert(report.warnings.begin(), notes.begin(), notes.end());
    if (other) report.warnings.push_back(*other);
    report.from = folder;  // adapters are merged in others
    return report;
  });
}

ConvertReport peft_to_hf(const HfSource& from, const std::string& to, const ExportOptions& options, const OnProgress& progress) {
  refuse_name_of_step(to);
  return Exporter(find_hf_weights(from.folder, from.key(), from.adapter), options, progress).write(to);
}

}  // namespace trident
