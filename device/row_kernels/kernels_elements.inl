// Table functions on elements, reductions over rows, dropout and the optimizer. Part of kernels_impl.inl.

TRIDENT_ROW_KERNEL gelu_forward(RowType t, void* out, const void* x, I count) {
  with_type(t, [&](auto* type) { gelu_row(kTeam, as(out, type), as(x, type), count); });
}

TRIDENT_ROW_KERNEL gelu_backward(RowType t, void* d_x, const void* d_out, const void* x, I count) {
  with_type(t, [&](auto* type) { gelu_backward_row(kTeam, as(d_x, type), as(d_out, type), as(x, type), count); });
}

TRIDENT_ROW_KERNEL add_bias(RowType t, void* x, const void* bias, I rows, I width) {
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) {
      auto* row = as(x, type) + r * width;
      add_row(kTeam, row, row, as(bias, type), width);
    }
  });
}

TRIDENT_ROW_KERNEL sum_rows(RowType t, float* out, const void* x, I rows, I width, Accumulate accumulate) {
  if (accumulate == Accumulate::kNo) zero_bytes(out, width * 4);
  with_type(t, [&](auto* type) {
    for (I r = 0; r < rows; ++r) accumulate_row(kTeam, out, as(x, type) + r * width, width);
  });
}

TRIDENT_ROW_KERNEL add(RowType t, void* out, const void* a, const void* b, I count) {
  with_type(t, [&](auto* type) { add_row(kTeam, as(out, type), as(a, type), as(b, type), count); });
}

TRIDENT_ROW_KERNEL accumulate(float* out, const float* x, I count) { accumulate_row(kTeam, out, x, count); }

TRIDENT_ROW_KERNEL dropout(RowType t, void* out, const void* x, I sequence, I batch, I width, const DropoutRows& spec) {
  with_type(t, [&](auto* type) {
    for (I s = 0; s < sequence; ++s)
      for (I b = 0; b < batch; ++b) {
        const I token = spec.samples[b] * spec.sequence + spec.position_offset + s;
        const I row = (s * batch + b) * width;
        dropout_row(kTeam, as(out, type) + row, as(x, type) + row, width, static_cast<std::uint64_t>(token * width), spec);
      }
  });
}

TRIDENT_ROW_KERNEL convert(RowType out_type, void* out, RowType in_type, const void* x, I count) {
  if (out_type == in_type) return copy_bytes(out, x, count * bytes_of(in_type));
  with_type(in_type == RowType::kF32 ? out_type : in_type, [&](auto* narrow) {
    if constexpr (!is_same<decltype(narrow), float*>) {
      if (out_type == RowType::kF32)
        convert_row(kTeam, static_cast<float*>(out), as(x, narrow), count);
      else
        convert_row(kTeam, as(out, narrow), static_cast<const float*>(x), count);
    }
  });
}

TRIDENT_ROW_KERNEL fill_zero(void* out, I bytes) { zero_bytes(out, bytes); }

TRIDENT_ROW_KERNEL sum_squares(double* out, const float* x, I count) {
  I i = 0;
  for (; i + 64 <= count; i += 64) *out++ = sum_of_64_squares(x + i);
  if (i == count) return;
  float last[64] = {};
  copy_bytes(last, x + i, (count - i) * 4);
  *out = sum_of_64_squares(last);
}

template <UpdateFormula formula>
TRIDENT_ROW_KERNEL update_by(RowType t, void* param, float* master, const UpdateStates& states, const float* grad, I count,
                             const UpdateNumbers& numbers, const RoundedElements* at_random) {
  if (at_random != nullptr)
    return update_at_random<formula>(kTeam, static_cast<Bf16*>(param), master, states, grad, count, numbers, *at_random);
  with_type(t, [&](auto* type) { update_row<formula>(kTeam, as(param, type), master, states, grad, count, numbers); });
}

TRIDENT_ROW_KERNEL update(UpdateFormula formula, RowType t, void* param, float* master, const UpdateStates& states,
                          const float* grad, I count, const UpdateNumbers& numbers, const RoundedElements* at_random) {
  switch (formula) {
#define TRIDENT_UPDATE_BY(f) \
  case UpdateFormula::f: return update_by<UpdateFormula::f>(t, param, master, states, grad, count, numbers, at_random);
    TRIDENT_UPDATE_FORMULAS(TRIDENT_UPDATE_BY)
#undef TRIDENT_UPDATE_BY
  }
}
