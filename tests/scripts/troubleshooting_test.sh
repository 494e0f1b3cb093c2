#!/usr/bin/env bash
# troubleshooting_test.sh TROUBLESHOOTING: what the page says of messages planted in a small tree, and that gaps in it are named.
set -euo pipefail
program=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{core,train,data,model,docs}

printf '%s\n' 'enum class ExitCode {' '  kConfig = 64,         // the configuration' '  kNoProgress = 93,' '};' >"$tree/core/check.h"
cat >"$tree/train/plain.cpp" <<'CPP'
constexpr std::string_view kAdvice = "use another";
void check(const Plan& plan, const std::string& key) {
  // throw ConfigError("in a comment; not on the page");
  if (a) throw ConfigError(fmt::format("batch.micro = {}: more than {:.1f} MB of "
                                       "\"quoted\" {{text}}; use {}{}", plan.config.micro_batch, 1e-6 * bytes_, low > 0 ? fmt::format("{} or ", low) : "", high));
  if (b) throw StorageError(fmt::format("{}: {}; check the disk", path, std::strerror(errno)));
  if (c) throw DataError("data is odd, " + in_quotes(key) + "; " + kAdvice);
  if (d) throw Error(ExitCode::kNoProgress, fmt::format("{} batches were lost; lower the rate", kMaxLost));
  if (f) throw ConfigError(fmt::format("{} of {}; use more", counted(plan.lost, "batch", "batches"), counted(ranks_, "rank")));
  if (e) throw InternalError("an impossible state");
  throw ConfigError(fmt::format("{}: {}; do better", wide ? "too wide" : "too narrow", legal_degrees(plan)));
}
CPP
cat >"$tree/model/reader.h" <<'CPP'
struct Reader { void refuse(std::string_view key, const std::string& why) const; };
CPP
cat >"$tree/model/reader.cpp" <<'CPP'
#include "model/reader.h"
void Reader::refuse(std::string_view key, const std::string& why) const { throw ConfigError(fmt::format("{} = {}: {}", key, value_, why)); }
void Reader::refuse_kind(std::string_view key, std::string_view wanted) const { refuse(key, fmt::format("must be {}; correct it", wanted)); }
void Reader::number() { refuse_kind("x", "a number"); }
CPP
printf '%s\n' '#include "model/reader.h"' 'void f(Reader& reader) { reader.refuse("y", "is odd; make it even"); }' >"$tree/model/user.cpp"
printf '%s\n' 'void g(Other& other) { other.refuse("z", "belongs to nobody; at all"); }' >"$tree/model/stranger.cpp"
printf '%s\n' 'void h() { const auto fail = [&](const char* what) { throw DataError(fmt::format("{}: {}; copy it again", file, what)); };' \
  '  fail("cut short"); }' >"$tree/data/lambda.cpp"
cat >"$tree/train/later.cpp" <<'CPP'
std::vector<std::string> start_conflicts(const Facts& facts) { lines.push_back(fmt::format("hosts differ: {}; copy it", facts.host)); }
void warn() { logger_.warning("{} is slow; wait", node); logger_.warning("{}", line); }
CPP
printf '%s\n' '# Title' '' 'Opening.' '----' 'message: data is odd' 'cause: Because of <key>.' >"$tree/docs/troubleshooting.in"
page=$tree/docs/troubleshooting.md

fail() { echo "$1; the page:"; cat "$page"; exit 1; }
on_page() { grep -qxF -- "$1" "$page" || fail "no line: $1"; }
"$program" "$tree" >"$page" || fail "a tree in order is refused"
on_page 'Opening.'
on_page '## Exit code 64: the configuration'
on_page '- `batch.micro = <micro batch>: more than <bytes> MB of "quoted" {text}`'
on_page '  <br>→ use [`<low>` or ]`<high>`'
on_page '- `<path>: <reason of the system>`'
on_page '- `data is odd, "<key>"`'
on_page '  <br>Because of `<key>`.'
on_page '  <br>→ use another'
on_page '- `<max lost> batches were lost`'
on_page '- `<lost> batches of <ranks> ranks`'
on_page '- `an impossible state`'
on_page '- `(too wide or too narrow): <legal degrees>`'
on_page '- `<key> = <value>: must be a number`'
on_page '- `<key> = <value>: is odd`'
on_page '- `<file>: cut short`'
on_page '- `hosts differ: <host>`'
on_page '## Warnings: the run goes on'
on_page '- `<node> is slow`'
for absent in comment nobody '<why>' '<what>' '<wanted>'; do ! grep -qF -- "$absent" "$page" || fail "should not be there: $absent"; done
"$program" --check "$tree" >"$tree/log" || fail "--check refuses what it wrote: $(cat "$tree/log")"

# refused EXPECTED: --check fails and says so.
refused() {
  local status=0
  "$program" --check "$tree" >"$tree/log" 2>&1 || status=$?
  if ((status != 1)) || ! grep -qF -- "$1" "$tree/log"; then
    echo "status $status, expected 1 and \"$1\", said:"
    cat "$tree/log"
    exit 1
  fi
}
echo 'void n() { throw ConfigError("nothing to be done"); }' >"$tree/train/new.cpp"
refused 'train/new.cpp: "nothing to be done" says no remedy'
printf '%s\n' '' 'message: nothing to be' 'remedy: wait' >>"$tree/docs/troubleshooting.in"
refused 'troubleshooting.md is not what the sources say'
"$program" "$tree" >"$page"
on_page '  <br>→ wait'
"$program" --check "$tree" >"$tree/log" || fail "$(cat "$tree/log")"
rm "$tree/train/new.cpp"
"$program" "$tree" >"$page" 2>"$tree/log" && fail "a stale entry is accepted"
refused 'no message contains "nothing to be"'
echo 'void n() { throw NovelError("x; y"); }' >"$tree/train/new.cpp"
refused 'throws NovelError, which'
rm "$tree/train/new.cpp"
echo 'nonsense' >>"$tree/docs/troubleshooting.in"
refused 'expected message:, cause: or remedy:'

empty=$(mktemp -d)
status=0
"$program" --check "$empty" 2>/dev/null || status=$?
rmdir "$empty"
((status == 2)) || { echo "an empty tree: status $status, expected 2"; exit 1; }
echo "messages, helpers, remedies and gaps are found"
