#include "train/run/rank_model.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/check.h"
#include "train/run/arena_check.h"
#include "train/run/dry_run.h"

namespace trident {
namespace {

std::vector<const StepProgram*> programs_of(const RunPlan& plan, int rank) {
  if (!plan.has_programs()) return {};
  if (!plan.trains()) return {&plan.eval_program(rank)};
  return {&plan.step_program(rank), &plan.eval_program(rank)};
}

ParamStoreConfig store_config(const RunPlan& plan, std::span<const StepProgram* const> programs) {
  ParamStoreConfig config;
  config.policy = plan.zero;
  config.compute = plan.compute;
  config.bucket_bytes = static_cast<std::int64_t>(plan.config.parallel.bucket_mb * 1e6);
  config.seed = static_cast<std::uint64_t>(plan.config.run.seed);
  for (const StepProgram* const program : programs) {
    if (program->gathers_on_use) config.gather_bytes = std::max(config.gather_bytes, program->gather_bytes);
    config.grad_bytes = std::max(config.grad_bytes, program->grad_bytes);
  }
  config.trains = plan.trains();
  return config;
}

// Kernels of products and attention come to the GPU here: a communicator of NCCL that is connected may keep the GPU busy until a
// peer's host calls, which waits for what its own GPU is not idle for.
void warm_up_kernels(const RunPlan& plan, Device& device, int rank) {
  if (device.kind() != DeviceKind::kCuda) return;
  dry_run(plan, rank, &device.ops(), DryWork::kConstruct);  // announces them
  device.run_announced();
}

}  // namespace

RankModel::RankModel(const RunPlan& plan, Device& device, std::unique_ptr<Communicator> world, StatusBoard* board,
                     const OnDevice& on_device)
    : plan_(plan), device_(device), executor_(device) {
  warm_up_kernels(plan, device, world->rank());
  context_.emplace(plan.grid, device, std::move(world), plan.partial_axes,
                   plan.config.debug.check_collectives ? CollectiveChecks::kOn : CollectiveChecks::kOff, board, on_device);
  const std::vector<const StepProgram*> programs = programs_of(plan, context_->rank());
  const LayerGeometry geometry = plan.geometry(context_->coordinates().tensor);
  const UnitsOfStage& units = plan.step_spec.units_of_stage;
  TRIDENT_CHECK(plan.has_programs() || plan.generation, "a plan without programs and without generation has nothing to run");
  if (plan.has_programs()) stage_ = std::make_unique<Stage>(plan.model, geometry, units, programs, *context_, arena_plan_);
  if (plan.generation) cached_ = std::make_unique<CachedStage>(plan.model, geometry, units, *plan.generation, *context_,
                                                              arena_plan_);
  store_ = std::make_unique<ParamStore>(store_config(plan, programs), stage_ ? stage_->unit_params() : cached_->unit_params(),
                                        *context_, arena_plan_);
  if (stage_) bind_handlers();
}

void RankModel::allocate() {
  check_memory();
  make_arena();
  if (stage_) stage_->bind(*arena_, *store_);
  if (cached_) cached_->bind(*arena_, *store_);
  store_->bind(*arena_);
}

// A GPU's free memory is known when all ranks have made what is not in the plan. Hosts' memory was compared before, in
// prepare_run().
void RankModel::check_memory() {
  const std::optional<std::int64_t> free = device_.free_bytes();
  if (!free) return;
  context_->world().barrier();
  const ArenaNeed mine{.total = static_cast<double>(arena_plan_.total_bytes()), .free = static_cast<double>(*free)};
  check_free(plan_, context_->world(), context_->host_stream(), mine,
             [&] { return arena_needs(plan_, dry_stages(plan_, &device_.ops(), DryWork::kConstruct)); });
}

void RankModel::make_arena() {
  const std::string name = fmt::format("the arena of rank {} ({})", context_->rank(), largest_entries(arena_plan_));
  Buffer memory = device_.allocate(arena_plan_.total_bytes(), name);
  const TensorView all(memory.data(), DType::kU8, {memory.num_bytes()}, memory.where());
  arena_ = std::make_unique<Arena>(arena_plan_, std::move(memory));
  if (!plan_.config.cuda.nccl_register) return;
  if (const std::string line = context_->register_memory(all); !line.empty()) notes_.push_back("cuda.nccl_register: " + line);
}

void RankModel::bind_handlers() {
  using Kind = InstructionKind;
  const auto bind = [this](Kind kind, Executor::Handler handler) { executor_.bind(kind, std::move(handler)); };
  bind(Kind::kForward, [this](const Instruction& i) {
    store_->wait_gathered(i.unit, i.gather_place);
    stage_->forward(i);
  });
  bind(Kind::kSendActivation, [this](const Instruction& i) { stage_->send_activation(i); });
  bind(Kind::kRecvActivation, [this](const Instruction& i) { stage_->recv_activation(i); });
  bind(Kind::kGather, [this](const Instruction& i) { store_->gather(i.unit, i.gather_place); });
  bind(Kind::kFree, [this](const Instruction& i) { store_->free(i.unit, i.gather_place); });
  if (!plan_.trains()) return;
  const auto begin_backward = [this](const Instruction& i) {
    if (plan_.step_spec.reads_parameters(i)) store_->wait_gathered(i.unit, i.gather_place);
    store_->begin_backward(i.unit, i.grad_place, i.overwrites() ? Accumulate::kNo : Accumulate::kYes);
  };
  const auto backward = [this, begin_backward](const Instruction& i) {
    begin_backward(i);
    stage_->backward(i);
  };
  bind(Kind::kBackward, backward);
  bind(Kind::kBackwardInput, backward);
  bind(Kind::kBackwardWeight, [this, begin_backward](const Instruction& i) {
    begin_backward(i);
    stage_->backward_weight(i);
  });
  bind(Kind::kSendGradient, [this](const Instruction& i) { stage_->send_gradient(i); });
  bind(Kind::kRecvGradient, [this](const Instruction& i) { stage_->recv_gradient(i); });
  bind(Kind::kReduceGradients, [this](const Instruction& i) { store_->reduce(i.unit, i.last()); });
  bind(Kind::kTieExchange, [this](const Instruction& i) { store_->exchange_tied(i.peer); });
}

ShardHolder RankModel::shard_holder() {
  return {.tensor_degree = context_->grid().degrees().tensor,
          .tensor_rank = context_->coordinates().tensor,
          .data_shards = context_->data_reduce().size(),
          .data_rank = context_->data_reduce().rank(),
          .sharded = plan_.zero.shard_optimizer};
}

void RankModel::drain() {
  for (Stream* stream : {&context_->compute_stream(), &context_->reduce_stream(), &context_->gather_stream(),
                         &context_->send_stream(Direction::kForward), &context_->send_stream(Direction::kBackward),
                         &context_->recv_stream(Direction::kForward), &context_->recv_stream(Direction::kBackward)}) {
    stream->synchronize();
  }
  context_->world().barrier();
}

}  // namespace trident
