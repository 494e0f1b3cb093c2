// Tests change texts, and ask texts and errors what they say and hold.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

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

// A list of settings, or of words of a command line, with more behind it.
inline std::vector<std::string> plus(std::vector<std::string> some, const std::vector<std::string>& more) {
  some.insert(some.end(), more.begin(), more.end());
  return some;
}

// A text with the first of its parts `from` replaced.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << "no \"" << from << "\" in: " << text;
  return at == text.npos ? text : text.replace(at, from.size(), to);
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The text holds every one of the parts. What fails names the caller's line.
template <class Parts = std::initializer_list<std::string_view>>
void expect_parts(std::string_view text, const Parts& parts, std::source_location where = std::source_location::current()) {
  for (const std::string_view part : parts) {
    if (contains(text, part)) continue;
    ADD_FAILURE_AT(where.file_name(), static_cast<int>(where.line())) << "no \"" << part << "\" in: " << text;
  }
}

}  // namespace trident
