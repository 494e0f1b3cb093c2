// FNV-1a, 64 bits (Fowler, Noll, Vo): tells contents apart that differ by accident. Not against forgery.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace trident {

class Fnv1a {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) value_ = (value_ ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
  // Eight bytes, the lowest first, whatever the machine.
  void add(std::uint64_t number) {
    for (int i = 0; i < 8; ++i, number >>= 8) value_ = (value_ ^ (number & 0xff)) * 1099511628211u;
  }
  std::uint64_t value() const { return value_; }
  std::string text() const { return fmt::format("fnv1a64:{:016x}", value_); }

 private:
  std::uint64_t value_ = 14695981039346656037u;
};

}  // namespace trident
