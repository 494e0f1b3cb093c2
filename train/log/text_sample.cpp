#include "train/log/text_sample.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>

#include "core/json_reader.h"

namespace trident {
namespace {

// A fence that no line of the text can end.
std::string fenced(const std::string& text) {
  std::size_t longest = 2, run = 0;
  for (const char c : text) longest = std::max(longest, run = c == '`' ? run + 1 : 0);
  const std::string fence(longest + 1, '`');
  return fmt::format("{}\n{}\n{}", fence, text, fence);
}

std::string shown(const std::optional<std::string>& text, const std::vector<std::int32_t>& ids) {
  return fenced(text ? *text : fmt::format("{}", fmt::join(ids, " ")));
}

}  // namespace

std::string to_json_line(std::int64_t step, const TextSample& s) {
  return to_json_text(JsonValue::Object{{"step", step},
                                        {"prompt", s.prompt},
                                        {"prompt_ids", s.prompt_ids},
                                        {"text", s.text},
                                        {"ids", s.ids},
                                        {"tokens", std::ssize(s.ids)},
                                        {"end", s.end},
                                        {"temperature", s.temperature},
                                        {"seed", static_cast<std::int64_t>(s.seed)}});
}

std::string to_markdown(const TextSample& s) {
  return fmt::format("{}\n\ncontinues:\n\n{}", shown(s.prompt, s.prompt_ids), shown(s.text, s.ids));
}

}  // namespace trident
