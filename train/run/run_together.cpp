#include "train/run/run_together.h"

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>

#include "core/check.h"
#include "core/host_name.h"

namespace trident {

void run_together(Rendezvous& job, const std::function<void()>& step) {
  if (job.size() == 1) return step();
  std::optional<Error> mine;
  try {
    step();
  } catch (const Error& error) {
    mine = error;
  } catch (const std::exception& error) {  // out of memory, say
    mine = Error(ExitCode::kInternal, error.what());
  }
  const int first = first_rank(job, mine.has_value());
  if (first < 0) return;
  std::string text;
  if (job.rank() == first)
    text = fmt::format("{}\n{}\n{}\n{}", static_cast<int>(mine->code()), mine->system_error(), host_name(), mine->what());
  std::istringstream failure(job.broadcast(text, first));
  std::string number, system_number, host, message;
  std::getline(failure, number);
  std::getline(failure, system_number);
  std::getline(failure, host);
  std::getline(failure, message, '\0');
  const auto code = static_cast<ExitCode>(std::stoi(number));
  const int system_error = std::stoi(system_number);
  std::array<std::int64_t, 2> counts{mine ? 1 : 0, mine && mine->what() == message ? 1 : 0};  // that failed, that said the same
  job.all_reduce(counts, ReduceOp::kSum);
  if (job.rank() != 0) throw ReportedElsewhere(code, message, system_error);
  if (counts[1] == job.size()) throw AgreedError(code, message, system_error);
  throw AgreedError(code, fmt::format("rank {} ({}){}: {}", first, host,
                                      counts[0] == 1 ? "" : fmt::format(" and {} more", counts[0] - 1), message),
                    system_error);
}

std::vector<std::int32_t> of_rank_0(Rendezvous& job, const std::vector<std::int32_t>& mine) {
  std::string bytes;  // one build on all ranks: one order of bytes
  if (job.rank() == 0 && !mine.empty()) bytes.assign(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof mine[0]);
  bytes = job.broadcast(bytes, 0);
  std::vector<std::int32_t> values(bytes.size() / sizeof mine[0]);
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace trident
