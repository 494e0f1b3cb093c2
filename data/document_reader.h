// The documents of one input file, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "data/input_file.h"
#include "data/line_reader.h"

namespace trident {

// A document as it was read. Text: its text. JSON lines: the line, whose text text_of_json_line finds on whichever thread has
// time.
struct RawDocument {
  std::string bytes;
  std::int64_t line = 1;  // of the file where it begins, from 1
};

class DocumentReader {
 public:
  // separator_line as in PrepareOptions; `waiting` as in open_byte_stream.
  DocumentReader(const InputFile& input, std::optional<std::string> separator_line, const LineLimits& limits,
                 std::function<void()> waiting = {});

  // The next document, or nothing at the end. DataError: as ByteStream; a document that is too long, or that memory has no room
  // for.
  std::optional<RawDocument> next();

  std::int64_t bytes_done() const { return lines_.bytes_consumed(); }  // of the file as stored

 private:
  std::optional<RawDocument> next_text();
  std::optional<RawDocument> next_json();

  LineReader lines_;
  std::string path_;
  InputKind kind_;
  std::int64_t max_document_bytes_;
  std::optional<std::string> separator_;
};

// A line is well formed and does not fit the tokenizer or the flags. Then others hardly do, and leaving it out hides that.
class UnfitLineError : public DataError {
 public:
  using DataError::DataError;
};

// Turns bad_alloc into an error that names the document.
[[noreturn]] void refuse_without_memory(std::string_view path, std::int64_t line);

struct JsonLineText {
  std::string text = {};
  std::optional<std::vector<std::int32_t>> ids = {};  // in place of the text
  std::int64_t lone_surrogates = 0;  // of it, which are U+FFFD
};

// Returns the flag of data prepare that reads a file of JSON lines, by its first line: "--chat", "--preference", or "" for texts
// and for what cannot be read.
std::string_view flag_for_lines_of(const std::string& path);

// The string, or the list of token ids, under `json_key` of a line of file `path`; other members are read over. A line that is no
// JSON object with such a member: DataError "FILE:LINE:COLUMN: ...".
JsonLineText text_of_json_line(const RawDocument& line, const std::string& path, const std::string& json_key);

}  // namespace trident
