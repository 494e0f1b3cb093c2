// The documents of one input file, in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/file_io.h"

namespace trident {

enum class InputKind : std::uint8_t { kText, kJsonLines };

// By the name's ending: .jsonl and .json are JSON lines. Endings of compressed files: DataError that says to decompress.
InputKind input_kind(const std::string& path);

class DocumentReader {
 public:
  // json_key and separator_line as in PrepareOptions.
  DocumentReader(const std::string& path, std::string json_key, std::optional<std::string> separator_line);

  // The next document, or nothing at the end. A line that is no JSON object with that key: DataError "FILE:LINE: ...".
  std::optional<std::string> next();

  const std::string& path() const { return file_.path(); }
  std::int64_t bytes_done() const { return static_cast<std::int64_t>(at_); }
  std::int64_t bytes_total() const { return file_.size(); }

 private:
  std::string_view next_line();  // with its line end; empty at the end of the file
  std::optional<std::string> next_text();
  std::optional<std::string> next_json();
  std::string text_of(std::string_view line) const;

  MappedFile file_;
  InputKind kind_;
  std::string json_key_;
  std::optional<std::string> separator_;
  std::size_t at_ = 0;
  std::int64_t line_number_ = 0;
};

}  // namespace trident
