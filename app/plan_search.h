// trident plan --search --config FILE --cluster NAME|FILE --gpus N [--set path=value ...] [--best N] [--write FILE] [--json]
#pragma once

#include "app/subcommands.h"

namespace trident {

// Whether `arguments` of `trident plan` ask for a search.
bool asks_search(const Arguments& arguments);
void plan_search(const Arguments& arguments, const CommandContext& context);

}  // namespace trident
