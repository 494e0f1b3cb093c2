#include "infer/generate/text_stream.h"

#include <algorithm>

#include "core/utf8.h"

namespace trident {

namespace {

// How many bytes at the end of `text` begin a UTF-8 character that further bytes may complete, 0 to 3: they have a lead byte and
// are one ill-formed subsequence to the very end.
std::size_t incomplete_tail(std::string_view text) {
  for (std::size_t length = std::min<std::size_t>(3, text.size()); length > 0; --length) {
    const std::string_view tail = text.substr(text.size() - length);
    const auto lead = static_cast<unsigned char>(tail[0]);
    std::string replaced;
    const bool has_lead = lead >= 0xC2 && lead <= 0xF4;
    if (has_lead && replace_ill_formed(tail, &replaced) == 1 && replaced == "\uFFFD") return length;
  }
  return 0;
}

}  // namespace

// The longest end of pending_ that begins a stop string.
std::size_t TextStream::held_back() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, pending_.size()); n > longest; --n) {
      if (std::string_view(pending_).ends_with(std::string_view(stop).substr(0, n))) longest = n;
    }
  }
  return longest;
}

std::string TextStream::take(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    pending_.push_back(c);
    std::size_t stop_size = 0;
    for (const std::string& stop : stops_) {
      if (pending_.ends_with(stop)) stop_size = std::max(stop_size, stop.size());
    }
    if (stop_size > 0) {
      stopped_ = true;
      shown.append(pending_, 0, pending_.size() - stop_size);
      pending_.clear();
      return shown;
    }
    const std::size_t free = pending_.size() - held_back();
    shown.append(pending_, 0, free);
    pending_.erase(0, free);
  }
  return shown;
}

std::string TextStream::push(std::string_view bytes) {
  if (stopped_) return {};
  bytes_ += bytes;
  const std::size_t whole = bytes_.size() - incomplete_tail(bytes_);
  std::string text;
  replace_ill_formed(std::string_view(bytes_).substr(0, whole), &text);
  bytes_.erase(0, whole);
  return take(text);
}

std::string TextStream::finish() {
  if (stopped_) return {};
  std::string text;
  replace_ill_formed(bytes_, &text);
  bytes_.clear();
  std::string shown = take(text);
  if (!stopped_) shown += pending_;
  pending_.clear();
  return shown;
}

}  // namespace trident
