#include "app/waiting_threads.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <iterator>
#include <string_view>

namespace trident {
namespace {

constexpr const char* kPolicy = "OMP_WAIT_POLICY";
constexpr const char* kSpins = "GOMP_SPINCOUNT";
constexpr const char* kShortly = "2000";  // 20 to 80 us, by processor

bool computes(char** argv) {
  if (argv[0] == nullptr || argv[1] == nullptr) return false;
  constexpr std::string_view kWithModels[] = {"train", "eval", "generate", "convert", "bench", "study"};  // study --run trains
  return std::ranges::find(kWithModels, std::string_view(argv[1])) != std::end(kWithModels);
}

}  // namespace

void reexec_with_passive_omp(char** argv) {
  // The dynamic linker was started with the program as its argument: it has the program's place.
  if (::getauxval(AT_BASE) == 0) return;
  if (!computes(argv) || std::getenv(kPolicy) != nullptr || std::getenv(kSpins) != nullptr) return;
  // The program's own path, not /proc/self/exe: that would become its name in ps and pgrep.
  std::array<char, PATH_MAX> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0 || ::setenv(kPolicy, "passive", 1) != 0) return;
  ::setenv(kSpins, kShortly, 1);
  ::execv(path.data(), argv);
  ::unsetenv(kPolicy);  // of no use any more, and children are not to inherit it
  ::unsetenv(kSpins);
}

}  // namespace trident
