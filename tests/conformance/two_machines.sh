#!/usr/bin/env bash
# two_machines.sh HEDDLE CONFORMANCE COLLECTIVE MPI_RANK MODEL: the cases, a collective, a model's text and a rank's death on `mpi` over TCP between two "machines", which are network namespaces
# joined by a veth pair. Exit status 77, with the reason, where such namespaces may not be made.
set -euo pipefail
heddle=$1 conformance=$2 collective=$3 rank=$4 model=$5

skip() {
  echo "two_machines: skipped: $*"
  exit 77
}

command -v ip >/dev/null || skip "there is no ip (package iproute2)"
[ "$(id -u)" = 0 ] || skip "namespaces need root"

a=heddle-a-$$ b=heddle-b-$$
folder=$(mktemp -d)
clean_up() {
  ip netns del "$a" 2>/dev/null || true
  ip netns del "$b" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean_up EXIT
{ ip netns add "$a" && ip netns add "$b" &&
  ip link add va$$ netns "$a" type veth peer name vb$$ netns "$b"; } 2>"$folder/why" || skip "$(tail -n 1 "$folder/why")"
ip -n "$a" address add 10.99.0.1/24 dev va$$
ip -n "$b" address add 10.99.0.2/24 dev vb$$
for each in "$a lo" "$a va$$" "$b lo" "$b vb$$"; do
  read -r namespace link <<<"$each"
  ip -n "$namespace" link set "$link" up
done

# What mpirun takes for ssh: `agent HOST COMMAND`, the host being an address.
cat >"$folder/agent" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
case \$1 in 10.99.0.1) n=$a ;; *) n=$b ;; esac
shift
exec ip netns exec "\$n" sh -c "\$*"
END
chmod +x "$folder/agent"

# mpirun gives each machine a folder by its name, and these two share one.
export OMPI_MCA_plm_rsh_agent=$folder/agent OMPI_MCA_orte_tmpdir_base=$folder OMPI_MCA_orte_keep_fqdn_hostnames=1
launch() {
  ip netns exec "$a" "$heddle" launch -n 2 --hosts 10.99.0.1:1,10.99.0.2:1 --interface 10.99.0.0/24 -- "$@" </dev/null
}
launch "$conformance" --fabric mpi --rounds 20 --deadline 60
launch "$collective" --fabric mpi --deadline 60 | tee "$folder/sums"
grep -q 'rank 1: 1048576 of 1048576 sums are 3' "$folder/sums"
# One model, a rank on each machine: the text of one rank.
generate=(generate --model "$model" --prompt "137 + 254 =" --temperature 0 --device cpu --quiet)
"$heddle" "${generate[@]}" >"$folder/alone"
launch "$heddle" "${generate[@]}" >"$folder/text"
diff "$folder/alone" "$folder/text" || { echo "two_machines: another text than one rank's"; exit 1; }
# Open MPI's own mpirun (4.1.4) now and then crashes while it passes on what its libraries have to say of the lost peer,
# and rank 0 with it, before that has said anything: then once more.
for _ in 1 2 3; do
  if launch "$rank" kill 3000 >"$folder/death" 2>&1; then
    echo "two_machines: the run goes on when rank 1 is killed"
    exit 1
  fi
  grep -q 'pmix_server_log_fn' "$folder/death" || break
  echo "two_machines: mpirun crashed in its pmix_server_log_fn"
done
# Whichever comes first: MPI's word that the connection broke, or the silence.
grep -E 'rank 1 (\(process [0-9]+\) has ended|has not moved for [0-9.]+ s: it has ended, hangs or cannot be reached)' "$folder/death" || { cat "$folder/death"; exit 1; }
