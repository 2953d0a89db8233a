#!/usr/bin/env bash
# Times collectives on this machine's processors: Heddle's shm and mpi and Open MPI in turns, team by team, and leaves JSON.
#
#     bench/run_collectives.sh HEDDLE OUT_FOLDER PREFIX [PASSES [RANKS...]]   (bench/report_collectives.py makes the page of it)
set -euo pipefail
heddle=$1 out=$2 prefix=$3 passes=${4:-3}
teams=("${@:5}")
[ ${#teams[@]} != 0 ] || teams=(2 4)
peer=$(mktemp)
trap 'rm -f "$peer"' EXIT
mpicc -O2 "$(dirname "$0")/peers/mpi_collectives.c" -o "$peer"
for ((pass = 1; pass <= passes; ++pass)); do
  for ranks in "${teams[@]}"; do
    most=$((ranks == 2 ? 256 : 16))
    record() { echo "$out/$prefix-$1-$ranks-ranks-pass-$pass-collective.json"; }
    common=(bench collective --to "${most}M" --repeats 5)
    "$heddle" "${common[@]}" --ranks "$ranks" --json "$(record shm)"
    "$heddle" launch -n "$ranks" -- "$heddle" "${common[@]}" --fabric mpi --json "$(record mpi)"
    "$heddle" launch -n "$ranks" -- "$peer" 1024 $((most << 20)) 4 5 >"$(record openmpi)"
  done
done
