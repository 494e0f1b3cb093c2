// Completion scripts of three shells, from one description of the command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

struct CompletionFlag {
  enum class Value : std::uint8_t { kNone, kOptional, kText, kFile, kConfigFile, kSetting };
  std::string name;         // "--config"
  std::string short_name;   // "-c", or ""
  std::string description;  // one line
  Value value = Value::kNone;
  std::vector<std::string_view> values = {};  // known ones
};

struct CompletionCommand {
  std::string_view name, summary;
  std::vector<std::string_view> actions = {};  // words that follow the name
  std::vector<CompletionFlag> flags = {};      // of the command and of all its actions
  bool explains = false;                       // takes names of commands, keys and sections: help
};

// The flags that a help page lists, a line each: "  -c,--config TEXT REQUIRED   description".
std::vector<CompletionFlag> flags_of_help(const std::string& help);

// To be sourced. Keys, their values and their sections come from the option table.
std::string bash_completion(const std::vector<CompletionCommand>& commands);
std::string zsh_completion(const std::vector<CompletionCommand>& commands);
std::string fish_completion(const std::vector<CompletionCommand>& commands);

}  // namespace trident
