// From a file and --set arguments to one value per option, each with its origin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/json_reader.h"
#include "train/config/option_table.h"

namespace trident {

struct OptionValue {
  JsonValue value;             // canonical: checked_value of the option
  std::string origin = "default";  // "default", "<file>:<line>" or "--set"
};

// Keys that are in no row of the table: a user's mistake, or of a version that knows more.
enum class UnknownKeys : std::uint8_t { kRefused, kPassedOver };

// Keeps what `take` refuses among `faults`: a user learns of all mistakes at once. After too many it is not called.
inline constexpr std::size_t kMostFaults = 20;
template <class Take>
void collect(std::vector<std::string>& faults, Take&& take) {
  if (faults.size() > kMostFaults) return;
  try {
    take();
  } catch (const ConfigError& error) {
    faults.emplace_back(error.what());
  }
}
// Throws one ConfigError of all `faults`, where there are any: "...; also ...", at most kMostFaults of them.
void refuse_all(const std::vector<std::string>& faults);

// Reads the text of path=value: JSON where it is JSON, else a text. ConfigError for broken JSON that was surely meant as such.
JsonValue setting_value(std::string_view text, std::string_view where);

// Runs leave this member in their configurations beside the keys; whoever reads a configuration passes over it.
inline constexpr std::string_view kResolvedMember = "resolved";

// One value for every option of the table, in the table's order, and the model keys beyond the table.
class OptionValues {
 public:
  // All defaults; the options that the user must give are null.
  OptionValues();

  const OptionValue& at(std::string_view path) const;  // InternalError for a path that is not in the table
  const std::vector<OptionValue>& values() const { return values_; }
  // Hugging Face's keys written into the model block: an object, or null where there are none.
  const JsonValue& model_keys() const { return model_keys_; }
  // One line each: keys of files that --set said in another way: model.hf_config where --set says model.preset.
  const std::vector<std::string>& replaced() const { return replaced_; }
  // Where each of them comes from; null where there are none.
  const JsonValue& model_origins() const { return model_origins_; }

  // Takes every key of a configuration file's object. Unknown keys and illegal values are refused by require_complete(), all of
  // them at once; not a value that a setting has replaced by then.
  void take_file(const JsonValue& root, std::string_view file, UnknownKeys unknown = UnknownKeys::kRefused);
  // Takes one "a.b=value": the value is read as JSON, or as plain text where it is none or the option takes texts only.
  // Throws ConfigError for an unknown key or an illegal value.
  void take_setting(std::string_view setting);
  // Takes all of them; require_complete() refuses those that take_setting() would.
  void take_settings(const std::vector<std::string>& settings);
  // Takes one value of another system's inputs, which `origin` names, as a file's: it replaces the file's, together with keys that
  // stand for the same (run.steps, run.epochs; the ways to name a model). A default of the other system gives way to those.
  // `path`: of the option table, or "model." and a key of config.json, model_type before its others.
  void take_import(std::string_view path, const JsonValue& value, const std::string& origin, bool is_default);
  // Throws ConfigError: all that is unknown or illegal.
  void refuse_illegal() const;
  // Throws ConfigError: what refuse_illegal() does, else all options without default that nobody gave, else a model block that
  // names no model.
  void require_complete() const;
  // Throws ConfigError, with the places of keys, for a model that is spelled out and cannot be, whatever its dropout.
  void check_model() const;
  // Why values of the file are illegal, in the table's order. From here on their keys count as not given.
  std::vector<std::string> drop_illegal();

 private:
  void take_block(const OptionBlock& block, const JsonValue& value, std::string_view file, UnknownKeys unknown);
  // Where the key comes from; empty: nobody gave it.
  std::string origin_of_key(std::string_view path) const;
  void forget(std::string_view path);
  // Forgets what files say by other keys that stand for the same: run.steps where --set says run.epochs.
  void replace_same_of_files(std::string_view path);
  // Forgets what files say of adapters: --set says that there are none, or names the folder that says the rest.
  void leave_out_adapter();
  void take_option(const Option& option, const JsonValue& value, std::string_view where, const std::string& origin);
  void take_model_key(std::string_view dotted_key, const JsonValue& value);
  void take_layout(const std::string& text, std::string_view where, const std::string& origin);

  std::vector<OptionValue> values_;
  std::vector<std::string> refusals_;  // by option: why the file's value is illegal; empty where it is not
  std::vector<std::string> faults_;    // why other keys of files and settings are refused
  JsonValue model_keys_, model_origins_;
  std::vector<std::string> replaced_;
};

// "2DP x 4PP x 4TP": the short spelling of the parallel degrees.
struct LayoutDegrees {
  std::int64_t data = 1, pipeline = 1, tensor = 1, context = 1;
  bool operator==(const LayoutDegrees&) const = default;
};

// Factors <number><axis>, axis TP, PP, DP or CP in any case, joined by x, *, the multiplication sign, commas or spaces, in any
// order; a missing axis is 1. Throws ConfigError beginning with `where` for anything else, an axis named twice included.
LayoutDegrees parse_layout(std::string_view text, std::string_view where);

}  // namespace trident
