// How the first process of a node gives the others an open file: over a Unix socket with a name in the abstract namespace, which no
// file system holds. The name is random and only processes of the same user are served.
#pragma once

#include <string>

#include "core/file_descriptor.h"

namespace trident {

class DescriptorHandover {
 public:
  // Listens under a new name. ConfigError that says what the system refused.
  DescriptorHandover();

  // For the receivers, without the leading zero byte.
  const std::string& name() const { return name_; }
  // Gives `descriptor` to the next `receivers` processes of this user. CommunicationError when they did not all come in time,
  // ConfigError when the system has no descriptor left for one that did.
  void give(int descriptor, int receivers, double timeout_seconds);

 private:
  std::string name_;
  FileDescriptor listener_;
};

// Takes the descriptor from whoever listens under `name`. CommunicationError that says what went wrong.
FileDescriptor receive_descriptor(const std::string& name, double timeout_seconds);

}  // namespace trident
