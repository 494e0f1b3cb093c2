// What the flags of a Megatron-LM pretraining script are called here, for docs/megatron_flags.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trident {

struct MegatronFlag {
  enum class Kind : std::uint8_t {
    kKey,       // a key of the option table
    kModelKey,  // a key of a Hugging Face config.json, in the model block
    kCommand,   // another command does it
    kImplied,   // always so, or needless here
    kRefused    // not offered
  };
  std::string_view section;
  std::string_view flag;             // as written there, with its values where they matter
  Kind kind;
  std::string_view target = {};      // the key, or the command
  std::string_view value = {};       // JSON text to give the key, where it differs from the flag's
  std::string_view note = {};        // why, or what differs
  std::string_view deepspeed = {};   // key of its JSON
  std::string_view torchtitan = {};  // key of its configuration
};

std::span<const MegatronFlag> megatron_flags();

// docs/megatron_flags.md.
std::string megatron_flags_markdown();

}  // namespace trident
