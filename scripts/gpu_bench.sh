#!/usr/bin/env bash
# gpu_bench.sh [--packages DIR] [--build DIR] [--only trident|torch] [--rows DIR] [--minutes M] [--most N] [--seconds S] [--steps N]
# [--warmup N] [--report FILE] [MODEL...]: how fast this machine's NVIDIA card trains, beside PyTorch on the same card in the same
# run (scripts/bench_torch.py), as one table in docs/benchmarks/<date>-<card>-bench.md.
#
# Models (all, if none is named): gpt2-124m gpt2-1.5b qwen2.5-0.5b qwen2.5-1.5b with 1024 tokens a sequence, llama3.2-1b with 4096. Every step takes
# 524,288 random tokens, in bf16 with fp32 master weights; 3 steps warm up, 10 are timed, their median counts. Both sides take
# the largest micro-batch that fits, by halving, and the fastest of a few configurations, each tried by steps of four
# micro-batches. The table is written as it grows. Losses say whether the same was computed: of random tokens the first is known.
# --minutes and --most: for PyTorch's search of its configuration, each model. --seconds: for each model and side; ours then tries
# only what leaves time for the timed steps, PyTorch is ended. --rows: rows that are done are kept there, and a
# later call of the same card goes on with them. --packages, --build: as for gpu_check.sh.
#
# Exit status: 0, 1 if a model could not be measured or a loss is wrong, 75 stopped by a signal, 77 no card here, 64 wrong arguments.
set -euo pipefail
. "$(dirname "$0")/gpu_machine.sh"
export LC_ALL=C

usage() { sed -n '2,4s/^# //p' "$0" >&2; exit 64; }
packages='' build='' only='' keep='' minutes=15 most=99 seconds=86400 steps=10 warmup=3 report='' models=()
while (($#)); do
  case $1 in --*) (($# >= 2)) || usage ;; *) models+=("$1"); shift; continue ;; esac
  case $1 in
    --packages) packages=$(realpath "$2") ;;
    --build) build=$(realpath -m "$2") ;;
    --only) only=$2 ;;
    --rows) keep=$(realpath -m "$2") ;;
    --minutes) minutes=$2 ;;
    --most) most=$2 ;;
    --seconds) seconds=$2 ;;
    --steps) steps=$2 ;;
    --warmup) warmup=$2 ;;
    --report) report=$(realpath -m "$2") ;;
    *) usage ;;
  esac
  shift 2
done
[[ $only =~ ^(|trident|torch)$ && $warmup =~ ^[0-9]+$ ]] || usage
for number in "$minutes" "$most" "$seconds" "$steps"; do [[ $number =~ ^[1-9][0-9]*$ ]] || usage; done
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
keep=${keep:-$scratch/rows}
mkdir -p "$keep"
deadline=0
command -v perl >/dev/null || { say "missing here: perl"; exit 1; }
versions='libraries not looked for'
if [[ $only != torch ]]; then
  if [[ -n $packages ]]; then unpack_packages "$packages" "$build/packages" || exit 1; fi
  name_missing "$build/packages" "$build" && build_for_card "$build/packages" "$build" trident || exit 1
  versions=$(library_versions "$build.log")
  echo "$versions" >"$scratch/versions"
elif [[ -e $keep/versions ]]; then
  versions=$(<"$keep/versions")
fi

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

# train_trident STEPS MICRO BATCH SETTING...: metrics in $scratch/run.
train_trident() {
  local words=(--set "batch.micro=$2" --set "run.steps=$1" --set "batch.global=$3") setting
  for setting in "${@:4}"; do words+=(--set "$setting"); done
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
probe_warmup=3 probe_steps=8 probe_batches=4
names=('half the micro-batch' 'not deterministic' 'autotuned' 'epilogues' 'graphs')
settings_of() {
  case $1 in
    'not deterministic') echo cuda.deterministic=false ;;
    autotuned) echo "cuda.autotune=$keep/autotune" ;;
    epilogues) echo cuda.epilogues=true ;;
    graphs) echo cuda.graphs=true ;;
  esac
}
faster() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }
last_line() { tail -n 1 "$scratch/train.log" | cut -c 1-300; }

now() { date +%s; }
# has_time SEQUENCE: whether a probe as long as the longest leaves what the timed steps take at $best ms a sequence, and start and
# floors beside them.
longest=0
has_time() {
  local timed
  timed=$(awk -v n=$(((warmup + steps) * tokens / $1)) -v ms="$best" 'BEGIN { printf "%d", n * ms / 1000 }')
  (($(now) - begun + longest + timed + 20 <= seconds))
}

# probe MICRO SETTING...: into probed, ms for each sequence of a few short steps.
probe() {
  local since
  since=$(now)
  probe_once "$@" || return
  if (($(now) - since > longest)); then longest=$(($(now) - since)); fi
}
probe_once() {
  train_trident $probe_steps "$1" $((probe_batches * $1)) "${@:2}" || return
  probed=$(median_step $probe_warmup | awk -v n=$((probe_batches * $1)) '{ printf "%.4f", $1 / n }')
}

# time_trident MODEL SEQUENCE: sets choice, its settings in chosen, micro, ms, own (tokens/s), mfu and peak of the median step; status 1 and a line in why_not if it cannot.
time_trident() {
  local best name words=() more tried
  choice='' chosen=() micro=$((65536 / $2)) why_not=''
  until probe $micro; do
    # What does not fit is refused in words that begin so.
    if ((micro == 1)) || ! grep -qE '^trident: (batch\.micro|memory|parallel\.zero|model)\b' "$scratch/train.log"; then why_not=$(last_line); return 1; fi
    micro=$((micro / 2))
  done
  best=$probed
  tried="the median of $((probe_steps - probe_warmup)) steps of $probe_batches micro-batches of $micro"
  note "- $1, trident, defaults: $best ms a sequence, $tried"
  for name in "${names[@]}"; do
    mapfile -t more < <(settings_of "$name")
    tried=$micro
    if [[ $name == half* ]]; then tried=$((micro / 2)); fi
    ((tried > 0)) || continue
    if ! has_time "$2"; then note "- $1, trident: no time was left for: $name"; continue; fi
    if ! probe $tried "${words[@]}" "${more[@]}"; then note "- $1, trident,$choice $name: $(last_line)"; continue; fi
    note "- $1, trident,$choice $name: $probed ms a sequence"
    if faster "$probed" "$best"; then best=$probed micro=$tried words+=("${more[@]}"); [[ $name == half* ]] || choice+=" $name,"; fi
  done
  choice=${choice# } choice=${choice%,}
  chosen=("${words[@]}")
  train_trident $((warmup + steps)) $micro $((tokens / $2)) "${words[@]}" || { why_not=$(last_line); return 1; }
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

head=$(report_head "$versions")
# Rows of another card, commit or length are none of this table's.
kept_for="$card, $(commit_of_build), $warmup + $steps steps"
if [[ $(cat "$keep/made_for" 2>/dev/null) != "$kept_for" ]]; then
  rm -f "$keep"/*.{rows,notes,failed,done,own} "$keep"/{autotune,versions}
  echo "$kept_for" >"$keep/made_for"
fi
if [[ -e $scratch/versions ]]; then cp "$scratch/versions" "$keep/versions"; fi
# Of a model and a side ($part) are kept: its rows, its notes, and that it is done.
row() {
  printf '%s\n' "| $1 | $2 | $3 | $4 | ${5//|/\\|} | $6 | $7 | $8 | $9 |" | tee -a "$part.rows"
  if [[ $5 == failed* || $8 == WRONG* ]]; then touch "$part.failed"; fi
  save '**Not finished: rows are missing below.**'
}
note() { printf '%s\n' "$@" >>"$part.notes"; }
# save [REMARK]: the report of what is known until now.
save() {
  local model side setting
  {
    printf '%s\n' "# Training speed on $card" '' "$head" '' \
      "\`scripts/gpu_bench.sh\`: $tokens tokens a step, $warmup steps of warm-up, median of $steps; random tokens." \
      'trident: bf16 with fp32 master weights and moments. PyTorch in pure bf16 keeps weights and moments in bf16; under autocast in fp32, as' \
      "trident does. Memory: trident's arena; PyTorch's allocator. Ratio: trident's tokens/s over that row's." '' ${1:+"$1" ''} \
      '| model | by | micro-batch | step, ms | tokens/s | MFU | memory, GiB | loss, first to last | ratio |' '|---|---|---|---|---|---|---|---|---|'
    for model in "${models[@]}"; do for side in trident torch; do cat "$keep/$model.$side.rows" 2>/dev/null || true; done; done
    # What one card cannot show; this script takes one.
    for setting in cuda.nccl_max_ctas cuda.spare_multiprocessors cuda.nccl_any_order cuda.nccl_register; do
      echo "| all | trident, $setting | - | - | SKIPPED: needs two cards | - | - | - | - |"
    done
    echo
    for model in "${models[@]}"; do for side in trident torch; do cat "$keep/$model.$side.notes" 2>/dev/null || true; done; done
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

# What the same work takes at this card's own peaks, kind by kind.
note_floors() {
  local kinds flags=() setting
  kinds=$(tail -n 1 "$scratch/run/timing.jsonl" 2>/dev/null | grep -o '"ms": *{[^}]*}' || true)
  if [[ -n $kinds ]]; then note "- $1, ms of a step by kind of work as the host sees them: $(tr -d '"{}' <<<"${kinds#*:}")"; fi
  for setting in "${chosen[@]}"; do flags+=(--set "$setting"); done
  flags+=(--set "batch.micro=$micro" --set "batch.global=$((probe_batches * micro))")
  if trident bench --device cuda --steps 1 --config "$scratch/bench.json" "${flags[@]}" >"$scratch/floors" 2>"$scratch/floors.log"; then
    note "" "\`trident bench\`, $1:" "" '```text' "$(<"$scratch/floors")" '```' ""
  else
    note "- $1, \`trident bench\` failed: $(tail -n 1 "$scratch/floors.log" | cut -c 1-300)"
  fi
}

# bench_trident MODEL SEQUENCE VOCABULARY HIDDEN
bench_trident() {
  local loss shown begun
  begun=$(now) longest=0
  random_tokens "$scratch/tokens" "$3" 4194304
  cat >"$scratch/bench.json" <<JSON
{ "device": "cuda", "run": { "dir": "$scratch/run", "steps": 1 }, "model": { "preset": "$1" },
  "parallel": { "data": 1 }, "batch": { "global": $((tokens / $2)), "micro": 1, "sequence": $2 }, "precision": { "compute": "bf16" },
  "optimizer": { "lr": 1e-5 }, "data": { "train": "$scratch/tokens", "tokenizer": null }, "checkpoint": { "every": 0 },
  "log": { "every": 1, "tensorboard": false } }
JSON
  if ! time_trident "$1" "$2"; then
    say "$1: ${why_not:-trident says nothing}"
    row "$1" trident - - "failed: ${why_not:-trident says nothing}" - - - -
    return
  fi
  shown=${mfu/null/-}
  if [[ $mfu != null ]]; then shown=$(percent "$mfu"); fi
  loss=$(losses "$(head -n 1 "$scratch/run/metrics.jsonl" | json_value loss)" "$(tail -n 1 "$scratch/run/metrics.jsonl" | json_value loss)" "$3" "$4")
  echo "$own $mfu" >"$keep/$1.own"
  row "$1" "trident, ${choice:-defaults}" "$micro" "$(printf '%.1f' "$ms")" "$(printf '%.0f' "$own")" "$shown" "$(gib "$peak")" "$loss" -
  note_floors "$1"
}

# bench_torch MODEL SEQUENCE VOCABULARY HIDDEN
bench_torch() {
  local line rate name shown ratio own='' of_own='' status=0
  local limit=$((60 * minutes + 2400))
  if ((seconds < limit)); then limit=$seconds; fi
  if ! "${PYTHON:-python3}" -c 'import torch' 2>/dev/null; then
    row "$1" PyTorch - - 'SKIPPED: no PyTorch' - - - -
    return
  fi
  bounded "$limit" "${PYTHON:-python3}" scripts/bench_torch.py "$1" --sequence "$2" --tokens "$tokens" \
    --steps "$steps" --warmup "$warmup" --minutes "$minutes" --most "$most" >"$scratch/torch" 2>"$scratch/torch.log" || status=$?
  if ((status == 124 || status == 137)); then
    row "$1" PyTorch - - "failed: not done in $limit seconds; below is what was timed by then" - - - -
  elif ((status != 0)); then
    row "$1" PyTorch - - "failed: $(tail -n 1 "$scratch/torch.log" | cut -c 1-300)" - - - -
  fi
  if [[ -e $keep/$1.own ]]; then read -r own of_own <"$keep/$1.own"; fi
  while IFS= read -r line; do
    field() { json_value "$1" <<<"$line"; }
    rate=$(field tokens_per_s)
    name="PyTorch $(field torch), $(field precision), $(field compile), $(field attention)"
    shown=- ratio=-
    if [[ -n $own && $of_own != null ]]; then shown=$(percent "$(awk -v m="$of_own" -v own="$own" -v t="$rate" 'BEGIN { print m / own * t }')"); fi
    if [[ -n $own ]]; then ratio=$(awk -v a="$own" -v b="$rate" 'BEGIN { printf "%.3f", a / b }'); fi
    row "$1" "$name" "$(field micro)" "$(printf '%.1f' "$(field step_ms)")" "$(printf '%.0f' "$rate")" "$shown" "$(gib "$(field peak_bytes)")" \
      "$(losses "$(field first_loss)" "$(field last_loss)" "$3" "$4")" "$ratio"
  done < <(grep '^{"timed"' "$scratch/torch")
  while IFS= read -r line; do note "- $1, tried: \`$line\`"; done < <(grep '^{"tried"' "$scratch/torch")
  while IFS= read -r line; do note "- $1, no time was left for: \`$line\`"; done < <(grep '^{"not_tried"' "$scratch/torch")
}

failed=0
save '**Not finished: rows are missing below.**'
for model in "${models[@]}"; do
  read -r sequence vocabulary hidden <<<"$(shape_of "$model")"
  for side in trident torch; do
    part=$keep/$model.$side
    if [[ -n $only && $only != "$side" ]]; then continue; fi
    if [[ ! -e $part.done ]]; then
      rm -f "$part".{rows,notes,failed}
      "bench_$side" "$model" "$sequence" "$vocabulary" "$hidden"
      if [[ ! -e $part.failed ]]; then touch "$part.done"; fi
    else
      cat "$part.rows"
    fi
    if [[ -e $part.failed ]]; then failed=$((failed + 1)); fi
  done
done

save
echo "$report: ${#models[@]} models, $failed rows failed"
((failed == 0))
