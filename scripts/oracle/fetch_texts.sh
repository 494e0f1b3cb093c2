#!/usr/bin/env bash
# fetch_texts.sh DIR: writes english.txt, chinese.txt and source.txt of at most 20,000,000 bytes into DIR, for real_tokenizers.py.
#
# English is what scripts/prepare_corpus.sh makes. Chinese is Debian's LibreOffice help, manual pages and reference, without tags
# and troff's marks. Source code is the headers of libstdc++, Python's library and Go's. Packages are downloaded and unpacked
# beside the texts; nothing is installed, no root is needed, and nothing of them is kept here.
set -euo pipefail
[ $# = 1 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 64; }
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1/debs" "$1/unpacked"
cd "$1"
export LC_ALL=C.UTF-8

chinese="libreoffice-help-zh-cn manpages-zh debian-reference-zh-cn libreoffice-help-zh-tw"
(cd debs && apt-get -q download $chinese libstdc++-12-dev libpython3.11-stdlib golang-1.19-src >/dev/null 2>&1)
for deb in debs/*.deb; do
  name=${deb#debs/} && name=unpacked/${name%%_*}
  [ -d "$name" ] || dpkg-deb -x "$deb" "$name"
done

# Whole characters of at most so many bytes; bytes that are no UTF-8 are left out.
first() { head -c "$1" | iconv -c -f utf-8 -t utf-8; }
files() { local dir=$1; shift; find "$dir" -type f "$@" -print0 | sort -z; }
untagged() {
  sed -e 's/<[^>]*>//g' -e 's/&nbsp;/ /g' -e 's/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&amp;/\&/g' | grep -v '^[[:space:]]*$'
}
unmarked() { sed -e '/^[.'\'']\\"/d' -e 's/^\.[A-Za-z]* *//' -e 's/\\f[A-Z]//g'; }

[ -e english.txt ] || { "$root/scripts/prepare_corpus.sh" corpus >/dev/null; first 20000000 <corpus/train.txt >english.txt; }
set +o pipefail  # head ends before those that feed it
for package in $chinese; do
  files "unpacked/$package" -name '*.html' | xargs -0 -r cat | untagged || true
  files "unpacked/$package" -path '*/man/zh_*' -name '*.gz' | xargs -0 -r zcat | unmarked
done 2>/dev/null | first 20000000 >chinese.txt
{
  files unpacked/libstdc++-12-dev -path '*/include/*' | xargs -0 cat | first 6666666
  files unpacked/libpython3.11-stdlib -name '*.py' | xargs -0 cat | first 6666666
  files unpacked/golang-1.19-src -name '*.go' | xargs -0 cat
} 2>/dev/null | first 20000000 >source.txt
wc -c english.txt chinese.txt source.txt
