#include "data/tokenizer/tokenizer.h"

#include <cstdint>
#include <utility>

#include "core/check.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "data/tokenizer/byte_level_bpe.h"
#include "data/tokenizer/gpt2_vocabulary.h"
#include "data/tokenizer/tokenizer_json.h"

namespace trident {

namespace {

std::unique_ptr<Tokenizer> from_texts(const std::string& name, const BpeTexts& texts, const std::string& vocab_source,
                                      const std::string& merges_source) {
  return make_byte_level_bpe({.name = name,
                              .vocab_json = texts.vocab_json,
                              .merges_txt = texts.merges_txt,
                              .vocab_source = vocab_source,
                              .merges_source = merges_source,
                              .added = texts.added});
}

}  // namespace

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  new_encoder()->encode(text, &ids);
  return ids;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_path, std::string_view key) {
  if (name_or_path == "gpt2") {
    return make_byte_level_bpe({.name = "gpt2",
                                .vocab_json = gpt2_vocab_json(),
                                .merges_txt = gpt2_merges_txt(),
                                .vocab_source = "gpt2 (built in) vocab.json",
                                .merges_source = "gpt2 (built in) merges.txt"});
  }
  const std::string folder = hub_snapshot(name_or_path);
  const std::string vocab = folder + "/vocab.json", merges = folder + "/merges.txt", json = folder + "/tokenizer.json";
  const bool has_pair = file_exists(vocab) && file_exists(merges), has_json = file_exists(json);
  if (!has_pair && !has_json) {
    check_may_read(folder);
    throw ConfigError(fmt::format("{} = \"{}\": neither a known name nor a folder with vocab.json and merges.txt, or "
                                  "tokenizer.json; use \"gpt2\" or such a folder", key, name_or_path));
  }
  std::unique_ptr<Tokenizer> from_json, from_pair;
  BpeTexts texts;
  if (has_json) {
    texts = read_tokenizer_json(read_file(json), json);
    from_json = from_texts(name_or_path, texts, json, json);
  }
  if (!has_json) texts.added = added_tokens_beside(folder);
  if (has_pair) from_pair = from_texts(name_or_path, {read_file(vocab), read_file(merges), texts.added}, vocab, merges);
  if (from_json != nullptr && from_pair != nullptr && from_json->fingerprint() != from_pair->fingerprint()) {
    throw DataError(fmt::format("{}: model.vocab or model.merges differ from vocab.json and merges.txt beside it; use the files of "
                                "one tokenizer", json));
  }
  return from_pair != nullptr ? std::move(from_pair) : std::move(from_json);
}

}  // namespace trident
