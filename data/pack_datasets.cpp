#include "data/pack_datasets.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/counted.h"
#include "core/for_each_index.h"
#include "core/int_math.h"
#include "data/indexed_dataset_writer.h"
#include "data/sample_order.h"

namespace trident {
namespace {

constexpr std::int64_t kWindow = 65536;  // sequences that are packed together
constexpr std::int64_t kAtOnce = 1024;   // sequences that a thread looks up at once
constexpr std::int64_t kPacksAtOnce = 64;  // that are read before they are written

// A sequence of the output: consecutive tokens of one input.
struct PackedPiece {
  std::size_t dataset;
  std::int64_t first, length;
};

// A thread found these pieces of some sequences.
struct FoundPieces {
  std::vector<PackedPiece> pieces;
  std::int64_t targets = 0, left_out = 0, single = 0;
};

class Packer {
 public:
  Packer(const std::vector<IndexedDataset>& datasets, const PackOptions& options, PackStats& stats)
      : datasets_(datasets), options_(options), stats_(stats), together_(stats.of_pairs ? 2 : 1) {
    for (const IndexedDataset& dataset : datasets_) {
      if (dataset.num_sequences() % together_ != 0)
        throw DataError(fmt::format("{}: has {}, and its record says that they are pairs; prepare the data again", dataset.prefix(),
                                    counted(dataset.num_sequences(), "sequence")));
      ends_.push_back(total() + dataset.num_sequences() / together_);
    }
    const bool masked = is_masked();
    for (const IndexedDataset& dataset : datasets_)
      if ((dataset.mask() != nullptr) != masked)
        throw DataError(fmt::format("{} has a mask of targets and {} has none: nothing says which tokens of the second count; "
                                    "prepare both alike, or pack each by itself",
                                    datasets_[masked ? 0 : static_cast<std::size_t>(&dataset - datasets_.data())].prefix(),
                                    datasets_[masked ? static_cast<std::size_t>(&dataset - datasets_.data()) : 0].prefix()));
  }

  std::int64_t total() const { return ends_.empty() ? 0 : ends_.back(); }  // sequences, or pairs, of all inputs
  bool is_masked() const { return datasets_.front().mask() != nullptr; }

  // Checks the whole index and looks for what is too long.
  void look_at_lengths() const {
    for (const IndexedDataset& dataset : datasets_) {
      IndexReader index(dataset);
      for (std::int64_t s = 0, length = 0; s < dataset.num_sequences(); ++s) {
        index.check_sequence(s);
        length = index.sequence_length(s) + (s % together_ == 0 ? 0 : length);
        if (s % together_ != together_ - 1) continue;
        stats_.too_long += length > options_.sequence;
        if (length <= stats_.longest) continue;
        stats_.longest = length;
        stats_.longest_at = fmt::format("{} {} of {}", stats_.unit(), s / together_, dataset.prefix());
      }
    }
    if (stats_.too_long == 0 || options_.overflow != LongSequences::kRefuse) return;
    throw DataError(fmt::format(
        "{}: has {}, and --sequence is {}; {} longer than that; give a longer --sequence, or say by --overflow what is to be done: "
        "truncate keeps the first {}",
        stats_.longest_at, counted(stats_.longest, "token"), options_.sequence,
        stats_.too_long == 1 ? "no other is" : fmt::format("{} are", counted(stats_.too_long, stats_.unit())),
        stats_.of_pairs ? "tokens of both sequences, prompt and answer" : fmt::format("{} tokens, split cuts", options_.sequence)));
  }

  // Each pack's pieces, by their numbers; those of a pair are in one.
  std::vector<std::vector<std::size_t>> packs_of(const std::vector<PackedPiece>& pieces) const {
    const auto together = static_cast<std::size_t>(together_);
    std::vector<std::int64_t> lengths(pieces.size() / together);
    for (std::size_t i = 0; i < pieces.size(); ++i) lengths[i / together] += pieces[i].length;
    std::vector<std::vector<std::size_t>> packs = best_fit(lengths, options_.sequence);
    for (std::vector<std::size_t>& pack : packs) {
      const std::vector<std::size_t> units = std::exchange(pack, {});
      for (const std::size_t unit : units)
        for (std::size_t i = 0; i < together; ++i) pack.push_back(unit * together + i);
    }
    return packs;
  }

  // The pieces of the sequences at `begin` .. `begin + count - 1` of `order`.
  std::vector<PackedPiece> window(const SampleOrder& order, std::int64_t begin, std::int64_t count) const {
    std::vector<FoundPieces> found(static_cast<std::size_t>(ceil_div(count, kAtOnce)));
    for_each_index(found.size(), options_.workers, [&](std::size_t part) {
      const std::int64_t first = begin + static_cast<std::int64_t>(part) * kAtOnce, end = std::min(first + kAtOnce, begin + count);
      std::vector<IndexReader> indices;
      for (const IndexedDataset& dataset : datasets_) indices.emplace_back(dataset, IndexReader::Blocks::kNone);
      for (std::int64_t i = first; i < end; ++i) add(order.sample_at(i), indices, found[part]);
    });
    std::vector<PackedPiece> pieces;
    for (const FoundPieces& part : found) {
      pieces.insert(pieces.end(), part.pieces.begin(), part.pieces.end());
      stats_.targets += part.targets, stats_.left_out += part.left_out, stats_.single += part.single;
    }
    return pieces;
  }

  // Writes the packs in an order of their own, numbered by `stream`.
  void write(const std::vector<PackedPiece>& pieces, const std::vector<std::vector<std::size_t>>& packs, std::uint32_t stream,
             IndexedDatasetWriter& writer) const {
    if (packs.empty()) return;
    const SampleOrder order(std::ssize(packs), options_.seed, Shuffle::kPerEpoch, stream);
    std::vector<Tokens> read;
    for (std::int64_t begin = 0; begin < std::ssize(packs); begin += kPacksAtOnce) {
      read.assign(static_cast<std::size_t>(std::min(kPacksAtOnce, std::ssize(packs) - begin)), {});
      const auto pack = [&](std::size_t i) -> const std::vector<std::size_t>& {
        return packs[static_cast<std::size_t>(order.sample_at(begin + static_cast<std::int64_t>(i)))];
      };
      for_each_index(read.size(), options_.workers, [&](std::size_t i) { read[i] = tokens_of(pieces, pack(i)); });
      for (std::size_t i = 0; i < read.size(); ++i) {
        std::span<const std::int32_t> ids(read[i].ids);
        std::span<const std::uint8_t> counts(read[i].counts);
        for (const std::size_t piece : pack(i)) {
          const auto length = static_cast<std::size_t>(pieces[piece].length);
          writer.add_sequence(ids.first(length), counts.first(is_masked() ? length : 0));
          ids = ids.subspan(length), counts = counts.subspan(is_masked() ? length : 0);
        }
        writer.end_document();
      }
    }
  }

 private:
  struct Tokens {  // of a pack
    std::vector<std::int32_t> ids;
    std::vector<std::uint8_t> counts;
  };

  void add(std::int64_t unit, std::vector<IndexReader>& indices, FoundPieces& found) const {
    const auto d = static_cast<std::size_t>(std::ranges::upper_bound(ends_, unit) - ends_.begin());
    if (d > 0) unit -= ends_[d - 1];
    const auto whole = [&](std::int64_t sequence) {
      const std::int64_t first = indices[d].byte_offset(sequence) / size_of(datasets_[d].type());
      return PackedPiece{d, first, indices[d].sequence_length(sequence)};
    };
    if (stats_.of_pairs) return add_pair(whole(2 * unit), whole(2 * unit + 1), found);
    PackedPiece piece = whole(unit);
    std::int64_t left = piece.length;
    if (options_.overflow == LongSequences::kTruncate) left = std::min(left, options_.sequence);
    do {
      piece.length = std::min(left, options_.sequence);
      const std::int64_t targets = targets_of(piece);
      if (targets > 0) found.pieces.push_back(piece);
      else ++found.left_out, found.single += piece.length <= 1;
      found.targets += targets;
      piece.first += piece.length, left -= piece.length;
    } while (left > 0);
  }

  // The shorter answer gives to the longer one what it does not need.
  void add_pair(PackedPiece chosen, PackedPiece rejected, FoundPieces& found) const {
    const std::int64_t shorter = std::min(chosen.length, rejected.length),
                       most = std::max(options_.sequence / 2, options_.sequence - shorter);
    for (PackedPiece* answer : {&chosen, &rejected}) answer->length = std::min(answer->length, most);
    const std::int64_t of_chosen = targets_of(chosen), of_rejected = targets_of(rejected);
    if (of_chosen == 0 || of_rejected == 0) return void(++found.left_out);
    found.pieces.insert(found.pieces.end(), {chosen, rejected});
    found.targets += of_chosen + of_rejected;
  }

  std::int64_t targets_of(const PackedPiece& piece) const {
    const LossMask* const mask = datasets_[piece.dataset].mask();
    const std::int64_t predicted = std::max<std::int64_t>(0, piece.length - 1);
    return mask != nullptr && predicted > 0 ? mask->counted(piece.first + 1, predicted) : predicted;
  }

  Tokens tokens_of(const std::vector<PackedPiece>& pieces, const std::vector<std::size_t>& pack) const {
    Tokens tokens;
    std::vector<std::byte> stored;
    for (const std::size_t i : pack) {
      const auto& [d, first, length] = pieces[i];
      const IndexedDataset& dataset = datasets_[d];
      const std::size_t before = tokens.ids.size(), after = before + static_cast<std::size_t>(length);
      stored.resize(static_cast<std::size_t>(length * size_of(dataset.type())));
      tokens.ids.resize(after);
      dataset.read_tokens(first, length, stored);
      dataset.decode_tokens(stored.data(), first, length, std::int64_t{1} << 31, tokens.ids.data() + before, 1);
      if (dataset.mask() == nullptr) continue;
      tokens.counts.resize(after);
      dataset.mask()->read(first, std::span(tokens.counts).subspan(before));
    }
    return tokens;
  }

  const std::vector<IndexedDataset>& datasets_;
  const PackOptions& options_;
  PackStats& stats_;
  std::int64_t together_;           // sequences that no pack parts: the two of a pair
  std::vector<std::int64_t> ends_;  // of each input among the sequences, or pairs, of all
};

}  // namespace

std::vector<std::vector<std::size_t>> best_fit(std::span<const std::int64_t> lengths, std::int64_t room) {
  std::vector<std::size_t> longest_first(lengths.size());
  std::iota(longest_first.begin(), longest_first.end(), std::size_t{0});
  std::ranges::stable_sort(longest_first, std::greater(), [&](std::size_t i) { return lengths[i]; });
  std::vector<std::vector<std::size_t>> packs;
  std::map<std::int64_t, std::vector<std::size_t>> with_room;  // the packs that have so much left, never none
  for (const std::size_t i : longest_first) {
    TRIDENT_CHECK(lengths[i] > 0 && lengths[i] <= room, "{} tokens into {}", lengths[i], room);
    auto fit = with_room.lower_bound(lengths[i]);
    if (fit == with_room.end()) {
      fit = with_room.try_emplace(room).first;
      fit->second.push_back(packs.size());
      packs.emplace_back();
    }
    const std::size_t pack = fit->second.back();
    const std::int64_t left = fit->first - lengths[i];
    fit->second.pop_back();
    if (fit->second.empty()) with_room.erase(fit);
    packs[pack].push_back(i);
    if (left > 0) with_room[left].push_back(pack);
  }
  return packs;
}

PackStats pack_datasets(const std::vector<std::string>& inputs, const std::string& output, const PackOptions& options,
                        const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  auto [datasets, origin] = open_inputs(inputs, output);
  if (origin.pairs && options.overflow == LongSequences::kSplit)
    throw ConfigError(fmt::format("--overflow = split: {} is of pairs of answers, which are compared whole; take truncate, or a "
                                  "longer --sequence",
                                  inputs.front()));
  PackStats stats;
  stats.of_pairs = origin.pairs;
  const Packer packer(datasets, options, stats);
  packer.look_at_lengths();
  origin.packed = options.sequence;
  const bool narrow = datasets.front().type() == TokenType::kU16 || datasets.front().type() == TokenType::kU8;
  IndexedDatasetWriter writer(output, narrow ? TokenType::kU16 : TokenType::kI32, options.overwrite,
                              packer.is_masked() ? WithMask::kYes : WithMask::kNo);
  const std::int64_t total = packer.total();
  std::uint32_t stream = 0;  // 0 is that of the sequences
  for (std::int64_t begin = 0; begin < total; begin += kWindow) {
    const SampleOrder order(total, options.seed, Shuffle::kPerEpoch);
    const std::int64_t count = std::min(kWindow, total - begin);
    const std::vector<PackedPiece> pieces = packer.window(order, begin, count);
    packer.write(pieces, packer.packs_of(pieces), ++stream, writer);
    if (progress) progress(begin + count, total);
  }
  stats.packs = writer.num_documents(), stats.tokens = writer.num_tokens();
  stats.sequences = writer.num_sequences() / (stats.of_pairs ? 2 : 1);
  if (stats.packs == 0)
    throw DataError(fmt::format("{}: of {} none has a target that counts, so that there is nothing to learn; look at it by trident "
                                "data inspect",
                                inputs.front(), counted(total, stats.unit())));
  writer.finish(origin);
  return stats;
}

}  // namespace trident
