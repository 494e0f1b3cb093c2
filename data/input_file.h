// Inputs of `trident data prepare` are text or JSON lines, compressed or not, as the name says, checked against the first
// bytes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/named_enum.h"

namespace trident {

enum class InputKind : std::uint8_t { kText, kJsonLines };
enum class Compression : std::uint8_t { kNone, kGzip, kZstd };
template <>
inline constexpr std::array<std::string_view, 3> kNamesOf<Compression>{"uncompressed", "gzip-compressed", "zstd-compressed"};

struct InputFile {
  std::string path;
  InputKind kind = InputKind::kText;
  Compression compression = Compression::kNone;
  std::int64_t bytes = 0;  // as stored
  std::optional<std::string> begun = std::nullopt;  // standard input: what was read of it to tell its kind
};

inline constexpr std::string_view kStandardInput = "-";

// The files that `names` stand for, in their order: a folder for all below it in the order of names, without hidden ones;
// @FILE for the names on the lines of a file. DataError: a folder or list that is empty, or that cannot be read.
std::vector<std::string> input_paths(const std::vector<std::string>& names);

// Endings .gz and .zst mean compression; what stands before them counts as if they were not there: .jsonl and .json are JSON lines,
// all else is text. DataError: a file that cannot be opened or is no regular file; content compressed otherwise than the name says;
// archives and columnar files, by ending or first bytes.
// kStandardInput: JSON lines where the first character is a '{', else text; compressed data is refused. It must not be identified
// twice.
// `waiting` as in open_byte_stream().
InputFile identify_input(const std::string& path, const std::function<void()>& waiting = {});

}  // namespace trident
