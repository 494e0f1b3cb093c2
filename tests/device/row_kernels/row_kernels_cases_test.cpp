// Every kernel of the table, on every instruction set of this machine, in f32, bf16 and f16, against the scalar reference.
#include <set>

#include "case_table.h"

namespace trident::testing {
namespace {

const std::vector<std::string> kOps{"split_heads",
                                    "merge_heads",
                                    "split_rotated_heads",
                                    "merge_rotated_heads",
                                    "rope",
                                    "rms_norm_forward",
                                    "rms_norm_backward",
                                    "rms_norm_squares",
                                    "rms_norm_apply",
                                    "rms_norm_dots",
                                    "rms_norm_apply_backward",
                                    "layer_norm_forward",
                                    "layer_norm_backward",
                                    "residual_rms_norm",
                                    "residual_layer_norm",
                                    "swiglu_forward",
                                    "swiglu_backward",
                                    "gelu_forward",
                                    "bias_gelu",
                                    "gelu_backward",
                                    "clip_forward",
                                    "clip_backward",
                                    "embedding_forward",
                                    "embedding_backward",
                                    "cross_entropy_stats",
                                    "cross_entropy_backward",
                                    "cross_entropy_gradient",
                                    "add_bias",
                                    "add_bias_residual",
                                    "sum_rows",
                                    "scale_columns",
                                    "add",
                                    "accumulate",
                                    "dropout",
                                    "convert",
                                    "fill_zero",
                                    "sum_squares",
                                    "update"};

struct Parameter {
  std::string op;
  IsaLevel level;
  RowType type;

  std::string name() const { return op + "_" + trident::to_string(level) + "_" + to_string(type); }
  friend void PrintTo(const Parameter& p, std::ostream* out) { *out << p.name(); }
};

std::vector<Parameter> parameters() {
  std::vector<Parameter> all;
  for (const std::string& op : kOps)
    for (const IsaLevel level : supported_levels())
      for (const RowType type : kRowTypes) all.push_back({op, level, type});
  return all;
}

class RowKernelCases : public ::testing::TestWithParam<Parameter> {};

TEST_P(RowKernelCases, AgreeWithTheReference) {
  const Parameter& p = GetParam();
  for (const OpCase& c : all_cases()) {
    if (c.op != p.op) continue;
    SCOPED_TRACE(c.op + " " + c.variant);
    c.run(row_kernels(p.level), p.type);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RowKernelCases, ::testing::ValuesIn(parameters()),
                         [](const auto& info) { return info.param.name(); });

TEST(RowKernelTable, EveryKernelHasCases) {
  // The table is a level and function pointers: a kernel added to it must be added to kOps ...
  EXPECT_EQ(sizeof(RowKernels), (1 + kOps.size()) * sizeof(void (*)())) << "kOps does not list every kernel";
  // ... and have cases.
  std::set<std::string> covered;
  for (const OpCase& c : all_cases()) covered.insert(c.op);
  EXPECT_EQ(covered, std::set<std::string>(kOps.begin(), kOps.end()));
}

TEST(RowKernelTable, EveryKernelIsThereAtEveryLevel) {
  for (const IsaLevel level : {IsaLevel::kBaseline, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    const RowKernels& table = row_kernels(level);
    EXPECT_EQ(table.level, level);
    void* pointers[sizeof(RowKernels) / sizeof(void*)];
    std::memcpy(pointers, &table, sizeof(table));
    for (std::size_t i = 1; i < std::size(pointers); ++i) EXPECT_NE(pointers[i], nullptr) << "kernel number " << i;
  }
}

}  // namespace
}  // namespace trident::testing
