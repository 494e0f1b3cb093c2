#include "checkpoint/file_record.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/at.h"
#include "core/check.h"

namespace trident {
namespace {

constexpr std::size_t kMaxRuns = 64;  // aimed at; tensors that are no neighbours keep runs of their own

// Neighbours whose parts differ by at most `tolerance` become one.
std::vector<TensorRun> merged(const std::vector<TensorRun>& runs, int tolerance) {
  std::vector<TensorRun> out;
  for (const TensorRun& run : runs) {
    TensorRun* const last = out.empty() ? nullptr : &out.back();
    const bool joins = last != nullptr && last->first + last->count == run.first && std::abs(last->begin - run.begin) <= tolerance &&
                       std::abs(last->end - run.end) <= tolerance;
    if (!joins) {
      out.push_back(run);
      continue;
    }
    *last = {last->first, last->count + run.count, std::min(last->begin, run.begin), std::max(last->end, run.end)};
  }
  return out;
}

}  // namespace

TensorParts parts_of(const TensorBox& box, const std::vector<std::int64_t>& shape) {
  std::int64_t first = 0, last = 0;  // row-major indices
  for (std::size_t d = 0; d < shape.size(); ++d) {
    first = first * shape[d] + box.offset[d];
    last = last * shape[d] + box.offset[d] + box.shape[d] - 1;
  }
  const auto part = [n = whole(shape).elements()](std::int64_t index) { return static_cast<int>(static_cast<__int128>(index) * kTensorParts / n); };
  return {part(first), part(last) + 1};
}

ManifestFile manifest_file(const SaveFile& file, std::span<const ManifestTensor> tensors) {
  std::map<std::string_view, std::int64_t> index_of;
  for (std::size_t i = 0; i < tensors.size(); ++i) index_of.emplace(tensors[i].name, static_cast<std::int64_t>(i));
  std::map<std::int64_t, TensorParts> parts;  // by tensor
  for (const FileBox& box : file.table.boxes) {
    const std::string_view key = box.key;
    const auto found = index_of.find(key.substr(key.rfind('/') + 1));
    TRIDENT_CHECK(found != index_of.end(), "{} is not a tensor of the model", box.key);
    const TensorParts here = parts_of(box.box, at(tensors, found->second).shape);
    TensorParts& all = parts[found->second];
    all = {std::min(all.begin, here.begin), std::max(all.end, here.end)};
  }
  ManifestFile out;
  out.path = file.path;
  const std::string text = to_text(file.table);
  out.table_bytes = std::ssize(text);
  out.bytes = out.table_bytes + file.table.data_bytes();
  out.table = hash128(text);
  for (const auto& [tensor, hull] : parts) out.runs.push_back({tensor, 1, hull.begin, hull.end});
  std::vector<TensorRun> runs = merged(out.runs, 0);
  for (int tolerance = 1; runs.size() > kMaxRuns && tolerance < 2 * kTensorParts; tolerance *= 2) runs = merged(runs, tolerance);
  out.runs = std::move(runs);
  return out;
}

}  // namespace trident
