// These say where the documents of a token file begin, and which of its tokens are a sample.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/named_enum.h"

namespace trident {

// kEod: behind each end-of-document token. kIndex: with each sequence of the .idx.
enum class DocumentBoundaries : std::uint8_t { kEod, kIndex };
template <>
inline constexpr std::array<std::string_view, 2> kNamesOf<DocumentBoundaries>{"eod", "index"};

// kStream: batch.sequence tokens and the one behind them, whatever document they are of. kPacked: a document, padded; each of its
// sequences is by itself.
enum class SampleKind : std::uint8_t { kStream, kPacked };
template <>
inline constexpr std::array<std::string_view, 2> kNamesOf<SampleKind>{"stream", "packed"};

}  // namespace trident
