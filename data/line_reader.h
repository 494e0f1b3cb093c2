// Lines of a byte stream.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "data/byte_stream.h"

namespace trident {

struct LineLimits {
  std::int64_t line_bytes, document_bytes;  // of a line, of a line or a rest
};

// Memory: the longest line, rounded up to twice as much, and never more than a limit and a MiB: a small compressed file may hold
// a line of any length. Longer lines, or rests: DataError that says FILE:LINE; `path` is for it.
class LineReader {
 public:
  LineReader(std::unique_ptr<ByteStream> stream, std::string path, const LineLimits& limits)
      : stream_(std::move(stream)), path_(std::move(path)), limits_(limits) {}

  // The next line with its line end ("\n"; the last line may have none), valid until the next call; empty after the last.
  std::string_view next();
  // All lines from here to the end, valid likewise.
  std::string_view rest();
  // Gives the memory of a long line back, which must have been copied.
  void trim();

  std::int64_t line_number() const { return line_number_; }  // of the line last returned by next(), from 1
  std::int64_t bytes_consumed() const { return stream_->bytes_consumed(); }

 private:
  bool fill();  // one read more behind what is there; false at the end
  std::string_view take(std::size_t size);
  void refuse_above_limit(std::size_t size) const;
  void refuse_long_lines(std::string_view lines) const;
  void resize(std::size_t bytes);

  std::unique_ptr<ByteStream> stream_;
  std::string path_;
  LineLimits limits_;
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> buffer_;  // not a vector, which would fill and copy what it grows by
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0, end_ = 0;  // what of the buffer is not returned yet
  std::int64_t line_number_ = 0;
};

[[noreturn]] void refuse_long_document(std::string_view path, std::int64_t line, std::size_t max_bytes);

// Without "\n" or "\r\n" at its end.
std::string_view without_line_end(std::string_view line);

}  // namespace trident
