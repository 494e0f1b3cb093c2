// Remarks on values on their way from one folder to another. The values are kept as they are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace trident {

class ValueCheck {
 public:
  struct Place {
    std::string file;  // or the folder, where files are many
    std::string tensor;
  };
  // `n` values of a tensor from element `first` on, and what they became.
  void look(const Place& place, const std::vector<std::int64_t>& shape, std::int64_t first, const std::byte* from, DType from_dtype,
            const std::byte* to, DType to_dtype, std::int64_t n);
  // One line for each tensor with such values: of those that are no numbers the first, of those that are infinite, and of those
  // that became so.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::vector<std::string> warnings_;
  enum Kind : std::size_t { kNaN, kInfinite, kOverflow, kKinds };
  std::array<std::string, kKinds> named_;  // the tensor that was named last
};

}  // namespace trident
