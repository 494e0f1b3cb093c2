// trident data prepare --input F... --tokenizer T --output PREFIX [--json-key text] [--append-eod] [--workers N] [--separator-line TEXT]
#include <ostream>

#include "app/command_line.h"
#include "data/prepare.h"
#include "train/option_check.h"

namespace trident {
namespace {

void prepare_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app("Tokenize text into PREFIX.bin and PREFIX.idx (Megatron's format).", "trident data prepare");
  std::vector<std::string> inputs;
  std::string tokenizer, output, separator;
  PrepareOptions options;
  bool append_eod = false;
  app.add_option("--input", inputs, "text files; names ending in .jsonl or .json hold one JSON object a line")->required();
  app.add_option("--tokenizer", tokenizer, "gpt2, or a folder with vocab.json and merges.txt")->required();
  app.add_option("--output", output, "prefix of the output files")->required();
  app.add_option("--json-key", options.json_key, "key of a JSON object that holds the text")->capture_default_str();
  app.add_flag("--append-eod", append_eod, "write the tokenizer's end-of-document token after each document");
  app.add_option("--workers", options.workers, "threads that tokenize")->capture_default_str();
  const CLI::Option* given_separator =
      app.add_option("--separator-line", separator, "line that separates the documents of a text file; \"\": a blank line; not given: a file is one document");
  if (parse_flags(app, arguments, context.out) == ParseResult::kHelpPrinted) return;
  options.append_eod = append_eod ? AppendEod::kYes : AppendEod::kNo;
  if (given_separator->count() > 0) options.separator_line = separator;

  const auto vocabulary = load_tokenizer(tokenizer, "--tokenizer");
  const PrepareStats stats = prepare_text(inputs, *vocabulary, output, options);
  context.out << fmt::format("{0}.bin, {0}.idx: {1} documents, {2} tokens from {3} bytes of text in {4:.1f} s\n", output, stats.documents, stats.tokens,
                             stats.bytes, stats.seconds);
  if (stats.empty_documents > 0) context.out << fmt::format("{} documents are empty\n", stats.empty_documents);
  if (stats.replaced > 0) context.out << fmt::format("{} ill-formed UTF-8 sequences were read as U+FFFD\n", stats.replaced);
}

}  // namespace

void data_command(const Arguments& arguments, const CommandContext& context) {
  const std::string action = arguments.empty() ? "" : arguments.front();
  if (action == "--help" || action == "-h") {
    context.out << "usage: trident data prepare --input F... --tokenizer T --output PREFIX; trident data prepare --help says more\n";
    return;
  }
  if (action == "inspect" || action == "merge") throw ConfigError(fmt::format("trident data {} is not built yet; there is: prepare", action));
  if (action != "prepare") throw ConfigError(fmt::format("trident data {}: there is: prepare; see trident data prepare --help", in_quotes(action)));
  prepare_command(Arguments(arguments.begin() + 1, arguments.end()), context);
}

}  // namespace trident
