#include "data/dataset_sample.h"

#include <algorithm>
#include <array>

namespace trident {

namespace {

// FNV-1a over whole values, not their bytes as Fnv1a has it: manifests of checkpoints hold this hash, and a run that is resumed
// compares it.
constexpr std::uint64_t kFnvStart = 14695981039346656037u, kFnvPrime = 1099511628211u;

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
  std::uint64_t hash = kFnvStart;
  const auto add = [&](std::int64_t value) { hash = (hash ^ static_cast<std::uint64_t>(value)) * kFnvPrime; };

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
  return hash;
}

}  // namespace trident
