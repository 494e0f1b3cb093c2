#include "data/input_file.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <span>
#include <sstream>
#include <system_error>

#include "core/check.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "data/byte_stream.h"

namespace trident {

namespace {

using std::string_view_literals::operator""sv;

struct Format {
  std::string_view ending;
  std::string_view first_bytes;  // "": not told by them
  std::string_view name;
};

// Formats that are refused by name; no text begins with these bytes.
constexpr std::array kForeign{
    Format{".xz", "\xFD" "7zXZ"sv, "xz-compressed data"},   Format{".bz2", "BZh9"sv, "bzip2-compressed data"},
    Format{".lz4", "\x04\x22\x4D\x18"sv, "lz4-compressed data"}, Format{".zip", "PK\x03\x04"sv, "a zip archive"},
    Format{".tar", ""sv, "a tar archive"},                  Format{".tgz", ""sv, "a tar archive"},
    Format{".parquet", "PAR1"sv, "a Parquet file"},         Format{".arrow", "ARROW1"sv, "an Arrow file"},
};

bool is_gzip(std::string_view head) { return head.starts_with("\x1F\x8B"sv); }

// A frame, or the skippable frame that pzstd writes before one.
bool is_zstd(std::string_view head) {
  return head.starts_with("\x28\xB5\x2F\xFD"sv) ||
         (head.size() >= 4 && (head[0] & 0xF0) == 0x50 && head.substr(1, 3) == "\x2A\x4D\x18"sv);
}

Compression compression_of(std::string_view head) {
  return is_gzip(head) ? Compression::kGzip : is_zstd(head) ? Compression::kZstd : Compression::kNone;
}

std::string_view ending_of(Compression compression) {
  return compression == Compression::kGzip ? ".gz" : compression == Compression::kZstd ? ".zst" : "";
}

Compression named_compression(std::string_view path) {
  return path.ends_with(".gz") ? Compression::kGzip : path.ends_with(".zst") ? Compression::kZstd : Compression::kNone;
}

// "a.jsonl.gz" without the ending that says how it is compressed.
std::string_view stem_of(std::string_view path, Compression named) { return path.substr(0, path.size() - ending_of(named).size()); }

bool is_json(std::string_view stem) { return stem.ends_with(".jsonl") || stem.ends_with(".json"); }

void refuse_foreign(const std::string& path, std::string_view stem, std::string_view head) {
  for (const Format& format : kForeign) {
    const bool by_bytes = !format.first_bytes.empty() && head.starts_with(format.first_bytes);
    if (!by_bytes && !stem.ends_with(format.ending)) continue;
    throw DataError(fmt::format("{}: {} {}, which is not read; write its text as .txt or .jsonl, also .gz or .zst", path,
                                by_bytes ? "is" : "is named like", format.name));
  }
}

InputFile identify_standard_input(const std::function<void()>& waiting) {
  constexpr std::size_t kMostLookedAt = std::size_t{1} << 20;
  InputFile input{.path = "standard input", .begun = std::string()};
  const auto stream = open_byte_stream(input, waiting);
  std::string block(std::size_t{1} << 16, '\0');
  std::size_t first = std::string::npos;
  while (first == std::string::npos && input.begun->size() < kMostLookedAt) {
    const std::size_t got = stream->read(block);
    if (got == 0) break;
    input.begun->append(block, 0, got);
    if (input.begun->size() >= 4) first = input.begun->find_first_not_of(" \t\r\n");
  }
  if (const Compression found = compression_of(*input.begun); found != Compression::kNone)
    throw DataError(fmt::format("{}: holds {} data; decompress it before: {} -dc FILE | trident data prepare --input - ...",
                                input.path, to_string(found), found == Compression::kGzip ? "gzip" : "zstd"));
  refuse_foreign(input.path, "", *input.begun);
  if (first != std::string::npos && (*input.begun)[first] == '{') input.kind = InputKind::kJsonLines;
  return input;
}

void add_files_below(const std::string& folder, std::vector<std::string>* paths) {
  check_may_read(folder);
  for (const std::string& name : names_in(folder)) {
    const std::string path = (folder.ends_with('/') ? folder : folder + "/") + name;
    if (name.starts_with('.')) continue;
    if (folder_exists(path)) add_files_below(path, paths);
    else paths->push_back(path);
  }
}

// A file that links name, too, would count its text twice: the name whose ending says how it is read stays, then the file's own.
void drop_repeated(const std::string& folder, std::vector<std::string>* paths, std::size_t first) {
  std::error_code dangling;
  const std::filesystem::path root = std::filesystem::canonical(folder, dangling);
  const auto rank = [&](const std::string& path, const std::filesystem::path& file) {
    const std::string_view stem = stem_of(path, named_compression(path));
    const bool is_link = file != root / path.substr(folder.size() + (folder.ends_with('/') ? 0 : 1));
    const bool is_told = is_json(stem) || stem.ends_with(".txt") ||
                         std::ranges::any_of(kForeign, [&](const Format& it) { return stem.ends_with(it.ending); });
    return (is_told ? 0 : 2) + (is_link ? 1 : 0);
  };
  std::map<std::filesystem::path, std::string> read;
  const auto begin = paths->begin() + static_cast<std::ptrdiff_t>(first);
  for (auto path = begin; path != paths->end(); ++path) {
    const auto file = std::filesystem::canonical(*path, dangling);
    std::string& name = read.try_emplace(file, *path).first->second;
    if (rank(*path, file) < rank(name, file)) name = *path;
  }
  paths->erase(std::remove_if(begin, paths->end(), [&](const std::string& path) {
    const auto file = std::filesystem::canonical(path, dangling);
    return !dangling && read.at(file) != path;
  }), paths->end());
}

}  // namespace

std::vector<std::string> input_paths(const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    const std::size_t before = paths.size();
    if (name.starts_with('@')) {
      std::istringstream lines(read_file(name.substr(1)));
      std::vector<std::string> listed;
      for (std::string line; std::getline(lines, line);) {
        if (line.ends_with('\r')) line.pop_back();  // of a list that Windows wrote
        if (line.starts_with('@'))
          throw DataError(fmt::format("{}: has the line {}, and a list names no other list; write that one's lines here, or ./ "
                                      "before a file's name",
                                      name.substr(1), in_quotes(line)));
        if (!line.empty()) listed.push_back(line);
      }
      std::ranges::move(input_paths(listed), std::back_inserter(paths));
    } else if (folder_exists(name)) {
      add_files_below(name, &paths);
      drop_repeated(name, &paths, before);
    } else {
      paths.push_back(name);
      continue;
    }
    if (paths.size() == before) throw DataError(fmt::format("{}: names no file to read; leave it out of --input", name));
  }
  return paths;
}

InputFile identify_input(const std::string& path, const std::function<void()>& waiting) {
  if (path == kStandardInput) return identify_standard_input(waiting);
  if (folder_exists(path)) throw DataError(fmt::format("{}: is a folder; name its files, for instance {}/*.jsonl.zst", path, path));
  if (!file_exists(path) && path.find_first_of("*?[") != std::string::npos)
    throw DataError(
        fmt::format("{}: no file matches this pattern (the shell left it as it is); check the folder and the ending", path));
  const RandomAccessFile file(path);
  std::string head(static_cast<std::size_t>(std::min<std::int64_t>(file.size(), 8)), '\0');
  file.read(0, std::as_writable_bytes(std::span(head)));
  const Compression named = named_compression(path);
  const std::string_view stem = stem_of(path, named);
  refuse_foreign(path, stem, head);
  if (const Compression found = compression_of(head); found != named && !head.empty()) {
    throw DataError(fmt::format("{}: is {} by its name, but holds {} data; rename it to {}{}", path, to_string(named),
                                to_string(found), stem, ending_of(found)));
  }
  return {path, is_json(stem) ? InputKind::kJsonLines : InputKind::kText, named, file.size()};
}

}  // namespace trident
