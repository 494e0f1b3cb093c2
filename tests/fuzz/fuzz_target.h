// A fuzz target is one parser of files that come from outside, tried on any bytes.
//
// A target parses, and lets nothing pass but refusals in plain words (errors of the product, InternalError excepted, each one line
// without control characters). What was accepted is written again by the product's own writer and parsed again: equal. Anything else
// throws out of the target, which libFuzzer and GoogleTest both count as a failure.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"

namespace trident::fuzz {

// Whether the input was accepted.
using Target = bool (*)(std::string_view input);

struct NamedTarget {
  std::string_view name;  // also the folder of its corpus
  Target run;
};
std::span<const NamedTarget> targets();

// The parser did something that it must not do.
class Finding : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

template <class... Arguments>
void require(bool condition, fmt::format_string<Arguments...> what, Arguments&&... arguments) {
  if (!condition) throw Finding(fmt::format(what, std::forward<Arguments>(arguments)...));
}

// A message must not be empty, and is one line without control characters.
void check_message(std::string_view message);
// A refusal as users may see one: a bug is none, and no byte of the input reaches a terminal as it is.
void check_refusal(const Error& error);

// The parts of an input of several texts, between zero bytes; `count` of them, the last ones empty where there are fewer.
std::vector<std::string_view> parts_of_input(std::string_view input, std::size_t count);

// False: `body` refused its input.
template <class Body>
bool accepts(Body body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    check_refusal(error);
    return false;
  }
}

// A file in a folder of its own, in memory where the system has such folders; removed at the end, with all that lies there.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& name);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return path_; }
  void set(std::string_view content);

 private:
  std::string folder_, path_;
};

bool json(std::string_view input);
bool train_config(std::string_view input);
bool hf_config(std::string_view input);
bool peft_config(std::string_view input);
bool manifest(std::string_view input);
bool safetensors_header(std::string_view input);
bool hf_index(std::string_view input);
bool box_table(std::string_view input);
bool token_index(std::string_view input);
bool dataset_record(std::string_view input);
bool loss_mask(std::string_view input);
bool vocab_and_merges(std::string_view input);
bool tokenizer_json(std::string_view input);
bool gzip(std::string_view input);
bool zstd(std::string_view input);
bool failure_json(std::string_view input);
bool stored_config(std::string_view input);
bool foreign_word(std::string_view input);
bool hostfile(std::string_view input);
bool study(std::string_view input);
bool case_rows(std::string_view input);
bool json_lines(std::string_view input);
bool choices(std::string_view input);
bool prompts(std::string_view input);
bool added_tokens(std::string_view input);
bool rank_file(std::string_view input);
bool tekken_json(std::string_view input);
bool pattern(std::string_view input);
bool pieces(std::string_view input);
bool normal_forms(std::string_view input);
bool chat_template(std::string_view input);
bool shell(std::string_view input);
bool yaml(std::string_view input);
bool toml(std::string_view input);

}  // namespace trident::fuzz
