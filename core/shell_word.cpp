#include "core/shell_word.h"

namespace trident {

std::string for_shell(const std::string& word) {
  if (!word.empty() && word.find_first_of("\"'`\\[]{}()<>*?$&|; \t\n") == word.npos) return word;
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') quoted += "'\\''";
    else quoted += c;
  }
  return quoted + "'";
}

}  // namespace trident
