// trident plan --config FILE [--set path=value ...] [--ranks N] [--json] [--program]
// trident plan --cases ROWS [--book FOLDER] [--json]
#include <algorithm>
#include <ostream>

#include "app/command_line.h"
#include "app/flag_answer.h"
#include "app/plan_search.h"
#include "core/printable.h"
#include "plan/case_answers.h"

namespace trident {
namespace {

constexpr int kMaxRanks = 1 << 24;

// "bubble_rate 0.25, assumed {...}".
std::string in_words(const JsonValue& answer) {
  std::string line;
  for (const JsonMember& member : answer.members()) {
    const bool is_text = member.value.is_string();
    const std::string value = is_text ? member.value.as_string() : to_json_text(member.value);
    if (member.key == "id")
      line = value + ": ";
    else
      line += (line.ends_with(": ") ? "" : ", ") + member.key + ' ' + value;
  }
  return line;
}

void answer_cases(const std::string& path, const std::string& folder, bool json, std::ostream& out) {
  const PriceBook book = folder.empty() ? shipped_price_book() : read_price_book(folder);
  for (const CaseRow& row : read_case_rows(path)) {
    const JsonValue answer = answer_case(row, book);
    out << (json ? to_json_text(answer) : on_one_line(in_words(answer))) << '\n';
  }
}

bool names(const std::string& argument, std::string_view flag) {
  return argument == flag || argument.starts_with(std::string(flag) + '=');
}

}  // namespace

void plan_command(const Arguments& arguments, const CommandContext& context) {
  if (asks_search(arguments)) return plan_search(arguments, context);
  CLI::App app(
      "Say what a configuration takes, without training: memory of the ranks of every pipeline stage by use, and the bytes that a "
      "step sends over every axis. One rank of each stage is run dry, with addresses in place of memory: no data is read, and this "
      "machine needs neither the memory nor the ranks.",
      "trident plan");
  ConfigFlags flags;
  PlanOptions options;
  std::string cases, book;
  add_config_flags(app, flags);
  app.add_option("--ranks", options.ranks, "ranks of the job, where parallel.data is auto");
  app.add_option("--cases", cases, "instead of a configuration: answer each row of a table of cases (JSON; docs/planner.md)");
  app.add_option("--book", book, "with --cases: a folder with hardware/ and stacks/ in place of the program's (docs/planner.md)");
  app.add_flag("--json", options.json, "print one JSON object, with every allocation; of cases one for each row");
  app.add_flag_callback("--search", [] {}, "find the fastest layouts on a cluster instead: trident plan --search --help");
  app.add_flag("--program", options.program, "add what every pipeline stage does in a step, instruction by instruction");
  const bool asks_cases =
      std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) { return names(argument, "--cases"); });
  if (asks_cases) app.get_option("--config")->required(false);
  if (parse_flags(app, arguments, context.out, {{}, flag_answer, context.columns}) == ParseResult::kHelpPrinted) return;
  if (asks_cases) {
    if (!flags.file.empty() || !flags.settings.empty() || options.ranks != 0 || options.program)
      throw ConfigError("--cases: rows bring their own configurations; leave out --config, --set, --ranks and --program");
    return answer_cases(cases, book, options.json, context.out);
  }
  if (!book.empty()) throw ConfigError("--book: prices rows of --cases; leave it out");
  if (options.ranks < 0 || options.ranks > kMaxRanks)
    throw ConfigError(fmt::format("--ranks = {}: must be from 1 to {}, or left out", options.ranks, kMaxRanks));
  OptionValues values;
  context.out << context.plan(load_train_config(flags.file, flags.settings, values), options);
}

}  // namespace trident
