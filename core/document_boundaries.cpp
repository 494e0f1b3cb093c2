#include "core/document_boundaries.h"

namespace trident {

std::string_view to_string(DocumentBoundaries boundaries) { return boundaries == DocumentBoundaries::kEod ? "eod" : "index"; }

std::optional<DocumentBoundaries> parse_document_boundaries(std::string_view text) {
  for (const DocumentBoundaries boundaries : {DocumentBoundaries::kEod, DocumentBoundaries::kIndex})
    if (text == to_string(boundaries)) return boundaries;
  return std::nullopt;
}

std::string_view to_string(SampleKind kind) { return kind == SampleKind::kStream ? "stream" : "packed"; }

std::optional<SampleKind> parse_sample_kind(std::string_view text) {
  for (const SampleKind kind : {SampleKind::kStream, SampleKind::kPacked})
    if (text == to_string(kind)) return kind;
  return std::nullopt;
}

}  // namespace trident
