// Sequences of indexed datasets put together to packs of at most T tokens: what `trident data pack` does.
//
// A pack is a document of several sequences. Row s of a sample that is a pack has token s, and as target token s + 1 of the same
// sequence, so that T tokens fill T rows and no token is left over. The two answers of a pair are in one pack, side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/merge_datasets.h"

namespace trident {

// A sequence of more than T tokens is refused, keeps its first T tokens, or becomes several of at most T. The answers of a pair of
// more keep as many first tokens as leave room for both, and are not cut.
enum class LongSequences : std::uint8_t { kRefuse, kTruncate, kSplit };

struct PackOptions {
  std::int64_t sequence = 0;  // T, at least 1
  LongSequences overflow = LongSequences::kRefuse;
  std::uint64_t seed = 0;
  int workers = 1;  // the output does not depend on them
  Overwrite overwrite = Overwrite::kNo;
};

struct PackStats {
  bool of_pairs = false;                              // then the numbers of sequences below are those of pairs
  std::int64_t packs = 0, sequences = 0, tokens = 0;  // of the output
  std::int64_t targets = 0;                           // that count
  std::int64_t left_out = 0, single = 0;  // sequences without a target that counts; of these those of one token, or none
  std::int64_t too_long = 0, longest = 0;
  std::string longest_at;  // "sequence 17 of PREFIX"

  std::string_view unit() const { return of_pairs ? "pair" : "sequence"; }
};

// Writes OUTPUT.bin and OUTPUT.idx, and OUTPUT.mask where the inputs have one, with each input's bits. Sequences are taken in an
// order drawn from the seed, 65,536 at a time; each such window is packed by best_fit(), and its packs are written in a drawn
// order. Sequences without a target that counts are left out. Where the inputs' records say that they are pairs, a pair takes the
// place of a sequence in all of this, and is left out where one of its answers has no such target. Memory grows with the pieces
// that a window makes, and by a bit for each token with a mask, not with the tokens.
// DataError: a sequence that is too long and kRefuse, masked and unmasked inputs together, no sequence that has a target; and the
// errors of merge_datasets(). ConfigError: pairs and kSplit. `progress` gets sequences, or pairs, once per window.
PackStats pack_datasets(const std::vector<std::string>& inputs, const std::string& output, const PackOptions& options,
                        const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

// Best fit, the longest first, equal ones in their order: each goes where least room is left behind it, else into a new pack.
// `lengths` lie in 1 .. room. By pack: which lengths are in it. O(n log room).
std::vector<std::vector<std::size_t>> best_fit(std::span<const std::int64_t> lengths, std::int64_t room);

}  // namespace trident
