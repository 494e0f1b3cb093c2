#include "device/cuda/cudnn_attention_rules.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/int_math.h"

namespace trident {

namespace {

// From here on masks may hold -infinity and scratch need not be cleared; the two releases before have wrong numbers in their
// attention. cmake/TridentCuda.cmake and scripts/gpu_libraries.sh read the number here.
constexpr std::size_t kOldestCudnn = 91002;
constexpr std::size_t kWholeKeyBlocksUntil = 91501;

// On Hopper the backward pass takes blocks of 128 keys and masks blocks of 64: behind half a block it takes zeros for keys where
// no causal mask hides them, and query gradients are NaN where a log-sum-exp is below -88 (NVIDIA/cudnn-frontend, pull request
// 628; so in 9.30).
bool has_bare_half_block(const AttentionShape& s) {
  constexpr std::int64_t kBlock = 128;
  const bool hidden = (s.causal || s.interval > 0) && s.query_offset + s.query_length <= s.key_offset + s.key_length;
  return s.key_length % kBlock == kBlock / 2 && !hidden;
}

// Empty: cuDNN takes it.
std::string refusal(const AttentionShape& s, AttentionDirection direction, int compute_major, std::size_t cudnn) {
  const bool backward = direction == AttentionDirection::kBackward;
  if (s.dtype != DType::kBF16 && s.dtype != DType::kF16) return fmt::format("it has no attention in {}", to_string(s.dtype));
  if (s.batch == 0 || s.query_length == 0 || s.key_length == 0) return "there are no queries or no keys";
  if (s.causal && s.key_offset > s.query_offset) return "some queries see no key";
  if (s.interval > 0 && s.key_offset != 0) return "intervals are of keys that do not begin at position 0";
  if (s.interval > 0 && s.query_offset + s.query_length > s.key_length) return "queries behind the last key may see none";
  if (s.head_dim % 8 != 0) return fmt::format("a head width of {} is not a multiple of 8", s.head_dim);
  const std::int64_t widest = compute_major == 9 ? 256 : 128;
  if (backward && s.head_dim > widest)
    return fmt::format("its backward pass ends at a head width of {} on GPUs of compute capability {}.x", widest, compute_major);
  if (!backward) return "";
  // Key and value gradients of one query may be NaN (NVIDIA/cudnn-frontend, issue 1072), with one key there is no plan.
  if (s.query_length == 1) return "its backward pass wants more than one query";
  // Without a padding mask it reads beyond the last key (NVIDIA/cudnn-frontend: issue 160, release 1.16).
  if (cudnn < kWholeKeyBlocksUntil && s.key_length % 128 != 0)
    return fmt::format("before {} its backward pass reads beyond keys that are no multiple of 128",
                       cudnn_version_text(kWholeKeyBlocksUntil));
  if (compute_major == 9 && has_bare_half_block(s))
    return "its backward pass may give NaN for half a block of 128 keys without a causal mask";
  return "";
}

// How many of `total` samples to take at a time: a divisor, the largest within the limit or else the smallest, such that every
// piece's log-sum-exps (of `rows` queries a sample) begin at a multiple of 16 bytes.
std::int64_t piece_size(std::int64_t total, std::int64_t rows, std::int64_t bytes_each, std::int64_t limit) {
  constexpr std::int64_t kAligned = 16 / size_of(DType::kF32);
  std::int64_t best = std::max<std::int64_t>(total, 1);
  for (std::int64_t piece = best; piece >= 1; --piece) {
    if (total % piece != 0 || (piece * rows % kAligned != 0 && piece != total)) continue;
    best = piece;
    if (piece * bytes_each <= limit) break;
  }
  return best;
}

// cuDNN keeps d_score in tiles of 64 x 64.
std::int64_t d_score_bytes(const AttentionShape& s, std::int64_t heads) {
  constexpr std::int64_t kTile = 64;
  return heads * round_up(s.query_length, kTile) * round_up(s.key_length, kTile) * size_of(s.dtype);
}

}  // namespace

std::string cudnn_version_text(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::optional<std::string> cudnn_version_problem(std::size_t version) {
  if (version >= kOldestCudnn) return std::nullopt;
  return fmt::format("cuDNN {} is too old for attention; install {} or a later 9.x", cudnn_version_text(version),
                     cudnn_version_text(kOldestCudnn));
}

AttentionPass attention_pass(const AttentionShape& shape, AttentionDirection direction, int compute_major, std::size_t cudnn,
                             const CudnnAttentionOptions& options) {
  AttentionPass pass{.why_not = refusal(shape, direction, compute_major, cudnn), .piece = shape};
  pass.by_cudnn = pass.why_not.empty();
  if (!pass.by_cudnn || direction == AttentionDirection::kForward || options.determinism == Determinism::kNotRequired) return pass;
  const std::int64_t sample_bytes = d_score_bytes(shape, shape.query_heads);
  if (sample_bytes <= options.d_score_bytes || shape.kv_heads == 1) {
    pass.piece.batch = piece_size(shape.batch, shape.query_heads * shape.query_length, sample_bytes, options.d_score_bytes);
    pass.pieces = shape.batch / pass.piece.batch;
  } else {
    // Head-major tensors of B samples with K heads are those of B K samples with one head.
    const std::int64_t group = shape.query_heads / shape.kv_heads, groups = shape.batch * shape.kv_heads;
    pass.piece.query_heads = group;
    pass.piece.kv_heads = 1;
    // First keys are a sample's: with intervals, a piece has one group of it.
    pass.piece.batch = shape.interval > 0 ? 1
                                          : piece_size(groups, group * shape.query_length, d_score_bytes(shape, group),
                                                       options.d_score_bytes);
    pass.pieces = groups / pass.piece.batch;
  }
  if (shape.interval > 0 && pass.pieces > 1 && shape.query_length % 4 != 0) {
    pass.by_cudnn = false;
    pass.why_not = "first keys of pieces of its backward pass would not begin at multiples of 16 bytes";
  }
  return pass;
}

}  // namespace trident
