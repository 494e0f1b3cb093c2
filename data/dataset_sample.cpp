#include "data/dataset_sample.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/fnv1a.h"

namespace trident {

namespace {

// Calls function(place) for each of `count` places of 0 .. n - 1, in ascending order.
template <class Function>
void for_each_place(std::int64_t count, std::int64_t n, Function&& function) {
  for (std::int64_t i = 0; i < std::min(count, n); ++i) function(spread_place(i, count, n));
}

}  // namespace

std::int64_t spread_place(std::int64_t i, std::int64_t count, std::int64_t n) {
  if (n <= count) return i;
  return (n - 1) / (count - 1) * i + (n - 1) % (count - 1) * i / (count - 1);  // (n - 1) * i / (count - 1) without overflow
}

std::uint64_t sample_dataset(const IndexedDataset& dataset, std::int64_t vocab_size) {
  Fnv1a hash;
  const auto add = [&](std::int64_t value) { hash.add(static_cast<std::uint64_t>(value)); };

  IndexReader index(dataset, IndexReader::Blocks::kNone);
  for_each_place(kSampledSequences, dataset.num_sequences(), [&](std::int64_t s) {
    add(index.byte_offset(s));
    add(index.check_sequence(s));
  });
  std::int64_t before = 0;
  for_each_place(kSampledDocuments, dataset.num_documents() + 1, [&](std::int64_t d) {
    const std::int64_t first = index.first_sequence(d);
    if (first < before) index.refuse_document(d, first);
    add(before = first);
  });
  std::array<std::byte, 8> stored;
  const auto bytes = static_cast<std::size_t>(size_of(dataset.type()));
  for_each_place(kSampledTokens, dataset.num_tokens(), [&](std::int64_t t) {
    dataset.read_tokens(t, 1, std::span(stored).first(bytes));
    add(dataset.check_tokens(stored.data(), t, 1, vocab_size).smallest);
    if (dataset.mask() != nullptr) add(dataset.mask()->counted(t, 1));
  });
  return hash.value();
}

}  // namespace trident
