#!/usr/bin/env bash
# Runs the fabric's checks and benches on a machine with GPUs, from what gpu_bundle.sh has gathered:
#   scripts/gpu.sh WHAT [--gpus N] [-- ARGS]
#     conformance  the cases on threads and on processes, both kinds of peer memory, up to 256 MB, and test_fabric
#     sanitize     compute-sanitizer over small sizes
#     soak         10 000 iterations with random delays
#     failure      a process killed, one stopped: the others must end and name it, and no GPU memory stay taken
#     collectives  test_collectives, then `heddle bench collective` in bfloat16, with ARGS (--tune, --to 64M, ...)
#     all          all of these, collectives last
# Says a line a run, ends with 1 when one failed. Results (a JSON line a run) and logs go to $OUT, or build/gpu-results.
set -uo pipefail

usage() {
  sed -n '2,11s/^# \{0,1\}//p' "$0"
  exit 2
}

[ $# -gt 0 ] || usage
what=$1
shift
gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU') || true
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --gpus) gpus=${2:?--gpus: how many?}; shift 2 ;;
    *) usage ;;
  esac
done
[ "${1:-}" = -- ] && shift
more=("$@")
[ "${gpus:-0}" -ge 1 ] || { echo "gpu.sh: no GPU (nvidia-smi lists none)" >&2; exit 1; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${OUT:-$root/build/gpu-results}
bundle=$root/.gpu/fabric/bundle.tar.xz
[ -f "$bundle" ] || { echo "gpu.sh: $bundle is not there: run scripts/gpu_bundle.sh where nvcc is, and carry .gpu/fabric" >&2; exit 1; }
home=${TMPDIR:-/tmp}/heddle-gpu
logs=$home/logs-$what
mkdir -p "$home" "$out"
rm -rf "$logs"
mkdir -p "$logs"
if ! cmp -s "$bundle" "$home/unpacked"; then
  tar -C "$home" -xJf "$bundle" 2>/dev/null ||  # where there is no xz, Python has it
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$bundle" "$home" || exit 1
  cp "$bundle" "$home/unpacked"
fi

# The very NCCL that the binaries were built with: PyTorch's, where the system's is another.
nvidia=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null) || nvidia=
export LD_LIBRARY_PATH=${nvidia:+$nvidia/nccl/lib:$nvidia/cudnn/lib:}$home/lib:${LD_LIBRARY_PATH:-}
# No multicast, whoever asks; kernels loaded before ranks begin to wait for each other.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export CUDA_MODULE_LOADING=EAGER NCCL_DEBUG=${NCCL_DEBUG:-WARN} HEDDLE_CACHE_DIR=${HEDDLE_CACHE_DIR:-$home/cache}
bin=$home/bin
results=$out/gpu-$what.jsonl
: >"$results"
failed=0

# record NAME RC SECONDS EXPECTED: a line for people and one of JSON.
record() {
  local verdict=ok
  [ "$2" = "$4" ] || { verdict=FAILED; failed=1; }
  printf '%-44s %s (exit %s, %s s)\n' "$1" "$verdict" "$2" "$3"
  printf '{"run": "%s", "gpus": %s, "ok": %s, "exit": %s, "seconds": %s}\n' \
    "$1" "$gpus" "$([ $verdict = ok ] && echo true || echo false)" "$2" "$3" >>"$results"
  [ $verdict = ok ] || tail -n 15 "$logs/$1.log"
}

# run NAME SECONDS COMMAND...
run() {
  local name=$1 limit=$2 start=$SECONDS rc
  shift 2
  timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>&1
  rc=$?
  record "$name" $rc $((SECONDS - start)) 0
}

# rank R N KEY COMMAND...: in this shell's place, as mpirun would start it.
rank() {
  local r=$1 n=$2 key=$3
  shift 3
  export OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=$n OMPI_COMM_WORLD_LOCAL_RANK=$r OMPI_COMM_WORLD_LOCAL_SIZE=$n
  export PMIX_NAMESPACE=$key
  exec "$@"
}

# processes N COMMAND...: a process a rank; the worst of their exit codes.
processes() {
  local n=$1 key=gpu-$$-$RANDOM worst=0 pids=() pid
  shift
  for ((r = 0; r < n; ++r)); do
    (rank "$r" "$n" "$key" "$@") &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || worst=$?; done
  return $worst
}

run_processes() {
  local name=$1 limit=$2 n=$3 start=$SECONDS
  shift 3
  processes "$n" timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>&1
  record "$name" $? $((SECONDS - start)) 0
}

worlds() {  # numbers of GPUs worth a run each
  [ "$gpus" -gt 2 ] && echo 2
  echo "$gpus"
}

conformance() {
  local n memory
  for memory in nvlink nvlink-ipc; do
    for n in $(worlds); do
      run "conformance-$memory-threads-$n" 240 "$bin/heddle_conformance" --fabric $memory --threads "$n"
      run_processes "conformance-$memory-processes-$n" 240 "$n" "$bin/heddle_conformance" --fabric $memory
    done
    run "conformance-$memory-large-threads-$gpus" 300 "$bin/heddle_conformance" --fabric $memory --threads "$gpus" --large
  done
  run test-fabric 240 "$bin/test_fabric" '--gtest_filter=*Nvlink*' "--gtest_output=json:$logs/test_fabric.json"
}

sanitize() {
  local memory tool
  for memory in nvlink nvlink-ipc; do
    for tool in memcheck racecheck synccheck; do
      run "sanitize-$tool-$memory" 300 compute-sanitizer --tool $tool --error-exitcode 9 --target-processes all \
        "$bin/heddle_conformance" --fabric $memory --threads 2 --rounds 20 --deadline 100
    done
  done
}

soak() {
  local n
  for n in $(worlds); do
    run_processes "soak-processes-$n" 300 "$n" "$bin/heddle_conformance" --fabric nvlink --case capabilities --soak 10000
    run "soak-threads-$n" 300 "$bin/heddle_conformance" --fabric nvlink --threads "$n" --case capabilities --soak 10000
  done
}

used_memory() {  # MiB over all GPUs
  nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | awk '{sum += $1} END {print sum}'
}

# lose SIGNAL: the last rank gets it in the middle of a soak. The others must end by themselves, each saying its number.
lose() {
  local signal=$1 n=$gpus name key=gpu-$$-$RANDOM start pids=() rc=0 before
  name=failure-$signal
  before=$(used_memory)
  for ((r = 0; r < n; ++r)); do
    (rank "$r" "$n" "$key" timeout -k 10 120 "$bin/heddle_conformance" --fabric nvlink --case capabilities \
      --soak 100000000 --deadline 5) >"$logs/$name-rank$r.log" 2>&1 &
    pids+=($!)
  done
  sleep 15
  local victim
  victim=$(pgrep -P "${pids[n - 1]}" | head -n 1)
  start=$SECONDS
  kill -"$signal" "$victim" || rc=2
  for ((r = 0; r < n - 1; ++r)); do
    wait "${pids[r]}"
    [ $? = 1 ] || rc=3                                            # an error, not a time-out of ours
    grep -q "rank $((n - 1))" "$logs/$name-rank$r.log" || rc=4    # which names the lost rank
  done
  [ $((SECONDS - start)) -le 20 ] || rc=5
  kill -KILL "$victim" 2>/dev/null
  wait "${pids[n - 1]}"
  sleep 2
  [ "$(used_memory)" -le $((before + 64)) ] || rc=6               # memory is still taken
  cat "$logs/$name"-rank*.log >"$logs/$name.log"
  record "$name" $rc $((SECONDS - start)) 0
}

failure() {
  [ "$gpus" -ge 2 ] || { echo "failure: needs two GPUs"; return; }
  lose KILL
  lose STOP
}

collectives() {
  local n
  [ -x "$bin/test_collectives" ] && run test-collectives 300 "$bin/test_collectives"
  for n in $(worlds); do
    run "bench-collective-$n" 540 "$bin/heddle" bench collective --fabric nvlink --ranks "$n" --dtype bfloat16 \
      --json "$out/collectives-$n.json" "${more[@]}"
  done
}

case $what in
  conformance | sanitize | soak | failure | collectives) $what ;;
  all)
    conformance
    failure
    soak
    sanitize
    collectives
    ;;
  *) usage ;;
esac

nvidia-smi topo -m >"$logs/topology.txt" 2>&1
tar -C "$logs" -czf "$out/gpu-$what-logs.tar.gz" .
exit $failed
