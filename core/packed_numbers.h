// Tables of code points, which generators (scripts/oracle/packed_numbers.py) pack as numbers in 79 digits, from '0' on: a first
// digit below 66 is the number; one below 74 has another behind it, one below 78 two, and the last one four. Lines end anywhere.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace trident {

class PackedNumbers {
 public:
  constexpr explicit PackedNumbers(std::string_view text) : text_(text) {}
  constexpr bool ended() const { return at_ == text_.size(); }
  constexpr std::uint32_t next() {
    std::uint32_t number = digit();
    const std::uint32_t first = number < 66 ? 0 : number < 74 ? 66 : number < 78 ? 74 : 78;
    number -= first;
    for (int left = first == 78 ? 4 : first == 74 ? 2 : first == 66; left > 0; --left) number = number * 79 + digit();
    return number;
  }
  // The lowest bit is the sign.
  constexpr std::int32_t next_signed() {
    const std::uint32_t number = next();
    return static_cast<std::int32_t>(number >> 1) ^ -static_cast<std::int32_t>(number & 1u);
  }

 private:
  constexpr std::uint32_t digit() {
    while (text_[at_] == '\n') ++at_;
    return static_cast<std::uint32_t>(text_[at_++] - '0');
  }
  std::string_view text_;
  std::size_t at_ = 0;
};

// Each value in turn: 2 x (value XOR the last but one) + (whether it is repeated); behind it, if it is, how often it stands there,
// less 2.
template <std::size_t kSize>
constexpr std::array<std::uint8_t, kSize> run_lengths(std::string_view packed) {
  std::array<std::uint8_t, kSize> values{};
  PackedNumbers numbers(packed);
  std::uint32_t last = 0, other = 0;
  for (std::size_t i = 0; !numbers.ended();) {
    const std::uint32_t head = numbers.next();
    last = std::exchange(other, last ^ head / 2);
    const std::uint32_t times = head % 2 == 0 ? 1 : numbers.next() + 2;
    for (const std::size_t end = i + times; i < end; ++i) values[i] = static_cast<std::uint8_t>(other);
  }
  return values;
}

// Bounds say where runs begin and end, in turn; each is packed as how far it is from the one before.
template <std::size_t kSize>
constexpr std::array<char32_t, kSize> bounds(std::string_view packed) {
  std::array<char32_t, kSize> all{};
  PackedNumbers numbers(packed);
  for (char32_t last = 0; char32_t& bound : all) bound = last += numbers.next();
  return all;
}
inline bool is_between(std::span<const char32_t> bounds, char32_t c) {
  return (std::ranges::upper_bound(bounds, c) - bounds.begin()) % 2 == 1;
}

// Every `step`-th code point from `first` to `last` has the value.
struct CodePointRun {
  char32_t first, last;
  std::uint32_t step;
  std::int32_t value;
};
template <std::size_t kSize>
constexpr std::array<CodePointRun, kSize> code_point_runs(std::string_view packed) {
  std::array<CodePointRun, kSize> runs{};
  PackedNumbers numbers(packed);
  for (char32_t last = 0; CodePointRun& run : runs) {
    const std::uint32_t head = numbers.next();  // how far it is from the run before, four times, and the step; 0: it is one alone
    run.first = last + head / 4, run.step = std::max(1u, head % 4);
    run.value = numbers.next_signed();
    run.last = last = run.first + (head % 4 == 0 ? 0 : run.step * (numbers.next() + 1));
  }
  return runs;
}
// 0: none.
inline std::int32_t value_in(std::span<const CodePointRun> runs, char32_t c) {
  const auto run = std::ranges::lower_bound(runs, c, {}, &CodePointRun::last);
  return run != runs.end() && run->first <= c && (c - run->first) % run->step == 0 ? run->value : 0;
}

// Code points that turn into others.
template <std::size_t kKeys, std::size_t kValues>
struct CodePointTexts {
  std::array<char32_t, kKeys> keys{};
  std::array<std::uint16_t, kKeys + 1> begins{};
  std::array<char32_t, kValues> values{};

  // Each entry in turn:
  // - head = 4 x (how far the key is from the one before) + 2 x (whether it is repeated) + (whether a length follows, which is else
  //   1);
  // - the length, if any; then each value, as how far it is from the one in its place before;
  // - if it is repeated: how often, less 2.
  constexpr explicit CodePointTexts(std::string_view packed) {
    PackedNumbers numbers(packed);
    std::array<std::int32_t, 32> before{}, more{};
    char32_t key = 0;
    std::uint16_t end = 0;
    for (std::size_t i = 0; i < kKeys;) {
      const std::uint32_t head = numbers.next(), length = head % 2 == 0 ? 1 : numbers.next();
      for (std::uint32_t k = 0; k < length; ++k) more[k] = numbers.next_signed();
      for (std::uint32_t left = (head & 2) == 0 ? 1 : numbers.next() + 2; left > 0; --left) {
        keys[i] = key += head / 4;
        for (std::uint32_t k = 0; k < length; ++k) values[end++] = static_cast<char32_t>(before[k] += more[k]);
        begins[++i] = end;
      }
    }
  }
  std::span<const char32_t> at(std::size_t i) const {
    return std::span(values).subspan(begins[i], begins[i + 1] - begins[i]);
  }
  // Empty: the code point stays as it is.
  std::span<const char32_t> of(char32_t c) const {
    const auto found = std::ranges::lower_bound(keys, c);
    return found != keys.end() && *found == c ? at(static_cast<std::size_t>(found - keys.begin())) : std::span<const char32_t>();
  }
};

}  // namespace trident
