#!/usr/bin/env bash
# check_layers_test.sh CHECK_LAYERS: plants violations, one at a time, in a small tree and expects each to be named.
set -euo pipefail
. "$(dirname "$0")/planted_tree.sh"

write core/check.h '#include <string>' '#include <fmt/core.h>'
write device/ops.h '#include "core/check.h"'
write device/cpu/onednn_matmul.cpp '#include <oneapi/dnnl/dnnl.h>' '#include "device/ops.h"'
write parallel/mpi/mpi_communicator.cpp '#include <mpi.h>' '#include "device/ops.h"'
write pipeline/schedule/schedule.cpp '#include "pipeline/schedule/schedule.h"' '#include "core/check.h"'
write pipeline/schedule/schedule.h '#include <vector>'
write pipeline/executor.cpp '#include "pipeline/schedule/schedule.h"' '#include "parallel/grid/parallel_context.h"'
write data/blend.cpp '#include "core/check.h"'
write train/launch/run_training.cpp '#include "train/run/rank_loop.h"' '#include "data/blend.h"'
write app/main.cpp '#include "train/launch/run_training.h"' '// #include "tests/nothing.h"'
write tests/train/trainer_test.cpp '#include "train/launch/run_training.h"' '#include "tests/support/x.h"'
accepted "a tree in order is refused"

# refused FILE INCLUDE EXPECTED: with this line in addition the check fails and says EXPECTED, with file and line.
refused() { planted "$1" "#include $2" -E "^$1:[0-9]+: .*$3"; }

refused core/check.h '"device/ops.h"' 'core may not include from device'
refused device/ops.h '"parallel/communicator/communicator.h"' 'device may not include from communicator'
refused data/blend.cpp '"device/ops.h"' 'data may not include from device'
refused optim/adamw.cpp '"pipeline/executor.h"' 'optim may not include from pipeline'
refused train/config/option_table.cpp '"parallel/zero/param_store.h"' 'config may not include from zero'
refused train/launch/run_training.cpp '"planner/predict/simulated_run_forecast.h"' 'launch may not include from predict'
refused model/config/model_stats.cpp '"tensor_parallel/regions.h"' 'model_config may not include from tensor_parallel'
refused pipeline/schedule/schedule.cpp '"device/ops.h"' 'schedule may not include from device'
refused pipeline/schedule/step_program.cpp '"pipeline/executor.h"' 'schedule may not include from pipeline'
refused pipeline/executor.cpp '"optim/sharded_optimizer.h"' 'pipeline may not include from optim'
refused pipeline/executor.cpp '"train/launch/run_training.h"' 'pipeline may not include from launch'
refused train/config/option_table.cpp '"model/gpt.h"' 'config may not include from model'
refused train/run/rank_loop.cpp '"train/launch/run_training.h"' 'run may not include from launch'
refused parallel/health/lifeline.cpp '"parallel/shared_memory/shared_world.h"' 'health may not include from shared_memory'
refused train/launch/run_training.cpp '"app/subcommands.h"' 'launch may not include from app'
refused train/launch/run_training.cpp '"tests/support/x.h"' 'a part of the tests'
refused train/launch/run_training.cpp '"trainer.h"' 'from the root of the repository'
refused utilities/misc.h '<vector>' 'lies in no room'
refused parallel/cuda/nccl_communicator.cpp '<mpi.h>' 'which only'
refused device/cpu/cpu_ops.cpp '<oneapi/dnnl/dnnl.hpp>' 'which only'
refused device/ops.h '<cuda_runtime.h>' 'which only'
refused train/config/option_values.cpp '<nlohmann/json.hpp>' 'which only'
refused tests/device/ops_test.cpp '"dnnl.hpp"' 'which only'

# Arrows that would close a circle are refused, whatever is included.
mkdir "$tree/scripts" "$tree/cmake"
cp "$check" "$tree/scripts/"
sed 's|^\(device  *[^ ]*  *\)core$|\1core launch|' "$(dirname "$check")/../cmake/rooms" >"$tree/cmake/rooms"
status=0
"$tree/scripts/check_layers" >"$tree/log" || status=$?
if ((status != 2)) || ! grep -q 'device stands above launch in the table' "$tree/log"; then
  cat "$tree/log"
  echo "a circle is not refused"
  exit 1
fi
rm -r "$tree/scripts" "$tree/cmake"

# without_cstdint FILE LINE...: a file that names an integer type of <cstdint> and does not include it.
without_cstdint() {
  write "$@"
  named "$1" -E "^$1:[0-9]+: names std::u?int[0-9]+_t without #include <cstdint>"
  rm "$tree/$1"
}
without_cstdint core/shape.h '#pragma once' 'using Dim = std::int64_t;'
without_cstdint core/zebra.cpp '#include <string>' '// std::int8_t' 'std::uint8_t last;'  # the last file is no exception
without_cstdint tests/core/shape_test.cpp '#include "core/check.h"' 'std::uint32_t x;'
write core/fragment.inl 'std::int64_t y;'
write core/with.h '#include <cstdint>' 'std::int64_t y;' '// and so on'
accepted "a fragment, or a file with <cstdint>, is refused"
write core/with.cpp '#include "core/with.h"' 'std::int64_t z;'
accepted "a source whose own header has <cstdint> is refused"
write core/with.h '#include "core/shape.h"' '// and so on'
named "a source whose own header lacks <cstdint>" "core/with.cpp:2: names std::int64_t without #include <cstdint>"
rm "$tree/core/with.cpp"

write core/with.h '#include <cstdint>' '  // Of a rank.'
named "a comment without a subject" '^core/with.h:2: a comment begins without its subject: "Of a"'
write core/with.h '#include <cstdint>' 'std::int64_t y;' '// and so on'
for file in core/CMakeLists.txt cmake/Rules.cmake; do
  write "$file" '# It says what runs.' '  # What runs is this.'
  named "a comment without a subject in $file" "^$file:2: a comment begins without its subject:   # What runs is this.$"
  rm "$tree/$file"
done

# Long lines: refused in every kind of file, but for as many as the list counts.
# columns N [BEGIN]: a comment of N columns.
columns() { local line; printf -v line "%$1s" ""; echo "${2-//}${line// /x}" | cut -c "1-$1"; }
too_long() {
  named "$1" -xF "$1: longer than 132 columns; scripts/long_lines allows $2 such lines of this file, which has $3"
}
write core/wide.h "$(columns 132)" "// $(printf '\xc3\xa9%.0s' {1..129})"
accepted "132 columns, or that many characters in more bytes, are refused"
for file in core/wide.cpp device/cuda/wide.cu core/CMakeLists.txt cmake/Wide.cmake; do
  write "$file" "" "$(columns 133 '# ')"
  too_long "$file:2" 0 1
  rm "$tree/$file"
done
write scripts/wide '#!/usr/bin/env bash' "$(columns 133 '# ')"
too_long scripts/wide:2 0 1
write scripts/wide '#!/usr/bin/perl' "$(columns 133 '# ')"
accepted "a script of another language is refused"
write core/wide.h "$(columns 133)" '' "$(columns 200)"
write scripts/long_lines '# Files with lines that are too long.' '2 core/wide.h'
accepted "lines that the list counts are refused"
if grep -q 'core/wide.h' "$tree/log"; then cat "$tree/log"; echo "a list in order is complained of"; exit 1; fi
write core/wide.h "$(columns 133)" '' "$(columns 200)" "$(columns 133)"
too_long core/wide.h:4 2 3
write core/wide.h "$(columns 133)"
write scripts/long_lines '2 core/wide.h' '1 core/gone.h' '1 core/with.h'
accepted "fewer lines than the list counts are refused"
for line in 'core/wide.h has only 1 lines longer than 132 columns now: say 1 core/wide.h' \
  'core/gone.h is not there: say nothing of it' \
  'core/with.h has only 0 lines longer than 132 columns now: say nothing of it'; do
  grep -qxF "scripts/long_lines: $line" "$tree/log" || { cat "$tree/log"; echo "expected: $line"; exit 1; }
done

mkdir "$tree/empty"
if "$check" "$tree/empty" 2>"$tree/log"; then echo "an empty tree passes"; exit 1; fi
echo "check_layers names every planted violation"
