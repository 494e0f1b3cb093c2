#!/bin/sh
# prepare_corpus.sh OUT_DIR: writes OUT_DIR/train.txt and OUT_DIR/valid.txt, about 22 MB of public-domain English, and OUT_DIR/manifest.txt.
#
# Source: three Debian packages with texts whose copyright has expired or was given up: Spurgeon's "Treasury of David" (Victorian prose),
# the World English Bible, the King James Bible. They are downloaded and unpacked into a scratch folder; nothing is installed and no
# root is needed, only apt's package lists. A document is a chapter or a psalm; a line "<|endoftext|>" stands between documents. Held
# out for validation are chapters 23, 73 and 123 of every book in all three texts, so no validation text is trained on in another
# translation. The same package versions give the same bytes; the manifest names versions and SHA-256.
#
# Without network the excerpt in data/excerpt is used instead, and the last line says so.
set -eu

header() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
case "$#:${1:-}" in
  *:--help | *:-h) header; exit 0 ;;
  1:-* | 1:) header >&2; exit 64 ;;
  1:*) ;;
  *) header >&2; exit 64 ;;
esac
mkdir -p "$1"
out=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
export LC_ALL=C

texts="sword-comm-tdavid sword-text-web bible-kjv-text"
tools="libsword-utils bible-kjv"

# Names of packages that apt would install for the tools: libraries that this machine lacks, whose names change from release to release.
# A simulation, for which anybody may ask.
needed() { apt-get -q -s --no-install-recommends install $tools | sed -n 's/^Inst \([^ ]*\) .*/\1/p'; }

# Unpacks the packages into $scratch/root and checks that their programs run.
unpack() {
  mkdir -p "$scratch/debs" "$scratch/root"
  chmod 755 "$scratch" "$scratch/debs"
  packages=$(needed 2>"$scratch/log") || return 1
  packages=$(printf '%s\n' $texts $tools $packages | sort -u)
  (cd "$scratch/debs" && apt-get download -q $packages) >"$scratch/log" 2>&1 || return 1
  for deb in "$scratch"/debs/*.deb; do dpkg-deb -x "$deb" "$scratch/root" || return 1; done
  # No empty element, which means the working directory.
  libraries=$(find "$scratch/root" -name '*.so*' -exec dirname {} + | sort -u | paste -s -d : -)
  [ "$(bible 'Gen1:1' | wc -l)" -ge 1 ] && [ "$(module TDavid | wc -l)" -ge 100 ]
}
bible() { yes '' 2>/dev/null | LD_LIBRARY_PATH="$libraries" "$scratch/root/usr/bin/bible" -p "$scratch/root/usr/lib" -f "$1" 2>>"$scratch/log"; }
module() { SWORD_PATH="$scratch/root/usr/share/sword" LD_LIBRARY_PATH="$libraries" "$scratch/root/usr/bin/mod2imp" "$1" 2>>"$scratch/log"; }

# Lines "Ge1:2 text" -> lines "KEY<tab>text", KEY = "KJV Ge 1".
kjv() { bible 'Gen1:1-Rev22:21' | sed -nE 's/^([0-9]?[A-Za-z]+)([0-9]+):[0-9]+ +/KJV \1 \2\t/p'; }

# A SWORD module's "$$$Book Chapter:Verse" entries in XML -> lines "KEY<tab>text": notes, headings of the file and tags dropped, a new line
# for each paragraph.
sword() {
  module "$2" | sed -E -e 's/<note[^>]*>([^<]|<[^\/]|<\/[^n]|<\/n[^o])*<\/note>/ /g' \
    -e 's/<(div|lg|l|title|lb)[^>]*>/\n/g' -e 's/<\/(title|l|lg)>/\n/g' -e 's/<[^>]*>//g' \
    -e 's/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&amp;/\&/g' |
  awk -v name="$1" '
    /^\$\$\$/ { key = ""; if (match($0, / [0-9]+:[0-9]+$/)) {
        split(substr($0, RSTART + 1), at, ":")
        if (at[1] > 0) key = name " " substr($0, 4, RSTART - 4) " " at[1] }
      next }
    { gsub(/[ \t]+/, " "); sub(/^ /, ""); sub(/ $/, ""); if (key != "" && $0 != "") print key "\t" $0 }'
}

# Lines "KEY<tab>text" -> documents; those whose chapter is 23, 73 or 123 go to the second file.
documents() {
  awk -F '\t' -v train="$1" -v valid="$2" '
    $1 != key { key = $1; n = split(key, part, " "); file = part[n] % 50 == 23 ? valid : train
                if (file in started) print "<|endoftext|>" > file
                started[file] = 1 }
    { print substr($0, length(key) + 2) > file }'
}

sums() { (cd "$out" && wc -c train.txt valid.txt | sed '$d' && sha256sum train.txt valid.txt); }

rm -f "$out/train.txt" "$out/valid.txt" "$out/manifest.txt"
if unpack; then
  { sword TDavid TDavid; sword WEB engWEB2015eb; kjv; } | documents "$scratch/train.txt" "$scratch/valid.txt"
  # Three texts or an error: a package of another content must not make a small corpus unnoticed.
  if [ "$(wc -c <"$scratch/train.txt")" -lt 18000000 ]; then
    echo "prepare_corpus.sh: the packages gave only $(wc -c <"$scratch/train.txt") bytes, expected about 20 MB; see scripts/prepare_corpus.sh" >&2
    exit 65
  fi
  mv "$scratch/train.txt" "$scratch/valid.txt" "$out/"
  {
    echo "corpus: pd22 (Treasury of David, World English Bible, King James Bible; public domain)"
    for deb in "$scratch"/debs/*.deb; do dpkg-deb -W "$deb"; done
    sums
  } >"$out/manifest.txt"
  echo "corpus: $(wc -c <"$out/train.txt") bytes to train on, $(wc -c <"$out/valid.txt") held out, in $out"
else
  sed -n '$p' "$scratch/log" >&2
  cp "$root/data/excerpt/train.txt" "$root/data/excerpt/valid.txt" "$out/"
  { echo "corpus: excerpt (King James Bible, Genesis and Exodus; public domain): packages could not be downloaded"; sums; } >"$out/manifest.txt"
  echo "corpus: packages could not be downloaded; used the small excerpt of $root/data/excerpt instead: $(wc -c <"$out/train.txt") bytes in $out"
fi
