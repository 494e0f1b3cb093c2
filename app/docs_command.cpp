// trident docs configuration | megatron-flags | timeline --config FILE: what docs/ shows and the code computes.
#include <ostream>

#include "app/command_line.h"
#include "app/megatron_flags.h"
#include "core/json_reader.h"
#include "train/option_docs.h"

namespace trident {

void docs_command(const Arguments& arguments, const CommandContext& context) {
  const std::string page = arguments.empty() ? "" : arguments.front();
  if (page == "configuration" && arguments.size() == 1) {
    context.out << options_markdown();
  } else if (page == "megatron-flags" && arguments.size() == 1) {
    context.out << megatron_flags_markdown();
  } else if (page == "timeline") {
    CLI::App app("Draw one training step of a configuration as SVG.", "trident docs timeline");
    std::string file;
    app.add_option("-c,--config", file, "configuration file (JSON, comments allowed)")->required();
    if (parse_flags(app, {arguments.begin() + 1, arguments.end()}, context.out) == ParseResult::kHelpPrinted) return;
    OptionValues values;
    values.take_file(read_json_file(file), file);
    context.out << context.draw_timeline(make_train_config(values));
  } else {
    throw ConfigError("trident docs: name one page; there is: configuration, megatron-flags, timeline --config FILE");
  }
}

}  // namespace trident
