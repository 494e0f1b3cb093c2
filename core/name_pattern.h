// Users name modules by a name or the end of one, or by regular expressions of whole names, which are bounded in length and in
// the time that a match takes.
#pragma once

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace trident {

using FitsName = std::function<bool(std::string_view name)>;

inline constexpr std::size_t kLongestNamePattern = 1000;  // bytes; deeper nesting than a stack has room for is longer

// It says what is wrong with a pattern.
struct BadNamePattern : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ECMAScript, of all of a name; a match takes polynomial time. BadNamePattern, also for one that is too long.
FitsName name_pattern(const std::string& text);

// "q_proj" of "model.layers.0.self_attn.q_proj"; "model.layers.0.self_attn.q_proj" of the name of a tensor that is in it.
inline std::string_view last_word(std::string_view name) { return name.substr(name.rfind('.') + 1); }
inline std::string module_name(std::string_view tensor) { return std::string(tensor.substr(0, tensor.rfind('.'))); }

// Whether `end` is the dotted name, or its end behind a dot.
inline bool is_end_of_name(std::string_view end, std::string_view name) {
  return name == end || (name.ends_with(end) && name[name.size() - end.size() - 1] == '.');
}

}  // namespace trident
