// The parity matrix as data: every layout of up to 8 ranks with every ZeRO preset, schedule and sequence-parallel setting that it
// has.
#pragma once

#include <fmt/core.h>

#include <ostream>
#include <string>
#include <vector>

namespace trident::testing {

struct ParityCase {
  int tensor = 1, pipeline = 1, data = 1;
  bool sequence_parallel = false;
  std::string zero = "zero1";
  std::string schedule = "1f1b";

  // "t2_p2_d2_sp_zero3_interleaved"
  std::string name() const {
    return fmt::format("t{}_p{}_d{}{}{}{}", tensor, pipeline, data, sequence_parallel ? "_sp" : "", data > 1 ? "_" + zero : "",
                       pipeline > 1 ? "_" + schedule : "");
  }
  friend void PrintTo(const ParityCase& c, std::ostream* out) { *out << c.name(); }
  std::vector<std::string> settings() const {
    return {fmt::format("parallel.tensor={}", tensor),
            fmt::format("parallel.pipeline={}", pipeline),
            fmt::format("parallel.data={}", data),
            fmt::format("parallel.sequence_parallel={}", sequence_parallel),
            "parallel.zero=\"" + zero + "\"",
            "parallel.schedule=\"" + schedule + "\"",
            fmt::format("parallel.virtual_stages={}", schedule == "interleaved" ? 2 : 1)};
  }
  // The same gradients in the same order, without a pipeline: what it must equal bit for bit.
  ParityCase without_pipeline() const {
    ParityCase c = *this;
    c.pipeline = 1;
    c.schedule = "1f1b";
    c.zero = zero == "ddp" || zero == "zero1" ? "ddp" : "zero2";
    return c;
  }
};

// All triples (t, p, d) of 1, 2, 4, 8 with t*p*d in {1, 2, 4, 8}, x preset (d > 1) x schedule (p > 1) x sequence parallel (t > 1).
inline std::vector<ParityCase> parity_cases() {
  std::vector<ParityCase> cases;
  for (const int t : {1, 2, 4, 8}) {
    for (const int p : {1, 2, 4, 8}) {
      for (const int d : {1, 2, 4, 8}) {
        if (t * p * d > 8) continue;
        for (const bool sp : t > 1 ? std::vector<bool>{false, true} : std::vector<bool>{false}) {
          for (const char* zero : d > 1 ? std::vector<const char*>{"ddp", "zero1", "zero2", "shard_grad_op", "zero3"}
                                        : std::vector<const char*>{"zero1"}) {
            for (const char* schedule :
                 p > 1 ? std::vector<const char*>{"gpipe", "1f1b", "interleaved"} : std::vector<const char*>{"1f1b"}) {
              cases.push_back({t, p, d, sp, zero, schedule});
            }
          }
        }
      }
    }
  }
  return cases;
}

}  // namespace trident::testing
