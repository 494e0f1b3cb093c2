// trident generate --ckpt DIR --prompt TEXT|--prompts FILE|--prompt-ids "5 17 2"|--messages FILE|--chat [--greedy] ...
#include <fmt/ranges.h>

#include <cstdint>
#include <exception>
#include <iostream>
#include <ostream>

#include "app/command_line.h"
#include "app/help_text.h"
#include "core/json_reader.h"
#include "core/printable.h"
#include "data/tokenizer/token_ids.h"
#include "infer/generate/run_generate.h"

namespace trident {
namespace {

constexpr std::int64_t kChatTokens = 1024;  // of an answer

struct OutputFlags {
  bool json = false, ids = false, log_probabilities = false, timings = false;
};

std::string joined(const std::vector<std::int32_t>& ids) { return fmt::format("{}", fmt::join(ids, " ")); }

JsonValue to_json(const Continuation& c, const GenerateResult& result, bool log_probabilities) {
  JsonValue out;
  if (!result.model.empty()) out.set("model", result.model);
  out.set("prompt", c.prompt);
  out.set("sample", c.sample);
  JsonValue::Array ids, logs;
  for (const std::int32_t id : c.ids) ids.emplace_back(static_cast<std::int64_t>(id));
  out.set("ids", std::move(ids));
  if (result.has_text) out.set("text", c.text);
  if (log_probabilities) {
    for (const double p : c.log_probabilities) logs.emplace_back(p);
    out.set("logprobs", std::move(logs));
  }
  out.set("end", to_string(c.reason));
  return out;
}

// `shown`: the text of the only continuation stands there already.
void print(std::ostream& out, const GenerateResult& result, const OutputFlags& flags, bool shown, bool to_terminal) {
  for (const Continuation& c : result.continuations) {
    if (flags.json) {
      out << to_json_text(to_json(c, result, flags.log_probabilities)) << '\n';
      continue;
    }
    const bool as_ids = flags.ids || !result.has_text;
    if (!as_ids && result.continuations.size() > 1) out << fmt::format("=== prompt {}, sample {}\n", c.prompt, c.sample);
    if (as_ids)
      out << joined(c.ids) << '\n';
    else
      out << (shown ? "" : to_terminal ? on_lines(c.text) : c.text) << '\n';
    if (!flags.log_probabilities) continue;
    for (std::size_t i = 0; i < c.ids.size(); ++i) out << fmt::format("{}{:.6f}", i == 0 ? "" : " ", c.log_probabilities[i]);
    out << '\n';
  }
  if (!flags.timings) return;
  if (!flags.json) {
    out << to_text(result.times);
    return;
  }
  JsonValue line;
  line.set("timings", to_json(result.times));
  out << to_json_text(line) << '\n';
}

void add_model_flags(CLI::App& app, GenerateOptions& options) {
  app.add_option("--ckpt", options.checkpoint, "a checkpoint, or a folder of several or a run's: the newest");
  app.add_option("--hf", options.hf_folder, "instead: a Hugging Face folder, with config.json and safetensors");
  app.add_option("--adapter", options.adapter, std::string(kAdapterHelp));
  app.add_option("--config", options.config,
                 "instead: a run's configuration, with that run's newest checkpoint, or random weights where it has none");
  app.add_flag("--random-weights", options.random_weights, "with --config: weights drawn at random, to measure");
  app.add_option("--tokenizer", options.tokenizer, "\"gpt2\" or a folder, in place of the model's own");
  app.add_flag("--no-special", options.no_special, "leave out what the tokenizer puts around a prompt, such as <|begin_of_text|>");
  put_in_group(app, "Model", {"--ckpt", "--hf", "--adapter", "--config", "--random-weights", "--tokenizer", "--no-special"});
}

void add_flags(CLI::App& app, GenerateOptions& options, OutputFlags& output) {
  app.add_option("--temperature", options.sampling.temperature, "logits are divided by it; 0: greedy")->capture_default_str();
  app.add_option("--top-k", options.sampling.top_k, "draw from so many of the likeliest tokens; 0: all")->capture_default_str();
  app.add_option("--top-p", options.sampling.top_p, "draw from the fewest tokens that have this probability together")
      ->capture_default_str();
  app.add_option("--repetition-penalty", options.sampling.repetition_penalty, "on tokens that were there: above 1 less likely")
      ->capture_default_str();
  app.add_option("--seed", options.sampling.seed, "of the draws")->capture_default_str();
  app.add_option("-n", options.samples, "continuations of every prompt")->capture_default_str();
  put_in_group(app, "Sampling (a model's generation_config.json goes before these defaults)",
               {"--greedy", "--temperature", "--top-k", "--top-p", "--repetition-penalty"});
  put_in_group(app, "Draws", {"--seed", "-n"});
  app.add_option("--max-new-tokens", options.max_new_tokens, "of every continuation")->capture_default_str();
  app.add_option("--stop", options.stops, "a text that ends a continuation, which does not show it; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--end", options.ends,
                 "id of a token that ends a continuation; may be repeated; the tokenizer's end of a document by default")
      ->allow_extra_args(false);
  app.add_flag("--ignore-end", options.ignore_end, "no token ends a continuation");
  put_in_group(app, "Length", {"--max-new-tokens", "--stop", "--end", "--ignore-end"});
  app.add_flag("--logprobs", output.log_probabilities, "print every new token's log-probability, in nats");
  app.add_flag("--print-ids", output.ids, "print the new ids, on one line, in place of text");
  app.add_flag("--json", output.json, "print one JSON object a line for every continuation");
  app.add_flag("--timings", output.timings,
               "add what prompts and steps took, and what the machine does at most, measured between them");
  put_in_group(app, "Output", {"--logprobs", "--print-ids", "--json", "--timings"});
  app.add_option("--batch", options.slots, "sequences at once, on every data rank")->capture_default_str();
  app.add_option("--set", options.settings, "layout, precision and threads, as --set parallel.tensor=2; one rank by default")
      ->type_name("PATH=VALUE");
  put_in_group(app, "Machine", {"--batch", "--set"});
}

// Refuses by name what cannot be, and flags that change nothing beside others.
void check(const CLI::App& app, const GenerateOptions& options, bool greedy, const OutputFlags& output) {
  if (options.checkpoint.has_value() + options.hf_folder.has_value() + options.config.has_value() != 1)
    throw ConfigError(
        "trident generate: what makes the text is not clear; give one of --ckpt DIR, --hf DIR and --config FILE");
  if (!options.hf_folder) refuse_given(app, {"--adapter"}, "it is merged into a Hugging Face folder", "name its base in --hf");
  if (!options.config) refuse_given(app, {"--random-weights"}, "weights are those that --ckpt or --hf names", "leave it out");
  if (greedy) refuse_given(app, {"--temperature"}, "--greedy takes the likeliest token", "give one of the two");
  if (options.sampling.temperature == 0) {
    const char* const why = greedy ? "--greedy takes the likeliest token, and nothing is drawn"
                                   : "--temperature 0 takes the likeliest token, and nothing is drawn";
    refuse_given(app, {"--top-k", "--top-p", "--seed"}, why, "give a temperature above 0");
  }
  if (options.ignore_end) refuse_given(app, {"--end"}, "with --ignore-end no token ends a continuation", "give one of the two");
  if (output.json) refuse_given(app, {"--print-ids"}, "--json prints the ids, too", "give one of the two");
}

}  // namespace

void generate_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Let a model continue texts. The draws depend on seed, prompt, sample and position alone: the same texts in any batch and "
      "any "
      "layout.",
      "trident generate");
  GenerateOptions options;
  OutputFlags output;
  std::vector<std::string> texts, files, ids;
  bool greedy = false, chat = false;
  add_model_flags(app, options);
  app.add_option("--prompt", texts, "a text to continue; may be repeated")->allow_extra_args(false);
  app.add_option("--prompts", files,
                 "a file with a prompt on every line; of FILE.jsonl a JSON text, or {\"prompt\": ..} or {\"ids\": [..]}")
      ->allow_extra_args(false);
  app.add_option("--prompt-ids", ids, "token ids to continue, as \"5 17 2\"; may be repeated")->allow_extra_args(false);
  app.add_option("--messages", options.messages,
                 "a file with a JSON array of messages, to answer by the model's chat template; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--chat", chat,
               "answer the lines of standard input, by the same template, each with all that was said before; --messages may begin "
               "it, and an empty line ends it");
  app.add_option("--template", options.chat_template,
                 "of --messages and --chat: a file, chatml or llama3, in place of the tokenizer folder's");
  put_in_group(app, "Input", {"--prompt", "--prompts", "--prompt-ids", "--messages", "--chat", "--template"});
  app.add_flag("--greedy", greedy, "take the likeliest token, as --temperature 0");
  add_flags(app, options, output);
  std::exception_ptr wrong;  // which the ranks of a job say once
  try {
    const auto example = [] {
      return std::string("Example:\n  trident generate --ckpt runs/a --prompt \"Once upon a time\" --top-p 0.9\n");
    };
    const auto all = [&] {
      return example() + '\n' + launch_help(context.columns, "trident generate --ckpt D ...") + '\n' +
             exit_codes_help(context.columns, ExitCodes::kOfUse);
    };
    if (!parse_flags(app, arguments, context, {example, {}, all})) return;
    options.timings = output.timings;
    if (greedy) options.sampling.temperature = 0;
    for (const char* flag : {"--temperature", "--top-k", "--top-p", "--repetition-penalty", "--seed"})
      if (app.count(flag) > 0 || (greedy && flag == std::string_view("--temperature"))) options.given.emplace_back(flag);
    check(app, options, greedy, output);
    if (chat) {
      refuse_given(app, {"--prompt", "--prompts", "--prompt-ids"}, "--chat answers lines of standard input",
                   "write the line there, or one message into a file for --messages and leave --chat out");
      refuse_given(app, {"-n", "--batch", "--print-ids", "--json", "--logprobs", "--timings"},
                   "--chat prints the text of one answer after the other", "leave it out");
    }
    if (chat && app.count("--max-new-tokens") == 0) options.max_new_tokens = kChatTokens;
    for (const std::string& text : texts) options.prompts.push_back({.text = text});
    for (const std::string& file : files) options.prompts.push_back({.file = file});
    for (const std::string& list : ids) options.prompts.push_back({.ids = parse_token_ids(list, "--prompt-ids")});
  } catch (const ConfigError&) {
    wrong = std::current_exception();
  }

  const bool live = !output.ids && !output.json;
  const bool to_terminal = context.console == ConsoleMode::kTerminal;
  bool shown = false;
  const ShowText show = [&](std::int64_t, const std::string& text) {
    shown = true;
    context.out << (to_terminal ? on_lines(text) : text) << std::flush;
  };
  std::int64_t turns = 0;
  if (chat)
    options.ask = [&]() -> std::optional<std::string> {
      context.out << (turns++ > 0 ? "\n" : "") << (to_terminal ? "> " : "") << std::flush;
      std::string line;
      return std::getline(std::cin, line) && !line.empty() ? std::optional(line) : std::nullopt;
    };
  const auto read = [&] {
    if (wrong) std::rethrow_exception(wrong);
    return options;
  };
  LogSink log(context.err, LogLevel::kInfo, context.dress);
  const std::optional<GenerateResult> result = run_generate(read, live ? show : ShowText(), log, *context.make_cuda());
  if (result) print(context.out, *result, output, shown, to_terminal);
}

}  // namespace trident
