#include "data/chat/chat_template.h"

#include <array>
#include <algorithm>

#include "data/chat/jinja_interpreter.h"

namespace trident {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Text;
using jinja::Value;

// Words by which templates name control texts, as in <|{{ message.role }}|>: they are the template's wherever they come from.
constexpr std::array<std::string_view, 9> kRoles{"system", "developer", "user",        "assistant", "tool",
                                                 "function", "model",   "observation", "ipython"};
constexpr std::array<std::string_view, 3> kReasoning{"reasoning_content", "thinking", "reasoning"};

// Hugging Face shows reasoning under two names, whichever the message has.
void add_reasoning(Dict* message) {
  Value reasoning;
  for (const std::string_view name : kReasoning)
    if (const Value* const found = message->named(name); found != nullptr && reasoning.is_none()) reasoning = *found;
  if (reasoning.is_none()) return;
  Dict out;
  out.set(Text("thinking"), reasoning);
  for (const auto& [key, value] : message->entries) out.set(key, value);
  out.set(Text("reasoning_content"), reasoning);
  *message = std::move(out);
}

Value messages_value(const JsonValue& messages) {
  List out;
  for (const JsonValue& message : messages.items()) {
    Dict entries;  // apply_chat_template leaves out what is None
    for (const JsonMember& member : message.members())
      if (!member.value.is_null())
        entries.set(Text(member.key, jinja::kFromMessage), jinja::from_json(member.value, jinja::kFromMessage));
    if (const Value* const role = entries.named("role"); role != nullptr && role->is_text()) {
      if (const std::string name = role->text().bytes; std::ranges::find(kRoles, name) != kRoles.end())
        entries.set(Text("role"), Text(name));
    }
    add_reasoning(&entries);
    out.items.emplace_back(std::move(entries));
  }
  return out;
}

std::vector<RenderedSegment> segments_of(const std::string& marks) {
  std::vector<RenderedSegment> out;
  for (std::size_t begin = 0, end; begin < marks.size(); begin = end) {
    end = std::min(marks.find_first_not_of(marks[begin], begin), marks.size());
    out.push_back({begin, end, (marks[begin] & jinja::kFromMessage) != 0 ? TextOrigin::kMessage : TextOrigin::kTemplate,
                   (marks[begin] & jinja::kInGeneration) != 0});
  }
  return out;
}

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const jinja::Program> program) : program_(std::move(program)) {}

ChatTemplate ChatTemplate::parse(std::string_view text, std::string name) {
  return ChatTemplate(std::make_shared<const jinja::Program>(jinja::parse_program(text, std::move(name))));
}

RenderedChat ChatTemplate::render(const JsonValue& messages, const JsonValue& tools, GenerationPrompt prompt,
                                  const ChatVariables& variables) const {
  jinja::Interpreter interpreter(*program_, variables.now);
  try {
    for (const auto& [key, text] : variables.special_tokens) interpreter.set(key, Text(text));
    if (variables.others.is_object())
      for (const JsonMember& other : variables.others.members())
        interpreter.set(other.key, jinja::from_json(other.value, jinja::kFromMessage));
    interpreter.set("messages", messages_value(messages));
    interpreter.set("tools", jinja::from_json(tools, jinja::kFromMessage));
    interpreter.set("documents", {});
    interpreter.set("add_generation_prompt", prompt == GenerationPrompt::kAdded);
  } catch (const jinja::Refusal& refusal) {
    throw DataError(refusal.what());
  }
  Text out = interpreter.run();
  return {std::move(out.bytes), segments_of(out.marks), interpreter.budget()->taken()};
}

bool ChatTemplate::has_generation() const { return program_->has_generation; }
bool ChatTemplate::reads_tools() const { return program_->symbol("tools") >= 0; }
const std::string& ChatTemplate::name() const { return program_->name; }

}  // namespace trident
