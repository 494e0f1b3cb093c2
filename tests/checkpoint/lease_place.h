// Tests of leases share these: a folder, holders of all kinds, and processes that come to an end.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/lease.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "tests/data/temporary_folder.h"

namespace trident::test {

using Names = std::vector<std::string>;

// So that a test need not wait as long as a run does.
inline const LeaseOptions kQuick{.renew_seconds = 0.02, .patience_seconds = 0.3, .ending_seconds = 0.05};
// So that a machine that is busy is not taken for a holder that is watched.
inline const LeaseOptions kPatient{.renew_seconds = 0.02, .patience_seconds = 30, .ending_seconds = 0.05};
inline constexpr double kAtOnce = 15;

// A process that ends when the test does.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    body();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  ~Child() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), wait();
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&&) = delete;

  pid_t pid() const { return pid_; }
  void kill() const { ::kill(pid_, SIGKILL); }
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  pid_t pid_;
};

class Leases : public ::testing::Test {
 protected:
  LeaseRecord record_at(std::int64_t generation) const {
    const auto record = lease_from(read_file(folder_ / lease_name(generation)));
    EXPECT_TRUE(record.has_value());
    return record.value_or(LeaseRecord{});
  }
  // As another holder left it, or has it.
  void leave(std::int64_t generation, const std::function<void(LeaseRecord&)>& change) const {
    LeaseRecord record{.holder = this_process("theirs"), .generation = generation};
    change(record);
    write_file(folder_ / lease_name(generation), to_text(record));
  }
  double seconds_to_take(std::int64_t generation, const LeaseOptions& options = kPatient) const {
    const double start = monotonic_seconds();
    const Lease lease(folder_.path(), "mine", options);
    EXPECT_EQ(folder_.names(), Names{lease_name(generation)});
    return monotonic_seconds() - start;
  }
  TemporaryFolder folder_;
};

}  // namespace trident::test
