// Which pieces of a text a model is given, so that it predicts every token of the text but the first, each once. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace trident {

// Inputs are tokens begin .. begin + inputs - 1 of a text; the target of input i is the token behind it. Those from `counted_from`
// on count: the others were predicted by the window before.
struct EvalWindow {
  std::int32_t text = 0;
  std::int64_t begin = 0, inputs = 0, counted_from = 0;

  std::int64_t counted() const { return inputs - counted_from; }
  bool operator==(const EvalWindow&) const = default;
};

// Appends the windows of a text of `tokens` tokens: at most `sequence` inputs each, and each begins `stride` tokens behind the one
// before it, 1 <= stride <= sequence. The last may be short. A text of one token, or none, has nothing to predict.
void add_windows(std::int32_t text, std::int64_t tokens, std::int64_t sequence, std::int64_t stride,
                 std::vector<EvalWindow>& windows);

// The window whose last `counted` targets are the end of a text of `tokens` tokens, with as much before them as `sequence` inputs
// hold: 1 <= counted <= min(sequence, tokens - 1).
EvalWindow last_window(std::int32_t text, std::int64_t tokens, std::int64_t sequence, std::int64_t counted);

// How many of `windows` (at least 1) the model is given at once where nobody says: as many as make 8,192 tokens, at least one. No
// machine and no layout changes the number.
std::int64_t windows_at_once(std::int64_t windows, std::int64_t sequence);

}  // namespace trident
