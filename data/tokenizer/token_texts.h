// Texts of tokens by id, and ids by text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

// Differs from start to start, so that nobody can write a file whose entries all share one place of a table.
inline std::uint64_t table_seed() {
  static const std::uint64_t seed = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random() | 1;
  }();
  return seed;
}

// One behind the other, less than 4 GiB: there may be a million, and a string for each takes several times the memory.
class TextsById {
 public:
  void reserve(std::size_t bytes) { all_.reserve(bytes); }
  bool add(std::size_t id, std::string_view text) {  // false: the id has one
    if (id >= places_.size()) places_.resize(id + 1);
    if (has(id)) return false;
    places_[id] = {static_cast<std::uint32_t>(all_.size()), static_cast<std::uint32_t>(text.size())};
    all_ += text;
    return true;
  }
  bool has(std::size_t id) const { return id < places_.size() && places_[id].begin != Place().begin; }
  std::string_view operator[](std::size_t id) const {  // "" where it has none
    return has(id) ? std::string_view(all_.data() + places_[id].begin, places_[id].size) : std::string_view();
  }
  std::size_t num_ids() const { return places_.size(); }
  std::size_t num_bytes() const { return all_.size(); }

 private:
  struct Place {
    std::uint32_t begin = UINT32_MAX, size = 0;
  };
  std::string all_;
  std::vector<Place> places_;
};

// Texts by id that are found by hash; at most half of the slots are taken.
class TokenTexts {
 public:
  explicit TokenTexts(std::size_t bytes = 0) { of_id_.reserve(bytes); }

  bool add(std::string_view text, std::size_t id) {  // false: another token has the id; of two with one text the first is found
    if (!of_id_.add(id, text)) return false;
    if (++size_ > slots_.size() / 2) {
      slots_.assign(2 * slots_.size(), -1);
      for (std::size_t i = 0; i < of_id_.num_ids(); ++i)
        if (of_id_.has(i)) put(of_id_[i], i);
    } else put(text, id);
    return true;
  }
  std::int32_t find(std::string_view text) const { return slots_[slot_of(text)]; }  // -1: no token
  const TextsById& of_id() const { return of_id_; }
  std::size_t size() const { return size_; }

 private:
  void put(std::string_view text, std::size_t id) {
    std::int32_t& slot = slots_[slot_of(text)];
    if (slot < 0) slot = static_cast<std::int32_t>(id);
  }
  // Both halves of a product, folded (Wang Yi 2019): with factors that are not known no two words undo each other.
  std::size_t hash_of(std::string_view text) const {
    __extension__ using Wide = unsigned __int128;
    std::uint64_t hash = text.size() + seed_;
    for (std::size_t at = 0; at < text.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + at, std::min<std::size_t>(8, text.size() - at));
      const Wide product = Wide{hash ^ word} * seed_;
      hash = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
    }
    return static_cast<std::size_t>(hash);
  }
  std::size_t slot_of(std::string_view text) const {
    std::size_t slot = hash_of(text) & (slots_.size() - 1);
    while (slots_[slot] >= 0 && of_id_[static_cast<std::size_t>(slots_[slot])] != text) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  TextsById of_id_;
  std::vector<std::int32_t> slots_ = std::vector<std::int32_t>(1024, -1);
  std::size_t size_ = 0;
  std::uint64_t seed_ = table_seed();
};

}  // namespace trident
