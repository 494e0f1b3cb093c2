// Lines of a byte stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/byte_stream.h"

namespace trident {

// Memory: the longest line, rounded up to twice as much, and never more than max_bytes and a MiB: a small compressed file may hold
// a line of any length. Longer lines, or rests: DataError that says FILE:LINE; `path` is for it.
class LineReader {
 public:
  LineReader(std::unique_ptr<ByteStream> stream, std::string path, std::int64_t max_bytes)
      : stream_(std::move(stream)), path_(std::move(path)), max_bytes_(static_cast<std::size_t>(max_bytes)) {}

  // The next line with its line end ("\n"; the last line may have none), valid until the next call; empty after the last.
  std::string_view next();
  // All lines from here to the end, valid likewise.
  std::string_view rest();

  std::int64_t line_number() const { return line_number_; }  // of the line last returned by next(), from 1
  std::int64_t bytes_consumed() const { return stream_->bytes_consumed(); }

 private:
  bool fill();  // one read more behind what is there; false at the end
  std::string_view take(std::size_t size);
  void refuse_above_limit(std::size_t size) const;

  std::unique_ptr<ByteStream> stream_;
  std::string path_;
  std::size_t max_bytes_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // what of the buffer is not returned yet
  std::int64_t line_number_ = 0;
};

[[noreturn]] void refuse_long_document(std::string_view path, std::int64_t line, std::size_t max_bytes);

// Without "\n" or "\r\n" at its end.
std::string_view without_line_end(std::string_view line);

}  // namespace trident
