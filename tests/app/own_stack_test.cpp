// Rows of trident_cases whose stack is this program against its own plans of the same layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/file_io.h"
#include "tests/app/program.h"

namespace trident {
namespace {

struct Layout {
  const char *tensor, *pipeline, *sequence, *zero, *recompute;
};

class RowsOfThisProgram : public ::testing::Test {
 protected:
  static JsonValue answer_of(const ProgramOutcome& done) {
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return parse_json(done.out, "a test",
                      {.comments = false, .max_bytes = 1 << 24, .max_depth = 16, .blame = ExitCode::kInternal});
  }
  std::string file(const std::string& name, const std::string& text) const {
    write_file(place_ / name, text);
    return place_ / name;
  }

  JsonValue planned(const std::string& model, const Layout& layout) const {
    const std::string config =
        file("plan.json",
             fmt::format(R"({{"model": {}, "precision": {{"compute": "bf16"}}, "run": {{"steps": 1}}, "data": {{"train": "any"}},
        "batch": {{"global": 64, "micro": 1, "sequence": 2048}}, "parallel": {{"tensor": {},
        "pipeline": {}, "sequence_parallel": {}, "zero": "{}"}}, "recompute": {{"policy": "{}"}}}})",
                         model, layout.tensor, layout.pipeline, layout.sequence, layout.zero, layout.recompute));
    const auto plan = run_program({"plan", "--config", config, "--cluster", "h100_sxm_ndr", "--gpus", "16", "--json"});
    return *answer_of(plan).find("cluster");
  }
  JsonValue row_of(const std::string& model, const Layout& layout) const {
    const std::string rows = file("rows.json", fmt::format(R"([{{"id": "own", "stack": "trident", "model": {}, "precision": "bf16",
        "cluster": {{"gpu": "H100-SXM5-80GB", "gpus": 16}}, "batch": {{"global": 64, "micro": 1}}, "recompute": "{}",
        "parallel": {{"tp": {}, "pp": {}, "sp": {}, "zero": "{}"}}}}])",
                                                           model, layout.recompute, layout.tensor, layout.pipeline, layout.sequence,
                                                           std::string(layout.zero) == "zero1" ? "dist-opt" : layout.zero));
    return answer_of(run_command({TRIDENT_CASES, rows, "--json"}));
  }
  // Tensors of the fullest rank.
  static double tensors_of(const JsonValue& plan) {
    double most = 0;
    for (const JsonValue& rank : plan.find("memory")->items()) {
      double bytes = 0;
      for (const JsonMember& part : rank.find("parts")->members())
        if (part.key != "context" && part.key != "communicators") bytes += part.value.as_number();
      most = std::max(most, bytes);
    }
    return most;
  }
  // A block that recomputes makes its last product again in a row, as other systems do; this program does not.
  void compare(const std::string& model, const std::string& row_model, const Layout& layout) const {
    SCOPED_TRACE(fmt::format("tp {} pp {} sp {} {} recompute {}", layout.tensor, layout.pipeline, layout.sequence, layout.zero,
                             layout.recompute));
    const JsonValue plan = planned(model, layout), row = row_of(row_model, layout);
    ASSERT_NE(row.find("step_time_s"), nullptr) << to_json_text(row);
    const bool full = std::string(layout.recompute) == "full";
    EXPECT_NEAR(row.find("step_time_s")->as_number() / plan.find("step")->find("seconds")->as_number(), 1, full ? 0.12 : 0.08);
    EXPECT_NEAR(row.find("peak_allocated_bytes")->as_number() / tensors_of(plan), 1, 0.13);
    EXPECT_EQ(row.find("fits")->as_bool(), plan.find("fits")->as_bool());
  }

  Workplace place_;
};

TEST_F(RowsOfThisProgram, CostWhatItsPlansSay) {
  const std::string llama = R"({"model_type": "llama", "num_hidden_layers": 16, "hidden_size": 4096, "intermediate_size": 11008,
      "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": false})";
  const std::string row = R"({"layers": 16, "hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 11008, "vocab": 32000,
      "act": "swiglu", "seq": 2048, "tied": false})";
  for (const Layout& layout : {Layout{"1", "1", "false", "ddp", "none"}, Layout{"1", "1", "false", "zero1", "none"},
                               Layout{"1", "1", "false", "zero3", "none"}, Layout{"4", "1", "true", "zero1", "none"},
                               Layout{"2", "2", "false", "zero1", "selective"}, Layout{"1", "4", "false", "zero1", "full"}})
    compare(llama, row, layout);
}

TEST_F(RowsOfThisProgram, RowsOfGptAreAnsweredToo) {
  const std::string gpt = R"({"model_type": "gpt2", "n_layer": 16, "n_embd": 4096, "n_inner": 16384, "n_head": 32,
      "vocab_size": 51200, "n_positions": 2048, "tie_word_embeddings": true, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
      "attn_pdrop": 0.0})";
  const std::string row = R"({"layers": 16, "hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 16384, "vocab": 51200,
      "act": "gelu", "seq": 2048, "tied": true})";
  for (const Layout& layout : {Layout{"1", "1", "false", "zero1", "none"}, Layout{"2", "2", "false", "zero1", "none"}})
    compare(gpt, row, layout);
}

}  // namespace
}  // namespace trident
