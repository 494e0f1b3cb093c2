#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string_view>

#include "app/subcommands.h"

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

// The OpenMP library reads how its threads wait when the program is loaded, before main(). So this starts the program anew in the
// same process, once, with OMP_WAIT_POLICY=passive and a small GOMP_SPINCOUNT, and does not return then: threads that wait are to
// spin for microseconds, not for milliseconds, because ranks share cores with each other and with their own communication. Returns
// where the environment says already how threads wait (by either variable), where `argv` names a subcommand that computes nothing
// with a model, and where the program cannot be started anew; everything else is the same then. docs/decisions/0011.
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

}  // namespace
}  // namespace trident

int main(int argc, char** argv) {
  using namespace trident;
  reexec_with_passive_omp(argv);
  Color color = Color::kAuto;
  const LogSink::Dress dress = [&color](LogLevel level, const std::string& line) {
    return dressed_line(STDERR_FILENO, color, level, line);
  };
  std::signal(SIGXFSZ, SIG_IGN);  // a file that reaches ulimit -f is then an error that names it
  return run_command_line(Arguments(argv + 1, argv + argc), {.out = std::cout,
                                                             .err = std::cerr,
                                                             .make_cuda = make_cuda_backend,
                                                             .console = console_mode_of(STDOUT_FILENO),
                                                             .columns = terminal_columns(STDOUT_FILENO),
                                                             .err_console = console_mode_of(STDERR_FILENO),
                                                             .color = &color,
                                                             .dress = dress});
}
