#!/usr/bin/env bash
# gpu_check_test.sh GPU_CHECK: what the check of a card runs, compares and writes; the card, the build and the trainer are stand-ins.
set -euo pipefail
script=$1
. "$(dirname "$0")/card_stand_ins.sh"

stand_in bin/cmake <<'SH'
#!/bin/bash
hang() { touch "$FAKE_PLACE/hangs"; exec sleep 60; }
if [[ $1 == --build ]]; then
  if [[ ${FAKE_BUILD:-} == broken ]]; then echo "cuda_ops.cpp:7:3: error: no such thing"; exit 2; fi
  if [[ ${FAKE_BUILD:-} == slow && ! -e $2/half ]]; then echo "[132/210] Building cuda_ops.cpp.o"; touch "$2/half"; echo "ninja: interrupted"; hang; fi
  mkdir -p "$2/bin" "$2/tests/conformance" "$2/tests/cuda/gpu"
  cp "$FAKE_PLACE/programs/trident" "$2/bin/"
  cp "$FAKE_PLACE/programs/trident_op_check" "$2/tests/conformance/"
  cp "$FAKE_PLACE/programs/test_gpu_communicators" "$2/tests/cuda/gpu/"
  exit
fi
if [[ $1 == --version ]]; then echo "cmake version ${FAKE_CMAKE:-3.25.1}"; exit; fi
printf '%s\n' "$@" >"$FAKE_PLACE/cmake"
if [[ ${FAKE_BUILD:-} == unconfigured ]]; then hang; fi
touch "$4/CMakeCache.txt"
echo "-- CUDA: 13.0.88 for 90a-real, cuDNN 9.19.0, NCCL 2.28.9"
SH
# With FAKE_LIMIT the time is over as soon as something hangs, and after a minute.
stand_in bin/timeout <<'SH'
#!/bin/bash
[[ -n ${FAKE_LIMIT:-} ]] || exec /usr/bin/timeout "$@"
"${@:4}" &
end=$((SECONDS + 60))
while kill -0 $! 2>/dev/null; do
  if [[ -e $FAKE_PLACE/hangs ]] || ((SECONDS > end)); then rm -f "$FAKE_PLACE/hangs"; kill $!; wait $! || exit 124; fi
  sleep 0.02
done
wait $!
SH
stand_in bin/compute-sanitizer <<'SH'
#!/bin/sh
if [ "$2" = racecheck ]; then echo "Error: Device not supported"; exit 1; fi
echo "========= COMPUTE-SANITIZER"
echo "========= ERROR SUMMARY: 0 errors"
SH
stand_in programs/trident_op_check <<'SH'
#!/bin/sh
echo "$*" >>"$FAKE_PLACE/op_check"
echo "10 cases: 9 passed, 0 failed, 1 refused"
echo "10 cases: 10 passed, 0 failed, 0 refused"
SH
printf '#!/bin/sh\necho "[  PASSED  ] 63 tests."\n' | stand_in programs/test_gpu_communicators
# Twenty steps that are the same in every layout, but for what FAKE_WRONG says: preset or key of cards, then what its losses are multiplied with, or null.
stand_in programs/trident <<'SH'
#!/bin/bash
if [[ $1 == ckpt && -n ${FAKE_DAMAGED:-} ]]; then echo "error: $3: $FAKE_DAMAGED"; exit 65; fi
[[ $1 == train ]] || exit 0
run='' factor=1
for a in "$@"; do
  case $a in run.dir=*) run=${a#run.dir=} ;; esac
  if [[ -n ${FAKE_WRONG:-} && ( $a == "parallel.zero=${FAKE_WRONG%% *}" || $a == "cuda.${FAKE_WRONG%% *}=true" ) ]]; then factor=${FAKE_WRONG##* }; fi
done
if [[ $factor == dies ]]; then echo "trident: rank 3: out of memory"; exit 70; fi
mkdir -p "$run"
awk -v f="$factor" 'BEGIN { for (s = 1; s <= 20; ++s)
  printf "{\"step\":%d,\"loss\":%s,\"grad_norm\":%.17g,\"lr\":0.1,\"step_ms\":%d}\n", s, f == "null" ? f : sprintf("%.17g", f * (11 - s / 7)), 3 + s / 9, s }' >"$run/metrics.jsonl"
SH

unset CUDA_VISIBLE_DEVICES CUDACXX CUDA_HOME CUDA_PATH CUDNN_PATH NCCL_PATH CUBLAS_PATH NVTX_PATH
options=()
# check EXPECTED_STATUS NAME=VALUE...: a run of everything; $place/out and $place/report.md.
check() {
  local status=0
  rm -f "$place"/report*.md
  env PATH="$place/bin:$PATH" FAKE_PLACE="$place" "${@:2}" "$script" "${options[@]}" --report "$place/report.md" --seed 5 >"$place/out" 2>&1 || status=$?
  ((status == $1)) || fail "status $status, expected $1"
}
reports() { grep -qF -- "$1" "$place/report.md" || fail "the report lacks: $1"; }
says() { grep -qF -- "$1" "$place/out" || fail "does not say: $1"; }

check 77 FAKE_CARDS=no
says 'SKIPPED: no NVIDIA card here: nvidia-smi says: NVIDIA-SMI has failed'
library "$place/wheel" cuBLASLt 12.9.1 libcublasLt.so.12
(($(wc -l <"$place/out") == 1)) || fail "more than one line without a card"
[[ ! -e $place/report.md ]] || fail "a report without a card"

# Packages are unpacked once, and not where they cannot work.
stand_in bin/dpkg-deb <<'SH'
#!/bin/sh
echo "$2" >>"$FAKE_PLACE/unpacked"
mkdir -p "$3/usr/lib/x86_64-linux-gnu/openmpi" "$3/usr/bin"
SH
stand_in bin/getconf <<'SH'
#!/bin/sh
echo "glibc ${FAKE_GLIBC:-2.36}"
SH
mkdir "$place/packages"
# unpack EXPECTED_STATUS TREE [NAME=VALUE...]
unpack() {
  local status=0
  (cd "${script%/*}/.." && env PATH="$place/bin:$PATH" FAKE_PLACE="$place" "${@:3}" bash -c '. scripts/gpu_machine.sh; unpack_packages "$@"' gpu_check.sh \
    "$place/packages" "$2") >"$place/out" 2>&1 || status=$?
  ((status == $1)) || fail "unpacking: status $status, expected $1"
}
unpack 1 "$place/tree"
says 'no packages there; make them with gpu_check.sh --prepare DIR'
touch "$place/packages"/{a,b}.deb
unpack 1 "$place/tree" FAKE_GLIBC=2.35
says "which need glibc 2.36, and here is 2.35"
unpack 1 "$place/a tree"
says 'take a --build without spaces'
unpack 0 "$place/tree"
unpack 0 "$place/tree"
[[ $(cat "$place/unpacked") == "$place/packages/a.deb
$place/packages/b.deb" ]] || fail "not each package was unpacked once: $(cat "$place/unpacked")"
[[ $("$place/tree/bin/mpicc" -showme:libdirs) == "$place/tree/usr/lib/x86_64-linux-gnu/openmpi/lib" && -x $place/tree/bin/mpirun ]] || fail "no Open MPI"
touch "$place/packages/c.deb"
unpack 0 "$place/tree"
(($(wc -l <"$place/unpacked") == 5)) || fail "other packages were not unpacked"

# As many compilers as memory lets.
for allowed in 5000000000:2 1000000:1 max:3; do
  echo "${allowed%:*}" >"$place/memory.max"
  jobs=$(cd "${script%/*}/.." && memory_limit=$place/memory.max PATH="$place/bin:$PATH" bash -c '
    nproc() { echo 3; }; awk() { echo 1000000000000; }; . scripts/gpu_machine.sh; jobs_at_once')
  ((jobs == ${allowed#*:})) || { echo "$jobs compilers at once with $allowed"; exit 1; }
done

# The card is the first of those that are shown.
two='0, GPU-aaaa1111, NVIDIA H100 80GB HBM3, 9.0, 580.159.04
1, GPU-bbbb2222, NVIDIA A100-SXM4-40GB, 8.0, 580.159.04'
parts='  MIG 3g.20gb     Device  0: (UUID: MIG-cccc3333)
  MIG 1g.5gb      Device  1: (UUID: MIG-dddd4444)'
# card SHOWN EXPECTED [NAME=VALUE...]: what find_card makes of CUDA_VISIBLE_DEVICES.
card() {
  local found shown=("CUDA_VISIBLE_DEVICES=$1")
  if [[ $1 == unset ]]; then shown=(-u CUDA_VISIBLE_DEVICES); fi
  found=$(cd "${script%/*}/.." && env "${shown[@]}" PATH="$place/bin:$PATH" FAKE_CARDS="$two" "${@:3}" bash -c '
    . scripts/gpu_machine.sh; find_card; echo "$card, $capability, $architecture, $slug, $CUDA_VISIBLE_DEVICES"') || true
  [[ $found == "$2" ]] || { echo "CUDA_VISIBLE_DEVICES=$1 shows: $found; expected: $2"; exit 1; }
}
card unset 'NVIDIA H100 80GB HBM3, 9.0, 90a-real, h100-80gb-hbm3, 0'
card 0,1 'NVIDIA H100 80GB HBM3, 9.0, 90a-real, h100-80gb-hbm3, 0'
card 1,0 'NVIDIA A100-SXM4-40GB, 8.0, 80-real, a100-sxm4-40gb, 1'
card GPU-bbbb 'NVIDIA A100-SXM4-40GB, 8.0, 80-real, a100-sxm4-40gb, GPU-bbbb'
card 0 'NVIDIA H100 80GB HBM3 MIG 3g.20gb, 9.0, 90a-real, h100-80gb-hbm3-mig-3g-20gb, MIG-cccc3333' FAKE_PARTS="$parts"
card MIG-dddd4444 'NVIDIA H100 80GB HBM3 MIG 1g.5gb, 9.0, 90a-real, h100-80gb-hbm3-mig-1g-5gb, MIG-dddd4444' FAKE_PARTS="$parts"
card 1 'NVIDIA A100-SXM4-40GB, 8.0, 80-real, a100-sxm4-40gb, 1' FAKE_PARTS="$parts"
card '' 'SKIPPED: no NVIDIA card here: CUDA_VISIBLE_DEVICES is empty and so hides them all; unset it'
for shown in 2 -1 GPU- MIG-e GPU-aaaa1111x; do
  card $shown "SKIPPED: no NVIDIA card here: CUDA_VISIBLE_DEVICES = $shown names none, or several, of 0 = GPU-aaaa1111; 1 = GPU-bbbb2222"
done

check 0 FAKE=nothing
reports '# Checks on NVIDIA H100 80GB HBM3'
reports '(compute capability 9.0), driver 580.159.04, CUDA 13.0.88, cuDNN 9.19.0, NCCL 2.28.9, commit'
reports '| operations, fresh random inputs | passed | seed 5; against the reference: 10 cases: 9 passed, 0 failed, 1 refused; against the CPU: 10 cases: 10 passed'
reports '| operations, epilogues of products | passed | seed 5; against the reference: 10 cases'
reports '| training: GPT-2, epilogues near without, bf16 | passed | 20 steps: loss apart by 0.0e+00 (allowed 0.002)'
reports '| communicators between thread ranks | passed | 63 tests. |'
reports '| NCCL, 1 rank | passed | 63 tests. |'
for preset in ddp zero1 zero2 shard_grad_op zero3; do
  reports "| training: tp2 x pp2 x dp2, $preset = 1 rank, fp32 | passed | 20 steps: loss apart by 0.0e+00 (allowed 1e-06), gradient norm by 0.0e+00 (1e-05), relative |"
done
reports '| training: CUDA graphs, 1 rank, bf16, bit for bit | passed |'
reports '| checkpoints: saved and gone on with, 1 rank, bit for bit | passed | 20 steps: loss apart by 0.0e+00 (allowed 0), '
reports '| checkpoints: tp2 x pp2 x dp2, zero3, graphs; gone on with on the CPU | passed | 20 steps: loss apart by 0.0e+00 (allowed 1e-05), '
reports '| NCCL, 2 processes on this card | SKIPPED |'
reports '| memcheck: operations | passed | ERROR SUMMARY: 0 errors |'
reports '| racecheck: operations | SKIPPED | compute-sanitizer does not support this machine |'
grep -qxF -- '-DCMAKE_CUDA_ARCHITECTURES=90a-real' "$place/cmake" || fail "builds for another card"
grep -qF -- '--device cuda:0 --seed 5' "$place/op_check" || fail "operations are not drawn from the seed"
grep -qF -- '--epilogues --filter matmul_*' "$place/op_check" || fail "fused operations are not tried"

check 1 FAKE_WRONG='epilogues 1.003' FAKE_DAMAGED='block 3: damaged'
reports '| training: GPT-2, epilogues near without, bf16 | failed | 20 steps: loss apart by 3.0e-03 (allowed 0.002)'
reports '| checkpoints: bf16, 1 rank, bit for bit | failed | error: '
reports '/saved_bf16/ckpt/step-00000020: block 3: damaged |'

# Wrong by a little more than is allowed, not finite, dead.
check 1 FAKE_WRONG='zero2 1.000002'
reports '| training: tp2 x pp2 x dp2, zero2 = 1 rank, fp32 | failed | 20 steps: loss apart by 2.0e-06 (allowed 1e-06)'
reports '| training: zero3 = zero2, bit for bit | failed |'
reports '| training: tp2 x pp2 x dp2, zero1 = 1 rank, fp32 | passed |'
check 1 FAKE_WRONG='graphs 1.0000001'
reports '| training: CUDA graphs, 1 rank, bf16, bit for bit | failed |'
check 1 FAKE_WRONG='zero3 1.0000001'
reports '| training: tp2 x pp2 x dp2, zero3 = 1 rank, fp32 | passed |'
reports '| training: zero3 = zero2, bit for bit | failed |'
check 1 FAKE_WRONG='ddp null'
reports '| training: tp2 x pp2 x dp2, ddp = 1 rank, fp32 | failed | step 1 of '
check 1 FAKE_WRONG='zero1 dies' FAKE_GXX=11 FAKE_GXX_LATER=13
grep -qxF -- "-DCMAKE_CXX_COMPILER=$place/bin/g++-13" "$place/cmake" || fail "does not take the compiler that is new enough"
grep -qxF -- "-DCMAKE_CUDA_HOST_COMPILER=$place/bin/g++-13" "$place/cmake" || fail "nvcc takes another compiler"
reports '| training: tp2 x pp2 x dp2, zero1 = 1 rank, fp32 | failed | trident: rank 3: out of memory |'

# What begins too late is not begun, and a table of that is no pass. A shell counts its seconds from what it is told.
check 75 SECONDS=590
says 'not finished: 1 checks were not reached in 10 minutes'
reports '| what building needs | unfinished | the 10 minutes are over | 0 |'

# The build ends with the time there is; a second run with the same folder goes on with it, and one for another toolkit from nothing.
options=(--build "$place/a build")
check 75 SECONDS=400 FAKE_LIMIT=over FAKE_BUILD=unconfigured
reports '| build | unfinished | no end within its time; last: configuring was not done in time | '
check 75 FAKE_LIMIT=over FAKE_BUILD=slow
reports '| build | unfinished | no end within its time; last: building came to: [132/210] Building cuda_ops.cpp.o | '
reports '**Not finished: 1 checks were not reached in 10 minutes.**'
check 0 FAKE_BUILD=slow
reports '| memcheck: operations | passed |'
if grep -qx -- --fresh "$place/cmake"; then fail "begins the same build anew"; fi
check 1 FAKE_BUILD=broken FAKE_CUDA=12.9 FAKE_DRIVER_CUDA=12.4 CUBLAS_PATH="$place/wheel"
grep -qx -- --fresh "$place/cmake" || fail "goes on with the build of another toolkit"
options=()

# Programs that were brought start without a build, if they are for this card and this toolkit.
bring() {
  mkdir -p "$place/brought/bin"
  echo "$1" >"$place/brought/brought"
  cp "$place/programs/trident" "$place/brought/bin/"
  rm -f "$place/cmake"
}
mkdir -p "$place/brought/tests/conformance" "$place/brought/tests/cuda/gpu"
cp "$place/programs/trident_op_check" "$place/brought/tests/conformance/"
for program in communicators processes; do
  cp "$place/programs/test_gpu_communicators" "$place/brought/tests/cuda/gpu/test_gpu_$program"
done
options=(--build "$place/brought" --only '!memcheck|racecheck|NCCL')
bring '80-real;90a-real CUDA 13'
check 0 FAKE=nothing
[[ ! -e $place/cmake ]] || fail "what was brought is built again"
reports 'driver 580.159.04, CUDA 13.0.88, cuBLASLt 13.1.0, cuDNN 9.19.0, NCCL 2.28.9, commit'
reports '| communicators between thread ranks | passed | 63 tests. |'
if grep -qE 'memcheck|NCCL, ' <(grep '^| ' "$place/report.md" | cut -d '|' -f 2); then fail "checks that were not asked for"; fi
check 0 FAKE_MISSING=fmt/core.h FAKE_CMAKE=3.22.1 FAKE_GXX=11
check 1 FAKE_DRIVER_CUDA=12.4 FAKE_MISSING=fmt/core.h
says 'is for 12.4), or a CUDA 12 toolkit: CUDA_HOME says where; fmt/core.h (libfmt-dev). '
options=(--build "$place/brought" --only 'memcheck' --logs "$place/logs")
printf '#!/bin/sh\nprintf "\tlibnccl.so.2 => not found\n\tlibm.so.6 => /lib/libm.so.6 (0x1)\n"\n' | stand_in bin/ldd
check 0 FAKE=nothing
reports 'built here: those brought do not find libnccl.so.2 |'
rm "$place/bin/ldd"
bring '100-real CUDA 13'
check 0 FAKE=nothing
reports 'for 90a-real; built here: those brought are for 100-real CUDA 13, here is 90a-real CUDA 13 |'
[[ -e $place/cmake ]] || fail "programs for another card are taken"
bring '100-real CUDA 13'
check 1 FAKE_MISSING=fmt/core.h
says 'missing here: fmt/core.h (libfmt-dev). '
bring '100-real CUDA 13'
check 0 FAKE=nothing
reports '| memcheck: operations | passed |'
(($(grep -c '^| ' "$place/report.md") == 6)) || fail "not the checks that were asked for"
bring '90a-real CUDA 13'
printf '#!/bin/sh\necho "libfmt.so.9: not found" >&2; exit 127\n' >"$place/brought/bin/trident"
check 0 FAKE=nothing
reports 'built here: those brought do not start: libfmt.so.9: not found |'
options=()

# A sanitizer that is slow has found nothing. What failed is kept whole where that is asked for.
stand_in bin/compute-sanitizer <<'SH'
#!/bin/sh
touch "$FAKE_PLACE/hangs"
exec sleep 60
SH
options=(--only memcheck)
check 75 FAKE_LIMIT=over
reports '| memcheck: operations | unfinished | no end within its time'
options=(--only 'operations' --logs "$place/logs")
cp "$place/programs/trident_op_check" "$place/op_check_kept"
printf '#!/bin/sh\necho "failed matmul/bf16/7"; seq 300; echo "10 cases: 9 passed, 1 failed, 0 refused"; exit 1\n' |
  stand_in programs/trident_op_check
check 1 FAKE_LIMIT=over
grep -qx 300 "$place/logs" || fail "the output of what failed is not kept"
cp "$place/op_check_kept" "$place/programs/trident_op_check"
options=()

# Stopped from outside: the table has what was known, and who sent the signal hears it.
rm -f "$place"/report*.md
PATH="$place/bin:$PATH" TMPDIR="$place" FAKE_PLACE="$place" FAKE_BUILD=slow "$script" --report "$place/report.md" --minutes 1 >"$place/out" 2>&1 &
for _ in {1..600}; do
  if grep -q '^| build | unfinished | begun after ' "$place/report.md" 2>/dev/null && grep -qs 132/210 "$place"/*/build.log; then break; fi
  sleep 0.1
done
kill $!
status=0
wait $! || status=$?
((status == 75)) || fail "stopped: status $status, expected 75"
says 'gpu_check.sh: stopped; what is known is in '
reports '**Not finished: checks are missing below.**'
reports '| what building needs | passed | cuBLASLt 13.1.0: '

# Nothing is tried on what could not be built.
check 1 FAKE_MISSING=fmt/core.h
says 'missing here: fmt/core.h (libfmt-dev). '
reports '| what building needs | failed | '
(($(grep -c '^| ' "$place/report.md") == 2)) || fail "more than what is missing in the report"
check 1 FAKE_DRIVER_CUDA=12.4
says 'missing here: a driver for CUDA 13 (driver 580.159.04 is for 12.4), or a CUDA 12 toolkit: CUDA_HOME says where. '
check 1 FAKE_GXX=11 FAKE_CMAKE=3.22.1
says 'missing here: cmake 3.25 or later (here is 3.22.1; pip has it); g++ 12 or later (here is 11; CXX says which). '
check 1 FAKE_BUILD=broken
says 'cuda_ops.cpp:7:3: error: no such thing'
(($(grep -c '^| ' "$place/report.md") == 3)) || fail "more than the build in the report"

# Where the report cannot be written is said before anything is done.
status=0
env PATH="$place/bin:$PATH" "$script" --report /proc/report.md >"$place/out" 2>&1 || status=$?
((status == 1)) || fail "status $status without a report"
says '/proc/report.md cannot be written; say where to with --report FILE'

for arguments in '--minutes 0' '--seed x' '--packages' 'now'; do
  status=0
  # shellcheck disable=SC2086  # several words
  env PATH="$place/bin:$PATH" "$script" $arguments >"$place/out" 2>&1 || status=$?
  ((status == 64)) || fail "$arguments: status $status, expected 64"
done
echo "gpu_check.sh compares, reports and refuses as it says"
