#include "device/cpu/cpu_attention.h"

#include <algorithm>
#include <cstdint>

#include "core/int_math.h"
#include "device/arena.h"
#include "device/cpu/team.h"

namespace trident {

namespace {

// An operand of heads: where its first head lies, and how far it is in elements to the next sample, head and row.
template <class Byte>
struct Heads {
  Byte* data;
  std::int64_t sample, head, row, element;

  Heads(BasicTensorView<Byte> view, std::int64_t head_dim, std::int64_t first_column) : element(size_of(view.dtype())) {
    const Shape& shape = view.shape();
    const bool by_rows = shape.rank() == 3;  // [S, B, C], else [B, n, S, D]
    data = view.data() + (by_rows ? first_column * element : 0);
    sample = by_rows ? shape[2] : shape[1] * shape[2] * shape[3];
    head = by_rows ? head_dim : shape[2] * head_dim;
    row = by_rows ? shape[1] * shape[2] : head_dim;
  }
  Byte* at(std::int64_t of_sample, std::int64_t of_head) const { return data + (of_sample * sample + of_head * head) * element; }
  HeadStrides strides() const { return {row, head}; }
};

// The extents of one group of a shape.
AttentionGroup extents_of(const AttentionShape& s) {
  AttentionGroup g;
  g.heads = s.query_heads / s.kv_heads;
  g.query_length = s.query_length, g.key_length = s.key_length, g.head_dim = s.head_dim;
  return g;
}

template <class Attention>
AttentionGroup group_of(const Attention& a, const AttentionShape& s, std::int64_t sample, const RowKernels& kernels) {
  AttentionGroup g = extents_of(s);
  g.causal = s.causal;
  g.offset = s.query_offset - s.key_offset;
  if (s.interval > 0) g.first_key = a.first_key.template as<std::int32_t>() + sample * s.query_length;
  g.key_position = s.key_offset;
  g.scale = s.scale, g.softcap = s.softcap;
  const Heads q(a.q, s.head_dim, 0), k(a.k, s.head_dim, 0), v(a.v, s.head_dim, 0);
  const Heads out(a.out, s.head_dim, 0);
  if constexpr (requires { a.rotation; })
    if (a.rotation.turns())
      g.rotation = {&kernels, a.rotation.cos.template as<float>(), a.rotation.sin.template as<float>(),
                    a.rotation.position.template as<std::int32_t>() + sample * s.query_length, a.rotation.pairs()};
  g.q = q.strides(), g.k = k.strides(), g.v = v.strides(), g.out = out.strides();
  return g;
}

// Tasks of one pass over `length` queries or keys of each (sample, key/value head): of few heads several parts of whole tiles each,
// enough that no thread waits long for the last one.
struct Tasks {
  std::int64_t groups, rows, parts;  // rows: of a part
  Tasks(const AttentionShape& s, std::int64_t length, std::int64_t threads) : groups(s.batch * s.kv_heads) {
    constexpr std::int64_t kTasksOfAThread = 4;
    const std::int64_t wanted = threads == 1 ? 1 : ceil_div(kTasksOfAThread * threads, std::max<std::int64_t>(groups, 1));
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
bool backward_apart(const AttentionShape& s, std::int64_t threads) {
  const std::int64_t groups = s.batch * s.kv_heads;
  return worth_threads(s) && 5 * ceil_div(groups, threads) * threads > 7 * groups;
}

// The most queries whose d_q one task makes.
std::int64_t queries_of_a_task(const AttentionShape& s, std::int64_t threads) {
  return backward_apart(s, threads) ? std::min(Tasks(s, s.query_length, threads).rows, s.query_length) : s.query_length;
}

std::int64_t bytes_of_a_thread(std::int64_t floats) { return round_up(4 * floats, kArenaAlignment); }

}  // namespace

CpuAttention::CpuAttention(IsaLevel level, bool bf16_pairs)
    : kernels_(row_kernels(level)), tiles_(attention_tiles(level, false)), bf16_tiles_(attention_tiles(level, bf16_pairs)) {}

std::int64_t CpuAttention::workspace_bytes(const AttentionShape& s) const {
  const AttentionGroup g = extents_of(s);
  const AttentionTiles& t = tiles(s.dtype);
  return team_size() * bytes_of_a_thread(std::max(t.forward_floats(g), t.backward_floats(g, queries_of_a_task(s, team_size()))));
}

template <class Forward>
void CpuAttention::run_forward(const Forward& a, const AttentionShape& s, std::int64_t sample) const {
  const Heads out(a.out, s.head_dim, 0);
  const Heads q(a.q, s.head_dim, a.columns.q), k(a.k, s.head_dim, a.columns.k), v(a.v, s.head_dim, a.columns.v);
  const Tasks tasks(s, s.query_length, team_size());
  in_tasks(s, tasks.count(), [&](std::int64_t i, std::int64_t member) {
    // The last queries, which see most keys, come first.
    const std::int64_t first = (tasks.parts - 1 - i / tasks.groups) * tasks.rows;
    const std::int64_t b = sample + i % tasks.groups / s.kv_heads, kv = i % tasks.groups % s.kv_heads;
    const AttentionGroup g = group_of(a, s, b, kernels_);
    const std::int64_t head = kv * g.heads, bytes = bytes_of_a_thread(tiles(s.dtype).forward_floats(g));
    tiles(s.dtype).forward(row_type(s.dtype), g, first, std::min(first + tasks.rows, s.query_length), out.at(b, head),
                           a.lse.template as<float>() + (b * s.query_heads + head) * s.query_length, q.at(b, head), k.at(b, kv),
                           v.at(b, kv), reinterpret_cast<float*>(a.workspace.data() + member * bytes));
  });
}

void CpuAttention::run(const op::AttentionForward& a) const { run_forward(a, a.shape, 0); }

void CpuAttention::run(const op::CachedAttention& a) const {
  for (std::int64_t b = 0; b < a.shape.batch; ++b) run_forward(a, a.of_sample(b), b);
}

void CpuAttention::run(const op::AttentionBackward& a) const {
  const AttentionShape& s = a.shape;
  const Heads d_q(a.d_q, s.head_dim, a.columns.q), d_k(a.d_k, s.head_dim, a.columns.k), d_v(a.d_v, s.head_dim, a.columns.v);
  const Heads q(a.q, s.head_dim, a.columns.q), k(a.k, s.head_dim, a.columns.k), v(a.v, s.head_dim, a.columns.v);
  const Heads d_out(a.d_out, s.head_dim, 0), out(a.out, s.head_dim, 0);
  const std::int64_t threads = team_size(), most_queries = queries_of_a_task(s, threads);
  const auto make = [&](std::int64_t group, std::int64_t member, AttentionGradients of, bool of_queries, bool of_keys) {
    const std::int64_t b = group / s.kv_heads, kv = group % s.kv_heads;
    const AttentionGroup g = group_of(a, s, b, kernels_);
    const std::int64_t head = kv * g.heads, bytes = bytes_of_a_thread(tiles(s.dtype).backward_floats(g, most_queries));
    if (of_queries) of.d_q = d_q.at(b, head);
    if (of_keys) of.d_k = d_k.at(b, kv), of.d_v = d_v.at(b, kv);
    of.d_out = d_out.at(b, head), of.out = out.at(b, head), of.q = q.at(b, head), of.k = k.at(b, kv), of.v = v.at(b, kv);
    of.lse = a.lse.as<float>() + (b * s.query_heads + head) * s.query_length;
    tiles(s.dtype).backward(row_type(s.dtype), g, of, reinterpret_cast<float*>(a.workspace.data() + member * bytes));
  };
  const AttentionGradients all{.end_query = s.query_length, .end_key = s.key_length};
  if (!backward_apart(s, threads)) {
    return in_tasks(s, s.batch * s.kv_heads,
                    [&](std::int64_t group, std::int64_t member) { make(group, member, all, true, true); });
  }
  const Tasks queries(s, s.query_length, threads), keys(s, s.key_length, threads);
  in_tasks(s, queries.count() + keys.count(), [&](std::int64_t i, std::int64_t member) {
    AttentionGradients of = all;
    // Queries that see most, and keys that are seen most, come first.
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

std::int64_t largest_attention_workspace(const AttentionShape& s, std::int64_t threads) {
  constexpr std::int64_t kMostWidth = 16, kSmall = 1 << 14;  // floats: of a vector, and what grows with vectors besides heads
  AttentionGroup g = extents_of(s);
  g.head_dim = round_up(g.head_dim, kMostWidth);
  const AttentionTiles t = attention_tiles(IsaLevel::kBaseline, false);
  return threads * bytes_of_a_thread(std::max(t.forward_floats(g), t.backward_floats(g, queries_of_a_task(s, threads))) + kSmall);
}

}  // namespace trident
