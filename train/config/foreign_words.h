// Translates words of other systems: flags of Megatron-LM's scripts, of Hugging Face's Trainer and of
// what builds on it, keys of DeepSpeed and torchtitan. One table for flags, --set, configuration files and docs/megatron_flags.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

struct ForeignWord {
  enum class Kind : std::uint8_t {
    kKey,       // a key of the option table
    kModelKey,  // a key of a Hugging Face config.json, in the model block
    kCommand,   // another command does it
    kImplied,   // always so, or needless here
    kRefused    // not offered
  };
  std::string_view section;
  std::string_view flag;             // as written there, with its values where they matter; "--lora*" is any that begins so
  Kind kind;
  std::string_view target = {};      // the key, or the command
  std::string_view value = {};       // JSON text to give the key, where it differs from the flag's
  std::string_view note = {};        // why, or what differs
  std::string_view deepspeed = {};   // key of its JSON
  std::string_view torchtitan = {};  // key of its configuration
};

// Its section of plain words, which mean this only where they stand alone: recompute.layers is not the model's layers.
inline constexpr std::string_view kOtherWords = "nanoGPT, Lightning and others";

// Its section of words that no config.json has where they are refused.
inline constexpr std::string_view kHuggingFaceWords = "Hugging Face: Trainer, TRL, PEFT, Accelerate";

std::span<const ForeignWord> foreign_words();

// The row of a flag or a key, with or without hyphens before it; hyphens, underscores and dots within are one. The row of just this
// value where there is one. nullptr: no other system's word.
const ForeignWord* find_foreign_word(std::string_view name, std::string_view value = {});

// The words of a row's flag: flags, and values or placeholders.
std::vector<std::string> words_of(const ForeignWord& row);

// "leave it out: ..." of a row that names no key.
std::string remedy_without_key(const ForeignWord& row);

// docs/megatron_flags.md.
std::string megatron_flags_markdown();

}  // namespace trident
