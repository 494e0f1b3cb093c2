// What is to be said of values on their way from one folder to another. They are kept as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace trident {

class ValueCheck {
 public:
  // `n` values of a tensor from element `first` on, and what they became.
  void look(const std::string& tensor, const std::vector<std::int64_t>& shape, std::int64_t first, const std::byte* from,
            DType from_dtype, const std::byte* to, DType to_dtype, std::int64_t n);
  // One line for each tensor with such values: of those that are no numbers the first, and of those that became infinite.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::vector<std::string> warnings_;
  std::string with_nan_, with_infinity_;  // the tensors that were named last
};

}  // namespace trident
