#include "tests/mpi/mpi_session.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace trident::conformance {

namespace {

MpiSession* session = nullptr;

template <class Color> void launch(int ranks, Color color, const std::function<void(RankContext&)>& body) {
  MpiSession& self = MpiSession::current();
  try {
    const auto group = self.communicator().split(ranks_of_color(self.communicator(), color),
                                                 fmt::format("group {}", color(self.world().rank())));
    ASSERT_EQ(group->size(), ranks);
    RankContext context = self.context(*group);
    body(context);
    group->barrier();
  } catch (const std::exception& error) {
    fmt::print("[rank {}] {}\n", self.world().rank(), error.what());
    std::fflush(stdout);
    self.world().fail(fmt::format("rank {}: {}", self.world().rank(), error.what()));
    _exit(1);
  }
}

}  // namespace

MpiSession::MpiSession(const ProcessWorldOptions& options)
    : world_(join_process_world(options)),
      values_([this](std::int64_t bytes, const std::string& name) { return world_->allocate(bytes, name); }, world_->rank(), 3),
      progress_(world_->doorbell()),
      communicator_(world_->communicator(progress_)) {
  values_memory = &values_;
  session = this;
}

MpiSession::~MpiSession() {
  session = nullptr;
  values_memory = nullptr;
}

MpiSession& MpiSession::current() { return *session; }

void MpiSession::finish() {
  communicator_.reset();
  world_->finish();
}

void launch_neighbours(int ranks, const std::function<void(RankContext&)>& body) {
  launch(ranks, [ranks](int r) { return r / ranks; }, body);
}

void launch_strangers(int ranks, const std::function<void(RankContext&)>& body) {
  const int groups = MpiSession::current().world().size() / ranks;
  launch(ranks, [groups](int r) { return r % groups; }, body);
}

}  // namespace trident::conformance
