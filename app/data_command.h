// The parts of trident data.
#pragma once

#include "app/subcommands.h"

namespace trident {

// trident data inspect PREFIX [--check [--vocab-size V]] [--documents N] [--tokens M] [--tokenizer T] [--sequence S] [--json]
void inspect_command(const Arguments& arguments, const CommandContext& context);

}  // namespace trident
