// Makes what main() hands to a training run.
#pragma once

#include "infer/generate/eval_samples.h"
#include "planner/predict/simulated_run_forecast.h"
#include "report/run_page.h"
#include "train/launch/run_training.h"

namespace trident {

inline const TrainHooks& train_hooks() {
  static const TrainHooks hooks{find_eval_samples, check_hardware_profile, make_run_forecast, write_run_page};
  return hooks;
}

}  // namespace trident
