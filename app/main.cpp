#include <unistd.h>

#include <csignal>
#include <iostream>

#include "app/subcommands.h"
#include "app/waiting_threads.h"

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
