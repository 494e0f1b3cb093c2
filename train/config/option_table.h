// The one list of everything a configuration may say. Pure data.
//
// Parsing, defaults, validation, `--help`, docs/configuration.md, the JSON Schema and `--print-config` are all computed from it, so
// none of them can disagree with another. Keys of later work stand here from the start, marked reserved: a neutral value is
// accepted, any other is refused by name.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace trident {

// The kinds of JSON value an option takes; combined with |.
enum class Takes : std::uint16_t {
  kNull = 1, kBool = 2, kInteger = 4, kNumber = 8, kString = 16,
  kIntegers = 32,   // a list of integers
  kNumbers = 64,    // a list of numbers
  kEvery = 128,     // {"every": k} with an integer k in the option's range
  kSources = 256,   // a list of paths or of {"path": ..., "weight": ...}
  kTexts = 1024,    // a list of texts; with kString, a text stands for a list of one
  kAxes = 512,      // {"tp": n, "dp": n, "pp": n}, any of them, with integers n in the option's range
  kLayouts = 2048,  // a list of layouts such as "2DP x 4PP x 4TP", or of objects with keys of `parallel`
  kShare = 4096,    // beside kInteger: a number between 0 and 1, both excluded
  kMessages = 8192,  // beside kTexts: in the place of a text the messages of a conversation
};
constexpr Takes operator|(Takes a, Takes b) { return static_cast<Takes>(static_cast<unsigned>(a) | static_cast<unsigned>(b)); }
constexpr bool takes(Takes set, Takes kind) { return (static_cast<unsigned>(set) & static_cast<unsigned>(kind)) != 0; }

// The axes of Takes::kAxes.
inline constexpr std::array<std::string_view, 3> kCountedAxes{"tp", "dp", "pp"};

// Text with an inner form that choices cannot express.
enum class TextForm : std::uint8_t { kAny, kAxisOrder, kSplit, kConsent };

struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  enum class Ends : std::uint8_t { kClosed, kOpenLow, kOpenHigh } ends = Ends::kClosed;  // the open end itself is not allowed
};

// A value that is planned and refused by name, and what to do instead.
struct ReservedValue {
  std::string_view value;
  std::string_view remedy;
};

struct Alias {
  std::string_view written, means;
};

struct Option {
  std::string_view path;      // "parallel.tensor": its block before the last dot
  Takes takes = Takes::kNull;
  std::string_view fallback;  // JSON text of the default; empty: the user must say it
  std::string_view doc;       // one sentence, no line break
  Range range = {};           // of a number, of each number in a list, of k in {"every": k}
  std::int64_t length = 0;    // of a list; 0: any
  std::vector<std::string_view> choices = {};  // legal texts; empty: any text
  std::vector<Alias> aliases = {};             // other spellings of choices
  std::vector<ReservedValue> reserved_values = {};
  std::string_view unit = {};
  bool reserved = false;  // not built yet
  std::vector<std::string_view> neutral = {};  // of a reserved option, as JSON texts, besides null, false, 0 and the default
  TextForm form = TextForm::kAny;
  std::vector<std::string_view> aka = {};      // what users of other systems call it; for the nearest-key hint only
};

// A group of options: one object of the file. With a dot in its name it stands inside another.
struct OptionBlock {
  std::string_view name;
  std::string_view doc;
};

std::span<const OptionBlock> option_blocks();
std::span<const Option> option_table();

const Option* find_option(std::string_view path);  // nullptr: no such key
const OptionBlock* find_block(std::string_view name);  // likewise
std::string_view block_of(const Option& option);   // "" for a key of the top level
std::string_view key_of(const Option& option);     // "tensor"

// The key whose keys beyond the table's are Hugging Face's config.json keys, read by the model code.
inline constexpr std::string_view kModelBlock = "model";

}  // namespace trident
