// Reads boxes of a Hugging Face folder's tensors: of each only the bytes that the box has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/box_copy.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/hf_value_reader.h"
#include "core/file_io.h"

namespace trident {

// Used by one thread. Memory beside the shards: 1 MiB, what HfValueReader has, and for shards on a device some rows.
class HfShardReader {
 public:
  explicit HfShardReader(std::shared_ptr<const HfFolder> folder, std::shared_ptr<const PeftAdapter> adapter = {},
                         ReadAt read_at = ::pread);

  // Fills the elements of `shard` (f32, the tensor's dtype, or with kRounded any floats) that `box` speaks of. Where the box's
  // tensor has more rows than one by tokens (HfFileTensor::by_token), each of them is the mean of the file's rows, summed in f64
  // and rounded to f32: the whole tensor is read for them, once. DataError naming file and tensor for what is not there, of another
  // shape, or does not convert; StorageError for what cannot be read. `*hash`, where it is given, grows by content_hash() of the
  // values as the folder has them, whatever is merged into them.
  void read(const ShardBox& box, const TensorView& shard, const WriteValues& write_values = {},
            Narrowing narrowing = Narrowing::kRefused, std::uint64_t* hash = nullptr);

  // One line for every tensor in which values were read that are no numbers, and one where they are infinite: file, tensor, and the
  // place of the first that was seen, such as "[3, 17]".
  std::vector<std::string> odd_values() const;

 private:
  void read_host(const ShardBox& box, std::byte* out, DType dtype, Narrowing narrowing, std::uint64_t* hash);
  const std::vector<float>& mean_row(const std::string& name);
  void look_for_odd_values(const HfFileTensor& tensor, DType dtype, std::int64_t element, std::span<const std::byte> bytes);

  std::shared_ptr<const HfFolder> folder_;
  HfValueReader values_;
  ReadScratch scratch_;
  std::pair<std::string, std::vector<float>> mean_row_;  // of the tensor that was asked for last
  std::map<std::pair<std::string, bool>, std::string> odd_;  // by tensor, and whether infinite
};

// "[3, 17]": the place of element number `element` of a tensor.
std::string place_text(std::int64_t element, const std::vector<std::int64_t>& shape);

}  // namespace trident
