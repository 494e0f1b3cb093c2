// Every kernel, in f32, bf16 and f16, aligned and not, in several orders of its threads, against the scalar reference: the cases of
// the host's row kernels, which are of awkward sizes, and cases that reach the kernels' other instances.
#include <set>

#include "tests/cuda/kernel_table.h"
#include "tests/cuda/simulated/runtime.h"
#include "tests/device/row_kernels/case_table.h"

namespace trident::testing {
namespace {

using simulated::FiberOrder;

// fill_zero is no kernel; the cases of sum_rows prescribe the host's order, kernels_sums_test.cpp has others.
bool is_host_only(const std::string& op) { return op == "fill_zero" || op == "sum_rows"; }

struct Parameter {
  std::string op;
  RowType type;
  Placement placement;
  FiberOrder order;
};

std::ostream& operator<<(std::ostream& to, const Parameter& p) { return to << p.op << ' ' << to_string(p.type); }

std::vector<Parameter> parameters() {
  std::set<std::string> ops;
  for (const OpCase& c : all_cases())
    if (!is_host_only(c.op)) ops.insert(c.op);
  std::vector<Parameter> all;
  for (const std::string& op : ops)
    for (const RowType type : kRowTypes) {
      all.push_back({op, type, Placement::kAligned, FiberOrder::kWarpByWarp});
      all.push_back({op, type, Placement::kMisaligned, FiberOrder::kReverse});
    }
  return all;
}

class CudaKernelCases : public ::testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override { simulated::configure({.fiber_order = GetParam().order}); }
  void TearDown() override { simulated::reset(); }
};

TEST_P(CudaKernelCases, AgreeWithTheReference) {
  const Parameter& p = GetParam();
  for (const OpCase& c : all_cases()) {
    if (c.op != p.op) continue;
    SCOPED_TRACE(c.op + " " + c.variant);
    c.run(cuda_kernel_table(p.placement), p.type);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaKernelCases, ::testing::ValuesIn(parameters()), [](const auto& info) {
  return info.param.op + "_" + to_string(info.param.type) +
         (info.param.placement == Placement::kAligned ? "_aligned" : "_misaligned");
});

}  // namespace
}  // namespace trident::testing
