#include "data/tokenizer/bpe_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/utf8.h"
#include "data/tokenizer/byte_spelling.h"

namespace trident {
namespace {

// All ways to make a token of two others.
std::vector<std::pair<std::uint64_t, MergeRule>> merges_of_ranks(const TokenTexts& tokens) {
  std::vector<std::pair<std::uint64_t, MergeRule>> merges;
  for (std::size_t id = 0; id < tokens.of_id().num_ids(); ++id) {
    const std::string_view text = tokens.of_id()[id];
    for (std::size_t at = 1; at < text.size(); ++at) {
      const std::int32_t left = tokens.find(text.substr(0, at));
      const std::int32_t right = left < 0 ? -1 : tokens.find(text.substr(at));
      if (right < 0) continue;
      merges.push_back({static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint64_t>(right),
                        {static_cast<std::int32_t>(id), static_cast<std::int32_t>(id)}});
    }
  }
  return merges;
}

std::vector<bool> flags_of(std::span<const std::int32_t> ids, std::size_t size) {
  std::vector<bool> flags(size);
  for (const std::int32_t id : ids)
    if (static_cast<std::size_t>(id) < size) flags[static_cast<std::size_t>(id)] = true;
  return flags;
}

}  // namespace

BpeModel::BpeModel(TokenTexts tokens, std::span<const BpeMerge> merges, const BpeRules& rules,
                   std::span<const std::int32_t> controls)
    : rules_(rules),
      merges_(merges.size()),
      num_merges_(merges.size()),
      is_control_(flags_of(controls, tokens.of_id().num_ids())),
      has_affixes_(!rules.prefix.empty() || !rules.suffix.empty()) {
  for (std::size_t rank = 0; rank < merges.size(); ++rank)
    merges_.insert(merges[rank].left, merges[rank].right, {static_cast<std::int32_t>(rank), merges[rank].result});
  for (std::size_t b = 0; b < 256; ++b) fallback_[b] = tokens.find(fmt::format("<0x{:02X}>", b));
  if (!rules.over_bytes) {
    whole_ = std::move(tokens);
    return;
  }
  set_bytes(tokens);
  if (!rules.ignore_merges) return;
  std::string bytes;
  for (std::size_t id = 0; id < tokens.of_id().num_ids(); ++id) {
    bytes.clear();
    if (tokens.of_id().has(id) && append_bytes_of_spelling(tokens.of_id()[id], &bytes)) whole_.add(bytes, id);
  }
}

BpeModel::BpeModel(TokenTexts tokens, std::span<const std::int32_t> never_whole) : merges_(0), num_merges_(0) {
  rules_.ignore_merges = true;
  const auto merges = merges_of_ranks(tokens);
  num_merges_ = merges.size();
  merges_ = MergeTable(num_merges_);
  for (const auto& [pair, rule] : merges)
    merges_.insert(static_cast<std::int32_t>(pair >> 32), static_cast<std::int32_t>(pair & 0xFFFFFFFF), rule);
  for (std::size_t b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    for (auto& table : of_byte_) table[b] = tokens.find({&byte, 1});
  }
  const std::vector<bool> is_never = flags_of(never_whole, tokens.of_id().num_ids());
  for (std::size_t id = 0; id < tokens.of_id().num_ids(); ++id)
    if (tokens.of_id().has(id) && !is_never[id]) whole_.add(tokens.of_id()[id], id);
}

void BpeModel::set_bytes(const TokenTexts& spelled) {
  for (std::size_t b = 0; b < 256; ++b) {
    std::string plain;
    spell(static_cast<unsigned char>(b), &plain);
    for (std::size_t place = 0; place < 4; ++place) {
      const bool is_first = (place & 1) != 0, is_last = (place & 2) != 0;
      of_byte_[place][b] = spelled.find((is_first ? "" : rules_.prefix) + plain + (is_last ? rules_.suffix : ""));
    }
  }
}

// It asks for slots before it reads others, so that they are on their way, and gathers ids in an array, which takes all that a slot
// has room for, however many count.
std::int64_t BpeModel::Worker::encode(std::string_view text, std::size_t begin, std::span<const PieceScanner::Piece> pieces,
                                      std::vector<std::int32_t>* ids) {
  constexpr std::size_t kMany = 64;
  std::array<Short::Key, kMany> keys;
  std::array<const Short::Slot*, kMany> slots;
  std::array<std::int32_t, 4 * kMany> made;
  std::int64_t unknown = 0;
  for (; !pieces.empty(); pieces = pieces.subspan(std::min(kMany, pieces.size()))) {
    const std::size_t many = std::min(kMany, pieces.size());
    std::size_t count = 0, at = begin;
    for (std::size_t i = 0; i < many; at = pieces[i++].end) {
      keys[i] = Short::key_of(text, at, std::min(pieces[i].end - at, Short::kMaxBytes));
      slots[i] = short_.slots_of(keys[i]);
      __builtin_prefetch(slots[i]);
    }
    for (std::size_t i = 0; i < many; begin = pieces[i++].end) {
      const Short::Slot* const slot = Short::found(slots[i], keys[i]);
      const bool is_long = pieces[i].end - begin > Short::kMaxBytes, is_found = Short::is_equal(slot->key, keys[i]);
      if (is_found && slot->count > 0 && !is_long) {
        std::memcpy(made.data() + count, &slot->ids, sizeof slot->ids + sizeof slot->count);
        count += slot->count;
        continue;
      }
      ids->insert(ids->end(), made.data(), made.data() + std::exchange(count, 0));
      unknown += encode_rare(text, begin, pieces[i].end - begin, is_long || is_found);
      ids->insert(ids->end(), symbols_.begin(), symbols_.end());
    }
    ids->insert(ids->end(), made.data(), made.data() + count);
  }
  return unknown;
}

std::int64_t BpeModel::Worker::encode_rare(std::string_view text, std::size_t begin, std::size_t size, bool may_be_long) {
  const std::string_view piece = text.substr(begin, size);
  symbols_.clear();
  if (may_be_long && long_.find(text, begin, size, &symbols_)) return 0;
  std::int64_t unknown = 0;
  const std::int32_t whole = model_.rules_.ignore_merges ? model_.whole_.find(piece) : -1;
  const bool is_control = whole >= 0 && !model_.is_control_.empty() && model_.is_control_[static_cast<std::size_t>(whole)];
  if (whole >= 0 && (takes_controls_ || !is_control)) symbols_.push_back(whole);
  else unknown = merge(piece);
  if (is_control) return unknown;  // another text may read it otherwise
  if (unknown == 0 && !short_.keep(text, begin, size, symbols_) && long_.keep(text, begin, size, symbols_) && !may_be_long)
    short_.keep(text, begin, size, {});
  return unknown;
}

std::int64_t BpeModel::Worker::merge(std::string_view piece) {
  const BpeModel& model = model_;
  bool has_all = model.rules_.over_bytes && !model.has_affixes_;
  if (has_all) {
    symbols_.resize(piece.size());
    for (std::size_t i = 0; i < piece.size(); ++i) {
      symbols_[i] = model.of_byte_[0][static_cast<unsigned char>(piece[i])];
      has_all = has_all && symbols_[i] >= 0;
    }
  }
  std::int64_t unknown = 0;
  if (!has_all) unknown = add_symbols(piece);
  merger_.merge(model.merges_, &symbols_);
  return unknown;
}

// The general case, in the order of Hugging Face's library, which holds an unknown character back until one with a token follows.
std::int64_t BpeModel::Worker::add_symbols(std::string_view piece) {
  const BpeModel& model = model_;
  const BpeRules& rules = model.rules_;
  symbols_.clear();
  std::int64_t unknown = 0;
  bool waits = false;  // an unknown character
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t size = rules.over_bytes ? 1 : code_point_at(piece, at).size;
    const bool is_first = at == 0, is_last = at + size == piece.size();
    unit_.assign(is_first ? "" : rules.prefix);
    if (rules.over_bytes) spell(static_cast<unsigned char>(piece[at]), &unit_);
    else unit_ += piece.substr(at, size);
    if (is_last) unit_ += rules.suffix;
    at += size;
    const std::int32_t id =
        rules.over_bytes
            ? model.of_byte_[std::size_t{is_first} | std::size_t{is_last} << 1][static_cast<unsigned char>(piece[at - 1])]
            : model.whole_.find(unit_);
    if (id >= 0) {
      if (std::exchange(waits, false)) symbols_.push_back(*rules.unk);
      symbols_.push_back(id);
      continue;
    }
    const auto fallback = [&](char c) { return model.fallback_[static_cast<unsigned char>(c)]; };
    if (rules.byte_fallback && std::ranges::all_of(unit_, [&](char c) { return fallback(c) >= 0; })) {
      for (const char c : unit_) symbols_.push_back(fallback(c));
      continue;
    }
    ++unknown;
    if (!rules.unk) continue;
    if (waits && !rules.fuse_unk) symbols_.push_back(*rules.unk);
    waits = true;
  }
  if (waits) symbols_.push_back(*rules.unk);
  return unknown;
}

}  // namespace trident
