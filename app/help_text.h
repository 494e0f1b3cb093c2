// Texts that several help pages share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "train/config/option_docs.h"

namespace trident {

struct ExitCodeText {
  int code;
  std::string_view meaning;
  std::string_view what_next;
};

inline constexpr int kExitDifferent = 1;  // of trident ckpt diff, as diff's

// Every way a process ends, in ascending order; 128 stands for 128 + n. `what_next` is empty where nothing is to be done.
const std::vector<ExitCodeText>& exit_code_texts();

// kOfTraining: train and supervise can end with it; kOfUse: so can what uses a model without training it.
enum class ExitCodes { kAll, kOfTraining, kOfUse };

// "Exit codes:" and a line for each.
std::string exit_codes_help(std::size_t width = kHelpWidth, ExitCodes codes = ExitCodes::kAll);

// How ranks are started, and by which variables a launcher is known. `command`: what they run.
std::string launch_help(std::size_t width = kHelpWidth, std::string_view command = "trident train --config F");

// The page of docs/ that is about a word which is no key: "finetuning" of "dpo". "" for others.
std::string_view page_about(std::string_view word);

// Breaks the lines of another library's help at `width` columns, continuing below the description.
std::string folded(const std::string& help, std::size_t width = kHelpWidth);

}  // namespace trident
