#include "tests/support/layout_run.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "checkpoint/box_copy.h"
#include "core/philox.h"
#include "parallel/shared_memory/thread_world.h"
#include "tests/support/no_gpus.h"
#include "tests/support/param_elements.h"
#include "train/config/rank_count.h"
#include "train/launch/rank_devices.h"
#include "train/launch/prepare_run.h"

namespace trident::testing {
namespace {

// Shards of all ranks, put together under one lock. Reading them from a device comes first: it may have to wait for peers.
class Collector {
 public:
  void take(const ParamStore& store, ParallelContext& context, TensorView ParamShard::*values, NamedTensors& out) {
    std::vector<std::vector<float>> read;
    for (const ParamShard& shard : store.shards()) {
      std::vector<float>& mine = read.emplace_back();
      if (!shard.counts_in_norm) continue;  // the other end of a tied weight has no master of its own
      mine.resize(static_cast<std::size_t>((shard.*values).num_elements()));
      context.device().read(context.compute_stream(), mine.data(), shard.*values);
    }
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < read.size(); ++i) {
      const ParamShard& shard = store.shards()[i];
      for (const ShardPiece& piece : shard.pieces) {
        if (shard.counts_in_norm && piece.norm_owner && piece.trains) put(piece, context, read[i].data() + piece.shard_begin, out);
      }
    }
  }
  // The weights in use of frozen parameters, and of frozen parts of others.
  void take_frozen(const ParamStore& store, ParallelContext& context, NamedTensors& out) {
    for (const ParamShard& shard : store.shards()) {
      if (shard.param.data() == nullptr) continue;  // a tied weight that the other end holds
      const DType dtype = shard.param.dtype();
      std::vector<std::byte> stored(static_cast<std::size_t>(shard.param.num_bytes()));
      context.device().read(context.compute_stream(), stored.data(), shard.param);
      std::vector<float> values(static_cast<std::size_t>(shard.elements));
      convert_values(stored.data(), dtype, reinterpret_cast<std::byte*>(values.data()), DType::kF32, shard.elements);
      const std::lock_guard lock(mutex_);
      for (const ShardPiece& piece : shard.pieces)
        if (!piece.trains && piece.norm_owner) put(piece, context, values.data() + piece.shard_begin, out);
    }
  }
  std::mutex& mutex() { return mutex_; }

 private:
  // Writes the elements that this rank is the one owner of into their tensors.
  static void put(const ShardPiece& piece, const ParallelContext& context, const float* from, NamedTensors& out) {
    const ElementMap map(*piece.spec, context.grid().degrees().tensor, context.coordinates().tensor);
    for (std::int64_t i = 0; i < piece.count; ++i) {
      const auto element = map(piece.param_begin + i);
      if (!element) continue;
      std::vector<float>& tensor = out[element->part->tensor];
      tensor.resize(static_cast<std::size_t>(element->part->tensor_shape.num_elements()), std::nanf(""));
      tensor[static_cast<std::size_t>(element->index)] = from[i];
    }
  }
  std::mutex mutex_;
};

double norm2(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

}  // namespace

void set_masters(RankTrainer& trainer,
                 const std::function<std::optional<float>(const std::string& tensor, std::int64_t index)>& value) {
  const ParallelContext& context = trainer.context();
  for (const ParamShard& shard : trainer.store().shards()) {
    if (shard.master.data() == nullptr) continue;  // a tied weight that the other end holds
    for (const ShardPiece& piece : shard.pieces) {
      const ElementMap map(*piece.spec, context.grid().degrees().tensor, context.coordinates().tensor);
      for (std::int64_t i = 0; i < piece.count && piece.trains; ++i) {
        const auto element = map(piece.param_begin + i);
        if (const auto given = element ? value(element->part->tensor, element->index) : std::nullopt)
          shard.master.as<float>()[piece.shard_begin + i] = *given;
      }
    }
  }
  trainer.store().publish_masters();
}

LoadSamples random_tokens(std::int64_t vocabulary, std::int64_t sequence) {
  return [=](std::int64_t first, std::int64_t count, const SampleSpans& spans) {
    for (std::int64_t i = 0; i < count; ++i) {
      const PhiloxKey key = random_key(7, RandomPurpose::kTest, static_cast<std::uint64_t>(first + i));
      const auto token = [&](std::int64_t s) {
        return static_cast<std::int32_t>(static_cast<double>(uniform_at(key, static_cast<std::uint64_t>(s)) - 1e-7f) *
                                         static_cast<double>(vocabulary));
      };
      for (std::int64_t s = 0; s < sequence; ++s) {
        const auto at = static_cast<std::size_t>(s * count + i);
        if (!spans.tokens.empty()) spans.tokens[at] = token(s);
        if (!spans.targets.empty()) spans.targets[at] = token(s + 1);
      }
    }
  };
}

LayoutRun run_layout(const std::string& config_text, const std::vector<std::string>& settings, const LayoutRunOptions& options) {
  // One thread, unless a test says otherwise: bits may depend on how many there are, and "auto" takes what the machine has.
  std::vector<std::string> all{"run.dir=\"unused\"", "run.steps=1000", "data.train=\"unused\"", "run.threads_per_rank=1"};
  all.insert(all.end(), settings.begin(), settings.end());
  const TrainConfig config = parse_train_config(config_text, "test", all);
  NoGpus no_gpus;
  CudaBackend& backend = options.cuda != nullptr ? *options.cuda : no_gpus;
  const AskedDevice device = options.cuda != nullptr ? AskedDevice::kCuda : AskedDevice::kCpu;
  const int world_size = static_cast<int>(ranks_of(config.parallel));
  const DeviceChoice choice = choose_device(device, backend, look_for_gpus(device, backend, thread_ranks(world_size)));
  LayoutRun run;
  run.plan = make_run_plan(config, resolve_model(config), 0, machine_facts(choice, world_size));
  if (options.change_plan) run.plan = options.change_plan(std::move(run.plan));
  run.planned_bytes.resize(static_cast<std::size_t>(world_size));
  run.high_water.resize(static_cast<std::size_t>(world_size));
  const LoadSamples load = options.load ? options.load : random_tokens(run.plan.model.vocab_size, config.batch.sequence);

  ThreadWorld world(world_size, /*timeout_seconds=*/60.0);
  Collector collector;
  run_thread_ranks(world, [&](int rank) {
    RankDeviceOptions device_options;
    device_options.cpu.threads_per_rank = run.plan.threads_per_rank;
    device_options.gpu_slot = rank;
    device_options.cuda = config.cuda;
    const std::unique_ptr<Device> device = make_rank_device(choice, backend, world.doorbell(rank), device_options);
    RankTrainer trainer(run.plan, *device, world.communicator(rank, device->progress()), nullptr,
                        on_device(choice, backend, *device, options.transport));
    int step = 0;
    if (options.before_steps) options.before_steps(trainer);
    collector.take(trainer.store(), trainer.context(), &ParamShard::master, run.initial);
    collector.take_frozen(trainer.store(), trainer.context(), run.frozen_before);
    trainer.set_gradient_hook([&](const ParamStore& store) {
      if (options.on_gradients) options.on_gradients(store, trainer.context(), step);
      if (step == 0) collector.take(store, trainer.context(), &ParamShard::grad, run.gradients);
    });
    for (; step < options.steps; ++step) {
      trainer.context().reset_bytes_sent();
      const StepResult result = trainer.step(load);
      if (rank != 0) continue;
      run.losses.push_back(result.loss);
      run.grad_norms.push_back(result.grad_norm);
      run.applied.push_back(result.applied);
      if (result.rewards) run.rewards.push_back(*result.rewards);
      if (result.token_accuracy) run.token_accuracies.push_back(*result.token_accuracy);
    }
    const auto bytes = trainer.context().bytes_sent();
    if (options.after_steps) options.after_steps(trainer);
    // A sample less than two batches: what fills up the last one does not count, in any layout.
    const EvalResult eval = options.evaluate ? trainer.evaluate(load, 2 * config.batch.global - 1, {}) : EvalResult();
    trainer.drain();
    collector.take(trainer.store(), trainer.context(), &ParamShard::master, run.weights);
    collector.take_frozen(trainer.store(), trainer.context(), run.frozen);
    const std::lock_guard lock(collector.mutex());
    for (std::size_t a = 0; a < bytes.size(); ++a) run.bytes_sent[a] += bytes[a];
    run.planned_bytes[static_cast<std::size_t>(rank)] = trainer.arena().planned_bytes();
    run.high_water[static_cast<std::size_t>(rank)] = trainer.arena().high_water();
    if (rank == 0) run.eval_loss = eval.loss, run.eval_token_accuracy = eval.token_accuracy;
  });
  return run;
}

std::string tiny_llama_config() {
  return R"({
    "model": {"model_type": "llama", "vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 16, "num_attention_heads": 8,
              "num_key_value_heads": 4, "intermediate_size": 96, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": false},
    "parallel": {"data": 1, "pipeline": 1, "tensor": 1, "sequence_parallel": false},
    "batch": {"global": 8, "micro": 1, "sequence": 16},
    "precision": {"compute": "fp32"},
    "optimizer": {"lr": 3e-4, "grad_clip": 1.0},
    "lr_schedule": {"type": "constant", "warmup_steps": 4}
  })";
}

std::string tiny_gpt2_config() {
  return R"({
    "model": {"model_type": "gpt2", "vocab_size": 97, "n_embd": 64, "n_layer": 16, "n_head": 8, "n_positions": 64},
    "parallel": {"data": 1, "pipeline": 1, "tensor": 1, "sequence_parallel": false},
    "batch": {"global": 8, "micro": 1, "sequence": 16},
    "precision": {"compute": "fp32"},
    "optimizer": {"lr": 3e-4, "grad_clip": 1.0},
    "lr_schedule": {"type": "constant", "warmup_steps": 4}
  })";
}

std::string compare_losses(const LayoutRun& run, const LayoutRun& reference) {
  for (std::size_t i = 0; i < reference.losses.size(); ++i) {
    const double loss = run.losses.at(i), expected = reference.losses[i];
    if (!(std::abs(loss - expected) <= 1e-6 * std::abs(expected)))
      return fmt::format("loss of step {}: {:.9g}, expected {:.9g}", i + 1, loss, expected);
    const double norm = run.grad_norms.at(i), expected_norm = reference.grad_norms[i];
    if (!(std::abs(norm - expected_norm) <= 1e-5 * expected_norm)) {
      return fmt::format("gradient norm of step {}: {:.9g}, expected {:.9g}", i + 1, norm, expected_norm);
    }
  }
  return "";
}

std::string compare_gradients(const NamedTensors& gradients, const NamedTensors& reference) {
  double whole = 0;
  for (const auto& [name, r] : reference) whole += norm2(r) * norm2(r);
  whole = std::sqrt(whole);
  if (gradients.size() != reference.size()) return fmt::format("{} tensors, expected {}", gradients.size(), reference.size());
  for (const auto& [name, r] : reference) {
    const auto found = gradients.find(name);
    if (found == gradients.end() || found->second.size() != r.size()) return name + ": missing, or of another size";
    std::vector<float> difference(r.size());
    for (std::size_t i = 0; i < r.size(); ++i) difference[i] = found->second[i] - r[i];
    const double off = norm2(difference), allowed = 1e-5 * norm2(r) + 1e-9 * whole;
    if (!(off <= allowed))
      return fmt::format("gradient of {}: off by {:.3g}, allowed {:.3g}, norm {:.3g} (all {:.3g})", name, off, allowed, norm2(r),
                         whole);
  }
  return "";
}

std::string compare_bits(const LayoutRun& a, const LayoutRun& b) {
  if (a.losses != b.losses) return fmt::format("losses differ: {:.17g} and {:.17g} first", a.losses.at(0), b.losses.at(0));
  if (a.grad_norms != b.grad_norms)
    return fmt::format("gradient norms differ: {:.17g} and {:.17g} first", a.grad_norms.at(0), b.grad_norms.at(0));
  const auto same = [](const NamedTensors& x, const NamedTensors& y) -> std::string {
    for (const auto& [name, v] : x) {
      const auto found = y.find(name);
      if (found == y.end() || found->second.size() != v.size()) return name;
      if (std::memcmp(found->second.data(), v.data(), v.size() * sizeof(float)) != 0) return name;
    }
    return x.size() == y.size() ? "" : "a tensor is missing";
  };
  if (const std::string name = same(a.gradients, b.gradients); !name.empty()) return "gradient bits differ: " + name;
  if (const std::string name = same(a.weights, b.weights); !name.empty()) return "weight bits differ: " + name;
  return "";
}

}  // namespace trident::testing
