#include "train/run/arena_check.h"

#include <algorithm>
#include <memory>

#include "core/at.h"
#include "core/check.h"
#include "core/function_ref.h"
#include "train/run/between_steps.h"
#include "train/run/zero_cost.h"

namespace trident {
namespace {

// Bytes of a GPU, for each rank, that CUDA and its libraries take once training begins: kernels with the first use, graphs.
constexpr double kTakenLater = 512 << 20;
constexpr double kMuchLess = 0.9;  // of the largest rank's memory: layers could move there
constexpr double kMuch = 0.1;      // of what is needed: worth a key of its own
constexpr std::int64_t kChunk = 1024, kChunks = 8;  // tokens whose logits leave little to save; of smaller micro-batches a part

ArenaNeed sum(std::span<const ArenaNeed> needs) {
  ArenaNeed all;
  for (const ArenaNeed& need : needs) all.total += need.total, all.activations += need.activations, all.logits += need.logits;
  return all;
}

bool less(const ArenaNeed& a, const ArenaNeed& b) { return a.total < b.total; }

// "set recompute.policy to full or recompute.head_chunk to 1024 (6.2 GB are logits)": the keys that would help, if any.
std::string recomputing(const RunPlan& plan, const ArenaNeed& needed) {
  std::string keys = plan.recompute == RecomputePolicy::kFull ? "" : "recompute.policy to full";
  if (needed.logits >= kMuch * needed.total) {
    if (!keys.empty()) keys += " or ";
    const std::int64_t tokens = plan.config.batch.micro * plan.config.batch.sequence, part = std::max<std::int64_t>(tokens / kChunks, 1);
    keys += fmt::format("recompute.head_chunk to {} ({:.1f} GB are logits)", std::min(kChunk, part), 1e-9 * needed.logits);
  }
  return keys.empty() ? "" : "set " + keys;
}

// The largest micro-batch of at most `most` sequences that the configuration allows.
std::int64_t legal_micro(const RunPlan& plan, std::int64_t most) {
  const ParallelDegrees& degrees = plan.grid.degrees();
  const std::int64_t sequences = plan.config.batch.global / degrees.data, multiple = plan.config.parallel.schedule == ScheduleKind::kInterleaved ? degrees.pipeline : 1;
  while (most > 1 && (sequences % most != 0 || sequences / most % multiple != 0)) --most;
  return most;
}

// Proposes what fits where `needed` is more than `there`. Activations grow with the micro-batch, the rest does not; `fits` says
// whether a micro-batch does.
std::string what_fits(const RunPlan& plan, const ArenaNeed& needed, double there, FunctionRef<bool(std::int64_t)> fits) {
  const double fixed = needed.total - needed.activations, micro = static_cast<double>(plan.config.batch.micro);
  if (fixed > there)
    return fmt::format("parameters, gradients and optimizer alone are {:.1f} GB with parallel.zero = {}: {}", 1e-9 * fixed,
                       to_string(plan.zero.preset), what_state_fits(plan, fixed, there));
  const std::string keys = recomputing(plan, needed);
  auto most = static_cast<std::int64_t>(micro * (there - fixed) / needed.activations);
  for (; most >= 1; --most) {
    most = legal_micro(plan, most);
    if (fits(most)) return fmt::format("batch.micro = {} would fit{}{}", most, keys.empty() ? "" : ", or ", keys);
  }
  return fmt::format("lower batch.sequence, {}{}or use more tensor ranks", keys, keys.empty() ? "" : ", ");
}

// Communicators of NCCL take hundreds of megabytes each, by rules of the library: they are counted when they are there.
double bytes_for_arenas(const MemoryPool& pool, const std::optional<double>& free) {
  if (!free) return static_cast<double>(pool.bytes);
  return std::max(0.0, *free - kTakenLater * static_cast<double>(pool.ranks.size()));
}

std::optional<double> least_free(std::span<const ArenaNeed> here) {
  std::optional<double> least;
  for (const ArenaNeed& need : here) {
    if (!need.free) return std::nullopt;
    least = std::min(least.value_or(*need.free), *need.free);
  }
  return least;
}

std::vector<ArenaNeed> needs_in(const RunPlan& plan, const MemoryPool& pool, std::span<const ArenaNeed> needs) {
  std::vector<ArenaNeed> here;
  for (const int rank : pool.ranks) {
    TRIDENT_CHECK(rank < plan.world_size(), "rank {} of {} is to share {}", rank, plan.world_size(), pool.name);
    here.push_back(at(needs, rank));
  }
  return here;
}

void check_pool(const RunPlan& plan, const MemoryPool& pool, std::span<const ArenaNeed> needs, const NeedsOfMicro& needs_of = {}) {
  const std::vector<ArenaNeed> here = needs_in(plan, pool, needs);
  const ArenaNeed needed = sum(here);
  const double expected = static_cast<double>(pool.bytes), there = bytes_for_arenas(pool, least_free(here));
  if (needed.total <= there) return;
  const bool shrank = there <= kMuchLess * expected;
  const std::string taken = shrank ? fmt::format(", {:.1f} GB less than at the start, because NCCL's communicators and other libraries took them",
                                                 1e-9 * (expected - there))
                                   : "";
  const auto largest = std::ranges::max_element(here, less);
  const int rank = at(pool.ranks, largest - here.begin()), stages = plan.grid.degrees().pipeline;
  const std::string stage = stages == 1 ? "" : fmt::format(" (pipeline stage {} of {})", plan.grid.coordinates(rank).pipeline, stages);
  const std::string together = here.size() == 1 ? "" : fmt::format(", {} ranks there {:.1f} GB", here.size(), 1e-9 * needed.total);
  const auto micro_fits = [&](std::int64_t micro) {
    return !needs_of || sum(needs_in(plan, pool, needs_of(micro))).total <= there;
  };
  const bool uneven = stages > 1 && std::ranges::min_element(needs, less)->total < kMuchLess * largest->total;
  throw ConfigError(fmt::format("batch.micro = {}: the arena of rank {}{} needs {:.1f} GB, {:.1f} GB of it for activations ({}){}, {} has {:.1f} GB for "
                                "arenas{}; {}{}, or take a smaller model",
                                plan.config.batch.micro, rank, stage, 1e-9 * largest->total, 1e-9 * largest->activations, largest->largest, together, pool.name,
                                1e-9 * there, taken, what_fits(plan, needed, there, micro_fits), uneven ? ", give other stages more layers with parallel.layers" : ""));
}

const MemoryPool* pool_of(const RunPlan& plan, int rank) {
  const auto found = std::ranges::find_if(
      plan.memory, [&](const MemoryPool& pool) { return std::ranges::find(pool.ranks, rank) != pool.ranks.end(); });
  return found == plan.memory.end() ? nullptr : &*found;
}

// Ranks that share `pool` need memory together, those without one each alone. The least that any of them sees counts as free.
ArenaNeed need_of_pool(const MemoryPool* pool, Communicator& world, Stream& stream, const ArenaNeed& mine) {
  const std::vector<int> sharers = pool != nullptr ? pool->ranks : std::vector<int>{world.rank()};
  const std::unique_ptr<Communicator> part = std::ssize(sharers) < world.size() ? world.split(sharers, "memory") : nullptr;
  Communicator& group = part ? *part : world;
  const std::int64_t total = over_ranks(group, stream, static_cast<std::int64_t>(mine.total), ReduceOp::kSum);
  const std::int64_t less_free = over_ranks(group, stream, -static_cast<std::int64_t>(mine.free.value_or(0)), ReduceOp::kMax);
  ArenaNeed need{.total = static_cast<double>(total)};
  if (mine.free) need.free = -static_cast<double>(less_free);
  return need;
}

}  // namespace

void check_arenas(const RunPlan& plan, std::span<const ArenaNeed> needs, const NeedsOfMicro& needs_of) {
  TRIDENT_CHECK(static_cast<int>(needs.size()) == plan.world_size(), "{} needs of {} ranks", needs.size(), plan.world_size());
  for (const MemoryPool& pool : plan.memory) check_pool(plan, pool, needs, needs_of);
}

std::vector<ArenaNeed> arena_needs(const RunPlan& plan, std::span<const DryRun> stages) {
  std::vector<ArenaNeed> needs;
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const DryRun& run = at(stages, plan.grid.coordinates(rank).pipeline);
    ArenaNeed& need = needs.emplace_back();
    need.total = static_cast<double>(run.arena.total_bytes());
    need.activations = need.total;
    for (const MemoryUse use : {MemoryUse::kParameters, MemoryUse::kGradients, MemoryUse::kOptimizer})
      need.activations -= static_cast<double>(run.arena.total_bytes(use));
    need.logits = static_cast<double>(run.logits_bytes);
    need.largest = largest_entries(run.arena);
  }
  return needs;
}

void check_free(const RunPlan& plan, Communicator& world, Stream& stream, const ArenaNeed& mine,
                const std::function<std::vector<ArenaNeed>()>& needs_of_all) {
  const MemoryPool* const pool = pool_of(plan, world.rank());
  const ArenaNeed need = need_of_pool(pool, world, stream, mine);  // collective: also without a pool
  std::string refusal;
  if (pool != nullptr && need.total > bytes_for_arenas(*pool, need.free)) {
    std::vector<ArenaNeed> needs = needs_of_all();
    for (const int rank : pool->ranks) at(needs, rank).free = need.free;
    try {
      check_pool(plan, *pool, needs);
    } catch (const ConfigError& error) {
      refusal = error.what();
    }
    TRIDENT_CHECK(!refusal.empty(), "rank {}: the ranks of {} need {:.0f} bytes by their own account, less by the dry run", world.rank(),
                  pool->name, need.total);
  }
  const int first = first_rank(world, stream, !refusal.empty());
  if (first >= 0) throw ConfigError(broadcast_text(world, stream, refusal, first));
}

}  // namespace trident
