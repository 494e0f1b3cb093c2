// What tests ask of errors: their text, and what it holds.
#pragma once

#include <string>
#include <string_view>

namespace trident {

// The message of the exception of type E that `action` throws, "no error" if it throws none. Other exceptions pass.
template <class E, class F> std::string error_of(F action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace trident
