#include "data/tokenizer/vocabulary_files.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "core/check.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/json_scanner.h"
#include "data/tokenizer/built_in_files.h"
#include "data/tokenizer/json_part.h"

namespace trident {
namespace {

constexpr std::size_t kMaxSquares = std::size_t{1} << 29;  // of tokens' bytes: all splits of all tokens are looked up
constexpr std::size_t kMaxRankValues = 16;
constexpr std::string_view kRankRemedy = "copy the file again";

// tekken.json before it named them itself.
constexpr std::string_view kTekkenControls[] = {
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
    "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"};

// Nothing where it is malformed or stands for no byte.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  for (std::size_t at = 0; at < text.size(); at += 4) {
    std::uint32_t word = 0;
    const std::size_t digits = at + 4 == text.size() ? 4 - padding : 4;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t digit = i < digits ? kDigits.find(text[at + i]) : 0;
      if (digit == kDigits.npos) return std::nullopt;
      word = word << 6 | static_cast<std::uint32_t>(digit);
    }
    for (std::size_t i = 0; i + 1 < digits; ++i) bytes += static_cast<char>(word >> (16 - 8 * i) & 0xFF);
  }
  return bytes;
}

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number >= kMaxTokens) return std::nullopt;
  return number;
}

struct Rank {
  std::string bytes;
  std::int64_t id;
};

std::optional<Rank> rank_of(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  std::optional<std::string> bytes = from_base64(line.substr(0, space));
  const std::optional<std::int64_t> id = number_of(line.substr(space + 1));
  if (!bytes || !id) return std::nullopt;
  return Rank{std::move(*bytes), *id};
}

void add_rank(const Rank& rank, const std::string& where, TokenTexts& tokens) {
  if (tokens.find(rank.bytes) >= 0) throw DataError(fmt::format("{}: the token occurs twice; {}", where, kRankRemedy));
  if (!tokens.add(rank.bytes, static_cast<std::size_t>(rank.id)))
    throw DataError(fmt::format("{}: id {} occurs twice; {}", where, rank.id, kRankRemedy));
}

void check_bytes(const TokenTexts& tokens, const std::string& path) {
  std::size_t squares = 0;
  for (std::size_t id = 0; id < tokens.of_id().num_ids(); ++id) squares += tokens.of_id()[id].size() * tokens.of_id()[id].size();
  if (squares > kMaxSquares) throw DataError(fmt::format("{}: more long tokens than a vocabulary has; {}", path, kRankRemedy));
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    if (tokens.find({&byte, 1}) < 0) throw DataError(fmt::format("{}: no token for the byte 0x{:02x}; {}", path, b, kRankRemedy));
  }
}

}  // namespace

bool is_rank_file(std::string_view content) {
  content = content.substr(0, 4096);
  return rank_of(take_line(content)).has_value();
}

ChainParts read_ranks(std::string_view content, const std::string& path) {
  ChainParts parts{.name = path, .source = path, .kind = "tiktoken ranks", .is_ranks = true};
  parts.tokens = TokenTexts(content.size() / 2);
  std::int64_t number = 0;
  while (!content.empty()) {
    const std::string_view line = take_line(content);
    ++number;
    if (line.empty()) continue;
    const std::optional<Rank> rank = rank_of(line);
    if (!rank)
      throw DataError(fmt::format("{}:{}: {} is not base64, a space and an id below {}; {}", path, number, in_quotes(line),
                                  kMaxTokens, kRankRemedy));
    add_rank(*rank, fmt::format("{}:{}", path, number), parts.tokens);
  }
  check_bytes(parts.tokens, path);
  return parts;
}

void read_special_file(const std::string& path, ChainParts& parts) {
  const std::string text = read_file(path);
  const JsonValue value = parse_json(text, path, rules_for(text));
  JsonPart file(value, "", path);
  for (const JsonMember& member : value.members()) {
    if (!member.value.is_integer() || member.value.as_integer() < 0 || member.value.as_integer() >= kMaxTokens ||
        member.key.empty())
      file.refuse(member.key, member.value, fmt::format("an id below {}", kMaxTokens));
    if (parts.tokens.of_id().has(static_cast<std::size_t>(member.value.as_integer())))
      file.refuse(member.key, member.value, "an id that no rank has");
    parts.added.push_back({.content = member.key, .id = static_cast<std::int32_t>(member.value.as_integer()), .special = true});
  }
}

void set_pattern(std::string_view name_or_text, const std::string& where, ChainParts& parts) {
  const auto known = std::ranges::find(known_patterns(), name_or_text, &KnownPattern::name);
  const bool is_name = known != known_patterns().end();
  const std::string_view pattern = is_name ? known->text : name_or_text;
  const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-'; };
  if (!is_name && std::ranges::all_of(name_or_text, is_plain)) {
    std::vector<std::string_view> names;
    for (const KnownPattern& one : known_patterns()) names.push_back(one.name);
    throw ConfigError(fmt::format("{} = {}: no pattern of this name; use {}, or an expression, \"(text)\" for a text", where,
                                  in_quotes(name_or_text), fmt::join(names, ", ")));
  }
  if (name_or_text.starts_with("qwen")) {
    parts.text.normalizers.push_back({.kind = TextStep::Kind::kForm});
    parts.steps.emplace_back("normalize NFC");
  }
  parts.text.splits.push_back({.pattern = piece_scanner(pattern, where, is_name ? known->dialect : PatternDialect::kFancyRegex)});
  parts.steps.push_back(line_of_split(pattern, "Isolated", false));
}

bool is_tekken(std::string_view content) {
  content = content.substr(0, 1 << 16);
  return content.find("\"default_num_special_tokens\"") != content.npos && content.find("\"default_vocab_size\"") != content.npos;
}

ChainParts read_tekken(std::string_view content, const std::string& path) {
  ChainParts parts{.name = path, .source = path, .kind = "tekken.json", .is_ranks = true};
  JsonScanner scanner(content, parts.source, rules_for(content));
  std::vector<Rank> ranks;
  JsonValue config = JsonValue::Object(), specials;
  std::size_t values_left = JsonRules().max_values;
  const auto rank_in = [&] {
    std::size_t left = kMaxRankValues;
    const JsonValue item = scanner.value(left);
    std::optional<std::string> token;
    if (const JsonValue& bytes = item.get("token_bytes"); bytes.is_string()) token = from_base64(bytes.as_string());
    if (!token || item.get("rank") != JsonValue(std::ssize(ranks)))
      throw DataError(fmt::format("{}: vocab[{}] has no token_bytes in base64, or a rank that is not its place; {}", path,
                                  ranks.size(), kRankRemedy));
    ranks.push_back({*token, 0});
  };
  if (scanner.kind() != JsonValue::Kind::kObject) throw DataError(fmt::format("{}: no JSON object; {}", path, kRankRemedy));
  scanner.members([&](const std::string& key) {
    if (key == "vocab" && scanner.kind() == JsonValue::Kind::kArray) scanner.items(rank_in);
    else if (key == "config") config = scanner.value(values_left);
    else if (key == "special_tokens") specials = scanner.value(values_left);
    else scanner.skip();
  });
  scanner.end();

  JsonPart fields(config, "config", parts.source);
  const std::string pattern = fields.text("pattern");
  const std::int64_t size = fields.count("default_vocab_size", 0), controls = fields.count("default_num_special_tokens", 0);
  if (controls > size || size >= kMaxTokens || size - controls > std::ssize(ranks))
    fields.refuse("default_vocab_size", JsonValue(size),
                  fmt::format("a size of at most {} ranks and the control tokens", ranks.size()));
  set_pattern(pattern, fields.where("pattern"), parts);
  std::vector<std::string> named(static_cast<std::size_t>(controls));
  if (specials.is_null()) std::ranges::copy_n(kTekkenControls, std::min(std::ssize(kTekkenControls), controls), named.begin());
  for (std::size_t i = 0; specials.is_array() && i < specials.items().size(); ++i) {
    JsonPart item(specials.items()[i], fmt::format("special_tokens[{}]", i), parts.source);
    const std::int64_t rank = item.count("rank", static_cast<std::int64_t>(i));
    if (rank >= controls || !named[static_cast<std::size_t>(rank)].empty())
      item.refuse("rank", JsonValue(rank), fmt::format("a rank below {} that no other token has", controls));
    named[static_cast<std::size_t>(rank)] = item.text("token_str");
  }
  for (std::int64_t i = 0; i < controls; ++i) {
    const std::string& name = named[static_cast<std::size_t>(i)];
    const std::string text = name.empty() ? fmt::format("<SPECIAL_{}>", i) : name;
    parts.added.push_back({.content = text, .id = static_cast<std::int32_t>(i), .special = true});
    if (text == "<s>") parts.special.before = {static_cast<std::int32_t>(i)};
  }
  parts.bos = "<s>", parts.eos = {"</s>"}, parts.pad = "<pad>";
  for (std::int64_t i = 0; i < size - controls; ++i) {
    Rank& rank = ranks[static_cast<std::size_t>(i)];
    rank.id = i + controls;
    add_rank(rank, fmt::format("{}: vocab[{}]", path, i), parts.tokens);
  }
  check_bytes(parts.tokens, path);
  return parts;
}

ChainParts cl100k_parts() {
  ChainParts parts = read_ranks(cl100k_ranks(), "cl100k (built in)");
  set_pattern("cl100k", "", parts);
  std::int32_t id = 100257;
  for (const char* content : {"<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|endofprompt|>"})
    parts.added.push_back({.content = content, .id = id++, .special = true});
  parts.added.back().id = 100276;
  return parts;
}

}  // namespace trident
