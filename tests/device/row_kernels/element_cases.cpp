#include <cstdint>

#include "case_table.h"
#include "tests/support/reference_ops.h"
#include "tests/support/stochastic_rounding.h"

namespace trident::testing {
namespace {

Values empty_like(const Values& x) { return Values(x.size()); }

void gelu_forward_case(const RowKernels& k, RowType t, Index count) {
  Random random(static_cast<unsigned>(count));
  const Values x = random.values(t, count, 0.0, 3.0);
  Values expected = empty_like(x);
  reference::gelu_forward(expected.data(), x.data(), count);
  Operand in(t, x), out(t, count);
  k.gelu_forward(t, out.data(), in.data(), count);
  expect_close(out.values(), expected, t, "out");
}

void gelu_backward_case(const RowKernels& k, RowType t, Index count) {
  Random random(static_cast<unsigned>(count));
  const Values x = random.values(t, count, 0.0, 3.0), d_out = random.values(t, count);
  Values expected = empty_like(x);
  reference::gelu_backward(expected.data(), d_out.data(), x.data(), count);
  Operand in(t, x), gradient(t, d_out), out(t, count);
  k.gelu_backward(t, out.data(), gradient.data(), in.data(), count);
  expect_close(out.values(), expected, t, "d_x");
  Operand forward(t, count);
  k.gelu_forward(t, forward.data(), in.data(), count);
  EXPECT_EQ(gradient.bits(), forward.bits()) << "what forward gave";
}

// To the bit the two passes one after the other.
void bias_gelu_case(const RowKernels& k, RowType t, Index width) {
  const Index rows = 3;
  Random random(static_cast<unsigned>(width));
  Operand x(t, random.values(t, rows * width, 0.0, 3.0)), bias(t, random.values(t, width)), out(t, rows * width);
  Operand sum = x, expected = out;
  k.add_bias(t, sum.data(), bias.data(), rows, width);
  k.gelu_forward(t, expected.data(), sum.data(), rows * width);
  k.bias_gelu(t, out.data(), x.data(), bias.data(), rows, width);
  EXPECT_EQ(x.bits(), sum.bits());
  EXPECT_EQ(out.bits(), expected.bits());
}

void clip_case(const RowKernels& k, RowType t, Index count) {
  Random random(static_cast<unsigned>(count));
  const Values x = random.values(t, count, 0.0, 3.0), d_out = random.values(t, count);
  Values expected = empty_like(x);
  Operand in(t, x), gradient(t, d_out), out(t, count);
  reference::clip_forward(expected.data(), x.data(), count, 1.5);
  k.clip_forward(t, out.data(), in.data(), count, 1.5f);
  expect_close(out.values(), expected, t, "out");
  reference::clip_backward(expected.data(), d_out.data(), x.data(), count, 1.5);
  k.clip_backward(t, out.data(), gradient.data(), in.data(), count, 1.5f);
  expect_close(out.values(), expected, t, "d_x");
}

enum class Alias { kNone, kFirst, kSecond };

void add_case(const RowKernels& k, RowType t, Index count, Alias alias) {
  Random random(static_cast<unsigned>(count));
  const Values a = random.values(t, count), b = random.values(t, count);
  Values expected = empty_like(a);
  reference::add(expected.data(), a.data(), b.data(), count);
  Operand left(t, a), right(t, b), other(t, count);
  Operand& out = alias == Alias::kFirst ? left : alias == Alias::kSecond ? right : other;
  k.add(t, out.data(), left.data(), right.data(), count);
  expect_close(out.values(), expected, t, "out");
}

void accumulate_case(const RowKernels& k, RowType, Index count) {
  Random random(static_cast<unsigned>(count));
  const Values a = random.values(RowType::kF32, count), b = random.values(RowType::kF32, count);
  std::vector<float> expected(a.begin(), a.end()), terms(b.begin(), b.end());
  reference::accumulate(expected.data(), terms.data(), count);
  Operand out(RowType::kF32, a), in(RowType::kF32, b);
  k.accumulate(out.floats(), in.floats(), count);
  EXPECT_EQ(out.values(), Values(expected.begin(), expected.end()));
}

void convert_case(const RowKernels& k, RowType t, Index count, RowType to) {
  Random random(static_cast<unsigned>(count));
  if (t != RowType::kF32 && to != RowType::kF32 && t != to) return;  // no such conversion
  const Values x = random.values(t, count, 0.0, 100.0);
  Operand in(t, x), out(to, count), expected(to, x);
  k.convert(to, out.data(), t, in.data(), count);
  EXPECT_EQ(out.bits(), expected.bits());
}

void fill_zero_case(const RowKernels& k, RowType t, Index count) {
  Operand out(t, count);
  k.fill_zero(out.data(), count * (t == RowType::kF32 ? 4 : 2));
  EXPECT_EQ(out.values(), Values(static_cast<std::size_t>(count)));
}

void sum_squares_case(const RowKernels& k, RowType, Index count) {
  Random random(static_cast<unsigned>(count));
  const Values x = random.values(RowType::kF32, count);
  const auto blocks = static_cast<std::size_t>((count + 63) / 64);
  Values expected(blocks), actual(blocks + 1, -1.0);
  reference::sum_squares(expected.data(), x.data(), count);
  Operand in(RowType::kF32, x);
  k.sum_squares(actual.data(), in.floats(), count);
  EXPECT_EQ(actual[blocks], -1.0);
  for (std::size_t i = 0; i < blocks; ++i) EXPECT_NEAR(actual[i], expected[i], 1e-14 * expected[i]);
}

void update_case(UpdateRule rule, const RowKernels& k, RowType t, Index count, float weight_decay, bool param_is_master,
                 const RoundedElements* elements = nullptr) {
  Random random(static_cast<unsigned>(count));
  const Values w = random.values(RowType::kF32, count), g = random.values(RowType::kF32, count);
  const Values m = random.values(RowType::kF32, count, 0.0, 0.1);
  Values v = random.values(RowType::kF32, count, 0.0, 0.1);
  for (double& x : v) x = std::abs(x);
  const UpdateNumbers step{1e-2f, 0.9f, 0.95f, 1e-8f, weight_decay, 0.5f, 1.0f / (1.0f - 0.81f), 1.0f / (1.0f - 0.9025f), {2, 0}};
  Values master = w, next_m = m, next_v = v;
  if (rule == UpdateRule::kAdamW)
    reference::adamw(master.data(), next_m.data(), next_v.data(), g.data(), count,
                     reference::AdamW<double>{step.lr, step.beta1, step.beta2, step.eps, step.weight_decay, step.grad_scale,
                                              step.bias_correction1, step.bias_correction2});
  else
    reference::lion(master.data(), next_m.data(), g.data(), count,
                    reference::Lion<double>{step.lr, step.beta1, step.beta2, step.weight_decay, step.grad_scale});
  Operand p(t, count), pw(RowType::kF32, w), pm(RowType::kF32, m), pv(RowType::kF32, v), pg(RowType::kF32, g);
  k.update(rule, t, param_is_master ? pw.data() : p.data(), pw.floats(), {{pm.floats(), pv.floats()}}, pg.floats(), count, step,
           elements);
  expect_close(pw.values(), master, RowType::kF32, "master");
  expect_close(pm.values(), next_m, RowType::kF32, "m");
  expect_close(pv.values(), next_v, RowType::kF32, "v");
  if (param_is_master) return;
  Values expected = pw.values();
  if (elements != nullptr)
    for (Index i = 0; i < count; ++i) {
      double& x = expected[static_cast<std::size_t>(i)];
      const std::uint64_t element = tensor_element(*elements, i);
      x = to_float(rounded_at_random(static_cast<float>(x), rounding_bits(*elements, step.update_number(), element)));
    }
  EXPECT_EQ(p.bits(), Operand(t, expected).bits()) << "param is the rounded master";
}

}  // namespace

std::vector<OpCase> element_cases() {
  std::vector<OpCase> cases;
  std::vector<Index> counts = kWidths;
  counts.insert(counts.end(), {0, kLongWidth, 2 * kLongWidth + 1});
  for (const Index n : counts) {
    const std::string size = std::to_string(n);
    const auto add = [&](const char* op, const std::string& variant, auto run) { cases.push_back({op, variant, run}); };
    add("gelu_forward", size, [=](const RowKernels& k, RowType t) { gelu_forward_case(k, t, n); });
    add("bias_gelu", size, [=](const RowKernels& k, RowType t) { bias_gelu_case(k, t, n); });
    add("gelu_backward", size, [=](const RowKernels& k, RowType t) { gelu_backward_case(k, t, n); });
    for (const char* op : {"clip_forward", "clip_backward"})
      add(op, size, [=](const RowKernels& k, RowType t) { clip_case(k, t, n); });
    add("add", size, [=](const RowKernels& k, RowType t) { add_case(k, t, n, Alias::kNone); });
    add("add", size + "_alias_a", [=](const RowKernels& k, RowType t) { add_case(k, t, n, Alias::kFirst); });
    add("add", size + "_alias_b", [=](const RowKernels& k, RowType t) { add_case(k, t, n, Alias::kSecond); });
    add("accumulate", size, [=](const RowKernels& k, RowType t) { accumulate_case(k, t, n); });
    for (const RowType to : kRowTypes)
      add("convert", size + "_to_" + to_string(to), [=](const RowKernels& k, RowType t) { convert_case(k, t, n, to); });
    add("fill_zero", size, [=](const RowKernels& k, RowType t) { fill_zero_case(k, t, n); });
    add("sum_squares", size, [=](const RowKernels& k, RowType t) { sum_squares_case(k, t, n); });
    for (const UpdateRule f : kUpdateRules) {
      const std::string variant = to_string(f) + ("_" + size);
      add("update", variant, [=](const RowKernels& k, RowType t) { update_case(f, k, t, n, 0.1f, false); });
      add("update", variant + "_no_decay", [=](const RowKernels& k, RowType t) { update_case(f, k, t, n, 0.0f, false); });
      // In elements of the tensor one after another, and in rows of 36 of its 100 columns, from column 12 or 13 on.
      for (const Index first : {0, 4, 37})
        add("update", variant + "_at_random_from_" + std::to_string(first), [=](const RowKernels& k, RowType t) {
          const RoundedElements elements{{11, 12}, first, 0, 100, 100};
          if (t == RowType::kBF16) update_case(f, k, t, n, 0.1f, false, &elements);
        });
      for (const Index column : {12, 13})
        add("update", variant + "_at_random_from_column_" + std::to_string(column), [=](const RowKernels& k, RowType t) {
          const RoundedElements elements{{11, 12}, (Index{1} << 36) + 64, column, 36, 100};
          if (t == RowType::kBF16) update_case(f, k, t, n, 0.1f, false, &elements);
        });
      add("update", variant + "_alias", [=](const RowKernels& k, RowType t) {
        if (t == RowType::kF32) update_case(f, k, t, n, 0.1f, true);  // only an f32 parameter can be the master itself
      });
    }
  }
  return cases;
}

}  // namespace trident::testing
