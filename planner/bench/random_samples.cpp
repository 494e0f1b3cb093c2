#include "planner/bench/random_samples.h"

#include "core/at.h"
#include "core/philox.h"

namespace trident {

LoadSamples random_samples(std::int64_t vocabulary, std::int64_t sequence) {
  return [=](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    for (std::int64_t i = 0; i < count; ++i) {
      const PhiloxKey key = random_key(/*seed=*/0, RandomPurpose::kBench, static_cast<std::uint64_t>(first + i));
      PhiloxCounter words{};
      for (std::int64_t s = 0; s <= sequence; ++s) {  // a target is the token that follows
        if (s % 4 == 0) words = philox4x32({static_cast<std::uint32_t>(s / 4), 0, 0, 0}, key);
        const auto token =
            static_cast<std::int32_t>(at(words, s % 4) % static_cast<std::uint64_t>(vocabulary));
        if (!spans.tokens.empty() && s < sequence) at(spans.tokens, s * count + i) = token;
        if (!spans.targets.empty() && s > 0) at(spans.targets, (s - 1) * count + i) = token;
      }
    }
  };
}

}  // namespace trident
