// The side files of a Hugging Face folder: config.json, generation_config.json, the tokenizer's files, a licence. They go
// along into checkpoints, in a folder of their own there (kCarriedFolder), and back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trident {

// Names of the files in `folder` that are carried: regular files, or links to such, of at most 64 MiB that hold no weights and are
// not hidden; in order. None where there is no such folder, or it cannot be read.
std::vector<std::string> side_files(const std::string& folder);

// Whether a side file is part of a tokenizer, or of its chat template; those of a folder that are.
bool is_of_tokenizer(std::string_view name);
std::vector<std::string> tokenizer_files(const std::string& folder);

// Copies them byte for byte; what has such a name in `to` already stays. `to` is there.
void copy_carried(const std::string& from, const std::vector<std::string>& names, const std::string& to);

}  // namespace trident
