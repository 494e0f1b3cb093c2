#include "tests/train/event_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string_view>

#include "core/file_io.h"

namespace trident::testing {
namespace {

// Bit by bit, as the polynomial says.
std::uint32_t slow_crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82F63B78u : crc >> 1;
  }
  return crc ^ 0xffffffffu;
}

std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t crc = slow_crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }
  std::string_view take(std::size_t count) {
    if (count > rest_.size()) throw std::runtime_error("the data ends early");
    const std::string_view head = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return head;
  }
  template <class T> T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    throw std::runtime_error("a varint without an end");
  }

 private:
  std::string_view rest_;
};

struct Field {
  std::uint64_t number = 0, integer = 0;
  double real = 0;
  std::string_view bytes;
};

void for_each_field(std::string_view message, const std::function<void(const Field&)>& visit) {
  for (Bytes bytes(message); !bytes.empty();) {
    const std::uint64_t key = bytes.varint();
    Field field{key >> 3, 0, 0, {}};
    switch (key & 7) {
      case 0: field.integer = bytes.varint(); break;
      case 1: field.real = bytes.number<double>(); break;
      case 2: field.bytes = bytes.take(bytes.varint()); break;
      case 5: field.real = bytes.number<float>(); break;
      default: throw std::runtime_error("an unknown wire type");
    }
    visit(field);
  }
}

void read_value(std::string_view message, ReadEvent& event) {
  std::string tag, plugin, text;
  bool is_scalar = false;
  double scalar = 0;
  for_each_field(message, [&](const Field& f) {
    if (f.number == 1) tag = f.bytes;
    if (f.number == 2) scalar = f.real, is_scalar = true;
    if (f.number == 8) {
      for_each_field(f.bytes, [&](const Field& t) {
        if (t.number == 1 && t.integer != 7) throw std::runtime_error("a text of dtype " + std::to_string(t.integer));
        if (t.number == 8) text = t.bytes;
      });
    }
    if (f.number == 9) {
      for_each_field(f.bytes, [&](const Field& m) {
        if (m.number == 1) for_each_field(m.bytes, [&](const Field& p) { plugin = p.bytes; });
      });
    }
  });
  if (is_scalar) event.scalars[tag] = static_cast<float>(scalar);
  if (plugin == "text") event.texts[tag] = text;
}

ReadEvent read_event(std::string_view message) {
  ReadEvent event;
  for_each_field(message, [&](const Field& f) {
    if (f.number == 1) event.wall_seconds = f.real;
    if (f.number == 2) event.step = static_cast<std::int64_t>(f.integer);
    if (f.number == 3) event.file_version = f.bytes;
    if (f.number == 5) for_each_field(f.bytes, [&](const Field& v) { read_value(v.bytes, event); });
    if (f.number == 7) for_each_field(f.bytes, [&](const Field& s) { event.session_start = s.number == 1 && s.integer == 1; });
  });
  return event;
}

}  // namespace

std::vector<ReadEvent> read_event_file(const std::string& path) {
  const std::string content = read_file(path);
  std::vector<ReadEvent> events;
  for (Bytes bytes(content); !bytes.empty();) {
    const std::string_view length = bytes.take(8);
    if (bytes.number<std::uint32_t>() != masked(length))
      throw std::runtime_error("the length's checksum of record " + std::to_string(events.size()));
    std::uint64_t count = 0;
    std::memcpy(&count, length.data(), sizeof count);
    const std::string_view data = bytes.take(count);
    if (bytes.number<std::uint32_t>() != masked(data))
      throw std::runtime_error("the checksum of record " + std::to_string(events.size()));
    events.push_back(read_event(data));
  }
  return events;
}

std::vector<std::string> event_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace trident::testing
