#include "data/document_reader.h"

#include <algorithm>
#include <charconv>
#include <new>
#include <utility>

#include "core/json_reader.h"
#include "core/json_scanner.h"

namespace trident {

namespace {

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// Nothing: an element is no integer of 32 bits.
std::optional<std::vector<std::int32_t>> ids_of(JsonScanner& scanner) {
  std::vector<std::int32_t> ids;
  bool all = true;
  scanner.items([&] {
    const std::string_view text = scanner.skip();
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    all = all && error == std::errc() && end == text.data() + text.size();
    ids.push_back(id);
  });
  return all ? std::optional(std::move(ids)) : std::nullopt;
}

}  // namespace

void refuse_without_memory(std::string_view path, std::int64_t line) {
  throw DataError(fmt::format("{}:{}: out of memory for the document that begins here; use fewer --workers, divide the document, "
                              "or lower --max-document-bytes to find those which are too long", path, line));
}

DocumentReader::DocumentReader(const InputFile& input, std::optional<std::string> separator_line, const LineLimits& limits,
                               std::function<void()> waiting)
    : lines_(open_byte_stream(input, std::move(waiting)), input.path, limits),
      path_(input.path),
      kind_(input.kind),
      max_document_bytes_(limits.document_bytes),
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
    if (all.empty()) return std::nullopt;
    RawDocument document{.bytes = std::string(all)};
    lines_.trim();
    return document;
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
    if (is_blank(line)) continue;
    RawDocument document{.bytes = std::string(without_line_end(line)), .line = lines_.line_number()};
    lines_.trim();
    return document;
  }
  return std::nullopt;
}

namespace {

// Which flag reads a line that has such a key in place of a text.
std::string_view flag_for(std::string_view key) {
  if (key == "messages" || key == "conversations" || key == "completion") return "--chat reads conversations";
  if (key == "chosen" || key == "rejected") return "--preference reads pairs of answers";
  if (key == "instruction") return "--chat reads it once it is written as prompt and completion";
  return "";
}

}  // namespace

std::string_view flag_for_lines_of(const std::string& path) {
  try {
    const InputFile input = identify_input(path);
    const std::optional<RawDocument> line =
        input.kind == InputKind::kJsonLines ? DocumentReader(input, {}, {1 << 20, 1 << 20}).next() : std::nullopt;
    const JsonValue row = line ? parse_json(line->bytes, path) : JsonValue();
    for (const std::string_view key : {"messages", "conversations", "completion", "chosen"})
      if (row.is_object() && row.find(key) != nullptr) return flag_for(key).substr(0, flag_for(key).find(' '));
  } catch (const Error&) {  // whoever prepares it is told
  }
  return "";
}

JsonLineText text_of_json_line(const RawDocument& line, const std::string& path, const std::string& json_key) {
  const auto refuse = [&](const std::string& what) {
    throw DataError(fmt::format("{}:{}:1: {}; expected one JSON object a line with a string under {}", path, line.line, what,
                                in_quotes(json_key)));
  };
  std::optional<JsonLineText> found;
  std::string partial;  // the member that takes ids out of the loss
  std::string_view flag;  // that reads such a line
  bool is_object = false, is_other = false;  // is_other: what json_key has is no string
  try {
    JsonScanner scanner(line.bytes, path,
                        {.comments = false,
                         .max_bytes = line.bytes.size(),
                         .blame = ExitCode::kData,
                         .replaces_surrogates = true,
                         .first_line = line.line});
    is_object = scanner.kind() == JsonValue::Kind::kObject;
    if (!is_object) scanner.skip();
    else scanner.members([&](const std::string& key) {
      if (flag.empty()) flag = flag_for(key);
      const bool labels = key == "labels",
                 marks = labels || key == "completion_mask" || key == "assistant_masks" || key == "attention_mask";
      if ((key == json_key || marks) && scanner.kind() == JsonValue::Kind::kArray) {
        auto ids = ids_of(scanner);
        if (key != json_key) {
          if (ids && std::ranges::find(*ids, labels ? -100 : 0) != ids->end()) partial = key;
          return;
        }
        is_other = !ids;
        if (ids) found = {.ids = std::move(ids)};
        return;
      }
      if (key != json_key || scanner.kind() != JsonValue::Kind::kString) {
        is_other = is_other || key == json_key;
        scanner.skip();
        return;
      }
      const std::int64_t before = scanner.num_replaced();
      found = {.text = scanner.string()};
      found->lone_surrogates = scanner.num_replaced() - before;
    });
    scanner.end();
  } catch (DataError& error) {
    error.add_context(fmt::format("; expected one JSON object a line with a string under {}", in_quotes(json_key)));
    throw;
  }
  if (!is_object) refuse("not a JSON object");
  const std::string reads = flag.empty() ? "" : fmt::format(", and {}", flag);
  if (!found)
    refuse(is_other ? fmt::format("{} is neither a string nor a list of token ids{}", in_quotes(json_key), reads)
                    : fmt::format("no key {}{}", in_quotes(json_key), reads));
  if (found->ids && !partial.empty())
    throw UnfitLineError(fmt::format("{}:{}:1: {} takes ids out of the loss, and here every id counts; tokenize without padding, "
                                     "or prepare the texts by --chat",
                                     path, line.line, in_quotes(partial)));
  return std::move(*found);
}

}  // namespace trident
