#include "data/chat_documents.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "core/json_reader.h"

namespace trident {
namespace {

constexpr std::size_t kShownBegin = 24;  // bytes of a text that are looked for

std::vector<ByteRange> message_texts(const RenderedChat& rendered) {
  std::vector<ByteRange> texts;
  for (const RenderedSegment& segment : rendered.segments)
    if (segment.origin == TextOrigin::kMessage) texts.push_back({segment.begin, segment.end});
  return texts;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// A token's bytes end where the text says so. Normal forms change bytes of characters beyond ASCII and lose none of their places;
// prefixes, unknown tokens and spaces that are left out do.
void refuse_foreign_bytes(std::span<const std::int32_t> ids, std::span<const std::size_t> ends, std::string_view text,
                          const Tokenizer& tokenizer, std::string_view where) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < ends.size(); begin = ends[i++]) {
    const std::string_view token = tokenizer.token_text(ids[i]), bytes = text.substr(begin, ends[i] - begin);
    if (ends[i] == begin || bytes.ends_with(token) || !is_ascii(token) || !is_ascii(bytes)) continue;
    throw UnfitLineError(
        fmt::format("{}: token {} ({}) of tokenizer {} stands for {} of the text, so that nothing says which tokens count; use a "
                    "byte-level tokenizer without prefixes",
                    where, ids[i], in_quotes(token), in_quotes(tokenizer.name()), in_quotes(bytes)));
  }
}

// Marks the ids whose bytes lie in one of `spans`; both are in the order of the text.
void mark_counted(ConversationTokens* tokens, const std::vector<std::size_t>& ends, const std::vector<ByteRange>& spans) {
  tokens->counts.assign(tokens->ids.size(), 0);
  auto span = spans.begin();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < ends.size(); begin = ends[i++]) {
    while (span != spans.end() && span->end <= begin) ++span;
    if (span == spans.end()) return;
    if (ends[i] > begin && span->begin <= begin && ends[i] <= span->end) tokens->counts[i] = 1;
  }
}

// The first thing that the template leaves out, judged by how texts begin; "" for none.
std::string dropped_part(const ChatTemplate& chat, const Conversation& conversation, std::string_view rendered) {
  if (!conversation.tools.is_null() && !chat.reads_tools()) return "its tools";
  std::size_t from = 0;
  for (std::size_t i = 0; i < conversation.messages.items().size(); ++i) {
    const JsonValue& message = conversation.messages.items()[i];
    const JsonValue* const content = message.find("content");
    const std::string& role = message.find("role")->as_string();
    if (content == nullptr || !content->is_string() || role == "assistant") continue;  // what that thought may be left out
    std::string_view begin = content->as_string();
    begin.remove_prefix(std::min(begin.find_first_not_of(" \t\r\n"), begin.size()));
    begin = begin.substr(0, std::min(begin.find_first_of("\n\r\t\"'\\<>&"), kShownBegin));
    std::size_t at = rendered.find(begin, from);
    if (at == rendered.npos) at = rendered.find(begin);
    if (at == rendered.npos) return fmt::format("messages[{}], of role {}", i, in_quotes(role));
    from = at + begin.size();
  }
  return "";
}

// Whether one of `eos` is among the last ids that count.
bool ends_with_one_of(const ConversationTokens& tokens, const std::vector<std::int32_t>& eos) {
  for (std::size_t i = tokens.ids.size(), seen = 0; i-- > 0;) {
    if (tokens.counts[i] == 0 && seen > 0) break;
    seen += tokens.counts[i];
    if (tokens.counts[i] != 0 && std::ranges::find(eos, tokens.ids[i]) != eos.end()) return true;
  }
  return false;
}

}  // namespace

namespace {

JsonValue row_in(const RawDocument& line, const std::string& path) {
  const JsonRules rules{.comments = false,
                        .max_bytes = line.bytes.size(),
                        .blame = ExitCode::kData,
                        .first_line = line.line};
  return parse_json(line.bytes, path, rules);
}

constexpr std::array<std::string_view, 2> kAnswers{"chosen", "rejected"};

// The rows of the two answers, as read_conversation() takes them.
std::array<JsonValue, 2> rows_of_answers(const JsonValue& row, std::string_view where) {
  const auto refuse = [&](const std::string& what) {
    throw DataError(fmt::format("{}: {}; rows have \"prompt\", \"chosen\" and \"rejected\", all of them texts or lists of messages",
                                where, what));
  };
  if (!row.is_object()) refuse(fmt::format("a pair is {} where an object is expected", describe(row.kind())));
  std::array<JsonValue, 2> answers;
  const bool is_conversation =
      row.find("messages") != nullptr || row.find("conversations") != nullptr || row.find("completion") != nullptr;
  for (std::size_t a = 0; a < answers.size(); ++a) {
    const JsonValue* const found = row.find(kAnswers[a]);
    if (found == nullptr && is_conversation) refuse("a conversation, which --chat reads in the place of --preference");
    if (found == nullptr) refuse(fmt::format("the row has no \"{}\"", kAnswers[a]));
    if (!found->is_string() && !found->is_array()) refuse(fmt::format("{} is {}", kAnswers[a], describe(found->kind())));
    answers[a] = *found;
  }
  const JsonValue* const given = row.find("prompt");
  JsonValue prompt = given != nullptr ? *given : JsonValue();
  if (given == nullptr && answers[0].is_string() && answers[1].is_string()) {
    const std::string chosen = answers[0].as_string(), rejected = answers[1].as_string();
    auto end = static_cast<std::size_t>(std::ranges::mismatch(chosen, rejected).in1 - chosen.begin());
    while (end > 0 && (static_cast<unsigned char>(chosen[end]) & 0xc0u) == 0x80) --end;  // within a character
    if (end > 0 && chosen[end - 1] == ' ') --end;  // a space belongs to the word behind it
    if (end == 0) refuse("chosen and rejected begin differently and the row has no \"prompt\"");
    prompt = chosen.substr(0, end), answers = {chosen.substr(end), rejected.substr(end)};
  }
  if (answers[0].is_array() && answers[1].is_array() && !prompt.is_array()) {
    const auto &chosen = answers[0].items(), &rejected = answers[1].items();
    const auto [end, other_end] = std::ranges::mismatch(chosen, rejected);
    if (end == chosen.begin()) refuse("chosen and rejected begin with different messages, so that nothing is their prompt");
    if (end == chosen.end() || other_end == rejected.end())
      refuse("one of chosen and rejected has no message that the other has not");
    prompt = JsonValue(JsonValue::Array(chosen.begin(), end));
    answers = {JsonValue(JsonValue::Array(end, chosen.end())), JsonValue(JsonValue::Array(other_end, rejected.end()))};
  }
  std::array<JsonValue, 2> rows;
  for (std::size_t a = 0; a < rows.size(); ++a) {
    if (answers[a].kind() != prompt.kind())
      refuse(given == nullptr ? "the row has no \"prompt\""
                              : fmt::format("{} is {}, and prompt is {}", kAnswers[a], describe(answers[a].kind()),
                                            describe(prompt.kind())));
    rows[a].set("prompt", prompt);
    rows[a].set("completion", answers[a]);
    if (const JsonValue* const tools = row.find("tools")) rows[a].set("tools", *tools);
  }
  return rows;
}

[[noreturn]] void refuse_empty(const std::string& where, LossKind loss, std::string_view why = "") {
  throw DataError(
      fmt::format("{}: no token of the conversation counts with --loss {}{}; mend it, or leave such out by --skip-empty", where,
                  to_string(loss), why));
}

bool has_answer(const Conversation& conversation) {
  return std::ranges::any_of(conversation.messages.items(),
                             [](const JsonValue& it) { return it.find("role")->as_string() == "assistant"; });
}

bool begins_as_texts_do(const std::vector<std::int32_t>& ids, const Tokenizer& tokenizer) {
  const std::vector<std::int32_t>& before = tokenizer.special_ids().before;
  return std::ranges::equal(before, std::span(ids).first(std::min(before.size(), ids.size())));
}

ConversationTokens encode_parsed(const Conversation& conversation, const std::string& where, const ChatOptions& options,
                                 const Tokenizer& tokenizer, Encoder& encoder) {
  if (!options.has_template)
    throw UnfitLineError(
        fmt::format("{}: messages need a chat template, and tokenizer {} has none; give --template chatml, llama3 or FILE", where,
                    in_quotes(tokenizer.name())));
  const ChatTemplate& chat = options.source.for_tools(conversation.tools);
  const CountedChat counted = render_counted(chat, conversation, options.loss, options.source.variables, where);
  const std::vector<ByteRange> plain = message_texts(counted.rendered);
  ConversationTokens tokens;
  std::vector<std::size_t> ends;
  encoder.encode(counted.rendered.text, &tokens.ids,
                 {.around = Around::kLeftOut, .plain = plain, .ends = &ends});
  refuse_foreign_bytes(tokens.ids, ends, counted.rendered.text, tokenizer, where);
  mark_counted(&tokens, ends, counted.counted);
  tokens.bytes = static_cast<std::int64_t>(counted.rendered.text.size());
  if (std::ranges::find(tokens.counts, 1) == tokens.counts.end() && !options.skips_empty)
    refuse_empty(where, options.loss, has_answer(conversation) ? "" : ": no message has the role assistant");
  tokens.dropped = dropped_part(chat, conversation, counted.rendered.text);
  tokens.ends = ends_with_one_of(tokens, tokenizer.special_ids().eos);
  tokens.is_usual = begins_as_texts_do(tokens.ids, tokenizer);
  return tokens;
}

// TRL 1.16 gives these ids for texts: an answer and its prompt are one text, ended by eos, and control texts in it are tokens.
// Tokens count from where the ids of an answer leave those of the prompt alone; of an empty one eos does.
template <std::size_t kCount>
std::array<ConversationTokens, kCount> encode_texts(const std::string& prompt, const std::array<std::string, kCount>& answers,
                                                    const std::array<std::string, kCount>& where, const ChatOptions& options,
                                                    const Tokenizer& tokenizer, Encoder& encoder) {
  const TextRule rule{.around = options.around_text};
  const std::vector<std::int32_t>& eos = tokenizer.special_ids().eos;
  const std::string end(eos.empty() ? "" : tokenizer.token_text(eos.front()));
  const bool is_text = !end.empty() && tokenizer.find(end) == eos.front();
  std::vector<std::int32_t> alone;
  encoder.encode(prompt, &alone, rule);
  std::array<ConversationTokens, kCount> tokens;
  std::ptrdiff_t begin = options.loss == LossKind::kAll ? 0 : std::ssize(alone);
  for (std::size_t a = 0; a < kCount; ++a) {
    encoder.encode(prompt + answers[a] + (is_text && !answers[a].ends_with(end) ? end : ""), &tokens[a].ids, rule);
    if (!eos.empty() && !is_text) tokens[a].ids.push_back(eos.front());
    begin = std::min(begin, std::ranges::mismatch(alone, tokens[a].ids).in1 - alone.begin());
    tokens[a].bytes = std::ssize(prompt) + std::ssize(answers[a]);
    tokens[a].ends = !eos.empty();
    tokens[a].is_usual = begins_as_texts_do(tokens[a].ids, tokenizer);
  }
  for (std::size_t a = 0; a < kCount; ++a) {
    tokens[a].counts.assign(tokens[a].ids.size(), 1);
    std::fill_n(tokens[a].counts.begin(), begin, 0);
    if (begin == std::ssize(tokens[a].ids) && !options.skips_empty) refuse_empty(where[a], options.loss);
  }
  return tokens;
}

}  // namespace

ConversationTokens encode_conversation(const RawDocument& line, const std::string& path, const ChatOptions& options,
                                       const Tokenizer& tokenizer, Encoder& encoder) {
  const Conversation conversation = read_conversation(row_in(line, path), path);
  const std::string where = fmt::format("{}:{}", path, line.line);
  if (!conversation.messages.is_null()) return encode_parsed(conversation, where, options, tokenizer, encoder);
  return encode_texts<1>(conversation.prompt, {conversation.completion}, {where}, options, tokenizer, encoder)[0];
}

std::array<ConversationTokens, 2> encode_preference(const RawDocument& line, const std::string& path, const ChatOptions& options,
                                                    const Tokenizer& tokenizer, Encoder& encoder) {
  const std::string place = fmt::format("{}:{}", path, line.line);
  const std::array<JsonValue, 2> rows = rows_of_answers(row_in(line, path), place);
  const std::array<std::string, 2> where{fmt::format("{}: {}", place, kAnswers[0]), fmt::format("{}: {}", place, kAnswers[1])};
  if (const JsonValue& prompt = *rows[0].find("prompt"); prompt.is_string())
    return encode_texts<2>(prompt.as_string(), {rows[0].find("completion")->as_string(), rows[1].find("completion")->as_string()},
                        where, options, tokenizer, encoder);
  std::array<ConversationTokens, 2> tokens;
  for (std::size_t a = 0; a < rows.size(); ++a)
    tokens[a] = encode_parsed(read_conversation(rows[a], where[a]), where[a], options, tokenizer, encoder);
  return tokens;
}

ChatMarks chat_marks(const ChatSource& source, const Tokenizer& tokenizer) {
  RenderedChat chat;
  try {
    const JsonValue turn(JsonValue::Array{chat_message("user", "a"), chat_message("assistant", "a")});
    chat = source.chat.render(turn, {}, GenerationPrompt::kNone, source.variables);
  } catch (const DataError&) {
    return {};
  }
  ChatMarks marks;
  const std::string_view text = chat.text;
  std::size_t answered = text.size();
  for (const RenderedSegment& segment : chat.segments)
    if (segment.origin == TextOrigin::kMessage) answered = segment.end;
  const std::vector<std::int32_t> behind = tokenizer.encode(text.substr(answered), {.around = Around::kLeftOut});
  const auto end = std::ranges::find_if(behind, [&](std::int32_t id) { return tokenizer.is_control(id); });
  if (end != behind.end()) marks.ends = {*end};
  for (std::size_t at = 0; (at = text.find("<|", at)) != text.npos; at += 2) {
    const std::string_view marker = text.substr(at, std::min(text.find("|>", at), text.size() - 2) + 2 - at);
    if (!marker.ends_with("|>") || marker.find_first_of(" \n") != marker.npos || tokenizer.find(marker)) continue;
    marks.warning = fmt::format("{} writes {}, which is no token of tokenizer {}: a model reads it letter by letter; give the "
                                "model's own template", source.chat.name(), in_quotes(marker), in_quotes(tokenizer.name()));
    break;
  }
  return marks;
}

std::vector<std::int32_t> encode_rendered(const RenderedChat& rendered, const Tokenizer& tokenizer) {
  const std::vector<ByteRange> plain = message_texts(rendered);
  return tokenizer.encode(rendered.text, {.around = Around::kLeftOut, .plain = plain});
}

}  // namespace trident
