#include "train/run/reference_file.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "core/check.h"
#include "core/file_io.h"
#include "core/fnv1a.h"

namespace trident {
namespace {

struct Header {
  char magic[4] = {'T', 'R', 'E', 'F'};
  std::uint32_t version = 1;
  std::uint64_t identity = 0, pairs = 0, content = 0;
};
static_assert(sizeof(Header) == 32);

std::uint64_t content_of(const std::vector<float>& values) {
  Fnv1a hash;
  hash.add({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  return hash.value();
}

}  // namespace

void write_reference(const std::string& path, std::uint64_t identity, const std::vector<float>& values) {
  const Header header{.identity = identity, .pairs = values.size() / 2, .content = content_of(values)};
  std::string content(sizeof header + values.size() * sizeof(float), '\0');
  std::memcpy(content.data(), &header, sizeof header);
  if (!values.empty()) std::memcpy(content.data() + sizeof header, values.data(), values.size() * sizeof(float));
  write_file(path, content);
}

std::optional<std::vector<float>> read_reference(const std::string& path, std::uint64_t identity, std::int64_t pairs) {
  if (!file_exists(path)) return std::nullopt;
  const auto refuse = [&](const std::string& why) {
    throw DataError(fmt::format(
        "{}: {}; put the run's own file back, or begin anew (--set run.overwrite=true --set checkpoint.resume=never)", path, why));
  };
  const std::string content = read_file(path);
  Header header, wanted;
  const std::size_t bytes = sizeof header + static_cast<std::size_t>(2 * pairs) * sizeof(float);
  if (content.size() < sizeof header) refuse("is no file of a reference's log-probabilities");
  std::memcpy(&header, content.data(), sizeof header);
  if (std::memcmp(header.magic, wanted.magic, sizeof header.magic) != 0 || header.version != wanted.version)
    refuse("is no file of a reference's log-probabilities");
  if (header.identity != identity) refuse("belongs to other training data or to another reference");
  if (header.pairs != static_cast<std::uint64_t>(pairs) || content.size() != bytes)
    refuse(fmt::format("has {} bytes, and {} pairs take {}", content.size(), pairs, bytes));
  std::vector<float> values(static_cast<std::size_t>(2 * pairs));
  if (!values.empty()) std::memcpy(values.data(), content.data() + sizeof header, values.size() * sizeof(float));
  if (content_of(values) != header.content) refuse("is damaged: its values are others than were written");
  return values;
}

}  // namespace trident
