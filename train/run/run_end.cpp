#include "train/run/run_end.h"

#include "core/check.h"
#include "train/run/stop_request.h"

namespace trident {

int RunEnd::exit_code() const {
  if (not_saved) return exit_status(ExitCode::kStorage);
  if ((signal != 0 || out_of_time) && saved) return exit_status(ExitCode::kRequeue);
  return signal != 0 ? exit_code_of_signal(signal) : 0;
}

std::string RunEnd::message() const {
  const std::string why = signal != 0   ? "stopped by " + signal_name(signal)
                          : out_of_time ? "run.max_minutes is over"
                                        : "the run is over";
  if (untrained) return why + " before the first step; the same command begins with it";
  if (not_saved) return why + ", and its last checkpoint could not be written; the newest one is older";
  if (saved) return why + (signal != 0 || out_of_time ? "; all is saved: the same command goes on from there" : "; all is saved");
  if (weights) return why + "; its weights are saved, and no run goes on from weights alone (checkpoint.content)";
  if (begins_anew)
    return why + "; all is saved, and the same command begins anew; with checkpoint.resume=auto it goes on from there";
  return why + " at the end of a step; nothing is saved, as was said when it began";
}

}  // namespace trident
