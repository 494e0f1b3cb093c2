#!/usr/bin/env bash
# report_test.sh TRIDENT SOURCE: trident report draws runs that are over, going on and killed, and a browser draws its page
# without a word in its console, in which report_probe.js, which uses the page as a reader does, says what is wrong. The part in
# the browser is SKIPPED by name where there is no chromium.
set -euo pipefail
trident=$1 source=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
ln -s "$source/configs" configs
fail() { echo "$1"; exit 1; }
"$trident" data prepare --input "$source/data/excerpt/train.txt" --append-eod --separator-line '<|endoftext|>' \
  --tokenizer configs/tokenizers/bytes --output corpus/bytes >/dev/null
train() {  # FOLDER SETTING...
  local folder=$1
  shift
  ${instead_of_me:+exec} "$trident" train --config configs/learn_interleaved.json --set run.dir="$folder" \
    --set checkpoint.dir="$folder/ckpt" \
    --set model.num_hidden_layers=8 --set model.hidden_size=32 --set model.intermediate_size=64 --set batch.sequence=32 "$@"
}
train one --set run.steps=5 --set log.every=1 --set eval.every=2 >out.txt
[[ -s one/report.html ]] || fail "a run leaves no report"
grep -qF '(run.log, metrics.jsonl, report.html)' out.txt || fail "the last lines do not name the page"
grep -q '"exit_code": 0' one/run.json || fail "run.json has no end"
instead_of_me=1 train two --set run.steps=100000 --set log.every=1 --set optimizer.lr=1e-4 --set checkpoint.every=2 >out.txt 2>&1 &
run=$!
for ((i = 0; i < 600; ++i)); do
  [[ $(grep -c step two/metrics.jsonl 2>/dev/null) -lt 5 || ! -e two/last_step.json ]] || break
  sleep 0.1
done
"$trident" report two --output going.html >said.txt
grep -q 'going on: step' going.html || fail "a run that goes on is not said to"
"$trident" report two --watch --output watched.html >watched.txt &
watch=$!
for ((i = 0; i < 600; ++i)); do [[ ! -s watched.html ]] || break; sleep 0.1; done
grep -q 'http-equiv="refresh"' watched.html || fail "the page of a run that goes on does not load itself again"
kill -9 "$run"
wait "$run" 2>/dev/null || true
wait "$watch" || fail "--watch ends with $?"
if grep -q 'http-equiv="refresh"' watched.html; then fail "the page loads itself again after the run's end"; fi
"$trident" report one two --output both.html >said.txt
[[ $(tail -n1 said.txt) == 'both.html: open it in a browser' ]] && grep -q '^run .* best validation loss' said.txt ||
  fail "it says: $(<said.txt)"
for part in 'killed or cut off: step' 'over: step 5 of 5' 'optimizer.lr' 'Measured: step' 'two, training'; do
  grep -qF "$part" both.html || fail "the page lacks: $part"
done
"$trident" report one --csv >lines.csv
[[ $(head -n 1 lines.csv) == run,step,*,valid_loss,* && $(wc -l <lines.csv) -eq 7 ]] ||
  fail "not a line for each of 5 steps and the evaluation before them: $(<lines.csv)"
said=$(cd / && "$trident" generate --ckpt "$place/one" --prompt a --max-new-tokens 2 2>&1) || fail "from another folder: $said"
code=0
"$trident" report corpus >said.txt 2>&1 || code=$?
[[ $code -eq 65 ]] && grep -q "is no run's folder" said.txt || fail "another folder: $code, $(<said.txt)"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo "SKIPPED: the page in a browser: there is no chromium"
  exit 77
}
# A run of three starts, of which the last two have a dot, and no line between them; and a name that is longer than a line.
three=three-$(printf 'of-a-long-name-%.0s' {1..8})
mkdir "$three"
cp one/{config.resolved.json,metrics.jsonl,eval.jsonl,last_step.json} "$three"
echo '{"starts": [{"step": 0}, {"step": 1}, {"step": 4}]}' >"$three/run.json"
"$trident" report "$three" --output three.html >said.txt
"$trident" report one two "$three" --output both.html >said.txt
for page in both.html three.html; do echo "<script>$(<"$source/tests/scripts/report_probe.js")</script>" >>"$page"; done
for width in 400 1600; do
  for scheme in 1 0; do  # light, dark
    page=$([[ $width$scheme == 16000 ]] && echo three.html || echo both.html)
    timeout 100 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$place/browser" --enable-logging=stderr \
      --virtual-time-budget=3000 --window-size=$width,2000 --blink-settings=preferredColorScheme=$scheme --dump-dom \
      "file://$place/$page" >dom.txt 2>console.txt || fail "the browser failed: $(tail -3 console.txt)"
    if grep -m1 CONSOLE console.txt; then fail "the page speaks in the console"; fi
    grep -q 'data-probed' dom.txt || fail "the probe did not come to its end"
    pictures=$(grep -o '<canvas' dom.txt | wc -l)
    [[ $pictures -ge 6 ]] || fail "it draws $pictures pictures at $width pixels"
  done
done
