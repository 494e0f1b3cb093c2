#include "data/document_reader.h"

#include <cstdint>
#include <new>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "core/json_reader.h"

namespace trident {

namespace {

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

}  // namespace

void refuse_without_memory(std::string_view path, std::int64_t line) {
  throw DataError(fmt::format("{}:{}: out of memory for the document that begins here; use fewer --workers, divide the document, "
                              "or lower --max-document-bytes to find those which are too long", path, line));
}

DocumentReader::DocumentReader(const InputFile& input, std::optional<std::string> separator_line, std::int64_t max_document_bytes)
    : lines_(open_byte_stream(input), input.path, max_document_bytes),
      path_(input.path),
      kind_(input.kind),
      max_document_bytes_(max_document_bytes),
      separator_(std::move(separator_line)) {}

std::optional<RawDocument> DocumentReader::next() {
  const std::int64_t line = lines_.line_number() + 1;
  try {
    return kind_ == InputKind::kText ? next_text() : next_json();
  } catch (const std::bad_alloc&) {
    refuse_without_memory(path_, line);
  }
}

std::optional<RawDocument> DocumentReader::next_text() {
  if (!separator_) {
    const std::string_view all = lines_.rest();
    return all.empty() ? std::nullopt : std::optional(RawDocument{.bytes = std::string(all)});
  }
  for (bool ended = false; !ended;) {
    RawDocument document{.bytes = {}, .line = lines_.line_number() + 1};
    for (;;) {
      const std::string_view line = lines_.next();
      ended = line.empty();
      if (ended || without_line_end(line) == *separator_) break;
      const std::size_t limit = static_cast<std::size_t>(max_document_bytes_);
      if (line.size() > limit - document.bytes.size()) refuse_long_document(path_, document.line, limit);
      document.bytes += line;
    }
    if (!is_blank(document.bytes)) return document;
  }
  return std::nullopt;
}

std::optional<RawDocument> DocumentReader::next_json() {
  for (std::string_view line = lines_.next(); !line.empty(); line = lines_.next()) {
    if (!is_blank(line)) return RawDocument{.bytes = std::string(without_line_end(line)), .line = lines_.line_number()};
  }
  return std::nullopt;
}

std::string text_of_json_line(const RawDocument& line, const std::string& path, const std::string& json_key) {
  const auto refuse = [&](const std::string& what) {
    throw DataError(
        fmt::format("{}:{}: {}; expected one JSON object a line with a string under \"{}\"", path, line.line, what, json_key));
  };
  JsonValue object;
  try {
    object = parse_json(line.bytes, path,
                        {.comments = JsonComments::kRefused, .max_bytes = line.bytes.size(), .blame = ExitCode::kData});
  } catch (const DataError&) {
    refuse("not valid JSON");
  }
  if (!object.is_object()) refuse("not a JSON object");
  const JsonValue* text = object.find(json_key);
  if (text == nullptr) refuse(fmt::format("no key \"{}\"", json_key));
  if (!text->is_string()) refuse(fmt::format("\"{}\" is not a string", json_key));
  return text->as_string();
}

}  // namespace trident
