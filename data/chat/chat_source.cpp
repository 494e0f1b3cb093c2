#include "data/chat/chat_source.h"

#include <array>
#include <filesystem>
#include <map>
#include <utility>

#include "core/file_io.h"
#include "core/shell_word.h"

namespace trident {
namespace {

// {{ role }} and the control texts are the formats'; an answer ends with the text that ends turns.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kBuiltIn{{
    {"chatml", R"({% for message in messages %}
{% if message.content is not string or message.tool_calls %}
{{ raise_exception('chatml takes messages whose content is text; give --template FILE for others') }}
{% endif %}
{{ '<|im_start|>' ~ message.role }}
{% set text = message.content ~ '<|im_end|>\n' %}
{% if message.role == 'assistant' %}{% generation %}{{ text }}{% endgeneration %}{% else %}{{ text }}{% endif %}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
)"},
    {"llama3", R"({{ bos_token }}{% for message in messages %}
{% if message.content is not string or message.tool_calls %}
{{- raise_exception('llama3 takes messages whose content is text; give --template FILE for others') }}
{% endif %}
{{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' }}
{%- set text = message.content | trim ~ '<|eot_id|>' %}
{% if message.role == 'assistant' %}{% generation %}{{ text }}{% endgeneration %}{% else %}{{ text }}{% endif %}
{% endfor %}
{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}
)"},
}};

constexpr JsonRules kRules{.comments = false, .max_bytes = std::size_t{64} << 20, .blame = ExitCode::kData,
                           .max_values = std::size_t{1} << 22};

std::string text_of_file(const std::string& path) {
  const RandomAccessFile file(path);
  if (file.size() > (1 << 20))
    throw DataError(fmt::format("{}: {} bytes; a chat template has at most {}", path, file.size(), 1 << 20));
  return read_file(path);
}

// apply_chat_template hands these to templates.
void read_special_tokens(const JsonValue& config, ChatVariables* out) {
  for (const JsonMember& member : config.members()) {
    if (member.key == "extra_special_tokens" && member.value.is_object()) read_special_tokens(member.value, out);
    if (!member.key.ends_with("_token")) continue;
    const JsonValue& token = member.value.is_object() ? member.value.get("content") : member.value;
    if (token.is_string()) out->special_tokens.emplace_back(member.key, token.as_string());
  }
}

std::optional<ChatTemplate> parsed_if_there(const std::string& path) {
  if (!file_exists(path)) return std::nullopt;
  return ChatTemplate::parse(text_of_file(path), path);
}

// "chat_template" of a tokenizer_config.json.
std::optional<ChatSource> source_in(const JsonValue& config, const std::string& path) {
  const JsonValue* const found = config.find("chat_template");
  if (found == nullptr || found->is_null()) return std::nullopt;
  if (found->is_string()) return ChatSource{ChatTemplate::parse(found->as_string(), path + " chat_template"), {}, {}};
  std::optional<ChatTemplate> chat, with_tools;
  if (found->is_array())
    for (const JsonValue& item : found->items()) {
      const JsonValue &name = item.get("name"), &text = item.get("template");
      if (!name.is_string() || !text.is_string())
        throw DataError(
            fmt::format("{}:{}: a template of chat_template without name and template; give --template FILE", path, item.line()));
      std::optional<ChatTemplate>* const to = name == JsonValue("default")    ? &chat
                                              : name == JsonValue("tool_use") ? &with_tools
                                                                              : nullptr;
      if (to != nullptr) *to = ChatTemplate::parse(text.as_string(), fmt::format("{} chat_template {}", path, name.as_string()));
    }
  if (!chat)
    throw DataError(fmt::format("{}:{}: chat_template is neither a text nor a list with \"default\"; give --template FILE", path,
                                found->line()));
  return ChatSource{std::move(*chat), std::move(with_tools), {}};
}

}  // namespace

JsonValue object_in(const std::string& path) {
  JsonValue value;
  if (file_exists(path)) value = read_json_file(path, kRules);
  return value.is_object() ? value : JsonValue(JsonValue::Object());
}

JsonValue tokenizer_config_of(const std::string& folder) {
  const JsonValue config = object_in(folder + "/tokenizer_config.json");
  if (config.find("added_tokens_decoder") != nullptr) return config;
  JsonValue::Object all = config.members();
  std::map<std::string_view, std::size_t> places;
  for (const JsonMember& member : config.members()) places.emplace(member.key, places.size());
  const JsonValue named = object_in(folder + "/special_tokens_map.json");
  for (const JsonMember& member : named.members()) {
    const auto place = places.find(member.key);
    if (place == places.end()) all.push_back(member);
    else all[place->second].value = member.value;
  }
  return all;
}

std::optional<ChatSource> find_chat_source(const std::string& folder, const std::string& name) {
  const std::string config_path = folder + "/tokenizer_config.json", template_path = folder + "/chat_template.jinja";
  const JsonValue config = folder.empty() ? JsonValue(JsonValue::Object()) : tokenizer_config_of(folder);
  std::optional<ChatSource> source;
  for (const auto& [built_in, text] : kBuiltIn)
    if (name == built_in) source = ChatSource{ChatTemplate::parse(text, fmt::format("the built-in template {}", name)), {}, {}};
  if (!source && !name.empty()) source = ChatSource{ChatTemplate::parse(text_of_file(name), name), {}, {}};
  if (!source && !folder.empty() && file_exists(template_path))
    source = ChatSource{ChatTemplate::parse(text_of_file(template_path), template_path),
                        parsed_if_there(folder + "/additional_chat_templates/tool_use.jinja"), {}};
  if (!source) source = source_in(config, config_path);
  if (source) read_special_tokens(config, &source->variables);
  return source;
}

ChatSource load_chat_source(const std::string& folder, const std::string& name) {
  std::optional<ChatSource> source = find_chat_source(folder, name);
  if (!source)
    throw DataError(
        fmt::format("{}: neither chat_template.jinja nor a chat_template in tokenizer_config.json; give --template chatml, "
                    "--template llama3, or a file",
                    folder));
  return std::move(*source);
}

ChatSource chat_source_of(const std::string& tokenizer, const std::string& name, std::string_view key) {
  const bool is_folder = std::filesystem::is_directory(tokenizer);
  std::optional<ChatSource> source = find_chat_source(is_folder ? tokenizer : "", name);
  constexpr std::string_view kRemedy =
      "give the one of the model's data (--template chatml, llama3 or a file), or --prompt TEXT to a model that learned no "
      "conversations";
  if (!source) throw DataError(fmt::format("{}: tokenizer {} has no chat template; {}", key, in_quotes(tokenizer), kRemedy));
  return std::move(*source);
}

std::tm time_of(const std::string& text, std::string_view key) {
  for (const char* const format : {"%Y-%m-%d", kTimeFormat}) {
    std::tm time{};
    const char* const end = strptime(text.c_str(), format, &time);
    const int day = time.tm_mday;
    if (end == nullptr || *end != '\0' || timegm(&time) == -1 || time.tm_mday != day) continue;
    return time;
  }
  throw ConfigError(fmt::format("{} = {}: must be a date such as 2026-11-29, or 2026-11-29T13:05:00", key, in_quotes(text)));
}

Conversation read_messages(const JsonValue& row, std::string_view where) {
  Conversation conversation = read_conversation(row, where, Marks::kPassedOver);
  if (conversation.messages.is_null())
    throw DataError(fmt::format("{}: plain text has no messages; render rows with messages", where));
  return conversation;
}

Conversation read_messages_file(const std::string& path) {
  JsonValue row;
  try {
    row = read_json_file(path, kRules);
  } catch (DataError& error) {
    if (path.ends_with(".jsonl"))
      error.add_context(fmt::format("; one conversation is read: take a line of it, sed -n 1p {} > one.json", for_shell(path)));
    if (!is_there(path))
      error.add_context(fmt::format("; the file has messages, such as [{{\"role\": \"user\", \"content\": {}}}]",
                                    path.find(' ') == path.npos ? "\"...\"" : in_quotes(path)));
    throw;
  }
  return read_messages(row, path);
}

RenderedChat render_conversation(const ChatSource& source, const Conversation& conversation, GenerationPrompt prompt,
                                 std::string_view where) {
  try {
    const ChatTemplate& chat = source.for_tools(conversation.tools);
    const bool as_written = takes_texts_alone(chat, conversation, source.variables);
    return chat.render(as_written ? conversation.written : conversation.messages, conversation.tools, prompt, source.variables);
  } catch (DataError& error) {
    error.add_context(fmt::format(" [{}]", where));
    throw;
  }
}

RenderedChat render_messages_file(const ChatSource& source, const std::string& messages_path, const std::string& tools_path,
                                  GenerationPrompt prompt) {
  Conversation conversation = read_messages_file(messages_path);
  if (!tools_path.empty()) {
    conversation.tools = read_json_file(tools_path, kRules);
    if (!conversation.tools.is_array())
      throw DataError(fmt::format("{}: tools that are no list; write a JSON array of objects", tools_path));
  }
  return render_conversation(source, conversation, prompt, messages_path);
}

}  // namespace trident
