#include "core/document_boundaries.h"

namespace trident {

std::string_view to_string(DocumentBoundaries boundaries) { return boundaries == DocumentBoundaries::kEod ? "eod" : "index"; }

std::optional<DocumentBoundaries> parse_document_boundaries(std::string_view text) {
  for (const DocumentBoundaries boundaries : {DocumentBoundaries::kEod, DocumentBoundaries::kIndex})
    if (text == to_string(boundaries)) return boundaries;
  return std::nullopt;
}

}  // namespace trident
