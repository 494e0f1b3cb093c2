#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/utf8.h"
#include "data/tokenizer/unicode.h"

namespace trident {
namespace {

std::vector<AddedToken> those_with(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<AddedToken> some;
  std::ranges::copy_if(tokens, std::back_inserter(some), [&](const AddedToken& token) { return token.normalized == normalized; });
  return some;
}

// Where the character before `end` begins.
std::size_t last_character(std::string_view text, std::size_t end) {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

bool is_space_at(std::string_view text, std::size_t at) { return is_white_space(code_point_at(text, at).value); }

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  return !(begin > 0 && is_word_character(code_point_at(text, last_character(text, begin)).value)) &&
         !(end < text.size() && is_word_character(code_point_at(text, end).value));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : first_(those_with(tokens, false)), normalized_(those_with(tokens, true)) {}

void AddedTokens::cut(std::string_view text, std::vector<std::int32_t>* ids, FunctionRef<void(std::string_view)> between) const {
  if (normalized_.is_empty()) return first_.cut(text, ids, between);
  first_.cut(text, ids, [&](std::string_view rest) { normalized_.cut(rest, ids, between); });
}

AddedTokens::Pass::Pass(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::ranges::sort(tokens_, {}, &AddedToken::content);
  for (const AddedToken& token : tokens_) begins_[static_cast<unsigned char>(token.content.front())] = true;
}

// The tokens that agree with the text so far are neighbours; each further byte leaves fewer of them, the shortest first.
const AddedToken* AddedTokens::Pass::longest_at(std::string_view text, std::size_t at) const {
  const AddedToken* longest = nullptr;
  auto first = tokens_.begin(), last = tokens_.end();
  for (std::size_t length = 0; at + length < text.size() && first != last; ++length) {
    const auto byte_of = [length](const AddedToken& token) { return static_cast<unsigned char>(token.content[length]); };
    const auto agree = std::ranges::equal_range(first, last, static_cast<unsigned char>(text[at + length]), {}, byte_of);
    first = agree.begin(), last = agree.end();
    if (first != last && first->content.size() == length + 1) longest = &*first++;
  }
  return longest;
}

// The library goes on behind a token's own text, also where the token took white space along that belongs to the next one: that one
// is a token again, unless it has lstrip and nothing is left of it.
void AddedTokens::Pass::cut(std::string_view text, std::vector<std::int32_t>* ids,
                            FunctionRef<void(std::string_view)> between) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* const token = begins_[static_cast<unsigned char>(text[at])] ? longest_at(text, at) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = std::exchange(at, at + token->content.size()), end = at;
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    if (token->lstrip) {
      while (begin > done && is_space_at(text, last_character(text, begin))) begin = last_character(text, begin);
      begin = std::max(begin, done);
    }
    if (token->rstrip)
      while (end < text.size() && is_space_at(text, end)) end += code_point_at(text, end).size;
    if (done < begin) between(text.substr(done, begin - done));
    if (begin < end) ids->push_back(token->id);
    done = end;
  }
  if (done < text.size()) between(text.substr(done));
}

}  // namespace trident
