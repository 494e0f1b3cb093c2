#include "infer/generate/run_generate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "core/available_memory.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/utf8.h"
#include "data/chat_documents.h"
#include "data/dataset_files.h"
#include "data/dataset_record.h"
#include "data/tokenizer/token_ids.h"
#include "infer/generate/generate_times.h"
#include "train/launch/run_forward.h"
#include "train/plan/run_plan.h"
#include "train/run/load_checkpoint.h"
#include "train/run/model_tokenizer.h"
#include "train/run/rank_model.h"
#include "train/run/weights_source.h"

namespace trident {
namespace {

// The ranks of this process share this, which is decided before there are any.
struct Job {
  std::unique_ptr<Tokenizer> tokenizer;
  GenerateRequest request;
  std::optional<ChatSource> chat;  // by whose template messages are answered
  Conversation said;               // where a conversation begins
};

// The layout is the user's, as of trident eval, but for what has no meaning where rows are few and nothing is trained.
std::vector<std::string> settings_of(const GenerateOptions& options) {
  std::vector<std::string> settings = {"device=cpu", "parallel.zero=ddp", "precision.stochastic_rounding=false",
                                       "run.threads_per_rank=auto"};
  settings.insert(settings.end(), options.settings.begin(), options.settings.end());
  settings.insert(settings.end(),
                  {"parallel.sequence_parallel=false", "recompute.policy=none", "batch.micro=1", "batch.sequence=1"});
  return settings;
}

ForwardModel read_weights_of(const GenerateOptions& options) {
  const std::vector<std::string> settings = settings_of(options);
  const ConfigWeights of_config = options.random_weights ? ConfigWeights::kRandom : ConfigWeights::kNewest;
  ForwardModel model = options.checkpoint  ? forward_model_of_checkpoint(*options.checkpoint, settings, "--ckpt")
                       : options.hf_folder ? forward_model_of_hf(*options.hf_folder, settings, "--hf", options.adapter)
                                           : forward_model_of_config(*options.config, settings, "--config", of_config);
  const TrainConfig& config = model.config;
  if (config.parallel.context != 1)
    throw ConfigError(fmt::format("parallel.context = {}: text is made with 1; leave the key out", config.parallel.context));
  if (config.device == AskedDevice::kCuda) throw ConfigError("device = cuda: trident generate computes on CPUs; leave the key out");
  model.config.device = AskedDevice::kCpu;
  return model;
}

void check_options(const GenerateOptions& options) {
  validate(options.sampling);
  const auto at_least_1 = [](const char* name, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most) throw ConfigError(fmt::format("{} = {}: must be from 1 to {}", name, value, most));
  };
  at_least_1("--max-new-tokens", options.max_new_tokens, 1 << 24);
  at_least_1("-n", options.samples, 1 << 20);
  at_least_1("--batch", options.slots, kMostSlots);
  if (options.prompts.empty() && options.messages.empty() && !options.ask)
    throw ConfigError(
        "no prompt given; pass --prompt TEXT, --prompts FILE, --messages FILE, --chat or --prompt-ids \"5 17 2\"");
  if (options.ask && options.messages.size() > 1) throw ConfigError("--messages: given twice; one file begins the --chat");
  for (const std::string& stop : options.stops) {
    if (stop.empty()) throw ConfigError("--stop = \"\": an empty text is everywhere; give the text to stop before");
  }
}

// Files are read, in their places.
std::vector<Prompt> all_prompts(const GenerateOptions& options) {
  std::vector<Prompt> prompts;
  for (const Prompt& prompt : options.prompts) {
    if (!prompt.file) {
      prompts.push_back(prompt);
      continue;
    }
    std::vector<Prompt> of_file = read_prompts(*prompt.file);
    std::ranges::move(of_file, std::back_inserter(prompts));
  }
  return prompts;
}

GenerateRequest make_request(const GenerateOptions& options, std::span<const Prompt> prompts, std::int64_t vocab_size,
                             const Tokenizer* tokenizer, const WeightsSource& model,
                             std::span<const std::int32_t> ends_of_template) {
  GenerateRequest request;
  request.samples = options.samples;
  request.max_new_tokens = options.max_new_tokens;
  request.sampling = options.sampling;
  request.stops = options.stops;
  request.tokenizer = tokenizer;
  if (!options.ignore_end) {
    check_token_ids(options.ends, vocab_size, "--end", nullptr);
    request.ends = options.ends;
    if (request.ends.empty() && hf_files_of(model)) request.ends = ends_of_model(model);
    if (request.ends.empty() && tokenizer != nullptr) request.ends = tokenizer->special_ids().eos;
    if (options.ends.empty()) request.ends.insert(request.ends.end(), ends_of_template.begin(), ends_of_template.end());
  }
  for (const Prompt& prompt : prompts) {
    const TextRule rule{.around = options.no_special ? Around::kLeftOut : Around::kAdded};
    std::vector<std::int32_t>& ids = request.prompts.emplace_back(prompt.text ? tokenizer->encode(*prompt.text, rule) : prompt.ids);
    if (ids.empty() && prompt.text && tokenizer->special_ids().eod)
      ids = {*tokenizer->special_ids().eod};  // a document begins after the end of another
    const std::size_t number = request.prompts.size() - 1;
    if (ids.empty()) throw ConfigError(fmt::format("prompt {} has no token; give at least one id", number));
    check_token_ids(ids, vocab_size, fmt::format("prompt {}", number), prompt.text ? tokenizer : nullptr);
  }
  return request;
}

std::int64_t longest_prompt(const GenerateRequest& request) {
  std::size_t longest = 0;
  for (const auto& prompt : request.prompts) longest = std::max(longest, prompt.size());
  return static_cast<std::int64_t>(longest);
}

// Prompts begin as the texts did that the model learned from, where those still say how.
void refuse_other_data(const DataConfig& data, const Tokenizer& tokenizer, bool no_special) {
  if (tokenizer.special_ids().before.empty() && tokenizer.special_ids().after.empty()) return;
  const RecordedTokenizer ours = recorded(tokenizer, {.around = no_special ? Around::kLeftOut : Around::kAdded});
  for (const WeightedPath& source : data.train) {
    std::optional<DatasetRecord> record;
    try {
      record = read_record(source.path);
    } catch (const Error&) {  // data that is gone, or is another's by now
    }
    if (record && record->origin.tokenizer == ours)
      refuse_other_around(record_path(source.path), *record->origin.tokenizer, "the prompts", ours);
  }
}

// The template is the tokenizer folder's, unless one is named; today is its date.
void read_chat(const GenerateOptions& options, Job& job, std::vector<Prompt>& prompts) {
  job.chat = chat_source_of(job.tokenizer->name(), options.chat_template, options.ask ? "--chat" : "--messages");
  job.chat->variables.now = time_of(local_time_text(kTimeFormat), "");
  if (options.ask) {
    job.said.messages = JsonValue::Array();
    for (const std::string& path : options.messages) job.said = read_messages_file(path);
    const ChatTemplate& chat = job.chat->for_tools(job.said.tools);
    if (takes_texts_alone(chat, job.said, job.chat->variables)) job.said.messages = std::exchange(job.said.written, {});
    return;
  }
  for (const std::string& path : options.messages) {
    const RenderedChat rendered = render_messages_file(*job.chat, path, "", GenerationPrompt::kAdded);
    prompts.push_back({.ids = encode_rendered(rendered, *job.tokenizer)});
  }
}

// As transformers and vLLM read the model's generation_config.json: its values are defaults. do_sample false is greedy, unless a
// flag of the draws is given. Returns the line that says what was taken, and what this program cannot do; "": nothing.
std::string take_generation_config(const GenerateOptions& options, const WeightsSource& model, SamplingOptions& sampling) {
  const std::optional<std::string> folder = hf_files_of(model);
  const std::string path = folder.value_or("") + "/generation_config.json";
  if (!folder || !file_exists(path)) return "";
  const JsonValue json = parse_json(read_file(path), path, {.comments = false, .blame = ExitCode::kData});
  const auto is_given = [&](std::string_view flag) { return std::ranges::find(options.given, flag) != options.given.end(); };
  std::string taken, left;
  const auto value_of = [&](const char* key) -> std::optional<double> {
    if (const JsonValue& value = json.get(key); !value.is_null() && !value.is_number())
      throw DataError(fmt::format("{}: {} = {}: must be a number", path, key, to_json_text(value)));
    return json.number_at(key);
  };
  const auto say = [](std::string& text, const char* key, double value) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, value);
  };
  constexpr double kMostWhole = 1e15;  // all below have a double
  const auto take = [&](const char* key, const char* flag, auto& into) {
    const std::optional<double> value = value_of(key);
    if (!value || is_given(flag) || *value == static_cast<double>(into)) return;
    using Number = std::remove_reference_t<decltype(into)>;
    if (std::is_integral_v<Number> && (std::trunc(*value) != *value || std::abs(*value) > kMostWhole))
      throw DataError(fmt::format("{}: {} = {}: must be a whole number; correct it there, or give {}", path, key, *value, flag));
    into = static_cast<Number>(*value);
    say(taken, key, *value);
  };
  take("repetition_penalty", "--repetition-penalty", sampling.repetition_penalty);
  const auto of_draws = {"--temperature", "--top-k", "--top-p", "--seed"};
  if (!sampling.is_greedy() && json.get("do_sample") == JsonValue(false) && std::ranges::none_of(of_draws, is_given)) {
    sampling.temperature = 0;
    taken += taken.empty() ? "do_sample false" : ", do_sample false";
  }
  if (!sampling.is_greedy()) take("temperature", "--temperature", sampling.temperature);
  if (!sampling.is_greedy()) {
    take("top_k", "--top-k", sampling.top_k);
    take("top_p", "--top-p", sampling.top_p);
    for (const auto& [key, neutral] : {std::pair{"min_p", 0.}, {"typical_p", 1.}, {"epsilon_cutoff", 0.}, {"eta_cutoff", 0.}})
      if (const std::optional<double> value = value_of(key); value && *value != neutral) say(left, key, *value);
  }
  for (const auto& [key, neutral] : {std::pair{"num_beams", 1.}, {"no_repeat_ngram_size", 0.}})
    if (const std::optional<double> value = value_of(key); value && *value != neutral) say(left, key, *value);
  try {
    validate(sampling);
  } catch (const ConfigError& error) {
    throw DataError(fmt::format("{}: {}; correct it there, or give the flag", path, error.what()));
  }
  if (taken.empty() && left.empty()) return "";
  return fmt::format("{}: {}{}{}{}", path, taken, taken.empty() ? "" : " (flags go before it)",
                     taken.empty() || left.empty() ? "" : "; ", left.empty() ? "" : left + " is not done here");
}

ForwardModel read_job(const GenerateOptions& options, Job& job) {
  check_options(options);
  refuse_unused_settings(options.settings, {"batch", "parallel.sequence_parallel"},
                         "how many sequences are computed at once --batch says");
  ForwardModel model = read_weights_of(options);
  std::vector<Prompt> prompts = all_prompts(options);
  const bool is_chat = options.ask || !options.messages.empty();
  const bool needs_text = !options.stops.empty() || is_chat ||
                          std::ranges::any_of(prompts, [](const Prompt& p) { return p.text.has_value(); });
  ModelTokenizer found = find_tokenizer(options.tokenizer, &model.config.data, model.checkpoint, model.key);
  if (needs_text && found.tokenizer == nullptr)
    throw Error(found.refused ? found.refused->code() : ExitCode::kConfig,
                fmt::format("{}: needs a tokenizer, and the model names no tokenizer that can be read{}; give --tokenizer{}",
                            options.ask              ? "--chat"
                            : is_chat                ? "--messages"
                            : !options.stops.empty() ? "--stop"
                                                     : "a prompt of text",
                            found.refused ? fmt::format(" ({})", found.refused->what()) : "",
                            is_chat                  ? ""
                            : !options.stops.empty() ? ", or leave --stop out"
                                                     : ", or --prompt-ids"));
  if (found.other && needs_text) model.checkpoint.notes.push_back("warning: " + *found.other);
  job.tokenizer = std::move(found.tokenizer);
  ChatMarks marks;
  if (is_chat) {  // a template writes itself what stands around messages
    read_chat(options, job, prompts);
    marks = chat_marks(*job.chat, *job.tokenizer);
    if (!marks.warning.empty()) model.checkpoint.notes.push_back("warning: " + marks.warning);
  } else if (needs_text) {
    refuse_other_data(model.config.data, *job.tokenizer, options.no_special);
  }
  job.request = make_request(options, prompts, resolve_model(model.config).vocab_size, job.tokenizer.get(),
                             model.checkpoint, marks.ends);
  if (std::string line = take_generation_config(options, model.checkpoint, job.request.sampling); !line.empty())
    model.checkpoint.notes.push_back(std::move(line));
  return model;
}

RunPlan plan_text(const GenerateOptions& options, const Job& job, RunPlan plan) {
  if (options.ask) {
    if (plan.world_size() != 1)
      throw ConfigError(
          fmt::format("--chat: {} ranks, and one talks; leave out parallel.* and start one process", plan.world_size()));
    const std::int64_t longest = std::min(plan.model.longest_sequence(), kChatPositions) - 1;
    const KvCacheShape shapes = shapes_for(plan.model, longest, 1, 1, "--chat");
    return generation_only(std::move(plan), shapes);
  }
  const std::int64_t data = plan.grid.degrees().data, each = (job.request.sequences() + data - 1) / data;
  const KvCacheShape shapes = shapes_for(plan.model, longest_prompt(job.request), options.max_new_tokens,
                                         std::min(options.slots, each), "--max-new-tokens");
  return generation_only(std::move(plan), shapes);
}

// Compares the memory of this machine's ranks with what it has left.
void check_memory(const RunPlan& plan, std::span<const ArenaNeed> needs) {
  const AvailableMemory available = available_memory();
  for (const MemoryPool& pool : plan.memory) {
    double total = 0;
    for (const int rank : pool.ranks) total += needs[static_cast<std::size_t>(rank)].total;
    if (total <= static_cast<double>(std::min(pool.bytes, available.bytes))) continue;
    const int first = pool.ranks.front();
    throw ConfigError(
        fmt::format("the ranks need {:.2f} GB, {} has {:.2f} GB (of rank {}: {}); use fewer --batch or --max-new-tokens, or "
                    "--set precision.compute=bf16",
                    total * 1e-9, available.limit, static_cast<double>(std::min(pool.bytes, available.bytes)) * 1e-9, first,
                    needs[static_cast<std::size_t>(first)].largest));
  }
}

// Answers what the user says, one thing after the other, each with all that was said before.
void talk(const GenerateOptions& options, const Job& job, const RunPlan& plan, RankModel& model, const ShowText& show) {
  const ChatTemplate& chat = job.chat->for_tools(job.said.tools);
  JsonValue::Array said = job.said.messages.items();
  while (const std::optional<std::string> line = options.ask()) {
    std::string words;
    replace_ill_formed(*line, &words);
    said.push_back(chat_message("user", words));
    GenerateRequest request = job.request;
    const JsonValue all(said);
    request.prompts = {
        encode_rendered(chat.render(all, job.said.tools, GenerationPrompt::kAdded, job.chat->variables), *job.tokenizer)};
    const std::vector<std::int32_t>& ids = request.prompts.front();
    check_token_ids(ids, plan.model.vocab_size, "the conversation", job.tokenizer.get());
    const std::int64_t left = plan.generation->capacity + 1 - std::ssize(ids);
    if (left < 1 || ids.empty())
      throw ConfigError(fmt::format("--chat: the conversation has {} tokens by now, and may have 1 to {} before an answer; begin "
                                    "a new one",
                                    ids.size(), plan.generation->capacity));
    request.max_new_tokens = std::min(request.max_new_tokens, left);
    TokenLoop loop(request, model.cached_stage(), *plan.generation, plan.model.vocab_size, model.context(), show);
    said.push_back(chat_message("assistant", loop.run().front().text));
  }
}

// One rank, from its device to its part of the result.
GenerateResult run_rank(const GenerateOptions& options, const Job& job, const ForwardInputs& inputs, JobRank rank,
                        const ShowText& show) {
  const RunPlan& plan = inputs.plan;
  RankModel model(plan, rank.device, std::move(rank.world), rank.board, {});
  ParallelContext& context = model.context();
  model.allocate();
  GenerateResult result;
  if (const ForwardModel& from = inputs.model; !from.checkpoint.folder.empty()) {
    result.model = load_newest_weights(from.checkpoint, model, rank.logger, from.key, from.path).folder;
  } else {
    draw_weights(model.store(), model.shard_holder(), rank.device, context.compute_stream());
    model.store().publish_weights();
  }
  if (rank.board != nullptr) rank.board->set_phase(RunPhase::kGenerating);
  if (options.ask) {
    talk(options, job, plan, model, show);
    model.drain();
    return {};
  }
  CachedStage& stage = model.cached_stage();
  const bool shows = context.rank() == 0 && job.request.sequences() == 1;
  TokenLoop loop(job.request, stage, *plan.generation, plan.model.vocab_size, context, shows ? show : ShowText());
  GenerateTimes& times = result.times;
  std::optional<MachineRates> machine;
  if (options.timings) {
    times = times_of_no_pass(plan.model);
    times.step_weight_bytes = stage.weight_bytes_per_token();
    times.cache_bytes_per_position = stage.cache_bytes_per_position();
    if (plan.world_size() == 1) machine.emplace(rank.device, plan.compute);
    loop.watch([&](PassTime pass) {
      const MachineRates::Rate rate = !machine ? MachineRates::Rate() : pass.is_prompt ? machine->multiply() : machine->read();
      pass.machine_rate = rate.by_clock;
      pass.machine_cpu_rate = rate.by_cpu;
      times.passes.push_back(pass);
    });
  }
  result.continuations = loop.run();
  result.has_text = job.tokenizer != nullptr;
  result.ranks = plan.world_size();
  model.drain();
  return result;
}

}  // namespace

std::optional<GenerateResult> run_generate(const std::function<GenerateOptions()>& read, const ShowText& show, LogSink& log,
                                           CudaBackend& cuda) {
  GenerateOptions options;
  Job job;
  std::optional<GenerateResult> result;
  ForwardKind kind;
  kind.plan = [&](RunPlan plan) { return plan_text(options, job, std::move(plan)); };
  kind.check_memory = check_memory;
  kind.small_products = SmallProducts::kRowByRow;
  const auto on_rank = [&](const ForwardInputs& inputs, JobRank rank) {
    const bool is_first = rank.world->rank() == 0;
    GenerateResult of_rank = run_rank(options, job, inputs, std::move(rank), show);
    if (is_first) result = std::move(of_rank);
  };
  const auto read_all = [&] {
    options = read();
    return read_job(options, job);
  };
  run_forward(read_all, on_rank, log, cuda, kind);
  return result;
}

}  // namespace trident
