#include "data/tokenizer/tokenizer_json.h"

#include "core/check.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/json_scanner.h"

namespace trident {

namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";
constexpr std::size_t kMaxMergeValues = 8;

// Compares what the file says with what is done, field by field; where a field is absent, the library's default counts.
class Comparison {
 public:
  explicit Comparison(const std::string& path) : path_(path) {}

  [[noreturn]] void refuse(std::string_view field, const std::string& found, std::string_view expected) const {
    throw DataError(fmt::format("{}: {} is {}, only {} is built (GPT-2's way to split text); use a tokenizer that splits as "
                                "GPT-2's does", path_, field, found, expected));
  }

  // The type of a component: its "type", or null.
  std::string type_of(const JsonValue& parent, std::string_view key) const {
    const JsonValue* value = parent.find(key);
    if (value == nullptr || value->is_null()) return "null";
    const JsonValue* type = value->find("type");
    return type != nullptr && type->is_string() ? type->as_string() : "unnamed";
  }

  void expect_bool(const JsonValue& parent, std::string_view prefix, std::string_view key, bool expected, bool fallback) const {
    const JsonValue* value = parent.find(key);
    const bool found = value == nullptr || value->is_null() ? fallback : value->is_bool() ? value->as_bool() : !expected;
    if (found != expected) refuse(fmt::format("{}.{}", prefix, key), found ? "true" : "false", expected ? "true" : "false");
  }

  // null or ""
  void expect_nothing(const JsonValue& parent, std::string_view prefix, std::string_view key) const {
    const JsonValue* value = parent.find(key);
    if (value == nullptr || value->is_null() || (value->is_string() && value->as_string().empty())) return;
    refuse(fmt::format("{}.{}", prefix, key), in_quotes(to_json_text(*value)), "null");
  }

 private:
  const std::string& path_;
};

void compare_splitting(const JsonValue& root, const Comparison& compare) {
  if (const std::string type = compare.type_of(root, "normalizer"); type != "null")
    compare.refuse("normalizer", in_quotes(type), "null");
  const std::string type = compare.type_of(root, "pre_tokenizer");
  if (type != "ByteLevel") compare.refuse("pre_tokenizer", in_quotes(type), "\"ByteLevel\" with its own pattern");
  const JsonValue& pre_tokenizer = *root.find("pre_tokenizer");
  compare.expect_bool(pre_tokenizer, "pre_tokenizer", "use_regex", true, true);
  compare.expect_bool(pre_tokenizer, "pre_tokenizer", "add_prefix_space", false, true);
  const std::string after = compare.type_of(root, "post_processor");
  if (after != "null" && after != "ByteLevel") compare.refuse("post_processor", in_quotes(after), "\"ByteLevel\" or null");
}

void compare_model(const JsonValue& root, const Comparison& compare) {
  const JsonValue none, *found = root.find("model");
  const JsonValue& model = found != nullptr ? *found : none;
  const JsonValue* merges = model.find("merges");
  std::string type = compare.type_of(root, "model");
  if (type == "unnamed" && merges != nullptr) type = "BPE";  // old files
  if (type != "BPE") compare.refuse("model", in_quotes(type), "\"BPE\"");
  for (const char* key : {"byte_fallback", "ignore_merges"}) compare.expect_bool(model, "model", key, false, false);
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    compare.expect_nothing(model, "model", key);
  const JsonValue* vocab = model.find("vocab");
  if (vocab == nullptr || !vocab->is_object()) compare.refuse("model.vocab", "not there", "an object of token: id");
  if (merges == nullptr || !merges->is_array()) compare.refuse("model.merges", "not there", "a list");
}

// Of a token of the vocabulary; null without it.
JsonValue id_in(std::string_view vocab, std::string_view token) {
  JsonScanner scanner(vocab, "", {.max_bytes = vocab.size()});
  JsonValue id;
  scanner.members([&](const std::string& key) {
    std::size_t values_left = 1;
    if (key == token) id = scanner.value(values_left);
    else scanner.skip();
  });
  return id;
}

void compare_added_tokens(const JsonValue& root, std::string_view vocab, const Comparison& compare) {
  const JsonValue* added = root.find("added_tokens");
  bool ends_documents = false;
  for (const JsonValue& token : added != nullptr && added->is_array() ? added->items() : JsonValue::Array()) {
    const JsonValue *content = token.find("content"), *id = token.find("id");
    const std::string text = content != nullptr && content->is_string() ? content->as_string() : "";
    if (text != kEndOfText) compare.refuse("added_tokens", fmt::format("with {}", in_quotes(text)), "\"<|endoftext|>\"");
    for (const char* key : {"single_word", "lstrip", "rstrip"}) compare.expect_bool(token, "added_tokens", key, false, false);
    if (ends_documents) compare.refuse("added_tokens", "with \"<|endoftext|>\" twice", "one of it");
    if (id == nullptr || *id != id_in(vocab, text))
      compare.refuse("added_tokens", "with \"<|endoftext|>\" of another id than model.vocab has", "one id of it");
    ends_documents = true;
  }
  if (!ends_documents) compare.refuse("added_tokens", "without \"<|endoftext|>\"", "a list with it");
}

// "left right" lines of a list of such strings or of pairs, which newer files have.
std::string lines_of(JsonScanner& merges) {
  std::string lines;
  merges.items([&] {
    std::size_t values_left = kMaxMergeValues;
    const JsonValue merge = merges.value(values_left);
    if (merge.is_string()) lines += merge.as_string();
    else if (merge.is_array() && merge.items().size() == 2 && merge.items()[0].is_string() && merge.items()[1].is_string())
      lines += merge.items()[0].as_string() + ' ' + merge.items()[1].as_string();
    lines += '\n';
  });
  return lines;
}

// The value, but for the tokens and merges of a model, which may be many: these go to *texts and leave an empty object and list.
JsonValue value_but_texts(JsonScanner& scanner, BpeTexts* texts) {
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
        texts->merges_txt = lines_of(scanner), model.back().value = JsonValue::Array();
      else model.back().value = scanner.value(values_left);
    });
    root.back().value = std::move(model);
  });
  return root;
}

JsonValue parse(std::string_view text, const std::string& path, BpeTexts* texts) {
  try {
    JsonScanner scanner(text, path, {.comments = JsonComments::kRefused, .max_bytes = text.size(), .blame = ExitCode::kData});
    JsonValue root = value_but_texts(scanner, texts);
    scanner.end();
    return root;
  } catch (DataError& error) {
    error.add_context("; copy it again, or use a tokenizer that splits as GPT-2's does");
    throw;
  }
}

}  // namespace

void refuse_other_tokenizer(const std::string& folder) {
  if (const std::string path = folder + "/tokenizer_config.json"; file_exists(path)) {
    BpeTexts none;
    const JsonValue root = parse(read_file(path), path, &none);
    const Comparison compare(path);
    if (const JsonValue* kind = root.find("tokenizer_class"); kind != nullptr && !kind->is_null()) {
      const std::string name = kind->is_string() ? kind->as_string() : to_json_text(*kind);
      if (name != "GPT2Tokenizer" && name != "GPT2TokenizerFast") compare.refuse("tokenizer_class", in_quotes(name), "\"GPT2Tokenizer\"");
    }
    for (const char* key : {"add_prefix_space", "add_bos_token", "add_eos_token"})
      compare.expect_bool(root, "tokenizer_config", key, false, false);
  }
  if (file_exists(folder + "/tokenizer.model"))
    throw DataError(fmt::format("{}/tokenizer.model: a SentencePiece tokenizer stands beside vocab.json and merges.txt; remove "
                                "the one that does not belong to the model (only GPT-2's way to split text is built)",
                                folder));
  if (const std::string path = folder + "/added_tokens.json"; file_exists(path)) {
    BpeTexts none;
    const JsonValue root = parse(read_file(path), path, &none);
    const Comparison compare(path);
    for (const JsonMember& token : root.is_object() ? root.members() : JsonValue::Object())
      if (token.key != kEndOfText) compare.refuse("its content", fmt::format("with {}", in_quotes(token.key)), "\"<|endoftext|>\"");
  }
}

BpeTexts read_tokenizer_json(std::string_view text, const std::string& path) {
  BpeTexts texts;
  const JsonValue root = parse(text, path, &texts);
  const Comparison compare(path);
  compare_splitting(root, compare);  // first: what most files differ in
  compare_model(root, compare);
  compare_added_tokens(root, texts.vocab_json, compare);
  return texts;
}

}  // namespace trident
