#!/usr/bin/env bash
# Times collectives on this machine's processors: Heddle's shm, then Open MPI, team by team, and leaves JSON.
#
#     bench/run_collectives.sh HEDDLE OUT_FOLDER PREFIX     (bench/report_collectives.py makes the page of it)
set -euo pipefail
heddle=$1 out=$2 prefix=$3
peer=$(mktemp)
trap 'rm -f "$peer"' EXIT
mpicc -O2 "$(dirname "$0")/peers/mpi_collectives.c" -o "$peer"
for ranks in 2 4; do
  most=$((ranks == 2 ? 256 : 16))
  "$heddle" bench collective --ranks "$ranks" --to "${most}M" --repeats 5 --json "$out/$prefix-shm-$ranks-ranks-collective.json"
  "$heddle" launch -n "$ranks" -- "$peer" 1024 $((most << 20)) 4 5 >"$out/$prefix-openmpi-$ranks-ranks-collective.json"
done
