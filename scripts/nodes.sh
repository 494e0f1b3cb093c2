#!/usr/bin/env bash
# nodes.sh [--slots S] [--bytes FILE] [--slurm] [--ipv6] N COMMAND...: runs COMMAND on this machine as if it were a cluster of N nodes.
#
#   scripts/nodes.sh --slots 4 2 mpirun trident train --config configs/one_node_8.json
#   scripts/nodes.sh --slots 4 --slurm 2 srun --mpi=pmix -N 2 --ntasks-per-node=4 trident train --config configs/one_node_8.json
#
# The nodes n1 ... nN have a network interface on one bridge (10.77.0.x), a host name and a /dev/shm of their own. Other files are shared,
# processes too. With --ipv6 they have addresses fd77::x instead, and none of IPv4 but 127.0.0.1. COMMAND runs beside them, as on a login
# node, and finds:
#   NODES       their names
#   ON_NODE     "$ON_NODE" n2 COMMAND... runs COMMAND on n2
#   LINK        "$LINK" n2 down|up takes the link of n2 away, and gives it back
#   KILL        "$KILL" n2 kills every process of n2, as a power cut does; its link stays up
#   for mpirun  the nodes with S slots each (default: as many as there are cores), how to reach them, ranks that yield and are not pinned:
#               every node believes that it owns all cores
#   for srun    with --slurm, a running Slurm cluster of these nodes with S cores each
#
# --bytes FILE: writes the bytes that each node's interface sent and received while COMMAND ran, one line "n1 SENT RECEIVED" per node.
#
# Everything lives in namespaces of this call, which the kernel ends with it, whatever ends it: calls do not see each other, and leave
# nothing. Needs iproute2, and root or unprivileged user namespaces.
# Exit status: COMMAND's; 64 for wrong usage; 77 where such nodes cannot be made, with the reason.
set -euo pipefail

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 64; }
cannot() { echo "nodes.sh: no nodes can be made here: $1" >&2; exit 77; }

slots=$(nproc) bytes='' slurm=no ipv6=no inside=no
while (($#)); do
  case $1 in
    --slots) slots=${2-}; shift 2 || usage ;;
    --bytes) bytes=${2-}; shift 2 || usage ;;
    --slurm) slurm=yes; shift ;;
    --ipv6) ipv6=yes; shift ;;
    --inside) inside=yes; shift ;;  # this script calls itself so
    *) break ;;
  esac
done
[[ ${1-} =~ ^[1-9][0-9]?$ && $slots =~ ^[1-9][0-9]*$ ]] && (($# > 1)) || usage
nodes=$1
shift

if [[ $inside == no ]]; then
  for tool in ip unshare nsenter setpriv; do command -v "$tool" >/dev/null || cannot "$tool is not installed"; done
  if [[ $slurm == yes ]]; then
    for tool in munged slurmctld slurmd srun; do command -v "$tool" >/dev/null || cannot "$tool is not installed"; done
    ((EUID == 0)) || cannot "the daemons of Slurm need root"
  fi
  as_root=()
  ((EUID == 0)) || as_root=(--user --map-root-user)
  unshare=(unshare "${as_root[@]}" --net --uts --ipc --mount --pid --fork --mount-proc)
  probe='mount -t tmpfs tmpfs /dev/shm && ip link add bridge type bridge && ip link add n1 type veth peer name eth0'
  refusal=$("${unshare[@]}" sh -c "$probe" 2>&1) || cannot "${refusal:-namespaces are refused}"
  # When this script dies, unshare is killed, then the first process of its process namespace, and with that one all others.
  setpriv --pdeathsig KILL "${unshare[@]}" --kill-child "$0" --inside --slots "$slots" --bytes "$bytes" \
    $([[ $slurm == no ]] || echo --slurm) $([[ $ipv6 == no ]] || echo --ipv6) "$nodes" "$@" <&0 &
  trap 'kill -KILL $!; exit 143' TERM
  trap 'kill -KILL $!; exit 130' INT
  status=0
  wait $! || status=$?
  exit $status
fi

# start_slurm: munged and slurmd on every node, munged and slurmctld on the login node; returns when all nodes are idle.
start_slurm() {
  local name munged='munged --key-file=/dev/shm/nodes/key --socket=/dev/shm/nodes/munge --pid-file=/dev/shm/nodes/munged.pid
    --log-file=/dev/shm/nodes/munged.log --seed-file=/dev/shm/nodes/seed'
  head -c 128 /dev/urandom >$place/key
  chmod 600 $place/key
  # TmpFS, the spool folder and the socket are the node's own, though their names are not: /dev/shm is.
  cat >$place/slurm.conf <<CONF
ClusterName=nodes
SlurmctldHost=login($(address 254))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=/dev/shm/nodes/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation=/dev/shm/nodes/state
SlurmdSpoolDir=/dev/shm/nodes/spool
SlurmctldPidFile=/dev/shm/nodes/slurmctld.pid
SlurmdPidFile=/dev/shm/nodes/slurmd.pid
SlurmctldLogFile=/dev/shm/nodes/slurmctld.log
SlurmdLogFile=/dev/shm/nodes/slurmd.log
TmpFS=/dev/shm/tmp
NodeName=n[1-$nodes] CPUs=$slots
PartitionName=main Nodes=n[1-$nodes] Default=YES State=UP
CONF
  export SLURM_CONF=$place/slurm.conf
  mkdir $place/state
  $munged
  slurmctld
  for name in "${names[@]}"; do
    cp $place/key $place/slurm.conf $place/$name/shm/nodes
    mkdir $place/$name/shm/nodes/spool
    $place/on_node $name "$(echo $munged)" '&& slurmd'
  done
  for ((i = 0; i < 100; i++)); do
    [[ $(sinfo -h -o '%T %D' 2>/dev/null) != "idle $nodes" ]] || return 0
    sleep 0.1
  done
  echo "nodes.sh: the nodes of the Slurm cluster are not ready after 10 s" >&2
  sinfo >&2 || true
  tail -n 5 $place/*.log $place/n*/shm/nodes/*.log >&2
  exit 70
}

# Number of a node (254: the login node) -> its address, that of its interface. They are told to everybody, below.
address() { if [[ $ipv6 == yes ]]; then echo "fd77::$1"; else echo "10.77.0.$1"; fi; }
mac() { printf '02:00:4d:00:00:%02x' "$1"; }
if [[ $ipv6 == yes ]]; then bits='64 nodad'; else bits=24; fi

# From here on inside the namespaces of this call, which are the login node's.
hostname login
ip link set lo up
ip link add bridge address "$(mac 254)" type bridge
ip link set bridge addrgenmode none up
ip address add $(address 254)/$bits dev bridge
mount -t tmpfs tmpfs /dev/shm
place=/dev/shm/nodes  # of the login node only
mkdir $place
names=()
for ((i = 1; i <= nodes; i++)); do names+=("n$i"); done
{
  echo "127.0.0.1 localhost"
  echo "$(address 254) login"
  for ((i = 1; i <= nodes; i++)); do echo "$(address $i) n$i"; done
} >$place/hosts
# neighbours DEVICE: commands of ip that tell a node the others' interfaces. Asking would fill the kernel's table of what it has learnt,
# which all namespaces share, from about 32 nodes on; what is permanent does not count.
neighbours() { for i in 254 $(seq "$nodes"); do echo "neighbour replace $(address $i) lladdr $(mac $i) nud permanent dev $1"; done; }
neighbours bridge | ip -batch -
neighbours eth0 >$place/neighbours
[[ ! -e /etc/hosts ]] || mount --bind $place/hosts /etc/hosts

# Called as ssh is: the host, then words that a shell there reads. Open MPI's daemons want to see it too, though only the login node uses it.
cat >$place/on_node <<'AGENT'
#!/bin/sh
node=/dev/shm/nodes/$1
shift
export TMPDIR=/dev/shm/tmp
exec nsenter --net=$node/net --uts=$node/uts unshare --mount sh -c "mount --bind $node/shm /dev/shm; $*"
AGENT
chmod +x $place/on_node

for ((i = 1; i <= nodes; i++)); do
  node=$place/n$i
  mkdir $node $node/shm
  mount -t tmpfs tmpfs $node/shm
  mkdir $node/shm/tmp $node/shm/nodes
  cp $place/on_node $node/shm/nodes
  : >$node/net >$node/uts
  unshare --net=$node/net --uts=$node/uts hostname n$i
  ip link add n$i type veth peer name eth0 address "$(mac $i)" netns $node/net
  ip link set n$i master bridge addrgenmode none up
  nsenter --net=$node/net sh -c "ip link set lo up && ip link set eth0 addrgenmode none up && ip address add $(address $i)/$bits dev eth0 &&
    ip -batch $place/neighbours"
done

cat >$place/link <<'LINK'
#!/bin/sh
exec ip link set "$1" "$2"
LINK
cat >$place/kill <<'KILL'
#!/bin/sh
node=$(stat -Lc %i "/dev/shm/nodes/$1/uts") || exit
for process in /proc/[0-9]*; do
  [ "$(stat -Lc %i "$process/ns/uts" 2>/dev/null)" != "$node" ] || kill -KILL "${process#/proc/}"
done
KILL
chmod +x $place/link $place/kill
mkdir /dev/shm/tmp
export NODES="${names[*]}" ON_NODE=$place/on_node LINK=$place/link KILL=$place/kill TMPDIR=/dev/shm/tmp
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Open MPI 4 reads OMPI_MCA_*; 5 starts processes with PRRTE and reads its own (PRTE_MCA_*) beside OMPI_MCA_*.
export OMPI_MCA_plm_rsh_agent=$place/on_node PRTE_MCA_plm_ssh_agent=$place/on_node
export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
# Open MPI 4 takes no networks of IPv6 here, where there are no others anyway.
if [[ $ipv6 == no ]]; then
  export OMPI_MCA_oob_tcp_if_include=10.77.0.0/24 PRTE_MCA_prte_if_include=10.77.0.0/24 OMPI_MCA_btl_tcp_if_include=10.77.0.0/24
fi

if [[ $slurm == yes ]]; then
  start_slurm
else
  printf '%s\n' "${names[@]/%/ slots=$slots}" >$place/hostfile
  export OMPI_MCA_orte_default_hostfile=$place/hostfile PRTE_MCA_prte_default_hostfile=$place/hostfile
fi

# counters: "n1 SENT RECEIVED" per node, as the far ends of the links counted.
counters() { awk -F '[: ]+' '/^ *n[0-9]+:/ { sub(/^ +/, ""); print $1, $2, $10 }' /proc/net/dev; }

before=$(counters)
status=0
"$@" <&0 || status=$?
if [[ -n $bytes ]]; then
  join <(echo "$before" | sort) <(counters | sort) | awk '{ print $1, $4 - $2, $5 - $3 }' | sort -V >"$bytes"
fi
exit $status
