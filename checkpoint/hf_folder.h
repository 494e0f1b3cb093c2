// A folder of Hugging Face's form: config.json, and weights in model.safetensors, or in several files that
// model.safetensors.index.json names. Its files may be links, as in the hub's cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/format/hf_index.h"
#include "checkpoint/format/manifest.h"
#include "core/check.h"
#include "core/dtype.h"
#include "core/file_io.h"
#include "model/config/hf_tensors.h"

namespace trident {

struct HfFileTensor {
  std::string name;  // as in the file
  std::vector<std::int64_t> shape;
  DType dtype = DType::kF32;
  std::size_t file = 0;               // of HfFolder::files()
  std::int64_t begin = 0, bytes = 0;  // within that file
  std::string other_dtype = {};       // SafetensorsEntry::other_dtype; never of the model's tensors
  bool by_token = false;              // it has a row for each token of the vocabulary, to which more can be added
};

// Rows that a matrix of shape `to` has more than one of shape `from`; 0 where that is not all in which they differ.
std::int64_t added_rows(const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to);

// Whether a folder has config.json and weights of this form, and is no checkpoint of trident.
bool is_hf_folder(const std::string& folder);

// Says which tensor of the model a name in a file stands for: the HfNames of that model.
using HfMeanings = std::function<HfName(std::string_view name_in_file)>;

// The tensors of a model as a Hugging Face folder has them, in the order in which the reference writer fills files.
std::vector<ManifestTensor> tensors_of_hf(const ModelConfig& model);

// A folder's files: how they are called, and who says which tensors they have.
struct HfFiles {
  std::string_view weights = kHfWeightsName, index = kHfIndexName;
  std::string_view says = "config.json";
  std::span<const ManifestTensor> optional = {};  // that may be there beside those that must
  std::span<const std::string> by_token = {};     // tensors with a row for each token
  bool may_have_other_tokens = false;             // more than expected, or fewer
  ExitCode wrong_shape = ExitCode::kData;         // or kConfig: of what the user put together
};

// A folder's headers, and which of its tensors are the model's. It does not change, so threads share one.
class HfFolder {
 public:
  // Reads the index and all headers, no values. DataError naming file and tensor: no weights; an index or a header that is none
  // (parse_hf_index, parse_safetensors_header); a file of the index that is missing, a tensor that is not in the file that the
  // index names, or in two, or in a file and not in the index. Then finds the model's tensors among them. Refuses (DataError naming
  // file, tensor, what is there and what was expected) a folder without a tensor of `expected`, or with one of another shape or of
  // values that are no floats, or with tensors that the model does not have.
  HfFolder(std::string folder, std::span<const ManifestTensor> expected, const HfMeanings& meanings, const HfFiles& files = {});

  const std::string& folder() const { return folder_; }
  const std::vector<std::string>& files() const { return files_; }  // names in the folder
  std::string path(std::size_t file) const { return folder_ + "/" + files_[file]; }
  const std::vector<HfFileTensor>& tensors() const { return tensors_; }  // file by file, in the order of their values
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }  // of headers; of one key the first

  // Refuses (DataError) file number `file`, opened anew, if its size or its header is not what the constructor read: what stands
  // at a tensor's place is another one then.
  void check_unchanged(std::size_t file, const RandomAccessFile& opened) const;

  // Refuses (DataError) copies of a tied tensor that are not equal to it, bit by bit. Reads both where there are any.
  void check_tied_copies() const;
  // The tensor that the model knows by `name`; nullptr: there is none.
  const HfFileTensor* find(std::string_view name) const;
  // The least dtype that holds every value exactly: that of all tensors where they have one, else f32.
  DType common_dtype() const;

 private:
  void read_headers(const HfFiles& files);
  void add_file(const std::string& name);
  void fit(std::span<const ManifestTensor> expected, const HfMeanings& meanings, const HfFiles& files);
  void check(const ManifestTensor& expected, const HfFileTensor& found, const HfFiles& files) const;

  std::string folder_;
  std::vector<std::string> files_;
  std::vector<std::uint64_t> headers_;  // of the files: a hash of size and header
  std::vector<HfFileTensor> tensors_;
  std::map<std::string, std::string, std::less<>> metadata_;
  std::unordered_map<std::string, std::size_t> index_;            // by name in the file: in tensors_
  std::unordered_map<std::string, std::size_t> fitted_;           // by the model's name
  std::vector<std::pair<std::size_t, std::size_t>> tied_copies_;  // and what they are copies of
  bool has_index_ = false;
};

}  // namespace trident
