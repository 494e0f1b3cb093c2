// Texts in a row, each as its length and its bytes: as ranks pass them on towards rank 0.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace trident {

inline std::string packed(const std::string& text) {
  const std::uint64_t length = text.size();  // one build on all ranks: one order of bytes
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + text;
}

// The texts of several packed() in a row.
inline std::vector<std::string> unpacked(const std::string& bytes) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    texts.push_back(bytes.substr(at + sizeof length, length));
    at += sizeof length + length;
  }
  return texts;
}

}  // namespace trident
