#include "checkpoint/hf_value_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/box_copy.h"
#include "checkpoint/content_hash.h"
#include "core/adapter_spec.h"
#include "core/at.h"

namespace trident {
namespace {

constexpr std::int64_t kAtOnce = std::int64_t{1} << 18;  // elements, of a pass over a tensor
constexpr double kLeastSquare = 1e-30;                   // a row of zeros stays one, as DoraScale leaves it

std::int64_t elements_of(const HfFileTensor& tensor) { return whole(tensor.shape).elements(); }

std::vector<float> transposed(const std::vector<float>& matrix, std::int64_t rows, std::int64_t columns) {
  std::vector<float> out(matrix.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) at(out, j * rows + i) = at(matrix, i * columns + j);
  return out;
}

}  // namespace

HfValueReader::HfValueReader(std::shared_ptr<const HfFolder> folder, std::shared_ptr<const PeftAdapter> adapter, ReadAt read_at)
    : folder_(std::move(folder)), adapter_(std::move(adapter)), read_at_(std::move(read_at)) {}

DType HfValueReader::dtype_of(const std::string& name) const {
  const bool changed = adapter_ != nullptr && (adapter_->module_of(name) != nullptr || adapter_->tensors().find(name) != nullptr);
  return changed ? DType::kF32 : folder_->find(name)->dtype;
}

const std::vector<std::int64_t>& HfValueReader::shape_of(const std::string& name) const {
  const HfFileTensor* const copy = adapter_ == nullptr ? nullptr : adapter_->tensors().find(name);
  return copy != nullptr ? copy->shape : folder_->find(name)->shape;
}

void HfValueReader::read(const std::string& name, std::int64_t first, std::span<std::byte> out, std::uint64_t* hash) {
  const PeftModule* const module = adapter_ == nullptr ? nullptr : adapter_->module_of(name);
  const auto count = [&](std::span<const std::byte> values, DType dtype) {
    if (hash != nullptr) *hash += content_hash(whole(shape_of(name)), shape_of(name), first, values, dtype);
  };
  if (module == nullptr && (adapter_ == nullptr || adapter_->tensors().find(name) == nullptr)) {
    read_stored(*folder_, *folder_->find(name), first, out);
    return count(out, folder_->find(name)->dtype);
  }
  std::vector<float> values = read_unmerged(name, first, std::ssize(out) / size_of(DType::kF32));
  count(std::as_bytes(std::span(values)), DType::kF32);
  if (module != nullptr) {
    const Merge& merge = merge_of(name, *module);
    add(merge, first, values);
    for (std::int64_t i = 0; !merge.factor.empty() && i < std::ssize(values); ++i) {
      const std::int64_t output = module->transposed ? (first + i) % merge.columns : (first + i) / merge.columns;
      at(values, i) *= at(merge.factor, output);
    }
  }
  std::memcpy(out.data(), values.data(), out.size());
}

void HfValueReader::will_need(const std::string& name, std::int64_t first, std::int64_t bytes) {
  const HfFileTensor& tensor = *folder_->find(name);
  const RandomAccessFile& file = open(*folder_, tensor.file);
  const std::int64_t offset = tensor.begin + first * size_of(tensor.dtype), ahead = std::min(bytes, file.size() - offset);
  if (ahead > 0) file.will_need(offset, ahead);
}

const RandomAccessFile& HfValueReader::open(const HfFolder& folder, std::size_t file) {
  auto& last = &folder == folder_.get() ? open_ : open_adapter_;
  const std::pair<const HfFolder*, std::size_t> wanted{&folder, file};
  if (last && last->first == wanted) return last->second;
  RandomAccessFile opened(folder.path(file), read_at_);
  folder.check_unchanged(file, opened);
  return last.emplace(wanted, std::move(opened)).second;
}

void HfValueReader::read_stored(const HfFolder& folder, const HfFileTensor& tensor, std::int64_t first, std::span<std::byte> out) {
  open(folder, tensor.file).read(tensor.begin + first * size_of(tensor.dtype), out);
}

std::vector<float> HfValueReader::read_floats(const HfFolder& folder, const HfFileTensor& tensor, std::int64_t first,
                                              std::int64_t n) {
  std::vector<std::byte> stored(static_cast<std::size_t>(n * size_of(tensor.dtype)));
  read_stored(folder, tensor, first, stored);
  std::vector<float> values(static_cast<std::size_t>(n));
  convert_values(stored.data(), tensor.dtype, reinterpret_cast<std::byte*>(values.data()), DType::kF32, n);
  return values;
}

std::vector<float> HfValueReader::read_unmerged(const std::string& name, std::int64_t first, std::int64_t n) {
  if (const HfFileTensor* const copy = adapter_->tensors().find(name)) return read_floats(adapter_->tensors(), *copy, first, n);
  return read_floats(*folder_, *folder_->find(name), first, n);
}

const HfValueReader::Merge& HfValueReader::merge_of(const std::string& name, const PeftModule& module) {
  if (merge_.tensor == name) return merge_;
  const auto all = [&](std::string_view part) {
    const HfFileTensor& tensor = *adapter_->tensors().find(fmt::format("{}{}", module.name, part));
    return read_floats(adapter_->tensors(), tensor, 0, elements_of(tensor));
  };
  Merge merge{.tensor = name, .module = &module, .columns = module.transposed ? module.out : module.in};
  merge.left = all(kLoraB), merge.right = all(kLoraA);
  if (module.transposed) {
    merge.left.swap(merge.right);
    merge.left = transposed(merge.left, module.rank, module.in);
    merge.right = transposed(merge.right, module.out, module.rank);
  }
  if (adapter_->config().dora) {
    merge.factor = all(kLoraMagnitude);
    take_factor(merge);
  }
  merge_ = std::move(merge);
  return merge_;
}

// Divides each output's magnitude by the length of its row of W + scale B A.
void HfValueReader::take_factor(Merge& merge) {
  std::vector<double> squares(merge.factor.size());
  const std::int64_t elements = merge.module->in * merge.module->out;
  for (std::int64_t first = 0; first < elements; first += kAtOnce) {
    std::vector<float> values = read_unmerged(merge.tensor, first, std::min(kAtOnce, elements - first));
    add(merge, first, values);
    for (std::int64_t i = 0; i < std::ssize(values); ++i) {
      const std::int64_t place = first + i;
      const double value = at(values, i);
      at(squares, merge.module->transposed ? place % merge.columns : place / merge.columns) += value * value;
    }
  }
  for (std::size_t o = 0; o < squares.size(); ++o)
    merge.factor[o] = static_cast<float>(static_cast<double>(merge.factor[o]) / std::sqrt(squares[o] + kLeastSquare));
}

void HfValueReader::add(const Merge& merge, std::int64_t first, std::span<float> values) {
  const auto scale = static_cast<float>(merge.module->scale);
  const std::int64_t columns = merge.columns, rank = merge.module->rank;
  std::vector<float> sums;
  for (std::int64_t done = 0; done < std::ssize(values);) {
    const std::int64_t row = (first + done) / columns, column = (first + done) % columns;
    const std::int64_t n = std::min(columns - column, std::ssize(values) - done);
    sums.assign(static_cast<std::size_t>(n), 0.0f);
    for (std::int64_t k = 0; k < rank; ++k) {
      const float left = at(merge.left, row * rank + k);
      const float* const right = merge.right.data() + k * columns + column;
      for (std::int64_t j = 0; j < n; ++j) at(sums, j) += left * right[j];
    }
    for (std::int64_t j = 0; j < n; ++j) at(values, done + j) += scale * at(sums, j);
    done += n;
  }
}

}  // namespace trident
