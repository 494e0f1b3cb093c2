#include "data/tokenizer/token_ids.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/json_reader.h"
#include "data/tokenizer/tokenizer.h"

namespace trident {

std::vector<std::int32_t> parse_token_ids(std::string_view text, std::string_view key) {
  std::vector<std::int32_t> ids;
  std::string spaced(text);
  std::ranges::replace(spaced, ',', ' ');
  std::istringstream words{std::move(spaced)};
  for (std::string word; words >> word;) {
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size())
      throw ConfigError(fmt::format("{} = {}: {} is no token id; give numbers with spaces between, as \"5 17 2\"", key,
                                    in_quotes(text), in_quotes(word)));
    ids.push_back(id);
  }
  return ids;
}

void check_token_ids(std::span<const std::int32_t> ids, std::int64_t vocabulary, std::string_view what,
                     const Tokenizer* tokenizer) {
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    const std::string from = tokenizer == nullptr ? "use ids of the model's vocabulary"
                                                  : fmt::format("the tokenizer \"{}\" is not the model's", tokenizer->name());
    throw ConfigError(fmt::format("{}: token {} is not in the model's vocabulary 0 .. {}; {}", what, id, vocabulary - 1, from));
  }
}

}  // namespace trident
