// Pieces of text and their ids, as a thread met them: words repeat (Zipf), so most pieces never reach the merge loop.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <vector>

namespace trident {

// Holds pieces of less than kBytes and at most kIds ids. A piece may stand in either of two slots; a new one takes the first, and
// what stood there the second.
template <std::size_t kBytes, std::size_t kIds>
class PieceCache {
 public:
  static constexpr std::size_t kMaxBytes = kBytes - 1;
  using Key = std::array<std::uint64_t, kBytes / 8>;
  struct Slot {
    Key key;  // 0: empty
    std::array<std::int32_t, kIds> ids;
    std::uint32_t count;
  };

  explicit PieceCache(std::size_t num_slots)  // a power of two
      : shift_(65 - std::countr_zero(num_slots)),
        // From the system, zeros take neither time nor memory until they are written: a short text fills few slots.
        memory_(std::calloc(num_slots + 2, sizeof(Slot)), &std::free) {
    if (memory_ == nullptr) throw std::bad_alloc();
    void* first = memory_.get();
    std::size_t space = (num_slots + 2) * sizeof(Slot);
    slots_ = static_cast<Slot*>(std::align(2 * sizeof(Slot), num_slots * sizeof(Slot), first, space));  // of whole cache lines
  }

  // The piece, a byte that ends it, and zeros: no two pieces have one key.
  static Key key_of(std::string_view text, std::size_t begin, std::size_t size) {
    Key key{}, ones, end;
    if (begin + kBytes <= text.size()) std::memcpy(&key, text.data() + begin, kBytes);
    else std::memcpy(&key, text.data() + begin, size);
    std::memcpy(&ones, kOnes.data() + kBytes - size, kBytes);
    std::memcpy(&end, kEnd.data() + kBytes - size, kBytes);
    for (std::size_t i = 0; i < key.size(); ++i) key[i] = (key[i] & ones[i]) | end[i];
    return key;
  }
  static bool is_equal(const Key& a, const Key& b) {  // without a call and without branches
    std::uint64_t others = 0;
    for (std::size_t i = 0; i < a.size(); ++i) others |= a[i] ^ b[i];
    return others == 0;
  }
  Slot* slots_of(const Key& key) const {
    std::uint64_t hash = 0;
    for (const std::uint64_t word : key) hash = ((hash ^ hash >> 32) + word) * 0x9E3779B97F4A7C15u;
    return slots_ + 2 * (hash >> shift_);
  }
  // One of the two: that of the key if there is one.
  static const Slot* found(const Slot* slots, const Key& key) { return slots + (is_equal(slots->key, key) ? 0 : 1); }

  // Appends the ids of a piece that is here.
  bool find(std::string_view text, std::size_t begin, std::size_t size, std::vector<std::int32_t>* ids) const {
    if (size > kMaxBytes) return false;
    const Key key = key_of(text, begin, size);
    const Slot* const slot = found(slots_of(key), key);
    if (!is_equal(slot->key, key)) return false;
    ids->insert(ids->end(), slot->ids.begin(), slot->ids.begin() + slot->count);
    return true;
  }
  bool keep(std::string_view text, std::size_t begin, std::size_t size, std::span<const std::int32_t> ids) {
    if (size > kMaxBytes || ids.size() > kIds) return false;
    const Key key = key_of(text, begin, size);
    Slot* const slots = slots_of(key);
    slots[1] = slots[0];
    slots[0].key = key, slots[0].count = static_cast<std::uint32_t>(ids.size());
    std::ranges::copy(ids, slots[0].ids.begin());
    return true;
  }

 private:
  static constexpr std::array<unsigned char, 2 * kBytes> kOnes = [] {
    std::array<unsigned char, 2 * kBytes> ones{};
    std::ranges::fill_n(ones.begin(), kBytes, 0xFF);
    return ones;
  }();
  static constexpr std::array<unsigned char, 2 * kBytes> kEnd = [] {
    std::array<unsigned char, 2 * kBytes> end{};
    end[kBytes] = 0x80;
    return end;
  }();

  int shift_;
  std::unique_ptr<void, void (*)(void*)> memory_;
  Slot* slots_;
};

}  // namespace trident
