#include "train/log/tensorboard_writer.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/host_name.h"

namespace trident {
namespace {

// ---- protocol buffers: field number and wire type, then the value

enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <class T> std::string little_endian(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string key(int field, Wire wire) { return varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire)); }
std::string integer_field(int field, std::int64_t value) {
  return key(field, Wire::kVarint) + varint(static_cast<std::uint64_t>(value));
}
std::string double_field(int field, double value) { return key(field, Wire::kFixed64) + little_endian(value); }
std::string float_field(int field, float value) { return key(field, Wire::kFixed32) + little_endian(value); }
std::string bytes_field(int field, std::string_view bytes) {
  return key(field, Wire::kBytes) + varint(bytes.size()) + std::string(bytes);
}

// Event: wall_time 1, step 2, file_version 3, summary 5, session_log 7.
std::string event_head(double wall_seconds, std::int64_t step) {
  return double_field(1, wall_seconds) + (step != 0 ? integer_field(2, step) : "");
}

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

// As TFRecord stores it, so that a checksum of data that holds checksums stays a good one.
std::uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

template <class F> void with_remedy(F write) {
  try {
    write();
  } catch (const StorageError& error) {
    throw StorageError(fmt::format("TensorBoard events: {}; or set log.tensorboard = false", error.what()), error.system_error());
  }
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

std::string framed(std::string_view event) {
  const std::string length = little_endian(static_cast<std::uint64_t>(event.size()));
  return length + little_endian(masked_crc(length)) + std::string(event) + little_endian(masked_crc(event));
}

std::string version_event(double wall_seconds) { return event_head(wall_seconds, 0) + bytes_field(3, "brain.Event:2"); }

std::string start_event(double wall_seconds, std::int64_t first_step) {
  return event_head(wall_seconds, first_step) + bytes_field(7, integer_field(1, 1));  // SessionLog: status 1 = START
}

// Summary: repeated value 1. Value: tag 1, simple_value 2.
std::string scalars_event(double wall_seconds, std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    summary += bytes_field(1, bytes_field(1, scalar.tag) + float_field(2, static_cast<float>(scalar.value)));
  }
  return event_head(wall_seconds, step) + bytes_field(5, summary);
}

// Value: tag 1, tensor 8 { dtype 1 = DT_STRING, tensor_shape 2 { dim 2 { size 1 } }, string_val 8 }, metadata 9 { plugin_data 1 {
// plugin_name 1 }, data_class 4 = DATA_CLASS_TENSOR }.
std::string text_event(double wall_seconds, std::int64_t step, std::string_view tag, std::string_view markdown) {
  const std::string metadata = bytes_field(1, bytes_field(1, "text")) + integer_field(4, 2);
  const std::string tensor = integer_field(1, 7) + bytes_field(2, bytes_field(2, integer_field(1, 1))) + bytes_field(8, markdown);
  const std::string value = bytes_field(1, tag) + bytes_field(8, tensor) + bytes_field(9, metadata);
  return event_head(wall_seconds, step) + bytes_field(5, bytes_field(1, value));
}

TensorBoardWriter::TensorBoardWriter(std::string folder, std::int64_t first_step, std::string_view config)
    : folder_(std::move(folder)) {
  const double now = unix_seconds();
  head_ = framed(version_event(now)) + framed(start_event(now, first_step));
  if (!config.empty()) head_ += framed(text_event(now, first_step, "config", config));
}

void TensorBoardWriter::write(const std::string& event) {
  const auto seconds = static_cast<std::int64_t>(unix_seconds());
  with_remedy([&] {
    // A run that starts over within the same second, in the same process, takes the next number.
    for (int n = 0; !file_; ++n)
      file_ = AppendFile::create(
          fmt::format("{}/events.out.tfevents.{:010}.{}.{}.{}", folder_, seconds, host_name(), ::getpid(), n));
    if (!head_.empty()) file_->append(head_);
    head_.clear();
    file_->append(framed(event));
  });
}

void TensorBoardWriter::scalars(std::int64_t step, std::span<const Scalar> scalars) {
  write(scalars_event(unix_seconds(), step, scalars));
}

void TensorBoardWriter::text(std::int64_t step, std::string_view tag, std::string_view markdown) {
  write(text_event(unix_seconds(), step, tag, markdown));
}

}  // namespace trident
