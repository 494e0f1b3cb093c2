// trident study --config FILE [--vary KEY=VALUES ...] [--set path=value ...] [--scaling strong|weak] [--cluster NAME] [--gpus N]
//               [--json | --csv] [--svg FILE] [--html FILE] [--run]
#include <algorithm>
#include <cstdint>
#include <ostream>

#include "app/command_line.h"
#include "app/foreign_flag_hint.h"
#include "app/path_arguments.h"
#include "app/progress_line.h"
#include "core/file_io.h"
#include "core/printable.h"
#include "planner/price/cluster.h"
#include "planner/study/study.h"
#include "planner/study/study_keys.h"
#include "planner/study/study_table.h"

namespace trident {
namespace {

struct StudyFlags {
  ConfigFlags config;
  std::vector<std::string> vary;
  std::string scaling, cluster, svg, html;
  std::int64_t gpus = 0;
  bool json = false, csv = false, run = false;
};

// The file's specification, then the flags'.
StudySpec spec_of(const CLI::App& app, const StudyFlags& flags) {
  StudySpec spec;
  if (!flags.config.file.empty() && is_study(read_json_file(flags.config.file))) {
    spec = read_study(flags.config.file);
  } else {
    values_of_config(app, flags.config);  // refuses where nothing is given
    spec.config = flags.config.file;
  }
  for (const std::string& setting : flags.config.settings) OptionValues().take_setting(setting);  // before any point fails by it
  spec.settings.insert(spec.settings.end(), flags.config.settings.begin(), flags.config.settings.end());
  const std::size_t of_file = spec.varied.size();
  std::vector<std::string> texts;
  for (const std::string& flag : flags.vary) {
    for (std::string& text : split_varied(flag)) texts.push_back(std::move(text));
  }
  for (const std::string& text : texts) {
    VariedKey varied = parse_varied(text);
    const auto there =
        std::find_if(spec.varied.begin(), spec.varied.end(), [&](const VariedKey& v) { return v.key == varied.key; });
    if (there == spec.varied.end()) {
      spec.varied.push_back(std::move(varied));
      continue;
    }
    if (static_cast<std::size_t>(there - spec.varied.begin()) >= of_file)
      throw ConfigError(fmt::format("--vary: {} stands there twice; write its values into one, joined by |", varied.key));
    *there = std::move(varied);
  }
  if (!flags.scaling.empty()) spec.scaling = parse_scaling(flags.scaling, "--scaling");
  if (!flags.cluster.empty()) spec.cluster = flags.cluster;
  if (flags.gpus > 0) {
    spec.gpus = flags.gpus;
    if (spec.varies(kGpusKey)) throw ConfigError("--gpus: gpus vary in this study; leave it out, or write --vary gpus=...");
  }
  check_spec(spec);
  return spec;
}

// Before the study is read, so that no flag is empty; and when it has said what it is of.
void check_study_files(const CLI::App& app, const StudySpec& spec) {
  std::vector<NamedFile> of_spec;
  if (!spec.config.empty()) of_spec.push_back({"the study's config", spec.config});
  if (is_file_of_cluster(spec.cluster)) of_spec.push_back({"the study's cluster", spec.cluster});
  check_named_files(app, {"--config", "--cluster"}, {"--svg", "--html"}, of_spec);
}

}  // namespace

void study_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Compare settings and numbers of GPUs, without training: a row for each combination, with the time of a step by part, "
      "tokens/s, MFU, memory and efficiency, and what makes the difference. --config takes a training configuration, or a study of "
      "configs/studies. A combination that cannot be is a row with its reason. docs/studies.md explains it.",
      "trident study");
  StudyFlags flags;
  add_config_flags(app, flags.config);
  add_repeatable(app, "--vary", flags.vary,
                 "KEY=A..B (doubling) or 'KEY=A|B|C' in quotes, as often as wanted: gpus=64..4096, 'zero=zero1|zero3', "
                 "'micro=1|2|4', or any key");
  app.add_option("--scaling", flags.scaling,
                 "strong: batch.global stays the same (default); weak: the sequences of a replica do, batch.global grows");
  app.add_option("--cluster", flags.cluster,
                 "the GPUs: a name of configs/clusters without .json, or a file; or processors: cpu, or a file of trident bench "
                 "--calibrate; none: this machine's processors");
  in_range(app.add_option("--gpus", flags.gpus,
                          "how many, where they do not vary; without it as many as the configuration's degrees say"),
           1, kMostGpus);
  app.add_flag("--json", flags.json, "print one JSON object");
  app.add_flag("--csv", flags.csv, "print comma-separated values, a line for each row");
  app.add_option("--svg", flags.svg, "write a picture: efficiency over GPUs, or the time of a step by part");
  app.add_option("--html", flags.html, "write a page with pictures and table that needs nothing else");
  app.add_flag("--run", flags.run,
               "train the points that fit this machine for a few steps, and put measured beside what is predicted for it; no "
               "cluster counts");
  if (!parse_flags(app, arguments, context, {{}, foreign_flag_hint})) return;
  if (flags.json && flags.csv) throw ConfigError("--json and --csv: choose one");
  check_study_files(app, {});
  const StudySpec spec = spec_of(app, flags);
  check_study_files(app, spec);
  ProgressLine line(context, "study");
  const auto progress = [&line](std::int64_t done, std::int64_t all) { line.count(done, all, "points"); };
  const StudyResult result = run_study_here(spec, flags.run, *context.make_cuda(), progress);
  line.finish();
  if (!result.any_possible())
    throw ConfigError(fmt::format("no point of the study can be: {}; vary other values", reasons_text(result)));
  if (!flags.svg.empty()) write_file(flags.svg, study_svg(result));
  if (!flags.html.empty()) write_page(flags.html, page_of(result), app, arguments);
  context.out << (flags.json ? to_json_text(to_json(result)) + '\n'
                  : flags.csv
                      ? on_lines(to_csv(result))
                      : on_screen(to_text(result, context.table_columns()), context) +
                            files_text({{flags.svg, "a browser"}, {flags.html, "a browser"}}));
}

}  // namespace trident
