#include "report/report_page.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "core/check.h"
#include "core/number_text.h"
#include "core/printable.h"
#include "report/assets.h"
#include "report/markup.h"
#include "report/plot.h"
#include "report/svg_plot.h"

namespace trident {
namespace {

// "--c3: #8a63d2;" for every hue.
std::string hues(std::string_view HueColors::*member) {
  std::string out;
  for (std::size_t hue = 0; hue < kNumHues; ++hue) out += fmt::format("--c{}:{};", hue, kHueColors[hue].*member);
  return out;
}

// "Starts: ..." of a block, as readers know it.
std::string name_of_block(const ReportSection& section, const ReportBlock& block) {
  const std::string title = std::visit(
      [](const auto& it) -> std::string {
        if constexpr (requires { it.title; }) return it.title;
        return "";
      },
      block);
  return title.empty() ? section.title : fmt::format("{}: {}", section.title, title);
}

// All of a page but its sections: scripts, styles, and in the rest what is said of it.
std::size_t bytes_around_sections() {
  constexpr std::size_t kRest = 64 << 10;
  return page_style().size() + uplot_style().size() + uplot_license().size() + uplot_script().size() + chart_script().size() +
         timeline_script().size() + kRest;
}

// The first plot of a page for readers that run no scripts, such as mail clients: a small SVG of at most so many points a line.
std::string still_of(LinePlot plot) {
  constexpr std::size_t kPoints = 200;
  plot.title.clear();  // the page has it
  for (PlotLine& line : plot.lines) {
    const std::size_t every = (line.points.size() + kPoints - 1) / kPoints;
    std::vector<PlotPoint> kept;
    for (std::size_t i = 0; i < line.points.size(); ++i)
      if (i % every == 0 || i + 1 == line.points.size() || !std::isfinite(line.points[i].y)) kept.push_back(line.points[i]);
    line.points = std::move(kept);
  }
  return line_plot_svg(plot);
}

class PageWriter {
 public:
  std::string write(const ReportPage& page) {
    LeftOut left_out;
    const std::size_t room = page.most_bytes == 0 ? std::string::npos : page.most_bytes - bytes_around_sections();
    for (const ReportSection& section : page.sections) {
      const std::size_t begin = body_.size();
      body_ += fmt::format("<section>\n<h2>{}</h2>\n", html_escaped(section.title));
      bool has_blocks = section.blocks.empty();
      for (const ReportBlock& block : section.blocks) {
        const std::size_t before = body_.size();
        std::visit([this](const auto& it) { add(it); }, block);
        if (body_.size() <= room) {
          has_blocks = true;
          continue;
        }
        body_.resize(before);
        left_out.add(name_of_block(section, block));
      }
      if (has_blocks) body_ += "</section>\n";
      else body_.resize(begin);
    }
    if (left_out.number > LeftOut::kNamed) left_out.text += fmt::format(" and {} more", left_out.number - LeftOut::kNamed);
    if (left_out.number > 0)
      left_out.text = fmt::format("<p class=\"remark\">Left out, because the page would be larger than {}: {}.</p>\n",
                                  bytes_text(page.most_bytes), left_out.text);
    std::string out = fmt::format(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src "
        "'unsafe-inline'; img-src data:\">\n<meta name=\"color-scheme\" content=\"light dark\">\n{}<title>{}</title>\n<style>\n",
        page.reload_seconds > 0 ? fmt::format("<meta http-equiv=\"refresh\" content=\"{}\">\n", page.reload_seconds) : "",
        html_escaped(page.title));
    out += fmt::format(":root{{{}}}\n@media (prefers-color-scheme: dark){{:root{{{}}}}}\n", hues(&HueColors::light),
                       hues(&HueColors::dark));
    out += page_style();
    if (draws_charts_) out += uplot_style();
    out += fmt::format("</style>\n</head>\n<body>\n<main>\n<header><h1>{}</h1><p>{}</p></header>\n", html_escaped(page.title),
                       html_escaped(page.subtitle));
    out += left_out.text + body_;
    if (!page.made_by.empty()) out += fmt::format("<p class=\"remark\">{}</p>\n", html_escaped(page.made_by));
    out += "</main>\n";
    if (draws_charts_)
      out += fmt::format("<script>\n/*!\n{}*/\n{}\n{}</script>\n", uplot_license(), uplot_script(), chart_script());
    if (draws_timelines_) out += fmt::format("<script>\n{}</script>\n", timeline_script());
    return out + "</body>\n</html>\n";
  }

 private:
  struct LeftOut {
    static constexpr std::size_t kNamed = 10;
    std::string text;
    std::size_t number = 0;
    void add(std::string_view name) {
      if (++number <= kNamed) text += fmt::format("{}{}", number > 1 ? ", " : "", html_escaped(beginning_of(name, 200)));
    }
  };

  void add(const Paragraph& paragraph) { body_ += fmt::format("<p>{}</p>\n", html_escaped(paragraph.text)); }

  void add(const KeyNumbers& block) {
    body_ += "<dl class=\"numbers\">\n";
    for (const KeyNumbers::Number& number : block.numbers)
      body_ += fmt::format("<div><dt>{}</dt><dd>{}</dd><dd class=\"remark\">{}</dd></div>\n", html_escaped(number.name),
                           html_escaped(number.value), html_escaped(number.remark));
    body_ += "</dl>\n";
  }

  void add(const BulletList& list) {
    body_ += "<ul>\n";
    for (const std::string& item : list.items) body_ += fmt::format("<li>{}</li>\n", html_escaped(item));
    body_ += "</ul>\n";
  }

  void add(const Table& table) {
    if (table.folded) body_ += fmt::format("<details><summary>{}</summary>\n", html_escaped(table.title));
    body_ += "<div class=\"table\">\n";  // narrow ones stand side by side
    if (!table.folded) title(table.title);
    const std::size_t columns = table.columns.size();
    const auto cell = [&](std::string_view tag, std::string_view text, std::size_t column, std::size_t span = 1) {
      constexpr std::size_t kLong = 18;  // bytes of a text that is not to stand in a column of single words
      body_ += fmt::format("<{0}{1}{2}>{3}</{0}>", tag,
                           span > 1                              ? ""
                           : !table.columns[column].words        ? " class=\"n\""
                           : tag == "td" && text.size() >= kLong ? " class=\"text\""
                                                                 : "",
                           span > 1 ? fmt::format(" colspan=\"{}\"", span) : "", html_escaped(text));
    };
    constexpr std::size_t kMany = 12;
    body_ += fmt::format("<div class=\"wide\"><table{}>\n", columns > kMany ? " class=\"dense\"" : "");
    if (table.has_titles()) {
      body_ += "<thead><tr>";
      for (std::size_t column = 0; column < columns; ++column) cell("th", table.columns[column].title, column);
      body_ += "</tr></thead>\n";
    }
    body_ += "<tbody>\n";
    for (const std::vector<std::string>& row : table.rows) {
      TRIDENT_CHECK(row.size() <= columns, "a row of {} cells in a table of {} columns", row.size(), columns);
      body_ += "<tr>";
      for (std::size_t column = 0; column < row.size(); ++column)
        cell("td", row[column], column, column + 1 == row.size() ? columns - column : 1);
      body_ += "</tr>\n";
    }
    body_ += table.folded ? "</tbody>\n</table></div>\n</div>\n</details>\n" : "</tbody>\n</table></div>\n</div>\n";
  }

  // Elements of the page and no picture: they are legible at every width.
  void add(const StackedBars& bars) {
    title(bars.title);
    body_ += "<ul class=\"legend\">";
    for (const LegendKey& part : bars.parts)
      body_ +=
          fmt::format("<li><i style=\"background:var(--c{})\"></i>{}</li>", static_cast<int>(part.hue), html_escaped(part.name));
    body_ += "</ul>\n<div class=\"bars\">\n";
    double longest = bars.limit.value_or(0);
    for (const StackedBars::Bar& bar : bars.bars) {
      TRIDENT_CHECK(bar.values.size() == bars.parts.size(), "{} values of {} parts", bar.values.size(), bars.parts.size());
      longest = std::max(longest, std::accumulate(bar.values.begin(), bar.values.end(), 0.0));
    }
    const auto share = [longest](double value) { return longest > 0 ? 100 * value / longest : 0; };
    const auto limit_line = [&] {
      if (bars.limit) body_ += fmt::format("<u style=\"left:{:.3f}%\"></u>", share(*bars.limit));
    };
    for (const StackedBars::Bar& bar : bars.bars) {
      body_ += fmt::format("<span>{}</span><div>", html_escaped(bar.name));
      for (std::size_t part = 0; part < bar.values.size(); ++part) {
        if (!(bar.values[part] > 0)) continue;
        body_ +=
            fmt::format("<b style=\"width:{:.3f}%;background:var(--c{})\" title=\"{}\"></b>", share(bar.values[part]),
                        static_cast<int>(bars.parts[part].hue),
                        html_escaped(fmt::format("{}: {} {}", bars.parts[part].name, short_number(bar.values[part]), bars.unit)));
      }
      limit_line();
      body_ +=
          fmt::format("</div><span class=\"n\">{}</span>\n",
                      html_escaped(short_number(StackedBars::number_of(bar)) + " " + bars.unit));
    }
    body_ += "</div>\n";
    if (bars.limit)
      body_ += fmt::format("<p class=\"remark\">Red line: {}, {} {}.</p>\n", html_escaped(bars.limit_name),
                           short_number(*bars.limit), html_escaped(bars.unit));
  }

  void add(const LinePlot& plot) {
    title(plot.title);
    JsonValue::Array lines;
    for (const PlotLine& line : plot.lines) {
      JsonValue::Array x, y;
      for (const PlotPoint& point : line.points) {
        if (!std::isfinite(point.x)) continue;
        x.emplace_back(point.x), y.emplace_back(point.y);  // null where it is not finite
      }
      JsonValue it;
      it.set("name", on_one_line(line.name));
      it.set("hue", static_cast<int>(line.hue));
      it.set("dashed", line.dashed);
      it.set("stepped", line.stepped);
      it.set("marked", line.marked);
      it.set("x", JsonValue(std::move(x)));
      it.set("y", JsonValue(std::move(y)));
      if (!plot.other_x_label.empty()) {
        JsonValue::Array other;
        for (std::size_t i = 0; i < line.points.size(); ++i)
          if (std::isfinite(line.points[i].x)) other.emplace_back(line.other_x.at(i));
        it.set("otherX", JsonValue(std::move(other)));
      }
      lines.push_back(std::move(it));
    }
    JsonValue data;
    data.set("xLabel", on_one_line(plot.x_label));
    data.set("yLabel", on_one_line(plot.y_label));
    data.set("xScale", to_string(plot.x_scale));
    data.set("yScale", to_string(plot.y_scale));
    if (!plot.other_x_label.empty()) data.set("otherXLabel", on_one_line(plot.other_x_label));
    if (plot.limit) {
      data.set("limit", *plot.limit);
      data.set("limitName", on_one_line(plot.limit_name));
    }
    data.set("lines", JsonValue(std::move(lines)));
    scripted("chart", script_json(data), draws_charts_ ? "" : still_of(plot));
    draws_charts_ = true;
  }

  void add(const Timeline& timeline) { add_timeline(timeline.title, timeline_json(timeline)); }
  void add(const DrawnTimeline& timeline) { add_timeline(timeline.title, script_json(timeline.data)); }
  void add_timeline(std::string_view name, std::string_view json) {
    title(name);
    scripted("timeline", json);
    draws_timelines_ = true;
  }

  void title(std::string_view text) {
    if (!text.empty()) body_ += fmt::format("<h3>{}</h3>\n", html_escaped(text));
  }
  // An element whose script finds its data inside it and puts its own picture in place of `still`.
  void scripted(std::string_view what, std::string_view json, std::string_view still = "") {
    body_ += fmt::format("<div class=\"{}\"><script type=\"application/json\">{}</script>{}</div>\n", what, json,
                         still.empty() ? "<noscript>Drawn by a script of this page, which the browser does not run.</noscript>"
                                       : still);
  }

  std::string body_;
  bool draws_charts_ = false, draws_timelines_ = false;
};

}  // namespace

std::string to_html(const ReportPage& page) { return PageWriter().write(page); }

}  // namespace trident
