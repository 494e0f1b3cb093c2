#!/usr/bin/env bash
# gpu_visit.sh pack DIR [--build BUILD]: gathers in DIR what a visit to a machine with a card takes along: the programs of a
# CUDA build (build/release) and Debian's packages that they need. On Debian 12 with network; 31 MB.
# gpu_visit.sh checks|models|rest DIR OUT [MODEL...]: there, one part of the visit, in less than nine minutes each, from nothing
# but this checkout and DIR; what is known is in the folder OUT at any moment, at most eight files.
#
#   checks   what the machine is; operations, communicators and training against references (gpu_check.sh without sanitizers);
#            GPT-2 124M, ours and PyTorch's
#   models   Qwen2.5-0.5B, ours and PyTorch's, and Llama-1B, ours (gpu_bench.sh); both sides of those that are named
#   rest     the slowest kernels under ncu, sanitizers
#
# They stand in the order of their value; the first two take 13 minutes at most.
# Machines with cards are rented for minutes, and may vanish after each command. What this user's earlier parts left in
# /tmp/trident-visit-UID is taken again.
#
# Exit status: 0, 1 something failed, 64 wrong arguments, 75 not all was reached in time, 77 no card here.
set -euo pipefail
export LC_ALL=C
die() { echo "gpu_visit.sh: $*" >&2; exit 1; }
usage() { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 64; }
(($# >= 2)) || usage
part=$1 bag=$(realpath -m "$2")
shift 2
cd "$(dirname "$0")/.."
. scripts/gpu_libraries.sh
programs=(bin/trident bin/trident_cuda.so tests/conformance/trident_op_check tests/conformance/op_perf
  tests/cuda/gpu/test_gpu_communicators tests/cuda/gpu/test_gpu_processes)

# Stripped, and looking for Debian's libraries in packages/ beside bin/.
pack() {
  local build=build/release file root architecture bytes
  if [[ ${1:-} == --build && $# == 2 ]]; then build=$2; elif (($#)); then usage; fi
  for file in strip patchelf nvcc; do
    command -v "$file" >/dev/null || die "$file is not installed (scripts/install_packages.sh patchelf)"
  done
  for file in "${programs[@]}"; do
    [[ -e $build/$file ]] || die "$build has no $file; build with CUDA first: scripts/build.sh release"
  done
  architecture=$(sed -n 's/^CMAKE_CUDA_ARCHITECTURES:[A-Z]*=//p' "$build/CMakeCache.txt")
  for file in "${programs[@]}"; do
    mkdir -p "$bag/programs/$(dirname "$file")"
    strip -o "$bag/programs/$file" "$build/$file"
    root=$(sed 's|[^/]*/|../|g; s|[^/]*$||' <<<"$file")
    patchelf --force-rpath --set-rpath "\$ORIGIN/${root}packages/usr/lib/x86_64-linux-gnu" "$bag/programs/$file"
  done
  git describe --always --dirty >"$bag/programs/commit"
  echo "$architecture CUDA $(nvcc --version | sed -n 's/.* V\([0-9]*\).*/\1/p')" >"$bag/programs/brought"
  tar -C "$bag" -czf "$bag/programs.tar.gz" programs
  rm -rf "$bag/programs"
  scripts/gpu_check.sh --prepare "$bag/packages"
  # With the checkout, for that goes along.
  bytes=$(($(du -sb "$bag" | cut -f1) + $(git ls-files -z | du -cb --files0-from=- | tail -n 1 | cut -f1)))
  ((bytes <= 64 << 20)) || die "$bag and this checkout have $((bytes >> 20)) MiB; 64 can be taken along"
  echo "$bag: $(du -sh --apparent-size "$bag" | cut -f1), with this checkout $((bytes >> 20)) of 64 MiB; programs for $architecture"
}

kept=/tmp/trident-visit-$UID
# Programs are taken from $kept: whoever else may write there could choose them.
own_kept() {
  mkdir -m 700 "$kept" 2>/dev/null || [[ -O $kept && -d $kept && ! -L $kept ]] ||
    die "$kept is not a folder of this user; remove it"
  chmod 700 "$kept"
}
# Into $build the programs, as a build of this checkout would be.
unpack() {
  [[ -e $bag/programs.tar.gz ]] || die "$bag has no programs.tar.gz; make it with gpu_visit.sh pack $bag"
  build=$kept/build
  if ! cmp -s "$bag/programs.tar.gz" "$kept/programs.tar.gz"; then
    rm -rf "$build"
    mkdir -p "$build"
    cp "$bag/programs.tar.gz" "$kept/"
    tar -C "$build" --strip-components=1 -xzf "$bag/programs.tar.gz"
  fi
}

facts() {
  local python=${PYTHON:-python3}
  timeout 10 nvidia-smi || true
  timeout 10 nvidia-smi --query-gpu=clocks.sm,clocks.max.sm,clocks.mem,power.limit,ecc.mode.current --format=csv || true
  uname -a
  lscpu | grep -E 'Model name|^CPU\(s\)' || true
  free -g | head -n 2
  timeout 20 "$python" -c '
import os, sysconfig, torch
print("torch", torch.__version__, "cudnn", torch.backends.cudnn.version(), "nccl", torch.cuda.nccl.version())
include = sysconfig.get_paths()["include"]
print("Python.h:", os.path.exists(os.path.join(include, "Python.h")), include)' || true
  command -v ncu nsys compute-sanitizer mpirun cmake ninja g++ || true
}

# No file that is too large to come back: of such a one its end.
bound_results() {
  local file
  while IFS= read -r -d '' file; do
    tail -c 8M "$file" >"$kept/end" && mv "$kept/end" "$file"
  done < <(find "$out" -type f -size +16383k -print0)
}

# step SECONDS NAME COMMAND...: bounded; its output in OUT/NAME.log and, at its end, the tail of it.
worst=0
step() {
  local status=0 begin=$SECONDS
  echo "== $2 (at $SECONDS s)"
  timeout -k 5 "$1" "${@:3}" >"$out/$2.log" 2>&1 || status=$?
  bound_results
  tail -n "${tail:-12}" "$out/$2.log" | cut -c 1-220
  echo "== $2: exit status $status after $((SECONDS - begin)) s"
  if ((status == 124)); then status=75; fi
  if ((status > 0 && status != 77 && worst != 1)); then worst=$status; fi
}

# bench SECONDS SECONDS MODEL OPTION...: ours, then PyTorch's if it has any; rows that are done are kept.
bench() {
  local options=("${common[@]}" --rows "$kept/rows/$3" --report "$out/bench-$3.md" "${@:4}")
  step "$1" "bench-$3" scripts/gpu_bench.sh "${options[@]}" --only trident --seconds $(($1 - 10)) "$3"
  if (($2 == 0)); then return; fi
  rm -f "$out/bench-$3.md"  # which the next one begins with those rows
  step "$2" "torch-$3" scripts/gpu_bench.sh "${options[@]}" --only torch --minutes 1 --seconds $(($2 - 10)) "$3"
}

# The kernels of a step, by their share of it: how near to what the card can do each comes.
profile() {
  command -v ncu >/dev/null || { echo "SKIPPED: there is no ncu"; return; }
  cat >"$kept/profile.json" <<JSON
{ "device": "cuda", "model": { "preset": "$1" }, "batch": { "global": 16, "micro": 16, "sequence": 1024 },
  "precision": { "compute": "bf16" } }
JSON
  find_nvidia
  LD_LIBRARY_PATH=$(library_path) step 180 profile ncu --section SpeedOfLight --launch-count 1200 --csv \
    --log-file "$out/kernels.csv" "$build/bin/trident" bench --device cuda --steps 1 --config "$kept/profile.json"
}

visit() {
  trap 'exit 75' INT TERM
  out=$(realpath -m "$1")
  shift
  mkdir -p "$out"
  command -v nvidia-smi >/dev/null || { echo "SKIPPED: no NVIDIA card here"; exit 77; }
  own_kept
  unpack
  export TORCHINDUCTOR_CACHE_DIR=$kept/inductor TRITON_CACHE_DIR=$kept/triton
  local common=(--packages "$bag/packages" --build "$build") models=("$@") model
  ((${#models[@]} <= 2)) || usage  # of each three files come back
  case $part in
    checks)
      facts >"$out/facts.log" 2>&1
      tail -n 12 "$out/facts.log"
      tail=60 step 240 check scripts/gpu_check.sh "${common[@]}" --minutes 4 --only '!memcheck|racecheck' \
        --report "$out/check.md" --logs "$out/failed.log"
      bench 95 130 "${models[0]:-gpt2-124m}" --most 2
      ;;
    models)
      # A step of 524,288 tokens takes Llama-1B 8 s at the rate wanted of it: five are timed, and of PyTorch one configuration is
      # tried for each precision.
      if ((${#models[@]})); then
        for model in "${models[@]}"; do
          bench $((240 / ${#models[@]})) $((290 / ${#models[@]})) "$model" --warmup 1 --steps 5 --most 2
        done
      else
        bench 70 120 qwen2.5-0.5b --warmup 1 --steps 5 --most 1
        bench 116 0 llama3.2-1b --warmup 1 --steps 5
      fi
      ;;
    rest)
      profile "${models[0]:-gpt2-124m}"
      tail=20 step 340 sanitizers scripts/gpu_check.sh "${common[@]}" --minutes 6 --only 'memcheck|racecheck' \
        --report "$out/sanitizers.md"
      ;;
    *) usage ;;
  esac
  exit "$worst"
}

if [[ $part == pack ]]; then pack "$@"; else (($# >= 1)) || usage; visit "$@"; fi
