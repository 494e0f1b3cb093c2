#include "tests/fuzz/byte_tokens.h"

#include "core/json_reader.h"

namespace trident::fuzz {

std::string bytes_as_tokens() {
  std::string members;
  int other = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const int character = printable ? byte : other++;
    std::string spelling;
    if (character < 0x80) spelling += static_cast<char>(character);
    else (spelling += static_cast<char>(0xC0 | (character >> 6))) += static_cast<char>(0x80 | (character & 0x3F));
    members += fmt::format("{}:{},", in_quotes(spelling), byte);
  }
  return members + "\"<|endoftext|>\":256";
}

}  // namespace trident::fuzz
