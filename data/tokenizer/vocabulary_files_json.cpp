#include "data/tokenizer/vocabulary_files.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/file_io.h"
#include "core/json_scanner.h"
#include "core/printable.h"
#include "data/tokenizer/json_part.h"
#include "data/tokenizer/pattern.h"

namespace trident {
namespace {

constexpr std::size_t kMaxMergeValues = 8, kShownMerge = 80;
constexpr std::size_t kMaxSteps = 64;  // normalizers, splitters, decoders, or tokens around a text
constexpr std::size_t kMaxPatterns = 16384, kMaxAffixes = 256;  // bytes, of all of them

// The type of a component; old files leave it out where a list of parts says it.
std::string type_of(JsonPart& part, std::string_view list_of_sequence) {
  const std::string type = part.text("type", "");
  return type.empty() && part.find(list_of_sequence) != nullptr ? "Sequence" : type;
}

// Reads null, one component, or those of a Sequence in their order.
void read_parts(const JsonValue* value, const std::string& path, std::string_view list, const std::string& file,
                FunctionRef<void(const std::string& type, JsonPart& part)> read) {
  if (value == nullptr || value->is_null()) return;
  JsonPart part(*value, path, file);
  const std::string type = type_of(part, list);
  if (type != "Sequence") {
    read(type, part);
    part.end();
    return;
  }
  const JsonValue::Array& items = part.list(list);
  part.end();
  for (std::size_t i = 0; i < items.size(); ++i) read_parts(&items[i], fmt::format("{}.{}[{}]", path, list, i), list, file, read);
}

// A text for a regular expression that matches it alone.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view(R"(\^$.|?*+()[]{}-/&~#)").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

struct PatternText {
  std::string text;
  bool is_regex;
};
PatternText pattern_of(JsonPart& part) {
  JsonPart pattern = part.part("pattern", "an object with Regex or String");
  const bool is_regex = pattern.find("Regex") != nullptr;
  if (!is_regex && pattern.find("String") == nullptr)
    part.refuse("pattern", *part.find("pattern"), "an object with Regex or String");
  PatternText found{pattern.text(is_regex ? "Regex" : "String"), is_regex};
  pattern.end();
  return found;
}

SharedScanner scanner_of(std::string_view pattern, const std::string& where, ChainParts& parts) {
  if ((parts.pattern_bytes += pattern.size()) > kMaxPatterns)
    throw DataError(fmt::format("{}: more than {} bytes of patterns in one file; use shorter ones", where, kMaxPatterns));
  return piece_scanner(pattern, where);
}

// Reads a Replace. Where its pattern matches nothing at all, the library 0.23.3 repeats bytes of a text or panics.
PatternText read_replace(JsonPart& part, TextStep& step, ChainParts& parts) {
  PatternText pattern = pattern_of(part);
  const std::string key = pattern.is_regex ? "pattern.Regex" : "pattern.String", where = part.where(key);
  step.kind = TextStep::Kind::kReplace;
  step.content = part.text("content");
  const bool may_be_empty = pattern.is_regex
                                ? parse_pattern(pattern.text, where, PatternDialect::kOniguruma).root.lengths().least == 0
                                : pattern.text.empty();
  if (may_be_empty) part.refuse(key, pattern.text, "a pattern that matches no empty text");
  if (pattern.is_regex) step.pattern = scanner_of(pattern.text, where, parts);
  else step.found = pattern.text;
  return pattern;
}

void add_normalizer(const std::string& type, JsonPart& part, ChainParts& parts) {
  using Kind = TextStep::Kind;
  constexpr std::pair<std::string_view, NormalForm> kForms[] = {
      {"NFC", NormalForm::kNfc}, {"NFD", NormalForm::kNfd}, {"NFKC", NormalForm::kNfkc}, {"NFKD", NormalForm::kNfkd}};
  TextStep step{.kind = Kind::kForm};
  std::string line = "normalize " + type;
  if (const auto form = std::ranges::find(kForms, type, &std::pair<std::string_view, NormalForm>::first);
      form != std::end(kForms)) {
    step.form = form->second;
  } else if (type == "Lowercase") {
    step.kind = Kind::kLowercase;
  } else if (type == "StripAccents") {
    step.kind = Kind::kStripAccents;
  } else if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    step.content = part.text("prepend");
    if (step.content.empty()) return;
    line += " " + in_quotes(step.content, step.content.size());
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    step.left = part.flag("strip_left", true), step.right = part.flag("strip_right", true);
    if (!step.left && !step.right) return;
    line += fmt::format("{}{}", step.left ? " left" : "", step.right ? " right" : "");
  } else if (type == "Replace") {
    const PatternText pattern = read_replace(part, step, parts);
    if (!pattern.is_regex && pattern.text == step.content) return;
    line += fmt::format(" {}{} by {}", pattern.is_regex ? "pattern " : "", in_quotes(pattern.text, pattern.text.size()),
                        in_quotes(step.content, step.content.size()));
  } else if (type == "BertNormalizer") {
    bool changes = false;  // strip_accents of null is lowercase's
    for (const char* key : {"clean_text", "handle_chinese_chars", "lowercase"}) changes = part.flag(key, true) || changes;
    if (part.flag("strip_accents", false) || changes) part.refuse("type", type, "one that changes nothing");
    return;
  } else {
    part.refuse("type", type, "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace or Sequence");
  }
  parts.text.normalizers.push_back(std::move(step));
  parts.steps.push_back(std::move(line));
}

// The library's punctuation: ASCII's, and that of an older Unicode.
constexpr std::string_view kPunctuationPattern =
    "[[\\p{P}$+<=>^`|~\u166D\U000111C9]&&[^"
    "\u061D\u09FD\u0A76\u0C77-\u0C84\u1B4E-\u1B4F\u1B7D-\u1B7F\u2E43-\u2E63\U00010D6E\U00010EAD-\U00010ED0"
    "\U00010F55-\U00010F89\U000113D4-\U000113D8\U0001144B-\U0001145D\U00011660-\U0001166C\U000116B9\U0001183B"
    "\U00011944-\U00011946\U000119E2\U00011A3F-\U00011A46\U00011A9A-\U00011AA2\U00011B00-\U00011B09\U00011BE1"
    "\U00011C41-\U00011C71\U00011EF7-\U00011EF8\U00011F43-\U00011F4F\U00011FFF\U00012FF1-\U00012FF2"
    "\U00016D6D-\U00016D6F\U00016E97-\U00016E9A\U00016FE2\U0001E5FF\U0001E95E-\U0001E95F]]";

// In the order of SplitStep::Behavior.
constexpr std::string_view kBehaviors[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};

void add_split(std::string_view pattern, std::string_view behavior, bool invert, const std::string& where, ChainParts& parts) {
  SplitStep step{.pattern = scanner_of(pattern, where, parts)};
  step.behavior = static_cast<SplitStep::Behavior>(std::ranges::find(kBehaviors, behavior) - kBehaviors);
  step.invert = invert && behavior != "Isolated" && behavior != "Contiguous";  // those keep both
  parts.steps.push_back(line_of_split(pattern == kPunctuationPattern ? "punctuation" : pattern, behavior, step.invert));
  parts.text.splits.push_back(std::move(step));
}

void add_pre_tokenizer(const std::string& type, JsonPart& part, ChainParts& parts) {
  const std::string where = part.where("type");
  if (type == "ByteLevel") {
    if (parts.rules.over_bytes) part.refuse("type", type, "one ByteLevel alone");
    parts.rules.over_bytes = true;
    if (part.flag("add_prefix_space", true)) {
      parts.text.splits.push_back({.kind = SplitStep::Kind::kPrefixSpace});
      parts.steps.emplace_back("a space before each stretch that does not begin with one");
    }
    part.flag("trim_offsets", true);
    if (part.flag("use_regex", true)) add_split(kGpt2Pattern, "Isolated", false, where, parts);
    parts.text.splits.push_back({.kind = SplitStep::Kind::kSpell});
    parts.steps.emplace_back("bytes as characters");
  } else if (type == "Split") {
    const PatternText pattern = pattern_of(part);
    const std::string behavior = part.one_of("behavior", kBehaviors);
    const bool invert = part.flag("invert", false);
    const std::string expression = pattern.is_regex ? pattern.text : escaped(pattern.text);
    add_split(expression, behavior, invert, part.where("pattern"), parts);
  } else if (type == "Digits") {
    add_split(R"(\p{N})", part.flag("individual_digits", false) ? "Isolated" : "Contiguous", false, where, parts);
  } else if (type == "Punctuation") {
    add_split(kPunctuationPattern, part.one_of("behavior", kBehaviors, "Isolated"), false, where, parts);
  } else if (type == "Whitespace") {
    add_split("[\\w\u200C\u200D]+|[^\\w\\s\u200C\u200D]+", "Removed", true, where, parts);  // Rust counts the joiners to \w
  } else if (type == "WhitespaceSplit") {
    add_split(R"(\s)", "Removed", false, where, parts);
  } else {
    part.refuse("type", type, "ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit or Sequence");
  }
}

// Bytes need no spelling where nothing sees it.
void drop_spelling_at_end(ChainParts& parts) {
  if (parts.text.splits.empty() || parts.text.splits.back().kind != SplitStep::Kind::kSpell) return;
  parts.text.splits.pop_back();
  parts.steps.pop_back();
}

// Ids that a template puts around the text.
void add_post_processor(const std::string& type, JsonPart& part, SpecialIds& special) {
  if (type == "ByteLevel") {
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) part.flag(key, true);
    return;
  }
  const auto id_in = [&](const char* key, const JsonValue& value, const JsonValue& all) {
    if (value.is_integer() && value.as_integer() >= 0 && value.as_integer() < kMaxTokens)
      return static_cast<std::int32_t>(value.as_integer());
    part.refuse(key, all, "token ids");
  };
  // The library takes what the first one made for a pair, or ends itself.
  if (!special.before.empty() || !special.after.empty()) part.refuse("type", type, "one that adds tokens");
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    for (const char* key : {"trim_offsets", "add_prefix_space"}) part.flag(key, true);
    for (const char* key : {"cls", "sep"}) {
      const JsonValue::Array& both = part.list(key);
      if (both.size() != 2) part.refuse(key, both, "a token and its id");
      (key[0] == 'c' ? special.before : special.after).push_back(id_in(key, both[1], both));
    }
    return;
  }
  if (type != "TemplateProcessing")
    part.refuse("type", type, "ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing or Sequence");
  const JsonValue::Array& single = part.list("single");
  const JsonValue* const known = part.find("special_tokens");
  part.find("pair");
  if (single.size() > kMaxSteps)
    part.refuse("single", fmt::format("{} pieces", single.size()), fmt::format("at most {} pieces", kMaxSteps));
  std::int64_t texts = 0;
  for (const JsonValue& piece : single) {
    const JsonValue* const token = piece.find("SpecialToken");
    const JsonValue* const id = token == nullptr ? nullptr : token->find("id");
    if (token == nullptr && piece.find("Sequence") != nullptr) {
      ++texts;
      continue;
    }
    const JsonValue* const entry = id == nullptr || !id->is_string() || known == nullptr ? nullptr : known->find(id->as_string());
    const JsonValue* const ids = entry == nullptr ? nullptr : entry->find("ids");
    if (ids == nullptr || !ids->is_array()) part.refuse("single", piece, "Sequence, or SpecialToken that special_tokens has");
    for (const JsonValue& value : ids->items()) {
      (texts == 0 ? special.before : special.after).push_back(id_in("special_tokens", value, *ids));
      if (special.before.size() + special.after.size() > kMaxSteps)
        part.refuse("single", piece, fmt::format("at most {} tokens around a text", kMaxSteps));
    }
  }
  if (texts != 1) part.refuse("single", fmt::format("a template with the text {} times", texts), "one with it once");
}

void read_decoder(const JsonValue* value, const std::string& file, ChainParts& parts) {
  using Kind = TextStep::Kind;
  if (value == nullptr || value->is_null()) {
    if (parts.rules.over_bytes) parts.of_token = {{.kind = Kind::kBytes}};
    else parts.between = " ";
    return;
  }
  bool is_one = false;  // the tokens have become one text
  read_parts(value, "decoder", "decoders", file, [&](const std::string& type, JsonPart& part) {
    if (parts.of_token.size() + parts.of_text.size() == kMaxSteps)
      part.refuse("type", type, fmt::format("at most {} decoders", kMaxSteps));
    TextStep step{.kind = Kind::kBytes};
    bool joins = false;
    if (type == "ByteLevel") {
      for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) part.flag(key, true);
      joins = true;
    } else if (type == "ByteFallback") {
      step.kind = Kind::kFallback;
    } else if (type == "Fuse") {
      is_one = true;
      return;
    } else if (type == "Replace") {
      read_replace(part, step, parts);
    } else if (type == "Strip") {
      step.kind = Kind::kStripText;
      step.found = part.text("content");
      if (step.found.empty()) part.refuse("content", step.found, "a character");
      step.begin = static_cast<std::size_t>(part.count("start", 0)), step.end = static_cast<std::size_t>(part.count("stop", 0));
    } else {
      part.refuse("type", type, "ByteLevel, ByteFallback, Fuse, Replace, Strip or Sequence");
    }
    (is_one ? parts.of_text : parts.of_token).push_back(std::move(step));
    is_one = is_one || joins;
  });
}

// A list of "left right" strings, or of pairs, which newer files have.
void read_merges(JsonScanner& scanner, const std::string& file, ChainParts& parts) {
  scanner.items([&] {
    std::size_t values_left = kMaxMergeValues;
    const JsonValue merge = scanner.value(values_left);
    const auto refuse_merge = [&](std::string_view what) {
      throw DataError(fmt::format("{}:{}:{}: {} in model.merges {}; the file is damaged; copy it again", file, merge.line(),
                                  merge.column(), on_one_line(to_json_text(merge).substr(0, kShownMerge)), what));
    };
    if (merge.is_string() && merge.as_string().starts_with("#version")) return;
    std::string_view left, right;
    if (merge.is_array() && merge.items().size() == 2 && merge.items()[0].is_string() && merge.items()[1].is_string()) {
      left = merge.items()[0].as_string(), right = merge.items()[1].as_string();
    } else if (merge.is_string() && std::ranges::count(merge.as_string(), ' ') == 1) {
      const std::size_t space = merge.as_string().find(' ');
      left = std::string_view(merge.as_string()).substr(0, space), right = std::string_view(merge.as_string()).substr(space + 1);
    }
    if (left.empty() || right.empty()) refuse_merge("is no merge of two tokens");
    if (const std::string_view wrong = add_merge(left, right, parts); !wrong.empty())
      refuse_merge(fmt::format("cannot be merged: {}", wrong));
  });
}

// The file's values but for the tokens and merges of its model, which may be many: these go to `parts`.
class TokenizerJson {
 public:
  TokenizerJson(const std::string& file, ChainParts& parts) : file_(file), parts_(parts) {}

  JsonValue read(std::string_view text) {
    try {
      JsonScanner scanner(text, file_, rules_for(text));
      JsonValue root = read_root(scanner);
      scanner.end();
      return root;
    } catch (DataError& error) {
      if (std::string_view(error.what()).find("; ") == std::string_view::npos) error.add_context("; copy it again");
      throw;
    }
  }

  // Once the tokens and the prefix are known.
  void read_later_merges() {
    if (merges_) read_merges(*merges_, file_, parts_);
  }

 private:
  JsonValue read_root(JsonScanner& scanner) {
    std::size_t values_left = JsonRules().max_values;
    if (scanner.kind() != JsonValue::Kind::kObject) return scanner.value(values_left);
    JsonValue::Object root;
    scanner.members([&](const std::string& key) {
      root.push_back({key, {}});
      if (key == "model" && scanner.kind() == JsonValue::Kind::kObject) root.back().value = read_model(scanner, values_left);
      else root.back().value = scanner.value(values_left);
    });
    return root;
  }

  JsonValue read_model(JsonScanner& scanner, std::size_t& values_left) {
    JsonValue::Object model;
    scanner.members([&](const std::string& key) {
      model.push_back({key, {}});
      const JsonValue::Kind kind = scanner.kind();
      if (key == "vocab" && kind == JsonValue::Kind::kObject) {
        read_vocab(scanner, file_, parts_.tokens);
        model.back().value = JsonValue::Object();
      } else if (key == "merges" && kind == JsonValue::Kind::kArray) {
        merges_ = scanner;
        scanner.skip();
        model.back().value = JsonValue::Array();
      } else {
        model.back().value = scanner.value(values_left);
      }
    });
    return model;
  }

  const std::string& file_;
  ChainParts& parts_;
  std::optional<JsonScanner> merges_;  // where the list begins
};

void read_model(const JsonValue& value, TokenizerJson& json, ChainParts& parts) {
  JsonPart model(value, "model", parts.source);
  const JsonValue* const merges = model.find("merges");
  const std::string type = model.text("type", merges != nullptr ? "BPE" : "");  // old files have none
  if (type == "Unigram" || type == "WordPiece" || type == "WordLevel")
    throw DataError(
        fmt::format("{}: model.type is {}; only BPE is built; use a tokenizer with a BPE model", parts.source, in_quotes(type)));
  if (type != "BPE") model.refuse("type", type, "BPE");
  if (const JsonValue* dropout = model.find("dropout"); dropout != nullptr && !(dropout->is_number() && dropout->as_number() == 0))
    model.refuse("dropout", *dropout, "null or 0");
  parts.rules.ignore_merges = model.flag("ignore_merges", false);
  parts.rules.byte_fallback = model.flag("byte_fallback", false);
  parts.rules.fuse_unk = model.flag("fuse_unk", false);
  parts.rules.prefix = model.text("continuing_subword_prefix", "");
  parts.rules.suffix = model.text("end_of_word_suffix", "");
  if (parts.rules.prefix.size() + parts.rules.suffix.size() > kMaxAffixes)
    model.refuse("continuing_subword_prefix", parts.rules.prefix,
                 fmt::format("at most {} bytes of it and end_of_word_suffix", kMaxAffixes));
  const std::string unk = model.text("unk_token", "");
  if (const JsonValue* vocab = model.find("vocab"); vocab == nullptr || !vocab->is_object())
    model.refuse("vocab", vocab == nullptr ? JsonValue() : *vocab, "an object of token: id");
  if (merges == nullptr || !merges->is_array()) model.refuse("merges", merges == nullptr ? JsonValue() : *merges, "a list");
  model.end();
  json.read_later_merges();
  if (unk.empty()) return;
  const std::int32_t id = parts.tokens.find(unk);
  if (id >= 0) parts.rules.unk = id;
  else if (!parts.rules.over_bytes) model.refuse("unk_token", unk, "a token of model.vocab");
}

}  // namespace

AddedToken read_added_token(const JsonValue& item, const JsonValue* id, const std::string& where) {
  std::string content = item.text_at("content");
  if (content.empty() || id == nullptr || !id->is_integer() || id->as_integer() < 0 || id->as_integer() >= kMaxTokens)
    throw DataError(fmt::format("{} has {}, expected an object with content and id below {}; copy the file again", where,
                                in_quotes(to_json_text(item)), kMaxTokens));
  const auto is_set = [&](std::string_view key) { return item.get(key) == JsonValue(true); };
  return {std::move(content), static_cast<std::int32_t>(id->as_integer()),
          is_set("single_word"), is_set("lstrip"), is_set("rstrip"), is_set("normalized"), is_set("special")};
}

ChainParts read_tokenizer_json(std::string_view text, const std::string& path) {
  ChainParts parts{.name = path, .source = path};
  parts.rules.over_bytes = false;
  TokenizerJson json(parts.source, parts);
  const JsonValue value = json.read(text);
  JsonPart root(value, "", parts.source);
  root.one_of("version", std::array<std::string_view, 1>{"1.0"}, "1.0");
  for (const char* key : {"truncation", "padding"}) root.find(key);  // a text is never cut or filled here
  read_parts(root.find("normalizer"), "normalizer", "normalizers", parts.source,
             [&](const std::string& type, JsonPart& part) {
               if (parts.text.normalizers.size() == kMaxSteps)
                 part.refuse("type", type, fmt::format("at most {} normalizers", kMaxSteps));
               add_normalizer(type, part, parts);
             });
  read_parts(root.find("pre_tokenizer"), "pre_tokenizer", "pretokenizers", parts.source,
             [&](const std::string& type, JsonPart& part) {
               if (parts.text.splits.size() >= kMaxSteps) part.refuse("type", type, fmt::format("at most {} splitters", kMaxSteps));
               add_pre_tokenizer(type, part, parts);
             });
  drop_spelling_at_end(parts);
  if (const JsonValue* added = root.find("added_tokens")) {
    if (!added->is_array()) root.refuse("added_tokens", *added, "a list");
    for (std::size_t i = 0; i < added->items().size(); ++i) {
      const std::string at = fmt::format("added_tokens[{}]", i);
      JsonPart item(added->items()[i], at, parts.source);
      for (const char* key : {"content", "single_word", "lstrip", "rstrip", "normalized", "special"}) item.find(key);
      parts.added.push_back(read_added_token(added->items()[i], item.find("id"), root.where(at)));
      item.end();
    }
  }
  read_parts(root.find("post_processor"), "post_processor", "processors", parts.source,
             [&](const std::string& type, JsonPart& part) { add_post_processor(type, part, parts.special); });
  read_decoder(root.find("decoder"), parts.source, parts);
  const JsonValue* const model = root.find("model");
  read_model(model == nullptr ? JsonValue() : *model, json, parts);
  root.end();
  return parts;
}

}  // namespace trident
