#include "tests/checkpoint/save_ranks.h"

#include <chrono>
#include <cstdint>
#include <thread>

#include "checkpoint/commit.h"
#include "checkpoint/file_record.h"
#include "core/check.h"

namespace trident::test {

SavePlan plan_of(const LayoutRank& rank, int number, CheckpointContent content) {
  return make_save_plan(boxes_written(rank.shards(), rank.holder()), rank.tensors(), state_names(), rank.units(), content, number);
}

Buffer staging_for(const SavePlan& plan, Staging staging) {
  const std::int64_t least = ShardWriter::least_staging(plan), whole = ShardWriter::whole_staging(plan);
  const std::int64_t bytes = staging == Staging::kLeast ? least : staging == Staging::kWhole ? whole : (least + whole) / 2;
  return allocate_host(bytes, "staging");
}

Manifest manifest_of(const ModelConfig& model, std::int64_t step, DType weights, CheckpointContent content) {
  Manifest manifest;
  manifest.state.updates = manifest.state.batches = step;
  manifest.weights = weights;
  manifest.complete = content == CheckpointContent::kAll;
  if (manifest.complete) manifest.optimizer_states = state_names();
  manifest.tensors = tensors_of(model);
  return manifest;
}

void wait_for(const ShardWriter& writer) {
  while (writer.busy()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Manifest save_ranks(const std::string& directory, std::int64_t step, const ModelConfig& model, std::vector<LayoutRank>& ranks,
                    DType weights, Staging staging, CheckpointContent content) {
  Manifest manifest = manifest_of(model, step, weights, content);
  const std::string temporary = temporary_name(step, "token");
  int number = 0;
  for (const LayoutRank& rank : ranks) {
    SavePlan plan = plan_of(rank, number++, content);
    Buffer memory = staging_for(plan, staging);
    ShardWriter writer(std::move(plan), std::move(memory));
    writer.start(directory + "/" + temporary);
    for (const int unit : rank.units()) writer.before_update(unit);
    wait_for(writer);
    if (writer.error()) throw StorageError(*writer.error());
    for (const SaveFile& file : writer.files()) manifest.files.push_back(manifest_file(file, manifest.tensors));
  }
  commit_checkpoint(directory, temporary, step, manifest);
  return manifest;
}

}  // namespace trident::test
