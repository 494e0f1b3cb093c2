#include "planner/published/published_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/check.h"

namespace trident {

namespace {

std::vector<std::string> json_files(const std::filesystem::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".json") files.push_back(at->path().string());
  if (error) throw ConfigError(fmt::format("{}: {}; name a folder with hardware/ and stacks/", folder.string(), error.message()));
  if (files.empty()) throw ConfigError(fmt::format("{}: no .json files; copy those of configs/ there", folder.string()));
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

PublishedBook shipped_published_book() {
  PublishedBook book{shipped_price_book(), {}};
  for (const ShippedText& file : shipped_stack_texts())
    book.stacks.push_back(stack_from_json(parse_json(file.text, file.name), file.name));
  return book;
}

PublishedBook read_published_book(const std::string& folder) {
  PublishedBook book;
  for (const std::string& file : json_files(std::filesystem::path(folder) / "hardware"))
    book.hardware.push_back(gpu_rates_from_json(read_json_file(file), file));
  const std::filesystem::path clusters = std::filesystem::path(folder) / "clusters";
  if (std::error_code error; std::filesystem::exists(clusters, error))
    for (const std::string& file : json_files(clusters))
      book.clusters.push_back(cluster_from_json(book, read_json_file(file), file));
  for (const std::string& file : json_files(std::filesystem::path(folder) / "stacks"))
    book.stacks.push_back(stack_from_json(read_json_file(file), file));
  return book;
}

}  // namespace trident
