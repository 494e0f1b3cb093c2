// Thread ranks of a tensor-parallel group in a test, and the way between whole named tensors and what each rank holds of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/bf16.h"
#include "device/cpu/cpu_device.h"
#include "parallel/grid/parallel_context.h"
#include "parallel/shared_memory/thread_world.h"
#include "parallel/zero/shard_spec.h"

namespace trident::testing {

// Whole tensors by name, row-major.
using LogicalTensors = std::map<std::string, std::vector<double>>;

struct TensorRank {
  TensorRank(ThreadWorld& world, int rank, const std::vector<SubAxis>& partial)
      : device(world.doorbell(rank), CpuDeviceOptions{}),
        grid(ParallelDegrees{.tensor = world.size()}),
        context(grid, device, world.communicator(rank, device.progress()), partial, CollectiveChecks::kOn) {}
  int rank() const { return context.rank(); }
  int degree() const { return grid.degrees().tensor; }

  CpuDevice device;
  ProcessGrid grid;
  ParallelContext context;
};

inline void run_tensor_ranks(int degree, const std::vector<SubAxis>& partial, const std::function<void(TensorRank&)>& body) {
  ThreadWorld world(degree, 60.0);
  run_thread_ranks(world, [&](int rank) {
    TensorRank self(world, rank, partial);
    body(self);
  });
}

inline double element(ConstTensorView view, std::int64_t i) {
  return view.dtype() == DType::kF32 ? view.as<float>()[i] : static_cast<double>(to_float(view.as<bf16>()[i]));
}

inline void set_element(TensorView view, std::int64_t i, double value) {
  if (view.dtype() == DType::kF32) {
    view.as<float>()[i] = static_cast<float>(value);
  } else {
    view.as<bf16>()[i] = to_bf16(static_cast<float>(value));
  }
}

// Calls f(whole tensor's name, index in it, index in the local parameter) for every element a rank holds.
inline void for_each_local(const ParamSpec& spec, int degree, int rank,
                           const std::function<void(const PartSpec&, std::int64_t, std::int64_t)>& f) {
  const Shape local = local_shape(spec, degree);
  const std::int64_t local_columns = local.rank() == 1 ? 1 : local[1];
  for (const LocalPart& part : local_parts(spec, degree, rank)) {
    const std::int64_t columns = part.part->tensor_shape.rank() == 1 ? 1 : part.part->tensor_shape[1];
    for (std::int64_t r = 0; r < part.box.rows(); ++r)
      for (std::int64_t c = 0; c < part.box.columns(); ++c)
        f(*part.part, (part.box.row_begin + r) * columns + part.box.column_begin + c, (part.local_row + r) * local_columns + c);
  }
}

// Writes this rank's part of the whole tensors into a local weight (padding stays as it is).
inline void scatter(TensorView local, const ParamSpec& spec, const LogicalTensors& whole, int degree, int rank) {
  for_each_local(spec, degree, rank, [&](const PartSpec& part, std::int64_t from, std::int64_t to) {
    set_element(local, to, whole.at(part.tensor).at(static_cast<std::size_t>(from)));
  });
}

// Gathers the ranks' local gradients into whole tensors: summed where the spec says that they are partial; else replicas must agree
// to the last bit and count once. Several parameters that are one tensor (tied) add up.
class GradientCollector {
 public:
  explicit GradientCollector(int degree) : degree_(degree) {}

  void add(int rank, const ParamSpec& spec, ConstTensorView gradient) {
    const std::scoped_lock lock(mutex_);
    specs_.emplace(spec.name, spec);
    const auto values = gradient.span<float>();
    locals_[{spec.name, rank}].assign(values.begin(), values.end());
  }

  LogicalTensors whole() const {
    LogicalTensors whole;
    for (const auto& [name, spec] : specs_) {
      const int replicas = degree_ / spec.sharding.shards;
      for (int rank = 0; rank < degree_; ++rank) {
        const std::vector<float>& local = locals_.at({name, rank});
        const bool counts = !spec.grad_partial_over.empty() || rank % replicas == 0;
        if (!counts) {
          EXPECT_EQ(local, locals_.at({name, rank - rank % replicas})) << name << " differs between replicas";
          continue;
        }
        for_each_local(spec, degree_, rank, [&](const PartSpec& part, std::int64_t to, std::int64_t from) {
          std::vector<double>& tensor = whole[part.tensor];
          tensor.resize(static_cast<std::size_t>(part.tensor_shape.num_elements()));
          tensor[static_cast<std::size_t>(to)] += static_cast<double>(local[static_cast<std::size_t>(from)]);
        });
      }
    }
    return whole;
  }

 private:
  int degree_;
  std::mutex mutex_;
  std::map<std::string, ParamSpec> specs_;
  std::map<std::pair<std::string, int>, std::vector<float>> locals_;
};

}  // namespace trident::testing
