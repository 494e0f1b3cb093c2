#include "device/cuda/blamed_error.h"

#include "core/check.h"

namespace trident {

void throw_blamed(Blame blame, const std::string& text) {
  switch (blame) {
    case Blame::kSetup: throw ConfigError(text);
    case Blame::kHardware: throw CommunicationError(text);
    case Blame::kProgram: break;
  }
  throw InternalError(text);
}

}  // namespace trident
