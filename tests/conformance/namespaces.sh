# shellcheck shell=bash
# Sourced by scripts that run ranks on several "machines" of this one: network namespaces, each joined to a switch by a veth
# pair. Functions that cannot do their part exit with status 77 and the reason.
#
#   make_machines COUNT PREFIX      PREFIX.1 .. PREFIX.COUNT, e.g. of 10.98.0; removed when the script exits
#   shape_links MBIT                limits what enters and what leaves each machine, a whole number
#   launch_on RANKS COMMAND...      `$heddle launch` of RANKS ranks on each machine, from the first
# Sets $folder, a temporary one.

skip() {
  echo "$(basename "$0" .sh): skipped: $*"
  exit 77
}

namespaces=()
folder=$(mktemp -d)
remove_machines() {
  local each
  # Also what a launcher could not end there, because a link is down.
  for each in "${namespaces[@]}"; do ip netns pids "$each" 2>/dev/null | xargs -r kill 2>/dev/null || true; done
  for each in "${namespaces[@]}"; do ip netns del "$each" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap remove_machines EXIT

make_machines() {
  local i machine link
  switch=heddle-switch-$$ prefix=$2 machines=$1
  command -v ip >/dev/null || skip "there is no ip (package iproute2)"
  [ "$(id -u)" = 0 ] || skip "namespaces need root"
  namespaces=("$switch")
  { ip netns add "$switch" && ip -n "$switch" link add bridge0 type bridge; } 2>"$folder/why" || skip "$(tail -n 1 "$folder/why")"
  ip -n "$switch" link set bridge0 up
  for ((i = 1; i <= machines; ++i)); do
    machine=heddle-$$-$i link=h$$-$i
    namespaces+=("$machine")
    { ip netns add "$machine" &&
      ip link add "$link" netns "$machine" type veth peer name "$link" netns "$switch"; } 2>"$folder/why" || skip "$(tail -n 1 "$folder/why")"
    ip -n "$switch" link set "$link" master bridge0
    ip -n "$switch" link set "$link" up
    ip -n "$machine" address add "$prefix.$i/24" dev "$link"
    ip -n "$machine" link set lo up
    ip -n "$machine" link set "$link" up
  done
  # What mpirun takes for ssh: `agent HOST COMMAND`, the host being an address.
  cat >"$folder/agent" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
n=heddle-$$-\${1##*.}
shift
mkdir -p $folder/\$n
export TMPDIR=$folder/\$n
exec ip netns exec "\$n" sh -c "\$*"
END
  chmod +x "$folder/agent"
  # mpirun gives each machine a folder by its name, and these share one name: so each has a TMPDIR of its own. Daemons that make
  # one folder at once fail at a high load. They also overwrite each other's topology in shared memory while it is read, which
  # the component hwloc puts there (a daemon in ten ended in a segmentation fault). What daemons and ranks tell each other
  # through files goes over sockets instead.
  export OMPI_MCA_rtc=^hwloc PMIX_MCA_gds=hash
  export OMPI_MCA_plm_rsh_agent=$folder/agent OMPI_MCA_orte_keep_fqdn_hostnames=1
}

# share_link NAMESPACE LINK MBIT MATCH: packets leave by the link at that rate, those of the machines alternating. MATCH is
# src or dst, where a packet's other machine stands. A packet is a frame of the network: joined ones (GSO) would be as long as a
# window, each link would wait for the whole of it, and TCP from all to all would fill 0.72 of the links, not 0.88.
share_link() {
  local i class
  ip -n "$1" link set dev "$2" gso_max_segs 1
  ip netns exec "$1" tc qdisc add dev "$2" root handle 1: htb default 10
  ip netns exec "$1" tc class add dev "$2" parent 1: classid 1:1 htb rate "${3}mbit" quantum 1514
  for ((i = 0; i <= machines; ++i)); do # 0: what is no packet of IP
    class=1:$((10 + i))
    ip netns exec "$1" tc class add dev "$2" parent 1:1 classid "$class" htb rate "$(($3 * 1000 / (machines + 1)))kbit" ceil "${3}mbit" quantum 1514
    ip netns exec "$1" tc qdisc add dev "$2" parent "$class" pfifo limit 1000
    ((i == 0)) || ip netns exec "$1" tc filter add dev "$2" parent 1: protocol ip u32 match ip "$4" "$prefix.$i/32" flowid "$class"
  done
}

# As on the networks of GPUs nothing is dropped, and connections take turns: a queue holds what a window can send, and a
# word does not wait behind another connection's bytes. With one short queue TCP between four machines fills 0.6 of such
# a link. Headers leave 0.956 of a link for payload, and 0.935 of one that is full both ways: two packets of 1514 bytes have 2896 of
# payload, and are acknowledged in 66.
shape_links() {
  local i each
  for ((i = 1; i <= machines; ++i)); do
    for each in rmem wmem; do ip netns exec "heddle-$$-$i" sysctl -qw "net.ipv4.tcp_$each=4096 65536 65536"; done
    share_link "heddle-$$-$i" "h$$-$i" "$1" dst
    share_link "heddle-switch-$$" "h$$-$i" "$1" src
  done
}

launch_on() {
  local i ranks=$1 hosts=
  shift
  for ((i = 1; i <= machines; ++i)); do hosts+=${hosts:+,}$prefix.$i:$ranks; done
  # shellcheck disable=SC2154  # the script's own
  TMPDIR=$folder ip netns exec "heddle-$$-1" "$heddle" launch -n $((ranks * machines)) --hosts "$hosts" --interface "$prefix.0/24" -- "$@" </dev/null
}
