// Reading once more what the storage refused a moment ago: a network file system that comes back, a path that fails over.
#pragma once

#include <chrono>
#include <thread>
#include <utility>

#include "core/check.h"

namespace trident {

// read(), up to four times in 2.6 s while it throws StorageError; note(error, seconds) before each wait. What is damaged or missing
// is so at once.
template <class Read, class Note>
auto read_again(Read&& read, Note&& note) {
  for (const double seconds : {0.1, 0.5, 2.0}) {
    try {
      return read();
    } catch (const StorageError& error) {
      note(error, seconds);
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    }
  }
  return read();
}

}  // namespace trident
