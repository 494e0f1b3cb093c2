#include "app/foreign_flag_hint.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "core/json_reader.h"
#include "train/config/foreign_words.h"
#include "train/config/option_check.h"
#include "train/config/option_docs.h"
#include "train/config/option_table.h"
#include "train/config/option_values.h"

namespace trident {
namespace {

using Kind = ForeignWord::Kind;

struct Written {
  std::string name;   // "tensor-model-parallel-size"
  std::string value;  // "4"; empty: none was given
};

Written taken_apart(const std::string& argument, const std::string& next) {
  Written written;
  const std::size_t begin = std::min(argument.size(), argument.find_first_not_of('-')), equals = argument.find('=', begin);
  written.name = argument.substr(begin, equals == argument.npos ? equals : equals - begin);
  written.value = equals == argument.npos ? next : argument.substr(equals + 1);
  if (written.value.starts_with("--")) written.value.clear();  // the next flag
  return written;
}

// Hyphens, underscores and dots are one.
std::string plain(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = c == '-' || c == '.' ? '_' : c;
  return text;
}

std::string setting(std::string_view key, std::string_view value) {
  return fmt::format("say --set {}", for_shell(fmt::format("{}={}", key, value.empty() ? "..." : value)));
}

bool is_flag(std::string_view word) { return word.starts_with("--"); }

bool is_placeholder(std::string_view word) {
  return std::ranges::all_of(word, [](unsigned char c) { return std::isupper(c) != 0 || std::isdigit(c) != 0; });
}

// The value that the row's key takes: the user's where the flag takes one and means it unchanged, else the row's own.
std::string value_for(const ForeignWord& row, const Written& written) {
  const std::vector<std::string> words = words_of(row);
  const bool one_flag = std::ranges::count_if(words, is_flag) == 1;
  const auto is_written = [&](const std::string& word) { return is_flag(word) && plain(word.substr(2)) == plain(written.name); };
  const auto flag = one_flag ? words.begin() : std::ranges::find_if(words, is_written);
  const bool has_next = flag != words.end() && flag + 1 != words.end();
  const bool takes_value = has_next && (is_placeholder(flag[1]) ? one_flag || row.value.empty() : row.value == in_quotes(flag[1]));
  if (takes_value && row.note.empty() && !written.value.empty()) return written.value;
  // "--split 969,30,1" shows an example, which the user's numbers replace.
  const std::string_view shown = row.flag.substr(std::min(row.flag.size(), row.flag.find(' ') + 1));
  const bool is_number = !shown.empty() && std::isdigit(static_cast<unsigned char>(shown.front())) != 0;
  if (one_flag && is_number && row.value == in_quotes(shown) && !written.value.empty()) return written.value;
  const std::string_view own = row.value;
  return std::string(own.size() > 2 && own.starts_with('"') ? own.substr(1, own.size() - 2) : own);
}

std::string answer_of(const ForeignWord& row, const Written& written) {
  const std::string note = row.note.empty() ? "" : fmt::format(" ({})", row.note);
  switch (row.kind) {
    case Kind::kKey: {
      const bool reserved = find_option(row.target)->status == OptionStatus::kReserved;
      return reserved ? fmt::format("its key {} is not built yet", row.target)
                      : setting(row.target, value_for(row, written)) + note;
    }
    case Kind::kModelKey: return setting("model." + std::string(row.target), value_for(row, written)) + note;
    default: return remedy_without_key(row);
  }
}

// The option whose path, whose key alone, or whose other name this is.
const Option* option_called(const Written& written) {
  const std::string wanted = plain(written.name);
  for (const Option& option : option_table())
    if (plain(option.path) == wanted) return &option;
  const JsonValue value = written.value.empty() ? JsonValue{} : setting_value(written.value, "--" + written.name);
  if (const Option* const option = option_with_key(wanted, value)) return option;
  for (const Option& option : option_table())
    if (std::ranges::find(option.aka, wanted) != option.aka.end()) return &option;
  return nullptr;
}

}  // namespace

std::string foreign_flag_hint(const std::string& argument, const std::string& next) {
  const Written written = taken_apart(argument, next);
  if (written.name.empty()) return "";
  if (!argument.starts_with('-')) {  // a setting without --set, a configuration without --config, or a stray word
    const bool known = argument.find('=') != argument.npos && (find_option(written.name) != nullptr || written.name == "parallel");
    if (!known && argument.ends_with(".json")) return fmt::format("say --config {}", for_shell(argument));
    return known ? setting(written.name, written.value) : "";
  }
  if (const ForeignWord* const row = find_foreign_word(written.name, written.value)) return answer_of(*row, written);
  const Option* const option = option_called(written);
  if (option == nullptr) return "";
  const auto alias = std::ranges::find(option->aliases, written.value, &Alias::written);
  return setting(option->path, alias == option->aliases.end() ? written.value : alias->means);
}

}  // namespace trident
