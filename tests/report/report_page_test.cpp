// Pages: what is in them, that foreign text stays text, and that they need nothing but themselves.
#include "report/report_page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/json_reader.h"
#include "report/markup.h"
#include "report/plot.h"
#include "report/svg_plot.h"
#include "tests/support/error_text.h"
#include "tests/support/text_counts.h"

namespace trident {
namespace {

const std::string kHostile = "</script><img src=x onerror=\"alert('1')\">&amp;\n<!--\xE2\x80\xA8\xFF";
const std::string kHostileInText =
    "&lt;/script&gt;&lt;img src=x onerror=&quot;alert(&#39;1&#39;)&quot;&gt;&amp;amp; &lt;!-- \xEF\xBF\xBD";
const std::string kHostileOnOneLine = "</script><img src=x onerror=\"alert('1')\">&amp; <!-- \xEF\xBF\xBD";

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
  Timeline timeline{name, {{name, Hue::kBlue}}, {{name, {{0.5, 1.5, false, 0, name, 7}}}}};
  return {name,
          name,
          {{name,
            {Paragraph{name}, KeyNumbers{{{name, name, name}}}, Table{name, {{name, true}, {"n"}}, {{name, "1"}}},
             BulletList{{name}}, bars_of(name), plot, timeline}}}};
}

TEST(ReportPage, ForeignTextStaysText) {
  const std::string harmless = to_html(page_of("run 1")), hostile = to_html(page_of(kHostile));
  for (const char* tag : {"</script", "<script", "<img", "<!--", "<section", "<td", "<li", "onerror=\""})
    EXPECT_EQ(occurrences(hostile, tag), occurrences(harmless, tag)) << tag;
  EXPECT_EQ(occurrences(without_scripts(hostile), kHostileInText), occurrences(without_scripts(harmless), "run 1"));
  EXPECT_GE(occurrences(without_scripts(harmless), "run 1"), 20u);
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
  expect_parts(html, {"default-src 'none'", "prefers-color-scheme: dark", "width=device-width"});
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
  expect_parts(html, {"width:60.000%;background:var(--c7)\" title=\"b: 3 x\"", "width:40.000%"});
  EXPECT_EQ(occurrences(html, "<b "), 3u) << "none for a part that is not there";
  EXPECT_EQ(occurrences(html, "<u style=\"left:100.000%\">"), 2u);
  expect_parts(html, {"<span class=\"n\">4 x</span>"});
  StackedBars bars = bars_of("x");
  bars.bars[0].all = 4.2;
  expect_parts(to_html({"t", "", {{"s", {bars}}}}), {"<span class=\"n\">4.2 x</span>"});
}

TEST(ReportPage, ChartsHaveTheirNumbers) {
  const std::string html = to_html(page_of("run 1"));
  const JsonValue data = data_of(html, "chart");
  expect_parts(html, {"</script><svg ", "</svg>\n</div>"});
  EXPECT_GT(html.find("<noscript>"), html.find("</svg>")) << "readers without scripts have the still";
  EXPECT_EQ(data.find("yScale")->as_string(), "log2");
  EXPECT_EQ(data.find("limit")->as_number(), 4);
  const JsonValue& line = data.find("lines")->items().at(0);
  EXPECT_EQ(to_json_text(*line.find("x")), "[1.0,2.0,3.0]");
  EXPECT_EQ(to_json_text(*line.find("y")), "[2.0,null,8.0]");
  ReportPage page = page_of("run 1");
  for (ReportBlock& block : page.sections[0].blocks)
    if (auto* const plot = std::get_if<LinePlot>(&block))
      for (int x = 4; x < 600; ++x) plot->lines[0].points.push_back({1.0 * x, x == 305 ? std::nan("") : 8.0});
  const std::string thinned = to_html(page), path = thinned.substr(thinned.find(" d=\"M"));
  EXPECT_EQ(occurrences(path.substr(0, path.find("/>")), "M"), 3u) << "the still keeps every gap";
}

TEST(ReportPage, TimelinesHaveTheirSpans) {
  Timeline timeline{"t", {{"forward", Hue::kBlue}, {"gather", Hue::kPurple}}, {{"stage 0", {}}, {"stage 1", {}}}};
  timeline.rows[1].spans = {{0, 0.25, false, 0, "forward of block 1", 0},
                            {0.1, 0.2, true, 1, "gather", TimelineSpan::kNoNumber},
                            {0.25, 0.5, false, 0, "forward of block 1", 1}};
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

TEST(Table, TextOfFewerColumnsFoldsWordsOrStandsInGroupsBesideTheKeys) {
  Table table{"", {{"#"}, {"layout", true}, {"step"}, {"memory"}}};
  table.rows.push_back({"1", "2DP x 4PP, sequence parallel, zero1", "1.5 s", "80 GB"});
  table.rows.push_back({"2", "8DP", "2.5 s", "9 GB"});
  table.rows.push_back({"3", "16DP", "cannot be"});
  EXPECT_EQ(to_text(table, 42),
            "#  layout                     step  memory\n"
            "1  2DP x 4PP, sequence       1.5 s   80 GB\n"
            "   parallel, zero1\n"
            "2  8DP                       2.5 s    9 GB\n"
            "3  16DP                      cannot be\n");
  EXPECT_EQ(to_text(table, 20),
            "#  layout\n"
            "1  2DP x 4PP,\n"
            "   sequence\n"
            "   parallel, zero1\n"
            "2  8DP\n"
            "3  16DP\n"
            "\n"
            "#   step  memory\n"
            "1  1.5 s   80 GB\n"
            "2  2.5 s    9 GB\n"
            "3  cannot be\n");
  // A word that is longer than its column is whole, and what stands beside it stands below.
  Table overlong{"", {{"", true}, {"", true}, {""}}, {{"a/name/without/a/blank", "x", "1"}, {"short", "y/longer/than/all", "2"}}};
  EXPECT_EQ(to_text(overlong, 20),
            "a/name/without/a/blank\n"
            "            x\n"
            "short       y/longer/than/all\n"
            "\n"
            "a/name/without/a/blank\n"
            "            1\n"
            "short       2\n");
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
  EXPECT_EQ(to_text(table, 35), to_text(table));
  EXPECT_EQ(to_text(table, 34),
            "  name      seconds\n"
            "  a             1.5\n"
            "  longer  cannot be: <why>, so\n"
            "          long\n"
            "  b       12345.678  remark\n");
  const std::string html = to_html({"t", "", {{"s", {table}}}});
  EXPECT_NE(html.find("<th>name</th><th class=\"n\">seconds</th><th></th>"), html.npos);
  EXPECT_NE(html.find("<td>longer</td><td colspan=\"2\">cannot be: &lt;why&gt;, so long</td></tr>"), html.npos);
  for (Column& column : table.columns) column.title.clear();
  EXPECT_TRUE(to_text(table).starts_with("  a "));
  EXPECT_EQ(to_html({"t", "", {{"s", {table}}}}).find("<thead>"), html.npos);
}

// Else a narrow page would have a word of it on each line.
TEST(Table, ALongTextHasAWidthOnPages) {
  const Table table{"", {{"#"}, {"layout", true}}, {{"1", "64DP x 1PP x 1TP, zero3 reducing once"}, {"2", "64DP"}}};
  expect_parts(to_html({"t", "", {{"s", {table}}}}), {"<td class=\"text\">64DP x 1PP", "<td>64DP</td>", "td.text { min-width"});
}

TEST(Table, CsvHasANameForEachMemberOfAnyRow) {
  const JsonValue rows = parsed(R"([{"a": 1, "b": {"c": 2.0, "d": null}}, {"a": "x, \"y\"", "e": true}])");
  EXPECT_EQ(to_csv(rows.items()), "a,b_c,b_d,e\r\n1,2.0,,\r\n\"x, \"\"y\"\"\",,,true\r\n");
}

// Plots as documents, and the round numbers along their axes.

using Numbers = std::vector<double>;

void expect_range(const NumberRange& range, double low, double high) {
  EXPECT_DOUBLE_EQ(range.low, low);
  EXPECT_DOUBLE_EQ(range.high, high);
}

TEST(AxisTicks, RangesEndAtRoundNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  expect_range(axis_range({3, 97, nan, infinity}, AxisScale::kLinear), 0, 100);
  expect_range(axis_range({95.2, 97}, AxisScale::kLinear), 95, 97);
  expect_range(axis_range({-3, 8}, AxisScale::kLinear), -4, 8);
  expect_range(axis_range({}, AxisScale::kLinear), 0, 1);
  expect_range(axis_range({0, 0}, AxisScale::kLinear), 0, 1);
  expect_range(axis_range({64, 4096, 0, -5}, AxisScale::kLog2), 64, 4096);
  expect_range(axis_range({60, 5000}, AxisScale::kLog2), 32, 8192);
  expect_range(axis_range({0.3}, AxisScale::kLog10), 0.1, 1);
  expect_range(axis_range({10}, AxisScale::kLog10), 10, 100);
  const NumberRange flat = axis_range({7, 7}, AxisScale::kLinear);
  EXPECT_LT(flat.low, 7);
  EXPECT_GT(flat.high, 7);
}

TEST(AxisTicks, AreRoundAndFew) {
  EXPECT_EQ(axis_ticks({0, 100}, AxisScale::kLinear, 6), (Numbers{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(axis_ticks({64, 4096}, AxisScale::kLog2, 8), (Numbers{64, 128, 256, 512, 1024, 2048, 4096}));
  EXPECT_EQ(axis_ticks({1, 1024}, AxisScale::kLog2, 6), (Numbers{1, 4, 16, 64, 256, 1024}));
  EXPECT_EQ(axis_ticks({1, 1000}, AxisScale::kLog10, 8), (Numbers{1, 10, 100, 1000}));
  for (const double high : {0.0123, 1.7, 33.0, 8.1e9}) {
    const std::size_t n = axis_ticks({0, high}, AxisScale::kLinear, 6).size();
    EXPECT_GE(n, 3u) << high;
    EXPECT_LE(n, 7u) << high;
  }
}

TEST(AxisTicks, PositionsFollowTheScale) {
  EXPECT_DOUBLE_EQ(axis_position(25, {0, 100}, AxisScale::kLinear), 0.25);
  EXPECT_DOUBLE_EQ(axis_position(128, {64, 1024}, AxisScale::kLog2), 0.25);
  EXPECT_DOUBLE_EQ(axis_position(10, {1, 100}, AxisScale::kLog10), 0.5);
}

TEST(AxisTicks, NumbersAreShort) {
  EXPECT_EQ(short_number(0.25), "0.25");
  EXPECT_EQ(short_number(4096), "4,096");
  EXPECT_EQ(short_number(16384), "16,384");
  EXPECT_EQ(short_number(1.5e6), "1.5M");
  EXPECT_EQ(short_number(-2.5e9), "-2.5G");
  EXPECT_EQ(short_number(1e30), "1e+30");
  EXPECT_EQ(short_number(1234.56), "1,235");
}

LinePlot efficiency() {
  return {"Efficiency",
          "GPUs",
          "MFU, %",
          AxisScale::kLog2,
          AxisScale::kLinear,
          {{"zero1", {{64, 50}, {256, 40}, {4096, 20}}, Hue::kBlue, false, false, true},
           {"zero3", {{64, 45}, {4096, 10}}, Hue::kRed, true}},
          50.0,
          "wanted"};
}

TEST(SvgPlot, LinesLieWhereTheirNumbersSay) {
  const std::string svg = line_plot_svg(efficiency());
  EXPECT_EQ(first_fault(svg), "");
  // x from 66 to 700 over six doublings, y from 0 at the bottom to 50 over 300 pixels
  expect_parts(svg, {"d=\"M66.0 70.0L277.3 130.0L700.0 250.0\"", "class=\"line s7 dashed\" d=\"M66.0 100.0L700.0 310.0\""});
  EXPECT_EQ(occurrences(svg, "<circle"), 3u);
  // A wide number at the right end of the axis is moved inwards.
  expect_parts(svg,
               {"<text x=\"699.5\" y=\"389.0\" class=\"middle\">4,096</text>", "class=\"limit\"", "prefers-color-scheme: dark"});
}

TEST(SvgPlot, WhatHasNoPlaceLeavesAGap) {
  LinePlot plot{"t", "x", "y", AxisScale::kLinear, AxisScale::kLog10, {{"a", {{0, 1}, {1, 0}, {2, 10}, {3, NAN}, {4, 100}}}}};
  expect_parts(line_plot_svg(plot), {"d=\"M66.0 370.0M383.0 220.0M700.0 70.0\""});
  plot.lines[0].points = {{0, 1}, {2, 10}, {4, 100}};
  plot.lines[0].stepped = true;
  expect_parts(line_plot_svg(plot), {"d=\"M66.0 370.0L383.0 370.0L383.0 220.0L700.0 220.0L700.0 70.0\""});
  plot.lines = {};
  EXPECT_EQ(first_fault(line_plot_svg(plot)), "");
}

StackedBars memory() {
  return {
      "Memory", "GB",  {{"parameters", Hue::kBlue}, {"activations", Hue::kGreen}}, {{"stage 0", {10, 30}}, {"stage 1", {10, 0}}},
      80.0,     "card"};
}

TEST(SvgPlot, BarsAreAsLongAsTheirNumbers) {
  const std::string svg = stacked_bars_svg(memory());
  EXPECT_EQ(first_fault(svg), "");
  // From 76.2, 567.8 pixels for 80 GB.
  for (const char* bar :
       {"<rect x=\"76.2\" y=\"74.0\" width=\"71.0\"", "<rect x=\"147.2\" y=\"74.0\" width=\"212.9\"",
        "<rect x=\"76.2\" y=\"106.0\" width=\"71.0\"", "<title>stage 0, activations: 30 GB</title>", ">40 GB</text>"})
    EXPECT_NE(svg.find(bar), svg.npos) << bar << " in\n" << svg;
}

TEST(SvgPlot, NumbersOfTheAxisEndOnThePage) {
  LinePlot plot = efficiency();
  for (PlotLine& line : plot.lines)
    for (PlotPoint& point : line.points) point.x *= 16384;  // 67108864 is "67.11M"
  expect_parts(line_plot_svg(plot), {"<text x=\"696.2\" y=\"389.0\" class=\"middle\">67.11M</text>"});
}

// Parts that are too small to be drawn belong to the number all the same.
TEST(SvgPlot, TheNumberBesideABarIsThatOfAllItsParts) {
  StackedBars bars = memory();
  bars.bars[0].all = 41;
  expect_parts(stacked_bars_svg(bars), {">41 GB</text>"});
  EXPECT_EQ(stacked_bars_svg(bars).find(">40 GB</text>"), std::string::npos);
}

TEST(SvgPlot, ForeignTextStaysText) {
  const std::string hostile = "</title><script>alert('1')</script>&";
  LinePlot plot = efficiency();
  plot.title = plot.x_label = plot.y_label = plot.limit_name = plot.lines[0].name = hostile;
  StackedBars bars = memory();
  bars.title = bars.unit = bars.limit_name = bars.parts[0].name = bars.bars[0].name = hostile;
  for (const std::string& svg : {line_plot_svg(plot), stacked_bars_svg(bars)}) {
    EXPECT_EQ(first_fault(svg), "");
    EXPECT_EQ(svg.find("<script"), svg.npos);
  }
}

TEST(SvgPlot, RefusesWhatDoesNotFitTogether) {
  LinePlot plot = efficiency();
  plot.lines[0].name = "";
  EXPECT_THROW(line_plot_svg(plot), InternalError);
  StackedBars bars = memory();
  bars.bars[0].values.push_back(1);
  EXPECT_THROW(stacked_bars_svg(bars), InternalError);
}

}  // namespace
}  // namespace trident
