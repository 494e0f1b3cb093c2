#!/usr/bin/env bash
# gpu_check.sh [--packages DIR] [--build DIR] [--seed N] [--minutes M] [--only REGEX] [--report FILE] [--logs FILE]: builds for
# this machine's NVIDIA card, tries there what cannot be tried without one, prints a table and writes it to
# docs/benchmarks/<date>-<card>-check.md as it grows. Ten minutes at most, the build's included; with --build DIR the build is
# kept, and a second run goes on with it. --only: the checks whose names match, or do not match with !REGEX; what they are compared
# with has to be among them. --logs: all that failed checks printed.
# gpu_check.sh --prepare DIR: on a Debian 12 with network, downloads the packages that --packages takes (15 MB; nothing is installed).
#
# Needs CUDA 12.4 or later with cuDNN and NCCL (also as the wheels of a Python with PyTorch: PYTHON), CMake, g++; of what else the build asks for it
# takes the machine's own or --packages. compute-sanitizer and mpirun are used where they are. Of several cards it takes the first of
# CUDA_VISIBLE_DEVICES. Without --build nothing is left but the report.
#
# Exit status: 0 all passed or skipped (the table says why), 1 something failed, 75 nothing failed but not all was reached in time or the run was
# stopped, 77 no card here, 64 wrong arguments.
set -euo pipefail
. "$(dirname "$0")/gpu_machine.sh"
export LC_ALL=C

usage() { sed -n '2,8s/^# //p' "$0" >&2; exit 64; }
packages='' build='' seed='' minutes=10 only='' report='' logs=''
while (($#)); do
  (($# >= 2)) || usage
  case $1 in
    --prepare) prepare_packages "$2" || exit 1; exit 0 ;;
    --packages) packages=$(realpath "$2") ;;
    --build) build=$(realpath -m "$2") ;;
    --seed) seed=$2 ;;
    --minutes) minutes=$2 ;;
    --only) only=$2 ;;
    --report) report=$(realpath -m "$2") ;;
    --logs) logs=$(realpath -m "$2") ;;
    *) usage ;;
  esac
  shift 2
done
[[ $minutes =~ ^[1-9][0-9]*$ && $seed =~ ^[0-9]*$ ]] || usage
cd "$(dirname "$0")/.."
find_card
seed=${seed:-$(date +%s)}
report=${report:-docs/benchmarks/$(date -u +%Y-%m-%d)-$slug-check.md}
report=$(free_report "$report") || exit 1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap stopped INT TERM
build=${build:-$scratch/build}
tree=$build/packages
deadline=$((60 * minutes - 5))

# ---- the table -------------------------------------------------------------------------------------------------------------------

failed=0 late=0 rows=() running='' needed=3  # rows that everything else needs
head=$(report_head 'libraries unknown')
# add_row NAME passed|failed|SKIPPED|unfinished DETAIL SECONDS
add_row() {
  rows+=("| $1 | $2 | ${3//|/\\|} | $4 |")
  printf '%-10s %-46s %s (%s s)\n' "$2" "$1" "$3" "$4"
  running=''
}

# Written before every check and at the end: whatever ends this run leaves what is known.
save() {
  {
    printf '%s\n' "# Checks on $card" '' "$head" '' \
      "\`scripts/gpu_check.sh\`, $((SECONDS / 60)) min $((SECONDS % 60)) s, seed $seed." \
      "Tolerances: docs/numerics.md; bf16 and the comparison with the CPU are coarse on purpose." ''
    if ((late > 0)); then printf '%s\n' "**Not finished: $late checks were not reached in $minutes minutes.**" ''; fi
    if [[ -n $running ]]; then printf '%s\n' "**Not finished: checks are missing below.**" ''; fi
    printf '%s\n' '| check | result | detail | seconds |' '|---|---|---|---|' "${rows[@]}" ${running:+"$running"}
  } >"$report.part"
  mv "$report.part" "$report"
}

is_wanted() {
  ((${#rows[@]} < needed)) || [[ -z $only ]] && return
  if [[ $only == !* ]]; then [[ ! $1 =~ ${only#!} ]]; else [[ $1 =~ $only ]]; fi
}

# check NAME COMMAND...: the command's last line is the detail; exit status 77: skipped, any other but 0: failed, or unfinished if all its time was
# over. In a process of its own, so that a signal is heard; "here" as the first word: in this one, for what it leaves in variables.
check() {
  local name=$1 begin=$SECONDS status=0 detail result
  shift
  if ! is_wanted "$name"; then return; fi
  if ((SECONDS > 60 * minutes - 20)); then
    late=$((late + 1))
    add_row "$name" unfinished "the $minutes minutes are over" 0
    return
  fi
  rm -f "$scratch/cut"
  running="| $name | unfinished | begun after $begin s | - |"
  save
  if [[ $1 == here ]]; then
    "${@:2}" >"$scratch/log" 2>&1 || status=$?
  else
    "$@" >"$scratch/log" 2>&1 &
    wait $! || status=$?
  fi
  detail=$(grep -v '^[[:space:]]*$' "$scratch/log" | tail -n 1 | cut -c 1-300) || true
  case $status in
    0) result=passed ;;
    77) result=SKIPPED detail=${detail#SKIPPED: } ;;
    124 | 137) result=failed detail="no end within its time; last: $detail" ;;
    *) result=failed ;;
  esac
  if [[ $result == failed && -e $scratch/cut ]]; then result=unfinished late=$((late + 1)); fi
  if [[ $result == failed ]]; then
    failed=$((failed + 1))
    echo "---- $name: status $status" >&2
    tail -n 25 "$scratch/log" >&2
    echo "----" >&2
    if [[ -n $logs ]]; then
      { echo "==== $name: status $status"; cat "$scratch"/{log,ops,tests} 2>/dev/null | tail -c 300000; } >>"$logs"
    fi
    rm -f "$scratch"/{ops,tests}
  fi
  add_row "$name" "$result" "${detail:-status $status}" $((SECONDS - begin))
}

# At a signal: the check that runs is ended, the report stays as it is.
stopped() {
  trap '' INT TERM
  stop_bounded
  wait
  echo "gpu_check.sh: stopped; what is known is in $report" >&2
  exit 75
}

# ---- runs of the trainer ---------------------------------------------------------------------------------------------------------

trident() { bounded 90 "$build/bin/trident" "$@"; }

write_config() {
  cat >"$scratch/check.json" <<'JSON'
{ "run": { "steps": 20, "seed": 20261122 },
  "model": { "model_type": "llama", "vocab_size": 50304, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
             "tie_word_embeddings": true },
  "batch": { "global": 8, "micro": 1, "sequence": 64 },
  "precision": { "compute": "fp32" },
  "optimizer": { "lr": 1e-4 }, "lr_schedule": { "type": "constant", "warmup_steps": 4 },
  "checkpoint": { "every": 0 }, "log": { "every": 1, "tensorboard": false } }
JSON
  # Biases and GELU, which Llama does not have.
  cat >"$scratch/gpt2.json" <<'JSON'
{ "run": { "steps": 20, "seed": 20261122 },
  "model": { "model_type": "gpt2", "vocab_size": 50304, "n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 64, "dropout": 0 },
  "batch": { "global": 8, "micro": 1, "sequence": 64 },
  "precision": { "compute": "bf16" },
  "optimizer": { "lr": 1e-4 }, "lr_schedule": { "type": "constant", "warmup_steps": 4 },
  "checkpoint": { "every": 0 }, "log": { "every": 1, "tensorboard": false } }
JSON
}

settings() { printf -- '--set\n%s\n' "run.dir=$scratch/runs/$1" "data.train=$scratch/text" "${@:2}"; }

# train NAME SETTING...: metrics in $scratch/runs/NAME. Of $model: check, or gpt2.
model=check
train() {
  local words
  mapfile -t words < <(settings "$@")
  trident train --config "$scratch/$model.json" "${words[@]}" >"$scratch/train.log" 2>&1 || {
    local status=$?
    tail -n 3 "$scratch/train.log"
    return $status
  }
}

# compare_metrics REFERENCE RUN LOSS NORM: every logged step's loss and gradient norm, relative. The last line says how far apart they are.
compare_metrics() {
  awk -v loss_allowed="$3" -v norm_allowed="$4" -v reference="$1" '
    function number(key) { return match($0, "\"" key "\": *-?[0-9][-+.0-9e]*") ? substr($0, RSTART, RLENGTH) : "" }
    function value(key,   text) { text = number(key); sub(/.*: */, "", text); return text }
    function apart(a, b) { d = a - b; if (d < 0) d = -d; m = a < 0 ? -a : a; return m > 0 ? d / m : d }
    { step = value("step") + 0; loss = value("loss"); norm = value("grad_norm")
      if (loss == "" || norm == "") { wrong = "step " step " of " FILENAME " has no finite loss or gradient norm"; exit }
      if (FILENAME == reference) { losses[step] = loss; norms[step] = norm; ++expected; next }
      if (!(step in losses)) { wrong = "step " step " is not in the reference"; exit }
      ++seen
      d = apart(losses[step], loss); if (d > worst_loss) worst_loss = d
      d = apart(norms[step], norm); if (d > worst_norm) worst_norm = d }
    END {
      if (wrong == "" && (expected == 0 || seen != expected)) wrong = sprintf("%d steps where the reference has %d", seen, expected)
      if (wrong != "") { print wrong; exit 1 }
      printf "%d steps: loss apart by %.1e (allowed %g), gradient norm by %.1e (%g), relative\n", seen, worst_loss, loss_allowed, worst_norm, norm_allowed
      exit !(worst_loss <= loss_allowed + 0 && worst_norm <= norm_allowed + 0)
    }' "$1" "$2"
}
compare_runs() { compare_metrics "$scratch/runs/$1/metrics.jsonl" "$scratch/runs/$2/metrics.jsonl" "$3" "$4"; }

# train_and_compare NAME REFERENCE LOSS NORM SETTING...
train_and_compare() {
  if [[ ! -e $scratch/runs/$2/metrics.jsonl ]]; then echo "there is no reference: $2 failed"; return 1; fi
  train "$1" "${@:5}" && compare_runs "$2" "$1" "$3" "$4"
}

# train_and_go_on NAME REFERENCE LOSS NORM SETTING... -- SETTING...: half of the steps, saved every few of them while training goes on; the second
# command goes on from the last save, perhaps elsewhere, with the rest.
train_and_go_on() {
  local first=() name=$1 compared=("$2" "$1" "$3" "$4")
  if [[ ! -e $scratch/runs/$2/metrics.jsonl ]]; then echo "there is no reference: $2 failed"; return 1; fi
  shift 4
  while [[ $1 != -- ]]; do first+=("$1"); shift; done
  train "$name" run.steps=10 checkpoint.every=3 "${first[@]}" || return
  train "$name" checkpoint.every=3 "${@:2}" || return
  trident ckpt verify "$scratch/runs/$name/ckpt/step-00000020" >"$scratch/verify.log" 2>&1 || { tail -n 3 "$scratch/verify.log"; return 1; }
  compare_runs "${compared[@]}"
}

# ---- checks ----------------------------------------------------------------------------------------------------------------------

prepare() {
  if [[ -n $packages ]]; then
    unpack_packages "$packages" "$tree" || return
  fi
  if [[ -d $tree/bin ]]; then PATH=$tree/bin:$PATH; fi
  name_missing "$tree" "$build" || return
  LD_LIBRARY_PATH=$(library_path)
  export LD_LIBRARY_PATH
  printf '%s; ' "${cuda_found[@]}" | sed 's/; $//'
}

build_all() {
  build_for_card "$tree" "$build" trident trident_op_check test_gpu_communicators test_gpu_processes || return
  echo "$(library_versions "$build.log"), for $architecture${why_built:+; $why_built}"
}

# operations ARGUMENT...
operations() {
  bounded 150 "$build/tests/conformance/trident_op_check" --device cuda:0 --seed "$seed" --threads "$(nproc)" "$@" \
    --may-refuse 'attention_*/*16/*_shifted' >"$scratch/ops" 2>&1 || {
    local status=$?
    grep -E '^(failed|refused) ' "$scratch/ops" | grep -v '(may be)' | head -n 20
    tail -n 3 "$scratch/ops"
    return $status
  }
  grep -E '^[0-9]+ cases: ' "$scratch/ops" | paste -sd ' ' |
    sed "s/^/seed $seed; against the reference: /; s/ refused \([0-9]\)/ refused; against the CPU: \1/"
}

# google_test PROGRAM [ARGUMENT...]: the closing lines as one; skipped if nothing ran.
google_test() {
  local status=0
  bounded 120 "$@" >"$scratch/tests" 2>&1 || status=$?
  grep -E '^\[  FAILED  \]|FAILED|rror' "$scratch/tests" | head -n 10 || true
  if ((status != 0)); then tail -n 2 "$scratch/tests"; return $status; fi
  if ! grep -qE '^\[  PASSED  \] [1-9]|^ok ' "$scratch/tests"; then
    echo "SKIPPED: $(grep -m1 -oE 'no CUDA GPU.*' "$scratch/tests" || echo 'no test ran')"
    return 77
  fi
  grep -E '^\[  PASSED  \]' "$scratch/tests" | sed 's/^\[  PASSED  \] //' | tail -n 1 | grep . || echo "$(grep -c '^ok ' "$scratch/tests") tests"
}

# 77 where there is no mpirun that the build can use.
need_mpi() {
  command -v mpirun >/dev/null || { echo "SKIPPED: there is no mpirun; --packages brings one"; return 77; }
  grep -q '^-- Ranks as processes: over MPI' "$build.log" || { echo "SKIPPED: built without MPI; --packages brings one"; return 77; }
}

host_staged_processes() {
  need_mpi || return
  local words
  mapfile -t words < <(settings staged device=cuda parallel.tensor=2 parallel.data=2 parallel.zero=zero2)
  bounded 90 scripts/mpirun_local 4 "$build/bin/trident" train --config "$scratch/check.json" "${words[@]}" >"$scratch/train.log" 2>&1 || {
    local status=$?
    tail -n 3 "$scratch/train.log"
    return $status
  }
  compare_runs one_rank staged 1e-6 1e-5
}

host_staged_conformance() {
  need_mpi || return
  google_test scripts/mpirun_local 4 "$build/tests/cuda/gpu/test_gpu_processes" '--gtest_filter=HostStaged*'
}

# NCCL takes several ranks for ranks of several machines if they say so, and then goes through sockets. For this test only: slow, not supported.
nccl_two_processes() {
  need_mpi || return
  local status=0
  NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=2 NCCL_MULTI_RANK_GPU_ENABLE=1 \
    google_test scripts/mpirun_local 2 bash -c 'NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK exec "$@"' nccl "$build/tests/cuda/gpu/test_gpu_processes" \
    '--gtest_filter=Nccl*' || status=$?
  if ((status != 0)) && grep -qi 'duplicate gpu' "$scratch/tests"; then
    echo "SKIPPED: this NCCL refuses two ranks on one card"
    return 77
  fi
  return $status
}

find_sanitizer() {
  sanitizer=$(command -v compute-sanitizer || compgen -G "$toolkit/bin/compute-sanitizer" || compgen -G "$toolkit/compute-sanitizer/compute-sanitizer" ||
    compgen -G '/usr/local/cuda*/bin/compute-sanitizer' || compgen -G '/opt/nvidia/*/*/compute-sanitizer' || true)
  sanitizer=${sanitizer%%$'\n'*}
  [[ -n $sanitizer ]] || { echo "SKIPPED: there is no compute-sanitizer"; return 77; }
}

# sanitize TOOL PROGRAM...: its summary line.
sanitize() {
  local status=0
  find_sanitizer || return
  bounded 100 "$sanitizer" --tool "$1" --error-exitcode 99 --report-api-errors no "${@:2}" >"$scratch/sanitizer" 2>&1 || status=$?
  if grep -qi 'device not supported' "$scratch/sanitizer"; then echo "SKIPPED: compute-sanitizer does not support this machine"; return 77; fi
  if ((status == 124 || status == 137)); then touch "$scratch/cut"; fi  # slow, which is no fault
  if ((status != 0)); then grep -E '=========|trident' "$scratch/sanitizer" | head -n 20 || true; fi
  grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$scratch/sanitizer" | tail -n 1 | sed 's/^=* *//' || tail -n 1 "$scratch/sanitizer"
  return $status
}
sanitize_operations() {
  sanitize "$1" "$build/tests/conformance/trident_op_check" --device cuda:0 --seed "$seed" --filter "$2" \
    --may-refuse 'attention_*/*16/*_shifted'
}
sanitize_training() {
  local words
  mapfile -t words < <(settings "sanitized_$1" device=cuda run.steps=2 batch.global=2 precision.compute=bf16)
  sanitize "$1" "$build/bin/trident" train --config "$scratch/check.json" "${words[@]}"
}

check_all() {
  check 'what building needs' here prepare
  ((failed + late == 0)) || return 0
  check 'build' build_all
  ((failed + late == 0)) || return 0
  head=$(report_head "$(library_versions "$build.log")")
  write_config
  check 'training text' bounded 60 "$build/bin/trident" data prepare --input data/excerpt/train.txt --separator-line '<|endoftext|>' --append-eod \
    --tokenizer gpt2 --output "$scratch/text" --overwrite
  ((failed + late == 0)) || return 0

  check 'operations, fresh random inputs' operations
  check 'operations, epilogues of products' operations --epilogues --filter 'matmul_*'
  check 'communicators between thread ranks' google_test "$build/tests/cuda/gpu/test_gpu_communicators" '--gtest_filter=-Nccl*'
  check 'NCCL, 1 rank' google_test "$build/tests/cuda/gpu/test_gpu_communicators" '--gtest_filter=Nccl*'

  check 'training: 1 rank, fp32' train one_rank device=cuda
  check 'training: the card as the CPU, 1 rank, fp32' train_and_compare cpu one_rank 1e-5 1e-3 \
    device=cpu "run.threads_per_rank=$(nproc)" run.pin=false
  local preset parallel=(parallel.tensor=2 parallel.pipeline=2 parallel.data=2)
  for preset in ddp zero1 zero2 shard_grad_op zero3; do
    check "training: tp2 x pp2 x dp2, $preset = 1 rank, fp32" train_and_compare "$preset" one_rank 1e-6 1e-5 \
      device=cuda "${parallel[@]}" "parallel.zero=$preset"
  done
  check 'training: zero1 = ddp, bit for bit' compare_runs ddp zero1 0 0
  check 'training: shard_grad_op = zero2, bit for bit' compare_runs zero2 shard_grad_op 0 0
  check 'training: zero3 = zero2, bit for bit' compare_runs zero2 zero3 0 0
  check 'training: sequence parallel, recomputing = 1 rank, fp32' train_and_compare sequence one_rank 1e-6 1e-5 device=cuda "${parallel[@]}" \
    parallel.sequence_parallel=true recompute.policy=full
  check 'training: bf16 near fp32, 1 rank' train_and_compare one_rank_bf16 one_rank 5e-3 5e-2 device=cuda precision.compute=bf16
  check 'training: CUDA graphs, 1 rank, bf16, bit for bit' train_and_compare graphs_bf16 one_rank_bf16 0 0 device=cuda precision.compute=bf16 \
    cuda.graphs=true
  check 'training: CUDA graphs, pp2 x dp2, zero3 = 1 rank, fp32' train_and_compare graphs one_rank 1e-6 1e-5 device=cuda cuda.graphs=true \
    parallel.pipeline=2 parallel.data=2 parallel.zero=zero3
  check 'training: fp16, 1 rank' train fp16 device=cuda precision.compute=fp16
  check 'training: CUDA graphs, fp16, bit for bit' train_and_compare graphs_fp16 fp16 0 0 device=cuda precision.compute=fp16 cuda.graphs=true
  check 'training: stochastic rounding near bf16, 1 rank' train_and_compare rounding one_rank_bf16 5e-3 5e-2 device=cuda precision.compute=bf16 \
    precision.stochastic_rounding=true
  check 'training: CUDA graphs, stochastic rounding, bit for bit' train_and_compare graphs_rounding rounding 0 0 device=cuda precision.compute=bf16 \
    precision.stochastic_rounding=true cuda.graphs=true
  model=gpt2 check 'training: GPT-2, 1 rank, bf16' train gpt2 device=cuda
  model=gpt2 check 'training: GPT-2, epilogues near without, bf16' train_and_compare epilogues gpt2 2e-3 2e-2 device=cuda cuda.epilogues=true
  check 'training: tp2 x pp2 x dp2 near 1 rank, bf16' train_and_compare layout_bf16 one_rank_bf16 2e-3 2e-2 \
    device=cuda precision.compute=bf16 "${parallel[@]}"

  check 'checkpoints: saved and gone on with, 1 rank, bit for bit' train_and_go_on saved one_rank 0 0 device=cuda -- device=cuda
  check 'checkpoints: tp2 x pp2 x dp2, zero3, graphs; gone on with on the CPU' train_and_go_on saved_layout one_rank 1e-5 1e-3 \
    device=cuda cuda.graphs=true parallel.zero=zero3 "${parallel[@]}" -- device=cpu "run.threads_per_rank=$(nproc)" run.pin=false
  check 'checkpoints: bf16, 1 rank, bit for bit' train_and_go_on saved_bf16 one_rank_bf16 0 0 device=cuda precision.compute=bf16 checkpoint.staging=1 -- \
    device=cuda precision.compute=bf16

  check 'host-staged communicators, 4 processes' host_staged_conformance
  check 'training: 4 processes, host-staged, tp2 x dp2 = 1 rank' host_staged_processes
  check 'NCCL, 2 processes on this card' nccl_two_processes

  check 'memcheck: operations' sanitize_operations memcheck '-*/large_*'
  check 'racecheck: operations' sanitize_operations racecheck '*/f32/*-*/large_*:matmul'
  check 'memcheck: 2 steps of training, bf16' sanitize_training memcheck
}

check_all
save
count() { printf '%s\n' "${rows[@]}" | grep -c "^| [^|]* | $1 |" || true; }
echo "$report: ${#rows[@]} checks, $failed failed, $(count SKIPPED) skipped, $late not finished"
if ((late > 0)); then
  echo "gpu_check.sh: not finished: $late checks were not reached in $minutes minutes; a second run with the same --build DIR goes on with its build" >&2
fi
if ((failed > 0)); then exit 1; fi
if ((late > 0)); then exit 75; fi
