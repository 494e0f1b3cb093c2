#!/usr/bin/env bash
# demo.sh [--set path=value ...]: from a bare Debian 12 to a trained model: installs packages, builds the release preset (where
# there is no NVIDIA driver without CUDA, in build/cpu), prepares about 20 MB of English in corpus/, trains
# configs/demo_2dp_4pp_4tp.json (32 processes under mpirun), lets the model go on with a text and leaves it as a Hugging Face folder
# in the run's folder, RUN/hf.
#
# Settings are passed on to the trainer. Run again, it skips what is there but trains anew. Without network it trains on a small
# excerpt.
set -euo pipefail
header() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
run=runs/demo
for ((i = 1; i <= $#; ++i)); do
  case ${!i} in
    --help | -h) header; exit 0 ;;
    --set=?*=*) ;;
    --set) ((++i <= $#)) && [[ ${!i} == ?*=* ]] || { header >&2; exit 64; } ;;
    *) header >&2; exit 64 ;;
  esac
  setting=${!i#--set=}
  [[ $setting != run.dir=* ]] || run=${setting#run.dir=}
done
cd "$(dirname "$0")/.."
config=configs/demo_2dp_4pp_4tp.json
# Compiling the CUDA backend takes a third of the time, and without a driver nothing can use it.
preset=release
if [[ ! -x build/release/bin/trident ]] && ! PATH=$PATH:/sbin ldconfig -p | grep 'libcuda\.so\.1' >/dev/null; then
  preset=cpu
  echo "demo.sh: there is no NVIDIA driver: Trident is built without CUDA, in build/cpu (scripts/build.sh builds all of it)"
fi
trident=build/$preset/bin/trident
times='' begin=0
# took WHAT: notes what the time since the last call went to.
took() { times+=", $1 $((SECONDS - begin)) s"; begin=$SECONDS; }

scripts/install_packages.sh
took packages
scripts/build.sh "$preset" trident
took build

if ! grep -qs '^corpus: pd22' corpus/manifest.txt; then
  # The corpus comes as Debian packages, and container images come without package lists.
  $(command -v sudo || true) apt-get -q update >/dev/null || echo "demo.sh: package lists could not be refreshed" >&2
  scripts/prepare_corpus.sh corpus
fi
for name in train:text valid:valid; do
  "$trident" data prepare --input "corpus/${name%:*}.txt" --separator-line '<|endoftext|>' --append-eod --tokenizer gpt2 \
    --workers "$(nproc)" --output "corpus/${name#*:}" --overwrite
done
took data

# The same ranks as threads, with the same numbers: "$trident" train --config "$config"
echo "running: $(scripts/mpirun_local --print 32 "$trident" train --config "$config" "$@")"
scripts/mpirun_local 32 "$trident" train --config "$config" "$@"
took training

bytes=$(wc -c <corpus/valid.txt)
packed=$(zstd -19 -q -c corpus/valid.txt | wc -c)
awk -v bytes="$bytes" -v packed="$packed" 'BEGIN {
  printf "for scale: zstd -19 packs the validation text (%d bytes) into %.3f bits per byte\n", bytes, 8 * packed / bytes }'

echo "in its own words, at each evaluation: $run/samples.jsonl; now:"
prompt="Once upon a time"
text=$("$trident" generate --ckpt "$run/ckpt" --prompt "$prompt" --max-new-tokens 40 --temperature 0.8 --top-p 0.95 --seed 1)
echo "$prompt$text"
rm -rf "$run/hf"  # of an earlier demo
"$trident" convert --from ckpt "$run/ckpt" --to hf "$run/hf"
took "text and folder"
echo "demo: $((SECONDS / 60)) min $((SECONDS % 60)) s in all: ${times#, }"
