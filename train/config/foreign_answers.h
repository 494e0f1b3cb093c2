// Answers to words of other systems (import/foreign): one source for flags, --set, configuration files and docs/coming_from.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "import/foreign/foreign_key.h"

namespace trident {

struct ForeignAnswer {
  ForeignSystem system;
  const ForeignKey* row = nullptr;
  std::string key;    // a path of the option table, or "model." and a key of config.json; "": there is none
  std::string value;  // JSON text to give it; "": the user's, if takes_value
  std::string note;
  bool takes_value = false;  // the word's own value is the key's, too
};

// Whether its word is no one system's.
bool is_everybodys(const ForeignAnswer& answer);

// Whether it names a key or a command.
bool leads_somewhere(const ForeignAnswer& answer);

// The answers to a word: one for each meaning that systems give it, by the row of just this value where there is one. Hyphens
// before it are none of it; hyphens, underscores and dots within are one. Empty: no other system's word.
std::vector<ForeignAnswer> foreign_answers(std::string_view word, std::string_view value = {});

// The answer in words. Where it has a key: "its key parallel.context is not built yet", or `with_key` and the note behind it;
// else "leave it out: ...", or the command that does it.
std::string answer_text(const ForeignAnswer& answer, const std::string& with_key);

// Several answers as one, each but the only one with the systems that it is for.
std::string joined_answers(const std::vector<ForeignAnswer>& answers, const std::vector<std::string>& texts);

// docs/coming_from.md.
std::string coming_from_markdown();

}  // namespace trident
