#include <cstdint>

#include "case_table.h"
#include "tests/support/reference_ops.h"

namespace trident::testing {
namespace {

struct HeadSizes {
  Index batch, heads, sequence, dim, columns, first_column;
};

void split_case(const RowKernels& k, RowType t, const HeadSizes& z) {
  Random random(1);
  const Values rows = random.values(t, z.sequence * z.batch * z.columns);
  const Index count = z.batch * z.heads * z.sequence * z.dim;
  Values expected(static_cast<std::size_t>(count));
  reference::split_heads(expected.data(), rows.data(), z.batch, z.heads, z.sequence, z.dim, z.columns, z.first_column);
  Operand in(t, rows), out(t, count);
  k.split_heads(t, out.data(), in.data(), z.batch, z.heads, z.sequence, z.dim, z.columns, z.first_column);
  EXPECT_EQ(out.values(), expected);
}

void merge_case(const RowKernels& k, RowType t, const HeadSizes& z) {
  Random random(2);
  const Values heads = random.values(t, z.batch * z.heads * z.sequence * z.dim);
  Values expected = random.values(t, z.sequence * z.batch * z.columns);  // other columns are left alone
  Operand in(t, heads), out(t, expected);
  reference::merge_heads(expected.data(), heads.data(), z.batch, z.heads, z.sequence, z.dim, z.columns, z.first_column);
  k.merge_heads(t, out.data(), in.data(), z.batch, z.heads, z.sequence, z.dim, z.columns, z.first_column);
  EXPECT_EQ(out.values(), expected);
}

void rope_case(const RowKernels& k, RowType t, Index dim, Index half, Transpose inverse) {
  const Index batch = 2, heads = 3, sequence = 5, positions = 11;
  Random random(static_cast<unsigned>(dim));
  Values expected = random.values(t, batch * heads * sequence * dim);
  Values cos = random.values(RowType::kF32, positions * half), sin = random.values(RowType::kF32, positions * half);
  const auto position = random.integers(batch * sequence, 0, positions - 1);
  Operand x(t, expected), c(RowType::kF32, cos), s(RowType::kF32, sin);
  reference::rope(expected.data(), cos.data(), sin.data(), position.data(), batch, heads, sequence, dim, half,
                  inverse == Transpose::kYes ? -1 : 1);
  k.rope(t, x.data(), c.floats(), s.floats(), position.data(), batch, heads, sequence, dim, half, inverse);
  expect_close(x.values(), expected, t, "rotated");
}

// To the bit the two passes one after the other.
void rotated_case(const RowKernels& k, RowType t, const HeadSizes& z, bool merges) {
  const Index half = z.dim / 3, positions = 7, count = z.batch * z.heads * z.sequence * z.dim;
  Random random(3);
  const Values cos = random.values(RowType::kF32, positions * half), sin = random.values(RowType::kF32, positions * half);
  const auto position = random.integers(z.batch * z.sequence, 0, positions - 1);
  Operand rows(t, random.values(t, z.sequence * z.batch * z.columns)), heads(t, random.values(t, count)), c(RowType::kF32, cos),
      s(RowType::kF32, sin);
  Operand one_by_one = merges ? rows : heads, together = one_by_one;
  const auto turn = [&](Operand& x, Transpose inverse) {
    k.rope(t, x.data(), c.floats(), s.floats(), position.data(), z.batch, z.heads, z.sequence, z.dim, half, inverse);
  };
  if (merges) {
    k.merge_rotated_heads(t, together.data(), heads.data(), z.batch, z.heads, z.sequence, z.dim, z.columns, z.first_column,
                          c.floats(), s.floats(), position.data(), half);
    turn(heads, Transpose::kYes);
    k.merge_heads(t, one_by_one.data(), heads.data(), z.batch, z.heads, z.sequence, z.dim, z.columns, z.first_column);
  } else {
    k.split_rotated_heads(t, together.data(), rows.data(), z.batch, z.heads, z.sequence, z.dim, z.columns, z.first_column,
                          c.floats(), s.floats(), position.data(), half);
    k.split_heads(t, one_by_one.data(), rows.data(), z.batch, z.heads, z.sequence, z.dim, z.columns, z.first_column);
    turn(one_by_one, Transpose::kNo);
  }
  EXPECT_EQ(together.bits(), one_by_one.bits());
}

void swiglu_forward_case(const RowKernels& k, RowType t, Index rows, Index width) {
  Random random(static_cast<unsigned>(width));
  const Values gate_up = random.values(t, rows * 2 * width, 0.0, 4.0);
  Values expected(static_cast<std::size_t>(rows * width));
  reference::swiglu_forward(expected.data(), gate_up.data(), rows, width);
  Operand in(t, gate_up), out(t, rows * width);
  k.swiglu_forward(t, out.data(), in.data(), rows, width);
  expect_close(out.values(), expected, t, "out");
}

void swiglu_backward_case(const RowKernels& k, RowType t, Index rows, Index width) {
  Random random(static_cast<unsigned>(width));
  const Values gate_up = random.values(t, rows * 2 * width, 0.0, 4.0), d_out = random.values(t, rows * width);
  Values expected(static_cast<std::size_t>(rows * 2 * width));
  reference::swiglu_backward(expected.data(), d_out.data(), gate_up.data(), rows, width);
  Operand in(t, gate_up), gradient(t, d_out), out(t, rows * 2 * width);
  k.swiglu_backward(t, out.data(), gradient.data(), in.data(), rows, width);
  expect_close(out.values(), expected, t, "d_gate_up");
  Operand forward(t, rows * width);
  k.swiglu_forward(t, forward.data(), in.data(), rows, width);
  EXPECT_EQ(gradient.bits(), forward.bits()) << "what forward gave";
}

constexpr Index kFirstRow = 20, kTableRows = 9;

// Tokens before, in and after the shard, with repetitions.
std::vector<std::int32_t> tokens_of(Random& random, Index rows) { return random.integers(rows, 15, 34); }

void embedding_forward_case(const RowKernels& k, RowType t, Index rows, Index width) {
  Random random(static_cast<unsigned>(width));
  const auto tokens = tokens_of(random, rows);
  const Values table = random.values(t, kTableRows * width);
  Values expected(static_cast<std::size_t>(rows * width));
  reference::embedding_forward(expected.data(), tokens.data(), table.data(), rows, width, kFirstRow, kTableRows);
  Operand in(t, table), out(t, rows * width);
  k.embedding_forward(t, out.data(), tokens.data(), in.data(), rows, width, kFirstRow, kTableRows);
  EXPECT_EQ(out.values(), expected);
}

void check_embedding_backward(const RowKernels& k, RowType t, Index width, Random& random,
                              const std::vector<std::int32_t>& tokens) {
  const Index rows = static_cast<Index>(tokens.size());
  const Values d_out = random.values(t, rows * width), old = random.values(RowType::kF32, kTableRows * width);
  // In float, in token order: the bits are prescribed.
  std::vector<float> expected(old.begin(), old.end()), gradient(d_out.begin(), d_out.end());
  reference::embedding_backward(expected.data(), gradient.data(), tokens.data(), rows, width, kFirstRow, kTableRows);
  Operand in(t, d_out), out(RowType::kF32, old);
  k.embedding_backward(t, out.floats(), in.data(), tokens.data(), rows, width, kFirstRow, kTableRows);
  EXPECT_EQ(out.values(), Values(expected.begin(), expected.end()));
}

void embedding_backward_case(const RowKernels& k, RowType t, Index rows, Index width) {
  Random random(static_cast<unsigned>(width));
  const auto tokens = tokens_of(random, rows);
  check_embedding_backward(k, t, width, random, tokens);
}

// One token makes up most of the batch.
void embedding_backward_skewed_case(const RowKernels& k, RowType t, Index rows, Index width) {
  Random random(static_cast<unsigned>(rows));
  auto tokens = tokens_of(random, rows);
  const auto kept = random.integers(rows, 0, 3);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (kept[i] != 0) tokens[i] = kFirstRow + 3;
  check_embedding_backward(k, t, width, random, tokens);
}

void add_bias_case(const RowKernels& k, RowType t, Index rows, Index width) {
  Random random(static_cast<unsigned>(width));
  Values expected = random.values(t, rows * width);
  const Values bias = random.values(t, width);
  Operand x(t, expected), b(t, bias);
  reference::add_bias(expected.data(), bias.data(), rows, width);
  k.add_bias(t, x.data(), b.data(), rows, width);
  expect_close(x.values(), expected, t, "x");
}

void sum_rows_case(const RowKernels& k, RowType t, Index rows, Index width, Accumulate accumulate) {
  Random random(static_cast<unsigned>(width));
  const Values x = random.values(t, rows * width), old = random.values(RowType::kF32, width);
  // In float, in row order: the bits are prescribed.
  std::vector<float> expected(static_cast<std::size_t>(width)), terms(x.begin(), x.end());
  if (accumulate == Accumulate::kYes) expected.assign(old.begin(), old.end());
  reference::sum_rows(expected.data(), terms.data(), rows, width);
  Operand in(t, x), out(RowType::kF32, old), products(RowType::kF32, old);
  k.sum_rows(t, out.floats(), in.data(), nullptr, rows, width, accumulate);
  EXPECT_EQ(out.values(), Values(expected.begin(), expected.end()));
  const Values times = random.values(t, rows * width);
  Values sums = accumulate == Accumulate::kYes ? old : Values(old.size());
  for (std::size_t i = 0; i < x.size(); ++i) sums[i % static_cast<std::size_t>(width)] += x[i] * times[i];
  Operand by(t, times);
  k.sum_rows(t, products.floats(), in.data(), by.data(), rows, width, accumulate);
  expect_close(products.values(), sums, RowType::kF32, "sums of products", 1e-5);
}

void scale_columns_case(const RowKernels& k, RowType t, Index rows, Index width) {
  Random random(static_cast<unsigned>(width));
  const Values x = random.values(t, rows * width), old = random.values(t, rows * width);
  const Values factor = random.values(RowType::kF32, width);
  Operand in(t, x), scaled(t, rows * width), sum(t, old), by(RowType::kF32, factor);
  Values expected(x.size()), added(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    expected[i] = x[i] * (factor[i % static_cast<std::size_t>(width)] - 1);
    added[i] = old[i] + expected[i];
  }
  k.scale_columns(t, scaled.data(), in.data(), by.floats(), -1, rows, width, Accumulate::kNo);
  expect_close(scaled.values(), expected, t, "out");
  k.scale_columns(t, sum.data(), in.data(), by.floats(), -1, rows, width, Accumulate::kYes);
  expect_close(sum.values(), added, t, "sum");
  k.scale_columns(t, in.data(), in.data(), by.floats(), -1, rows, width, Accumulate::kNo);
  EXPECT_EQ(in.bits(), scaled.bits()) << "in place";
}

void dropout_case(const RowKernels& k, RowType t, Index width, float probability, bool in_place) {
  const Index sequence = 3, batch = 2;
  Random random(static_cast<unsigned>(width));
  const Values x = random.values(t, sequence * batch * width);
  // The second sample's element numbers lie beyond 2^34, so that counter blocks need their upper word.
  const std::vector<std::int64_t> samples{5, 3'000'000'019};
  const DropoutSpec spec{probability, {0x12345678u, 0x9abcdef0u}, 64, 7};
  Values expected(x.size());
  reference::dropout(expected.data(), x.data(), sequence, batch, width, probability, PhiloxKey{spec.key[0], spec.key[1]},
                     spec.sequence, spec.position_offset, samples.data());
  Operand in(t, x), other(t, static_cast<Index>(x.size()));
  Operand& out = in_place ? in : other;
  k.dropout(t, out.data(), in.data(), samples.data(), sequence, batch, width, spec);
  const Values actual = out.values();
  for (std::size_t i = 0; i < actual.size(); ++i) ASSERT_EQ(actual[i] == 0, expected[i] == 0) << "mask at " << i;
  expect_close(actual, expected, t, "out");
}

using SizedRun = void (*)(const RowKernels&, RowType, Index, Index);

void add_sized(std::vector<OpCase>& cases, const char* op, SizedRun run) {
  for (const Index width : kWidths)
    for (const Index rows : {0, 1, 13})
      cases.push_back({op, std::to_string(rows) + "x" + std::to_string(width),
                       [=](const RowKernels& k, RowType t) { run(k, t, rows, width); }});
  cases.push_back({op, "2x" + std::to_string(kLongWidth), [=](const RowKernels& k, RowType t) { run(k, t, 2, kLongWidth); }});
}

}  // namespace

std::vector<OpCase> row_cases() {
  std::vector<OpCase> cases;
  add_sized(cases, "swiglu_forward", swiglu_forward_case);
  add_sized(cases, "swiglu_backward", swiglu_backward_case);
  add_sized(cases, "embedding_forward", embedding_forward_case);
  add_sized(cases, "embedding_backward", embedding_backward_case);
  for (const Index rows : {100, 1700})
    cases.push_back({"embedding_backward", "skewed_" + std::to_string(rows),
                     [=](const RowKernels& k, RowType t) { embedding_backward_skewed_case(k, t, rows, 8); }});
  add_sized(cases, "add_bias", add_bias_case);
  add_sized(cases, "scale_columns", scale_columns_case);
  add_sized(cases, "sum_rows",
            [](const RowKernels& k, RowType t, Index r, Index w) { sum_rows_case(k, t, r, w, Accumulate::kNo); });
  for (const Index width : {5, 64})
    cases.push_back({"sum_rows", "add_" + std::to_string(width),
                     [=](const RowKernels& k, RowType t) { sum_rows_case(k, t, 4, width, Accumulate::kYes); }});
  const std::vector<HeadSizes> sizes{{1, 1, 1, 1, 1, 0},  {2, 3, 5, 7, 40, 11}, {3, 2, 4, 16, 32, 0},
                                     {2, 2, 0, 8, 16, 0}, {2, 0, 3, 8, 16, 4},  {2, 20, 3, 64, 1400, 72}};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const HeadSizes z = sizes[i];
    cases.push_back({"split_heads", std::to_string(i), [=](const RowKernels& k, RowType t) { split_case(k, t, z); }});
    cases.push_back({"merge_heads", std::to_string(i), [=](const RowKernels& k, RowType t) { merge_case(k, t, z); }});
    for (const bool merges : {false, true})
      cases.push_back({merges ? "merge_rotated_heads" : "split_rotated_heads", std::to_string(i),
                       [=](const RowKernels& k, RowType t) { rotated_case(k, t, z, merges); }});
  }
  for (const auto& [dim, half] : std::vector<std::pair<Index, Index>>{
           {2, 1}, {8, 4}, {64, 32}, {80, 20}, {33, 16}, {96, 48}, {7, 0}, {1024, 512}, {2200, 1100}})
    for (const Transpose inverse : {Transpose::kNo, Transpose::kYes})
      cases.push_back({"rope", std::to_string(dim) + "_" + std::to_string(half) + (inverse == Transpose::kYes ? "_inverse" : ""),
                       [d = dim, h = half, inverse](const RowKernels& k, RowType t) { rope_case(k, t, d, h, inverse); }});
  for (const Index width : {0, 1, 2, 3, 5, 16, 63, 64, 67, 258, 2056})
    for (const float p : {0.0f, 0.1f, 0.75f})
      for (const bool in_place : {false, true})
        cases.push_back({"dropout",
                         std::to_string(width) + "_p" + std::to_string(static_cast<int>(p * 100)) + (in_place ? "_alias" : ""),
                         [=](const RowKernels& k, RowType t) { dropout_case(k, t, width, p, in_place); }});
  return cases;
}

}  // namespace trident::testing
