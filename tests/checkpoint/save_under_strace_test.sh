#!/usr/bin/env bash
# save_under_strace_test.sh SAVE_ONCE: the kernel's side of a save. strace kills save_once at its k-th call of each kind that changes the
# file system, for every k there is, and lets that call fail with ENOSPC, EIO and EROFS. Beside the old checkpoint is then the new one, whole,
# or none of its name; a save that said it was done is there. Exit status 77: strace is not there, or may not trace.
#
# tests/checkpoint/save_faults_test.cpp does the same at the seam of the program; here nothing of the program is replaced.
set -euo pipefail

save_once=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
strace -f -o /dev/null true 2>/dev/null || { echo "SKIPPED: no strace, or it may not trace"; exit 77; }

"$save_once" save "$folder/old" 10 && "$save_once" check "$folder/old" 10
calls='mkdir openat write pwrite64 fallocate ftruncate fsync rename close'
kills=0 failures=0 done_without=0 done_with=0

# attempt WHAT CALL K [PATH]: one save under an injected fault, at the k-th such call (on this file). Returns 1 when there is none any more.
attempt() {
  local what=$1 call=$2 k=$3 status=0 log=$folder/log
  rm -rf "$folder/new" && cp -r "$folder/old" "$folder/new"
  # strace ends as its command does; of a kill the shell would tell.
  { strace -f -qq -o "$log" ${4:+-P "$4"} -e trace="$call" -e inject="$call:$what:when=$k" "$save_once" save "$folder/new" 20; } 2>"$folder/said" || status=$?
  grep -q 'INJECTED\|killed by SIGKILL' "$log" || {
    ((status == 0)) && "$save_once" check "$folder/new" 10 20 && return 1
    echo "$call: without a fault the save ended with $status: $(cat "$folder/said")"
    exit 1
  }
  case $what:$status in
    signal=KILL:137) kills=$((kills + 1)) ;;
    error=*:74 | error=*:0) failures=$((failures + (status != 0))) ;;
    error=*:127) ;;  # the program's libraries were not loaded
    *) echo "$call $k, $what: ended with $status: $(cat "$folder/said")"; exit 1 ;;
  esac
  if ((status != 0)) && "$save_once" check "$folder/new" 10 2>/dev/null; then
    done_without=$((done_without + 1))
  elif "$save_once" check "$folder/new" 10 20; then
    done_with=$((done_with + 1))
  else
    echo "$call $k, $what: ended with $status and left:"
    find "$folder/new" -type f
    exit 1
  fi
}

# strace counts the calls of each thread by itself, and the first rank's thread reaches every k before the second's: its files by name.
new=$folder/new/step-00000020.tmp-token
for path in "" "$new/weights/w-00001-0.safetensors" "$new/optim/o-00001-0.safetensors"; do
  for call in $calls; do
    for what in signal=KILL error=ENOSPC error=EIO error=EROFS; do
      for ((k = 1; k < 1000; k++)); do attempt "$what" "$call" "$k" "$path" || break; done
    done
  done
done
echo "$kills kills and $failures refused saves: $done_without times the old checkpoint alone, $done_with times both, never half of one"
# Less would mean that nothing was injected.
((kills >= 45 && failures >= 100 && done_with >= 2))
