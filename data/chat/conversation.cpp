#include "data/chat/conversation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/nearest_name.h"
#include "data/chat/python_text.h"

namespace trident {
namespace {

[[noreturn]] void refuse_value(const JsonValue& at, std::string_view source, std::string_view what) {
  throw DataError(fmt::format("{}:{}:{}: {}; rows have \"messages\", \"conversations\", or \"prompt\" and \"completion\"", source,
                              at.line(), at.column(), what));
}

const JsonValue& text_of(const JsonValue& object, std::string_view key, const std::string& path, std::string_view source) {
  const JsonValue* const found = object.find(key);
  if (found == nullptr) refuse_value(object, source, fmt::format("{} has no \"{}\"", path, key));
  if (!found->is_string())
    refuse_value(*found, source, fmt::format("{}.{} is {} where a string is expected", path, key, describe(found->kind())));
  return *found;
}

// OpenAI writes the arguments of a call as the text of an object, which templates would quote once more: it becomes that object.
// Returns whether there was one.
bool read_arguments(JsonValue& message, const std::string& name, std::string_view source) {
  const JsonValue* const found = message.find("tool_calls");
  if (found == nullptr || !found->is_array()) return false;
  JsonValue::Array calls = found->items();
  bool has_read = false;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    JsonValue* const function = calls[i].find("function");
    JsonValue* const text = function == nullptr ? nullptr : function->find("arguments");
    if (text == nullptr || !text->is_string()) continue;
    const std::string path = fmt::format("{}.tool_calls[{}].function.arguments", name, i);
    const JsonRules rules{.comments = false, .blame = ExitCode::kData, .first_line = text->line()};
    JsonValue object = text->as_string().empty() ? JsonValue(JsonValue::Object())
                                                 : parse_json(text->as_string(), fmt::format("{}: {}", source, path), rules);
    if (!object.is_object()) refuse_value(*text, source, path + " is not the text of a JSON object");
    *text = std::move(object);
    has_read = true;
  }
  message.set("tool_calls", std::move(calls));
  return has_read;
}

// Templates decide what a message is that has other keys and no content. A key that is nearly that word is a mistake.
void refuse_without_content(const JsonValue& message, const std::string& name, std::string_view source) {
  static constexpr std::string_view kOthers[] = {"text", "value"};
  for (const JsonMember& member : message.members())
    if (!likely_name(member.key, {"content"}).empty() || std::ranges::find(kOthers, member.key) != std::end(kOthers))
      throw DataError(fmt::format("{}:{}:{}: {} has no \"content\", but {}; rename that key to \"content\"", source,
                                  member.value.line(), member.value.column(), name, in_quotes(member.key)));
  if (message.members().size() == 1)  // its role
    throw DataError(fmt::format("{}:{}:{}: {} has no \"content\"; write a text, or \"\" for none", source, message.line(),
                                message.column(), name));
}

// Templates write roles that they do not know as they are, so that a misspelt one would pass and its message never count.
void refuse_misspelt_role(const JsonValue& role, const std::string& name, std::string_view source) {
  const std::string_view near = likely_name(role.as_string(), {"assistant", "system", "user"});
  const bool is_word = std::ranges::all_of(role.as_string(), [](char c) { return c >= 'a' && c <= 'z'; });  // not user_1, User
  if (near.empty() || !is_word || edit_distance(role.as_string(), near) != 1) return;
  throw DataError(fmt::format("{}:{}:{}: {}.role is {}; did you mean {}?", source, role.line(), role.column(), name,
                              in_quotes(role.as_string()), in_quotes(near)));
}

// By weight OpenAI, by loss ms-swift and by the others axolotl say of a message whether it is learned. All answers are.
void refuse_marks(const JsonValue& message, const std::string& name, std::string_view role, std::string_view source) {
  for (const std::string_view key : {"weight", "loss", "train", "training"}) {
    const JsonValue* const mark = message.find(key);
    if (mark == nullptr || mark->is_null()) continue;
    const auto is = [&](int value) { return *mark == JsonValue(value == 1) || (mark->is_number() && mark->as_number() == value); };
    if (!(role == "assistant" ? is(1) : is(0) || key == "weight"))
      refuse_value(*mark, source,
                   fmt::format("{}.{} = {}: --loss says which messages are learned; leave out the message, or the key", name, key,
                               to_json_text(*mark)));
  }
}

// The list of messages at `path`; each has a role.
JsonValue checked_messages(const JsonValue& list, const std::string& path, std::string_view source, Marks marks) {
  if (!list.is_array())
    refuse_value(list, source, fmt::format("{} is {} where a list of messages is expected", path, describe(list.kind())));
  JsonValue::Array messages = list.items();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    JsonValue& message = messages[i];
    const std::string name = fmt::format("{}[{}]", path, i);
    if (!message.is_object())
      refuse_value(message, source, fmt::format("{} is {} where a message is expected", name, describe(message.kind())));
    refuse_misspelt_role(text_of(message, "role", name, source), name, source);
    const JsonValue* const content = message.find("content");
    if (content == nullptr && message.find("tool_calls") == nullptr) refuse_without_content(message, name, source);
    if (content != nullptr && content->is_null() && message.find("tool_calls") == nullptr)
      throw DataError(fmt::format("{}:{}:{}: {}.content is null; write a text, or \"\" for none", source, content->line(),
                                  content->column(), name));
    if (marks == Marks::kChecked) refuse_marks(message, name, message.find("role")->as_string(), source);
  }
  return messages;
}

// ShareGPT's turns.
JsonValue messages_of_turns(const JsonValue& row, const JsonValue& turns, std::string_view source, Marks marks) {
  static constexpr std::pair<std::string_view, std::string_view> kRoles[] = {
      {"human user", "user"}, {"gpt assistant chatgpt model", "assistant"},
      {"system", "system"}, {"tool observation function", "tool"}};
  if (!turns.is_array())
    refuse_value(turns, source, fmt::format("conversations is {} where a list is expected", describe(turns.kind())));
  JsonValue::Array out;
  if (const JsonValue* const system = row.find("system"); system != nullptr && !system->is_null())
    out.push_back(chat_message("system", text_of(row, "system", "the row", source).as_string()));
  for (std::size_t i = 0; i < turns.items().size(); ++i) {
    const JsonValue& turn = turns.items()[i];
    const std::string path = fmt::format("conversations[{}]", i);
    if (!turn.is_object())
      refuse_value(turn, source, fmt::format("{} is {} where a turn is expected", path, describe(turn.kind())));
    const JsonValue& from = text_of(turn, "from", path, source);
    const auto* const role = std::ranges::find_if(kRoles, [&](auto& it) { return jinja::has_word(it.first, from.as_string()); });
    if (role == std::end(kRoles))
      refuse_value(from, source, fmt::format("{}.from is {}, which is none of human, gpt, system, tool and their other names", path,
                                       in_quotes(from.as_string())));
    if (marks == Marks::kChecked) refuse_marks(turn, path, role->second, source);
    out.push_back(chat_message(role->second, text_of(turn, "value", path, source).as_string()));
  }
  return out;
}

JsonValue tools_of(const JsonValue& row, std::string_view source) {
  const JsonValue* found = row.find("tools");
  if (found == nullptr || found->is_null()) return {};
  JsonValue tools = *found;
  if (found->is_string()) {
    const JsonRules rules{.comments = false, .blame = ExitCode::kData, .first_line = found->line()};
    tools = parse_json(found->as_string(), fmt::format("{}: tools", source), rules);
  }
  if (!tools.is_array()) refuse_value(*found, source, fmt::format("tools is {} where a list is expected", describe(tools.kind())));
  return tools;
}

std::string_view row_without_conversation(const JsonValue& row) {
  if (row.find("chosen") != nullptr) return "a pair of answers, which trident data prepare reads by --preference";
  if (row.find("instruction") != nullptr)
    return "an instruction, of which jq -c '{prompt: \"\\(.instruction)\\n\\(.input)\\n\", completion: .output}' makes a "
           "conversation";
  return "a conversation without any of its keys";
}

Conversation written_conversation(const JsonValue& row, std::string_view source, Marks marks) {
  Conversation out;
  if (row.is_array()) return out.messages = checked_messages(row, "messages", source, marks), out;
  if (!row.is_object())
    refuse_value(row, source, fmt::format("a conversation is {} where an object is expected", describe(row.kind())));
  out.tools = tools_of(row, source);
  const JsonValue* const more = row.find("chat_template_kwargs");
  if (more != nullptr && more->is_object() && !more->members().empty())
    refuse_value(*more, source, "chat_template_kwargs: variables of one row are not built; set them in a copy of the template");
  const JsonValue* const prompt = row.find("prompt");
  const JsonValue* const completion = row.find("completion");
  if (const JsonValue* const messages = row.find("messages")) out.messages = checked_messages(*messages, "messages", source, marks);
  else if (const JsonValue* const turns = row.find("conversations")) out.messages = messages_of_turns(row, *turns, source, marks);
  else if (prompt == nullptr || completion == nullptr)
    refuse_value(row, source, row_without_conversation(row));
  else if (prompt->is_string() && completion->is_string()) {
    out.has_completion = true;
    out.prompt = prompt->as_string(), out.completion = completion->as_string();
  } else {
    JsonValue::Array all = checked_messages(*prompt, "prompt", source, marks).items();
    out.has_completion = true, out.num_prompt = all.size();
    const JsonValue answers = checked_messages(*completion, "completion", source, marks);
    all.insert(all.end(), answers.items().begin(), answers.items().end());
    out.messages = std::move(all);
  }
  return out;
}

constexpr std::size_t kMaxSteps = 100'000'000;  // of all renderings of one conversation, some seconds

class Counter {
 public:
  Counter(const ChatTemplate& chat, const Conversation& conversation, const ChatVariables& variables, std::string_view where)
      : chat_(chat), conversation_(conversation), variables_(variables), where_(where) {}

  CountedChat count(LossKind kind) {
    CountedChat out{render(messages().size(), GenerationPrompt::kNone), {}};
    const std::size_t size = out.rendered.text.size();
    if (kind == LossKind::kAll) add(&out, {0, size});
    else if (kind == LossKind::kCompletion) {
      if (!conversation_.has_completion)
        refuse("\"completion\" is counted of rows with \"prompt\" and \"completion\"; take --loss assistant");
      add(&out, {end_of_prompt(conversation_.num_prompt, out.rendered.text), size});
    } else if (chat_.has_generation()) add_generated(&out);
    else add_by_prefix(&out, kind);
    if (kind == LossKind::kLast && out.counted.size() > 1) out.counted.erase(out.counted.begin(), out.counted.end() - 1);
    return out;
  }

 private:
  const JsonValue::Array& messages() const { return conversation_.messages.items(); }
  [[noreturn]] void refuse(const std::string& what) const { throw DataError(fmt::format("{}: {}", where_, what)); }

  RenderedChat render(std::size_t count, GenerationPrompt prompt) {
    try {
      const JsonValue first(JsonValue::Array(messages().begin(), messages().begin() + static_cast<std::ptrdiff_t>(count)));
      RenderedChat out = chat_.render(first, conversation_.tools, prompt, variables_);
      if ((steps_ += out.steps) <= kMaxSteps) return out;
    } catch (DataError& error) {
      error.add_context(fmt::format(" [{}]", where_));
      throw;
    }
    refuse_message(std::max<std::size_t>(count, 1) - 1,
                   fmt::format("the texts before each message take more than {} steps of the template", kMaxSteps));
  }

  // Joins neighbours.
  static void add(CountedChat* out, ByteRange span) {
    if (span.begin >= span.end) return;
    if (!out->counted.empty() && out->counted.back().end == span.begin) out->counted.back().end = span.end;
    else out->counted.push_back(span);
  }

  static void add_generated(CountedChat* out) {
    for (const RenderedSegment& segment : out->rendered.segments)
      if (segment.in_generation) add(out, {segment.begin, segment.end});
  }

  // How much of `text` the first `count` messages and the header of an answer take.
  std::size_t end_of_prompt(std::size_t count, std::string_view text) {
    const RenderedChat before = render(count, GenerationPrompt::kAdded);
    if (!text.starts_with(before.text))
      refuse_message(count, "what the template writes before it, with a generation prompt, is not how it goes on");
    return before.text.size();
  }
  [[noreturn]] void refuse_message(std::size_t index, std::string_view why) const {
    refuse(fmt::format("messages[{}]: {} ({}); take a template with {{% generation %}}, or --loss all", index, why, chat_.name()));
  }

  void add_by_prefix(CountedChat* out, LossKind kind) {
    const std::string_view all = out->rendered.text;
    for (std::size_t i = messages().size(); i-- > 0;) {
      if (messages()[i].find("role")->as_string() != "assistant") continue;
      const RenderedChat with = i + 1 == messages().size() ? out->rendered : render(i + 1, GenerationPrompt::kNone);
      if (!all.starts_with(with.text)) refuse_message(i, "what the template writes up to it changes with later messages");
      add(out, {end_of_prompt(i, with.text), with.text.size()});
      if (kind == LossKind::kLast) break;
    }
    std::ranges::reverse(out->counted);
  }

  const ChatTemplate& chat_;
  const Conversation& conversation_;
  const ChatVariables& variables_;
  std::string_view where_;
  std::size_t steps_ = 0;
};

}  // namespace

JsonValue chat_message(std::string_view role, std::string_view content) {
  return JsonValue::Object{{"role", role}, {"content", content}};
}

Conversation read_conversation(const JsonValue& row, std::string_view source, Marks marks) {
  Conversation out = written_conversation(row, source, marks);
  if (out.messages.is_null()) return out;
  const bool has_prompt = out.has_completion;
  JsonValue::Array messages = out.messages.items();
  bool has_read = false;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const bool is_answer = has_prompt && i >= out.num_prompt;
    const std::string_view list = !has_prompt ? "messages" : is_answer ? "completion" : "prompt";
    has_read = read_arguments(messages[i], fmt::format("{}[{}]", list, is_answer ? i - out.num_prompt : i), source) || has_read;
  }
  if (has_read) out.written = std::exchange(out.messages, JsonValue(std::move(messages)));
  return out;
}

bool takes_texts_alone(const ChatTemplate& chat, const Conversation& conversation, const ChatVariables& variables) {
  const auto renders = [&](const JsonValue& messages) {
    try {
      return chat.render(messages, conversation.tools, GenerationPrompt::kNone, variables), true;
    } catch (const DataError&) {
      return false;
    }
  };
  return !conversation.written.is_null() && !renders(conversation.messages) && renders(conversation.written);
}

CountedChat render_counted(const ChatTemplate& chat, const Conversation& conversation, LossKind kind,
                           const ChatVariables& variables, std::string_view where) {
  if (!takes_texts_alone(chat, conversation, variables)) return Counter(chat, conversation, variables, where).count(kind);
  Conversation written = conversation;
  written.messages = conversation.written;
  return Counter(chat, written, variables, where).count(kind);
}

}  // namespace trident
