#include "data/tokenizer/tokenizer.h"

#include "core/check.h"

namespace trident {

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, const TextRule& rule) const {
  std::vector<std::int32_t> ids;
  new_encoder()->encode(text, &ids, rule);
  return ids;
}

std::int32_t Tokenizer::eod_for(std::string_view key, std::string_view remedy) const {
  if (const std::optional<std::int32_t> eod = special_ids().eod) return *eod;
  throw ConfigError(fmt::format("{}: the tokenizer \"{}\" says of no token that it ends a document (eos_token of a "
                                "tokenizer_config.json, or <|endoftext|>); {}", key, name(), remedy));
}

std::vector<std::int32_t> Tokenizer::text_lengths() const {
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(vocab_size()));
  for (std::size_t id = 0; id < lengths.size(); ++id)
    lengths[id] = static_cast<std::int32_t>(token_text(static_cast<std::int32_t>(id)).size());
  const SpecialIds& special = special_ids();
  for (const auto& ids : {special.eos, special.before, special.after})
    for (const std::int32_t id : ids) lengths[static_cast<std::size_t>(id)] = 0;
  for (const auto& id : {special.bos, special.pad, special.eod})
    if (id) lengths[static_cast<std::size_t>(*id)] = 0;
  return lengths;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_path, std::string_view key) {
  return load_tokenizer(TokenizerSource{.name_or_path = name_or_path, .key = key});
}

}  // namespace trident
