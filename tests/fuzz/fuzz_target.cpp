#include "tests/fuzz/fuzz_target.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "core/json_reader.h"

namespace trident::fuzz {

std::span<const NamedTarget> targets() {
  static constexpr std::array kTargets{
      NamedTarget{"json", json},
      NamedTarget{"train_config", train_config},
      NamedTarget{"hf_config", hf_config},
      NamedTarget{"peft_config", peft_config},
      NamedTarget{"manifest", manifest},
      NamedTarget{"safetensors_header", safetensors_header},
      NamedTarget{"hf_index", hf_index},
      NamedTarget{"box_table", box_table},
      NamedTarget{"token_index", token_index},
      NamedTarget{"dataset_record", dataset_record},
      NamedTarget{"loss_mask", loss_mask},
      NamedTarget{"vocab_and_merges", vocab_and_merges},
      NamedTarget{"tokenizer_json", tokenizer_json},
      NamedTarget{"gzip", gzip},
      NamedTarget{"zstd", zstd},
      NamedTarget{"failure_json", failure_json},
      NamedTarget{"stored_config", stored_config},
      NamedTarget{"foreign_word", foreign_word},
      NamedTarget{"hostfile", hostfile},
      NamedTarget{"study", study},
      NamedTarget{"case_rows", case_rows},
      NamedTarget{"json_lines", json_lines},
      NamedTarget{"choices", choices},
      NamedTarget{"prompts", prompts},
      NamedTarget{"added_tokens", added_tokens},
      NamedTarget{"rank_file", rank_file},
      NamedTarget{"tekken_json", tekken_json},
      NamedTarget{"pattern", pattern},
      NamedTarget{"pieces", pieces},
      NamedTarget{"normal_forms", normal_forms},
      NamedTarget{"chat_template", chat_template},
      NamedTarget{"shell", shell},
      NamedTarget{"yaml", yaml},
      NamedTarget{"toml", toml},
  };
  return kTargets;
}

void check_refusal(const Error& error) {
  const std::string_view message = error.what();
  require(error.code() != ExitCode::kInternal, "a broken invariant: {}", message);
  check_message(message);
}

void check_message(std::string_view message) {
  require(!message.empty(), "a refusal without a word");
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  const auto found = std::ranges::find_if(message, is_control);
  // The text is made for a finding alone, because this runs once per input that is refused.
  if (found != message.end())
    throw Finding(fmt::format("a message with the control character 0x{:02x}: {}", static_cast<unsigned>(*found),
                              in_quotes(message, 400)));
}

std::vector<std::string_view> parts_of_input(std::string_view input, std::size_t count) {
  std::vector<std::string_view> parts(count);
  for (std::string_view& part : parts) {
    const std::size_t end = input.find('\0');
    part = input.substr(0, end);
    input.remove_prefix(end == input.npos ? input.size() : end + 1);
  }
  return parts;
}

ScratchFile::ScratchFile(const std::string& name) {
  const std::filesystem::path memory = "/dev/shm";
  const bool in_memory = ::access(memory.c_str(), W_OK) == 0;
  std::string folder = ((in_memory ? memory : std::filesystem::temp_directory_path()) / "trident_fuzz_XXXXXX").string();
  TRIDENT_CHECK(::mkdtemp(folder.data()) != nullptr, "no temporary folder {}", folder);
  folder_ = folder;
  path_ = folder + "/" + name;
}

ScratchFile::~ScratchFile() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void ScratchFile::set(std::string_view content) {
  const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  TRIDENT_CHECK(file >= 0, "{} cannot be made", path_);
  const ssize_t written = ::write(file, content.data(), content.size());
  ::close(file);
  TRIDENT_CHECK(written == static_cast<ssize_t>(content.size()), "{}: {} bytes of {} written", path_, written, content.size());
}

}  // namespace trident::fuzz
