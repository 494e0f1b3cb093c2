#include "infer/eval/eval_windows.h"

#include <algorithm>

#include "core/check.h"

namespace trident {

void add_windows(std::int32_t text, std::int64_t tokens, std::int64_t sequence, std::int64_t stride,
                 std::vector<EvalWindow>& windows) {
  TRIDENT_CHECK(stride >= 1 && stride <= sequence, "windows of {} tokens, {} apart", sequence, stride);
  std::int64_t predicted = 0;  // the last token that is
  for (std::int64_t begin = 0; predicted + 1 < tokens; begin += stride) {
    const std::int64_t inputs = std::min(sequence, tokens - 1 - begin);
    windows.push_back({text, begin, inputs, predicted - begin});
    predicted = begin + inputs;
  }
}

EvalWindow last_window(std::int32_t text, std::int64_t tokens, std::int64_t sequence, std::int64_t counted) {
  TRIDENT_CHECK(counted >= 1 && counted <= std::min(sequence, tokens - 1), "{} targets of {} tokens in a window of {}", counted,
                tokens, sequence);
  const std::int64_t inputs = std::min(sequence, tokens - 1);
  return {text, tokens - 1 - inputs, inputs, inputs - counted};
}

std::int64_t windows_at_once(std::int64_t windows, std::int64_t sequence) {
  constexpr std::int64_t kTokens = 8192;
  return std::clamp<std::int64_t>(kTokens / sequence, 1, windows);
}

}  // namespace trident
