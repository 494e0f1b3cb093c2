#include "infer/generate/eval_samples.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "data/chat/chat_source.h"
#include "data/chat_documents.h"
#include "data/dataset_record.h"
#include "data/tokenizer/token_ids.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/generate/token_loop.h"
#include "train/run/model_tokenizer.h"
#include "train/run/resume.h"

namespace trident {
namespace {

constexpr std::int64_t kMostAtOnce = 8;

class EvalSamples final : public SampleMaker {
 public:
  std::unique_ptr<const Tokenizer> tokenizer;       // nullptr: prompts are ids alone
  std::vector<std::optional<std::string>> prompts;  // the texts, as the configuration has them; nothing for one of ids
  GenerateRequest request;                          // of the same prompts; every data rank makes all of them
  KvCacheShape cache;

  const KvCacheShape& shapes() const override { return cache; }
  std::vector<TextSample> make(RankModel& model) const override;
};

std::vector<TextSample> EvalSamples::make(RankModel& model) const {
  const RangeScope range(model.device().ranges(), "samples");
  TokenLoop loop(request, model.cached_stage(), cache, model.plan().model.vocab_size, model.context(), {});
  std::vector<TextSample> made;
  for (Continuation& c : loop.run()) {
    const auto prompt = static_cast<std::size_t>(c.prompt);
    TextSample& sample = made.emplace_back();
    sample.prompt = prompts[prompt];
    sample.prompt_ids = request.prompts[prompt];
    if (tokenizer != nullptr) sample.text = std::move(c.text);
    sample.ids = std::move(c.ids);
    sample.end = to_string(c.reason);
    sample.temperature = request.sampling.temperature;
    sample.seed = request.sampling.seed;
  }
  return made;
}

TextRule rule_of_training(const DataConfig& data, const Tokenizer& tokenizer) {
  std::vector<std::string> prefixes;
  for (const WeightedPath& source : data.train) prefixes.push_back(source.path);
  try {
    return rule_of_data(prefixes, tokenizer);
  } catch (const Error&) {  // who reads the data says what is wrong with it
    return {};
  }
}

// The template that the record of the data names, else that of the tokenizer's folder.
ChatSource chat_of_training(const DataConfig& data, const Tokenizer& tokenizer, std::string_view key) {
  const std::string name = data.train.empty() ? "" : origin_in_record(data.train.front().path).chat_template;
  std::optional<ChatSource> chat = find_chat_source(folder_exists(tokenizer.name()) ? tokenizer.name() : "", name);
  if (!chat)
    throw DataError(fmt::format("{}: is messages, and neither the data's record nor tokenizer {} has a chat template; give a "
                                "text, or prepare the data by --chat --template NAME",
                                key, in_quotes(tokenizer.name())));
  chat->variables.now = time_of(local_time_text(kTimeFormat), "");
  return *std::move(chat);
}

}  // namespace

std::shared_ptr<const SampleMaker> find_eval_samples(const TrainConfig& config, const ModelConfig& model) {
  const EvalConfig& eval = config.eval;
  if (!eval.has_samples()) return nullptr;
  const auto found = std::make_shared<EvalSamples>();
  if (config.data.tokenizer || eval.samples.empty() || !config.model.init_from)
    found->tokenizer = tokenizer_of_run(config.data);
  else
    found->tokenizer = load_tokenizer(*config.model.init_from, "model.init_from");
  if (found->tokenizer == nullptr && !eval.samples.empty())
    throw ConfigError(fmt::format(
        "eval.samples: {}, and texts need one; name the tokenizer of the data, or give ids in eval.sample_ids",
        config.data.tokenizer_was_auto ? "data.tokenizer is \"auto\", the first data set's record names none that is still there"
                                       : "data.tokenizer is null"));
  const Tokenizer* const tokenizer = found->tokenizer.get();
  GenerateRequest& request = found->request;
  std::int64_t longest = 0;
  const auto add = [&](std::string_view key, std::size_t number, std::vector<std::int32_t> ids, const Tokenizer* from) {
    const std::string what = fmt::format("{}[{}]", key, number);
    if (ids.empty()) throw ConfigError(fmt::format("{} has no token; give at least one id", what));
    check_token_ids(ids, model.vocab_size, what, from);
    longest = std::max(longest, std::ssize(ids));
    request.prompts.push_back(std::move(ids));
  };
  const TextRule rule = tokenizer == nullptr ? TextRule() : rule_of_training(config.data, *tokenizer);
  std::optional<ChatSource> chat;
  for (std::size_t i = 0; i < eval.samples.size(); ++i) {
    const JsonValue& sample = eval.samples[i];
    if (sample.is_string()) {
      add("eval.samples", i, tokenizer->encode(sample.as_string(), rule), tokenizer);
      found->prompts.emplace_back(sample.as_string());
      continue;
    }
    const std::string where = fmt::format("eval.samples[{}]", i);
    if (!chat) chat = chat_of_training(config.data, *tokenizer, where);
    const RenderedChat rendered = render_conversation(*chat, read_messages(sample, where), GenerationPrompt::kAdded, where);
    add("eval.samples", i, encode_rendered(rendered, *tokenizer), tokenizer);
    found->prompts.emplace_back(rendered.text);
  }
  for (std::size_t i = 0; i < eval.sample_ids.size(); ++i) {
    add("eval.sample_ids", i, parse_token_ids(eval.sample_ids[i], "eval.sample_ids"), nullptr);
    found->prompts.emplace_back();
  }
  request.max_new_tokens = eval.sample_tokens;
  request.sampling.temperature = eval.sample_temperature;
  request.sampling.seed = static_cast<std::uint64_t>(config.run.seed);
  validate(request.sampling);
  if (tokenizer != nullptr) request.ends = tokenizer->special_ids().eos;
  if (config.model.init_from) {
    const std::string from = hub_snapshot(*config.model.init_from);
    const bool is_hf = file_exists(from + "/config.json");  // else a checkpoint
    std::ranges::copy(is_hf ? ends_of_folder(from) : ends_of_model(*find_initial(config)), std::back_inserter(request.ends));
  }
  if (chat) std::ranges::copy(chat_marks(*chat, *tokenizer).ends, std::back_inserter(request.ends));
  request.tokenizer = tokenizer;
  request.each_data_rank = true;
  request.refuses_non_finite = false;
  found->cache =
      shapes_for(model, longest, request.max_new_tokens, std::min(kMostAtOnce, request.sequences()), "eval.sample_tokens");
  return found;
}

}  // namespace trident
