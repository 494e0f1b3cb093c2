#include "device/cpu/cpu_attention.h"

#include <algorithm>
#include <cstdint>

#include "core/int_math.h"
#include "device/arena.h"
#include "device/cpu/team.h"

namespace trident {

namespace {

AttentionGroup group_of(const AttentionShape& s, ConstTensorView first_key, std::int64_t sample) {
  AttentionGroup g;
  g.heads = s.kv_heads == 0 ? 0 : s.query_heads / s.kv_heads;
  g.query_length = s.query_length, g.key_length = s.key_length, g.head_dim = s.head_dim;
  g.causal = s.causal;
  g.offset = s.query_offset - s.key_offset;
  if (s.interval > 0 && first_key.data() != nullptr) g.first_key = first_key.as<std::int32_t>() + sample * s.query_length;
  g.key_position = s.key_offset;
  g.scale = s.scale, g.softcap = s.softcap;
  return g;
}

// Tasks of one pass over `length` queries or keys of each (sample, key/value head): of few heads several parts of whole tiles each,
// enough that no thread waits long for the last one.
struct Tasks {
  std::int64_t groups, rows, parts;  // rows: of a part
  Tasks(const AttentionShape& s, std::int64_t length) : groups(s.batch * s.kv_heads) {
    constexpr std::int64_t kTasksOfAThread = 4;
    const std::int64_t threads = team_size(),
                       wanted = threads == 1 ? 1 : ceil_div(kTasksOfAThread * threads, std::max<std::int64_t>(groups, 1));
    rows = kAttentionTile * std::max<std::int64_t>(1, ceil_div(ceil_div(length, kAttentionTile), wanted));
    parts = ceil_div(length, rows);
  }
  std::int64_t count() const { return groups * parts; }
};

// Fewer multiply-adds are made by the calling thread alone, as in onednn_matmul.cpp.
bool worth_threads(const AttentionShape& s) {
  constexpr double kWorthThreads = 4 << 20;
  const auto pairs = static_cast<double>(s.batch * s.query_heads * s.query_length) * static_cast<double>(s.key_length);
  return 2 * pairs * static_cast<double>(s.head_dim) >= kWorthThreads;
}

// task(i, member) for every i < count.
template <class Task>
void in_tasks(const AttentionShape& s, std::int64_t count, const Task& task) {
  if (worth_threads(s)) return on_team(count, task);
  for (std::int64_t i = 0; i < count; ++i) task(i, 0);
}

// A backward pass whose queries and keys have tasks of their own makes two of five products twice. That is worth it where whole
// groups would leave that many threads idle.
bool backward_apart(const AttentionShape& s) {
  const std::int64_t groups = s.batch * s.kv_heads, threads = team_size();
  return worth_threads(s) && 5 * ceil_div(groups, threads) * threads > 7 * groups;
}

std::int64_t bytes_of_a_thread(std::int64_t floats) { return round_up(4 * floats, kArenaAlignment); }

}  // namespace

CpuAttention::CpuAttention(IsaLevel level, bool bf16_pairs)
    : tiles_(attention_tiles(level, false)), bf16_tiles_(attention_tiles(level, bf16_pairs)) {}

std::int64_t CpuAttention::workspace_bytes(const AttentionShape& s) const {
  const AttentionGroup g = group_of(s, {}, 0);
  return team_size() *
         std::max(bytes_of_a_thread(tiles(s.dtype).forward_floats(g)), bytes_of_a_thread(tiles(s.dtype).backward_floats(g)));
}

void CpuAttention::forward(const AttentionShape& s, TensorView out, TensorView lse, ConstTensorView q, ConstTensorView k,
                           ConstTensorView v, ConstTensorView first_key, std::byte* workspace) const {
  const Tasks tasks(s, s.query_length);
  const std::int64_t key_bytes = s.key_length * s.head_dim * size_of(s.dtype);
  in_tasks(s, tasks.count(), [&](std::int64_t i, std::int64_t member) {
    // The last queries, which see most keys, come first.
    const std::int64_t group = i % tasks.groups, first = (tasks.parts - 1 - i / tasks.groups) * tasks.rows;
    const AttentionGroup g = group_of(s, first_key, group / s.kv_heads);
    const std::int64_t rows = group * g.heads * s.query_length, query_at = rows * s.head_dim * size_of(s.dtype);
    const std::int64_t bytes = bytes_of_a_thread(tiles(s.dtype).forward_floats(g));
    tiles(s.dtype).forward(row_type(s.dtype), g, first, std::min(first + tasks.rows, s.query_length), out.data() + query_at,
                           lse.as<float>() + rows, q.data() + query_at, k.data() + group * key_bytes, v.data() + group * key_bytes,
                           reinterpret_cast<float*>(workspace + member * bytes));
  });
}

void CpuAttention::backward(const AttentionShape& s, TensorView d_q, TensorView d_k, TensorView d_v, ConstTensorView d_out,
                            ConstTensorView out, ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView lse,
                            ConstTensorView first_key, std::byte* workspace) const {
  const auto make = [&](std::int64_t group, std::int64_t member, AttentionGradients of, bool of_queries, bool of_keys) {
    const AttentionGroup g = group_of(s, first_key, group / s.kv_heads);
    const std::int64_t rows = group * g.heads * s.query_length, query_at = rows * s.head_dim * size_of(s.dtype);
    const std::int64_t key_at = group * s.key_length * s.head_dim * size_of(s.dtype);
    of.d_q = of_queries ? d_q.data() + query_at : nullptr;
    of.d_k = of_keys ? d_k.data() + key_at : nullptr, of.d_v = of_keys ? d_v.data() + key_at : nullptr;
    of.d_out = d_out.data() + query_at, of.out = out.data() + query_at, of.q = q.data() + query_at;
    of.k = k.data() + key_at, of.v = v.data() + key_at, of.lse = lse.as<float>() + rows;
    const std::int64_t bytes = bytes_of_a_thread(tiles(s.dtype).backward_floats(g));
    tiles(s.dtype).backward(row_type(s.dtype), g, of, reinterpret_cast<float*>(workspace + member * bytes));
  };
  const AttentionGradients all{.end_query = s.query_length, .end_key = s.key_length};
  if (!backward_apart(s)) {
    return in_tasks(s, s.batch * s.kv_heads,
                    [&](std::int64_t group, std::int64_t member) { make(group, member, all, true, true); });
  }
  const Tasks queries(s, s.query_length), keys(s, s.key_length);
  in_tasks(s, queries.count() + keys.count(), [&](std::int64_t i, std::int64_t member) {
    AttentionGradients of = all;
    // What sees most, or is seen most, comes first.
    if (i < keys.count()) {
      of.first_key = i / keys.groups * keys.rows;
      of.end_key = std::min(of.first_key + keys.rows, s.key_length);
      return make(i % keys.groups, member, of, false, true);
    }
    i -= keys.count();
    of.first_query = (queries.parts - 1 - i / queries.groups) * queries.rows;
    of.end_query = std::min(of.first_query + queries.rows, s.query_length);
    make(i % queries.groups, member, of, true, false);
  });
}

}  // namespace trident
