#!/usr/bin/env bash
# bench_tokenizers.sh PYTHON FILE...: how fast GPT-2's tokenizer encodes each file, beside other programs' tokenizers, as a Markdown
# table.
#
# PYTHON is an interpreter with any of `pip install tokenizers tiktoken gigatoken`; which of them it has is compared. The file is
# cut into documents of 4 KB in memory. Each run is a process of its own with one thread, which loads the tokenizer, encodes one
# document and then all of them; numbers are MB per second of that CPU time, medians of five runs in turn (RUNS=5). All must give
# the same ids. The last column is two threads of Trident by one, of wall time.
# Build before: scripts/build.sh release tokenizer_speed
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C TOKENIZERS_PARALLELISM=false RAYON_NUM_THREADS=1

header() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
case ${1:-} in
  --help | -h) header; exit 0 ;;
esac
(($# >= 2)) || { header >&2; exit 64; }
python=$1 runs=${RUNS:-5} speed=build/release/tests/data/tokenizer_speed
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cat >"$scratch/peer.py" <<'PYTHON'
import array, json, sys, time, zlib
name, folder, path = sys.argv[1:]
text, documents, at = open(path, "rb").read(), [], 0
while at < len(text):
    end = min(at + 4096, len(text))
    while end < len(text) and text[end] & 0xC0 == 0x80:
        end -= 1
    documents.append(text[at:end])
    at = end
if name == "gigatoken":
    import gigatoken
    made = gigatoken.Tokenizer(sys.argv[2])
    encode = lambda: made.encode_batch(documents, parallel=False)
else:
    documents = [document.decode() for document in documents]
if name == "tokenizers":
    import tokenizers
    made = tokenizers.Tokenizer.from_file(folder)
    encode = lambda: made.encode_batch_fast(documents)
if name == "tiktoken":
    import tiktoken
    spelled = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in spelled]
    byte = {chr(b): b for b in spelled} | {chr(256 + i): b for i, b in enumerate(others)}
    vocab = json.load(open("data/gpt2/vocab.json"))
    ranks = {bytes(byte[c] for c in token): id for token, id in vocab.items() if token != "<|endoftext|>"}
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    made = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    encode = lambda: made.encode_ordinary_batch(documents, num_threads=1)
everything, documents = documents, documents[:1]
encode()
documents = everything
begin = time.process_time()
result = encode()
seconds = time.process_time() - begin
ids = [getattr(one, "ids", one) for one in result]
total = 1
for one in ids:
    total = zlib.adler32(array.array("i", list(one)).tobytes(), total)
print(f"{len(text) / 1e6 / seconds:.2f} 0 {total:08x}")
PYTHON
cat >"$scratch/make.py" <<'PYTHON'
import sys, tokenizers
from tokenizers import models, pre_tokenizers
made = tokenizers.Tokenizer(models.BPE.from_file("data/gpt2/vocab.json", "data/gpt2/merges.txt"))
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
made.save(sys.argv[1])
PYTHON

peers=(trident)
for peer in gigatoken tiktoken tokenizers; do
  if "$python" -c "import $peer" 2>/dev/null; then peers+=("$peer"); else echo "SKIPPED: $peer is not installed" >&2; fi
done
# gigatoken reads the file that tokenizers writes.
"$python" "$scratch/make.py" "$scratch/tokenizer.json" 2>/dev/null || peers=("${peers[@]/gigatoken/}")

run() {  # PEER FILE [THREADS]
  if [[ $1 == trident ]]; then "$speed" gpt2 "$2" "${3:-1}"
  else "$python" "$scratch/peer.py" "$1" "$scratch/tokenizer.json" "$2"; fi
}
median() { sort -n | awk '{ a[NR] = $1 } END { printf "%.1f", NR % 2 ? a[(NR + 1) / 2] : (a[NR / 2] + a[NR / 2 + 1]) / 2 }'; }

echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(date +%F), MB per CPU second"
echo
echo "| text | MB | ${peers[*]/%/ |} two threads by one |" | tr -s ' '
printf '|---|--:|'; printf -- '--:|%.0s' "${peers[@]}" x; echo
for file in "$@"; do
  for ((i = 0; i < runs; ++i)); do
    for peer in "${peers[@]}"; do [[ -z $peer ]] || run "$peer" "$file" >>"$scratch/$peer"; done
    for threads in 1 2; do run trident "$file" "$threads" | cut -d ' ' -f 2 >>"$scratch/threads$threads"; done
  done
  if (($(cut -d ' ' -f 3 "${peers[@]/#/$scratch/}" | sort -u | wc -l) != 1)); then
    echo "$file: ids differ:" >&2
    for peer in "${peers[@]}"; do echo "$peer $(cut -d ' ' -f 3 "$scratch/$peer" | sort -u | paste -s)" >&2; done
    exit 1
  fi
  ours=$(cut -d ' ' -f 1 "$scratch/trident" | median)
  printf '| %s | %.1f |' "$(basename "$file")" "$(awk "BEGIN { print $(stat -c %s "$file") / 1e6 }")"
  for peer in "${peers[@]}"; do
    theirs=$(cut -d ' ' -f 1 "$scratch/$peer" | median)
    ratio=$(awk "BEGIN { printf \"%.2f\", $ours / $theirs }")
    [[ $peer == trident ]] && printf ' %s |' "$ours" || printf ' %s (%s x) |' "$theirs" "$ratio"
  done
  one=$(median <"$scratch/threads1") two=$(median <"$scratch/threads2")
  printf ' %s |\n' "$(awk "BEGIN { printf \"%.2f\", $two / $one }")"
  rm -f "${peers[@]/#/$scratch/}" "$scratch"/threads*
done
