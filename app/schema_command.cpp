// trident schema
#include <ostream>

#include "app/command_line.h"
#include "train/config/option_docs.h"

namespace trident {

void schema_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app("Print the JSON Schema of the configuration, for editors.", "trident schema");
  if (!parse_flags(app, arguments, context)) return;
  context.out << to_json_text(options_schema(), 2) << '\n';
}

}  // namespace trident
