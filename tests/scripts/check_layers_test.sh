#!/usr/bin/env bash
# check_layers_test.sh CHECK_LAYERS: plants violations, one at a time, in a small tree and expects each to be named.
set -euo pipefail
check=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# write FILE LINE...
write() { mkdir -p "$tree/$(dirname "$1")"; printf '%s\n' "${@:2}" >"$tree/$1"; }

write core/check.h '#include <string>' '#include <fmt/core.h>'
write device/ops.h '#include "core/check.h"'
write device/cpu/onednn_matmul.cpp '#include <oneapi/dnnl/dnnl.h>' '#include "device/ops.h"'
write parallel/mpi_communicator.cpp '#include <mpi.h>' '#include "device/ops.h"'
write pipeline/schedule.cpp '#include "pipeline/schedule.h"' '#include "core/check.h"'
write pipeline/schedule.h '#include <vector>'
write pipeline/executor.cpp '#include "pipeline/schedule.h"' '#include "parallel/communicator.h"'
write data/blend.cpp '#include "core/check.h"'
write train/trainer.cpp '#include "pipeline/executor.h"' '#include "data/blend.h"'
write app/main.cpp '#include "train/trainer.h"' '// #include "tests/nothing.h"'
write tests/train/trainer_test.cpp '#include "train/trainer.h"' '#include "tests/support/x.h"'
"$check" "$tree" >"$tree/log" || { cat "$tree/log"; echo "a tree in order is refused"; exit 1; }

# refused FILE INCLUDE EXPECTED: with this line in addition the check fails and says EXPECTED, with file and line.
refused() {
  local file=$tree/$1 status=0
  [[ ! -e $file ]] || cp "$file" "$tree/kept"
  mkdir -p "$(dirname "$file")"
  printf '#include %s\n' "$2" >>"$file"
  "$check" "$tree" >"$tree/log" || status=$?
  if ((status != 1)) || ! grep -qE "^$1:[0-9]+: .*$3" "$tree/log"; then
    echo "$1 with $2: status $status, expected 1 and \"$3\", said:"
    cat "$tree/log"
    exit 1
  fi
  if [[ -e $tree/kept ]]; then mv "$tree/kept" "$file"; else rm "$file"; fi
}

refused core/check.h '"device/ops.h"' 'core may not include from device'
refused device/ops.h '"parallel/communicator.h"' 'device may not include from parallel'
refused data/blend.cpp '"device/ops.h"' 'data may not include from device'
refused optim/adamw.cpp '"pipeline/executor.h"' 'optim may not include from pipeline'
refused optim/lr_schedule.cpp '"parallel/param_store.h"' 'optim_pure may not include from parallel'
refused model/model_stats.cpp '"tensor_parallel/regions.h"' 'model_config may not include from tensor_parallel'
refused pipeline/schedule.cpp '"device/ops.h"' 'schedule may not include from device'
refused pipeline/step_program.cpp '"pipeline/executor.h"' 'schedule may not include from pipeline'
refused pipeline/executor.cpp '"optim/sharded_optimizer.h"' 'pipeline may not include from optim'
refused pipeline/executor.cpp '"train/trainer.h"' 'pipeline may not include from train'
refused train/option_table.cpp '"model/model_config.h"' 'config may not include from model_config'
refused train/trainer.cpp '"app/subcommands.h"' 'train may not include from app'
refused train/trainer.cpp '"tests/support/x.h"' 'a part of the tests'
refused train/trainer.cpp '"trainer.h"' 'from the root of the repository'
refused utilities/misc.h '<vector>' 'lies in no room'
refused parallel/nccl_communicator.cpp '<mpi.h>' 'which only'
refused device/cpu/cpu_ops.cpp '<oneapi/dnnl/dnnl.hpp>' 'which only'
refused device/ops.h '<cuda_runtime.h>' 'which only'
refused train/option_values.cpp '<nlohmann/json.hpp>' 'which only'
refused tests/device/ops_test.cpp '"dnnl.hpp"' 'which only'

# without_cstdint FILE LINE...: a file that names an integer type of <cstdint> and does not include it.
without_cstdint() {
  local status=0
  write "$@"
  "$check" "$tree" >"$tree/log" || status=$?
  if ((status != 1)) || ! grep -qE "^$1:[0-9]+: names std::u?int[0-9]+_t without #include <cstdint>" "$tree/log"; then
    echo "$1 without <cstdint>: status $status, said:"
    cat "$tree/log"
    exit 1
  fi
  rm "$tree/$1"
}
without_cstdint core/shape.h '#pragma once' 'using Dim = std::int64_t;'
without_cstdint core/zebra.cpp '#include <string>' '// std::int8_t' 'std::uint8_t last;'  # the last file is no exception
without_cstdint tests/core/shape_test.cpp '#include "core/check.h"' 'std::uint32_t x;'
write core/fragment.inl 'std::int64_t y;'
write core/with.h '#include <cstdint>' 'std::int64_t y;' '// and so on'
"$check" "$tree" >"$tree/log" || { cat "$tree/log"; echo "a fragment, or a file with <cstdint>, is refused"; exit 1; }

mkdir "$tree/empty"
if "$check" "$tree/empty" 2>"$tree/log"; then echo "an empty tree passes"; exit 1; fi
echo "check_layers names every planted violation"
