# Sourced by tests of checks: a small tree, of which the check must name what is planted in it.
check=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# write FILE LINE...
write() { mkdir -p "$tree/$(dirname "$1")"; printf '%s\n' "${@:2}" >"$tree/$1"; }
# accepted COMPLAINT
accepted() { "$check" "$tree" >"$tree/log" || { cat "$tree/log"; echo "$1"; exit 1; }; }
# named WHAT GREP_ARGUMENT...: the check refuses the tree and says what grep looks for.
named() {
  local status=0
  "$check" "$tree" >"$tree/log" || status=$?
  if ((status != 1)) || ! grep -q "${@:2}" "$tree/log"; then
    echo "$1: status $status, expected 1 and \"${*:2}\", said:"
    cat "$tree/log"
    exit 1
  fi
}
# planted FILE LINE GREP_ARGUMENT...: with this line in addition.
planted() {
  local file=$tree/$1
  [[ ! -e $file ]] || cp "$file" "$tree/kept"
  mkdir -p "$(dirname "$file")"
  printf '%s\n' "$2" >>"$file"
  named "$1 with $2" "${@:3}"
  if [[ -e $tree/kept ]]; then mv "$tree/kept" "$file"; else rm "$file"; fi
}
