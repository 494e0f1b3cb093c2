// Reads values of a Hugging Face folder's tensors, with an adapter merged into them where one is given: the one place in which
// W becomes W + scale B A, whoever reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/hf_folder.h"
#include "checkpoint/peft_adapter.h"
#include "core/dtype.h"
#include "core/file_io.h"

namespace trident {

// Used by one thread. Memory: A and B of one module as f32, and with an adapter twice what is read at a time.
class HfValueReader {
 public:
  explicit HfValueReader(std::shared_ptr<const HfFolder> folder, std::shared_ptr<const PeftAdapter> adapter = {},
                         ReadAt read_at = ::pread);

  // The dtype in which read() gives values of the tensor that the model knows by `name`: the file's; f32 where the adapter changes
  // them, so that whoever stores them rounds them once.
  DType dtype_of(const std::string& name) const;
  // The shape of what read() gives: the file's, and of a copy that an adapter has the copy's.
  const std::vector<std::int64_t>& shape_of(const std::string& name) const;
  // Fills `out` with whole values from element `first` on. `*hash`, where given, grows by their content_hash() before a merge.
  // DataError where a file was replaced; StorageError.
  void read(const std::string& name, std::int64_t first, std::span<std::byte> out, std::uint64_t* hash = nullptr);
  // Asks for values that will be read soon.
  void will_need(const std::string& name, std::int64_t first, std::int64_t bytes);

 private:
  // A merge adds left [rows, rank] times right [rank, columns] to the rows of a tensor's file, and multiplies the sum.
  struct Merge {
    std::string tensor;
    const PeftModule* module = nullptr;
    std::int64_t columns = 0;
    std::vector<float> left = {}, right = {};
    std::vector<float> factor = {};  // DoRA's, by output; empty without
  };

  const RandomAccessFile& open(const HfFolder& folder, std::size_t file);
  void read_stored(const HfFolder& folder, const HfFileTensor& tensor, std::int64_t first, std::span<std::byte> out);
  std::vector<float> read_floats(const HfFolder& folder, const HfFileTensor& tensor, std::int64_t first, std::int64_t n);
  std::vector<float> read_unmerged(const std::string& name, std::int64_t first, std::int64_t n);
  const Merge& merge_of(const std::string& name, const PeftModule& module);
  static void add(const Merge& merge, std::int64_t first, std::span<float> values);
  void take_factor(Merge& merge);

  std::shared_ptr<const HfFolder> folder_;
  std::shared_ptr<const PeftAdapter> adapter_;
  ReadAt read_at_;
  std::optional<std::pair<std::pair<const HfFolder*, std::size_t>, RandomAccessFile>> open_, open_adapter_;  // read last
  Merge merge_;
};

}  // namespace trident
