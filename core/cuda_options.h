// The keys of the section `cuda`. The defaults give the same bits every time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trident {

// Thread blocks of a GPU that an operation of NCCL along each axis may take from computation; 0: NCCL's own choice.
struct NcclMaxCtas {
  std::int64_t tensor = 0, data = 0, pipeline = 0;
  bool operator==(const NcclMaxCtas&) const = default;
};

enum class Determinism : std::uint8_t { kRequired, kNotRequired };  // whether the same call has to give the same bits every time

struct CudaOptions {
  bool tf32 = false;               // products of f32 operands on tensor cores, with operands rounded to 10 bits of mantissa
  bool deterministic = true;       // products and attention give the same bits every time
  std::optional<std::string> autotune = {};  // file of the fastest algorithm of each product; timed where it has none. Not set: the library's proposal
  bool epilogues = false;          // what follows a product is left to its kernel where the library can
  NcclMaxCtas nccl_max_ctas = {};
  bool nccl_any_order = false;     // operations of several communicators start in any order; all axes have limits then
  std::int64_t spare_multiprocessors = 0;  // that products leave to communication beside them
  bool nccl_register = false;      // memory of devices comes from NCCL, and is registered with its communicators
  double nccl_timeout = 590;       // seconds in which some operation of a group must end while one is under way
  bool graphs = false;             // Device::run_capturable() captures work and launches it as a whole
  bool operator==(const CudaOptions&) const = default;
};

}  // namespace trident
