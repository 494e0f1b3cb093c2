// Conversations of data files, and which bytes of them count in the loss.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/index_range.h"
#include "core/json_reader.h"
#include "core/named_enum.h"
#include "data/chat/chat_template.h"

namespace trident {

struct Conversation {
  JsonValue messages;            // an array of objects, each with a string "role"; null: plain text
  JsonValue tools;               // an array of objects, or null
  std::size_t num_prompt = 0;    // of the messages, how many are the prompt
  bool has_completion = false;   // prompt and completion, of messages or of plain text
  std::string prompt, completion;  // plain text
  JsonValue written = {};  // the messages with calls' arguments unparsed; null where none was a text
};

// A message as OpenAI writes it.
JsonValue chat_message(std::string_view role, std::string_view content);

// Whether marks of what is learned are looked at: where nothing is learned they say nothing.
enum class Marks { kChecked, kPassedOver };

// The conversation of one row: an array of messages, or an object with "messages", with ShareGPT's "conversations" (from, value; an
// own "system"), or with "prompt" and "completion" (both text, or both messages); "tools" may stand beside them, as a list or as
// its JSON. Other keys are passed over. `source` names the file. Throws DataError "SOURCE:LINE:COLUMN: messages[2].role is ...".
Conversation read_conversation(const JsonValue& row, std::string_view source, Marks marks = Marks::kChecked);

// Whether the template renders the messages only as they are `written`.
bool takes_texts_alone(const ChatTemplate& chat, const Conversation& conversation, const ChatVariables& variables);

// assistant: what the template writes behind an assistant's header, of every assistant message; last: of the last one alone;
// completion: what follows the prompt; all: everything.
enum class LossKind : std::uint8_t { kAssistant, kCompletion, kAll, kLast };
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<LossKind>{"assistant", "completion", "all", "last"};

struct CountedChat {
  RenderedChat rendered;
  std::vector<ByteRange> counted;  // ascending, apart from each other, none empty; may be none
};

// With {% generation %} the template says itself where assistants speak. Without it each assistant message is found by rendering
// the messages before it with a generation prompt, and those together with it: the first text must begin the second one, and that
// the whole, or DataError names the message, as where all of that takes more than 10^8 steps. `where` ("FILE:LINE") begins the
// messages about the conversation, which has messages.
CountedChat render_counted(const ChatTemplate& chat, const Conversation& conversation, LossKind kind,
                           const ChatVariables& variables, std::string_view where);

}  // namespace trident
