// trident docs configuration: the pages of docs/ that are computed from the code.
#include <ostream>

#include "app/subcommands.h"
#include "core/json_reader.h"
#include "train/option_docs.h"

namespace trident {

void docs_command(const Arguments& arguments, const CommandContext& context) {
  if (arguments.size() != 1 || arguments.front() != "configuration")
    throw ConfigError("trident docs: name one page; there is: configuration");
  context.out << options_markdown();
}

}  // namespace trident
