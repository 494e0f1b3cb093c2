// trident docs configuration | coming-from | timeline --config FILE [--set path=value ...]: what docs/ shows and the code
// computes.
#include <ostream>

#include "app/command_line.h"
#include "app/foreign_flag_hint.h"
#include "app/path_arguments.h"
#include "planner/predict/timeline_svg.h"
#include "train/config/foreign_answers.h"
#include "train/config/option_docs.h"
#include "train/plan/machine.h"

namespace trident {

void docs_command(const Arguments& arguments, const CommandContext& context) {
  const std::string page = arguments.empty() ? "" : arguments.front();
  if (page != "timeline" && !arguments.empty() && (arguments.back() == "--help" || arguments.back() == "-h")) {
    context.out << "usage: trident docs configuration | coming-from\n"
                   "       trident docs timeline --config FILE [--set KEY=VALUE ...]\n\n"
                   "  configuration    every key of the configuration, as Markdown\n"
                   "  coming-from      what keys and flags of other systems become here\n"
                   "  timeline         one training step of a configuration, as SVG\n";
  } else if (page == "configuration" && arguments.size() == 1) {
    context.out << options_markdown();
  } else if (page == "coming-from" && arguments.size() == 1) {
    context.out << coming_from_markdown();
  } else if (page == "timeline") {
    CLI::App app("Draw one training step of a configuration as SVG.", "trident docs timeline");
    ConfigFlags flags;
    add_config_flags(app, flags);
    if (!parse_flags(app, {arguments.begin() + 1, arguments.end()}, context, {{}, foreign_flag_hint})) return;
    check_named_files(app, {"--config"}, {});
    OptionValues values;
    const TrainConfig config = load_train_config(flags.file, flags.settings, values);
    const ModelConfig model = resolve_model(config);
    check_can_be_drawn(config, model);
    context.out << timeline_svg(make_run_plan(config, model, 0, kAnyMachine));
  } else {
    throw ConfigError("trident docs: name one page; choose configuration, coming-from or timeline --config FILE");
  }
}

}  // namespace trident
