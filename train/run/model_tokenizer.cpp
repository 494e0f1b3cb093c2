#include "train/run/model_tokenizer.h"

#include "core/file_io.h"

namespace trident {

std::optional<std::string> hf_files_of(const WeightsSource& source) {
  if (source.folder.empty()) return std::nullopt;  // weights from nowhere
  if (source.hf != nullptr) return source.folder;
  const std::string carried = source.folder + "/" + std::string(kCarriedFolder);
  return folder_exists(carried) ? std::optional(carried) : std::nullopt;
}

ModelTokenizer find_tokenizer(const std::optional<std::string>& named, const std::optional<std::string>& configured,
                              const WeightsSource& source, std::string_view key) {
  if (named) return {load_tokenizer(*named, "--tokenizer")};
  if (configured) return {load_tokenizer(*configured, "data.tokenizer")};
  const std::optional<std::string> folder = hf_files_of(source);
  if (!folder) return {};
  try {
    return {load_tokenizer(*folder, key)};
  } catch (const Error& error) {
    return {nullptr, error};
  }
}

}  // namespace trident
