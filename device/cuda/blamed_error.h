// Who is to blame for an error of a CUDA library, and what to do about it.
#pragma once

#include <cstdint>
#include <string>

namespace trident {

enum class Blame : std::uint8_t { kSetup, kHardware, kProgram };
struct Diagnosis {
  Blame blame = Blame::kSetup;
  std::string remedy;
};

// kSetup: ConfigError. kHardware: CommunicationError, because other ranks wait in vain. kProgram: InternalError.
[[noreturn]] void throw_blamed(Blame blame, const std::string& text);

}  // namespace trident
