#include "planner/price/kept_profile.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdlib>

#include "core/file_io.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

// A relative path in these variables counts as none: https://specifications.freedesktop.org/basedir-spec
std::string absolute_folder(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value == '/' ? value : "";
}

std::string cache_folder() {
  if (std::string cache = absolute_folder("XDG_CACHE_HOME"); !cache.empty()) return cache;
  const std::string home = absolute_folder("HOME");
  return home.empty() ? "" : home + "/.cache";
}

}  // namespace

std::string kept_profile_path(int cores) {
  const std::string folder = cache_folder();
  if (folder.empty()) return "";
  std::string name;
  for (const char c : processor_name()) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!name.ends_with('-'))
      name += '-';
  }
  return fmt::format("{}/trident/{}{}-cores-{}.json", folder, name, cores, TRIDENT_VERSION);
}

std::optional<CpuRates> kept_cpu_rates(int cores) {
  const std::string path = kept_profile_path(cores);
  if (path.empty() || !file_exists(path)) return std::nullopt;
  return read_cpu_rates(path);
}

}  // namespace trident
