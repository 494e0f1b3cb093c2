#include "data/line_reader.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>

#include "core/check.h"

namespace trident {

namespace {

constexpr std::size_t kFirstBuffer = std::size_t{1} << 20;  // less where no line may be as long

[[noreturn]] void refuse_long_line(std::string_view path, std::int64_t line, std::int64_t max_bytes) {
  throw DataError(
      fmt::format("{}:{}: a line of more than {} bytes; divide it, or raise --max-line where memory allows several times "
                  "as much",
                  path, line, max_bytes));
}

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
  const auto bytes = static_cast<std::int64_t>(size);
  if (bytes > limits_.document_bytes)
    refuse_long_document(path_, line_number_ + 1, static_cast<std::size_t>(limits_.document_bytes));
  if (bytes > limits_.line_bytes) refuse_long_line(path_, line_number_ + 1, limits_.line_bytes);
}

void LineReader::refuse_long_lines(std::string_view lines) const {
  for (std::int64_t number = line_number_ + 1; !lines.empty(); ++number) {
    const std::size_t size = std::min(lines.find('\n'), lines.size());
    if (static_cast<std::int64_t>(size) > limits_.line_bytes) refuse_long_line(path_, number, limits_.line_bytes);
    lines.remove_prefix(std::min(size + 1, lines.size()));
  }
}

void LineReader::resize(std::size_t bytes) {
  char* const memory = static_cast<char*>(std::realloc(buffer_.get(), bytes));
  if (memory == nullptr) throw std::bad_alloc();
  (void)buffer_.release();
  buffer_.reset(memory);
  capacity_ = bytes;
}

void LineReader::trim() {
  const std::size_t pending = end_ - begin_;
  if (capacity_ <= kFirstBuffer || pending > kFirstBuffer) return;
  std::memmove(buffer_.get(), buffer_.get() + begin_, pending);
  begin_ = 0;
  end_ = pending;
  resize(kFirstBuffer);
}

std::string_view LineReader::next() {
  std::size_t searched = 0;  // bytes from begin_ on that hold no line end
  for (;;) {
    const std::string_view there(buffer_.get() + begin_, end_ - begin_);
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
  const LineLimits both = std::exchange(limits_, {limits_.document_bytes, limits_.document_bytes});
  do refuse_above_limit(end_ - begin_);
  while (fill());
  limits_ = both;
  refuse_long_lines({buffer_.get() + begin_, end_ - begin_});
  return take(end_ - begin_);
}

bool LineReader::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == capacity_) {
    const auto most = static_cast<std::size_t>(std::min(limits_.line_bytes, limits_.document_bytes));
    const std::size_t first = std::min(kFirstBuffer, most + 1);
    resize(std::max(first, std::min(2 * capacity_, most + first)));
  }
  const std::size_t got = stream_->read(std::span(buffer_.get() + end_, capacity_ - end_));
  end_ += got;
  return got > 0;
}

std::string_view LineReader::take(std::size_t size) {
  const std::string_view taken(buffer_.get() + begin_, size);
  begin_ += size;
  return taken;
}

}  // namespace trident
