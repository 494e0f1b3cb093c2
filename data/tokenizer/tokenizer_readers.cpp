// Which file is read how: a row for each kind of file, those that are not built included.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "core/json_reader.h"
#include "core/nearest_name.h"
#include "data/chat/chat_source.h"
#include "data/tokenizer/built_in_files.h"
#include "data/tokenizer/byte_spelling.h"
#include "data/tokenizer/json_part.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary_files.h"

namespace trident {
namespace {

constexpr std::size_t kComparedPieces = 1000;
constexpr std::string_view kEndOfText = "<|endoftext|>";

struct FoundFile {
  std::string folder, path, content;
};

// The tokens that a tokenizer_config.json has by id, or nothing where it has no such table.
std::optional<std::vector<AddedToken>> tokens_by_id(const JsonValue& config, const std::string& path) {
  if (!config.get("added_tokens_decoder").is_object()) return std::nullopt;
  std::vector<AddedToken> tokens;
  for (const JsonMember& member : config.members_at("added_tokens_decoder")) {
    const JsonValue id = parse_json(member.key, path, {.blame = ExitCode::kData});
    tokens.push_back(read_added_token(member.value, &id, path + ": added_tokens_decoder"));
  }
  return tokens;
}

// The tokens that a configuration names, with their flags where it has them, in the order in which transformers numbers them.
std::vector<AddedToken> named_tokens(const JsonValue& config, const std::string& path) {
  constexpr std::string_view kUsual[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};
  std::vector<AddedToken> named;
  const auto add = [&](const JsonValue* value) {
    if (value == nullptr || !(value->is_string() ? !value->as_string().empty() : value->is_object())) return;
    const JsonValue no_id(std::int64_t{0});
    named.push_back(value->is_string() ? AddedToken{.content = value->as_string()} : read_added_token(*value, &no_id, path));
    named.back().id = AddedToken::kNext, named.back().special = true;
  };
  for (const std::string_view name : kUsual) add(config.find(name));
  for (const JsonMember& member : config.members())
    if (member.key.ends_with("_token") && std::ranges::find(kUsual, member.key) == std::end(kUsual)) add(&member.value);
  for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {
    const JsonValue* const value = config.find(key);
    if (value == nullptr || (value->is_array() && value->items().empty())) continue;
    if (value->is_object()) std::ranges::for_each(value->members(), [&](const JsonMember& member) { add(&member.value); });
    if (!value->is_array()) continue;
    std::ranges::for_each(value->items(), [&](const JsonValue& item) { add(&item); });
    break;
  }
  return named;
}

}  // namespace

void add_named_tokens(const std::string& folder, const JsonValue& config, ChainParts& parts) {
  const std::string path = folder + "/tokenizer_config.json", old_path = folder + "/added_tokens.json";
  if (const JsonValue* const plain = config.find("split_special_tokens"); plain != nullptr && *plain == JsonValue(true))
    throw DataError(fmt::format("{}: split_special_tokens is true; remove it, and give --plain-special", path));
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < parts.added.size(); ++i) places.emplace(parts.added[i].content, i);
  const auto add = [&](AddedToken token, bool keeps_flags) {
    const auto [place, is_new] = places.try_emplace(token.content, parts.added.size());
    if (is_new) return parts.added.push_back(std::move(token));
    AddedToken& old = parts.added[place->second];
    if (keeps_flags && old.id != AddedToken::kVocabulary) return void(old.special = old.special || token.special);
    if (token.id < 0 && old.id >= 0) token.id = old.id;
    old = std::move(token);
  };
  const std::vector<AddedToken> named = named_tokens(config, path);
  if (std::optional<std::vector<AddedToken>> by_id = tokens_by_id(config, path)) {
    std::ranges::stable_sort(*by_id, {}, &AddedToken::id);
    for (AddedToken& token : *by_id) add(std::move(token), false);
  } else {
    std::vector<AddedToken> tokens;
    std::set<std::string_view> names{kEndOfText};
    for (const AddedToken& token : named) names.insert(token.content);
    const JsonValue root = object_in(old_path);
    for (const JsonMember& member : root.members()) {
      const bool is_special = names.contains(member.key);
      const JsonValue item =
          JsonValue::Object{{"content", member.key}, {"special", is_special}, {"normalized", !is_special}};
      tokens.push_back(read_added_token(item, &member.value, old_path));
    }
    std::ranges::stable_sort(tokens, {}, &AddedToken::id);
    for (AddedToken& token : tokens) add(std::move(token), true);
  }
  for (const AddedToken& token : named) add(token, true);
}

namespace {

// Reads the files beside a tokenizer's, as transformers does.
void read_beside(const std::string& folder, ChainParts& parts) {
  const JsonValue config = tokenizer_config_of(folder);
  if (!parts.is_ranks) add_named_tokens(folder, config, parts);
  const auto text_of = [&](std::string_view key) {
    return config.get(key).is_object() ? config.get(key).text_at("content") : config.text_at(key);
  };
  if (parts.bos.empty()) parts.bos = text_of("bos_token");
  if (parts.pad.empty()) parts.pad = text_of("pad_token");
  if (const std::string eos = text_of("eos_token"); parts.eos.empty() && !eos.empty()) parts.eos = {eos};
  const JsonValue* const own = config.find("chat_template");
  const std::string jinja = folder + "/chat_template.jinja";
  const std::string chat = file_exists(jinja) ? read_file(jinja) : own != nullptr ? to_json_text(*own) : "";
  if (!parts.eos.empty() && chat.find(parts.eos.front()) != chat.npos) parts.special.eos_in_template = parts.eos.front();
}

// The pieces of the built-in text that two tokenizers are compared by.
std::vector<std::string_view> sample_pieces() {
  std::vector<std::string_view> pieces;
  std::size_t begin = 0;
  piece_scanner(kGpt2Pattern, "")->cut(sample_text(), [&](std::span<const PieceScanner::Piece> some) {
    for (const PieceScanner::Piece& piece : some) {
      if (pieces.size() < kComparedPieces) pieces.push_back(sample_text().substr(begin, piece.end - begin));
      begin = piece.end;
    }
  });
  return pieces;
}

// Old readers take the two files, new ones tokenizer.json.
void compare_with_pair(const ChainParts& parts, const FoundFile& file) {
  const std::string vocab = file.folder + "/vocab.json", merges = file.folder + "/merges.txt";
  if (!file_exists(vocab) || !file_exists(merges)) return;
  const std::string vocab_text = read_file(vocab), merges_text = read_file(merges);
  ChainParts pair = parts;
  read_vocabulary({vocab_text, merges_text, vocab, merges}, pair);
  const auto ids = std::max(parts.tokens.of_id().num_ids(), pair.tokens.of_id().num_ids());
  bool is_same = parts.merges == pair.merges;
  for (std::size_t id = 0; id < ids && is_same; ++id) is_same = parts.tokens.of_id()[id] == pair.tokens.of_id()[id];
  if (is_same) return;
  for (AddedToken& token : pair.added) token.id = pair.tokens.find(token.content) < 0 ? token.id : -1;
  const auto tokenizer = make_chain_tokenizer(parts), other = make_chain_tokenizer(std::move(pair));
  const auto encoder = tokenizer->new_encoder(), other_encoder = other->new_encoder();
  for (const std::string_view piece : sample_pieces()) {
    std::vector<std::int32_t> here, there;
    encoder->encode(piece, &here);
    other_encoder->encode(piece, &there);
    if (here != there)
      throw DataError(fmt::format("{}: {} is the ids {}, by vocab.json and merges.txt beside it {}; remove the files that are not "
                                  "the model's", file.path, in_quotes(piece), fmt::join(here, " "), fmt::join(there, " ")));
  }
}

ChainParts parts_of_json(const FoundFile& file, const TokenizerSource&) {
  ChainParts parts = read_tokenizer_json(file.content, file.path);
  compare_with_pair(parts, file);
  return parts;
}

// vocab.json and merges.txt are read as GPT-2's alone.
void check_pair_config(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json";
  const JsonValue config = tokenizer_config_of(folder);
  const auto refuse = [&](std::string_view field, const JsonValue& found, std::string_view expected) {
    throw DataError(fmt::format("{}: {} is {}, only {} is known beside vocab.json and merges.txt; use the folder's tokenizer.json",
                                path, field, to_json_text(found), expected));
  };
  if (const JsonValue* kind = config.find("tokenizer_class"); kind != nullptr && !kind->is_null() &&
      *kind != JsonValue("GPT2Tokenizer") && *kind != JsonValue("GPT2TokenizerFast"))
    refuse("tokenizer_class", *kind, "\"GPT2Tokenizer\"");
  for (const char* key : {"add_prefix_space", "add_bos_token", "add_eos_token"})
    if (const JsonValue* value = config.find(key); value != nullptr && !value->is_null() && *value != JsonValue(false))
      refuse(fmt::format("tokenizer_config.{}", key), *value, "false");
  if (file_exists(folder + "/tokenizer.model"))
    throw DataError(fmt::format("{}/tokenizer.model: a SentencePiece tokenizer stands beside vocab.json and merges.txt; remove "
                                "the one that does not belong to the model", folder));
}

ChainParts parts_of_pair(const FoundFile& file, const TokenizerSource&) {
  const std::string vocab = file.folder + "/vocab.json", merges = file.folder + "/merges.txt";
  const std::string vocab_text = read_file(vocab), merges_text = read_file(merges);
  ChainParts parts = gpt2_parts();
  parts.source = vocab;
  check_pair_config(file.folder);
  read_vocabulary({vocab_text, merges_text, vocab, merges}, parts);
  return parts;
}

// Qwen's folders have ranks and their control tokens apart.
bool read_qwen_config(const std::string& folder, bool needs_pattern, bool needs_special, ChainParts& parts) {
  const std::string path = folder + "/tokenizer_config.json";
  const JsonValue config = tokenizer_config_of(folder);
  const bool is_qwen = config.text_at("tokenizer_class").starts_with("Qwen2Tokenizer");
  if (needs_pattern && !is_qwen) return false;
  std::optional<std::vector<AddedToken>> tokens;
  if (needs_special && !(tokens = tokens_by_id(config, path))) return false;
  if (needs_pattern) set_pattern("qwen2", path, parts);
  if (needs_special) parts.added = std::move(*tokens);
  return true;
}

ChainParts parts_of_ranks(const FoundFile& file, const TokenizerSource& source) {
  ChainParts parts = read_ranks(file.content, file.path);
  if (source.pattern) set_pattern(*source.pattern, "--pattern", parts);
  if (source.special_file) read_special_file(*source.special_file, parts);
  if (source.pattern && source.special_file) return parts;
  if (!read_qwen_config(file.folder, !source.pattern, !source.special_file, parts)) {
    const std::string_view pattern = "--pattern NAME|TEXT", special = "--special FILE ({\"text\": id, ...}, or {} for none)";
    const std::string options = source.pattern        ? std::string(special)
                                : source.special_file ? std::string(pattern)
                                                      : fmt::format("{} and {}", pattern, special);
    throw DataError(
        fmt::format("{}: ranks alone say neither how text is split nor which control tokens there are; give {}, or put a "
                    "tokenizer_config.json of Qwen2Tokenizer with added_tokens_decoder beside it",
                    file.path, options));
  }
  return parts;
}

ChainParts parts_of_tekken(const FoundFile& file, const TokenizerSource&) { return read_tekken(file.content, file.path); }

bool is_object(std::string_view content) {
  const std::size_t at = content.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  return at != content.npos && content[at] == '{';
}
// A vocabulary may have a token of the name, too, but no object under it.
bool is_tokenizer_json(std::string_view content) {
  constexpr std::string_view kModel = "\"model\"";
  if (!is_object(content)) return false;
  for (std::size_t at = 0; (at = content.find(kModel, at)) != content.npos; at += kModel.size()) {
    const std::size_t colon = content.find_first_not_of(" \t\r\n", at + kModel.size());
    const std::size_t value = colon == content.npos ? colon : content.find_first_not_of(" \t\r\n", colon + 1);
    if (value != content.npos && content[colon] == ':' && content[value] == '{') return true;
  }
  return false;
}
// The first field of a protocol buffer, of pieces.
bool is_sentencepiece(std::string_view content) { return content.starts_with('\n'); }
bool is_parquet(std::string_view content) { return content.starts_with("PAR1"); }
bool is_any(std::string_view) { return true; }

// In the order in which a folder is searched; a file is told by its content alone, but for vocabularies that say nothing of
// themselves.
struct Reader {
  std::string_view kind;
  std::string_view name;  // in a folder; "*" stands for any begin
  bool (*is_one)(std::string_view content);
  ChainParts (*read)(const FoundFile& file, const TokenizerSource& source);  // nullptr: it is not built
};
constexpr Reader kReaders[] = {
    {"tokenizer.json", "tokenizer.json", is_tokenizer_json, parts_of_json},
    {"tekken.json", "tekken.json", is_tekken, parts_of_tekken},
    {"vocab.json and merges.txt", "vocab.json", is_object, parts_of_pair},
    {"tiktoken ranks", "*.tiktoken", is_rank_file, parts_of_ranks},
    {"tiktoken ranks", "*.model", is_rank_file, parts_of_ranks},
    {"SentencePiece model", "*.model", is_sentencepiece, nullptr},
    {"WordPiece vocabulary", "vocab.txt", is_any, nullptr},
    {"Parquet file", "*.parquet", is_parquet, nullptr},
};

bool has_name(std::string_view name, std::string_view wanted) {
  return wanted.starts_with('*') ? name.ends_with(wanted.substr(1)) : name == wanted;
}

std::unique_ptr<Tokenizer> made_by(const Reader& reader, const FoundFile& file, const TokenizerSource& source) {
  if (reader.read == nullptr)
    throw DataError(
        fmt::format("{}: is a {}, which is not built; use a tokenizer.json with a BPE model, vocab.json and merges.txt, "
                    "tiktoken ranks or tekken.json",
                    file.path, reader.kind));
  if ((source.pattern || source.special_file) && reader.read != parts_of_ranks)
    throw ConfigError(fmt::format("--{}: {} is a {} and says it itself; leave the option out",
                                  source.pattern ? "pattern" : "special", file.path, reader.kind));
  ChainParts parts = reader.read(file, source);
  parts.name = source.name_or_path;
  read_beside(file.folder, parts);
  return make_chain_tokenizer(std::move(parts));
}

std::unique_ptr<Tokenizer> from_file(const std::string& path, const TokenizerSource& source) {
  const std::size_t slash = path.rfind('/');
  FoundFile file{slash == path.npos ? "." : path.substr(0, slash), path, read_file(path)};
  const std::string_view name = std::string_view(path).substr(slash == path.npos ? 0 : slash + 1);
  for (const Reader& reader : kReaders) {
    const bool needs_name = reader.is_one == is_object || reader.is_one == is_any;
    if (needs_name ? has_name(name, reader.name) : reader.is_one(file.content)) return made_by(reader, file, source);
  }
  throw DataError(fmt::format("{}: no tokenizer's file that is known by its content; give a tokenizer.json, vocab.json beside "
                              "merges.txt, tiktoken ranks or tekken.json", path));
}

std::unique_ptr<Tokenizer> from_folder(const std::string& folder, const TokenizerSource& source) {
  const std::vector<std::string> names = names_in(folder);
  const bool has_merges = file_exists(folder + "/merges.txt");
  for (const Reader& reader : kReaders) {
    if (reader.read == parts_of_pair && !has_merges) continue;
    for (const std::string& name : names) {
      const std::string path = folder + "/" + name;
      if (!has_name(name, reader.name) || !file_exists(path)) continue;
      FoundFile file{folder, path, read_file(path)};
      // A file of this one name is meant, whatever is in it.
      if (reader.name == "tokenizer.json" || reader.read == parts_of_pair || reader.is_one(file.content))
        return made_by(reader, file, source);
    }
  }
  check_may_read(folder);
  const bool is_name = is_there(folder) || folder.find('/') == folder.npos;
  if (const std::optional<std::string> other = is_name ? std::nullopt : what_stands_at(folder))
    throw ConfigError(fmt::format("{} = \"{}\": {}", source.key, source.name_or_path, *other));
  throw ConfigError(fmt::format("{} = \"{}\": neither a known name nor a folder with vocab.json and merges.txt, tokenizer.json, "
                                "tiktoken ranks or tekken.json; use \"gpt2\", \"cl100k\", \"bytes\" or such a folder or file{}",
                                source.key, source.name_or_path,
                                name_hint(source.name_or_path.substr(0, source.name_or_path.find('_')),  // "cl100k_base"
                                          {"gpt2", "cl100k", "bytes"})));
}

// 0 .. 255 are the bytes.
void add_bytes(TokenTexts& tokens) {
  for (std::size_t b = 0; b < 256; ++b) {
    std::string spelling;
    spell(static_cast<unsigned char>(b), &spelling);
    tokens.add(spelling, b);
  }
  tokens.add(kEndOfText, 256);
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerSource& source) {
  const std::string& name = source.name_or_path;
  if (name == "gpt2" || name == "cl100k" || name == "bytes") {
    if (source.pattern || source.special_file)
      throw ConfigError(fmt::format("--{}: {} says it itself; leave the option out", source.pattern ? "pattern" : "special", name));
    ChainParts parts = name == "cl100k" ? cl100k_parts() : gpt2_parts();
    parts.name = name;
    if (name == "bytes") add_bytes(parts.tokens);
    if (name == "gpt2")
      read_vocabulary({gpt2_vocab_json(), gpt2_merges_txt(), "gpt2 (built in) vocab.json", "gpt2 (built in) merges.txt"}, parts);
    return make_chain_tokenizer(std::move(parts));
  }
  const std::string path = hub_snapshot(source.name_or_path);
  return file_exists(path) ? from_file(path, source) : from_folder(path, source);
}

std::vector<std::pair<std::string, std::string>> files_of_built_in(std::string_view name) {
  std::string vocab(gpt2_vocab_json()), merges(gpt2_merges_txt());
  if (name == "bytes") {
    TokenTexts tokens;
    add_bytes(tokens);
    JsonValue ids;
    for (std::size_t id = 0; id < tokens.size(); ++id) ids.set(std::string(tokens.of_id()[id]), static_cast<std::int64_t>(id));
    vocab = to_json_text(ids), merges = "#version: 0.2\n";
  } else if (name != "gpt2") {
    return {};
  }
  return {{"vocab.json", vocab}, {"merges.txt", merges}, {"tokenizer_config.json", "{\"tokenizer_class\": \"GPT2Tokenizer\"}\n"}};
}

}  // namespace trident
