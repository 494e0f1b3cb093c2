#include "tests/cuda/simulated/fault_report.h"

#include <signal.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/cuda/simulated/block_run.h"
#include "tests/cuda/simulated/machine.h"

namespace trident::simulated {

namespace {

struct sigaction before;

// The program ends here, so what a handler may not do (format, allocate) is done.
void on_fault(int number, siginfo_t* info, void* context) {
  const std::string where = Machine::instance().describe_address(reinterpret_cast<std::uintptr_t>(info->si_addr));
  if (!where.empty()) {
    const std::string who = describe_running();
    std::fprintf(stderr, "simulated CUDA: %s touched %s\n", who.empty() ? "the host's own code" : who.c_str(), where.c_str());
    std::abort();
  }
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) return before.sa_sigaction(number, info, context);
  signal(number, SIG_DFL);  // and the instruction faults again
}

}  // namespace

void report_faults() {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGSEGV, &action, &before) == 0;
  }();
  if (installed) return;
  std::fprintf(stderr, "simulated CUDA: faults cannot be reported\n");
  std::abort();
}

}  // namespace trident::simulated
