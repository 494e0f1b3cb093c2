#include "planner/bench/row_units.h"

#include <cstdint>
#include <memory>

#include "train/run/dry_run.h"

namespace trident {
namespace {

double row_bytes(const RunPlan& plan, Ops* oracle) {
  double bytes = 0;
  for (const OperationTotal& total : record_step(plan, 0, oracle, DryWork::kStep).operations())
    if (total.kind == WorkKind::kRows || total.kind == WorkKind::kHeads) bytes += total.bytes;
  return bytes;
}

}  // namespace

// The second block is what two have and one has not: ends have passes over rows, too.
double row_units_per_block(const TrainConfig& asked, const MachineFacts& machine) {
  TrainConfig config = asked;
  config.train = {};  // blocks of which all parts train
  ModelConfig model = resolve_model(config);
  model.layers = 1;
  const RunPlan one = make_run_plan(config, model, 0, machine);
  model.layers = 2;
  const RunPlan two = make_run_plan(config, model, 0, machine);
  const std::shared_ptr<Ops> oracle = machine.device == DeviceKind::kCpu ? processor_here(one) : nullptr;
  const double of_one_unit = static_cast<double>(two.tokens_per_step() * model.hidden * size_of(two.compute));
  return (row_bytes(two, oracle.get()) - row_bytes(one, oracle.get())) / of_one_unit;
}

}  // namespace trident
