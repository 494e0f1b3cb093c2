// Chat templates: the part of Jinja that they use, with the meaning that Jinja 3.1.6's ImmutableSandboxedEnvironment and Hugging
// Face's apply_chat_template give it, rendered to text whose every byte knows where it came from.
//
// A construct outside of that part, a Python error and a limit (2^20 bytes of template, 10^6 steps, 100 macros in each other, 64
// MiB of text) throw DataError "NAME:LINE:COLUMN: what".
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_reader.h"

namespace trident {

// Control tokens are looked for in the template's text alone, so that no message can write one.
enum class TextOrigin : std::uint8_t { kTemplate, kMessage };

// Bytes [begin, end) of a rendered text. Neighbours differ in origin or in_generation, and all together are the text.
struct RenderedSegment {
  std::size_t begin, end;
  TextOrigin origin;
  bool in_generation;  // inside {% generation %}: the assistant's words
  bool operator==(const RenderedSegment&) const = default;
};

struct RenderedChat {
  std::string text;  // UTF-8
  std::vector<RenderedSegment> segments;
  std::size_t steps;  // that it took
};

enum class GenerationPrompt : std::uint8_t { kNone, kAdded };

// A template sees these beside messages and tools.
struct ChatVariables {
  std::vector<std::pair<std::string, std::string>> special_tokens;  // bos_token, eos_token, ...: texts of the template's origin
  JsonValue others;           // an object, or null: further variables, whose texts are of the messages' origin
  std::optional<std::tm> now;  // for strftime_now, which throws DataError without it
};

namespace jinja {
struct Program;
}

// Immutable; may be rendered from several threads.
class ChatTemplate {
 public:
  // `name` begins every message about the template: a file's path, or what else says where it is.
  static ChatTemplate parse(std::string_view text, std::string name);

  // `messages`: an array of objects, as conversation.h has them; `tools`: an array of objects, or null, which templates see as
  // None. Throws DataError also where the template refuses the messages (raise_exception).
  RenderedChat render(const JsonValue& messages, const JsonValue& tools, GenerationPrompt prompt,
                      const ChatVariables& variables) const;

  bool has_generation() const;  // whether {% generation %} stands in it
  bool reads_tools() const;
  const std::string& name() const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Program> program);
  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace trident
