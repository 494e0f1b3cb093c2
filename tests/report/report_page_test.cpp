// Pages: what is in them, that foreign text stays text, and that they need nothing but themselves.
#include "report/report_page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/json_reader.h"
#include "report/markup.h"

namespace trident {
namespace {

const std::string kHostile = "</script><img src=x onerror=\"alert('1')\">&amp;\n<!--\xE2\x80\xA8\xFF";
const std::string kHostileInText =
    "&lt;/script&gt;&lt;img src=x onerror=&quot;alert(&#39;1&#39;)&quot;&gt;&amp;amp; &lt;!-- \xEF\xBF\xBD";
const std::string kHostileOnOneLine = "</script><img src=x onerror=\"alert('1')\">&amp; <!-- \xEF\xBF\xBD";

std::size_t count(std::string_view text, std::string_view what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

JsonValue parsed(const std::string& text) {
  return parse_json(text, "a test", {.max_bytes = 1 << 24, .blame = ExitCode::kInternal});
}

// The data of the n-th element of a class.
JsonValue data_of(const std::string& html, std::string_view element, int n = 0) {
  const std::string start = fmt::format("<div class=\"{}\"><script type=\"application/json\">", element);
  std::size_t from = html.find(start);
  for (; n > 0; --n) from = html.find(start, from + 1);
  EXPECT_NE(from, html.npos) << element;
  return parsed(html.substr(from + start.size(), html.find("</script>", from) - from - start.size()));
}

std::string without_scripts(std::string html) {
  for (std::size_t at = html.find("<script"); at != html.npos; at = html.find("<script", at))
    html.erase(at, html.find("</script>", at) - at);
  return html;
}

StackedBars bars_of(const std::string& name) {
  return {name, name, {{name, Hue::kBlue}, {"b", Hue::kRed}}, {{name, {1, 3}}, {"half", {2, 0}}}, 5.0, name};
}

ReportPage page_of(const std::string& name) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  LinePlot plot{name, name, name, AxisScale::kLinear, AxisScale::kLog2, {{name, {{1, 2}, {2, nan}, {3, 8}}, Hue::kGreen}},
                4.0,  name};
  Timeline timeline{name, {{name, Hue::kBlue}}, {{name, {{0.5, 1.5, TimelineLane::kUpper, 0, name, 7}}}}};
  return {name,
          name,
          {{name,
            {Paragraph{name}, KeyNumbers{{{name, name, name}}}, Table{name, {{name, true}, {"n"}}, {{name, "1"}}},
             BulletList{{name}}, bars_of(name), plot, timeline}}}};
}

TEST(ReportPage, ForeignTextStaysText) {
  const std::string harmless = to_html(page_of("run 1")), hostile = to_html(page_of(kHostile));
  for (const char* tag : {"</script", "<script", "<img", "<!--", "<section", "<td", "<li", "onerror=\""})
    EXPECT_EQ(count(hostile, tag), count(harmless, tag)) << tag;
  EXPECT_EQ(count(without_scripts(hostile), kHostileInText), count(without_scripts(harmless), "run 1"));
  EXPECT_GE(count(without_scripts(harmless), "run 1"), 20u);
  EXPECT_EQ(data_of(hostile, "chart").find("lines")->items().at(0).find("name")->as_string(), kHostileOnOneLine);
  EXPECT_EQ(data_of(hostile, "timeline").find("what")->items().at(0).as_string(), kHostileOnOneLine);
  EXPECT_EQ(data_of(hostile, "timeline").find("rows")->items().at(0).find("name")->as_string(), kHostileOnOneLine);
}

TEST(ReportPage, JsonOfAScriptHasNoMarkup) {
  JsonValue value;
  value.set(kHostile, JsonValue::Array{JsonValue("<&>\xE2\x80\xA9")});
  const std::string text = script_json(value);
  for (const char* part : {"<", ">", "&", "\xE2\x80\xA8", "\xE2\x80\xA9"}) EXPECT_EQ(text.find(part), text.npos) << part;
  EXPECT_EQ(parsed(text).members().at(0).value.items().at(0).as_string(), "<&>\xE2\x80\xA9");
}

TEST(ReportPage, NeedsNothingButItself) {
  const std::string html = to_html(page_of("run 1"));
  for (const char* load : {" src=", "href=", "url(", "@import", "import(", "fetch(", "XMLHttpRequest"})
    EXPECT_EQ(html.find(load), html.npos) << load;
  EXPECT_NE(html.find("default-src 'none'"), html.npos);
  EXPECT_NE(html.find("prefers-color-scheme: dark"), html.npos);
  EXPECT_NE(html.find("width=device-width"), html.npos);
}

TEST(ReportPage, ScriptsAreThereOnlyWhereTheyDraw) {
  ReportPage page = page_of("run 1");
  EXPECT_NE(to_html(page).find("The MIT License"), std::string::npos) << "uPlot comes with its licence";
  page.sections[0].blocks.resize(5);
  const std::string html = to_html(page);
  EXPECT_EQ(html.find("<script"), html.npos);
  EXPECT_LT(html.size(), 20'000u);
}

TEST(ReportPage, BarsAreSharesOfTheLongest) {
  const std::string html = to_html({"t", "", {{"s", {bars_of("x")}}}});
  EXPECT_NE(html.find("width:20.000%;background:var(--c0)\" title=\"x: 1 x\""), html.npos) << "of the limit, 5";
  EXPECT_NE(html.find("width:60.000%;background:var(--c7)\" title=\"b: 3 x\""), html.npos);
  EXPECT_NE(html.find("width:40.000%"), html.npos);
  EXPECT_EQ(count(html, "<b "), 3u) << "none for a part that is not there";
  EXPECT_EQ(count(html, "<u style=\"left:100.000%\">"), 2u);
  EXPECT_NE(html.find("<span class=\"n\">4 x</span>"), html.npos);
  StackedBars bars = bars_of("x");
  bars.bars[0].all = 4.2;
  EXPECT_NE(to_html({"t", "", {{"s", {bars}}}}).find("<span class=\"n\">4.2 x</span>"), html.npos);
}

TEST(ReportPage, ChartsHaveTheirNumbers) {
  const JsonValue data = data_of(to_html(page_of("run 1")), "chart");
  EXPECT_EQ(data.find("yScale")->as_string(), "log2");
  EXPECT_EQ(data.find("limit")->as_number(), 4);
  const JsonValue& line = data.find("lines")->items().at(0);
  EXPECT_EQ(to_json_text(*line.find("x")), "[1.0,2.0,3.0]");
  EXPECT_EQ(to_json_text(*line.find("y")), "[2.0,null,8.0]");
}

TEST(ReportPage, TimelinesHaveTheirSpans) {
  Timeline timeline{"t", {{"forward", Hue::kBlue}, {"gather", Hue::kPurple}}, {{"stage 0", {}}, {"stage 1", {}}}};
  timeline.rows[1].spans = {{0, 0.25, TimelineLane::kUpper, 0, "forward of block 1", 0},
                            {0.1, 0.2, TimelineLane::kLower, 1, "gather", TimelineSpan::kNoNumber},
                            {0.25, 0.5, TimelineLane::kUpper, 0, "forward of block 1", 1}};
  const JsonValue data = parsed(timeline_json(timeline));
  EXPECT_EQ(data.find("end")->as_integer(), 500'000'000);
  EXPECT_EQ(to_json_text(*data.find("what")), R"(["forward of block 1","gather"])");
  const JsonValue::Array& rows = data.find("rows")->items();
  EXPECT_EQ(to_json_text(rows.at(0).find("lanes")->items().at(0)), R"({"start":[],"length":[],"kind":[],"what":[],"number":[]})");
  EXPECT_EQ(to_json_text(rows.at(1).find("lanes")->items().at(0)),
            R"({"start":[0,250000000],"length":[250000000,250000000],"kind":[0,0],"what":[0,0],"number":[0,1]})");
  EXPECT_EQ(to_json_text(rows.at(1).find("lanes")->items().at(1)),
            R"({"start":[100000000],"length":[100000000],"kind":[1],"what":[1],"number":[-1]})");
}

TEST(ReportPage, RefusesWhatDoesNotFitTogether) {
  EXPECT_THROW(to_html({"t", "", {{"s", {Table{"", {{"a", true}, {"b"}}, {{"1", "2", "3"}}}}}}}), InternalError);
  StackedBars bars = bars_of("x");
  bars.bars[1].values.pop_back();
  EXPECT_THROW(to_html({"t", "", {{"s", {bars}}}}), InternalError);
}

TEST(Table, TextIsAlignedAndShortRowsEndInWords) {
  Table table{"Rows", {{"name", true}, {"seconds", false, 9}, {"", true}}, {{"a", "1.5", ""}}, 2};
  table.rows.push_back({"longer", "cannot be: <why>, so long"});
  table.rows.push_back({"b", "12345.678", "remark"});
  EXPECT_EQ(to_text(table),
            "  name      seconds\n"
            "  a             1.5\n"
            "  longer  cannot be: <why>, so long\n"
            "  b       12345.678  remark\n");
  const std::string html = to_html({"t", "", {{"s", {table}}}});
  EXPECT_NE(html.find("<th>name</th><th class=\"n\">seconds</th><th></th>"), html.npos);
  EXPECT_NE(html.find("<td>longer</td><td colspan=\"2\">cannot be: &lt;why&gt;, so long</td></tr>"), html.npos);
  for (Column& column : table.columns) column.title.clear();
  EXPECT_TRUE(to_text(table).starts_with("  a "));
  EXPECT_EQ(to_html({"t", "", {{"s", {table}}}}).find("<thead>"), html.npos);
}

TEST(Table, CsvHasANameForEachMemberOfAnyRow) {
  const JsonValue rows = parsed(R"([{"a": 1, "b": {"c": 2.0, "d": null}}, {"a": "x, \"y\"", "e": true}])");
  EXPECT_EQ(to_csv(rows.items()), "a,b_c,b_d,e\r\n1,2.0,,\r\n\"x, \"\"y\"\"\",,,true\r\n");
}

}  // namespace
}  // namespace trident
