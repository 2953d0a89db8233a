#!/usr/bin/env bash
# two_machines.sh HEDDLE CONFORMANCE COLLECTIVE MODEL | HEDDLE death MPI_RANK: the cases, also with two ranks on each machine, a collective and
# a model's text on `mpi` over TCP between two "machines", which are network namespaces; or a rank's death there. Exit status 77, with the
# reason, where such namespaces may not be made.
set -euo pipefail
heddle=$1

# shellcheck source=namespaces.sh
. "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"
make_machines 2 10.99.0
launch() { launch_on 1 "$@"; }
if [ "$2" = death ]; then
  # Open MPI's own mpirun (4.1.4) now and then crashes while it passes on what its libraries have to say of the lost peer,
  # and rank 0 with it, before that has said anything: then once more.
  for _ in 1 2 3; do
    if launch "$3" kill 3000 >"$folder/death" 2>&1; then
      echo "two_machines: the run goes on when rank 1 is killed"
      exit 1
    fi
    grep -q 'pmix_server_log_fn' "$folder/death" || break
    echo "two_machines: mpirun crashed in its pmix_server_log_fn"
  done
  # Whichever comes first: MPI's word that the connection broke, or the silence.
  grep -E 'rank 1 (\(process [0-9]+\) has ended|has not moved for [0-9.]+ s: it has ended, hangs or cannot be reached)' "$folder/death" || { cat "$folder/death"; exit 1; }
  exit
fi
conformance=$2 collective=$3 model=$4
launch "$conformance" --fabric mpi --rounds 20 --deadline 60
for fabric in mpi hierarchical; do # by memory and by messages
  launch_on 2 "$conformance" --fabric $fabric --rounds 5 --deadline 60
done
launch "$collective" --fabric mpi --deadline 60 | tee "$folder/sums"
grep -q 'rank 1: 1048576 of 1048576 sums are 3' "$folder/sums"
# One model, a rank on each machine: the text of one rank.
generate=(generate --model "$model" --prompt "137 + 254 =" --temperature 0 --device cpu --quiet)
"$heddle" "${generate[@]}" >"$folder/alone"
launch "$heddle" "${generate[@]}" >"$folder/text"
diff "$folder/alone" "$folder/text" || { echo "two_machines: another text than one rank's"; exit 1; }
