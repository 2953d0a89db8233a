#!/usr/bin/env bash
# Times collectives on this machine's CPU: Heddle's shm and mpi and Open MPI interleaved, team by team; writes JSON.
#
#     bench/run_collectives.sh [--tcp] HEDDLE OUT_FOLDER PREFIX [PASSES [RANKS...]]
#
# Then bench/pack_collectives.py makes one record of them, and bench/report_collectives.py the page.
#
# --tcp: the transport between machines instead, on this machine: mpi without shared memory and Open MPI, both over TCP, up to 4 MiB.
set -euo pipefail
tcp=
if [ "${1-}" = --tcp ]; then
  tcp=-tcp
  shift
fi
if [ $# -lt 3 ]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
heddle=$1 out=$2 prefix=$3 passes=${4:-3}
teams=("${@:5}")
[ ${#teams[@]} != 0 ] || teams=(2 4)
openmpi=$(mktemp)
trap 'rm -f "$openmpi"' EXIT
mpicc -O2 "$(dirname "$0")/baselines/mpi_collectives.c" -o "$openmpi"
[ -z "$tcp" ] || export HEDDLE_MPI_MEMORY=window OMPI_MCA_pml=ob1 OMPI_MCA_osc=pt2pt OMPI_MCA_btl=tcp,self
for ((pass = 1; pass <= passes; ++pass)); do
  for ranks in "${teams[@]}"; do
    most=$((ranks == 2 ? 256 : 16))
    [ -z "$tcp" ] || most=4
    record() { echo "$out/$prefix-$1$tcp-$ranks-ranks-pass-$pass-collective.json"; }
    common=(bench collective --to "${most}M" --repeats 5)
    [ -n "$tcp" ] || "$heddle" "${common[@]}" --ranks "$ranks" --json "$(record shm)"
    "$heddle" launch -n "$ranks" -- "$heddle" "${common[@]}" --fabric mpi --json "$(record mpi)"
    "$heddle" launch -n "$ranks" -- "$openmpi" 1024 $((most << 20)) 4 5 >"$(record openmpi)"
  done
done
