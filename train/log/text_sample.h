// samples.jsonl: a model's continuations of fixed prompts, one JSON object for each prompt of an evaluation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

struct TextSample {
  std::optional<std::string> prompt, text;  // nothing: no tokenizer
  std::vector<std::int32_t> prompt_ids, ids;
  std::string_view end;  // why it ended: "length", "end", "non-finite"
  double temperature = 1;
  std::uint64_t seed = 0;
};

// One line without its end, of the evaluation after `step` updates: step, prompt, prompt_ids, text, ids, tokens (new ones), end,
// temperature, seed. Without a tokenizer prompt and text are null.
std::string to_json_line(std::int64_t step, const TextSample& sample);

// Prompt and continuation as Markdown that shows every character as it is; ids where there is no text.
std::string to_markdown(const TextSample& sample);

}  // namespace trident
