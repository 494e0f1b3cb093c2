#include "data/tokenizer/vocabulary_files.h"

#include <algorithm>

#include "core/check.h"
#include "core/printable.h"
#include "data/tokenizer/json_part.h"

namespace trident {
namespace {

constexpr std::size_t kShownId = 80;

}  // namespace

void read_vocab(JsonScanner& scanner, const std::string& source, TokenTexts& tokens) {
  scanner.members([&](const std::string& spelling) {
    std::size_t values_left = 1;
    const bool is_number = scanner.kind() == JsonValue::Kind::kNumber;
    const JsonValue id = is_number ? scanner.value(values_left) : JsonValue(std::string(scanner.skip().substr(0, kShownId)));
    const std::int64_t number = id.is_integer() ? id.as_integer() : -1;
    if (number < 0 || number >= kMaxTokens)
      throw DataError(fmt::format("{}: token {} has id {}, expected 0 .. {}; use the files of one tokenizer", source,
                                  in_quotes(spelling), id.is_string() ? on_one_line(id.as_string()) : to_json_text(id),
                                  kMaxTokens - 1));
    if (!tokens.add(spelling, static_cast<std::size_t>(number)))
      throw DataError(fmt::format("{}: id {} occurs twice; use the files of one tokenizer", source, number));
  });
}

std::string_view take_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string_view add_merge(std::string_view left, std::string_view right, ChainParts& parts) {
  const std::int32_t left_id = parts.tokens.find(left), right_id = parts.tokens.find(right);
  if (left_id < 0 || right_id < 0) return "a part is no token";
  const std::size_t prefix = std::min(parts.rules.prefix.size(), right.size());
  const std::int32_t result = parts.tokens.find(std::string(left).append(right.substr(prefix)));
  if (result < 0) return "the result is no token";
  parts.merges.push_back({left_id, right_id, result});
  return "";
}

ChainParts gpt2_parts() {
  ChainParts parts{.name = {}, .source = {}, .kind = "vocab.json and merges.txt"};
  parts.text.splits.push_back({.pattern = piece_scanner(kGpt2Pattern, "")});
  parts.steps.push_back(line_of_split(kGpt2Pattern, "Isolated", false));
  parts.of_token = {{.kind = TextStep::Kind::kBytes}};
  parts.added = plain_added_tokens();
  return parts;
}

void read_vocabulary(const VocabularyFiles& files, ChainParts& parts) {
  parts.tokens = TokenTexts(files.vocab_json.size());
  parts.merges.clear();
  try {
    JsonScanner scanner(files.vocab_json, files.vocab_source, rules_for(files.vocab_json));
    if (scanner.kind() != JsonValue::Kind::kObject)
      throw DataError(fmt::format("{}: not a JSON object of token: id; use the files of one tokenizer", files.vocab_source));
    read_vocab(scanner, files.vocab_source, parts.tokens);
    scanner.end();
  } catch (DataError& error) {
    if (std::string_view(error.what()).find("use the files") == std::string_view::npos)
      error.add_context("; not a JSON object of token: id; use the files of one tokenizer");
    throw;
  }
  std::int64_t line_number = 0;
  for (std::string_view rest = files.merges_txt; !rest.empty();) {
    const std::string_view line = take_line(rest);
    ++line_number;
    if (line.empty() || line.starts_with("#version")) continue;
    const std::size_t space = line.find(' ');
    const auto refuse_line = [&](std::string_view what) {
      throw DataError(
          fmt::format("{}:{}: {} {}; use the files of one tokenizer", files.merges_source, line_number, in_quotes(line), what));
    };
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      refuse_line("is not \"left right\"");
    if (const std::string_view wrong = add_merge(line.substr(0, space), line.substr(space + 1), parts); !wrong.empty())
      refuse_line(fmt::format("cannot be merged: {} of {}", wrong, files.vocab_source));
  }
}

}  // namespace trident
