// trident_op_check: every operation on a device against the scalar reference and, if it is not the CPU, against the CPU backend.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/conformance/conformance.h"
#include "tests/conformance/devices.h"

namespace trident::conformance {
namespace {

enum class Rows : std::uint8_t { kOperations, kCases };

// The cases of one operation and dtype came to this.
struct Summary {
  int passed = 0, failed = 0, refused = 0;
  double worst = 0;  // largest share of what is allowed
  std::string worst_case;
  void add(const CaseResult& r) {
    ++(r.outcome == Outcome::kPassed ? passed : r.outcome == Outcome::kFailed ? failed : refused);
    if (r.outcome != Outcome::kRefused && r.share() >= worst) worst = r.share(), worst_case = r.name.substr(r.name.rfind('/') + 1);
  }
};

// Prints a table and what was not passed; false if a case failed, or was refused that may not be.
bool report(const std::string& title, const std::vector<CaseResult>& results, const std::string& may_refuse, Rows rows) {
  std::map<std::string, Summary> by_operation;
  Summary all;
  for (const CaseResult& r : results) by_operation[r.name.substr(0, r.name.rfind('/'))].add(r), all.add(r);
  fmt::print("\n{}\n", title);
  if (rows == Rows::kCases) {
    for (const CaseResult& r : results)
      fmt::print("{:<72} {:>7}  error {:8.2e} of {:8.2e}\n", r.name, to_string(r.outcome), r.max_error, r.allowed);
  } else {
    fmt::print("{:<30} {:>6} {:>6} {:>7}  {}\n", "operation", "passed", "failed", "refused", "largest error, of what is allowed");
    for (const auto& [name, s] : by_operation)
      fmt::print("{:<30} {:>6} {:>6} {:>7}  {:5.1f}% {}\n", name, s.passed, s.failed, s.refused, 100 * s.worst, s.worst_case);
  }
  bool good = true;
  for (const CaseResult& r : results) {
    if (r.outcome == Outcome::kPassed) continue;
    const bool allowed = r.outcome == Outcome::kRefused && !may_refuse.empty() && matches(may_refuse, r.name);
    good = good && allowed;
    fmt::print("{} {}{}: {}\n", to_string(r.outcome), r.name, allowed ? " (may be)" : "", r.what);
  }
  fmt::print("{} cases: {} passed, {} failed, {} refused\n", results.size(), all.passed, all.failed, all.refused);
  return good && !results.empty();
}

void print_support(const std::vector<CaseResult>& results) {
  for (const CaseResult& r : results)
    fmt::print("{:<72} {}\n", r.name, r.outcome == Outcome::kRefused ? "refused: " + r.what : "taken");
}

int run(int argc, char** argv) {
  std::string name = "cpu", filter, may_refuse;
  std::uint64_t seed = 1;
  int threads = 1;
  CudaOptions cuda;
  bool support = false, every_case = false;
  CLI::App app{
      "Runs every operation on a device and compares with the scalar reference; a device other than cpu also with the CPU "
      "backend.\n"
      "Exit status: 0 all passed, 1 not, 64 no such device.",
      "trident_op_check"};
  app.add_option("--device", name, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--seed", seed, "of the random inputs")->capture_default_str();
  app.add_option("--filter", filter, "cases to run: patterns a:b-c of OPERATION or OPERATION/DTYPE/VARIANT");
  app.add_option("--may-refuse", may_refuse, "cases that the device may refuse, as for --filter");
  app.add_option("--threads", threads, "of the CPU backend")->capture_default_str();
  app.add_flag("--support", support, "only list which cases the device takes, and the message where it refuses");
  app.add_flag("--cases", every_case, "print every case, not every operation");
  app.add_flag("--epilogues", cuda.epilogues, "leave what follows products to the library, as cuda.epilogues does");
  CLI11_PARSE(app, argc, argv);

  NamedDevice device(name, threads, cuda);
  fmt::print("{}\n", device->describe());
  if (support) {
    print_support(find_support(*device, filter));
    return 0;
  }
  const Rows rows = every_case ? Rows::kCases : Rows::kOperations;
  bool good = report(fmt::format("{} against the scalar reference, seed {}", name, seed), run_cases(*device, filter, seed),
                     may_refuse, rows);
  if (name != "cpu") {
    NamedDevice cpu("cpu", threads);
    good &= report(fmt::format("{} against the CPU backend, seed {}", name, seed), compare_devices(*device, *cpu, filter, seed),
                   may_refuse, rows);
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace trident::conformance

int main(int argc, char** argv) {
  try {
    return trident::conformance::run(argc, argv);
  } catch (const trident::Error& error) {
    fmt::print(stderr, "trident_op_check: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
