#include "checkpoint/hf_shard_reader.h"

#include <cstring>

#include "checkpoint/content_hash.h"
#include "checkpoint/format/safetensors.h"
#include "core/at.h"
#include "core/check.h"
#include "core/json_reader.h"

namespace trident {

HfShardReader::HfShardReader(std::shared_ptr<const HfFolder> folder, std::shared_ptr<const PeftAdapter> adapter, ReadAt read_at)
    : folder_(std::move(folder)), values_(folder_, std::move(adapter), std::move(read_at)) {}

void HfShardReader::read(const ShardBox& box, const TensorView& shard, const WriteValues& write_values, Narrowing narrowing,
                         std::uint64_t* hash) {
  fill_shard(box, shard, write_values,
             [&](const ShardBox& part, std::byte* out, DType dtype) { read_host(part, out, dtype, narrowing, hash); });
}

void HfShardReader::read_host(const ShardBox& box, std::byte* out, DType dtype, Narrowing narrowing, std::uint64_t* hash) {
  const HfFileTensor* const found = folder_->find(box.tensor);
  if (found == nullptr)
    throw DataError(fmt::format("{}: has no tensor {}; it is of another model", folder_->folder(), in_quotes(box.tensor)));
  const HfFileTensor& tensor = *found;
  const std::vector<std::int64_t>& shape = values_.shape_of(box.tensor);
  const std::int64_t added = tensor.by_token ? added_rows(shape, box.tensor_shape) : 0;
  if (added == 0 && shape != box.tensor_shape)
    throw DataError(fmt::format("{}: tensor {} has the shape {}, expected {}; it is of another model", folder_->path(tensor.file),
                                in_quotes(tensor.name), to_string(whole(shape)), to_string(whole(box.tensor_shape))));
  const DType given = values_.dtype_of(box.tensor);
  if (!converts(given, dtype, narrowing))
    throw DataError(fmt::format("{}: tensor {} is {}, expected {}; save the model in that dtype", folder_->path(tensor.file),
                                in_quotes(tensor.name), safetensors_name(given), safetensors_name(dtype)));
  copy_shared(whole(shape), given, box, out, dtype, scratch_, [&](std::int64_t begin, std::span<std::byte> bytes) {
    values_.read(box.tensor, begin / size_of(given), bytes, hash);
    look_for_odd_values(tensor, given, begin / size_of(given), bytes);
  });
  if (added == 0) return;
  const TensorBox rows{{shape[0], 0}, {added, shape[1]}};
  copy_shared(rows, DType::kF32, box, out, dtype, scratch_, [&](std::int64_t begin, std::span<std::byte> bytes) {
    const std::vector<float>& row = mean_row(box.tensor);
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
      const std::int64_t element = begin / size_of(DType::kF32) + static_cast<std::int64_t>(at / sizeof(float));
      std::memcpy(bytes.data() + at, &trident::at(row, element % shape[1]), sizeof(float));
    }
    if (hash != nullptr)
      *hash += content_hash(rows, box.tensor_shape, begin / size_of(DType::kF32), bytes, DType::kF32);
  });
}

const std::vector<float>& HfShardReader::mean_row(const std::string& name) {
  if (mean_row_.first == name) return mean_row_.second;
  const std::int64_t rows = values_.shape_of(name)[0], columns = values_.shape_of(name)[1];
  const DType dtype = values_.dtype_of(name);
  std::vector<std::byte> stored(static_cast<std::size_t>(columns * size_of(dtype)));
  std::vector<float> row(static_cast<std::size_t>(columns));
  std::vector<double> sums(row.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    values_.read(name, r * columns, stored);
    convert_values(stored.data(), dtype, reinterpret_cast<std::byte*>(row.data()), DType::kF32, columns);
    for (std::size_t c = 0; c < row.size(); ++c) sums[c] += static_cast<double>(row[c]);
  }
  for (std::size_t c = 0; c < row.size(); ++c) row[c] = static_cast<float>(sums[c] / static_cast<double>(rows));
  mean_row_ = {name, std::move(row)};
  return mean_row_.second;
}

void HfShardReader::look_for_odd_values(const HfFileTensor& tensor, DType dtype, std::int64_t element,
                                        std::span<const std::byte> bytes) {
  const OddValues found = trident::odd_values(bytes.data(), dtype, std::ssize(bytes) / size_of(dtype));
  for (const auto& [at, infinite] : {std::pair{found.nan, false}, {found.infinity, true}})
    if (at >= 0 && !odd_.contains({tensor.name, infinite}))
      odd_[{tensor.name, infinite}] =
          fmt::format("{}: tensor {} has values that are {}, such as {}", folder_->path(tensor.file),
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
