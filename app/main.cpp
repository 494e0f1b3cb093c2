#include <unistd.h>

#include <csignal>
#include <iostream>

#include "app/subcommands.h"
#include "app/waiting_threads.h"

int main(int argc, char** argv) {
  using namespace trident;
  reexec_with_passive_omp(argv);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that reaches ulimit -f is then an error that names it
  return run_command_line(
      Arguments(argv + 1, argv + argc),
      {std::cout, std::cerr, make_cuda_backend, console_mode_of(STDOUT_FILENO), terminal_columns(STDOUT_FILENO)});
}
