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

std::string in_base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto byte = [&](std::size_t i) { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0u; };
  const unsigned word = byte(0) << 10 | byte(1) << 2;  // 18 bits
  std::string text{kDigits[word >> 12 & 63], kDigits[word >> 6 & 63]};
  return text + (bytes.size() > 1 ? std::string(1, kDigits[word & 63]) : "=") + "=";
}

std::string bytes_as_ranks() {
  std::string lines;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    lines += fmt::format("{} {}\n", in_base64({&c, 1}), byte);
  }
  return lines;
}

}  // namespace trident::fuzz
