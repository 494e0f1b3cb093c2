#include "train/config/option_docs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/printable.h"
#include "core/shell_word.h"
#include "model/config/hf_reader.h"
#include "train/config/option_check.h"

namespace trident {
namespace {

std::string default_text(const Option& option) {
  return option.fallback.empty() ? "required" : std::string(option.fallback);
}

std::string unit_text(const Option& option) { return option.unit.empty() ? "" : fmt::format(" [{}]", option.unit); }

// "not built yet: cuda (use ...)" or "" .
std::string reserved_text(const Option& option) {
  if (option.reserved) return " Reserved: not built yet.";
  std::string text;
  for (const ReservedValue& value : option.reserved_values)
    text += fmt::format("{}{}", text.empty() ? " Not built: " : ", ", in_quotes(value.value));
  return text.empty() ? text : text + '.';
}

std::string alias_text(const Option& option) {
  std::string text;
  for (const Alias& alias : option.aliases)
    text += fmt::format("{}{} = {}", text.empty() ? " Also: " : ", ", alias.written, alias.means);
  return text.empty() ? "" : text + ".";
}

void append_table(std::string& out, std::string_view block) {
  out += "| key | value | default | meaning |\n|---|---|---|---|\n";
  for (const Option& option : option_table()) {
    if (block_of(option) != block) continue;
    out += fmt::format("| `{}` | {} | `{}` | {} |\n", option.path, markdown_cell(expected_text(option) + unit_text(option)),
                       default_text(option), markdown_cell(std::string(option.doc) + alias_text(option) + reserved_text(option)));
  }
  out += '\n';
}

JsonValue option_schema(const Option& option);

JsonValue of_type(std::string_view type) { return JsonValue::Object{{"type", type}}; }

JsonValue number_schema(std::string_view type, const Range& range) {
  JsonValue schema = of_type(type);
  const auto bound = [&](std::string_view key, double x) {
    if (!std::isfinite(x)) return;
    schema.set(key, x == std::floor(x) ? JsonValue(static_cast<std::int64_t>(x)) : JsonValue(x));
  };
  bound(range.ends == Range::Ends::kOpenLow ? "exclusiveMinimum" : "minimum", range.low);
  bound(range.ends == Range::Ends::kOpenHigh ? "exclusiveMaximum" : "maximum", range.high);
  return schema;
}

JsonValue list_schema(JsonValue items, std::int64_t length) {
  JsonValue schema = JsonValue::Object{{"type", "array"}, {"items", std::move(items)}};
  if (length > 0) schema.set("minItems", length), schema.set("maxItems", length);
  return schema;
}

JsonValue object_schema(JsonValue properties, JsonValue::Array required) {
  JsonValue schema = JsonValue::Object{{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema.set("required", JsonValue(std::move(required)));
  schema.set("additionalProperties", false);
  return schema;
}

JsonValue any_of(JsonValue::Array schemas) { return JsonValue::Object{{"anyOf", std::move(schemas)}}; }

JsonValue text_schema(const Option& option) {
  JsonValue schema = of_type("string");
  JsonValue::Array words;
  for (const std::string_view choice : option.choices) words.emplace_back(choice);
  for (const Alias& alias : option.aliases) {
    words.emplace_back(alias.written);
    if (const char digit = alias.written[0]; alias.written.size() == 1 && digit >= '0' && digit <= '9') {
      words.emplace_back(static_cast<std::int64_t>(digit - '0'));
      schema = {};  // not texts alone
    }
  }
  if (!words.empty()) schema.set("enum", JsonValue(std::move(words)));
  return schema;
}

JsonValue sources_schema() {
  const JsonValue weight = number_schema("number", {0, HUGE_VAL, Range::Ends::kOpenLow});
  JsonValue source = object_schema(JsonValue::Object{{"path", of_type("string")}, {"weight", weight}}, {"path"});
  JsonValue schema = list_schema(any_of({of_type("string"), std::move(source)}), 0);
  schema.set("minItems", 1);
  return schema;
}

JsonValue layouts_schema() {
  JsonValue properties;
  for (const Option& option : option_table())
    if (block_of(option) == "parallel") properties.set(key_of(option), option_schema(option));
  JsonValue keys = object_schema(std::move(properties), {});
  keys.set("minProperties", 1);
  return list_schema(any_of({of_type("string"), std::move(keys)}), 0);
}

// One schema per kind of value that the option takes.
JsonValue::Array alternatives(const Option& option) {
  JsonValue::Array any;
  const auto has = [&](Takes kind) { return takes(option.takes, kind); };
  if (has(Takes::kBool)) any.push_back(of_type("boolean"));
  if (has(Takes::kInteger)) any.push_back(number_schema("integer", option.range));
  if (has(Takes::kShare)) any.push_back(JsonValue::Object{{"type", "number"}, {"exclusiveMinimum", 0}, {"exclusiveMaximum", 1}});
  if (has(Takes::kNumber)) any.push_back(number_schema("number", option.range));
  if (has(Takes::kString)) any.push_back(text_schema(option));
  if (has(Takes::kIntegers)) any.push_back(list_schema(number_schema("integer", option.range), option.length));
  if (has(Takes::kNumbers)) any.push_back(list_schema(number_schema("number", option.range), option.length));
  if (has(Takes::kMessages))
    any.push_back(list_schema(JsonValue::Object{{"type", JsonValue::Array{"string", "array", "object"}}}, 0));
  else if (has(Takes::kTexts)) any.push_back(list_schema(text_schema(option), 0));
  if (has(Takes::kEvery))
    any.push_back(object_schema(JsonValue::Object{{"every", number_schema("integer", option.range)}}, {"every"}));
  if (has(Takes::kAxes)) {
    JsonValue axes;
    for (const std::string_view axis : kCountedAxes) axes.set(axis, number_schema("integer", option.range));
    any.push_back(object_schema(std::move(axes), {}));
  }
  if (has(Takes::kSources)) any.push_back(sources_schema());
  if (has(Takes::kLayouts)) any.push_back(layouts_schema());
  if (has(Takes::kNull)) any.push_back(of_type("null"));
  return any;
}

JsonValue option_schema(const Option& option) {
  JsonValue schema;
  JsonValue::Array any = alternatives(option);
  // A reserved option takes its neutral values only.
  if (option.reserved) {
    JsonValue::Array values{JsonValue{}, false, 0, default_value(option)};
    for (const std::string_view neutral : option.neutral) values.push_back(parse_json(neutral, option.path));
    JsonValue::Array distinct;
    for (JsonValue& value : values)
      if (std::find(distinct.begin(), distinct.end(), value) == distinct.end()) distinct.push_back(std::move(value));
    schema.set("enum", JsonValue(std::move(distinct)));
  } else if (any.size() == 1) {
    schema = std::move(any.front());
  } else {
    schema = any_of(std::move(any));
  }
  schema.set("description", std::string(option.doc) + unit_text(option) + alias_text(option) + reserved_text(option));
  if (!option.fallback.empty()) schema.set("default", default_value(option));
  return schema;
}

JsonValue block_schema(const OptionBlock& block) {
  JsonValue properties;
  JsonValue::Array required;
  for (const Option& option : option_table()) {
    if (block_of(option) != block.name) continue;
    properties.set(key_of(option), option_schema(option));
    if (option.fallback.empty()) required.emplace_back(key_of(option));
  }
  for (const OptionBlock& inner : option_blocks())
    if (const std::string begin = fmt::format("{}.", block.name); inner.name.starts_with(begin))
      properties.set(inner.name.substr(begin.size()), block_schema(inner));
  JsonValue schema = object_schema(std::move(properties), std::move(required));
  if (block.name == kModelBlock) schema.set("additionalProperties", true);
  JsonValue::Array either{schema};
  if (block.name == "parallel") either.push_back(of_type("string"));
  if (block.name == "checkpoint") either.emplace_back(JsonValue::Object{{"enum", JsonValue::Array{JsonValue{}, false, 0}}});
  if (either.size() > 1) schema = any_of(std::move(either));
  schema.set("description", block.doc);
  return schema;
}

// The part of docs/configuration.md above its tables.
constexpr std::string_view kPageHead = R"(# Configuration

Generated by `trident docs configuration` from the option table (train/config/option_table.cpp); do not edit.

A configuration is one JSON file; comments (`//`, `/* */`) are allowed. Most keys have a default, so that a file is short. Copy
the example that is nearest to what you want, and change it. Every file in `configs/` is an example, too.

**My own text.** `trident data prepare --input mine.txt --separator-line "" --append-eod --tokenizer gpt2 --output corpus/mine`
makes `corpus/mine` of it; then `trident train --config mine.json`:

```json
{
  "run":   { "dir": "runs/mine", "steps": 200 },             // logs and checkpoints go there
  "model": { "preset": "llama-15m" },                        // drawn at random; trident help model.preset lists the others
  "batch": { "global": 8, "micro": 2, "sequence": 256 },     // 8 samples of 256 tokens a step, 2 at a time: less memory with 1
  "optimizer": { "lr": 1e-3 },
  "data":  { "train": "corpus/mine", "split": "95,5" },      // 5 % of the documents are held out
  "eval":  { "every": 50 },
  "checkpoint": { "every": 50 }                              // and at the end; the same command goes on from the newest
}
```

**My model folder.** `models/llama` is a Hugging Face folder: config.json, safetensors, tokenizer. Prepare the text by
`--tokenizer models/llama`:

```json
{
  "run":   { "dir": "runs/tuned", "epochs": 1 },             // every sample once, in place of "steps"
  "model": { "init_from": "models/llama" },                  // its config.json is the model; no other key is needed
  "batch": { "global": 8, "micro": 1, "sequence": 512 },
  "optimizer": { "lr": 1e-5 },
  "data":  { "train": "corpus/llama" }
}
```

**Two nodes** of eight ranks, started by `srun --mpi=pmix -N 2 --ntasks-per-node=8 trident train --config two.json`, or by
`mpirun -np 16 --host n1:8,n2:8 trident train --config two.json`:

```json
{
  "run":   { "dir": "runs/two", "steps": 10000 },            // in a folder that both nodes see
  "model": { "preset": "llama3.2-1b" },
  "parallel": { "tensor": 4, "pipeline": 2, "zero": "zero1" },   // the other 16 / (4 x 2) = 2 are data-parallel ranks
  "batch": { "global": 64, "micro": 1, "sequence": 2048 },
  "optimizer": { "lr": 3e-4 },
  "data":  { "train": "corpus/web", "split": "99,1" },
  "checkpoint": { "every": 250 }
}
```

`--set path=value` changes a key from the command line (`--set optimizer.lr=3e-4`), and of several the last one counts. The value
is read as JSON, or as plain text where it is none. `--print-config` shows all keys and values of a run, `--print-config=origins`
also where each value comes from, and `trident schema` prints a JSON Schema for editors.

A key that is unknown, has another type or leaves its range is an error that names file, line and remedy. *Reserved* keys belong
to features that are not built yet: the values null, false and 0 and the default are accepted, and any other is refused by name.

## Top level

)";

// A legal value of a supported option, as JSON, to show how the key is written: the first choice that is not the default, or the
// default, or something in range.
std::string sample_value(const Option& option) {
  for (const std::string_view choice : option.choices)
    if (in_quotes(choice) != option.fallback) return in_quotes(choice);
  if (!option.fallback.empty() && option.fallback != "null") return std::string(option.fallback);
  if (takes(option.takes, Takes::kInteger)) return fmt::format("{}", std::max(1.0, option.range.low));
  if (takes(option.takes, Takes::kNumber)) return option.range.low >= 1 ? "100" : "0.1";
  if (takes(option.takes, Takes::kIntegers)) return "[2, 2]";
  if (option.form == TextForm::kSplit) return "\"969,30,1\"";
  return option.path == "model.preset" ? "\"NAME\"" : "\"PATH\"";
}

// A JSON text of one word needs no quotes in a setting.
std::string_view without_quotes(std::string_view json) {
  if (json.size() > 2 && json.front() == '"' && json.find_first_of("\\ ") == json.npos) return json.substr(1, json.size() - 2);
  return json;
}

std::string block_help(std::string_view block, std::size_t width) {
  std::string out;
  for (const Option& option : option_table()) {
    if (block_of(option) != block) continue;
    out += fmt::format("  {}{}\n", option.path, option.fallback.empty() ? ", required" : fmt::format(" = {}", option.fallback));
    out += help_paragraph(std::string(option.doc) + alias_text(option) + reserved_text(option), 6, width);
    out += help_paragraph(expected_text(option) + unit_text(option), 6, width);
  }
  return out;
}

// A key of a model that is spelled out, which the reader of Hugging Face's files knows.
std::string model_key_help(std::string_view name, std::size_t width) {
  const std::string begin = fmt::format("{}.", kModelBlock);
  if (!name.starts_with(begin)) return "";
  for (const HfKey& key : hf_keys())
    if (key.name == name.substr(begin.size()))
      return help_paragraph(fmt::format("{}: a key of Hugging Face's config.json, of a spelled-out model", name), 0, width) +
             help_paragraph("takes      " + key.takes, 2, width) + help_paragraph("default    " + key.fallback, 2, width);
  return "";
}

// The table of those keys, and an example.
std::string model_keys_markdown() {
  std::string out = R"(**A model that is spelled out** has the keys of Hugging Face's config.json.
This is a complete configuration of one:

```json
{
  "run":   { "dir": "runs/own", "steps": 200 },
  "model": { "model_type": "llama", "vocab_size": 50304, "hidden_size": 256, "intermediate_size": 688,
             "num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 1024 },
  "batch": { "global": 8, "sequence": 256 },
  "data":  { "train": "corpus/mine" }
}
```

| key | value | default (families) |
|---|---|---|
)";
  for (const HfKey& key : hf_keys()) out += fmt::format("| `{}` | {} | {} |\n", key.name, key.takes, key.fallback);
  return out + '\n';
}

}  // namespace

std::string markdown_cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string help_paragraph(std::string_view text, std::size_t indent, std::size_t width) {
  return folded_between_words(std::string(indent, ' ') + std::string(text), indent, width) + '\n';
}

std::string options_help(std::size_t width) {
  std::string out = help_paragraph("Keys of the configuration, for the file and for --set; trident help KEY says more.", 0, width) + '\n';
  out += block_help("", width);
  for (const OptionBlock& block : option_blocks())
    out += '\n' + help_paragraph(fmt::format("{}: {}", block.name, block.doc), 0, width) + block_help(block.name, width);
  return out;
}

std::string option_help(std::string_view name, std::size_t width) {
  for (const OptionBlock& block : option_blocks())
    if (block.name == name) return help_paragraph(fmt::format("{}: {}", block.name, block.doc), 0, width) + block_help(block.name, width);
  const Option* option = find_option(name);
  if (option == nullptr) return model_key_help(name, width);
  std::string out = help_paragraph(fmt::format("{}: {}", option->path, option->doc), 0, width);
  const auto field = [&](std::string_view label, const std::string& text) {
    if (text.empty()) return;
    std::string lines = help_paragraph(text, 13, width);
    lines.replace(2, label.size(), label);
    out += lines;
  };
  field("takes", expected_text(*option) + unit_text(*option));
  field("default", option->fallback.empty() ? "none, must be given" : std::string(option->fallback));
  for (const Alias& alias : option->aliases) field("also", fmt::format("{} = {}", alias.written, alias.means));
  for (const ReservedValue& value : option->reserved_values)
    field("refused", fmt::format("{}: {}", in_quotes(value.value), value.remedy));
  if (option->reserved) field("status", "not built yet: values that ask for it are refused");
  field("elsewhere", fmt::format("{}", fmt::join(option->aka, ", ")));
  if (option->reserved) return out;
  const std::string sample = sample_value(*option);
  field("setting", fmt::format("--set {}", for_shell(fmt::format("{}={}", option->path, without_quotes(sample)))));
  const std::string pair = fmt::format("{}: {}", in_quotes(key_of(*option)), sample);
  field("file", block_of(*option).empty() ? pair : fmt::format("{}: {{ {} }}", in_quotes(block_of(*option)), pair));
  return out;
}

std::string options_markdown() {
  std::string out(kPageHead);
  append_table(out, "");
  for (const OptionBlock& block : option_blocks()) {
    out += fmt::format("## {}\n\n{}\n\n", block.name, block.doc);
    append_table(out, block.name);
    if (block.name == kModelBlock) out += model_keys_markdown();
  }
  out.pop_back();
  return out;
}

JsonValue options_schema() {
  JsonValue properties;
  JsonValue::Array required{JsonValue(kModelBlock)};
  for (const Option& option : option_table()) {
    if (block_of(option).empty()) properties.set(option.path, option_schema(option));
    else if (const JsonValue block(block_of(option));
             option.fallback.empty() && std::find(required.begin(), required.end(), block) == required.end())
      required.push_back(block);
  }
  for (const OptionBlock& block : option_blocks())
    if (block.name.find('.') == block.name.npos) properties.set(block.name, block_schema(block));
  JsonValue schema = JsonValue::Object{{"$schema", "http://json-schema.org/draft-07/schema#"},
                                       {"title", "Trident training configuration"}};
  const JsonValue root = object_schema(std::move(properties), std::move(required));
  for (const JsonMember& member : root.members()) schema.set(member.key, member.value);
  return schema;
}

std::string text_with_origins(const JsonValue& object, OriginOf origin_of, const std::string& block) {
  const std::size_t indent = block.empty() ? 0 : 2 + 2 * static_cast<std::size_t>(std::ranges::count(block, '.'));
  std::string out = "{\n";
  for (const JsonMember& member : object.members()) {
    const std::string path = block.empty() ? member.key : fmt::format("{}.{}", block, member.key);
    const std::string_view comma = &member == &object.members().back() ? "" : ",";
    const std::optional<std::string> origin = origin_of(path);
    out += fmt::format("{:{}}{}: ", "", indent + 2, in_quotes(member.key));
    out += origin ? fmt::format("{}{}  // {}\n", to_json_text(member.value), comma, *origin)
                  : fmt::format("{}{}\n", text_with_origins(member.value, origin_of, path), comma);
  }
  return out + fmt::format("{:{}}}}", "", indent);
}

namespace {

constexpr std::string_view kOfFolder = "config.json of model.init_from";

// A block has none: its keys have theirs.
std::optional<std::string> origin_of(const OptionValues& values, const std::string& path) {
  if (find_block(path) != nullptr) return std::nullopt;
  if (find_option(path) != nullptr) return values.at(path).origin;
  const JsonValue* const of_model = values.model_origins().find(path.substr(path.rfind('.') + 1));
  return of_model == nullptr ? std::string(kOfFolder) : of_model->as_string();
}

void leave_out_what_nobody_gave(JsonValue& object, const OptionValues& values, const std::string& block) {
  std::erase_if(object.members(), [&](JsonMember& member) {
    const std::string path = block + member.key;
    if (const auto origin = origin_of(values, path)) return *origin == OptionValue().origin || *origin == kOfFolder;
    leave_out_what_nobody_gave(member.value, values, path + '.');
    return member.value.members().empty();
  });
}

}  // namespace

std::string config_with_origins(const TrainConfig& config, const OptionValues& values) {
  const auto origin = [&](const std::string& path) {
    const Option* const option = find_option(path);
    const bool is_reserved = option != nullptr && option->reserved;
    return is_reserved ? "reserved: not built yet" : origin_of(values, path);
  };
  return text_with_origins(to_json(config), origin) + '\n';
}

JsonValue given_to_json(const TrainConfig& config, const OptionValues& values) {
  JsonValue given = to_json(config);
  if (const JsonValue& schema = values.at("$schema").value; given.find("$schema") != nullptr) given.set("$schema", schema);
  leave_out_what_nobody_gave(given, values, "");
  return given;
}

}  // namespace trident
