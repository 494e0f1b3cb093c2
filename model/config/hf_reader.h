// Reading a Hugging Face configuration object strictly: every key is either asked for, on the list of keys that say nothing about
// the architecture, or refused.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_reader.h"
#include "model/config/model_config.h"

namespace trident {

// null, false, [] or {}: a key that is switched off.
bool says_nothing(const JsonValue& value);

// A key that the reader asked for. `takes` is empty for one that no supported model has, `fallback` for one that must be given.
struct HfKey {
  std::string name, takes, fallback;
};

using KeyHint = std::function<std::string(const std::string& key)>;

class HfReader {
 public:
  // `object` outlives the reader. `where` begins every message: a file ("dir/config.json") or a JSON path ("model"). With
  // `dropped` unknown members that say nothing are listed there, instead of refused. `origins`, an object or null, has for a key
  // what goes before it in messages: "run.json:3". Throws ConfigError when `object` is none.
  // `hint` knows others' words for unknown keys: "; did you mean ...?", or "".
  HfReader(const JsonValue& object, std::string where, std::set<const JsonMember*>* dropped = nullptr, JsonValue origins = {},
           KeyHint hint = {});
  // A reader of an object within this one.
  HfReader inner(const JsonValue& object, std::string where) const { return {object, std::move(where), dropped_}; }

  // Each of these marks `key` as known. A key that is absent or null gives the fallback (or nothing); another kind of value, and a
  // missing required key, throw ConfigError; the latter with the next fault (and is 1 till then).
  // `takes` and `derived`, how a fallback follows from other keys, are for known().
  const JsonValue* find(std::string_view key, std::string_view takes = "", std::string_view fallback = "");
  std::int64_t integer(std::string_view key, std::int64_t fallback, std::string_view derived = "");
  std::int64_t required_integer(std::string_view key);
  std::optional<std::int64_t> optional_integer(std::string_view key);
  double number(std::string_view key, double fallback);
  std::optional<double> optional_number(std::string_view key);
  bool boolean(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string_view fallback);

  // `alias` is another spelling of `key`: the name that is present; both present with different values throw.
  std::string_view spelling(std::string_view key, std::string_view alias);
  // The key is there, be its value null.
  bool present(std::string_view key);
  // `what` of true is "not supported".
  void refuse_true(std::string_view key, std::string_view what);
  // Accepted without being looked at.
  void ignore(std::string_view key) { ignored_.emplace_back(key); }
  void ignore_all(std::string_view keys);  // divided by blanks
  void ignore_prefix(std::string_view prefix) { ignored_prefixes_.emplace_back(prefix); }

  // Throws ConfigError naming what is missing, and the members that were never asked for with the keys that they may be
  // misspellings of.
  void refuse_unknown_keys() const;

  // "<where>.<key> = <value>: <why>".
  [[noreturn]] void refuse(std::string_view key, std::string_view why) const;
  std::string path(std::string_view key) const;
  const std::vector<HfKey>& known() const { return known_; }

 private:
  void mark_known(std::string_view key, std::string_view takes = "", std::string_view fallback = "");
  [[noreturn]] void refuse_kind(std::string_view key, std::string_view wanted) const;

  const JsonValue* object_;
  std::string where_;
  JsonValue origins_;
  KeyHint hint_;
  std::set<const JsonMember*>* dropped_;
  std::vector<HfKey> known_;
  std::vector<std::string> ignored_;
  std::vector<std::string> ignored_prefixes_;
  std::string missing_;  // what is said of required keys that are not there
};

// The keys of models of all families, in the order in which they are read; fallbacks name the families whose they are.
std::vector<HfKey> hf_keys();

// As model_config_from_hf() of model_config.h, in whose messages `origins` goes before keys of the object itself, and `hint` behind
// unknown ones.
ModelConfig model_config_from_hf(const JsonValue& object, std::string_view where, std::optional<double> dropout,
                                 const JsonValue& origins, const KeyHint& hint);

}  // namespace trident
