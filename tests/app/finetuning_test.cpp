// Fine-tuning as docs/finetuning.md has it, in small: 200 conversations, a Qwen2 of two layers with a tokenizer and a template of its
// own, packed samples, full and with adapters, out to PEFT's form and merged.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/utf8.h"
#include "tests/app/checkpoint_runs.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

// Byte-level BPE without merges, and the control tokens of ChatML.
std::string byte_tokenizer() {
  nlohmann::json vocab;
  int next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);
    std::string name;
    append_utf8(name, static_cast<char32_t>(printable ? b : next++));
    vocab[name] = b;
  }
  nlohmann::json added = nlohmann::json::array();
  for (const char* token : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    added.push_back({{"content", token}, {"id", 256 + added.size()}, {"special", true}});
  return nlohmann::json{{"added_tokens", added},
                        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                        {"decoder", {{"type", "ByteLevel"}}},
                        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}}
      .dump();
}

// Questions for verses of the excerpt, each answered by the next verse.
std::string conversations() {
  const std::string text = read_file(TRIDENT_SOURCE_DIR "/data/excerpt/valid.txt");
  std::vector<std::string> verses;
  for (std::size_t at = 0; verses.size() < 201 && at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end - at > 10 && end - at < 60) verses.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  std::string lines;
  for (std::size_t i = 0; i < 200; ++i) {
    const std::string& answer = verses[(i + 1) % verses.size()];
    lines += nlohmann::json{{"messages", {{{"role", "user"}, {"content", verses[i % verses.size()].substr(0, 20)}},
                                          {{"role", "assistant"}, {"content", answer}}}}}
                 .dump() + "\n";
  }
  return lines;
}

class FineTuning : public ::testing::Test {
 protected:
  TemporaryFolder place_;
};

}  // namespace
}  // namespace trident
