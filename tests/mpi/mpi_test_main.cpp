// main() of tests that run as ranks: MPI_TEST [--ranks-per-node=N] [--piece-bytes=N] [gtest arguments].
//
// Every rank runs the same tests. Failures say their rank; what went well is said once, by rank 0. The exit status is that of the
// whole job on every rank.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "core/check.h"
#include "tests/mpi/mpi_session.h"

namespace trident::conformance {
namespace {

class RankPrinter final : public ::testing::EmptyTestEventListener {
 public:
  explicit RankPrinter(int rank) : rank_(rank) {}

 private:
  static std::string name_of(const ::testing::TestInfo& test) { return fmt::format("{}.{}", test.test_suite_name(), test.name()); }
  void say(const std::string& line) const {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }
  void OnTestStart(const ::testing::TestInfo& test) override {
    test_ = name_of(test);
    if (rank_ == 0) say("       " + test_);
  }
  void OnTestPartResult(const ::testing::TestPartResult& part) override {
    if (part.passed() || (part.skipped() && rank_ != 0)) return;
    const char* const what = part.skipped() ? "SKIPPED" : "FAILED";
    say(fmt::format("[rank {}] {} {} ({}:{}): {}", rank_, what, test_, part.file_name() != nullptr ? part.file_name() : "?",
                    part.line_number(), part.message()));
  }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (rank_ == 0 && test.result()->Passed()) say(fmt::format("ok     {} ({} ms)", test_, test.result()->elapsed_time()));
  }

  int rank_;
  std::string test_;
};

ProcessWorldOptions options_of(int argc, char** argv) {
  ProcessWorldOptions options;
  options.timeout_seconds = 60;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto value = [&](std::string_view name) {
      return argument.starts_with(name) ? std::stoll(std::string(argument.substr(name.size()))) : 0;
    };
    if (const auto ranks = value("--ranks-per-node=")) options.ranks_per_node = static_cast<int>(ranks);
    if (const auto bytes = value("--piece-bytes=")) options.piece_bytes = bytes;
  }
  return options;
}

int run(int argc, char** argv) {
  MpiSession session(options_of(argc, argv));
  ProcessWorld& world = session.world();
  ::testing::InitGoogleTest(&argc, argv);  // makes the suites' cases, which depend on the job
  ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new RankPrinter(world.rank()));  // gtest owns it

  const int failed = RUN_ALL_TESTS();
  const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
  int failed_ranks = 0;
  for (const std::string& outcome : world.all_gather(failed != 0 ? "failed" : "passed"))
    failed_ranks += outcome == "failed" ? 1 : 0;
  if (world.rank() == 0)
    fmt::print("{}: {} tests passed, {} failed on this rank, {} skipped; {} ranks failed\n", world.describe(),
               tests.successful_test_count(), tests.failed_test_count(), tests.skipped_test_count(), failed_ranks);
  session.finish();
  return failed_ranks == 0 && tests.successful_test_count() > 0 ? 0 : 1;
}

}  // namespace
}  // namespace trident::conformance

int main(int argc, char** argv) {
  try {
    return trident::conformance::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    std::fflush(nullptr);
    _exit(1);  // not as one that ended well: peers may be waiting
  }
}
