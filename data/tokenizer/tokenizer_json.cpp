#include "data/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <utility>

#include "core/check.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/json_scanner.h"
#include "core/printable.h"

namespace trident {

namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";
constexpr std::size_t kMaxMergeValues = 8, kShownMerge = 80;

// The type of a component: its "type", or null.
std::string type_of(const JsonValue* component) {
  if (component == nullptr || component->is_null()) return "null";
  const JsonValue* type = component->find("type");
  return type != nullptr && type->is_string() ? type->as_string() : "unnamed";
}

std::span<const JsonValue> items_of(const JsonValue& parent, std::string_view key) {
  const JsonValue* list = parent.find(key);
  return list != nullptr && list->is_array() ? std::span(list->items()) : std::span<const JsonValue>();
}

// The components that a component stands for: none for null, those of its `list` for a Sequence, else itself.
std::vector<const JsonValue*> parts_of(const JsonValue* component, std::string_view list) {
  const std::string type = type_of(component);
  if (type == "null") return {};
  if (type != "Sequence" && (type != "unnamed" || component->find(list) == nullptr)) return {component};
  std::vector<const JsonValue*> parts;
  for (const JsonValue& item : items_of(*component, list))
    for (const JsonValue* part : parts_of(&item, list)) parts.push_back(part);
  return parts;
}

bool has_text(const JsonValue& parent, std::string_view key, std::string_view text) {
  const JsonValue* value = parent.find(key);
  return value != nullptr && value->is_string() && value->as_string() == text;
}

bool is_false(const JsonValue& parent, std::string_view key) {
  const JsonValue* value = parent.find(key);
  return value != nullptr && value->is_bool() && !value->as_bool();
}

// Compares what the file says with what is done, field by field; where a field is absent, the library's default counts.
class Comparison {
 public:
  explicit Comparison(const std::string& path) : path_(path) {}

  const std::string& path() const { return path_; }

  [[noreturn]] void refuse(std::string_view field, const std::string& found, std::string_view expected) const {
    throw DataError(fmt::format("{}: {} is {}, only {} is built (GPT-2's way to split text); use a tokenizer that splits as "
                                "GPT-2's does", path_, field, found, expected));
  }

  void expect_bool(const JsonValue& parent, std::string_view prefix, std::string_view key, bool expected, bool fallback) const {
    const JsonValue* value = parent.find(key);
    const bool found = value == nullptr || value->is_null() ? fallback : value->is_bool() ? value->as_bool() : !expected;
    if (found != expected) refuse(fmt::format("{}.{}", prefix, key), found ? "true" : "false", expected ? "true" : "false");
  }

  // null, "" or 0
  void expect_nothing(const JsonValue& parent, std::string_view prefix, std::string_view key) const {
    const JsonValue* value = parent.find(key);
    if (value == nullptr || value->is_null() || (value->is_string() && value->as_string().empty()) ||
        (value->is_number() && value->as_number() == 0))
      return;
    refuse(fmt::format("{}.{}", prefix, key), in_quotes(to_json_text(*value)), "null");
  }

 private:
  const std::string& path_;
};

// True for a Split that writes out ByteLevel's own pattern before a ByteLevel that has none.
bool splits_as_gpt2(const JsonValue& component) {
  constexpr std::string_view kPatterns[] = {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
                                            R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"};
  const JsonValue* pattern = component.find("pattern");
  return type_of(&component) == "Split" && has_text(component, "behavior", "Isolated") && pattern != nullptr &&
         std::ranges::any_of(kPatterns, [&](std::string_view known) { return has_text(*pattern, "Regex", known); });
}

// Whether every text stays as it is.
bool changes_nothing(const JsonValue& normalizer) {
  const auto are_false = [&](std::initializer_list<std::string_view> keys) {
    return std::ranges::all_of(keys, [&](std::string_view key) { return is_false(normalizer, key); });
  };
  const std::string type = type_of(&normalizer);
  if (type == "Prepend") return has_text(normalizer, "prepend", "");
  if (type == "Strip") return are_false({"strip_left", "strip_right"});
  if (type == "Replace") {
    const JsonValue* const pattern = normalizer.find("pattern");
    const JsonValue* const replaced = pattern == nullptr ? nullptr : pattern->find("String");
    return replaced != nullptr && replaced->is_string() && has_text(normalizer, "content", replaced->as_string());
  }
  if (type != "BertNormalizer") return false;
  const JsonValue* const strips = normalizer.find("strip_accents");  // null: where it lowers
  return are_false({"clean_text", "handle_chinese_chars", "lowercase"}) &&
         (strips == nullptr || strips->is_null() || is_false(normalizer, "strip_accents"));
}

void compare_splitting(const JsonValue& root, const Comparison& compare) {
  for (const JsonValue* part : parts_of(root.find("normalizer"), "normalizers"))
    if (!changes_nothing(*part)) compare.refuse("normalizer", in_quotes(type_of(part)), "null");
  const JsonValue* whole = root.find("pre_tokenizer");
  const std::vector<const JsonValue*> parts = parts_of(whole, "pretokenizers");
  const bool split_before = parts.size() == 2 && splits_as_gpt2(*parts[0]);
  if (parts.size() != (split_before ? 2 : 1) || type_of(parts.back()) != "ByteLevel")
    compare.refuse("pre_tokenizer", in_quotes(type_of(whole)), "\"ByteLevel\" with its own pattern");
  compare.expect_bool(*parts.back(), "pre_tokenizer", "use_regex", !split_before, true);
  compare.expect_bool(*parts.back(), "pre_tokenizer", "add_prefix_space", false, true);
}

// Says what a template makes of a text, for a message; empty: that text alone.
std::string effect_of_template(const JsonValue& processor) {
  const JsonValue* const known = processor.find("special_tokens");
  std::int64_t texts = 0;
  for (const JsonValue& piece : items_of(processor, "single")) {
    const JsonValue* const special = piece.find("SpecialToken");
    const JsonValue* const name = special == nullptr ? nullptr : special->find("id");
    if (name == nullptr || !name->is_string()) {
      ++texts;
      continue;
    }
    const JsonValue* const token = known == nullptr ? nullptr : known->find(name->as_string());
    const JsonValue* const ids = token == nullptr ? nullptr : token->find("ids");
    if (ids == nullptr || !ids->is_array() || !ids->items().empty())
      return fmt::format("adds {} to every text", in_quotes(name->as_string()));
  }
  return texts == 1 ? "" : fmt::format("has every text {} times", texts);
}

void refuse_what_is_added(const JsonValue& root, const Comparison& compare) {
  for (const JsonValue* part : parts_of(root.find("post_processor"), "processors")) {
    const std::string type = type_of(part);
    if (type == "ByteLevel") continue;  // it moves offsets
    const std::string effect = type == "TemplateProcessing" ? effect_of_template(*part) : "may add tokens to every text";
    if (effect.empty()) continue;
    throw DataError(
        fmt::format("{}: post_processor {} {}, and no token is added to texts here; set post_processor to null to have texts "
                    "without it, or use a tokenizer that adds none",
                    compare.path(), in_quotes(type), effect));
  }
}

void compare_model(const JsonValue& root, const Comparison& compare) {
  const JsonValue none, *found = root.find("model");
  const JsonValue& model = found != nullptr ? *found : none;
  const JsonValue* merges = model.find("merges");
  std::string type = type_of(found);
  if (type == "unnamed" && merges != nullptr) type = "BPE";  // old files
  if (type != "BPE") compare.refuse("model", in_quotes(type), "\"BPE\"");
  compare.expect_bool(model, "model", "ignore_merges", false, false);  // byte_fallback: no byte is unknown
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    compare.expect_nothing(model, "model", key);
  const JsonValue* vocab = model.find("vocab");
  if (vocab == nullptr || !vocab->is_object()) compare.refuse("model.vocab", "not there", "an object of token: id");
  if (merges == nullptr || !merges->is_array()) compare.refuse("model.merges", "not there", "a list");
}

// An added token's fields. Its id is compared with the vocabulary's where that is made.
AddedToken added_token(const JsonValue& item, const JsonValue* id, const Comparison& compare) {
  const JsonValue* const content = item.find("content");
  if (content == nullptr || !content->is_string() || content->as_string().empty() || id == nullptr || !id->is_integer() ||
      id->as_integer() < 0 || id->as_integer() > std::numeric_limits<std::int32_t>::max())
    compare.refuse("added_tokens", fmt::format("with {}", in_quotes(to_json_text(item))), "an object with content and id");
  const auto is_set = [&](std::string_view key) {
    const JsonValue* value = item.find(key);
    return value != nullptr && value->is_bool() && value->as_bool();
  };
  return {content->as_string(),  static_cast<std::int32_t>(id->as_integer()),
          is_set("single_word"), is_set("lstrip"),
          is_set("rstrip"),      is_set("normalized")};
}

std::vector<AddedToken> added_tokens(const JsonValue& root, const Comparison& compare) {
  std::vector<AddedToken> tokens;
  for (const JsonValue& item : items_of(root, "added_tokens")) tokens.push_back(added_token(item, item.find("id"), compare));
  if (std::ranges::find(tokens, kEndOfText, &AddedToken::content) == tokens.end())
    compare.refuse("added_tokens", "without \"<|endoftext|>\"", "a list with it");
  return tokens;
}

// "left right" lines of a list of such strings or of pairs, which newer files have.
std::string lines_of(JsonScanner& merges, const std::string& path) {
  const auto is_pair = [](const JsonValue& merge) {
    return merge.is_array() && merge.items().size() == 2 && merge.items()[0].is_string() && merge.items()[1].is_string();
  };
  std::string lines;
  merges.items([&] {
    std::size_t values_left = kMaxMergeValues;
    const JsonValue merge = merges.value(values_left);
    std::string line = merge.is_string() ? merge.as_string() : "";
    if (is_pair(merge)) line = merge.items()[0].as_string() + ' ' + merge.items()[1].as_string();
    if (std::ranges::count(line, ' ') != 1 || line.find_first_of("\r\n") != line.npos)
      throw DataError(fmt::format("{}:{}:{}: {} in model.merges is no merge of two tokens; the file is damaged", path, merge.line(),
                                  merge.column(), on_one_line(to_json_text(merge).substr(0, kShownMerge))));
    lines += line + '\n';
  });
  return lines;
}

// The value, but for the tokens and merges of a model, which may be many: these go to *texts and leave an empty object and list.
JsonValue value_but_texts(JsonScanner& scanner, const std::string& path, BpeTexts* texts) {
  std::size_t values_left = JsonRules().max_values;
  if (scanner.kind() != JsonValue::Kind::kObject) return scanner.value(values_left);
  JsonValue::Object root;
  scanner.members([&](const std::string& key) {
    root.push_back({key, {}});
    if (key != "model" || scanner.kind() != JsonValue::Kind::kObject) {
      root.back().value = scanner.value(values_left);
      return;
    }
    JsonValue::Object model;
    scanner.members([&](const std::string& part) {
      model.push_back({part, {}});
      const JsonValue::Kind kind = scanner.kind();
      if (part == "vocab" && kind == JsonValue::Kind::kObject)
        texts->vocab_json = scanner.skip(), model.back().value = JsonValue::Object();
      else if (part == "merges" && kind == JsonValue::Kind::kArray)
        texts->merges_txt = lines_of(scanner, path), model.back().value = JsonValue::Array();
      else model.back().value = scanner.value(values_left);
    });
    root.back().value = std::move(model);
  });
  return root;
}

JsonValue parse(std::string_view text, const std::string& path, BpeTexts* texts) {
  try {
    JsonScanner scanner(text, path, {.comments = JsonComments::kRefused, .max_bytes = text.size(), .blame = ExitCode::kData});
    JsonValue root = value_but_texts(scanner, path, texts);
    scanner.end();
    return root;
  } catch (DataError& error) {
    error.add_context("; copy it again, or use a tokenizer that splits as GPT-2's does");
    throw;
  }
}

// The overload is for a file that has no model.
JsonValue parse(std::string_view text, const std::string& path) {
  BpeTexts none;
  return parse(text, path, &none);
}

}  // namespace

std::vector<AddedToken> added_tokens_beside(const std::string& folder) {
  std::vector<AddedToken> tokens = plain_added_tokens();
  const auto add = [&](AddedToken token) {
    if (token.content != kEndOfText)
      tokens.push_back(std::move(token));
    else
      tokens.front() = std::move(token);
  };
  JsonValue with_flags;
  if (const std::string path = folder + "/tokenizer_config.json"; file_exists(path)) {
    const JsonValue root = parse(read_file(path), path);
    const Comparison compare(path);
    if (const JsonValue* kind = root.find("tokenizer_class"); kind != nullptr && !kind->is_null()) {
      const std::string name = kind->is_string() ? kind->as_string() : to_json_text(*kind);
      if (name != "GPT2Tokenizer" && name != "GPT2TokenizerFast") compare.refuse("tokenizer_class", in_quotes(name), "\"GPT2Tokenizer\"");
    }
    for (const char* key : {"add_prefix_space", "add_bos_token", "add_eos_token"})
      compare.expect_bool(root, "tokenizer_config", key, false, false);
    if (const JsonValue* table = root.find("added_tokens_decoder"); table != nullptr && table->is_object()) with_flags = *table;
    for (const JsonMember& member : with_flags.is_object() ? with_flags.members() : JsonValue::Object()) {
      const JsonValue id = parse(member.key, path);
      add(added_token(member.value, &id, compare));
    }
  }
  if (file_exists(folder + "/tokenizer.model"))
    throw DataError(fmt::format("{}/tokenizer.model: a SentencePiece tokenizer stands beside vocab.json and merges.txt; remove "
                                "the one that does not belong to the model (only GPT-2's way to split text is built)",
                                folder));
  if (const std::string path = folder + "/added_tokens.json"; with_flags.is_null() && file_exists(path)) {
    const JsonValue root = parse(read_file(path), path);
    for (const JsonMember& member : root.is_object() ? root.members() : JsonValue::Object()) {
      JsonValue item;
      item.set("content", member.key);
      item.set("normalized", member.key != kEndOfText);
      add(added_token(item, &member.value, Comparison(path)));
    }
  }
  std::ranges::stable_sort(tokens, {}, &AddedToken::id);
  return tokens;
}

BpeTexts read_tokenizer_json(std::string_view text, const std::string& path) {
  BpeTexts texts;
  const JsonValue root = parse(text, path, &texts);
  const Comparison compare(path);
  compare_splitting(root, compare);  // first: what most files differ in
  compare_model(root, compare);
  texts.added = added_tokens(root, compare);
  refuse_what_is_added(root, compare);
  return texts;
}

}  // namespace trident
