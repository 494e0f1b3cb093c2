// This says where the documents of a token file begin.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trident {

// kEod: behind each end-of-document token. kIndex: with each sequence of the .idx.
enum class DocumentBoundaries : std::uint8_t { kEod, kIndex };

std::string_view to_string(DocumentBoundaries boundaries);  // "eod", "index"
std::optional<DocumentBoundaries> parse_document_boundaries(std::string_view text);

}  // namespace trident
