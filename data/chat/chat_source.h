// Where a chat template comes from, and the texts that stand beside it.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "data/chat/chat_template.h"
#include "data/chat/conversation.h"

namespace trident {

struct ChatSource {
  ChatTemplate chat;
  std::optional<ChatTemplate> with_tools;  // "tool_use" of several templates, which Hugging Face takes where there are tools
  ChatVariables variables;                 // tokens that the folder's files name; `now` and `others` are the caller's

  const ChatTemplate& for_tools(const JsonValue& tools) const { return with_tools && !tools.is_null() ? *with_tools : chat; }
};

// `name`: a file, or "chatml" or "llama3", which are built in; "": the folder's chat_template.jinja, or else "chat_template" in its
// tokenizer_config.json (a text, or a list of {name, template} with "default"). `folder`: a tokenizer's, or "" with a `name`.
// Throws DataError: nothing there, or not readable. find_chat_source(): nothing where the folder, or "", has none.
ChatSource load_chat_source(const std::string& folder, const std::string& name);
std::optional<ChatSource> find_chat_source(const std::string& folder, const std::string& name);

// The object of a JSON file beside a tokenizer, empty where there is none. DataError.
JsonValue object_in(const std::string& path);
// tokenizer_config.json of a folder. As in transformers, special_tokens_map.json counts
// before it where it has no added_tokens_decoder. DataError.
JsonValue tokenizer_config_of(const std::string& folder);

// The same of the tokenizer that has this name. Where there is none, DataError naming `key`.
ChatSource chat_source_of(const std::string& tokenizer, const std::string& name, std::string_view key);

// Messages in any form that read_conversation takes, but for plain text; of a file (JSON).
Conversation read_messages(const JsonValue& row, std::string_view where);
Conversation read_messages_file(const std::string& path);

inline constexpr const char* kTimeFormat = "%Y-%m-%dT%H:%M:%S";
// A time that templates write as today, "2026-11-29" or "2026-11-29T13:05:00"; ConfigError otherwise, naming `key`.
std::tm time_of(const std::string& text, std::string_view key);

// `where` ends the messages of what the template refuses.
RenderedChat render_conversation(const ChatSource& source, const Conversation& conversation, GenerationPrompt prompt,
                                 std::string_view where);

// The text of such a file; `tools_path`: a JSON array, or "".
RenderedChat render_messages_file(const ChatSource& source, const std::string& messages_path, const std::string& tools_path,
                                  GenerationPrompt prompt);

}  // namespace trident
