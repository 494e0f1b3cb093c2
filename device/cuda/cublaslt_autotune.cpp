#include "device/cuda/cublaslt_autotune.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/bf16.h"
#include "core/f16.h"
#include "core/check.h"
#include "core/int_math.h"
#include "core/philox.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"

namespace trident {

namespace {

// The input sets together are larger than any GPU's cache, as far as this many sets can be.
constexpr std::int64_t kRotatedBytes = std::int64_t{256} << 20;
constexpr std::int64_t kMaxSets = 8;
constexpr std::int64_t kPatternElements = std::int64_t{1} << 18;

class TimingEvent {
 public:
  TimingEvent() { check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDefault), "making an event to time matrix products"); }
  ~TimingEvent() { (void)cudaEventDestroy(event_); }
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class TimingStream {
 public:
  TimingStream() {
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), "making a stream to time matrix products");
  }
  ~TimingStream() { (void)cudaStreamDestroy(stream_); }
  TimingStream(const TimingStream&) = delete;
  TimingStream& operator=(const TimingStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Uniform in (-1, 1], as the dtype's bytes.
std::vector<std::byte> random_pattern(std::int64_t elements, DType dtype) {
  const PhiloxKey key = random_key(1, RandomPurpose::kTest, "matmul timing");
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements * size_of(dtype)));
  for (std::int64_t i = 0; i < elements; ++i) {
    const auto x = static_cast<float>(2.0 * uniform_at(key, static_cast<std::uint64_t>(i)) - 1.0);
    if (dtype == DType::kBF16) reinterpret_cast<bf16*>(bytes.data())[i] = to_bf16(x);
    if (dtype == DType::kF16) reinterpret_cast<f16*>(bytes.data())[i] = to_f16(x);
    if (dtype == DType::kF32) reinterpret_cast<float*>(bytes.data())[i] = x;
  }
  return bytes;
}

Buffer random_operand(int device, std::int64_t elements, DType dtype, const std::string& name) {
  Buffer buffer = allocate_cuda(device, elements * size_of(dtype), name);
  const std::vector<std::byte> pattern = random_pattern(std::min(elements, kPatternElements), dtype);
  const auto size = static_cast<std::int64_t>(pattern.size());
  for (std::int64_t at = 0; at < buffer.num_bytes(); at += size) {
    const std::int64_t count = std::min(size, buffer.num_bytes() - at);
    check_cuda(cudaMemcpy(buffer.data() + at, pattern.data(), static_cast<std::size_t>(count), cudaMemcpyHostToDevice),
               "filling the operands of a timed matrix product");
  }
  return buffer;
}

}  // namespace

std::optional<FastestProposal> fastest(std::size_t proposals, const std::function<double(std::size_t)>& time) {
  std::optional<FastestProposal> best;
  for (std::size_t i = 0; i < proposals; ++i) {
    try {
      const double seconds = time(i);
      if (std::isfinite(seconds) && (!best || seconds < best->seconds)) best = FastestProposal{i, seconds};
    } catch (const Error&) {
      // Refused: not a proposal then.
    }
  }
  return best;
}

class MatmulTimer::Implementation {
 public:
  Implementation(int device, CublasLtPlan& plan, const MatmulShape& s, Epilogue epilogue, std::int64_t workspace_bytes)
      : plan_(plan) {
    const std::int64_t set_bytes = (s.m * s.k + s.k * s.n) * size_of(s.in);
    const std::int64_t sets = std::clamp<std::int64_t>(ceil_div(kRotatedBytes, set_bytes), 2, kMaxSets);
    const std::string name = "timing " + plan.what();
    for (std::int64_t i = 0; i < sets; ++i) {
      a_.push_back(random_operand(device, s.m * s.k, s.in, name));
      b_.push_back(random_operand(device, s.k * s.n, s.in, name));
    }
    out_ = random_operand(device, s.m * s.n, s.out, name);
    workspace_ = allocate_cuda(device, workspace_bytes, name);
    if (epilogue != Epilogue::kNone) {
      bias_ = random_operand(device, std::max(s.m, s.n), s.out, name);
      aux_ = random_operand(device, s.m * s.n, s.out, name);
    }
    // The operands were filled on the default stream. To wait for the whole GPU would end what other ranks capture there.
    check_cuda(cudaStreamSynchronize(nullptr), "timing matrix products");
  }

  double seconds(const Algorithm& algorithm, int repetitions) {
    enqueue(algorithm);
    check_cuda(cudaEventRecord(start_.get(), stream_.get()), "timing matrix products");
    for (int i = 0; i < repetitions; ++i) enqueue(algorithm);
    check_cuda(cudaEventRecord(stop_.get(), stream_.get()), "timing matrix products");
    check_cuda(cudaEventSynchronize(stop_.get()), "timing matrix products");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()), "timing matrix products");
    return milliseconds * 1e-3 / repetitions;
  }

 private:
  void enqueue(const Algorithm& algorithm) {
    const std::size_t set = calls_++ % a_.size();
    plan_.run({out_.data(), a_[set].data(), b_[set].data(), workspace_.data(), bias_.data(), aux_.data()}, stream_.get(),
              algorithm);
  }

  CublasLtPlan& plan_;
  std::vector<Buffer> a_, b_;
  Buffer out_, workspace_, bias_, aux_;
  TimingStream stream_;
  TimingEvent start_, stop_;
  std::size_t calls_ = 0;
};

MatmulTimer::MatmulTimer(int device, CublasLtPlan& plan, const MatmulShape& shape, Epilogue epilogue, std::int64_t workspace_bytes)
    : implementation_(std::make_unique<Implementation>(device, plan, shape, epilogue, workspace_bytes)) {}
MatmulTimer::~MatmulTimer() = default;

double MatmulTimer::seconds(const Algorithm& algorithm, int repetitions) {
  return implementation_->seconds(algorithm, repetitions);
}

}  // namespace trident
