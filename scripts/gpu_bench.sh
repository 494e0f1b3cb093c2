#!/usr/bin/env bash
# gpu_bench.sh [--packages DIR] [--build DIR] [--minutes M] [--steps N] [--warmup N] [--report FILE] [MODEL...]: how fast this machine's NVIDIA card
# trains, beside PyTorch on the same card in the same run (scripts/bench_torch.py), as one table in docs/benchmarks/<date>-<card>-bench.md.
#
# Models (all, if none is named): gpt2-124m gpt2-1.5b qwen2.5-0.5b qwen2.5-1.5b with 1024 tokens a sequence, llama3.2-1b with 4096. Every step takes
# 524,288 random tokens, in bf16 with fp32 master weights; 10 steps warm up, 20 are timed, their median counts. Both sides take the largest
# micro-batch that fits, by halving, and the fastest of a few configurations. The table is written as it grows. Losses say whether the same was
# computed: of random tokens the first is known. --minutes: for PyTorch's search of its configuration, each model. --packages, --build: as for
# gpu_check.sh.
#
# Exit status: 0, 1 if a model could not be measured or a loss is wrong, 75 stopped by a signal, 77 no card here, 64 wrong arguments.
set -euo pipefail
. "$(dirname "$0")/gpu_machine.sh"
export LC_ALL=C

usage() { sed -n '2,3s/^# //p' "$0" >&2; exit 64; }
packages='' build='' minutes=15 steps=20 warmup=10 report='' models=()
while (($#)); do
  case $1 in --*) (($# >= 2)) || usage ;; *) models+=("$1"); shift; continue ;; esac
  case $1 in
    --packages) packages=$(realpath "$2") ;;
    --build) build=$(realpath -m "$2") ;;
    --minutes) minutes=$2 ;;
    --steps) steps=$2 ;;
    --warmup) warmup=$2 ;;
    --report) report=$(realpath -m "$2") ;;
    *) usage ;;
  esac
  shift 2
done
[[ $minutes =~ ^[1-9][0-9]*$ && $steps =~ ^[1-9][0-9]*$ && $warmup =~ ^[0-9]+$ ]] || usage
((${#models[@]})) || models=(gpt2-124m gpt2-1.5b llama3.2-1b qwen2.5-0.5b qwen2.5-1.5b)
# sequence, vocabulary and hidden width of $1
shape_of() {
  case $1 in
    gpt2-124m) echo 1024 50257 768 ;;
    gpt2-1.5b) echo 1024 50257 1600 ;;
    llama3.2-1b) echo 4096 128256 2048 ;;
    qwen2.5-0.5b) echo 1024 151936 896 ;;
    qwen2.5-1.5b) echo 1024 151936 1536 ;;
    *) say "$1: no such model; there are gpt2-124m, gpt2-1.5b, llama3.2-1b, qwen2.5-0.5b, qwen2.5-1.5b"; exit 64 ;;
  esac
}
for model in "${models[@]}"; do shape_of "$model" >/dev/null; done
cd "$(dirname "$0")/.."
find_card
report=${report:-docs/benchmarks/$(date -u +%Y-%m-%d)-$slug-bench.md}
report=$(free_report "$report") || exit 1
tokens=524288

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap stopped INT TERM
build=${build:-$scratch/build}
deadline=0
command -v perl >/dev/null || { say "missing here: perl"; exit 1; }
if [[ -n $packages ]]; then unpack_packages "$packages" "$build/packages" || exit 1; fi
name_missing "$build/packages" && build_for_card "$build/packages" "$build" trident || exit 1
versions=$(library_versions "$build.log")

# random_tokens PREFIX VOCABULARY COUNT: token files (Megatron's format, i32, one document).
random_tokens() {
  perl -e '
    my ($prefix, $vocabulary, $count) = @ARGV;
    srand(1);
    open(my $bin, ">:raw", "$prefix.bin") or die;
    for (my $left = $count; $left > 0; $left -= 65536) {
      print $bin pack("l<*", map { int(rand($vocabulary)) } 1 .. ($left < 65536 ? $left : 65536));
    }
    open(my $idx, ">:raw", "$prefix.idx") or die;
    print $idx "MMIDIDX\0\0", pack("Q<CQ<Q<l<Q<Q<Q<", 1, 4, 1, 2, $count, 0, 0, 1);' "$@"
}

# Value of a JSON line and key on standard input.
json_value() { sed -n "s/.*\"$1\": *\"\\{0,1\\}\\([^,\"}]*\\).*/\\1/p"; }

# With the libraries it was built with, which PyTorch need not take.
trident() { bounded 3600 env "LD_LIBRARY_PATH=$(library_path)" "$build/bin/trident" "$@"; }

# train_trident STEPS MICRO SETTING...: metrics in $scratch/run.
train_trident() {
  local words=(--set "batch.micro=$2" --set "run.steps=$1") setting
  for setting in "${@:3}"; do words+=(--set "$setting"); done
  rm -rf "$scratch/run"
  trident train --config "$scratch/bench.json" "${words[@]}" >"$scratch/train.log" 2>&1
}

# median_step WARMUP: "step_ms tokens_per_s mfu peak_bytes" of the median step after so many, mfu "null" where the card's peak is not known.
median_step() {
  awk -v warmup="$1" '
    function value(key) {
      return match($0, "\"" key "\": *[-+.0-9a-z]+") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) : "null"
    }
    value("step") + 0 > warmup {
      ms = value("step_ms") + 0
      for (i = ++n; i > 1 && sorted[i - 1] > ms; --i) { sorted[i] = sorted[i - 1]; line[i] = line[i - 1] }
      sorted[i] = ms; line[i] = value("tokens_per_s") " " value("mfu") " " value("peak_bytes") }
    END { m = int((n + 1) / 2); if (n) print sorted[m], line[m] }' "$scratch/run/metrics.jsonl"
}

# What is tried one after another, as PyTorch's modes are, each by a few steps and on top of what was faster until then.
probe_warmup=2 probe_steps=5
names=('not deterministic, autotuned' 'epilogues' 'graphs' 'half the micro-batch')
settings_of() {
  case $1 in
    'not deterministic, autotuned') printf '%s\n' cuda.deterministic=false "cuda.autotune=$scratch/autotune" ;;
    epilogues) echo cuda.epilogues=true ;;
    graphs) echo cuda.graphs=true ;;
  esac
}
faster() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }
last_line() { tail -n 1 "$scratch/train.log" | cut -c 1-300; }

# time_trident MODEL SEQUENCE: sets choice, its settings in chosen, micro, ms, own (tokens/s), mfu and peak of the median step; status 1 and a line in why_not if it cannot.
time_trident() {
  local best_ms name words=() more tried
  choice='' chosen=() micro=$((65536 / $2)) why_not=''
  until train_trident $probe_steps $micro; do
    # What does not fit is refused in words that begin so.
    if ((micro == 1)) || ! grep -qE '^trident: (batch\.micro|memory|parallel\.zero|model)\b' "$scratch/train.log"; then why_not=$(last_line); return 1; fi
    micro=$((micro / 2))
  done
  best_ms=$(median_step $probe_warmup | cut -d ' ' -f 1)
  notes+=("- $1, trident, defaults: $best_ms ms a step, the median of $((probe_steps - probe_warmup)), micro-batch $micro")
  for name in "${names[@]}"; do
    mapfile -t more < <(settings_of "$name")
    tried=$micro
    if [[ $name == half* ]]; then tried=$((micro / 2)); fi
    ((tried > 0)) || continue
    if ! train_trident $probe_steps $tried "${words[@]}" "${more[@]}"; then notes+=("- $1, trident,$choice $name: $(last_line)"); continue; fi
    ms=$(median_step $probe_warmup | cut -d ' ' -f 1)
    notes+=("- $1, trident,$choice $name: $ms ms a step")
    if faster "$ms" "$best_ms"; then best_ms=$ms micro=$tried words+=("${more[@]}"); [[ $name == half* ]] || choice+=" $name,"; fi
  done
  choice=${choice# } choice=${choice%,}
  chosen=("${words[@]}")
  train_trident $((warmup + steps)) $micro "${words[@]}" || { why_not=$(last_line); return 1; }
  read -r ms own mfu peak <<<"$(median_step "$warmup")"
}

# losses FIRST LAST VOCABULARY HIDDEN: both, or what is wrong. A row of normalised activations times weights of standard deviation 0.02 has logits of
# variance hidden x 0.02^2, so that random tokens cost ln(vocabulary) and half of that in the mean; the rest is what bf16, padding and chance may do.
losses() {
  awk -v first="$1" -v last="$2" -v vocabulary="$3" -v hidden="$4" 'BEGIN {
    finite = "^-?[0-9]+[.]?[0-9]*([eE][-+]?[0-9]+)?$"
    expected = log(vocabulary) + hidden * 0.0002; band = 0.05
    if (first !~ finite || last !~ finite) printf "WRONG: %s to %s is not finite", first, last
    else if (first < expected - band || first > expected + band) printf "WRONG: %.3f to %.3f, the first ought to be %.3f to %.3f", first, last, expected - band, expected + band
    else printf "%.3f to %.3f", first, last }'
}

rows=() notes=() failed=0 head=$(report_head "$versions")
# row MODEL BY MICRO MS TOKENS/S MFU MEMORY LOSSES RATIO
row() {
  rows+=("| $1 | $2 | $3 | $4 | ${5//|/\\|} | $6 | $7 | $8 | $9 |")
  printf '%s\n' "${rows[-1]}"
  if [[ $5 == failed* || $8 == WRONG* ]]; then failed=$((failed + 1)); fi
  save '**Not finished: rows are missing below.**'
}
# save [REMARK]: the report of what is known until now.
save() {
  {
    printf '%s\n' "# Training speed on $card" '' "$head" '' \
      "\`scripts/gpu_bench.sh\`: $tokens tokens a step, $warmup steps of warm-up, median of $steps; random tokens." \
      'trident: bf16 with fp32 master weights and moments. PyTorch in pure bf16 keeps weights and moments in bf16; under autocast in fp32, as' \
      "trident does. Memory: trident's arena; PyTorch's allocator. Ratio: trident's tokens/s over that row's." '' ${1:+"$1" ''} \
      '| model | by | micro-batch | step, ms | tokens/s | MFU | memory, GiB | loss, first to last | ratio |' '|---|---|---|---|---|---|---|---|---|' \
      "${rows[@]}" '' "${notes[@]}"
  } >"$report.part"
  mv "$report.part" "$report"
}
stopped() {
  trap '' INT TERM
  stop_bounded
  wait
  echo "gpu_bench.sh: stopped; what is known is in $report" >&2
  exit 75
}
percent() { awk -v x="$1" 'BEGIN { printf "%.1f %%", 100 * x }'; }
gib() { awk -v x="$1" 'BEGIN { printf "%.1f", x / 1073741824 }'; }

for model in "${models[@]}"; do
  read -r sequence vocabulary hidden <<<"$(shape_of "$model")"
  random_tokens "$scratch/tokens" "$vocabulary" 4194304
  cat >"$scratch/bench.json" <<JSON
{ "device": "cuda", "run": { "dir": "$scratch/run", "steps": 1 }, "model": { "preset": "$model" },
  "parallel": { "data": 1 }, "batch": { "global": $((tokens / sequence)), "micro": 1, "sequence": $sequence }, "precision": { "compute": "bf16" },
  "optimizer": { "lr": 1e-5 }, "data": { "train": "$scratch/tokens", "tokenizer": null }, "log": { "every": 1, "tensorboard": false } }
JSON
  own='' mfu_per_token=''
  if time_trident "$model" "$sequence"; then
    if [[ $mfu != null ]]; then
      mfu_per_token=$(awk -v m="$mfu" -v t="$own" 'BEGIN { printf "%.9g", m / t }')
      mfu=$(percent "$mfu")
    fi
    loss=$(losses "$(head -n 1 "$scratch/run/metrics.jsonl" | json_value loss)" "$(tail -n 1 "$scratch/run/metrics.jsonl" | json_value loss)" \
      "$vocabulary" "$hidden")
    row "$model" "trident, ${choice:-defaults}" "$micro" "$(printf '%.1f' "$ms")" "$(printf '%.0f' "$own")" "${mfu/null/-}" "$(gib "$peak")" "$loss" -
    kinds=$(tail -n 1 "$scratch/run/timing.jsonl" 2>/dev/null | grep -o '"ms": *{[^}]*}' || true)
    if [[ -n $kinds ]]; then notes+=("- $model, ms of a step by kind of work as the host sees them: $(tr -d '"{}' <<<"${kinds#*:}")"); fi
    # What the same work takes at this card's own peaks, kind by kind.
    flags=()
    for setting in "${chosen[@]}"; do flags+=(--set "$setting"); done
    if trident bench --device cuda --steps 1 --config "$scratch/bench.json" --set "batch.micro=$micro" "${flags[@]}" >"$scratch/floors" 2>"$scratch/floors.log"; then
      notes+=("" "\`trident bench\`, $model:" "" '```text' "$(<"$scratch/floors")" '```' "")
    else
      notes+=("- $model, \`trident bench\` failed: $(tail -n 1 "$scratch/floors.log" | cut -c 1-300)")
    fi
  else
    say "$model: ${why_not:-trident says nothing}"
    row "$model" trident - - "failed: ${why_not:-trident says nothing}" - - - -
  fi

  if ! "${PYTHON:-python3}" -c 'import torch' 2>/dev/null; then
    row "$model" PyTorch - - 'SKIPPED: no PyTorch' - - - -
    continue
  fi
  if ! bounded $((60 * minutes + 2400)) "${PYTHON:-python3}" scripts/bench_torch.py "$model" --sequence "$sequence" --tokens "$tokens" \
    --steps "$steps" --warmup "$warmup" --minutes "$minutes" >"$scratch/torch" 2>"$scratch/torch.log"; then
    row "$model" PyTorch - - "failed: $(tail -n 1 "$scratch/torch.log" | cut -c 1-300)" - - - -
  fi
  while IFS= read -r line; do
    field() { json_value "$1" <<<"$line"; }
    rate=$(field tokens_per_s)
    name="PyTorch $(field torch), $(field precision), $(field compile), $(field attention)"
    mfu=- ratio=-
    if [[ -n $mfu_per_token ]]; then mfu=$(percent "$(awk -v k="$mfu_per_token" -v t="$rate" 'BEGIN { print k * t }')"); fi
    if [[ -n $own ]]; then ratio=$(awk -v a="$own" -v b="$rate" 'BEGIN { printf "%.3f", a / b }'); fi
    row "$model" "$name" "$(field micro)" "$(printf '%.1f' "$(field step_ms)")" "$(printf '%.0f' "$rate")" "$mfu" "$(gib "$(field peak_bytes)")" \
      "$(losses "$(field first_loss)" "$(field last_loss)" "$vocabulary" "$hidden")" "$ratio"
  done < <(grep '^{"timed"' "$scratch/torch")
  while IFS= read -r line; do notes+=("- $model, tried: \`$line\`"); done < <(grep '^{"tried"' "$scratch/torch")
  while IFS= read -r line; do notes+=("- $model, no time was left for: \`$line\`"); done < <(grep '^{"not_tried"' "$scratch/torch")
done

save
echo "$report: ${#models[@]} models, $failed rows failed"
((failed == 0))
