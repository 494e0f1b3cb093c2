#include "train/metered_device.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "core/clock.h"

namespace trident {
namespace {

struct Name {
  WorkKind kind;
  std::string_view operation;
};

double products(ConstTensorView out, ConstTensorView a, Transpose transpose_a) {
  const Shape& shape = a.shape();
  const std::int64_t inner = transpose_a == Transpose::kYes ? shape[0] : shape[1];
  return 2.0 * static_cast<double>(out.num_elements()) * static_cast<double>(inner);
}

// Products of one matrix of scores, [queries, keys] x width, as far as the mask leaves them.
double scores(const AttentionShape& s) {
  double pairs = static_cast<double>(s.query_length) * static_cast<double>(s.key_length);
  if (s.causal) {
    pairs = 0;
    for (std::int64_t i = 0; i < s.query_length; ++i)
      pairs += static_cast<double>(std::clamp<std::int64_t>(s.query_offset + i - s.key_offset + 1, 0, s.key_length));
  }
  return 2.0 * static_cast<double>(s.batch * s.query_heads * s.head_dim) * pairs;
}

std::string_view name_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone: break;
    case Epilogue::kBias: return "matmul_bias";
    case Epilogue::kBiasGelu: return "matmul_bias_gelu";
    case Epilogue::kGeluBackward: return "matmul_gelu_backward";
    case Epilogue::kBiasGradient: return "matmul_bias_gradient";
  }
  return "matmul";
}

class MeteredOps final : public Ops {
 public:
  MeteredOps(Ops& ops, WorkMeter& meter) : ops_(ops), meter_(meter) {}

  std::int64_t prepare_matmul(const MatmulShape& shape) override { return ops_.prepare_matmul(shape); }
  void matmul(Stream& stream, TensorView out, ConstTensorView a, Transpose transpose_a, ConstTensorView b, Transpose transpose_b,
              Accumulate accumulate, TensorView workspace) override {
    run(stream, {WorkKind::kProducts, "matmul"}, products(out, a, transpose_a),
        {out, a, b, accumulate == Accumulate::kYes ? out : TensorView()},
        [&] { ops_.matmul(stream, out, a, transpose_a, b, transpose_b, accumulate, workspace); });
  }
  std::int64_t prepare_fused(const MatmulShape& shape, Epilogue epilogue) override { return ops_.prepare_fused(shape, epilogue); }
  bool try_fused(Stream& stream, const FusedMatmul& f) override {
    const MatmulOperands& p = f.product;
    bool done = false;
    const auto call = [&] { return done = ops_.try_fused(stream, f); };
    // What may be scratch is not written.
    const TensorView out = f.epilogue == Epilogue::kGeluBackward ? TensorView() : p.out;
    run(stream, {WorkKind::kProducts, name_of(f.epilogue)}, products(p.out, p.a, p.transpose_a),
        {out, p.a, p.b, p.accumulate == Accumulate::kYes ? p.out : TensorView(), f.bias, f.pre, f.result}, call);
    return done;
  }
  std::int64_t attention_workspace(const AttentionShape& shape) override { return ops_.attention_workspace(shape); }
  void attention_forward(Stream& stream, const AttentionShape& shape, TensorView out, TensorView lse, ConstTensorView q,
                         ConstTensorView k, ConstTensorView v, TensorView workspace) override {
    run(stream, {WorkKind::kAttention, "attention_forward"}, 2 * scores(shape), {out, lse, q, k, v},
        [&] { ops_.attention_forward(stream, shape, out, lse, q, k, v, workspace); });
  }
  void attention_backward(Stream& stream, const AttentionShape& shape, TensorView d_q, TensorView d_k, TensorView d_v,
                          ConstTensorView d_out, ConstTensorView out, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                          ConstTensorView lse, TensorView workspace) override {
    run(stream, {WorkKind::kAttention, "attention_backward"}, 5 * scores(shape), {d_q, d_k, d_v, d_out, out, q, k, v, lse},
        [&] { ops_.attention_backward(stream, shape, d_q, d_k, d_v, d_out, out, q, k, v, lse, workspace); });
  }
  void split_heads(Stream& stream, TensorView heads, ConstTensorView rows, std::int64_t first_column) override {
    run(stream, {WorkKind::kHeads, "split_heads"}, 0, {heads, heads}, [&] { ops_.split_heads(stream, heads, rows, first_column); });
  }
  void merge_heads(Stream& stream, TensorView rows, ConstTensorView heads, std::int64_t first_column) override {
    run(stream, {WorkKind::kHeads, "merge_heads"}, 0, {heads, heads}, [&] { ops_.merge_heads(stream, rows, heads, first_column); });
  }
  void rope(Stream& stream, TensorView x, ConstTensorView cos, ConstTensorView sin, ConstTensorView position,
            Transpose inverse) override {
    run(stream, {WorkKind::kHeads, "rope"}, 0, {x, cos, sin, position, x},
        [&] { ops_.rope(stream, x, cos, sin, position, inverse); });
  }
  void rms_norm_forward(Stream& stream, TensorView y, TensorView rstd, ConstTensorView x, ConstTensorView weight,
                        float eps) override {
    run(stream, {WorkKind::kRows, "rms_norm_forward"}, 0, {y, rstd, x, weight},
        [&] { ops_.rms_norm_forward(stream, y, rstd, x, weight, eps); });
  }
  void rms_norm_backward(Stream& stream, TensorView d_x, TensorView d_weight, ConstTensorView d_y, ConstTensorView x,
                         ConstTensorView weight, ConstTensorView rstd, Accumulate accumulate_x,
                         Accumulate accumulate_weight) override {
    run(stream, {WorkKind::kRows, "rms_norm_backward"}, 0, {d_x, d_weight, d_y, x, weight, rstd},
        [&] { ops_.rms_norm_backward(stream, d_x, d_weight, d_y, x, weight, rstd, accumulate_x, accumulate_weight); });
  }
  void layer_norm_forward(Stream& stream, TensorView y, TensorView mean, TensorView rstd, ConstTensorView x, ConstTensorView weight,
                          ConstTensorView bias, float eps) override {
    run(stream, {WorkKind::kRows, "layer_norm_forward"}, 0, {y, mean, rstd, x, weight, bias},
        [&] { ops_.layer_norm_forward(stream, y, mean, rstd, x, weight, bias, eps); });
  }
  void layer_norm_backward(Stream& stream, TensorView d_x, TensorView d_weight, TensorView d_bias, ConstTensorView d_y,
                           ConstTensorView x, ConstTensorView weight, ConstTensorView mean, ConstTensorView rstd,
                           Accumulate accumulate_x, Accumulate accumulate_weight) override {
    run(stream, {WorkKind::kRows, "layer_norm_backward"}, 0, {d_x, d_weight, d_bias, d_y, x, weight, mean, rstd}, [&] {
      ops_.layer_norm_backward(stream, d_x, d_weight, d_bias, d_y, x, weight, mean, rstd, accumulate_x, accumulate_weight);
    });
  }
  void swiglu_forward(Stream& stream, TensorView out, ConstTensorView gate_up) override {
    run(stream, {WorkKind::kRows, "swiglu_forward"}, 0, {out, gate_up}, [&] { ops_.swiglu_forward(stream, out, gate_up); });
  }
  void swiglu_backward(Stream& stream, TensorView d_gate_up, ConstTensorView d_out, ConstTensorView gate_up) override {
    run(stream, {WorkKind::kRows, "swiglu_backward"}, 0, {d_gate_up, d_out, gate_up},
        [&] { ops_.swiglu_backward(stream, d_gate_up, d_out, gate_up); });
  }
  void gelu_forward(Stream& stream, TensorView out, ConstTensorView x) override {
    run(stream, {WorkKind::kRows, "gelu_forward"}, 0, {out, x}, [&] { ops_.gelu_forward(stream, out, x); });
  }
  void gelu_backward(Stream& stream, TensorView d_x, ConstTensorView d_out, ConstTensorView x) override {
    run(stream, {WorkKind::kRows, "gelu_backward"}, 0, {d_x, d_out, x}, [&] { ops_.gelu_backward(stream, d_x, d_out, x); });
  }
  void embedding_forward(Stream& stream, TensorView out, ConstTensorView tokens, ConstTensorView table,
                         std::int64_t first_row) override {
    run(stream, {WorkKind::kEmbedding, "embedding_forward"}, 0, {out, out, tokens},
        [&] { ops_.embedding_forward(stream, out, tokens, table, first_row); });
  }
  void embedding_backward(Stream& stream, TensorView d_table, ConstTensorView d_out, ConstTensorView tokens,
                          std::int64_t first_row) override {
    run(stream, {WorkKind::kEmbedding, "embedding_backward"}, 0, {d_out, d_out, d_out, tokens},
        [&] { ops_.embedding_backward(stream, d_table, d_out, tokens, first_row); });
  }
  void cross_entropy_max(Stream& stream, TensorView row_max, ConstTensorView logits, std::int64_t first_column,
                         std::int64_t vocabulary) override {
    run(stream, {WorkKind::kLoss, "cross_entropy_max"}, 0, {row_max, logits},
        [&] { ops_.cross_entropy_max(stream, row_max, logits, first_column, vocabulary); });
  }
  void cross_entropy_stats(Stream& stream, TensorView sum_exp, TensorView target_logit, ConstTensorView logits,
                           ConstTensorView row_max, ConstTensorView targets, std::int64_t first_column,
                           std::int64_t vocabulary) override {
    run(stream, {WorkKind::kLoss, "cross_entropy_stats"}, 0, {sum_exp, target_logit, logits, row_max, targets}, [&] {
      ops_.cross_entropy_stats(stream, sum_exp, target_logit, logits, row_max, targets, first_column, vocabulary);
    });
  }
  void cross_entropy_rescale(Stream& stream, TensorView sum_exp, TensorView target_logit, ConstTensorView shard_max,
                             ConstTensorView row_max, ConstTensorView targets, std::int64_t columns, std::int64_t first_column,
                             std::int64_t vocabulary) override {
    run(stream, {WorkKind::kLoss, "cross_entropy_rescale"}, 0,
        {sum_exp, sum_exp, target_logit, target_logit, shard_max, row_max, targets}, [&] {
          ops_.cross_entropy_rescale(stream, sum_exp, target_logit, shard_max, row_max, targets, columns, first_column, vocabulary);
        });
  }
  void cross_entropy_loss(Stream& stream, TensorView loss, ConstTensorView sum_exp, ConstTensorView target_logit,
                          ConstTensorView targets) override {
    run(stream, {WorkKind::kLoss, "cross_entropy_loss"}, 0, {loss, sum_exp, target_logit, targets},
        [&] { ops_.cross_entropy_loss(stream, loss, sum_exp, target_logit, targets); });
  }
  void cross_entropy_backward(Stream& stream, TensorView logits, ConstTensorView row_max, ConstTensorView sum_exp,
                              ConstTensorView targets, std::int64_t first_column, std::int64_t vocabulary, float scale) override {
    run(stream, {WorkKind::kLoss, "cross_entropy_backward"}, 0, {logits, row_max, sum_exp, targets, logits},
        [&] { ops_.cross_entropy_backward(stream, logits, row_max, sum_exp, targets, first_column, vocabulary, scale); });
  }
  void add_bias(Stream& stream, TensorView x, ConstTensorView bias) override {
    run(stream, {WorkKind::kRows, "add_bias"}, 0, {x, bias, x}, [&] { ops_.add_bias(stream, x, bias); });
  }
  void sum_rows(Stream& stream, TensorView out, ConstTensorView x, Accumulate accumulate) override {
    run(stream, {WorkKind::kRows, "sum_rows"}, 0, {out, x}, [&] { ops_.sum_rows(stream, out, x, accumulate); });
  }
  void add(Stream& stream, TensorView out, ConstTensorView a, ConstTensorView b) override {
    run(stream, {WorkKind::kRows, "add"}, 0, {out, a, b}, [&] { ops_.add(stream, out, a, b); });
  }
  void accumulate(Stream& stream, TensorView out, ConstTensorView x) override {
    run(stream, {WorkKind::kCopies, "accumulate"}, 0, {out, x, out}, [&] { ops_.accumulate(stream, out, x); });
  }
  void dropout(Stream& stream, TensorView out, ConstTensorView x, const DropoutSpec& spec) override {
    run(stream, {WorkKind::kRows, "dropout"}, 0, {out, x}, [&] { ops_.dropout(stream, out, x, spec); });
  }
  void convert(Stream& stream, TensorView out, ConstTensorView x) override {
    run(stream, {WorkKind::kCopies, "convert"}, 0, {out, x}, [&] { ops_.convert(stream, out, x); });
  }
  void fill_zero(Stream& stream, TensorView out) override {
    run(stream, {WorkKind::kCopies, "fill_zero"}, 0, {out}, [&] { ops_.fill_zero(stream, out); });
  }
  void sum_squares(Stream& stream, TensorView out, ConstTensorView x) override {
    run(stream, {WorkKind::kOptimizer, "sum_squares"}, 0, {out, x}, [&] { ops_.sum_squares(stream, out, x); });
  }
  void add_exact(Stream& stream, TensorView limbs, ConstTensorView x) override {
    run(stream, {WorkKind::kOptimizer, "add_exact"}, 0, {limbs, x, limbs}, [&] { ops_.add_exact(stream, limbs, x); });
  }
  void adamw(Stream& stream, TensorView param, TensorView master, TensorView m, TensorView v, ConstTensorView grad,
             const AdamWParams& params) override {
    run(stream, {WorkKind::kOptimizer, "adamw"}, 0, {param, master, m, v, grad, master, m, v},
        [&] { ops_.adamw(stream, param, master, m, v, grad, params); });
  }

 private:
  // A `call` that returns false has done nothing.
  template <class Call>
  void run(Stream& stream, Name name, double flops, std::initializer_list<ConstTensorView> operands, Call call) {
    if (!meter_.measures()) return void(call());
    double bytes = 0;
    for (const ConstTensorView& operand : operands) bytes += static_cast<double>(operand.num_bytes());
    stream.synchronize();
    const double start = monotonic_seconds();
    if constexpr (std::is_same_v<decltype(call()), bool>) {
      if (!call()) return;
    } else {
      call();
    }
    stream.synchronize();
    meter_.add({name.kind, name.operation, 1, monotonic_seconds() - start, flops, bytes});
  }

  Ops& ops_;
  WorkMeter& meter_;
};

class MeteredDevice final : public Device {
 public:
  MeteredDevice(Device& device, WorkMeter& meter) : device_(device), meter_(meter), ops_(device.ops(), meter) {}

  DeviceKind kind() const override { return device_.kind(); }
  std::string describe() const override { return device_.describe(); }
  bool has_bytes() const override { return device_.has_bytes(); }
  Ops& ops() override { return ops_; }
  Stream& compute_stream() override { return device_.compute_stream(); }
  Stream& new_stream(std::string name) override { return device_.new_stream(std::move(name)); }
  Buffer allocate(std::int64_t bytes, const std::string& name) override { return device_.allocate(bytes, name); }
  std::optional<std::int64_t> free_bytes() const override { return device_.free_bytes(); }
  Buffer allocate_host_shared(std::int64_t bytes, const std::string& name) override {
    return device_.allocate_host_shared(bytes, name);
  }
  void write(Stream& stream, TensorView to, const void* from) override { device_.write(stream, to, from); }
  void read(Stream& stream, void* to, ConstTensorView from) override { device_.read(stream, to, from); }
  std::unique_ptr<BackgroundReads> make_background_reads(std::size_t marks) override { return device_.make_background_reads(marks); }
  Stream& host_stream() override { return device_.host_stream(); }
  Progress& progress() override { return device_.progress(); }
  void poll() override { device_.poll(); }
  std::vector<std::string> notes() const override { return device_.notes(); }
  double waited_seconds() const override { return device_.waited_seconds(); }
  void log_operations(OperationLog* log) override { device_.log_operations(log); }
  // What is measured is measured operation by operation.
  void repeat(FunctionRef<void()> work) override { meter_.measures() ? work() : device_.repeat(work); }
  Ranges* ranges() override { return device_.ranges(); }

 private:
  Device& device_;
  WorkMeter& meter_;
  MeteredOps ops_;
};

}  // namespace

void WorkMeter::start() {
  work_.clear();
  work_.reserve(64);  // more than there are operations: nothing is allocated inside a step
  measures_ = true;
}

void WorkMeter::add(const Work& one) {
  const auto same = std::ranges::find(work_, one.operation, &Work::operation);
  if (same == work_.end()) {
    work_.push_back(one);
    return;
  }
  same->calls += one.calls;
  same->seconds += one.seconds;
  same->flops += one.flops;
  same->bytes += one.bytes;
}

std::unique_ptr<Device> make_metered_device(Device& device, WorkMeter& meter) {
  return std::make_unique<MeteredDevice>(device, meter);
}

}  // namespace trident
