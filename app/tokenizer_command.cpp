// trident tokenizer encode|decode|show|render|diff
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/command_line.h"
#include "core/clock.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/number_text.h"
#include "core/printable.h"
#include "core/shell_word.h"
#include "core/utf8.h"
#include "data/byte_stream.h"
#include "data/chat/chat_source.h"
#include "data/chat_documents.h"
#include "data/input_file.h"
#include "data/line_reader.h"
#include "data/tokenizer/built_in_files.h"
#include "data/tokenizer/token_ids.h"
#include "data/tokenizer/tokenizer.h"

namespace trident {
namespace {

constexpr std::int64_t kLongestLine = std::int64_t{256} << 20;

struct TokenizerFlags {
  std::string name = "gpt2", file = "-";
  std::optional<std::string> pattern, special;

  TokenizerSource source() const {
    return {.name_or_path = name, .key = "--tokenizer", .pattern = pattern, .special_file = special};
  }
};

void add_tokenizer_flags(CLI::App& app, TokenizerFlags& flags) {
  app.add_option("--tokenizer", flags.name, "gpt2, cl100k, bytes, a model's folder, or a tokenizer's file")->capture_default_str();
  app.add_option("--pattern", flags.pattern, "of bare ranks: cl100k, gpt2, o200k, qwen2, ..., or the expression that splits text");
  app.add_option("--special", flags.special, "of bare ranks: a JSON file of control tokens, {\"text\": id, ...}");
}

// Gives each line of the file, without its end, to `line`, with its number.
void each_line(const std::string& path, const CommandContext& context,
               const std::function<void(std::string_view text, std::int64_t number)>& line) {
  if (path != kStandardInput && !is_there(path))
    throw DataError(fmt::format("{}: no such file; a text itself, or ids, are read from standard input: echo {} | trident "
                                "tokenizer ...", path, for_shell(path)));
  LineReader lines(open_byte_stream(identify_input(path)), path, LineLimits{kLongestLine, kLongestLine});
  for (std::string_view text = lines.next(); !text.empty(); text = lines.next()) {
    line(text.ends_with('\n') ? text.substr(0, text.size() - 1) : text, lines.line_number());
    if (!context.out) return;  // nobody reads
  }
}

// A token's text in quotes; bytes of it that are no characters as <0xC3>.
std::string shown_token(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t valid = valid_prefix(text);
    shown += text.substr(0, valid);
    if (valid < text.size()) shown += fmt::format("<0x{:02X}>", static_cast<unsigned char>(text[valid]));
    text.remove_prefix(std::min(valid + 1, text.size()));
  }
  return in_quotes(shown);
}

// Says on standard error what ids do not show.
void warn_of_replaced(const Encoder& encoder, const std::string& file, const CommandContext& context) {
  if (encoder.num_replaced() > 0)
    context.err << fmt::format("warning: {}: {} read as U+FFFD\n", on_one_line(file),
                               counted(encoder.num_replaced(), "ill-formed UTF-8 sequence"));
}

// The texts that two tokenizers are compared by, from usual ones to every character.
void each_compared_text(const Tokenizer& a, const Tokenizer& b, const std::function<bool(const std::string&)>& is_same) {
  for (std::string_view rest = sample_text(); !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    if (!is_same(std::string(line))) return;
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  }
  for (const Tokenizer* tokenizer : {&a, &b})
    for (std::int64_t id = 0; id < tokenizer->vocab_size(); ++id) {
      const std::string text(tokenizer->token_text(static_cast<std::int32_t>(id)));
      if (!text.empty() && valid_prefix(text) == text.size() && !is_same(text)) return;
    }
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string character;
    append_utf8(character, c);
    if (!is_same(fmt::format("a{0} {0}1{0}  {0}\n", character))) return;
  }
}

}  // namespace

void tokenizer_encode_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app("Print the token ids of each line of a text, separated by spaces.", "trident tokenizer encode");
  TokenizerFlags flags;
  add_tokenizer_flags(app, flags);
  app.add_option("FILE", flags.file, "a text, also compressed; - is standard input")->capture_default_str();
  bool no_special = false, plain_special = false, pieces = false;
  app.add_flag("--no-special", no_special, "leave out what the tokenizer puts around a text, such as <|begin_of_text|>");
  app.add_flag("--plain-special", plain_special, "read control texts such as <|im_end|> as the text they are");
  app.add_flag("--pieces", pieces, "print what text each token is, in quotes, in place of its id");
  if (!parse_flags(app, arguments, context)) return;
  const TextRule rule{.specials = plain_special ? Specials::kPlain : Specials::kParsed,
                      .around = no_special ? Around::kLeftOut : Around::kAdded};
  const auto tokenizer = load_tokenizer(flags.source());
  const auto encoder = tokenizer->new_encoder();
  std::vector<std::int32_t> ids;
  each_line(flags.file, context, [&](std::string_view text, std::int64_t) {
    ids.clear();
    encoder->encode(text, &ids, rule);
    std::vector<std::string> shown;
    for (const std::int32_t id : ids)
      shown.push_back(pieces ? shown_token(tokenizer->token_text(id)) : std::to_string(id));
    context.out << fmt::format("{}\n", fmt::join(shown, " "));
  });
  warn_of_replaced(*encoder, flags.file, context);
}

void tokenizer_decode_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app("Print the text of each line of token ids.", "trident tokenizer decode");
  TokenizerFlags flags;
  add_tokenizer_flags(app, flags);
  app.add_option("FILE", flags.file, "lines of ids with spaces or commas between; - is standard input")->capture_default_str();
  if (!parse_flags(app, arguments, context)) return;
  const auto tokenizer = load_tokenizer(flags.source());
  each_line(flags.file, context, [&](std::string_view text, std::int64_t number) {
    const std::string where = fmt::format("{}:{}", flags.file, number);
    std::vector<std::int32_t> ids;
    try {
      ids = parse_token_ids(text, where);
      context.out << tokenizer->decode(ids) << '\n';
    } catch (const ConfigError& error) {
      throw Error(ExitCode::kData, error.what());
    } catch (DataError& error) {
      error.add_context(fmt::format(" [{}]", where));
      throw;
    }
  });
}

void tokenizer_show_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app("Say what a tokenizer does to a text, step by step; of a FILE also into which tokens it cuts each line.",
               "trident tokenizer show");
  TokenizerFlags flags;
  add_tokenizer_flags(app, flags);
  app.add_option("FILE", flags.file, "a text, also compressed; - is standard input");
  if (!parse_flags(app, arguments, context)) return;
  const auto tokenizer = load_tokenizer(flags.source());
  context.out << on_one_line(tokenizer->name()) << '\n';
  for (const std::string& line : tokenizer->description()) context.out << fmt::format("  {}\n", on_one_line(line));
  context.out << fmt::format("  ids 0 to {}\n  fingerprint {}\n", tokenizer->vocab_size() - 1, tokenizer->fingerprint());
  if (app.count("FILE") == 0) return;
  const auto encoder = tokenizer->new_encoder();
  each_line(flags.file, context, [&](std::string_view text, std::int64_t) {
    std::vector<std::int32_t> ids;
    encoder->encode(text, &ids);
    context.out << '\n';
    for (const std::int32_t id : ids) context.out << fmt::format("{:8}  {}\n", id, shown_token(tokenizer->token_text(id)));
  });
  warn_of_replaced(*encoder, flags.file, context);
}

void tokenizer_render_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app("Print the text that a chat template makes of messages, and nothing else.", "trident tokenizer render");
  std::string messages, name, folder, tools;
  std::optional<std::string> now;
  bool generation_prompt = false, ids = false;
  app.add_option("--messages", messages, "a JSON array of messages, or an object that --chat of data prepare takes")->required();
  app.add_option("--tokenizer", folder, "a model's folder: its template, bos_token and the like");
  app.add_option("--template", name, "a file, chatml or llama3, in place of the folder's template");
  app.add_option("--tools", tools, "a JSON array of tools");
  app.add_option("--now", now, "the date that a template writes as today (strftime_now), such as 2026-11-29; else it is today's");
  app.add_flag("--add-generation-prompt", generation_prompt, "end with the header of an answer");
  app.add_flag("--ids", ids,
               "print its token ids, of --tokenizer; trident tokenizer encode would read the text line by line");
  if (!parse_flags(app, arguments, context)) return;
  if (folder.empty() && name.empty())
    throw ConfigError("no template given; give --tokenizer DIR or --template FILE, chatml or llama3");
  if (folder.find('/') != folder.npos && !is_there(folder))
    throw ConfigError(fmt::format("--tokenizer = {}: no such folder; check the path, or leave it out", in_quotes(folder)));
  ChatSource source = load_chat_source(folder, name);
  if (ids && folder.empty()) throw ConfigError("--ids: no tokenizer says which; name the model's folder in --tokenizer");
  source.variables.now = time_of(now.value_or(local_time_text(kTimeFormat)), "--now");
  const RenderedChat rendered = render_messages_file(
      source, messages, tools, generation_prompt ? GenerationPrompt::kAdded : GenerationPrompt::kNone);
  if (!ids) context.out << rendered.text;
  else context.out << fmt::format("{}\n", fmt::join(encode_rendered(rendered, *load_tokenizer(folder, "--tokenizer")), " "));
}

void tokenizer_diff_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Say whether two tokenizers give the same ids: by a text, by every token's own text and by every character. Exit code 0: no "
      "text differs; 1: one does, which is shown with both ids.",
      "trident tokenizer diff");
  std::string a_name, b_name;
  app.add_option("A", a_name, "gpt2, cl100k, bytes, a model's folder, or a tokenizer's file")->required();
  app.add_option("B", b_name, "likewise")->required();
  if (!parse_flags(app, arguments, context)) return;
  const auto a = load_tokenizer(a_name, "A"), b = load_tokenizer(b_name, "B");
  if (a->fingerprint() == b->fingerprint()) {
    context.out << "the same: both do the same to every text\n";
    return;
  }
  const auto of_a = a->new_encoder(), of_b = b->new_encoder();
  std::int64_t texts = 0;
  bool differs = false;
  each_compared_text(*a, *b, [&](const std::string& text) {
    std::vector<std::int32_t> a_ids, b_ids;
    of_a->encode(text, &a_ids);
    of_b->encode(text, &b_ids);
    ++texts;
    if (a_ids == b_ids) return true;
    const auto first = static_cast<std::size_t>(std::ranges::mismatch(a_ids, b_ids).in1 - a_ids.begin());
    const auto line = [&](char name, const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
      constexpr std::size_t kShown = 8;
      const std::span rest = ids.subspan(first);
      return fmt::format("  {} ({} tokens)  {}{}\n", name, with_commas(tokenizer.vocab_size()),
                         fmt::join(rest.first(std::min(rest.size(), kShown)), " "), rest.size() > kShown ? " ..." : "");
    };
    context.out << fmt::format("different: {}\nfrom its token {} on:\n", in_quotes(text, 200), first + 1)
                << line('A', *a, a_ids) << line('B', *b, b_ids);
    differs = true;
    return false;
  });
  if (differs)
    throw Error(static_cast<ExitCode>(1), fmt::format("{} and {} differ; the lines above say where", a->name(), b->name()));
  context.out << fmt::format("the same ids for {} texts; the files differ\n", texts);
}

}  // namespace trident
