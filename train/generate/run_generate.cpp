#include "train/generate/run_generate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <utility>

#include "core/available_memory.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "data/tokenizer/token_ids.h"
#include "device/cpu/cpu_device.h"
#include "model/gpt.h"
#include "parallel/communicator/launcher.h"
#include "parallel/mpi/process_world.h"
#include "parallel/shared_memory/thread_world.h"
#include "train/generate/machine_rates.h"
#include "train/plan/machine.h"
#include "train/plan/run_plan.h"
#include "train/run/load_checkpoint.h"
#include "train/run/rank_model.h"
#include "train/run/resume.h"
#include "train/run/run_manifest.h"
#include "train/run/run_together.h"
#include "train/run/weights_source.h"

namespace trident {
namespace {

// What the ranks of this process share, decided before there are any.
struct Job {
  std::optional<Resume> weights;  // nothing: drawn at random
  std::string key, path;          // that name them, for messages
  RunPlan plan;
  std::unique_ptr<Tokenizer> tokenizer;
  GenerateRequest request;
  bool timings = false;
};

// The run's configuration in a layout of one rank, but for what the user sets. Its own layout was chosen for training.
std::vector<std::string> settings_of(const GenerateOptions& options) {
  std::vector<std::string> settings = {"device=cpu",
                                       "model.dropout=0",  // nothing is dropped, attention's probabilities neither
                                       "parallel.data=1",
                                       "parallel.pipeline=1",
                                       "parallel.tensor=1",
                                       "parallel.context=1",
                                       "parallel.virtual_stages=1",
                                       "parallel.schedule=1f1b",
                                       "parallel.zero=ddp",
                                       "parallel.grad_sync=null",
                                       "parallel.param_gather=null",
                                       "parallel.layers=null",
                                       "precision.stochastic_rounding=false",
                                       "run.threads_per_rank=auto",
                                       "eval.samples=[]",
                                       "eval.sample_ids=[]"};
  settings.insert(settings.end(), options.settings.begin(), options.settings.end());
  settings.insert(settings.end(), {"parallel.sequence_parallel=false", "parallel.virtual_stages=1", "recompute.policy=none",
                                   "batch.micro=1", "batch.sequence=1"});
  return settings;
}

// What a configuration must say beside the model. Nothing of it is used.
std::string config_of_folder(const std::string& folder) {
  JsonValue model, run, batch, optimizer, data, config;
  model.set("hf_config", folder);
  run.set("dir", "none");
  run.set("steps", std::int64_t{1});
  batch.set("global", std::int64_t{1});
  batch.set("sequence", std::int64_t{1});
  optimizer.set("lr", 1.0);
  data.set("train", "none");
  config.set("model", std::move(model));
  config.set("run", std::move(run));
  config.set("batch", std::move(batch));
  config.set("optimizer", std::move(optimizer));
  config.set("data", std::move(data));
  return to_json_text(config);
}

TrainConfig read_config(const GenerateOptions& options, const std::optional<Resume>& weights) {
  const std::string source = options.checkpoint ? weights->folder + "/manifest.json" : options.hf_folder ? "--hf" : *options.config;
  const std::string text = options.checkpoint  ? to_json_text(weights->manifest.config)
                           : options.hf_folder ? config_of_folder(*options.hf_folder)
                                               : read_file(source);
  std::vector<std::string> settings = settings_of(options);
  const auto parsed = [&] { return parse_train_config(text, source, settings); };
  // One sequence for each data rank, so that every degree divides.
  settings.push_back("batch.global=1");
  const std::int64_t data = parsed().parallel.data.ranks.value_or(1);
  settings.push_back(fmt::format("batch.global={}", data));
  settings.push_back(fmt::format("parallel.data={}", data));
  const TrainConfig config = parsed();
  if (config.parallel.context != 1)
    throw ConfigError(fmt::format("parallel.context = {}: text is made with 1; leave the key out", config.parallel.context));
  if (config.device == AskedDevice::kCuda) throw ConfigError("device = cuda: trident generate computes on CPUs; leave the key out");
  return config;
}

void check_options(const GenerateOptions& options) {
  validate(options.sampling);
  const auto at_least_1 = [](const char* name, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most) throw ConfigError(fmt::format("{} = {}: must be from 1 to {}", name, value, most));
  };
  at_least_1("--max-new-tokens", options.max_new_tokens, 1 << 24);
  at_least_1("-n", options.samples, 1 << 20);
  at_least_1("--batch", options.slots, kMostSlots);
  if (options.prompts.empty())
    throw ConfigError("there is no prompt; give --prompt TEXT, --prompts FILE or --prompt-ids \"5 17 2\"");
  for (const std::string& stop : options.stops) {
    if (stop.empty()) throw ConfigError("--stop = \"\": an empty text is everywhere; give the text to stop before");
  }
}

// eos_token_id of generation_config.json, else of config.json: a number, several, or none.
std::vector<std::int32_t> ends_of_folder(const std::string& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = folder + "/" + name;
    if (!file_exists(path)) continue;
    const JsonValue json = parse_json(read_file(path), path, {.comments = JsonComments::kRefused, .blame = ExitCode::kData});
    const JsonValue* const eos = json.is_object() ? json.find("eos_token_id") : nullptr;
    if (eos == nullptr || eos->is_null()) continue;
    std::vector<std::int32_t> ends;
    for (const JsonValue& id : eos->is_array() ? eos->items() : JsonValue::Array{*eos}) {
      if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() > INT32_MAX)
        throw DataError(fmt::format("{}: eos_token_id = {}: must be a token id, or a list of some", path, to_json_text(*eos)));
      ends.push_back(static_cast<std::int32_t>(id.as_integer()));
    }
    return ends;
  }
  return {};
}

GenerateRequest make_request(const GenerateOptions& options, const RunPlan& plan, const Tokenizer* tokenizer) {
  GenerateRequest request;
  request.samples = options.samples;
  request.max_new_tokens = options.max_new_tokens;
  request.sampling = options.sampling;
  request.stops = options.stops;
  request.tokenizer = tokenizer;
  if (!options.ignore_end) {
    if (options.end)
      request.ends = {*options.end};
    else if (options.hf_folder)
      request.ends = ends_of_folder(*options.hf_folder);
    else if (tokenizer != nullptr)
      request.ends = {tokenizer->eod()};
  }
  for (const Prompt& prompt : options.prompts) {
    std::vector<std::int32_t>& ids = request.prompts.emplace_back(prompt.text ? tokenizer->encode(*prompt.text) : prompt.ids);
    if (ids.empty() && prompt.text) ids = {tokenizer->eod()};  // a document begins after the end of another
    const std::size_t number = request.prompts.size() - 1;
    if (ids.empty()) throw ConfigError(fmt::format("prompt {} has no token; give at least one id", number));
    check_token_ids(ids, plan.model.vocab_size, fmt::format("prompt {}", number), prompt.text ? tokenizer : nullptr);
  }
  return request;
}

std::int64_t longest_prompt(const GenerateRequest& request) {
  std::size_t longest = 0;
  for (const auto& prompt : request.prompts) longest = std::max(longest, prompt.size());
  return static_cast<std::int64_t>(longest);
}

// A folder's own tokenizer may be of a kind that is not read: ids do without.
std::unique_ptr<Tokenizer> find_tokenizer(const GenerateOptions& options, const TrainConfig& config, bool needs_text) {
  if (options.tokenizer) return load_tokenizer(*options.tokenizer, "--tokenizer");
  if (options.hf_folder) {
    try {
      return load_tokenizer(*options.hf_folder, "--hf");
    } catch (const Error&) {
      if (needs_text) throw;
      return nullptr;
    }
  }
  if (config.data.tokenizer) return load_tokenizer(*config.data.tokenizer, "data.tokenizer");
  if (needs_text)
    throw ConfigError(
        "the run names no tokenizer (data.tokenizer), and texts need one; give --tokenizer, or --prompt-ids without --stop");
  return nullptr;
}

Job make_job(const GenerateOptions& options, int world_size, int local_ranks) {
  check_options(options);
  Job job;
  job.timings = options.timings;
  if (options.checkpoint) {
    job.key = "--ckpt", job.path = *options.checkpoint;
    job.weights = find_weights(job.path, job.key);
  } else if (options.hf_folder) {
    job.key = "--hf", job.path = *options.hf_folder;
    job.weights = find_hf_weights(job.path, job.key);
  }
  const TrainConfig config = read_config(options, job.weights);
  const ModelConfig model = resolve_model(config);
  const bool needs_text =
      !options.stops.empty() || std::ranges::any_of(options.prompts, [](const Prompt& p) { return p.text.has_value(); });
  job.tokenizer = find_tokenizer(options, config, needs_text);
  const std::int64_t ranks = config.parallel.data.ranks.value_or(1) * config.parallel.pipeline * config.parallel.tensor;
  const MachineFacts machine = cpu_machine_facts(local_ranks > 0 ? local_ranks : static_cast<int>(ranks));
  RunPlan plan = make_run_plan(config, model, world_size, machine);
  if (job.weights) check_initial_model(config, stored_tensors(plan), *job.weights);
  job.request = make_request(options, plan, job.tokenizer.get());
  const std::int64_t longest = longest_prompt(job.request);
  const std::int64_t each =
      (job.request.sequences() + config.parallel.data.ranks.value_or(1) - 1) / config.parallel.data.ranks.value_or(1);
  const CachedShapes shapes =
      shapes_for(model, longest, options.max_new_tokens, std::min(options.slots, each), "--max-new-tokens");
  job.plan = text_only(std::move(plan), shapes);
  return job;
}

// All ranks' memory at once, where one machine holds it.
void check_memory(const ArenaPlan& plan, ParallelContext& context, bool one_machine) {
  std::vector<double> bytes{static_cast<double>(plan.total_bytes())};
  context.world().all_reduce(context.host_stream(), {bytes.data(), DType::kF64, {1}}, ReduceOp::kSum);
  context.host_stream().synchronize();
  const AvailableMemory available = available_memory();
  if (!one_machine || bytes[0] <= static_cast<double>(available.bytes)) return;
  const int rank = context.rank();
  throw ConfigError(
      fmt::format("the ranks need {:.2f} GB, {} has {:.2f} GB (of rank {}: {}); use fewer --batch or --max-new-tokens, or "
                  "--set precision.compute=bf16",
                  bytes[0] * 1e-9, available.limit, static_cast<double>(available.bytes) * 1e-9, rank, largest_entries(plan)));
}

// One rank, from its device to its part of the result.
GenerateResult run_rank(const Job& job, Device& device, std::unique_ptr<Communicator> world, bool one_machine,
                        const ShowText& show, LogSink& log) {
  const RunPlan& plan = job.plan;
  RankModel model(plan, device, std::move(world), nullptr, {});
  ParallelContext& context = model.context();
  check_memory(model.arena_plan(), context, one_machine);
  model.allocate();
  if (job.weights) {
    load_weights(*job.weights, model, Logger(log), job.key, job.path);
  } else {
    draw_weights(model.store(), model.shard_holder(), device, context.compute_stream());
    model.store().publish_weights();
  }
  CachedStage& stage = model.cached_stage();
  const bool shows = context.rank() == 0 && plan.grid.degrees().data == 1;
  TokenLoop loop(job.request, stage, *plan.text, plan.model.vocab_size, context, shows ? show : ShowText());
  GenerateResult result;
  GenerateTimes& times = result.times;
  std::optional<MachineRates> machine;
  if (job.timings) {
    times = times_of_no_pass(plan.model);
    times.step_weight_bytes = stage.weight_bytes_per_token();
    times.cache_bytes_per_position = stage.cache_bytes_per_position();
    if (plan.world_size() == 1) machine.emplace(device, plan.compute);
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

CpuDeviceOptions device_options(const RunPlan& plan) {
  CpuDeviceOptions options;
  options.threads_per_rank = plan.threads_per_rank;
  options.small_products = SmallProducts::kRowByRow;
  return options;
}

std::optional<GenerateResult> run_as_threads(const GenerateOptions& options, const ShowText& show, LogSink& log) {
  const Job job = make_job(options, 0, 0);
  GenerateResult result;
  ThreadWorld world(job.plan.world_size());
  run_thread_ranks(world, [&](int rank) {
    CpuDevice device(world.doorbell(rank), device_options(job.plan));
    GenerateResult of_rank = run_rank(job, device, world.communicator(rank, device.progress()), true, show, log);
    if (rank == 0) result = std::move(of_rank);
  });
  return result;
}

GenerateResult run_in_process(const Job& job, ProcessWorld& world, const ShowText& show, LogSink& log) {
  CpuDeviceOptions of_device = device_options(job.plan);
  of_device.memory = [&](std::int64_t bytes, const std::string& name) { return world.allocate(bytes, name); };
  CpuDevice device(world.doorbell(), of_device);
  const bool one_machine = world.local_size() == world.size();
  return run_rank(job, device, world.communicator(device.progress()), one_machine, show, log);
}

std::optional<GenerateResult> run_as_process(const GenerateOptions& options, const ShowText& show, LogSink& log) {
  const std::unique_ptr<ProcessWorld> world = join_process_world();
  std::optional<GenerateResult> result;
  try {
    Job job;
    run_together(*world, [&] { job = make_job(options, world->size(), world->local_size()); });
    result = run_in_process(job, *world, show, log);
  } catch (const AgreedError& error) {
    log.write(LogLevel::kInfo, "trident: ", error.what());  // before anybody ends: launchers kill the rest as soon as one has
    world->finish();
    throw ReportedElsewhere(error.code(), error.what());
  } catch (const ReportedElsewhere&) {
    world->finish();
    throw;
  } catch (const Error& error) {
    world->fail(fmt::format("rank {}: {}", world->rank(), error.what()));
    throw;
  }
  world->finish();
  return world->rank() == 0 ? std::move(result) : std::nullopt;
}

}  // namespace

std::optional<GenerateResult> run_generate(const GenerateOptions& options, const ShowText& show, LogSink* log) {
  std::ostream nowhere(nullptr);
  LogSink silent(nowhere);
  LogSink& sink = log != nullptr ? *log : silent;
  const Launcher launcher = detect_launcher([](const char* name) { return std::getenv(name); });
  switch (launcher.kind) {
    case Launcher::Kind::kNone: return run_as_threads(options, show, sink);
    case Launcher::Kind::kMpi: return run_as_process(options, show, sink);
    case Launcher::Kind::kPlainSrun: refuse_unconnected_processes(launcher);
  }
  return std::nullopt;
}

}  // namespace trident
