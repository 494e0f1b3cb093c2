// Flags of a subcommand.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>

#include "app/subcommands.h"

namespace trident {

enum class ParseResult : std::uint8_t { kRun, kHelpPrinted };

// Parses into what was bound to `app`. Prints the help and `details` after it where --help is among the arguments.
// Throws ConfigError with the nearest flag for an unknown one.
ParseResult parse_flags(CLI::App& app, const Arguments& arguments, std::ostream& out,
                        const std::function<std::string()>& details = {});

}  // namespace trident
