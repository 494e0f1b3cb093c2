// trident data prepare|merge|pack
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "app/command_line.h"
#include "app/interruption.h"
#include "app/progress_line.h"
#include "core/clock.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/number_text.h"
#include "core/printable.h"
#include "data/dataset_record.h"
#include "data/merge_datasets.h"
#include "data/pack_datasets.h"
#include "data/prepare.h"
#include "train/run/weights_source.h"

namespace trident {
namespace {

// A prefix without a name would make files that are called ".bin".
void check_output(const std::string& prefix) {
  if (!prefix.empty() && !prefix.ends_with('/')) return;
  throw ConfigError(
      fmt::format("--output = \"{0}\": not the beginning of file names; add a name, such as {0}text", on_one_line(prefix)));
}

// How the last line of a command begins. Names are the user's, and a terminal only shows them.
std::string made(const std::string& prefix, std::int64_t documents) {
  return fmt::format("{0}.bin, {0}.idx: {1}", on_one_line(prefix), counted(documents, "document"));
}

void say_what_was_added(const Tokenizer& tokenizer, const PrepareOptions& options, const PrepareStats& stats,
                        const CommandContext& context) {
  const auto named = [&](std::int32_t id) { return fmt::format("{} (token id {})", in_quotes(tokenizer.token_text(id)), id); };
  const SpecialIds& special = tokenizer.special_ids();
  if (options.append_eod) {
    const std::int32_t id = options.eod ? *options.eod : tokenizer.eod_for("--append-eod", "name it with --eod TOKEN");
    say(context, fmt::format("documents end in {}", named(id)));
    if (!options.eod && special.eos_in_template)
      say(context,
          fmt::format("warning: the chat template writes {} itself: it may end turns, not documents; --eod TOKEN names another",
                      in_quotes(*special.eos_in_template)));
  }
  if (options.rule.around == Around::kAdded && options.chat == nullptr)
    for (const auto& [ids, where] : {std::pair{&special.before, "begin with"}, {&special.after, "are followed by"}})
      for (const std::int32_t id : *ids) say(context, fmt::format("documents {} {}", where, named(id)));
  if (stats.controls > 0)
    say(context, fmt::format("{} in the text became control tokens, the first, {}, at {}; --plain-special reads such as text",
                             counted(stats.controls, "piece"), named(stats.first_control_id), on_one_line(stats.first_control)));
  if (stats.unknown > 0)
    say(context, fmt::format("{} without a token: read as the unknown token, or left out where there is none",
                             counted(stats.unknown, "character")));
}

struct ChatFlags {
  bool chat = false, skip_empty = false, preference = false;
  std::string loss = "assistant", chat_template;
  std::optional<std::string> now;
};

void add_chat_flags(CLI::App& app, ChatFlags& flags) {
  CLI::Option* const chat = app.add_flag(
      "--chat", flags.chat,
      "the lines are conversations: \"messages\", \"conversations\", or \"prompt\" and \"completion\"; PREFIX.mask says what "
      "counts");
  app.add_flag("--preference", flags.preference,
               "the lines are pairs of answers: \"prompt\", \"chosen\" and \"rejected\", texts or lists of messages, for loss.type "
               "\"dpo\"; the answers alone count")->excludes(chat);
  app.add_option("--template", flags.chat_template,
                 "of --chat and --preference: a file, chatml or llama3, in place of the tokenizer folder's");
  app.add_option("--now", flags.now, "of --chat and --preference: the date that a template writes as today, such as 2026-11-29");
  app.add_option("--loss", flags.loss, "of --chat: which tokens count as targets")
      ->check(CLI::IsMember({"assistant", "completion", "all", "last"}))->capture_default_str()->needs(chat);
  app.add_flag("--skip-empty", flags.skip_empty, "of --chat and --preference: leave conversations out of which no token counts");
}

ChatOptions chat_options(const ChatFlags& flags, const std::string& tokenizer, bool no_special) {
  const std::string folder = std::filesystem::is_directory(tokenizer) ? tokenizer : "";
  std::optional<ChatSource> source = find_chat_source(folder, flags.chat_template);
  const bool has_template = source.has_value();
  if (!source) source = ChatSource{ChatTemplate::parse("", "no template"), {}, {}};  // texts do without
  ChatOptions chat{.source = *std::move(source), .has_template = has_template};
  chat.template_name = flags.chat_template;
  chat.loss = parse_name<LossKind>(flags.loss).value();
  chat.skips_empty = flags.skip_empty;
  if (flags.now) chat.source.variables.now = time_of(*flags.now, "--now");
  if (no_special) chat.around_text = Around::kLeftOut;
  return chat;
}

void say_what_counts(const PrepareStats& stats, bool are_pairs, const CommandContext& context) {
  const char* const each = are_pairs ? "answer" : "conversation";
  const double share = static_cast<double>(stats.counted) / static_cast<double>(std::max<std::int64_t>(1, stats.tokens));
  say(context, fmt::format("{} of {} tokens count as targets ({:.1f} %)", with_commas(stats.counted), with_commas(stats.tokens),
                           100 * share));
  if (stats.skipped > 0)
    say(context, fmt::format("{} without a token that counts left out", counted(stats.skipped, are_pairs ? "pair" : each)));
  if (stats.equal_answers > 0)
    say(context, fmt::format("warning: chosen and rejected are equal in {}, and teach no preference; leave such lines out",
                             counted(stats.equal_answers, "pair")));
  if (stats.dropped > 0)
    say(context, fmt::format("warning: the chat template leaves out a part of {}, the first {}", counted(stats.dropped, each),
                             on_one_line(stats.first_dropped)));
  if (stats.endless > 0)
    say(context, fmt::format("warning: in {} no end-of-sequence token counts at the end of what is learned; where answers end with "
                             "another token, name "
                             "that as eos_token in tokenizer_config.json, or only trident generate --chat stops there",
                             counted(stats.endless, each)));
}

// The conversations' options, if there are conversations.
std::optional<ChatOptions> chat_of(const CLI::App& app, const ChatFlags& flags, const TokenizerSource& source, bool no_special) {
  if (!flags.chat && !flags.preference) {
    refuse_given(app, {"--template", "--now", "--skip-empty"}, "only conversations and pairs of answers have it",
                 "give --chat or --preference");
    return std::nullopt;
  }
  refuse_given(app, {"--append-eod", "--plain-special", "--json-key", "--separator-line"},
               "with --chat the template says where turns end, and messages hold no control tokens", "prepare without --chat");
  ChatOptions chat = chat_options(flags, source.name_or_path, no_special);
  if (flags.preference) chat.preferences = true, chat.loss = LossKind::kCompletion;
  return chat;
}

// The id of the token that --eod names by its text.
std::int32_t token_of(const std::string& eod, const Tokenizer& vocabulary, const TokenizerSource& source) {
  if (const std::optional<std::int32_t> id = vocabulary.find(eod)) return *id;
  throw ConfigError(fmt::format("--eod = {}: no token of {}; give the text of one", in_quotes(eod), source.name_or_path));
}

void say_prepared(const std::string& output, const Tokenizer& vocabulary, const PrepareOptions& options, const PrepareStats& stats,
                  const CommandContext& context) {
  say(context,
      fmt::format("{}, {} tokens from {} bytes of text in {}, {}/s", made(output, stats.documents), with_commas(stats.tokens),
                  with_commas(stats.bytes), seconds_text(stats.seconds),
                  bytes_text(static_cast<double>(stats.bytes) / stats.seconds)));
  const auto are = [](std::int64_t n, std::string_view one, std::string_view several) { return n == 1 ? one : several; };
  if (stats.empty_documents > 0)
    say(context, fmt::format("{} {} empty", counted(stats.empty_documents, "document"), are(stats.empty_documents, "is", "are")));
  if (stats.replaced > 0)
    say(context, fmt::format("{} {} read as U+FFFD", counted(stats.replaced, "ill-formed UTF-8 sequence"),
                             are(stats.replaced, "was", "were")));
  if (stats.lone_surrogates > 0)
    say(context, fmt::format("{} {} read as U+FFFD", counted(stats.lone_surrogates, "lone surrogate"),
                             are(stats.lone_surrogates, "was", "were")));
  if (constexpr std::int64_t kLong = 10'000; stats.documents == 1 && stats.tokens >= kLong && !options.separator_line)
    say(context, "hint: it is one document, and data.split goes by whole documents; for a validation part of it prepare it as "
                 "several (of text: --separator-line '' ends one at each blank line)");
  say_what_was_added(vocabulary, options, stats, context);
  if (options.chat != nullptr) say_what_counts(stats, options.chat->preferences, context);
  if (stats.bad_lines > 0)
    say(context, fmt::format("{} {} left out{}", counted(stats.bad_lines, "bad line"), are(stats.bad_lines, "was", "were"),
                             stats.bad_lines > kShownBadLines ? fmt::format(", the first {} by name", kShownBadLines) : ""));
}

// The model is known where its folder's tokenizer made the data.
void say_if_too_long(const std::vector<std::string>& prefixes, std::int64_t sequence, const CommandContext& context) {
  for (const std::string& prefix : prefixes) {
    try {
      const std::optional<RecordedTokenizer> tokenizer = origin_in_record(prefix).tokenizer;
      if (!tokenizer || !file_exists(tokenizer->name + "/config.json")) continue;
      const ModelConfig model = model_of_hf(tokenizer->name);
      if (sequence <= model.longest_sequence()) continue;
      say(context, fmt::format("warning: {} has {} positions, fewer than --sequence {}: it trains on no longer packs",
                               on_one_line(tokenizer->name), model.longest_sequence(), sequence));
      return;
    } catch (const Error&) {  // the folder may hold a model that is not read, or the record be damaged, which packing says
    }
  }
}

}  // namespace

void data_prepare_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app("Tokenize text into PREFIX.bin and PREFIX.idx (Megatron's format).", "trident data prepare");
  std::vector<std::string> inputs;
  std::string output, separator;
  std::optional<std::string> eod;
  TokenizerSource source{.name_or_path = {}, .key = "--tokenizer"};
  PrepareOptions options;
  bool no_special = false, plain_special = false, overwrite = false, skip_bad = false;
  app.add_option(
         "--input", inputs,
         "files, also compressed (.gz, .zst); .jsonl and .json hold one JSON object a line, all else is text; a folder is all "
         "files below it, @LIST the names on the lines of a file; - is standard input, JSON lines where it begins with {")
      ->required();
  app.add_option("--tokenizer", source.name_or_path,
                 "gpt2, cl100k, bytes, a model's folder, or a tokenizer's file: tokenizer.json, tiktoken ranks, tekken.json")
      ->required();
  app.add_option("--pattern", source.pattern, "of bare ranks: cl100k, gpt2, o200k, qwen2, ..., or the expression that splits text");
  app.add_option("--special", source.special_file, "of bare ranks: a JSON file of control tokens, {\"text\": id, ...}");
  app.add_option("--output", output, "prefix of the output files")->required();
  app.add_option("--json-key", options.json_key, "key of a JSON object that holds the text, or a list of token ids")
      ->capture_default_str();
  CLI::Option* const appends =
      app.add_flag("--append-eod", options.append_eod,
                   "write the tokenizer's end-of-document token after each document that is not empty");
  app.add_option("--eod", eod, "the text of that token, in place of the tokenizer's eos_token")->needs(appends);
  app.add_flag("--no-special", no_special, "leave out what the tokenizer puts around a text, such as <|begin_of_text|>");
  app.add_flag("--plain-special", plain_special, "read control texts such as <|im_end|> as the text they are");
  ChatFlags chat_flags;
  add_chat_flags(app, chat_flags);
  app.add_flag("--overwrite", overwrite, "replace the files of this prefix, all together");
  app.add_option("--max-document-bytes", options.max_document_bytes,
                 "refuse longer documents (lines of JSON, texts): memory takes several times as much")->capture_default_str();
  app.add_option("--max-line", options.max_line_bytes, "refuse longer lines, in bytes")->capture_default_str();
  std::int64_t most_bad = 1000;
  CLI::Option* const skip =
      app.add_flag("--skip-bad-lines", skip_bad, "leave lines out that are no JSON object with the text; they are counted");
  app.add_option("--most-bad", most_bad, "end with an error beyond so many bad lines")->capture_default_str()->needs(skip);
  app.add_option("--workers", options.workers, "threads that tokenize; the output does not depend on it")->capture_default_str();
  const CLI::Option* given_separator =
      app.add_option("--separator-line", separator,
                     "line that separates the documents of a text file; \"\": a blank line; not given: a file is one document");
  if (!parse_flags(app, arguments, context)) return;
  options.overwrite = overwrite ? Overwrite::kYes : Overwrite::kNo;
  if (skip_bad) options.most_bad_lines = most_bad;
  if (given_separator->count() > 0) options.separator_line = separator;

  check_output(output);
  options.rule = {.specials = plain_special ? Specials::kPlain : Specials::kParsed,
                  .around = no_special ? Around::kLeftOut : Around::kAdded};
  const auto vocabulary = load_tokenizer(source);
  const std::optional<ChatOptions> chat = chat_of(app, chat_flags, source, no_special);
  if (chat) {
    options.chat = &*chat;
    if (const std::string warning = chat_marks(chat->source, *vocabulary).warning; !warning.empty())
      say(context, fmt::format("warning: {}", warning));
  }
  if (eod) options.eod = token_of(*eod, *vocabulary, source);
  const Interruption interruption("no file was changed");
  const double start = monotonic_seconds();
  ProgressLine line(context, "data prepare", start);
  options.on_bad_line = [&](const std::string& why) {
    line.finish();
    context.out << fmt::format("left out: {}\n", on_one_line(why)) << std::flush;
  };
  const PrepareStats stats = prepare_text(inputs, *vocabulary, output, options, [&](const PrepareProgress& seen) {
    interruption.check();
    const double now = monotonic_seconds();
    line.update(seen.bytes_done, seen.bytes_total,
                fmt::format("{}/s of text, {:.1f} M tokens", bytes_text(static_cast<double>(seen.text_bytes) / (now - start)),
                            1e-6 * static_cast<double>(seen.tokens)), now);
  });
  line.finish();
  if (stats.was_there) {
    return say(context, made(output, stats.documents) +
                            ", there already: made of these inputs in the same way; --overwrite makes them anew");
  }
  say_prepared(output, *vocabulary, options, stats, context);
}

void data_merge_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app("Write token files one after the other into one pair, PREFIX.bin and PREFIX.idx.", "trident data merge");
  std::vector<std::string> inputs;
  std::string output;
  app.add_option("--input", inputs, "prefixes of .bin and .idx, in the order of the output")->required();
  app.add_option("--output", output, "prefix of the output files")->required();
  bool overwrite = false;
  app.add_flag("--overwrite", overwrite, "replace the files of this prefix, all together");
  if (!parse_flags(app, arguments, context)) return;
  check_output(output);

  const Interruption interruption("no file was changed");
  ProgressLine line(context, "data merge");
  const Overwrite replacing = overwrite ? Overwrite::kYes : Overwrite::kNo;
  const MergeStats stats = merge_datasets(inputs, output, replacing, [&](std::int64_t done, std::int64_t all) {
    interruption.check();
    line.bytes(done, all);
  });
  line.finish();
  say(context, fmt::format("{}, {} tokens from {}", made(output, stats.documents), with_commas(stats.tokens),
                           counted(std::ssize(inputs), "dataset")));
  if (stats.counted)
    say(context, fmt::format("{}.mask: {} of {} tokens count as targets; of inputs without a mask all do", on_one_line(output),
                             with_commas(*stats.counted), with_commas(stats.tokens)));
}

void data_pack_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Put sequences together into packs, for data.samples = \"packed\": a document of the output is a pack of at most "
      "T tokens with its sequences. T is batch.sequence: a token is predicted from the one before it in its own sequence, so that "
      "no pack needs T + 1.",
      "trident data pack");
  std::vector<std::string> inputs;
  std::string output, overflow = "refuse";
  PackOptions options;
  bool overwrite = false;
  app.add_option("PREFIX", inputs, "prefixes of .bin and .idx")->required();
  app.add_option("--sequence", options.sequence, "T, the most tokens of a pack")->required();
  app.add_option("--output", output, "prefix of the output files")->required();
  app.add_option("--overflow", overflow,
                 "of longer sequences: refuse them, keep the first T tokens (truncate), or cut them (split); truncate keeps the "
                 "first tokens of both sequences of a pair, prompt and answer")
      ->check(CLI::IsMember({"refuse", "truncate", "split"}))->capture_default_str();
  app.add_option("--seed", options.seed, "by which the order is drawn")->capture_default_str();
  app.add_option("--workers", options.workers, "threads that read; the output does not depend on it")->capture_default_str();
  app.add_flag("--overwrite", overwrite, "replace the files of this prefix, all together");
  if (!parse_flags(app, arguments, context)) return;
  check_output(output);
  if (options.sequence < 2) throw ConfigError(fmt::format("--sequence = {}: must be at least 2", options.sequence));
  if (options.workers < 1 || options.workers > 1024)
    throw ConfigError(fmt::format("--workers = {}: must be between 1 and 1024", options.workers));
  if (overflow != "refuse") options.overflow = overflow == "split" ? LongSequences::kSplit : LongSequences::kTruncate;
  options.overwrite = overwrite ? Overwrite::kYes : Overwrite::kNo;

  say_if_too_long(inputs, options.sequence, context);
  const Interruption interruption("no file was changed");
  ProgressLine line(context, "data pack");
  const PackStats stats = pack_datasets(inputs, output, options, [&](std::int64_t done, std::int64_t total) {
    interruption.check();
    line.count(done, total, "sequences");
  });
  line.finish();
  const std::string_view unit = stats.unit();
  const auto tokens = static_cast<double>(stats.tokens);
  say(context,
      fmt::format("{0}.bin, {0}.idx: {1} of at most {2}, {3} tokens of {4}", on_one_line(output), counted(stats.packs, "pack"),
                  counted(options.sequence, "token"), with_commas(stats.tokens), counted(stats.sequences, unit)));
  say(context, fmt::format("efficiency {:.4f} (tokens / (packs x {}))",
                           tokens / (static_cast<double>(stats.packs) * static_cast<double>(options.sequence)), options.sequence));
  say(context, fmt::format("{} of {} tokens are targets that count ({:.1f} %)", with_commas(stats.targets),
                           with_commas(stats.tokens), 100 * static_cast<double>(stats.targets) / tokens));
  if (stats.left_out > 0)
    say(context, counted(stats.left_out, unit) +
                     (stats.of_pairs ? " left out: an answer has no target that counts"
                                     : fmt::format(" without a target that counts left out, {} of one token", stats.single)));
  if (stats.too_long > 0)
    say(context,
        fmt::format("{} longer than {} {}; the longest, {}, has {}", counted(stats.too_long, unit), options.sequence,
                    overflow == "split" ? "cut" : "truncated", on_one_line(stats.longest_at), counted(stats.longest, "token")));
}

}  // namespace trident
