// The reference's backward functions are the derivatives of its forward functions: central differences in double.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "tests/support/reference_attention.h"
#include "tests/support/reference_ops.h"

namespace trident {
namespace {

using Values = std::vector<double>;

Values random_values(std::size_t count, unsigned seed, double mean = 0.0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(mean, 1.0);
  Values result(count);
  for (double& x : result) x = normal(engine);
  return result;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// `gradient` against differences of `loss` in `x`. Fourth-order differences: with h = 1e-3 their error is ~h^4 = 1e-12, and
// rounding contributes ~1e-16/h = 1e-13, so 1e-6 relative leaves room for neither to matter.
void expect_gradient(Values& x, const Values& gradient, const std::function<double()>& loss, const char* what) {
  ASSERT_EQ(x.size(), gradient.size()) << what;
  double largest = 0;
  for (const double g : gradient) largest = std::max(largest, std::abs(g));
  ASSERT_GT(largest, 0.0) << what << ": nothing to compare";
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double h = 1e-3, saved = x[i];
    const auto at = [&](double offset) {
      x[i] = saved + offset;
      return loss();
    };
    const double difference = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
    x[i] = saved;
    ASSERT_NEAR(gradient[i], difference, 1e-6 * std::max(std::abs(difference), 1e-3 * largest)) << what << "[" << i << "]";
  }
}

TEST(ReferenceGradients, Matmul) {
  const std::int64_t M = 3, N = 4, K = 5;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      Values a = random_values(15, 1), b = random_values(20, 2), seed = random_values(12, 3), out(12), d_a(15), d_b(20);
      const auto loss = [&] {
        reference::matmul(out.data(), a.data(), ta, b.data(), tb, M, N, K, false);
        return dot(out, seed);
      };
      // d op(a) = seed op(b)^T, d op(b) = op(a)^T seed; written in the layout of a and b.
      if (ta)
        reference::matmul(d_a.data(), b.data(), tb, seed.data(), true, K, M, N, false);
      else
        reference::matmul(d_a.data(), seed.data(), false, b.data(), !tb, M, K, N, false);
      if (tb)
        reference::matmul(d_b.data(), seed.data(), true, a.data(), ta, N, K, M, false);
      else
        reference::matmul(d_b.data(), a.data(), !ta, seed.data(), false, K, N, M, false);
      expect_gradient(a, d_a, loss, "a");
      expect_gradient(b, d_b, loss, "b");
    }
}

TEST(ReferenceGradients, MatmulAddsWhenAsked) {
  const Values a{1, 2}, b{3, 4};
  double out = 10;
  reference::matmul(&out, a.data(), false, b.data(), false, 1, 1, 2, true);
  EXPECT_EQ(out, 21);
}

void check_attention(const reference::Attention& shape) {
  const auto queries = static_cast<std::size_t>(shape.batch * shape.query_heads * shape.query_length * shape.head_dim);
  const auto keys = static_cast<std::size_t>(shape.batch * shape.kv_heads * shape.key_length * shape.head_dim);
  Values q = random_values(queries, 1), k = random_values(keys, 2), v = random_values(keys, 3), seed = random_values(queries, 4);
  Values out(queries), lse(queries / static_cast<std::size_t>(shape.head_dim)), d_q(queries), d_k(keys), d_v(keys);
  const auto loss = [&] {
    reference::attention_forward(shape, out.data(), lse.data(), q.data(), k.data(), v.data());
    return dot(out, seed);
  };
  loss();
  const Values kept = out, kept_lse = lse;
  reference::attention_backward(shape, d_q.data(), d_k.data(), d_v.data(), seed.data(), kept.data(), q.data(), k.data(), v.data(),
                                kept_lse.data());
  expect_gradient(q, d_q, loss, "q");
  expect_gradient(k, d_k, loss, "k");
  expect_gradient(v, d_v, loss, "v");
}

TEST(ReferenceGradients, AttentionCausalGrouped) { check_attention({2, 4, 2, 5, 5, 3, 0, 0, 0.577, true}); }
TEST(ReferenceGradients, AttentionFull) { check_attention({1, 2, 1, 3, 6, 4, 0, 0, 0.5, false}); }
// Chunk offsets: queries at 4.., keys at 2..; and queries before every key, which see nothing.
TEST(ReferenceGradients, AttentionChunks) { check_attention({1, 2, 2, 4, 6, 3, 4, 2, 0.6, true}); }
TEST(ReferenceGradients, AttentionOfDocumentsAndBoundedScores) {
  check_attention({2, 2, 1, 5, 5, 3, 0, 0, 0.577, true, 0.0, {0, 0, 2, 2, 2, 0, 1, 2, 3, 4}});
  check_attention({1, 2, 1, 4, 4, 3, 0, 0, 0.9, true, 0.8, {0, 0, 0, 2}});
}
TEST(ReferenceGradients, AttentionQueriesThatSeeNothing) { check_attention({1, 1, 1, 4, 3, 3, 0, 2, 0.6, true}); }

TEST(ReferenceGradients, QueriesThatSeeNothingGiveZeroAndMinusInfinity) {
  const reference::Attention shape{1, 1, 1, 2, 2, 1, 0, 5, 1.0, true};
  const Values x{1, 2};
  Values out{9, 9}, lse{9, 9};
  reference::attention_forward(shape, out.data(), lse.data(), x.data(), x.data(), x.data());
  EXPECT_EQ(out, (Values{0, 0}));
  EXPECT_EQ(lse, (Values{-INFINITY, -INFINITY}));
}

TEST(ReferenceGradients, SplitHeadsMergesBackAndIsAdjointToIt) {
  const std::int64_t B = 2, n = 3, S = 4, D = 5, C = 20, first = 3;
  const Values rows = random_values(static_cast<std::size_t>(S * B * C), 1),
               seed = random_values(static_cast<std::size_t>(B * n * S * D), 2);
  Values heads(seed.size()), back(rows.size());
  reference::split_heads(heads.data(), rows.data(), B, n, S, D, C, first);
  reference::merge_heads(back.data(), seed.data(), B, n, S, D, C, first);
  EXPECT_NEAR(dot(heads, seed), dot(rows, back), 1e-12);  // <split(x), y> = <x, merge(y)>
}

TEST(ReferenceGradients, RopeInverseIsItsGradient) {
  const std::int64_t B = 2, n = 2, S = 3, D = 7, half = 3;
  Values x = random_values(static_cast<std::size_t>(B * n * S * D), 1), seed = random_values(x.size(), 2), y;
  Values cos, sin;
  for (int i = 0; i < 5 * half; ++i) cos.push_back(std::cos(0.3 * i)), sin.push_back(std::sin(0.3 * i));
  const std::vector<std::int32_t> position{4, 0, 2, 1, 3, 3};
  const auto loss = [&] {
    y = x;
    reference::rope(y.data(), cos.data(), sin.data(), position.data(), B, n, S, D, half, 1);
    return dot(y, seed);
  };
  Values gradient = seed;
  reference::rope(gradient.data(), cos.data(), sin.data(), position.data(), B, n, S, D, half, -1);
  expect_gradient(x, gradient, loss, "x");
}

TEST(ReferenceGradients, RmsNorm) {
  Values x = random_values(21, 1), weight = random_values(7, 2, 1.0), seed = random_values(21, 3), y(21), rstd(3), d_x(21),
         d_weight(7);
  const auto loss = [&] {
    reference::rms_norm_forward(y.data(), rstd.data(), x.data(), weight.data(), 3, 7, 1e-2);
    return dot(y, seed);
  };
  loss();
  reference::rms_norm_backward(d_x.data(), d_weight.data(), seed.data(), x.data(), weight.data(), rstd.data(), 3, 7);
  expect_gradient(x, d_x, loss, "x");
  expect_gradient(weight, d_weight, loss, "weight");
}

// Two parts of 3 and 4 columns are one row of 7.
TEST(ReferenceGradients, RmsNormInParts) {
  const std::int64_t rows = 3, total = 7;
  std::array<Values, 2> x, weight, seed, y, rstd, d_x, d_weight;
  const std::array<std::int64_t, 2> width{3, 4};
  Values squares(3), dots(3);
  for (const unsigned part : {0u, 1u}) {
    const auto n = static_cast<std::size_t>(width[part]);
    x[part] = random_values(3 * n, part + 10);
    weight[part] = random_values(n, part + 20, 1.0);
    seed[part] = random_values(3 * n, part + 30);
    y[part] = d_x[part] = Values(3 * n);
    d_weight[part] = Values(n);
    rstd[part] = Values(3);
  }
  const auto loss = [&] {
    Values one(3);
    squares.assign(3, 0.0);
    for (const unsigned part : {0u, 1u}) {
      reference::rms_norm_squares(one.data(), x[part].data(), rows, width[part]);
      for (std::size_t r = 0; r < 3; ++r) squares[r] += one[r];
    }
    double sum = 0;
    for (const unsigned part : {0u, 1u}) {
      reference::rms_norm_apply(y[part].data(), rstd[part].data(), x[part].data(), weight[part].data(), squares.data(), rows,
                                width[part], total, 1e-2);
      sum += dot(y[part], seed[part]);
    }
    return sum;
  };
  loss();
  for (const unsigned part : {0u, 1u}) {
    Values one(3);
    reference::rms_norm_dots(one.data(), seed[part].data(), x[part].data(), weight[part].data(), rows, width[part]);
    for (std::size_t r = 0; r < 3; ++r) dots[r] += one[r];
  }
  for (const unsigned part : {0u, 1u}) {
    reference::rms_norm_apply_backward(d_x[part].data(), d_weight[part].data(), seed[part].data(), x[part].data(),
                                       weight[part].data(), rstd[part].data(), dots.data(), rows, width[part], total);
    expect_gradient(x[part], d_x[part], loss, "x");
    expect_gradient(weight[part], d_weight[part], loss, "weight");
  }
}

TEST(ReferenceGradients, LayerNorm) {
  Values x = random_values(21, 1, 2.0), weight = random_values(7, 2, 1.0), bias = random_values(7, 5), seed = random_values(21, 3);
  Values y(21), mean(3), rstd(3), d_x(21), d_weight(7), d_bias(7);
  const auto loss = [&] {
    reference::layer_norm_forward(y.data(), mean.data(), rstd.data(), x.data(), weight.data(), bias.data(), 3, 7, 1e-2);
    return dot(y, seed);
  };
  loss();
  reference::layer_norm_backward(d_x.data(), d_weight.data(), d_bias.data(), seed.data(), x.data(), weight.data(), mean.data(),
                                 rstd.data(), 3, 7);
  expect_gradient(x, d_x, loss, "x");
  expect_gradient(weight, d_weight, loss, "weight");
  expect_gradient(bias, d_bias, loss, "bias");
}

TEST(ReferenceGradients, SwiGlu) {
  Values gate_up = random_values(30, 1), seed = random_values(15, 2), out(15), gradient(30);
  const auto loss = [&] {
    reference::swiglu_forward(out.data(), gate_up.data(), 3, 5);
    return dot(out, seed);
  };
  reference::swiglu_backward(gradient.data(), seed.data(), gate_up.data(), 3, 5);
  expect_gradient(gate_up, gradient, loss, "gate_up");
}

TEST(ReferenceGradients, Gelu) {
  Values x = random_values(20, 1), seed = random_values(20, 2), out(20), gradient(20);
  const auto loss = [&] {
    reference::gelu_forward(out.data(), x.data(), 20);
    return dot(out, seed);
  };
  reference::gelu_backward(gradient.data(), seed.data(), x.data(), 20);
  expect_gradient(x, gradient, loss, "x");
}

TEST(ReferenceGradients, Clip) {
  Values x = random_values(20, 1), seed = random_values(20, 2), out(20), gradient(20);
  const auto loss = [&] {
    reference::clip_forward(out.data(), x.data(), 20, 0.7);
    return dot(out, seed);
  };
  reference::clip_backward(gradient.data(), seed.data(), x.data(), 20, 0.7);
  expect_gradient(x, gradient, loss, "x");
}

TEST(ReferenceGradients, Embedding) {
  const std::vector<std::int32_t> tokens{4, 3, 9, 4, 2, 6};
  Values table = random_values(12, 1), seed = random_values(18, 2), out(18), gradient(12);
  const auto loss = [&] {
    reference::embedding_forward(out.data(), tokens.data(), table.data(), 6, 3, 3, 4);
    return dot(out, seed);
  };
  reference::embedding_backward(gradient.data(), seed.data(), tokens.data(), 6, 3, 3, 4);
  expect_gradient(table, gradient, loss, "table");
}

// Two shards of a vocabulary of 9 in 2 x 5 columns (one of padding); loss = scale * sum over counted rows of log(sum exp) - target.
void check_two_shards(double softcap) {
  const std::int64_t rows = 4, V = 5, vocabulary = 9;
  const std::vector<std::int32_t> targets{0, 8, -1, 6};
  const double scale = 0.37;
  Values shard[2] = {random_values(20, 1), random_values(20, 2)}, row_max(4), stats(8);
  const auto statistics = [&] {
    Values part_max(4), part(8);
    row_max.assign(4, -INFINITY);
    stats.assign(8, 0.0);
    for (int s = 0; s < 2; ++s) {
      reference::cross_entropy_max(part_max.data(), shard[s].data(), rows, V, s * V, vocabulary, softcap);
      for (std::size_t r = 0; r < 4; ++r) row_max[r] = std::max(row_max[r], part_max[r]);
    }
    for (int s = 0; s < 2; ++s) {
      reference::cross_entropy_stats(part.data(), shard[s].data(), row_max.data(), targets.data(), rows, V, s * V, vocabulary,
                                     softcap);
      for (std::size_t i = 0; i < 8; ++i) stats[i] += part[i];
    }
  };
  const auto loss = [&] {
    statistics();
    return scale * reference::cross_entropy_loss(stats.data(), targets.data(), rows);
  };
  statistics();
  Values gradient[2] = {shard[0], shard[1]};
  for (int s = 0; s < 2; ++s)
    reference::cross_entropy_backward(gradient[s].data(), row_max.data(), stats.data(), targets.data(), rows, V, s * V, vocabulary,
                                      scale, softcap);
  for (int s = 0; s < 2; ++s) expect_gradient(shard[s], gradient[s], loss, s == 0 ? "shard 0" : "shard 1");
}
TEST(ReferenceGradients, CrossEntropyOverTwoShards) { check_two_shards(0); }
TEST(ReferenceGradients, CrossEntropyOfBoundedLogits) { check_two_shards(1.5); }

TEST(ReferenceGradients, AddBias) {
  Values bias = random_values(4, 1), x = random_values(12, 2), seed = random_values(12, 3), y, gradient(4);
  const auto loss = [&] {
    y = x;
    reference::add_bias(y.data(), bias.data(), 3, 4);
    return dot(y, seed);
  };
  reference::sum_rows(gradient.data(), seed.data(), 3, 4);
  expect_gradient(bias, gradient, loss, "bias");
}

TEST(ReferenceGradients, DropoutIsItsOwnGradient) {
  const std::vector<std::int64_t> samples{3, 8};
  Values x = random_values(24, 1), seed = random_values(24, 2), y(24), gradient(24);
  const auto apply = [&](const Values& in, Values& out) {
    reference::dropout(out.data(), in.data(), 3, 2, 4, 0.4f, PhiloxKey{5, 6}, 3, 0, samples.data());
  };
  const auto loss = [&] {
    apply(x, y);
    return dot(y, seed);
  };
  apply(seed, gradient);
  expect_gradient(x, gradient, loss, "x");
}

// One step by hand: m = 0.1 g, v = 0.001 g^2, corrected to g and g^2, so the update is lr (sign(g) + decay w).
TEST(ReferenceOptimizer, FirstUpdateNumbersMovesByTheLearningRate) {
  Values w{1.0, -2.0}, m(2), v(2);
  const Values g{0.5, -3.0};
  reference::adamw(w.data(), m.data(), v.data(), g.data(), 2,
                   reference::AdamW<double>{0.01, 0.9, 0.999, 0.0, 0.1, 1.0, 10.0, 1000.0});
  EXPECT_NEAR(w[0], 1.0 - 0.01 * (1.0 + 0.1), 1e-12);
  EXPECT_NEAR(w[1], -2.0 - 0.01 * (-1.0 - 0.2), 1e-12);
  EXPECT_NEAR(m[1], -0.3, 1e-12);
  EXPECT_NEAR(v[1], 0.009, 1e-12);
}

}  // namespace
}  // namespace trident
