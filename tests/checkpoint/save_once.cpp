// save_once save FOLDER STEP: saves two ranks' small model, exit code 74 where the file system refuses.
// save_once check FOLDER STEP...: exit code 0 if the checkpoints in FOLDER are these and no other, every block of each as it was
// written. For save_under_strace_test.sh, which kills it and lets its calls of the system fail.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_check.h"
#include "checkpoint/checkpoint_folder.h"
#include "core/check.h"
#include "tests/checkpoint/save_ranks.h"

namespace trident {
namespace {

void save(const std::string& folder, std::int64_t step) {
  const ModelConfig model = test::llama_config(40, 2, true);
  std::vector<test::LayoutRank> ranks = test::all_ranks(model, {.tensor = 2});
  for (test::LayoutRank& rank : ranks) {
    rank.allocate(DType::kBF16, 0);
    rank.fill(test::random_values(static_cast<std::uint64_t>(step)));
  }
  test::save_ranks(folder, step, model, ranks, DType::kBF16);
}

// A start would take these: checkpoints' own names, valid or not.
int check(const std::string& folder, const std::vector<std::int64_t>& expected) {
  std::vector<std::int64_t> steps;
  for (const CheckpointEntry& entry : list_checkpoints(folder)) {
    if (!entry.parts.mark.empty()) continue;
    steps.push_back(entry.parts.step);
    const std::string path = folder + "/" + entry.name;
    const std::vector<std::string> damage = check_checkpoint(path, open_manifest(path));
    if (damage.empty()) continue;
    std::fprintf(stderr, "%s\n", damage.front().c_str());
    return 1;
  }
  if (steps == expected) return 0;
  for (const std::int64_t step : steps) std::fprintf(stderr, "there is step %lld\n", static_cast<long long>(step));
  return 2;
}

int run(const std::vector<std::string>& words) {
  if (words.size() >= 3 && words[0] == "check") {
    std::vector<std::int64_t> steps;
    for (std::size_t i = 2; i < words.size(); ++i) steps.push_back(std::atoll(words[i].c_str()));
    return check(words[1], steps);
  }
  if (words.size() == 3 && words[0] == "save") {
    save(words[1], std::atoll(words[2].c_str()));
    return 0;
  }
  std::fprintf(stderr, "usage: save_once save|check FOLDER STEP...\n");
  return 64;
}

}  // namespace
}  // namespace trident

int main(int count, char** arguments) {
  try {
    return trident::run(std::vector<std::string>(arguments + 1, arguments + count));
  } catch (const trident::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
