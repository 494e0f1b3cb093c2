#include "core/recompute_policy.h"

namespace trident {

std::optional<RecomputePolicy> parse_recompute_policy(std::string_view text) {
  for (const RecomputePolicy policy : {RecomputePolicy::kNone, RecomputePolicy::kSelective, RecomputePolicy::kFull})
    if (text == to_string(policy)) return policy;
  return std::nullopt;
}

std::string_view to_string(RecomputePolicy policy) {
  switch (policy) {
    case RecomputePolicy::kNone: return "none";
    case RecomputePolicy::kSelective: return "selective";
    case RecomputePolicy::kFull: return "full";
  }
  return "?";
}

}  // namespace trident
