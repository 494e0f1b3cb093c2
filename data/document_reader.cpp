#include "data/document_reader.h"

#include <utility>

#include "core/check.h"
#include "core/json_reader.h"

namespace trident {

namespace {

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

}  // namespace

InputKind input_kind(const std::string& path) {
  for (const std::string_view ending : {".gz", ".zst", ".xz", ".bz2", ".zip"}) {
    if (path.ends_with(ending)) throw DataError(fmt::format("{}: compressed input is not read; decompress it first", path));
  }
  return path.ends_with(".jsonl") || path.ends_with(".json") ? InputKind::kJsonLines : InputKind::kText;
}

DocumentReader::DocumentReader(const std::string& path, std::string json_key, std::optional<std::string> separator_line)
    : file_(path), kind_(input_kind(path)), json_key_(std::move(json_key)), separator_(std::move(separator_line)) {}

std::optional<std::string> DocumentReader::next() { return kind_ == InputKind::kText ? next_text() : next_json(); }

std::string_view DocumentReader::next_line() {
  const std::string_view rest = file_.text().substr(at_);
  const std::size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end == std::string_view::npos ? end : end + 1);
  at_ += line.size();
  line_number_ += line.empty() ? 0 : 1;
  return line;
}

std::optional<std::string> DocumentReader::next_text() {
  if (!separator_) {
    if (at_ == file_.text().size()) return std::nullopt;
    at_ = file_.text().size();
    return std::string(file_.text());
  }
  while (at_ < file_.text().size()) {
    const std::size_t begin = at_;
    std::size_t end = begin;
    for (std::string_view line = next_line(); !line.empty(); line = next_line()) {
      if (without_line_end(line) == *separator_) break;
      end = at_;
    }
    const std::string_view document = file_.text().substr(begin, end - begin);
    if (!is_blank(document)) return std::string(document);
  }
  return std::nullopt;
}

std::optional<std::string> DocumentReader::next_json() {
  for (std::string_view line = next_line(); !line.empty(); line = next_line()) {
    if (!is_blank(line)) return text_of(without_line_end(line));
  }
  return std::nullopt;
}

std::string DocumentReader::text_of(std::string_view line) const {
  const auto refuse = [&](const std::string& what) {
    throw DataError(fmt::format("{}:{}: {}; expected one JSON object a line with a string under \"{}\"", file_.path(), line_number_,
                                what, json_key_));
  };
  JsonValue object;
  try {
    object = parse_json(line, file_.path(), {.comments = JsonComments::kRefused, .max_bytes = line.size(), .blame = ExitCode::kData});
  } catch (const DataError&) {
    refuse("not valid JSON");
  }
  if (!object.is_object()) refuse("not a JSON object");
  const JsonValue* text = object.find(json_key_);
  if (text == nullptr) refuse(fmt::format("no key \"{}\"", json_key_));
  if (!text->is_string()) refuse(fmt::format("\"{}\" is not a string", json_key_));
  return text->as_string();
}

}  // namespace trident
