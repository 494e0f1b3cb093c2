// The algorithms that were found fastest, remembered in a file.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "device/cuda/cublaslt_plan.h"

namespace trident {

// The choices for one model of device and one version of the library. On disk: {"format": 1, "choices": [{"device", "library",
// "product", "algorithm", "microseconds"}, ...]}. What an algorithm's bytes mean is the library's secret and changes with its
// version, so choices of other devices and versions stay in the file and are not used.
//
// Several processes and threads may have the same file; beside it lies an empty "<path>.lock".
class AlgorithmChoices {
 public:
  // Reads `path`; a file that is not there is empty. ConfigError if it is damaged or of another format.
  AlgorithmChoices(std::string path, std::string device_name, std::size_t library_version);

  // `product`: a plan_key(). The workspace of what is found is not known: CublasLtPlan::accepts() sets it.
  std::optional<Algorithm> find(const std::string& product) const;
  // Remembers the choice, and writes the file anew, whole or not at all, with what others have added to it meanwhile. StorageError
  // if it cannot be written.
  void add(const std::string& product, const Algorithm& algorithm, double seconds);

 private:
  struct Key {
    std::string device;
    std::int64_t library = 0;
    std::string product;
    auto operator<=>(const Key&) const = default;
  };
  struct Choice {
    std::string algorithm;  // its bytes in hexadecimal
    double microseconds = 0;
  };
  using Choices = std::map<Key, Choice>;

  Choices read() const;
  void write() const;

  std::string path_, device_name_;
  std::int64_t library_version_ = 0;
  Choices choices_;
};

}  // namespace trident
