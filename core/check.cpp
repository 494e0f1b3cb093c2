#include "core/check.h"

namespace trident::detail {

void throw_check_failure(std::string_view expression, std::string_view file, int line, const std::string& message) {
  throw InternalError(
      fmt::format("internal error: check `{}` failed at {}:{}{}{}; this is a bug in trident, please report it with the config",
                  expression, file, line, message.empty() ? "" : ": ", message));
}

}  // namespace trident::detail
