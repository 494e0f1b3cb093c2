// Turns a continuation into text while it is being made: bytes of tokens in, text that will not change any more out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trident {

// A token may end inside a character, and a stop string may begin in one token and end in another: both are held back until it is
// clear. Bytes that are no UTF-8 become U+FFFD, one for each maximal ill-formed subsequence. What comes out in total does not
// depend on how the bytes were cut.
class TextStream {
 public:
  // Text ends before the first of these that is complete, and before the longest of those that are complete at once. None is empty.
  explicit TextStream(std::vector<std::string> stops = {}) : stops_(std::move(stops)) {}

  // Returns what may be shown now. After a stop string nothing comes.
  std::string push(std::string_view bytes);
  // No more bytes come. Returns what was held back.
  std::string finish();
  // Whether a stop string has come.
  bool stopped() const { return stopped_; }

 private:
  std::string take(std::string_view text);
  std::size_t held_back() const;

  std::vector<std::string> stops_;
  std::string bytes_;    // of a character that is not whole
  std::string pending_;  // text that may be the beginning of a stop string
  bool stopped_ = false;
};

}  // namespace trident
