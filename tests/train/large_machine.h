// A machine on which every layout fits: what is compared there are prices, not room.
#pragma once

#include <cstdint>

#include "train/plan/machine.h"

namespace trident {

inline const MachineFacts kLargeMachine{
    .bf16_over_fp32 = 2, .description = "a test", .memory = {{"a test", {0}, std::int64_t{1} << 50}}};

}  // namespace trident
