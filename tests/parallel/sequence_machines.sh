#!/usr/bin/env bash
# sequence_machines.sh HEDDLE CASES [MBIT]: the strategies of sequence parallelism on `mpi` over TCP between two "machines"
# of two ranks, which are network namespaces joined by a veth pair. With MBIT the link is shaped to that rate (tc) and the
# layers are timed as well. Exit status 77, with the reason, where such namespaces may not be made.
set -euo pipefail
heddle=$1 cases=$2 mbit=${3:-}

skip() {
  echo "sequence_machines: skipped: $*"
  exit 77
}

command -v ip >/dev/null || skip "there is no ip (package iproute2)"
[ "$(id -u)" = 0 ] || skip "namespaces need root"

a=heddle-sa-$$ b=heddle-sb-$$
folder=$(mktemp -d)
clean_up() {
  ip netns del "$a" 2>/dev/null || true
  ip netns del "$b" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean_up EXIT
{ ip netns add "$a" && ip netns add "$b" &&
  ip link add sa$$ netns "$a" type veth peer name sb$$ netns "$b"; } 2>"$folder/why" || skip "$(tail -n 1 "$folder/why")"
ip -n "$a" address add 10.98.0.1/24 dev sa$$
ip -n "$b" address add 10.98.0.2/24 dev sb$$
for each in "$a lo" "$a sa$$" "$b lo" "$b sb$$"; do
  read -r namespace link <<<"$each"
  ip -n "$namespace" link set "$link" up
done
if [ -n "$mbit" ]; then
  for each in "$a sa$$" "$b sb$$"; do
    read -r namespace link <<<"$each"
    ip netns exec "$namespace" tc qdisc add dev "$link" root tbf rate "${mbit}mbit" burst 64kb latency 200ms
  done
fi

# What mpirun takes for ssh: `agent HOST COMMAND`, the host being an address.
cat >"$folder/agent" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
case \$1 in 10.98.0.1) n=$a ;; *) n=$b ;; esac
shift
exec ip netns exec "\$n" sh -c "\$*"
END
chmod +x "$folder/agent"

# mpirun gives each machine a folder by its name, and these two share one.
export OMPI_MCA_plm_rsh_agent=$folder/agent OMPI_MCA_orte_tmpdir_base=$folder OMPI_MCA_orte_keep_fqdn_hostnames=1
launch() {
  ip netns exec "$a" "$heddle" launch -n 4 --hosts 10.98.0.1:2,10.98.0.2:2 --interface 10.98.0.0/24 -- "$@" </dev/null
}
launch "$cases" mpi 2 2
if [ -n "$mbit" ]; then
  launch "$heddle" bench sequence-attention --figure 10 --machines 2 --gpus 2 --fabric mpi
fi
