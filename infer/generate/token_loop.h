// Text, token by token: sequences take turns in the slots of a CachedStage, and all ranks agree on every token.
//
// Sequence i (prompt i / samples, its sample i % samples) belongs to data rank i mod D, or to each of them
// (GenerateRequest::each_data_rank). Within a data rank all tensor and pipeline ranks make the same passes: the last stage's tensor
// ranks offer their best tokens to each other and choose alike, and the pipeline is told. What a sequence says depends on its
// prompt, its numbers and the seed alone.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/named_enum.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/generate/generate_times.h"
#include "infer/generate/sampler.h"
#include "infer/generate/text_stream.h"
#include "pipeline/cached_stage.h"

namespace trident {

struct GenerateRequest {
  std::vector<std::vector<std::int32_t>> prompts;  // none is empty
  std::int64_t samples = 1;                        // of each prompt
  std::int64_t max_new_tokens = 1;
  SamplingOptions sampling;
  std::vector<std::int32_t> ends;        // tokens that end a continuation, and belong to it
  std::vector<std::string> stops;        // with a tokenizer
  const Tokenizer* tokenizer = nullptr;  // nothing: ids alone
  bool each_data_rank = false;           // makes all sequences; else they are shared out
  bool refuses_non_finite = true;        // logits; else they end a continuation

  std::int64_t sequences() const { return std::ssize(prompts) * samples; }
};

enum class EndReason : std::uint8_t { kLength, kEnd, kStop, kNonFinite };
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<EndReason>{"length", "end", "stop", "non-finite"};
struct Continuation {
  std::int64_t prompt = 0, sample = 0;
  std::vector<std::int32_t> ids;
  std::vector<double> log_probabilities;  // of each id, nats
  std::string text;                       // empty without a tokenizer; ends before a stop string
  EndReason reason = EndReason::kLength;
};

// A piece of text of a sequence that is being made, as it comes.
using ShowText = std::function<void(std::int64_t sequence, const std::string& text)>;
// Told of every pass of this rank after it, and before the next: what is done there is in no pass's time. Rates of the machine are
// not set.
using WatchPass = std::function<void(const PassTime& pass)>;

class TokenLoop {
 public:
  // All outlive the object. `shapes`: the stage's own. `vocabulary`: tokens of the model. `show` may be empty.
  TokenLoop(const GenerateRequest& request, CachedStage& stage, const KvCacheShape& shapes, std::int64_t vocabulary,
            ParallelContext& context, ShowText show);

  // Collective over the world. Every sequence, on every rank of data rank 0; on others this data rank's own. DataError where logits
  // are not finite.
  std::vector<Continuation> run();
  void watch(WatchPass watch) { watch_ = std::move(watch); }

 private:
  struct Slot {
    std::int64_t sequence = -1;      // -1: free
    std::vector<std::int32_t> seen;  // prompt and continuation
    TextStream stream;
  };

  void start(std::size_t slot, std::int64_t sequence);
  // The first `tokens` that were seen into the slot's cache; with `choose_next` the stage has logits of the last one.
  void fill(std::size_t slot, std::int64_t tokens, bool choose_next);
  void step();
  void accept(std::size_t slot, const Choice& choice);
  void finish(std::size_t slot, EndReason reason);
  std::vector<Choice> choose(std::span<const std::size_t> slots, bool one_row);
  std::vector<Choice> choose_on_last_stage(std::span<const std::size_t> slots, bool one_row);
  std::string bytes_of(std::int32_t id) const;
  DrawKey place_of(const Slot& slot) const;
  void collect();

  const GenerateRequest& request_;
  CachedStage& stage_;
  KvCacheShape shapes_;
  std::int64_t vocabulary_;
  ParallelContext& context_;
  ShowText show_;
  std::vector<Slot> slots_;
  std::vector<Continuation> continuations_;  // by sequence
  std::vector<float> logits_;                // of a pass, in host memory
  std::vector<double> offer_, offers_;       // candidates on their way
  std::vector<CachedStage::Next> next_;
  WatchPass watch_;  // may be empty
};

}  // namespace trident
