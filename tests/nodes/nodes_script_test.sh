#!/usr/bin/env bash
# nodes_script_test.sh NODES: what scripts/nodes.sh promises, with shell commands only. 77: nodes cannot be made here.
set -euo pipefail
nodes=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

fail() { echo "$1"; cat "$place"/log* 2>/dev/null || true; exit 1; }
# status EXPECTED COMMAND...
status() {
  local got=0
  "${@:2}" >"$place/log" 2>&1 || got=$?
  ((got == $1)) || fail "exit status $got, expected $1: ${*:2}"
}
# What calls must not leave behind: interfaces and mounts.
state() { ip -o link | cut -d' ' -f2; cat /proc/self/mountinfo; }

"$nodes" 1 true || { (($? != 77)) || exit 77; fail "no node could be made"; }
state >"$place/before"

status 64 "$nodes" 2
status 64 "$nodes" none true
status 64 "$nodes" --slots 0 2 true
status 5 "$nodes" 2 sh -c 'exit 5'
status 137 "$nodes" 2 sh -c 'kill -KILL $$'
[[ $(echo word | "$nodes" 1 cat) == word ]] || fail "standard input does not reach the command"

# Names, /dev/shm and interfaces are the nodes' own; what one sends to another is counted on both.
"$nodes" --bytes "$place/bytes" 3 bash -c '
  set -e
  [[ $NODES == "n1 n2 n3" && $(hostname) == login ]]
  for node in $NODES; do "$ON_NODE" $node "echo \$(hostname) >/dev/shm/mine"; done
  for node in $NODES; do [[ $("$ON_NODE" $node cat /dev/shm/mine) == $node && $("$ON_NODE" $node hostname) == $node ]]; done
  [[ ! -e /dev/shm/mine ]]
  for ((i = 0; i < 100; i++)); do echo "head -c 1400 /dev/zero >/dev/udp/10.77.0.3/9"; done | "$ON_NODE" n2 bash
  "$LINK" n1 down
  ! "$ON_NODE" n1 "timeout 1 bash -c \"echo >/dev/tcp/10.77.0.2/9\"" 2>/dev/null || exit 1
  "$LINK" n1 up' >"$place/log" 2>&1 || fail "the nodes are not as promised"
read -r _ sent received < <(grep '^n2 ' "$place/bytes")
((sent >= 140000 && sent < 160000 && received < 20000)) || fail "n2 sent 140000 bytes and more, counted: $sent, received: $received"
read -r _ sent received < <(grep '^n3 ' "$place/bytes")
((received >= 140000 && received < 160000 && sent < 20000)) || fail "n3 received 140000 bytes and more, counted: $received, sent: $sent"
[[ $(wc -l <"$place/bytes") == 3 ]] || fail "bytes of $(cat "$place/bytes")"

# A node that is killed loses all its processes, and no other node any.
"$nodes" 2 bash -c '
  for node in $NODES; do "$ON_NODE" $node "exec sleep 77" & pids+=($!); done
  until [[ $(readlink /proc/${pids[1]}/ns/uts) != $(readlink /proc/$$/ns/uts) ]]; do sleep 0.1; done
  "$KILL" n2
  wait ${pids[1]}
  (($? == 137)) && kill -0 ${pids[0]} && kill ${pids[0]}' >"$place/log" 2>&1 || fail "a node is not killed as promised"

# Every node knows the others' interfaces from the start: what many nodes learn by asking overflows the kernel's table of neighbours.
# shellcheck disable=SC2016  # the node's shell's
known='for n in 10.77.0.1 10.77.0.3 10.77.0.254; do ip neighbour show nud permanent dev eth0 | grep "^$n lladdr" || exit 1; done'
"$nodes" 3 bash -c '"$ON_NODE" n2 "$0" && ip neighbour show nud permanent dev bridge | grep -c lladdr' "$known" >"$place/log" 2>&1 ||
  fail "the nodes do not know their neighbours"
[[ $(tail -n 1 "$place/log") -ge 3 ]] || fail "the login node does not know its neighbours"

# Nodes of IPv6 only reach each other, by name too, and have no address of IPv4 but the loopback's.
"$nodes" --ipv6 2 bash -c '
  "$ON_NODE" n2 "[ \$(ip -4 -o address | wc -l) = 1 ] && exec timeout 5 bash -c \"exec 3<>/dev/tcp/fd77::1/9\"" 2>&1 | grep refused &&
    getent hosts n1 | grep fd77::1 && ip neighbour | grep "^fd77::2 dev bridge"' >"$place/log" 2>&1 ||
  fail "the nodes with --ipv6 are not as promised"

# Two calls at once do not see each other; a call that is ended or killed takes everything with it.
for name in one two; do
  setsid "$nodes" 2 sh -c "\"\$ON_NODE\" n2 'echo $name >/dev/shm/name; sleep 1; cat /dev/shm/name; exec sleep 77.$$'" >"$place/log.$name" 2>&1 &
  pids+=($!)
done
for ((i = 0; i < 600; i++)); do
  [[ -s $place/log.one && -s $place/log.two ]] && break
  sleep 0.1
done
[[ $(cat "$place/log.one" "$place/log.two") == $'one\ntwo' ]] || fail "two calls at once"
kill -TERM "${pids[0]}"
kill -KILL "${pids[1]}"
got=0
wait "${pids[0]}" || got=$?
((got == 143)) || fail "exit status $got after SIGTERM"
sleeping() { grep -sqz "77[.]$$" /proc/[0-9]*/cmdline; }  # not itself; pgrep is not on every machine, and "! pgrep" would pass there
for ((i = 0; i < 600; i++)); do
  sleeping || break
  sleep 0.1
done
! sleeping || fail "processes outlived their nodes"

# What is there now and was not: others of this machine may end and take theirs away meanwhile.
left() { state | sort | comm -13 <(sort "$place/before") -; }
for ((i = 0; i < 600; i++)); do  # the kernel takes namespaces down in its own time
  [[ -n $(left) ]] || break
  sleep 0.1
done
[[ -z $(left) ]] || { left; fail "something was left behind"; }
echo "nodes.sh keeps its promises"
