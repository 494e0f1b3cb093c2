// Tables of cases: what is one row, and members that no formula needs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/published/case_answers.h"
#include "planner/published/published_book.h"

namespace trident {
namespace {

TEST(CaseTables, ATableOfLinesMayHaveOne) {
  for (const char* text : {R"({"id": "a", "kind": "x"})", "\n\n{\"id\": \"a\"}\r\n\n"}) {
    const std::vector<CaseRow> rows = case_rows_of_text(text, "rows.json");
    ASSERT_EQ(rows.size(), 1u) << text;
    EXPECT_EQ(rows[0].id.as_string(), "a");
    EXPECT_EQ(rows[0].refused, "");
  }
  const std::vector<CaseRow> nameless = case_rows_of_text("\n{\"kind\": \"x\"}", "rows.json");
  ASSERT_EQ(nameless.size(), 1u);
  EXPECT_EQ(nameless[0].refused, "rows.json:2: this row has no name; give it one as \"id\"");
  EXPECT_EQ(case_rows_of_text(R"({"id": "a table", "rows": []})", "rows.json").size(), 0u) << "a table may have a name, too";
}

// Members that no formula needs are of their kind all the same.
TEST(CaseTables, MembersThatDoNotCountAreChecked) {
  const PublishedBook book = shipped_published_book();
  const auto reason_of = [&](const std::string& kind, const std::string& fields) {
    const JsonValue answer =
        answer_case(case_rows_of_text(fmt::format(R"([{{"id": "a", "kind": "{}", {}}}])", kind, fields), "a test").front(), book);
    return answer.find("unsupported") ? answer.find("unsupported")->as_string() : "none";
  };
  const auto limited = [&](const char* limit) {
    return reason_of("bubble-rate", fmt::format(R"("input": {{"schedule": "1f1b", "stages": 4, "micro_batches": 8,
                                                    "memory_limit_in_1f1b_units": {}}})",
                                                limit));
  };
  EXPECT_EQ(limited("1"), "none");
  EXPECT_EQ(limited("1.5"), "none");
  EXPECT_EQ(limited("null"), "none");
  EXPECT_EQ(limited("\"1\""), "input.memory_limit_in_1f1b_units = \"1\": must be a number, at least 0");
  EXPECT_EQ(limited("[1]"), "input.memory_limit_in_1f1b_units = [1]: must be a number, at least 0");
  EXPECT_EQ(limited("0"), "input.memory_limit_in_1f1b_units = 0: must be above 0");
  const auto with_vocab = [&](const char* vocab) {
    return reason_of("total-most-loaded-rank",
                     fmt::format(R"("config": {{"layers": 2, "hidden": 64, "heads": 4, "ffn": 256, "seq": 32,
                                                               "padded_vocab": 128, "vocab": {}}})",
                                 vocab));
  };
  EXPECT_EQ(with_vocab("100"), "none");
  EXPECT_EQ(with_vocab("null"), "none");
  EXPECT_EQ(with_vocab("\"e\""), "config.vocab = \"e\": must be a whole number from 1 to 1099511627776");
  EXPECT_EQ(with_vocab("[1]"), "config.vocab = [1]: must be a whole number from 1 to 1099511627776");
}

}  // namespace
}  // namespace trident
