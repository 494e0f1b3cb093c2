#include "tests/mpi/mpi_session.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

namespace trident::conformance {

namespace {

MpiSession* session = nullptr;

void launch(int ranks, int color, const std::function<void(RankContext&)>& body) {
  MpiSession& self = MpiSession::current();
  try {
    const auto group = self.communicator().split(color, self.world().rank(), fmt::format("group {}", color));
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
      values_(*world_),
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
  launch(ranks, MpiSession::current().world().rank() / ranks, body);
}

void launch_strangers(int ranks, const std::function<void(RankContext&)>& body) {
  const ProcessWorld& world = MpiSession::current().world();
  launch(ranks, world.rank() % (world.size() / ranks), body);
}

}  // namespace trident::conformance
