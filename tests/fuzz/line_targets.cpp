// Files that are read line by line: documents, prompts, questions.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/json_reader.h"
#include "core/utf8.h"
#include "data/chat/conversation.h"
#include "data/document_reader.h"
#include "tests/data/gpt2_style.h"
#include "tests/fuzz/byte_tokens.h"
#include "tests/fuzz/fuzz_target.h"
#include "infer/eval/choices_file.h"
#include "infer/generate/prompt_file.h"

namespace trident::fuzz {
namespace {

constexpr std::int64_t kLongest = 256;  // of a line: inputs of the fuzzer pass it

// Whether `read` is what parse_json finds in the line, or nothing where it is refused or there is none. A number beyond all values
// is passed over where nobody asks for it.
bool is_read_as(const RawDocument& line, const std::optional<JsonLineText>& read) {
  try {
    const JsonValue value = parse_json(line.bytes, "x.jsonl", {.comments = false,
                                                               .blame = ExitCode::kData,
                                                               .replaces_surrogates = true,
                                                               .first_line = line.line});
    const JsonValue* const found = value.find("text");
    if (found != nullptr && found->is_array()) {
      const auto is_id = [](const JsonValue& item, std::int32_t id) { return item.is_number() && item.as_number() == id; };
      return !read || (read->ids && std::ranges::equal(found->items(), *read->ids, is_id));
    }
    const bool is_text = found != nullptr && found->is_string();
    return read.has_value() == is_text && (!is_text || (!read->ids && read->text == found->as_string()));
  } catch (const DataError& error) {
    check_refusal(error);
    return !read || std::string_view(error.what()).find("number overflow") != std::string_view::npos;
  }
}

}  // namespace

bool json_lines(std::string_view input) {
  static ScratchFile file("x.jsonl");
  file.set(input);
  bool accepted = false;
  accepts([&] {
    const InputFile described{file.path(), InputKind::kJsonLines, Compression::kNone, std::ssize(input)};
    DocumentReader reader(described, std::nullopt, {kLongest, kLongest});
    while (const std::optional<RawDocument> line = reader.next()) {
      require(std::ssize(line->bytes) <= kLongest, "a line of {} bytes", line->bytes.size());
      std::optional<JsonLineText> read;
      accepts([&] { read = text_of_json_line(*line, file.path(), "text"); });
      require(is_read_as(*line, read), "line {} is read otherwise as a value", line->line);
      accepted = accepted || read;
    }
  });
  return accepted;
}

bool choices(std::string_view input) {
  static ScratchFile file("x.jsonl");
  static const std::string vocab = fmt::format("{{{}}}", bytes_as_tokens());
  static const std::unique_ptr<Tokenizer> tokenizer = make_gpt2_style("x", {vocab, "", "vocab.json", "merges.txt"});
  file.set(input);
  const ChoicesRules rules{.tokenizer = tokenizer.get(), .vocab_size = 300, .sequence = 64};
  std::vector<Question> questions;
  if (!accepts([&] { questions = read_choices(file.path(), rules); })) return false;
  for (const Question& question : questions) {
    require(question.answer >= 0 && question.answer < std::ssize(question.choices), "answer {}", question.answer);
    for (const ChoiceTokens& choice : question.choices) {
      require(choice.scored >= 1 && choice.scored < std::ssize(choice.tokens) && choice.scored <= rules.sequence, "{} of {} tokens",
              choice.scored, choice.tokens.size());
      for (const std::int32_t id : choice.tokens) require(id >= 0 && id < rules.vocab_size, "token {}", id);
    }
  }
  return true;
}

bool prompts(std::string_view input) {
  static ScratchFile file("x.jsonl");
  file.set(input);
  std::vector<Prompt> prompts;
  if (!accepts([&] { prompts = read_prompts(file.path()); })) return false;
  for (const Prompt& prompt : prompts) {
    require(!prompt.text || prompt.ids.empty(), "a prompt of text and of {} ids", prompt.ids.size());
    for (const std::int32_t id : prompt.ids) require(id >= 0, "token {}", id);
  }
  return true;
}

// A template, a zero byte, a conversation.
bool chat_template(std::string_view input) {
  const std::vector<std::string_view> parts = parts_of_input(input, 2);
  bool accepted = false;
  accepts([&] {
    const ChatTemplate chat = ChatTemplate::parse(parts[0], "x.jinja");
    const JsonRules rules{.comments = false, .blame = ExitCode::kData};
    const Conversation row = read_conversation(parse_json(parts[1], "x.jsonl", rules), "x.jsonl");
    if (row.messages.is_null()) return;  // texts are not rendered
    for (const LossKind kind : {LossKind::kAssistant, LossKind::kCompletion, LossKind::kAll, LossKind::kLast})
      accepts([&] {
        const auto [rendered, counted] = render_counted(chat, row, kind, {{{"bos_token", "<s>"}}, {}, {}}, "x.jsonl:1");
        require(valid_prefix(rendered.text) == rendered.text.size(), "a text that is not UTF-8");
        std::size_t end = 0;
        for (const RenderedSegment& it : rendered.segments) {
          require(it.begin == end && it.end > end, "a segment [{}, {}) behind {}", it.begin, it.end, end);
          end = it.end;
        }
        require(end == rendered.text.size(), "segments up to {} of {}", end, rendered.text.size());
        end = 0;
        for (const ByteRange& span : counted) {
          require(span.begin >= end && span.end > span.begin && span.end <= rendered.text.size(), "counted [{}, {})", span.begin,
                  span.end);
          end = span.end;
        }
        accepted = true;
      });
  });
  return accepted;
}

}  // namespace trident::fuzz
