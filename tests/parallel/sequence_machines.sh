#!/usr/bin/env bash
# sequence_machines.sh HEDDLE CASES [PLACEMENT... | cut | timed MACHINES RANKS MBIT BENCH_ARGS...]: every strategy of sequence
# parallelism against float64 on `mpi` and on `hierarchical`, over TCP between "machines" (MACHINESxRANKS, by default 2x2), one
# placement after the other. With `cut`, the second of two machines' links goes down in the middle of layers:
# the run must end and name machine and rank. With `timed`, layers are timed instead, on MACHINES of RANKS ranks whose
# links carry MBIT Mbit/s each way, of which 0.935 are payload, while computation is replaced by timed waits (SEQUENCE_FABRIC: over
# another fabric than mpi). Exit status 77,
# with the reason, where namespaces may not be made.
set -euo pipefail
heddle=$1 cases=$2
# shellcheck source=../conformance/namespaces.sh
. "$(dirname "${BASH_SOURCE[0]}")/../conformance/namespaces.sh"

if [ "${3:-}" = timed ]; then
  machines_of=$4 ranks=$5 mbit=$6
  shift 6
  make_machines "$machines_of" 10.98.0
  shape_links "$mbit"
  # Large messages by sends alone: with Open MPI's puts they fill 0.5 of such a link.
  export OMPI_MCA_btl_tcp_flags=send,inplace,need-ack,need-csum,hetero-rdma
  launch_on "$ranks" "$heddle" bench sequence-attention --figure 10 --machines "$machines_of" --gpus "$ranks" \
    --fabric "${SEQUENCE_FABRIC:-mpi}" --timed-waits --machine-gbps "$(awk "BEGIN { print 0.935 * $mbit / 8000 }")" "$@"
  exit
fi
if [ "${3:-}" = cut ]; then
  make_machines 2 10.98.0
  launch_on 2 "$cases" mpi 2x2 --late 100000 --deadline 2 >"$folder/begun" 2>"$folder/words" &
  run=$!
  for ((i = 0; i < 300; ++i)); do
    if [ -s "$folder/begun" ]; then break; fi
    sleep 0.1
  done
  sleep 0.5
  begin=$SECONDS
  # shellcheck disable=SC2154  # of namespaces.sh
  ip -n "$switch" link set "h$$-2" down
  code=0
  wait "$run" || code=$?
  cat "$folder/words"
  echo "exit status $code, $((SECONDS - begin)) s after the cut"
  [ "$code" != 0 ]
  grep -Eq 'rank [23] .*has not moved for .*machine 10\.98\.0\.2 is silent: ranks 2, 3 are on it' "$folder/words"
  exit
fi
placements=("${@:3}")
[ ${#placements[@]} -gt 0 ] || placements=(2x2)
most=0
for each in "${placements[@]}"; do
  [[ $each =~ ^[1-9][0-9]*x[1-9][0-9]*$ ]] || { echo "sequence_machines: \"$each\" is no placement, expected such as 2x4"; exit 2; }
  ((${each%x*} <= most)) || most=${each%x*}
done
make_machines "$most" 10.98.0
for each in "${placements[@]}"; do
  machines=${each%x*} begin=$SECONDS  # the first of those that were made
  for fabric in mpi hierarchical; do launch_on "${each#*x}" "$cases" $fabric "$each" >/dev/null; done
  echo "$each: every strategy that fits is within its bound of float64, $((SECONDS - begin)) s"
done
