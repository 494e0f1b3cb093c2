// trident report RUN [RUN ...] [--output FILE] [--csv] [--watch]
#include <algorithm>
#include <chrono>
#include <csignal>
#include <ostream>
#include <thread>

#include "app/command_line.h"
#include "core/file_io.h"
#include "core/printable.h"
#include "report/run_page.h"
#include "train/run/stop_request.h"

namespace trident {
namespace {

constexpr int kReloadSeconds = 5;

// Returns whether a run goes on; a page that `reloads` is then to be written again.
bool write_page(const std::vector<RunFolder>& runs, const std::string& output, bool reloads) {
  const bool goes_on = std::ranges::any_of(runs, &RunFolder::is_written);
  ReportPage page = run_page(runs);
  if (reloads && goes_on) page.reload_seconds = kReloadSeconds;
  write_file(output, to_html(page));
  return goes_on;
}

}  // namespace

void report_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "One page about a run that is over, going on, stopped or killed, or about several beside each other, from the files in their "
      "folders: state, curves, texts, the last step, memory, traffic, configuration. The page needs no network and no other file.",
      "trident report");
  std::vector<std::string> runs;
  std::string given_output;
  bool csv = false, watch = false;
  app.add_option("RUN", runs, "run.dir of a run, or a folder of several; several are drawn over each other")->required();
  app.add_option("--output", given_output, "the page; not given: report.html in the folder RUN, of several RUNs in this folder");
  app.add_flag("--csv", csv,
               "print logged steps and evaluations as comma-separated values, a line for each step, and write no page");
  app.add_flag("--watch", watch,
               "write the page again every 5 seconds until the runs are over; the open page loads itself again");
  if (!parse_flags(app, arguments, context)) return;
  if (csv) {
    refuse_given(app, {"--output", "--watch"}, "--csv prints to standard output (> FILE keeps it) and writes no page",
                 "leave --csv out");
    LogSink log(context.err, LogLevel::kInfo, context.dress);
    for (const std::string& remark : write_metrics_csv(runs_at(runs), context.out)) Logger(log).warning("{}", remark);
    return;
  }
  if (!given_output.empty() && !given_output.ends_with(".html"))
    throw ConfigError(fmt::format("--output = {}: a file of that name is replaced; name one that ends in .html",
                                  in_quotes(given_output)));
  const std::string output = !given_output.empty() ? given_output
                             : runs.size() == 1    ? runs.front() + "/report.html"
                                                   : "report.html";
  const StopRequest stop({SIGTERM, SIGINT, SIGHUP});
  const auto read = [&] { return read_run_folders(runs_at(runs)); };
  const std::vector<RunFolder> first = read();
  bool goes_on = write_page(first, output, watch);
  if (first.size() > 1) context.out << on_screen(to_text(runs_table(first), context.table_columns()), context);
  context.out << fmt::format("{}: open it in a browser{}\n", on_one_line(output),
                             watch && goes_on ? "; it is written again every 5 s" : "")
              << std::flush;
  while (watch && goes_on && stop.pending() == 0) {
    for (int tenths = 0; tenths < 10 * kReloadSeconds && stop.pending() == 0; ++tenths)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    goes_on = write_page(read(), output, stop.pending() == 0);
  }
}

}  // namespace trident
