#include "checkpoint/lease_holder.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <fstream>
#include <utility>

#include "core/host_name.h"
#include "core/process_status.h"

namespace trident {
namespace {

std::string first_line(const char* path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// "pid:[4026531836]": the inode tells namespaces of one kernel apart.
std::string own_pid_namespace() {
  char target[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/ns/pid", target, sizeof target);
  return size > 0 ? std::string(target, static_cast<std::size_t>(size)) : "";
}

}  // namespace

LeaseHolder this_process(std::string token) {
  LeaseHolder holder;
  holder.token = std::move(token);
  holder.host = host_name();
  holder.boot = first_line("/proc/sys/kernel/random/boot_id");
  holder.pid_namespace = own_pid_namespace();
  holder.pid = ::getpid();
  if (const auto status = process_status(holder.pid)) holder.started = status->started;
  return holder;
}

HolderState state_of(const LeaseHolder& holder, const LeaseHolder& watcher) {
  const bool known = !holder.boot.empty() && !holder.pid_namespace.empty() && holder.pid > 0 && holder.started > 0;
  if (!known || holder.host != watcher.host || holder.pid_namespace != watcher.pid_namespace) return HolderState::kElsewhere;
  if (holder.boot != watcher.boot) return HolderState::kDead;
  if (const auto status = process_status(holder.pid)) {
    return status->has_ended() || status->started != holder.started ? HolderState::kDead : HolderState::kAlive;
  }
  // /proc may hide processes of others (hidepid); a signal that is none says whether there is one.
  const bool is_gone = ::kill(static_cast<pid_t>(holder.pid), 0) != 0 && errno == ESRCH;
  return is_gone ? HolderState::kDead : HolderState::kElsewhere;
}

std::string describe(const LeaseHolder& holder) { return fmt::format("pid {} on {}", holder.pid, holder.host); }

}  // namespace trident
