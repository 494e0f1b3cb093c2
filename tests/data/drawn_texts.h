// Texts drawn as scripts/oracle/piece_goldens.py draws them, and hashes as it takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trident::test {

std::string utf8(char32_t c);

// Texts consist of atoms and single code points.
std::vector<std::string> drawn_texts(const std::vector<std::string>& atoms, std::size_t count);

class Fnv {
 public:
  void add(std::uint64_t value) { state_ = (state_ ^ value) * 0x100000001B3u; }
  std::string text() const;

 private:
  std::uint64_t state_ = 0xCBF29CE484222325u;
};

}  // namespace trident::test
