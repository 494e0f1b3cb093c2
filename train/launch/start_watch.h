// Says what a job waits for that does not get going. Until its lifelines are connected nobody watches the ranks: a rank that is
// late, or a stranger who holds an MPI port with one byte, would hold the job without a word.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace trident {

struct StartWatchOptions {
  bool speaks = false;         // one rank of a job does
  double first_seconds = 10;   // of one stage, then it is said
  double every_seconds = 60;   // and again
  double most_seconds = 300;   // of one stage, then the job ends: launchers may be minutes late with a rank
  std::function<void(const std::string& line)> warn = {};  // from a thread of its own
  std::function<void(const std::string& line)> end = {};   // the same; ends the process
};

// While alive. Stages are named by the rank's thread.
class StartWatch {
 public:
  // `stage`: what the rank does, "joins the other ranks"; outlives the watch.
  StartWatch(const char* stage, StartWatchOptions options);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

  void next(const char* stage);

 private:
  void watch();
  std::string line(double seconds) const;

  const StartWatchOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const char* stage_;
  double since_;       // monotonic_seconds() when the stage began
  double next_line_;   // when the next line is due, likewise
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace trident
