#include "checkpoint/hf_shard_reader.h"

#include <cstdint>
#include <utility>

#include "checkpoint/format/safetensors.h"
#include "core/check.h"
#include "core/json_reader.h"

namespace trident {

HfShardReader::HfShardReader(std::shared_ptr<const HfFolder> folder, ReadAt read_at)
    : folder_(std::move(folder)), read_at_(std::move(read_at)) {}

void HfShardReader::read(const ShardBox& box, const TensorView& shard, const WriteValues& write_values, Narrowing narrowing) {
  fill_shard(box, shard, write_values,
             [&](const ShardBox& part, std::byte* out, DType dtype) { read_host(part, out, dtype, narrowing); });
}

void HfShardReader::read_host(const ShardBox& box, std::byte* out, DType dtype, Narrowing narrowing) {
  const HfFileTensor* const found = folder_->find(box.tensor);
  if (found == nullptr)
    throw DataError(fmt::format("{}: has no tensor {}; it is of another model", folder_->folder(), in_quotes(box.tensor)));
  const HfFileTensor& tensor = *found;
  if (tensor.shape != box.tensor_shape)
    throw DataError(fmt::format("{}: tensor {} has the shape {}, expected {}; it is of another model", folder_->path(tensor.file),
                                in_quotes(tensor.name), to_string(whole(tensor.shape)), to_string(whole(box.tensor_shape))));
  if (!converts(tensor.dtype, dtype, narrowing))
    throw DataError(fmt::format("{}: tensor {} is {}, expected {}; save the model in that dtype", folder_->path(tensor.file),
                                in_quotes(tensor.name), safetensors_name(tensor.dtype), safetensors_name(dtype)));
  const RandomAccessFile& file = open(tensor.file);
  copy_shared(whole(tensor.shape), tensor.dtype, box, out, dtype, scratch_, [&](std::int64_t begin, std::span<std::byte> bytes) {
    file.read(tensor.begin + begin, bytes);
    look_for_odd_values(tensor, begin / size_of(tensor.dtype), bytes);
  });
}

const RandomAccessFile& HfShardReader::open(std::size_t file) {
  if (open_ && open_->first == file) return open_->second;
  RandomAccessFile opened(folder_->path(file), read_at_);
  folder_->check_unchanged(file, opened);
  return open_.emplace(file, std::move(opened)).second;
}

void HfShardReader::look_for_odd_values(const HfFileTensor& tensor, std::int64_t element, std::span<const std::byte> bytes) {
  const OddValues found = trident::odd_values(bytes.data(), tensor.dtype, std::ssize(bytes) / size_of(tensor.dtype));
  for (const auto& [at, infinite] : {std::pair{found.nan, false}, {found.infinity, true}})
    if (at >= 0 && !odd_.contains({tensor.name, infinite}))
      odd_[{tensor.name, infinite}] =
          fmt::format("{}: tensor {} has values that are {}, such as {}; they are kept", folder_->path(tensor.file),
                      in_quotes(tensor.name), infinite ? "infinite" : "no numbers", place_text(element + at, tensor.shape));
}

std::vector<std::string> HfShardReader::odd_values() const {
  std::vector<std::string> lines;
  for (const auto& [of, line] : odd_) lines.push_back(line);
  return lines;
}

std::string place_text(std::int64_t element, const std::vector<std::int64_t>& shape) {
  std::string text;
  for (std::size_t d = shape.size(); d-- > 0; element /= shape[d])
    text = fmt::format("{}{}{}", element % shape[d], text.empty() ? "" : ", ", text);
  return "[" + text + "]";
}

}  // namespace trident
