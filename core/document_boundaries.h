// These say where the documents of a token file begin, and which of its tokens are a sample.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trident {

// kEod: behind each end-of-document token. kIndex: with each sequence of the .idx.
enum class DocumentBoundaries : std::uint8_t { kEod, kIndex };

std::string_view to_string(DocumentBoundaries boundaries);  // "eod", "index"
std::optional<DocumentBoundaries> parse_document_boundaries(std::string_view text);

// kStream: batch.sequence tokens and the one behind them, whatever document they are of. kPacked: a document, padded; each of its
// sequences is by itself.
enum class SampleKind : std::uint8_t { kStream, kPacked };

std::string_view to_string(SampleKind kind);  // "stream", "packed"
std::optional<SampleKind> parse_sample_kind(std::string_view text);

}  // namespace trident
