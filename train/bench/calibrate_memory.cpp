#include <stdlib.h>  // mkdtemp

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "core/file_io.h"
#include "train/bench/calibrate_models.h"
#include "train/bench/calibrate_training.h"
#include "train/launch/run_training.h"
#include "train/run/dry_run.h"

namespace trident {
namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "trident-calibrate-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw StorageError(fmt::format("{}: {}; set TMPDIR to a folder that can be written", name, std::strerror(errno)));
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A document of `tokens` tokens 0, 1, ... in Megatron's format: data/indexed_dataset.h.
void write_tokens(const std::string& prefix, std::int32_t tokens) {
  std::string bin, idx("MMIDIDX\0\0", 9);
  const auto add = [](std::string& to, auto number) { to.append(reinterpret_cast<const char*>(&number), sizeof number); };
  for (std::int32_t i = 0; i < tokens; ++i) add(bin, static_cast<std::uint16_t>(i % 512));
  add(idx, std::uint64_t{1}), add(idx, std::uint8_t{8}), add(idx, std::uint64_t{1}), add(idx, std::uint64_t{2});
  add(idx, tokens);
  for (const std::int64_t value : {0, 0, 1}) add(idx, value);
  write_file(prefix + ".bin", bin);
  write_file(prefix + ".idx", idx);
}

// The most that was resident so far.
double peak_resident_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmHWM:")) return 1024.0 * std::stod(line.substr(6));
  return 0;
}

// Resident beside the arenas when `ranks` ranks have trained, as trident train does it.
double bytes_beside_arenas(const CalibrateOptions& options, const char* precision, int ranks, CudaBackend& cuda) {
  const TemporaryFolder folder;
  TrainedModel model = model_for_memory(options.largest, precision, ranks);
  model.config.run.dir = folder.path() + "/run";
  model.config.run.steps = 3;
  model.config.data.train = {{folder.path() + "/tokens", 1}};
  write_tokens(folder.path() + "/tokens", 20000);
  std::ostringstream lines;
  LogSink log(lines);
  run_training([&] { return model.config; }, {lines, ConsoleMode::kPlain, log}, cuda);
  double resident = peak_resident_bytes();
  for (const DryRun& stage : dry_stages_here(plan_of(model, 1), DeviceKind::kCpu, DryWork::kConstruct))
    resident -= ranks * static_cast<double>(stage.arena.total_bytes());
  return resident;
}

}  // namespace

// What is read is the most so far, so that each run holds more than those before it; not in processes of their own, which share
// with their parent the pages of the program that it has touched, and do not count them.
void measure_memory(const CalibrateOptions& options, const std::string& source, CudaBackend& cuda, CpuRates& rates) {
  constexpr int kRanks = 8;
  constexpr std::array kWays{std::pair{DType::kBF16, "bf16"}, std::pair{DType::kF32, "fp32"}};
  std::array<double, kWays.size()> one{};
  for (std::size_t i = 0; i < kWays.size(); ++i) one[i] = bytes_beside_arenas(options, kWays[i].second, 1, cuda);
  for (std::size_t i = 0; i < kWays.size(); ++i) {
    const double more = bytes_beside_arenas(options, kWays[i].second, kRanks, cuda);
    const double rank = std::max((more - one[i]) / (kRanks - 1), 0.0);
    rates.memory.push_back({kWays[i].first, std::max(one[i] - rank, 0.0), rank, source});
  }
}

}  // namespace trident
