// Conversations of JSON lines to token ids, with which of the ids count as targets.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/chat/chat_source.h"
#include "data/chat/conversation.h"
#include "data/document_reader.h"
#include "data/tokenizer/tokenizer.h"

namespace trident {

struct ChatOptions {
  ChatSource source;
  bool has_template = true;  // without one messages are refused, and `source` is empty
  std::string template_name = {};  // as DatasetOrigin::chat_template
  LossKind loss = LossKind::kAssistant;
  bool skips_empty = false;  // conversations of which no token counts; else they are refused
  bool preferences = false;  // rows are pairs of answers; `loss` is kCompletion
  Around around_text = Around::kAdded;                      // of rows that are plain text, which no template has rendered
};

struct ConversationTokens {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> counts;  // of each id: 1 where all its bytes count; no id counts: the conversation is left out
  std::int64_t bytes = 0;            // of the rendered text
  bool ends = true;                  // an eos token stands in the last stretch that counts
  std::string dropped = {};          // what the template does not write: "its tools", or "messages[1], of role \"critic\""
  bool is_usual = true;              // they begin with what the tokenizer puts before a text
};

// The conversation in `line` of file `path`. Control texts are read in what the template wrote, never in what a message holds.
// Throws DataError "FILE:LINE...": no conversation; one that the template refuses; one of which no token counts; a tokenizer whose
// tokens are not the text's own bytes, so that nothing says which of them count. Prompt and completion that are texts become the
// ids that TRL 1.16 gives them: the tokenizer's eos ends them, control texts in them are their tokens, and a token that has the
// prompt's end in it counts. The completion counts, with LossKind::kAll the prompt, too.
ConversationTokens encode_conversation(const RawDocument& line, const std::string& path, const ChatOptions& options,
                                       const Tokenizer& tokenizer, Encoder& encoder);

// The chosen and the rejected answer in `line`, each behind the prompt, which does not count: {"prompt", "chosen", "rejected"}, all
// texts or all lists of messages; without a prompt of that kind it is what both begin with. As encode_conversation().
std::array<ConversationTokens, 2> encode_preference(const RawDocument& line, const std::string& path, const ChatOptions& options,
                                                    const Tokenizer& tokenizer, Encoder& encoder);

// A template writes these around messages, as one question and one answer show; nothing where it refuses the two.
struct ChatMarks {
  std::vector<std::int32_t> ends;  // the control token behind an answer
  std::string warning;             // names a marker such as <|im_start|> that is no token; else ""
};
ChatMarks chat_marks(const ChatSource& source, const Tokenizer& tokenizer);

// The ids of a rendered text, without anything around them.
std::vector<std::int32_t> encode_rendered(const RenderedChat& rendered, const Tokenizer& tokenizer);

}  // namespace trident
