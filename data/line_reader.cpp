#include "data/line_reader.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace trident {

namespace {

constexpr std::size_t kFirstBuffer = std::size_t{1} << 20;

}  // namespace

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string_view LineReader::next() {
  std::size_t searched = 0;  // bytes from begin_ on that hold no line end
  for (;;) {
    const std::string_view there(buffer_.data() + begin_, end_ - begin_);
    if (const std::size_t at = there.find('\n', searched); at != std::string_view::npos) {
      ++line_number_;
      return take(at + 1);
    }
    searched = there.size();
    if (fill()) continue;
    line_number_ += searched > 0;
    return take(searched);
  }
}

std::string_view LineReader::rest() {
  while (fill()) continue;
  return take(end_ - begin_);
}

bool LineReader::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) buffer_.resize(std::max(kFirstBuffer, 2 * buffer_.size()));
  const std::size_t got = stream_->read(std::span(buffer_).subspan(end_));
  end_ += got;
  return got > 0;
}

std::string_view LineReader::take(std::size_t size) {
  const std::string_view taken(buffer_.data() + begin_, size);
  begin_ += size;
  return taken;
}

}  // namespace trident
