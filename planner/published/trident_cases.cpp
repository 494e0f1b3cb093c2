// trident_cases ROWS [--book FOLDER] [--json]: a line for each row of a table of cases (docs/design/cases.md).
#include <CLI/CLI.hpp>

#include <iostream>
#include <string>

#include "core/printable.h"
#include "planner/published/case_answers.h"

namespace {

using namespace trident;

// "bubble_rate 0.25, assumed {...}".
std::string in_words(const JsonValue& answer) {
  std::string line;
  for (const JsonMember& member : answer.members()) {
    const bool is_text = member.value.is_string();
    const std::string value = is_text ? member.value.as_string() : to_json_text(member.value);
    if (member.key == "id")
      line = (member.value.is_null() ? "without a name" : value) + ": ";
    else
      line += (line.ends_with(": ") ? "" : ", ") + member.key + ' ' + value;
  }
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Answer each row of a table of cases (docs/design/cases.md).", "trident_cases");
  std::string path, folder;
  bool json = false;
  app.add_option("ROWS", path, "a JSON file of rows")->required();
  app.add_option("--book", folder, "a folder with hardware/ and stacks/ in place of the program's own (docs/design/planner.md)");
  app.add_flag("--json", json, "print one JSON object for each row");
  try {
    app.parse(argc, argv);
    const PublishedBook book = folder.empty() ? shipped_published_book() : read_published_book(folder);
    for (const CaseRow& row : read_case_rows(path)) {
      const JsonValue answer = answer_case(row, book);
      std::cout << (json ? to_json_text(answer) : on_one_line(in_words(answer))) << '\n';
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : exit_status(ExitCode::kConfig);
  } catch (const Error& error) {
    std::cerr << "trident_cases: " << on_one_line(error.what()) << '\n';
    return exit_status(error.code());
  }
}
