#include "device/operations.h"

#include <algorithm>
#include <initializer_list>

#include "core/check.h"

namespace trident {

std::int64_t Field::bytes_moved() const {
  if (moved >= 0) return moved;
  switch (use) {
    case Use::kRead:
    case Use::kWrite: return view().num_bytes();
    case Use::kUpdate: return 2 * view().num_bytes();
    case Use::kScratch: break;
  }
  return 0;
}

void check_fields(std::string_view operation, FunctionRef<void(FieldVisitor)> fields, bool (*reaches)(MemoryKind)) {
  fields([&](const Field& field) {
    const Elements& expected = field.expected;
    const std::int64_t count = field.shape->num_elements();
    TRIDENT_CHECK(field.dtype == expected.dtype && count == expected.count, "{}: {} is {} {}, expected {} elements of {}",
                  operation, field.name, to_string(field.dtype), to_string(*field.shape), expected.count,
                  to_string(expected.dtype));
    const bool none = count == 0 || (field.use == Field::Use::kScratch && field.data == nullptr);
    TRIDENT_CHECK(none || reaches(field.where), "{}: {} lies in {} memory", operation, field.name,
                  field.where == MemoryKind::kDevice ? "device" : "host");
  });
}

namespace op {
namespace {

Shape query_shape(const AttentionShape& s) { return {s.batch, s.query_heads, s.query_length, s.head_dim}; }
Shape key_shape(const AttentionShape& s) { return {s.batch, s.kv_heads, s.key_length, s.head_dim}; }

// Heads of `shape`, or rows of which that many elements are meant.
Field of_heads(Field field, const AttentionShape& s, const Shape& shape) {
  const std::int64_t count = shape.num_elements();
  if (field.shape->rank() != 3) return field.expected = {s.dtype, count}, field;
  field.expected.dtype = s.dtype;
  return field.moving(count * size_of(s.dtype));
}
Elements sums(const AttentionShape& s) { return {DType::kF32, s.batch * s.query_heads * s.query_length}; }

void first_key_field(const AttentionShape& s, ConstTensorView first_key, FieldVisitor f) {
  if (s.interval > 0) f(reads("first_key", first_key, {DType::kI32, s.batch * s.query_length}));
}

void check_rotation(std::string_view operation, const AttentionShape& s, const Rotation& rotation) {
  if (!rotation.turns()) return;
  TRIDENT_CHECK(s.query_length == s.key_length, "{}: {} queries and {} keys turn by the same positions", operation, s.query_length,
                s.key_length);
  rotation.check(operation, key_shape(s));
}

struct NamedShape {
  std::string_view name;
  const Shape& shape;
  std::int64_t first_column = 0;
};
void check_shapes(std::string_view operation, const Shape& expected, std::initializer_list<NamedShape> operands) {
  for (const auto& [name, shape, column] : operands) {
    if (shape.rank() != 3) {
      TRIDENT_CHECK(shape == expected, "{}: {} is {}, expected {}", operation, name, to_string(shape), to_string(expected));
      continue;
    }
    const bool fits = shape[0] == expected[2] && shape[1] == expected[0] && column >= 0 &&
                      column + expected[1] * expected[3] <= shape[2];
    TRIDENT_CHECK(fits, "{}: {} is columns {}.. of rows {}, expected heads {}", operation, name, column, to_string(shape),
                  to_string(expected));
  }
}

// Multiply-adds of one matrix of scores, [queries, keys] x width, as far as the mask leaves them; times two.
double scores(const AttentionShape& s) {
  double pairs = static_cast<double>(s.query_length) * static_cast<double>(s.key_length);
  if (s.causal) {
    // Query i sees first + i keys, of those that there are.
    const std::int64_t first = s.query_offset - s.key_offset + 1;
    const std::int64_t some = std::clamp<std::int64_t>(1 - first, 0, s.query_length);
    const std::int64_t seen = s.interval > 0 ? std::min(s.interval, s.key_length) : s.key_length;  // by a query at most
    const std::int64_t all = std::clamp<std::int64_t>(seen - first, some, s.query_length);
    pairs = static_cast<double>((all - some) * (2 * first + some + all - 1) / 2 + (s.query_length - all) * seen);
  }
  return 2.0 * static_cast<double>(s.batch * s.query_heads * s.head_dim) * pairs;
}

}  // namespace

// ---- products

MatmulShape Matmul::shape() const {
  const ConstTensorView a = operands.a, b = operands.b;
  const RowExtent stored_a = row_extent(a), stored_b = row_extent(b), out = row_extent(operands.out);
  const bool ta = operands.transpose_a == Transpose::kYes, tb = operands.transpose_b == Transpose::kYes;
  const MatmulShape shape{ta ? stored_a.width : stored_a.rows,
                          tb ? stored_b.rows : stored_b.width,
                          ta ? stored_a.rows : stored_a.width,
                          operands.transpose_a,
                          operands.transpose_b,
                          a.dtype(),
                          operands.out.dtype(),
                          operands.accumulate,
                          operands.scale};
  TRIDENT_CHECK((tb ? stored_b.width : stored_b.rows) == shape.k, "matmul: a {} and b {} do not fit together", to_string(a.shape()),
                to_string(b.shape()));
  TRIDENT_CHECK(out.rows == shape.m && out.width == shape.n, "matmul: out is {}, expected [{}, {}]",
                to_string(operands.out.shape()), shape.m, shape.n);
  return shape;
}

void Matmul::fields(FieldVisitor f) const {
  const MatmulOperands& p = operands;
  f(results_in("out", p.out, like(p.out), p.accumulate));
  f(reads("a", p.a));
  f(reads("b", p.b, {p.a.dtype(), p.b.num_elements()}));
  f(scratch("the workspace", p.workspace));
}

double Matmul::flops() const {
  const Shape& a = operands.a.shape();
  const std::int64_t inner = operands.transpose_a == Transpose::kYes ? a[0] : a[1];
  return 2.0 * static_cast<double>(operands.out.num_elements()) * static_cast<double>(inner);
}

OperationName Fused::name() const {
  switch (call.epilogue) {
    case Epilogue::kNone: case Epilogue::kSummands: break;
    case Epilogue::kBias: return {"matmul_bias", WorkKind::kMatmuls};
    case Epilogue::kBiasGelu: return {"matmul_bias_gelu", WorkKind::kMatmuls};
    case Epilogue::kGeluBackward: return {"matmul_gelu_backward", WorkKind::kMatmuls};
    case Epilogue::kBiasGradient: return {"matmul_bias_gradient", WorkKind::kMatmuls};
  }
  return Matmul::kName;
}

void Fused::fields(FieldVisitor f) const {
  const bool keeps_product = call.epilogue != Epilogue::kGeluBackward;  // else it is scratch, and not written
  Matmul{call.product}.fields([&](const Field& field) { f(field.name == "out" && !keeps_product ? field.moving(0) : field); });
  if (call.epilogue == Epilogue::kBias || call.epilogue == Epilogue::kBiasGelu) f(reads("bias", call.bias));
  if (call.epilogue == Epilogue::kGeluBackward) f(reads("pre", call.pre));
  if (call.residual.shape().rank() > 0) f(reads("residual", call.residual, like(call.product.out)));
  if (call.rank() > 0) {
    f(reads("inner", call.inner, {call.product.a.dtype(), row_extent(call.product.out).rows * call.rank()}));
    f(reads("outer", call.outer, {call.product.b.dtype(), row_extent(call.product.out).width * call.rank()}));
  }
  if (call.epilogue == Epilogue::kBiasGelu || call.epilogue == Epilogue::kGeluBackward || call.epilogue == Epilogue::kBiasGradient)
    f(results_in("result", call.result, like(call.result), call.product.accumulate));
}

// ---- attention

void check_attention(std::string_view operation, const AttentionShape& s) {
  TRIDENT_CHECK(s.kv_heads > 0 && s.query_heads > 0 && s.query_heads % s.kv_heads == 0,
                "{}: {} query heads over {} key/value heads", operation, s.query_heads, s.kv_heads);
  TRIDENT_CHECK(s.dtype == DType::kF32 || s.dtype == DType::kBF16 || s.dtype == DType::kF16, "{}: dtype {}", operation,
                to_string(s.dtype));
  TRIDENT_CHECK(s.head_dim > 0, "{}: head width {}", operation, s.head_dim);
  TRIDENT_CHECK(s.interval >= 0 && (s.interval == 0 || s.causal), "{}: intervals of {} keys, causal {}", operation, s.interval,
                s.causal);
  TRIDENT_CHECK(s.softcap >= 0, "{}: scores bounded by {}", operation, s.softcap);
}

// The operands of attention's forward pass, over a cache or not.
template <class Forward>
void forward_fields(const Forward& o, FieldVisitor f) {
  const Shape queries = query_shape(o.shape), keys = key_shape(o.shape);
  f(of_heads(writes("out", o.out), o.shape, queries));
  f(of_heads(reads("q", o.q), o.shape, queries));
  f(of_heads(reads("k", o.k), o.shape, keys));
  f(of_heads(reads("v", o.v), o.shape, keys));
  f(writes("lse", o.lse, sums(o.shape)));
  first_key_field(o.shape, o.first_key, f);
  f(scratch("the workspace", o.workspace));
}

void AttentionForward::check() const {
  check_attention(kName.name, shape);
  check_rotation(kName.name, shape, rotation);
  check_shapes(kName.name, query_shape(shape), {{"out", out.shape()}, {"q", q.shape(), columns.q}});
  check_shapes(kName.name, key_shape(shape), {{"k", k.shape(), columns.k}, {"v", v.shape(), columns.v}});
}

void AttentionForward::fields(FieldVisitor f) const {
  forward_fields(*this, f);
  if (rotation.turns()) rotation.fields(f, key_shape(shape));
}

double AttentionForward::flops() const { return 2 * scores(shape); }

AttentionShape CachedAttention::of_sample(std::int64_t b) const {
  AttentionShape one = shape;
  one.batch = 1;
  one.query_offset = first[static_cast<std::size_t>(b)];
  return one;
}

void CachedAttention::check() const {
  check_attention(kName.name, shape);
  TRIDENT_CHECK(shape.causal && shape.query_offset == 0 && shape.key_offset == 0,
                "{}: causal {}, offsets {} and {}; it is causal, queries begin at positions of their own and keys at 0", kName.name,
                shape.causal, shape.query_offset, shape.key_offset);
  TRIDENT_CHECK(std::ssize(first) == shape.batch, "{}: first positions of {} samples, {} samples", kName.name, first.size(),
                shape.batch);
  check_shapes(kName.name, query_shape(shape), {{"out", out.shape()}, {"q", q.shape(), columns.q}});
  check_shapes(kName.name, key_shape(shape), {{"k", k.shape(), columns.k}, {"v", v.shape(), columns.v}});
  for (const std::int64_t position : first)
    TRIDENT_CHECK(position >= 0 && position < shape.key_length, "{}: a first position of {} in a cache of {}", kName.name, position,
                  shape.key_length);
}

void CachedAttention::fields(FieldVisitor f) const { forward_fields(*this, f); }

double CachedAttention::flops() const {
  double sum = 0;
  for (std::int64_t b = 0; b < shape.batch; ++b) sum += 2 * scores(of_sample(b));
  return sum;
}

void AttentionBackward::check() const {
  check_attention(kName.name, shape);
  check_rotation(kName.name, shape, rotation);
  check_shapes(kName.name, query_shape(shape), {{"d_q", d_q.shape(), columns.q},
                                                {"d_out", d_out.shape()},
                                                {"out", out.shape()},
                                                {"q", q.shape(), columns.q}});
  check_shapes(kName.name, key_shape(shape), {{"d_k", d_k.shape(), columns.k},
                                              {"d_v", d_v.shape(), columns.v},
                                              {"k", k.shape(), columns.k},
                                              {"v", v.shape(), columns.v}});
  // They lie as the same strides say.
  TRIDENT_CHECK(d_out.shape() == out.shape() && d_q.shape() == q.shape() && d_k.shape() == k.shape() && d_v.shape() == v.shape(),
                "{}: gradients are not of the shapes of what they are of", kName.name);
}

void AttentionBackward::fields(FieldVisitor f) const {
  const Shape queries = query_shape(shape), keys = key_shape(shape);
  f(of_heads(writes("d_q", d_q), shape, queries));
  f(of_heads(reads("d_out", d_out), shape, queries));
  f(of_heads(reads("out", out), shape, queries));
  f(of_heads(reads("q", q), shape, queries));
  f(of_heads(writes("d_k", d_k), shape, keys));
  f(of_heads(writes("d_v", d_v), shape, keys));
  f(of_heads(reads("k", k), shape, keys));
  f(of_heads(reads("v", v), shape, keys));
  f(reads("lse", lse, sums(shape)));
  first_key_field(shape, first_key, f);
  if (rotation.turns()) rotation.fields(f, key_shape(shape));
  f(scratch("the workspace", workspace));
}

double AttentionBackward::flops() const { return 5 * scores(shape); }

// ---- heads

void check_heads(std::string_view operation, ConstTensorView heads, ConstTensorView rows, std::int64_t first_column,
                 const Rotation& rotation) {
  TRIDENT_CHECK(heads.shape().rank() == 4 && rows.shape().rank() == 3, "{}: heads {} and rows {}", operation,
                to_string(heads.shape()), to_string(rows.shape()));
  const Shape &h = heads.shape(), &r = rows.shape();
  TRIDENT_CHECK(
      h[0] == r[1] && h[2] == r[0] && first_column >= 0 && first_column + h[1] * h[3] <= r[2] && heads.dtype() == rows.dtype(),
      "{}: heads {} {} do not fit columns {}.. of rows {} {}", operation, to_string(heads.dtype()), to_string(h), first_column,
      to_string(rows.dtype()), to_string(r));
  if (rotation.turns()) rotation.check(operation, h);
}

void Rotation::check(std::string_view operation, const Shape& heads) const {
  TRIDENT_CHECK(2 * pairs() <= heads[3], "{}: {} pairs in heads of width {}", operation, pairs(), heads[3]);
}

void Rope::check() const {
  TRIDENT_CHECK(x.shape().rank() == 4, "rope: x is {}, expected [B, n, S, D]", to_string(x.shape()));
  rotation.check(kName.name, x.shape());
}

// ---- optimizer

OperationName Update::name() const {
  return {to_string(rule), WorkKind::kOptimizer};
}

void Update::check() const {
  const std::string_view operation = name().name;
  TRIDENT_CHECK(std::ssize(states) == num_states(rule), "{}: {} states instead of {}", operation, states.size(), num_states(rule));
  if (at_random == nullptr) return;
  const RoundedElements& r = *at_random;
  TRIDENT_CHECK(param.dtype() == DType::kBF16, "{}: stochastic rounding of {} instead of bf16", operation,
                to_string(param.dtype()));
  TRIDENT_CHECK(r.first_index >= 0 && r.first_column >= 0 && r.first_column < r.columns && r.columns <= r.stride &&
                    r.columns < std::int64_t{1} << 31,
                "{}: stochastic rounding from index {}, column {} of {}, with a stride of {}", operation, r.first_index,
                r.first_column, r.columns, r.stride);
}

}  // namespace op

}  // namespace trident
