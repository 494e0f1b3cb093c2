// Chat templates against Jinja2 with Hugging Face's settings (scripts/oracle/chat_goldens.py); conversations; the bytes that count.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "core/clock.h"
#include "core/file_io.h"
#include "core/fnv1a.h"
#include "core/json_reader.h"
#include "data/chat/chat_source.h"
#include "data/chat/chat_template.h"
#include "data/chat/conversation.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

constexpr JsonRules kRules{.comments = false, .blame = ExitCode::kData};

JsonValue json(std::string_view text) { return parse_json(text, "x.jsonl", kRules); }

std::vector<JsonValue> golden_lines(const std::string& name) {
  std::istringstream file(read_file(std::string(TRIDENT_GOLDENS "/") + name));
  std::vector<JsonValue> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json(line));
  return lines;
}

ChatVariables variables_of(const JsonValue& special) {
  ChatVariables out;
  for (const JsonMember& token : special.members()) out.special_tokens.emplace_back(token.key, token.value.as_string());
  std::tm now{};  // Sunday, 29 November 2026, 13:05
  now.tm_year = 126, now.tm_mon = 10, now.tm_mday = 29, now.tm_hour = 13, now.tm_min = 5, now.tm_yday = 332;
  out.now = now;
  return out;
}

std::vector<ByteRange> generated(const RenderedChat& chat) {
  std::vector<ByteRange> spans;
  for (const RenderedSegment& it : chat.segments)
    if (it.in_generation && !spans.empty() && spans.back().end == it.begin) spans.back().end = it.end;
    else if (it.in_generation) spans.push_back({it.begin, it.end});
  return spans;
}

std::string in_words(const std::vector<ByteRange>& spans) {
  std::string out;
  for (const ByteRange& span : spans) out += fmt::format(" {}-{}", span.begin, span.end);
  return out;
}

// Returns the text of a conversation, then its spans; or "refused".
std::string rendered(std::string_view source, const JsonValue& line, ChatVariables variables) {
  try {
    const JsonValue *const tools = line.find("tools"), *const prompt = line.find("add_generation_prompt");
    if (const JsonValue* const others = line.find("variables")) variables.others = *others;
    const RenderedChat chat = ChatTemplate::parse(source, "t").render(
        *line.find("messages"), tools == nullptr ? JsonValue() : *tools,
        prompt != nullptr && prompt->as_bool() ? GenerationPrompt::kAdded : GenerationPrompt::kNone, variables);
    return chat.text + in_words(generated(chat));
  } catch (const DataError& error) {
    return contains(error.what(), "t:") ? "refused" : error.what();
  }
}

TEST(ChatTemplates, RenderAsJinjaDoes) {
  const std::vector<JsonValue> lines = golden_lines("chat.jsonl");
  ASSERT_GT(lines.size(), 700u);
  const ChatVariables variables = variables_of(*lines[0].find("special"));
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const JsonValue::Array& golden = lines[i].items();
    std::string expected = "refused";
    if (!golden[1].is_null()) {
      expected = golden[1].as_string();
      for (const JsonValue& span : golden[2].items())
        expected += fmt::format(" {}-{}", span.items()[0].as_integer(), span.items()[1].as_integer());
    }
    EXPECT_EQ(rendered(golden[0].as_string(), lines[0], variables), expected) << golden[0].as_string();
  }
}

TEST(ChatTemplates, OfModelsRenderAsTransformersDoes) {
  const std::string folder = TRIDENT_FETCHED "/chat_templates";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder << ": run scripts/oracle/fetch_chat_templates.sh";
  const std::vector<JsonValue> conversations = golden_lines("chat_conversations.jsonl");
  ASSERT_GE(conversations.size(), 30u);
  const ChatVariables variables = variables_of(json(R"({"bos_token": "<s>", "eos_token": "</s>"})"));
  std::istringstream rows(read_file(TRIDENT_GOLDENS "/chat_templates.txt"));
  int num_templates = 0;
  const auto hash = [](std::string_view text) {
    Fnv1a sum;
    sum.add(text);
    return fmt::format("{:016x}", sum.value());
  };
  for (std::string row; std::getline(rows, row); ++num_templates) {
    std::istringstream words(row);
    std::string name, expected;
    words >> name >> expected;
    const std::string source = read_file(folder + "/" + name);
    ASSERT_EQ(hash(source), expected) << name << " is of another version";
    for (const JsonValue& conversation : conversations) {
      words >> expected;
      const std::string text = rendered(source, conversation, variables);
      EXPECT_EQ(text == "refused" ? text : hash(text), expected) << name << ": " << to_json_text(conversation);
    }
  }
  EXPECT_GE(num_templates, 41);
}

// The parts of the text that came from messages, each behind a "|".
std::string from_messages(std::string_view source, std::string_view messages) {
  const RenderedChat chat = ChatTemplate::parse(source, "t").render(json(messages), {}, GenerationPrompt::kNone, {});
  std::string out;
  std::size_t end = 0;
  for (const RenderedSegment& it : chat.segments) {
    EXPECT_EQ(it.begin, end);
    end = it.end;
    if (it.origin == TextOrigin::kMessage) out += "|" + chat.text.substr(it.begin, it.end - it.begin);
  }
  EXPECT_EQ(end, chat.text.size());
  return out;
}

TEST(ChatTemplates, TextsOfMessagesKeepTheirOrigin) {
  constexpr std::string_view kMessages = R"([{"role": "user", "content": " <|x|> a ", "list": ["é", {"k": 1}]}])";
  const auto kept = [&](std::string_view expression) {
    return from_messages(fmt::format("<|im_start|>{{{{ {} }}}}<|im_end|>", expression), kMessages);
  };
  EXPECT_EQ(kept("messages[0].content"), "| <|x|> a ");
  EXPECT_EQ(kept("'<' ~ messages[0].content | trim ~ '>'"), "|<|x|> a");
  EXPECT_EQ(kept("'<' + messages[0].content[2:4] + '>'"), "||x");
  EXPECT_EQ(kept("messages[0].content.replace('x', '-').split()[0]"), "|<|||>");
  EXPECT_EQ(kept("messages[0].content | upper"), "| <|X|> A ");
  EXPECT_EQ(kept("messages[0].list | tojson"), "|é|k");
  EXPECT_EQ(kept("messages[0].list"), "|é|k");
  EXPECT_EQ(kept("['a', messages[0].content[4], 'b'] | join('|')"), "||");
  EXPECT_EQ(kept("messages[0].keys() | list | first"), "|role");
  EXPECT_EQ(
      from_messages("{% set a %}x{{ messages[0].content }}{% endset %}{% macro m(b) %}[{{ b }}]{% endmacro %}{{ m(a) | indent }}",
                    kMessages),
      "| <|x|> a ");
  // Words that name roles are the template's: <|user|> is a control text, whoever said "user".
  EXPECT_EQ(kept("'<|' ~ messages[0].role ~ '|>'"), "");
  EXPECT_EQ(from_messages("<|{{ messages[0].role }}|>", R"([{"role": "im_end", "content": ""}])"), "|im_end");
}

// Beside a power of two the shortest digits are not those that rounding to so many digits gives.
TEST(ChatTemplates, NumbersHaveTheDigitsOfPython) {
  const std::string numbers = "5.684341886080802e-14 9007199254740992.0 1e+16 1e-05 0.0001 -0.0 5e-324 123456789012345.67";
  std::string source;
  for (const char c : numbers) source += c == ' ' ? " }} {{ " : std::string(1, c);
  EXPECT_EQ(ChatTemplate::parse("{{ " + source + " }}", "t").render(json("[]"), {}, GenerationPrompt::kNone, {}).text, numbers);
}

std::string template_refusal(std::string_view source) {
  return error_of<DataError>([&] {
    ChatTemplate::parse(source, "chat.jinja")
        .render(json(R"([{"role": "user", "content": "hi"}])"), {}, GenerationPrompt::kNone, {});
  });
}

// transformers 5.23 prints integers in full, and leaves out a member of a message that is null.
TEST(ChatTemplates, LargeIntegersArePrintedInFull) {
  const auto text_of = [](const std::string& source, const std::string& messages) {
    return ChatTemplate::parse(source, "t").render(json(messages), {}, GenerationPrompt::kNone, {}).text;
  };
  const std::string call =
      R"([{"role": "a", "content": null, "n": 12345678901234567890123, "l": [18446744073709551615, 1e22, 1.5e300]}])";
  EXPECT_EQ(text_of("{{ messages[0].n }} {{ messages[0].l|tojson }} {{ messages[0].l }}", call),
            "12345678901234567890123 [18446744073709551615, 1e+22, 1.5e+300] [18446744073709551615, 1e+22, 1.5e+300]");
  EXPECT_EQ(text_of("{{ messages[0].n is integer and messages[0].n is number }}{{ messages[0].n == messages[0].n|int }}"
                    "{{ messages[0].n == 1 }}{{ 'content' in messages[0] }}{{ messages[0].content is defined }}", call),
            "TrueTrueFalseFalseFalse");
  for (const char* other : {"{{ messages[0].n + 1 }}", "{{ messages[0].n|float }}", "{{ messages[0].n == 1.0 }}"})
    expect_error<DataError>([&] { text_of(other, call); }, {"t:1:", "of more than 64 bits"});
}

TEST(ChatTemplates, WhatIsNotKnownIsRefusedByNameAndPlace) {
  EXPECT_EQ(template_refusal("a\n {% include 'x' %}"),
            "chat.jinja:2:2: the statement \"include\"; "
            "set, with, for, if, macro, call, filter, raw, generation, break and continue are known");
  for (const std::string_view statement : {"block x", "extends 'x'", "import 'x' as y", "from 'x' import y",
                                           "autoescape true", "raw x", "do x", "print 1", "trans"})
    EXPECT_TRUE(contains(template_refusal(fmt::format("{{% {} %}}", statement)), "chat.jinja:1:1: the statement ")) << statement;
  const std::pair<std::string_view, std::string_view> kRefused[] = {
      {"{{ 1 | batch }}", "1:8: the filter \"batch\"; known are "},
      {"{{ none|d(1, 2, 3) }}", "3 arguments for default, which takes 2"},
      {"{{ 1 is upper }}", "1:9: the test \"upper\"; known are "},
      {"{{ '{:>5}'.format(1) }}", "1:18: the field \":>5\" of format()"},
      {"{{ '%c' % 1 }}", "1:9: a text formatted by %: %c; known are s, r, d, i, u, e, E, f, F, g and G"},
      {"{{ '%5é' % 1 }}", "a text formatted by %: %5é; known are s, "},
      {"{{ '%.2d' % 1 }}", "a text formatted by %: %.2d; known are s, "},
      {"{{ '%-' % 1 }}", "a text formatted by %: it ends inside a field"},
      {"{{ '%(a(s' % {'a': 1} }}", "a text formatted by %: it ends inside a field"},
      {"{{ '%(b)s' % {'a': 1} }}", "a text formatted by %: no value \"b\""},
      {"{{ '%s%s' % 1 }}", "a text formatted by %: too few values"},
      {"{{ '%99999d' % 1 }}", "a text formatted by %: a width beyond 4096"},
      {"{{ '%.0000099999f' % 1 }}", "a text formatted by %: a width beyond 4096"},
      {"{{ '%.00009999999999f' % 1 }}", "a text formatted by %: a width beyond 4096"},
      {"{{ 'é'.isalpha() }}", "isalpha() of a text that is not ASCII"},
      {"{% raw %}{% endraw x %}", "1:1: {% raw %} without {% endraw %}"},
      {"{% for x in [1] %}{{ loop([2]) }}{% endfor %}", "1:26: a call of a loop that is not recursive"},
      {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "1:36: loops more than 100 deep in each other"},
      {"{{ f(**x) }}", "arguments unpacked by **"},
      {"{{ cycler(1) }}", "Jinja's cycler"},
      {"{% macro m() %}{{ varargs }}{% endmacro %}", "varargs in a macro"},
      {"{% macro m() %}{% endmacro %}{{ m.name }}", "1:34: the attribute \"name\" of a macro"},
      {"{{ 0x10 }}", "1:4: a number that is not decimal; change the template, or give another by --template"},
      {"{{ 'a' | indent(10 ** 9) }}", "1:10: an indent of more than 4096 spaces; "},
      {"{{ [] | tojson(indent=10 ** 9) }}", "an indent of more than 4096 spaces"},
      {"{{ 9223372036854775807 + 1 }}", "an integer of more than 64 bits"},
      {"{{ [].append(1) }}", "append() would change a list, as Hugging Face does not let templates do"},
      {"{{ x.y }}", "1:5: \"x\" is undefined"},
      {"{{ messages[0].a.b }}", "1:17: \"a\", which a dict does not have, is undefined"},
      {"{{ raise_exception('no\n\x1b[31m') }}", "1:19: the template refuses these messages: \"no\\n\\u001b[31m\""},
      {"{{ strftime_now('%Y') }}", "the template writes the date of today; say which by --now YYYY-MM-DD"},
      {"{% if 1 %}", "1:11: the end of the template where {% endif %} is expected"},
      {"{% set a = messages | map(attribute='role') %}{{ a | list }}{{ a | list }}", "an iterator is gone through twice"},
      {"\xff", "byte 0 of the chat template is not UTF-8"},
  };
  for (const auto& [source, part] : kRefused)
    EXPECT_TRUE(contains(template_refusal(source), part)) << source << ": " << template_refusal(source);
}

TEST(ChatTemplates, HostileTemplatesEndSoon) {
  const auto repeated = [](std::string_view text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
  };
  const std::string doubling = "{% set n = namespace(x='ab', l=[]) %}{% for i in range(99999) %}";
  const std::string long_text =
      "{% set x = ('\\x01' * 1000) * 1000 %}{% set d = dict(a=1, b=1, c=1, d=1, e=1, f=1, g=1, h=1, i=1) %}";
  const std::string hostile[] = {
      repeated("{% for i in range(99999) %}", 5) + repeated("{% endfor %}", 5),
      doubling + "{% set n.x = n.x + n.x %}{% endfor %}",
      doubling + "{% set n.x = n.x ~ n.x %}{{ n.x }}{% endfor %}",
      doubling + "{% set n.l = [n.l, n.l] %}{% endfor %}",
      "{% set n = namespace(l=[], m=[]) %}{% for i in range(150) %}{% set n.l = [n.l, n.l] %}{% set n.m = [n.m, n.m] %}{% endfor %}"
      "{{ n.l == n.m }}",
      "{% set n = namespace(l=[]) %}{% for i in range(150) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}",
      "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
      "{{ " + repeated("(", 9999),
      "{{ " + repeated("[", 9999),
      "{{ 1" + repeated("+1", 99999) + " }}",
      "{{ " + repeated("not ", 99999) + "1 }}",
      "{{ " + repeated("-", 99999) + "1 }}",
      "{{ 1" + repeated("|abs", 99999) + " }}",
      "{{ 1" + repeated(" if 1 else 1", 9999) + " }}",
      repeated("{% if 1 %}", 9999),
      "{% if 0 %}" + repeated("{% elif 0 %}", 9999) + "{% endif %}",
      "{{ 'a' * 99999999 }}",
      "{{ [1] * 99999999 }}",
      "{{ 2 ** 99999999 }}",
      "{{ ('a' * 9999999).replace('', 'b' * 99999) }}",
      "{{ ('a' * 9999999 ~ 'b') in ('a' * 19999999) }}{{ raise_exception('') }}",
      doubling + "{{ ('a' * 999999).split('a') | length }}{% endfor %}",
      doubling + "{{ ('a' * 9999) | upper | lower | length }}{% endfor %}",
      doubling + "{{ messages | tojson(indent=4096) }}{% endfor %}",
      doubling + "{{ range(99999) | list | length }}{% endfor %}",
      doubling + "{{ range(99999) | unique | list | length }}{% endfor %}",
      doubling + "{{ dict(messages[0]) | dictsort }}{% endfor %}",
      "{{ dict(" + repeated("a=1,", 256) + ") }}",
      "{% macro m(" + repeated("a,", 256) + ") %}{% endmacro %}",
      "{{ " + repeated("a", 256) + " }}",
  };
  std::vector<std::string> charged = {
      "{% set t = (" + repeated("'b',", 99999) + ") %}" + doubling + "{% set y = 'a'.startswith(t) %}{% endfor %}",
      long_text + "{% for i in range(5000) %}{% set y = {x: 1} %}{% endfor %}",
  };
  std::string names;
  for (int i = 0; i < 20000; ++i) names += fmt::format("'{}': 1,", i);
  charged.push_back(fmt::format("{{% set d = {{{}}} %}}{}{{% set y = dict(d) %}}{{% endfor %}}", names, doubling));
  charged.push_back(fmt::format("{{% set d = {{{}}} %}}{}{{% set y = namespace(d) %}}{{% endfor %}}", names, doubling));
  for (const std::string_view work :
       {"'b'.strip(x)", "x | indent", "x | int", "x | float", "[x, x] | unique | list", "[x] | map('int') | list",
        "[1, 2] | map(attribute=x) | list", "x % {}", "d[x]", "d.get(x)", "x in d", "[x] | string", "x | tojson"})
    charged.push_back(fmt::format("{}{}{{% set y = {} %}}{{% endfor %}}", long_text, doubling, work));
  const auto ends_soon = [](const std::string& source, std::string_view expected) {
    const double begin = thread_cpu_seconds();  // other work on the machine is none of the template's
    const std::string refusal = template_refusal(source);
    const std::string end = source.substr(source.size() - std::min(source.size(), std::size_t{60}));
    EXPECT_TRUE(contains(refusal, expected) && contains(refusal, "chat.jinja:1:"))
        << source.substr(0, 80) << " ... " << end << ": " << refusal;
    EXPECT_LT(thread_cpu_seconds() - begin, 30) << source.substr(0, 80);  // a second without sanitizers, with the check above
  };
  for (const std::string& source : hostile) ends_soon(source, "");
  for (const std::string& source : charged) ends_soon(source, "more than 10^6 steps");
}

TEST(Conversations, OfEveryFormBecomeMessages) {
  const auto messages = [](std::string_view row) { return to_json_text(read_conversation(json(row), "f").messages); };
  constexpr std::string_view kMessages =
      R"([{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"a"}])";
  EXPECT_EQ(messages(kMessages), kMessages);
  EXPECT_EQ(messages(fmt::format(R"({{"id": 7, "messages": {}}})", kMessages)), kMessages);
  EXPECT_EQ(messages(R"({"system": "s", "conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}]})"),
            kMessages);
  const Conversation split = read_conversation(
      json(
          R"({"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
               "completion": [{"role": "assistant", "content": "a"}]})"),
      "f");
  EXPECT_EQ(to_json_text(split.messages), kMessages);
  EXPECT_EQ(split.num_prompt, 2u);
  const Conversation plain = read_conversation(json(R"({"prompt": "1 + 1 =", "completion": " 2"})"), "f");
  EXPECT_TRUE(plain.messages.is_null() && plain.has_completion);
  EXPECT_EQ(plain.prompt + plain.completion, "1 + 1 = 2");
  EXPECT_EQ(messages(R"([{"role":"a","content":null,"tool_calls":[{"function":{"arguments":"{\"k\": 1}"}},{},
                          {"function":{"arguments":""}},{"function":{"arguments":{"l":2}}}]}])"),
            R"([{"role":"a","content":null,"tool_calls":[{"function":{"arguments":{"k":1}}},{},)"
            R"({"function":{"arguments":{}}},{"function":{"arguments":{"l":2}}}]}])");
  read_conversation(json(R"({"messages": [{"role": "user", "content": "a", "weight": 1, "train": false},
      {"role": "assistant", "content": "a", "weight": 1, "train": true, "loss": 1.0, "training": null}],
      "chat_template_kwargs": {}})"), "f");  // marks that ask for nothing else
  read_messages(json(R"([{"role": "user", "content": "a", "train": true}])"), "f");  // where nothing is learned
  EXPECT_EQ(to_json_text(read_conversation(json(R"({"messages": [], "tools": "[{\"name\": 1}]"})"), "f").tools), R"([{"name":1}])");
}

TEST(Conversations, ErrorsNameLineAndKey) {
  const std::pair<std::string_view, std::string_view> kRefused[] = {
      {"\n{}",
       "f:2:1: a conversation without any of its keys; rows have \"messages\", \"conversations\", or \"prompt\" and "
       "\"completion\""},
      {"3", "f:1:1: a conversation is an integer where an object is expected"},
      {R"({"messages": 3})", "f:1:14: messages is an integer where a list of messages is expected"},
      {R"({"messages": [3]})", "f:1:15: messages[0] is an integer where a message is expected"},
      {R"({"messages": [{"content": ""}]})", "f:1:15: messages[0] has no \"role\""},
      {R"({"messages": [{"role": "user", "contents": "a"}]})",
       "f:1:44: messages[0] has no \"content\", but \"contents\"; rename that key to \"content\""},
      {R"({"messages": [{"role": "user", "text": "a"}]})", "has no \"content\", but \"text\""},
      {R"([{"role": "user", "content": "a"},
           {"role": "assistent", "content": "b"}])",
       "f:2:21: messages[1].role is \"assistent\"; did you mean \"assistant\"?"},
      {R"({"prompt": [{"role": "usr", "content": "a"}], "completion": []})", "prompt[0].role is \"usr\"; did you mean \"user\"?"},
      {R"({"messages": [{"role": null}]})", "f:1:24: messages[0].role is null where a string is expected"},
      {R"([{"role": "user"}])", "f:1:2: messages[0] has no \"content\"; write a text, or \"\" for none"},
      {R"([{"role": "user", "content": null}])", "f:1:30: messages[0].content is null; write a text, or \"\" for none"},
      {R"([{"role": "a", "tool_calls": [{"function": {"arguments": "{"}}]}])",
       "f: messages[0].tool_calls[0].function.arguments:1:2: "},
      {R"([{"role": "a", "tool_calls": [{"function": {"arguments": "3"}}]}])",
       "f:1:58: messages[0].tool_calls[0].function.arguments is not the text of a JSON object"},
      {R"({"conversations": [{"from": "bird", "value": ""}]})",
       "f:1:29: conversations[0].from is \"bird\", which is none of human, gpt"},
      {R"({"conversations": [{"from": "gpt"}]})", "f:1:20: conversations[0] has no \"value\""},
      {R"({"prompt": "a", "completion": []})", "f:1:12: prompt is a string where a list of messages is expected"},
      {R"({"prompt": "a"})", "f:1:1: a conversation without any of its keys"},
      {R"({"prompt": "a", "chosen": "b", "rejected": "c"})",
       "f:1:1: a pair of answers, which trident data prepare reads by --preference"},
      {R"({"instruction": "a", "input": "", "output": "b"})",
       R"(f:1:1: an instruction, of which jq -c '{prompt: "\(.instruction)\n\(.input)\n", completion: .output}' makes)"},
      {R"({"messages": [{"role": "assistant", "content": "a", "weight": 0}]})", "messages[0].weight = 0: --loss says "},
      {R"({"messages": [{"role": "assistant", "content": "a", "loss": false}]})", "messages[0].loss = false: --loss says "},
      {R"({"messages": [{"role": "user", "content": "a", "train": true}]})", "messages[0].train = true: --loss says which "},
      {R"({"conversations": [{"from": "gpt", "value": "a", "training": false}]})", "conversations[0].training = false: --loss"},
      {R"({"messages": [], "chat_template_kwargs": {"enable_thinking": false}})", "chat_template_kwargs: variables of one row"},
      {R"({"messages": [], "tools": {}})", "f:1:27: tools is an object where a list is expected"},
  };
  for (const auto& [row, message] : kRefused)
    EXPECT_TRUE(contains(error_of<DataError>([&] { read_conversation(json(row), "f"); }), message))
        << error_of<DataError>([&] { read_conversation(json(row), "f"); });
}

// As transformers does: a template that takes texts alone shows Python's way to write the list.
TEST(Conversations, PartsReachTheTemplate) {
  constexpr std::string_view kRow = R"([{"role": "u", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                                        {"role": "assistant", "content": "c"}])";
  const auto text = [&](std::string_view source) {
    const Conversation conversation = read_conversation(json(kRow), "f");
    return render_counted(ChatTemplate::parse(source, "t"), conversation, LossKind::kAll, {}, "f").rendered.text;
  };
  EXPECT_EQ(text("{% for m in messages %}{{ m.content }}.{% endfor %}"),
            "[{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}].c.");
  EXPECT_EQ(text("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m['content'] %}"
                 "{{ p.text }}{% endfor %}{% endif %}.{% endfor %}"), "ab.c.");
}

TEST(Conversations, ArgumentsOfCallsAreTextsWhereATemplateRefusesObjects) {
  constexpr std::string_view kRow = R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{\"k\":  1}"}}]}])";
  const auto text = [&](std::string_view use) {
    const std::string source = fmt::format("{{% set a = messages[0].tool_calls[0].function.arguments %}}{{{{ {} }}}}", use);
    const Conversation conversation = read_conversation(json(kRow), "f");
    return render_counted(ChatTemplate::parse(source, "t"), conversation, LossKind::kAll, {}, "f").rendered.text;
  };
  EXPECT_EQ(text("a|tojson"), R"({"k": 1})");
  EXPECT_EQ(text("'```' + a"), R"(```{"k":  1})");  // as DeepSeek's templates do
  EXPECT_TRUE(contains(error_of<DataError>([&] { text("1 + a"); }), "+ of int and dict"));
}

constexpr std::string_view kTurns = R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "a1"},
                                        {"role": "user", "content": "v"}, {"role": "assistant", "content": "a2"}])";

// The counted texts, each behind a "|".
std::string counted(std::string_view source, std::string_view row, LossKind kind) {
  const CountedChat chat = render_counted(ChatTemplate::parse(source, "t"), read_conversation(json(row), "f"), kind, {}, "f:7");
  std::string out;
  for (const ByteRange& span : chat.counted) out += "|" + chat.rendered.text.substr(span.begin, span.end - span.begin);
  return out;
}

constexpr std::string_view kPlain =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}.{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
constexpr std::string_view kTagged =
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}."
    "{% else %}{{ m.content }}.{% endif %}{% endfor %}";

TEST(CountedChats, CountWhatAssistantsSay) {
  EXPECT_EQ(counted(kPlain, kTurns, LossKind::kAssistant), "|a1.|a2.");
  EXPECT_EQ(counted(kPlain, kTurns, LossKind::kLast), "|a2.");
  EXPECT_EQ(counted(kPlain, kTurns, LossKind::kAll), "|[user]u.[assistant]a1.[user]v.[assistant]a2.");
  EXPECT_EQ(counted(kTagged, kTurns, LossKind::kAssistant), "|a1|a2");
  EXPECT_EQ(counted(kTagged, kTurns, LossKind::kLast), "|a2");
  EXPECT_EQ(counted(kPlain, R"([{"role": "user", "content": "u"}])", LossKind::kAssistant), "");
  EXPECT_EQ(
      counted(kPlain, R"([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}])", LossKind::kAssistant),
      "|a.|b.");
}

TEST(CountedChats, CountCompletions) {
  constexpr std::string_view kRow =
      R"({"prompt": [{"role": "user", "content": "u"}], "completion": [{"role": "assistant", "content": "a"},
                                       {"role": "user", "content": "v"}]})";
  EXPECT_EQ(counted(kPlain, kRow, LossKind::kCompletion), "|a.[user]v.");
  EXPECT_EQ(error_of<DataError>([&] { counted(kPlain, kTurns, LossKind::kCompletion); }),
            "f:7: \"completion\" is counted of rows with \"prompt\" and \"completion\"; take --loss assistant");
}

TEST(CountedChats, AreRefusedWhereATextIsNoPrefix) {
  constexpr std::string_view kOnlyLast = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ '!' if loop.last }}{% endfor %}";
  EXPECT_EQ(error_of<DataError>([&] { counted(kOnlyLast, kTurns, LossKind::kAssistant); }),
            "f:7: messages[3]: what the template writes before it, with a generation prompt, is not how it goes on (t); take a "
            "template with "
            "{% generation %}, or --loss all");
  constexpr std::string_view kRewritten =
      "{% for m in messages %}[{{ m.role }}]{{ m.content if loop.last or m.role == 'user' }}.{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
  EXPECT_TRUE(contains(error_of<DataError>([&] { counted(kRewritten, kTurns, LossKind::kAssistant); }),
                       "f:7: messages[1]: what the template writes up to it changes with later messages"));
  EXPECT_EQ(counted(kRewritten, kTurns, LossKind::kLast), "|a2.");
  EXPECT_TRUE(contains(error_of<DataError>([&] { counted("{{ messages[0].x.y }}", kTurns, LossKind::kAll); }), " [f:7]"));
}

// Each answer is found by rendering all that stands before it.
TEST(CountedChats, OfManyTurnsAreRefusedInTime) {
  JsonValue::Array turns{chat_message("user", std::string(20'000, 'x'))};
  for (int i = 0; i < 120; ++i) turns.push_back(chat_message("assistant", "a"));
  const std::string row = to_json_text(turns), plain(kPlain);
  const std::string work = "{% for i in range(49) %}{% set s = ''.strip(messages[0].content) %}{% endfor %}";
  EXPECT_EQ(counted(plain, row, LossKind::kAssistant).size(), 120 * 3u);
  EXPECT_TRUE(contains(error_of<DataError>([&] { counted(work + plain, row, LossKind::kAssistant); }),
                       "f:7: messages[69]: the texts before each message take more than 100000000 steps of the template (t); "));
}

TEST(ChatSources, AreFoundInFoldersAndByName) {
  const TemporaryFolder folder;
  const std::string messages = folder / "messages.json", config = folder / "tokenizer_config.json";
  write_file(messages, kTurns);
  const auto text = [&](const std::string& where, const std::string& name, const std::string& tools = "") {
    return render_messages_file(load_chat_source(where, name), messages, tools, GenerationPrompt::kAdded).text;
  };
  EXPECT_EQ(text("", "chatml"),
            "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n<|im_start|>user\nv<|im_end|>\n<|im_start|>"
            "assistant\na2<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_TRUE(contains(error_of<DataError>([&] { text(folder.path(), ""); }),
                       "give --template chatml, --template llama3, or a file"));
  write_file(config, R"({"bos_token": {"content": "<B>"}, "eos_token": "<E>", "pad_token": null, "chat_template": [
      {"name": "tool_use", "template": "T{{ tools | length }}"},
      {"name": "default", "template": "{{ bos_token }}{{ eos_token }}{{ pad_token }}"}]})");
  EXPECT_EQ(text(folder.path(), ""), "<B><E>");
  write_file(folder / "tools.json", "[{}, {}]");
  EXPECT_EQ(text(folder.path(), "", folder / "tools.json"), "T2");
  EXPECT_TRUE(text(folder.path(), "llama3")
                  .starts_with("<B><|start_header_id|>user<|end_header_id|>\n\nu<|eot_id|><|start_header_id|>assistant"));
  write_file(folder / "chat_template.jinja", "J{{ eos_token }}\n");
  EXPECT_EQ(text(folder.path(), ""), "J<E>");
  write_file(folder / "own.jinja", "\n{{ x.y }}");
  EXPECT_TRUE(contains(error_of<DataError>([&] { text("", folder / "own.jinja"); }), "own.jinja:2:5: \"x\" is undefined"));
  EXPECT_TRUE(contains(error_of<DataError>([&] { text("", folder / "own.jinja"); }), " [" + messages + "]"));
  for (const std::string name : {"chatml", "llama3"}) {  // their tags say what prefixes would
    const ChatSource source = load_chat_source(folder.path(), name);
    const CountedChat chat =
        render_counted(source.chat, read_conversation(json(kTurns), "f"), LossKind::kAssistant, source.variables, "f:1");
    ASSERT_EQ(chat.counted.size(), 2u);
    const std::string answer = chat.rendered.text.substr(chat.counted[1].begin, chat.counted[1].end - chat.counted[1].begin);
    EXPECT_EQ(answer, name == "chatml" ? "a2<|im_end|>\n" : "a2<|eot_id|>");
  }
}

}  // namespace
}  // namespace trident
