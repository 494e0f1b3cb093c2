#include "data/tokenizer/tokenizer.h"

#include <cstdint>

#include "core/check.h"
#include "core/file_io.h"
#include "data/tokenizer/byte_level_bpe.h"
#include "data/tokenizer/gpt2_vocabulary.h"

namespace trident {

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
  const std::string vocab = name_or_path + "/vocab.json";
  const std::string merges = name_or_path + "/merges.txt";
  if (!file_exists(vocab) || !file_exists(merges)) {
    throw ConfigError(fmt::format("{} = \"{}\": neither a known name nor a folder with vocab.json and merges.txt; "
                                  "use \"gpt2\" or such a folder", key, name_or_path));
  }
  const std::string vocab_text = read_file(vocab);
  const std::string merges_text = read_file(merges);
  return make_byte_level_bpe({.name = name_or_path,
                              .vocab_json = vocab_text,
                              .merges_txt = merges_text,
                              .vocab_source = vocab,
                              .merges_source = merges});
}

}  // namespace trident
