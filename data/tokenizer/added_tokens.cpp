#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/utf8.h"
#include "data/tokenizer/unicode.h"

namespace trident {
namespace {

bool is_space_at(std::string_view text, std::size_t at) { return is_white_space(code_point_at(text, at).value); }

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  return !(begin > 0 && is_word_character(code_point_at(text, character_before(text, begin)).value)) &&
         !(end < text.size() && is_word_character(code_point_at(text, end).value));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::int32_t, unsigned char>> parents(1);
  for (std::size_t t = 0; t < tokens_.size(); ++t) {
    const std::string& content = tokens_[t].content;
    std::int32_t state = 0;
    for (auto c = content.rbegin(); c != content.rend(); ++c) {
      const auto byte = static_cast<unsigned char>(*c);
      std::int32_t to = step(state, byte);
      if (to == 0) {
        to = static_cast<std::int32_t>(states_.size());
        if (State& from = states_[static_cast<std::size_t>(state)]; from.next == 0) from.next = to, from.byte = byte;
        else edges_.emplace(key_of(state, byte), to);
        states_.emplace_back(), parents.emplace_back(state, byte);
      }
      state = to;
    }
    ends_[static_cast<unsigned char>(content.back())] = true;
    if (states_[static_cast<std::size_t>(state)].longest < 0)
      states_[static_cast<std::size_t>(state)].longest = static_cast<std::int32_t>(t);
  }
  if (std::ranges::count(ends_, true) == 1) only_end_ = static_cast<unsigned char>(std::ranges::find(ends_, true) - ends_.begin());
  // A fallback is shorter than its state, so that states are settled by their lengths.
  std::vector<std::int32_t> lengths(states_.size()), order;
  for (std::size_t s = 1; s < states_.size(); ++s) {
    lengths[s] = lengths[static_cast<std::size_t>(parents[s].first)] + 1;
    order.push_back(static_cast<std::int32_t>(s));
  }
  std::ranges::stable_sort(order, {}, [&](std::int32_t s) { return lengths[static_cast<std::size_t>(s)]; });
  for (const std::int32_t s : order) {
    const auto [parent, byte] = parents[static_cast<std::size_t>(s)];
    std::int32_t state = parent, to = 0;
    while (state != 0 && to == 0) {
      state = states_[static_cast<std::size_t>(state)].fallback;
      to = step(state, byte);
    }
    State& settled = states_[static_cast<std::size_t>(s)];
    settled.fallback = to;
    if (settled.longest < 0) settled.longest = states_[static_cast<std::size_t>(to)].longest;
  }
}

std::int32_t AddedTokens::step(std::int32_t state, unsigned char byte) const {
  if (const State& from = states_[static_cast<std::size_t>(state)]; from.byte == byte || from.next == 0) return from.next;
  const auto edge = edges_.find(key_of(state, byte));
  return edge == edges_.end() ? 0 : edge->second;
}

std::vector<AddedTokens::Found> AddedTokens::find_all(std::string_view text) const {
  std::vector<Found> found;
  std::int32_t state = 0;
  for (std::size_t at = text.size(); at-- > 0;) {
    if (state == 0 && only_end_) {
      const void* const last = memrchr(text.data(), *only_end_, at + 1);
      if (last == nullptr) break;
      at = static_cast<std::size_t>(static_cast<const char*>(last) - text.data());
    }
    const auto byte = static_cast<unsigned char>(text[at]);
    if (state == 0 && !ends_[byte]) continue;
    std::int32_t to = step(state, byte);
    while (to == 0 && state != 0) {
      state = states_[static_cast<std::size_t>(state)].fallback;
      to = step(state, byte);
    }
    state = to;
    if (const std::int32_t longest = states_[static_cast<std::size_t>(state)].longest; longest >= 0) found.push_back({at, longest});
  }
  return found;
}

// The library goes on behind a token's own text, also where the token took white space along that belongs to the next one: that one
// is a token again, unless it has lstrip and nothing is left of it.
void AddedTokens::cut(std::string_view text, FunctionRef<bool(const AddedToken&, std::string_view)> counts,
                      FunctionRef<void(const AddedToken&, std::string_view)> take,
                      FunctionRef<void(std::string_view)> between) const {
  const std::vector<Found> all = find_all(text);
  std::size_t done = 0, next = 0, spaces_end = 0;  // where white space ends that began before `next`
  for (auto found = all.rbegin(); found != all.rend(); ++found) {
    if (found->at < next) continue;
    const AddedToken& token = tokens_[static_cast<std::size_t>(found->token)];
    std::size_t begin = found->at, end = begin + token.content.size();
    next = end;
    if (!counts(token, text.substr(begin, end - begin))) continue;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    if (token.lstrip) {
      while (begin > done && is_space_at(text, character_before(text, begin))) begin = character_before(text, begin);
      begin = std::max(begin, done);
    }
    if (token.rstrip) {
      for (end = std::max(end, spaces_end); end < text.size() && is_space_at(text, end);) end += code_point_at(text, end).size;
      spaces_end = end;
    }
    if (done < begin) between(text.substr(done, begin - done));
    if (begin < end) take(token, text.substr(begin, end - begin));
    done = end;
  }
  if (done < text.size()) between(text.substr(done));
}

}  // namespace trident
