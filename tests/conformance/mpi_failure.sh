#!/usr/bin/env bash
# mpi_failure.sh HEDDLE MPI_RANK MODE [FABRIC]: of four ranks, rank 1 fails as MODE says; the run must fail, every other rank must
# have named rank 1 (again: have been refused a second fabric), and nothing may be left behind.
set -euo pipefail
heddle=$1 rank=$2 mode=$3 fabric=${4:-mpi}

fail() {
  echo "mpi_failure: $mode: $*"
  echo "$output"
  exit 1
}

# A copy under a name of its own, by which its processes are found.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Where mpirun makes its folder: one that all runs share may go while another run makes its own in it.
export OMPI_MCA_orte_tmpdir_base=$folder
name=mpir$$
cp "$rank" "$folder/$name"

status=0
output=$("$heddle" launch -n 4 -- "$folder/$name" "$mode" 4000 "$fabric" 2>&1 </dev/null) || status=$?
[ "$status" != 0 ] || fail "the exit status is 0"

case $mode in
  kill | begun | begun_put) pattern='rank 1 \(process [0-9]+\) has ended' ;;
  stop) pattern='rank 1 \(process [0-9]+\) has not moved for [0-9.]+ s: it is stopped' ;;
  throw) pattern='rank 1 \(process [0-9]+\) has ended with an error of its own' ;;
  missing) pattern='rank 1 has not started|ranks 0, 1 have not started' ;; # one that waits for rank 1 on its machine has not met the others
  # Whoever looks once its process is gone can only say that; who looks when others have given up, for whom it waited itself.
  leave) pattern='rank 1 \(process [0-9]+\) has (closed its fabric|ended)|waited for rank 1 past the deadline' ;;
  unequal) pattern='rank 0 wants a heap of 1048576 bytes, rank 1 one of 1052672' ;;
  again) pattern='a fabric of this process has failed' ;;
  *) fail "no such mode" ;;
esac
# Each says so itself; one that an MPI call still holds has its watchdog say so, too, and sometimes it alone.
named=$(grep -E "$pattern" <<<"$output" | sed -nE 's/^(from|heddle: error: rank) ([023])(:| gives up:) .*/\2/p' | sort -u | tr -d '\n') || true  # none matches: said below
[ "$named" = 023 ] || fail "of the ranks 0, 2 and 3, these have said so: ${named:-none}"
# mpirun does not wait for the very last moment of those that it kills.
for _ in {1..50}; do
  pgrep -x "$name" >/dev/null || exit 0
  sleep 0.1
done
fail "a process was left behind"
