#include "data/line_reader.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/check.h"

namespace trident {

namespace {

constexpr std::size_t kFirstBuffer = std::size_t{1} << 20;  // less where no line may be as long

}  // namespace

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

void refuse_long_document(std::string_view path, std::int64_t line, std::size_t max_bytes) {
  throw DataError(fmt::format("{}:{}: a document of more than {} bytes begins here; divide it (--separator-line for text), or "
                              "raise --max-document-bytes where memory allows several times as much", path, line, max_bytes));
}

void LineReader::refuse_above_limit(std::size_t size) const {
  if (size > max_bytes_) refuse_long_document(path_, line_number_ + 1, max_bytes_);
}

std::string_view LineReader::next() {
  std::size_t searched = 0;  // bytes from begin_ on that hold no line end
  for (;;) {
    const std::string_view there(buffer_.data() + begin_, end_ - begin_);
    if (const std::size_t at = there.find('\n', searched); at != std::string_view::npos) {
      refuse_above_limit(at);
      ++line_number_;
      return take(at + 1);
    }
    searched = there.size();
    refuse_above_limit(searched);
    if (fill()) continue;
    line_number_ += searched > 0;
    return take(searched);
  }
}

std::string_view LineReader::rest() {
  do refuse_above_limit(end_ - begin_);
  while (fill());
  return take(end_ - begin_);
}

bool LineReader::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) {
    const std::size_t first = std::min(kFirstBuffer, max_bytes_ + 1);
    buffer_.resize(std::max(first, std::min(2 * buffer_.size(), max_bytes_ + first)));
  }
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
