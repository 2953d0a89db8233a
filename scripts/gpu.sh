#!/usr/bin/env bash
# Runs checks and benchmarks on a machine with GPUs, from the bundle that gpu_bundle.sh has made:
#   scripts/gpu.sh STEP... [--gpus N] [--ranks K,...] [--minutes M] [-- BENCH_ARGS]
#     smoke        ranks come together; a message and a sum arrive
#     cases        every collective by every algorithm, parts of the team, graphs
#     bench        `heddle bench collective --tune` in bfloat16, with BENCH_ARGS, interleaved with PyTorch's symmetric memory
#     conformance  the fabric's cases on both kinds of peer memory, up to 256 MB
#     soak         10 000 iterations of the fabric's operations and of the collectives, with random delays
#     failure      one process is killed, one stopped: the others must end and name it, and no GPU memory may stay allocated
#     threads      what only ranks that are threads of one process do
#     sanitize     compute-sanitizer over small sizes
#     replays      every collective, semaphores and barriers in graphs that are captured once and replayed 10 000 times, also
#                  with random delays inside the kernels: bits equal to those of eager calls
#     collectives  (also: all) these steps in this order, the most important first
#     --ranks K,...: instead of a rank per GPU so many ranks, one number after the other, as threads of one process that
#                  share the GPUs; one GPU is enough. Takes smoke, cases, conformance, soak, threads (tests) and replays;
#                  collectives then means all of these but threads:
#                  scripts/gpu.sh collectives --gpus 1 --ranks 2,4,8 --minutes 5
#   scripts/gpu.sh ONE-GPU-STEP... [--minutes M | --seconds S] [-- MODEL...]
#     gpu-tests    the tests that need a GPU: kernels, engine, whole models (180 s on an H200)
#     decode       `heddle bench decode` of each MODEL with its operators, interleaved with PyTorch compiled (65 s; 55 s; 45 s)
#     plain        decode and prefill of each MODEL without PyTorch (15 s each)
#     prefill      prompts of 2048 and 8192 tokens of the first MODEL that is no llama-2, interleaved with PyTorch (45 s)
#     startup      from process start to the first token: demo model; synthetic llama-3-8b from the page cache (5 s; 30 s)
#     operators    `heddle bench operator` of each MODEL at batch 1 and 16 (5 s each)
#     compared     `heddle bench operator` of each MODEL at batch 1 and 16 and of 2048 tokens, interleaved with PyTorch (90 s
#                  each)
#     memcheck     compute-sanitizer memcheck, then racecheck, over tests of every kernel (150 s)
#     mutations    test programs with a fault each (mutations_gpu.toml): says which faults the tests notice; alone, with its own
#                  bundle (gpu_bundle.sh --mutations); 40 s at most for each
#     broken       a driver that is too old, a GPU that is lost, ...: tests/end_to_end/broken_driver.sh (30 s)
#     accuracy     the demo model's 1000 sums: all must be right (3 s)
#     tp           one model on 2, 4 and 8 ranks that share the GPU: goldens, engine, the 1000 sums, `heddle bench decode` and
#                  prefill of the first MODEL with 2 (3 minutes)
#     every-gpu    one model with a rank on each GPU of the machine: the 1000 sums, decode of llama-3-8b beside one GPU, decode of
#                  llama-3.3-70b where it fits (4 minutes)
#     decode-choice  decode steps with fused attention: goldens, the 1000 sums by a demo model with wide heads, on one rank and on two
#                  that share the GPU, `heddle tune decode` of each MODEL (3 minutes)
#     cluster      issue 24, all of it: collectives of clusters and the attention block against float64, goldens and the 1000 sums
#                  with fused attention, memcheck and racecheck, batches of 24 to 64, `heddle bench cluster` and `bench block`,
#                  `heddle tune decode`, steps fused and beside PyTorch without graphs (9 minutes)
#     cluster-figures  of it SplitHead against float64; the attention block of llama-2-7b and llama-3-8b in every mapping (figure 9)
#                  and SplitToken beside SplitHead (figure 20) (60 s)
#     token-weave  issue 28, on every GPU, or on ranks that share one (2, and 4; records named shared): the norm's course, models in
#                  each mode against goldens and one rank, the 1000 sums in steps of two parts, figures 4 and 14, memcheck and
#                  racecheck, figure 9, the norm alone beside the fused operator, gaps between steps, `heddle tune token-weave`, figures 12, 3
#                  and 1, Qwen2.5-72B and Mixtral-8x22B, figures 10 and 11, a soak, figures 5, 6, 7 and 13, the sums and decode steps in
#                  every mode (9 minutes)
#     sequence-attention  issue 29: pieces and strategies against float64, GPU memory between machines by the host (conformance and
#                  strategies on processes that share the GPU), memcheck of two ranks, figure 12 beside cuDNN at 9 216, 37 376, 4 608
#                  and 167 504 tokens with heads of 64 and 128, figure 8 (all degrees) beside computation alone on 2 and 4 ranks that
#                  share the GPU, memcheck and racecheck of the pieces, figure 9 on two such ranks; on several GPUs also figure 8 with a
#                  GPU a rank, as it is and with emulated links between machines, beside what it is predicted to take (9 minutes; the
#                  JSON lines of its runs are kept as bench/results/sequence-CARD-checks.jsonl)
#     fused        issue 27, all of it: operators against float64, on a GPU a rank where there are several (bsp with NCCL beside
#                  Heddle's), the GEMM alone, on 2 and 4 ranks that share the GPU, decode over ranks up to 1M keys, memcheck and racecheck, a
#                  soak of 400 calls with late ranks, traces (5 minutes on one H200; several GPUs take longer)
#     fused-soak   10 000 calls of each fused operator on 2 ranks that share the GPU, late at random; takes what --minutes allows
#     load         `heddle bench load` of each MODEL: time of loading weights against what disk and bus allow (30 s; 25 s; 10 s)
#     generate     tokens per second of `heddle generate` against steps of `heddle bench decode` (10 s per MODEL)
#     batches      decode at batch 1 to 64, context 1024, of the first MODEL (15 s)
#     pages        decode with pages of 16 to 256 tokens, of the first MODEL (20 s)
#     vllm         decode and prefill of the first MODEL: Heddle, vLLM, Heddle (150 s; llama-3.2-1b 80 s)
#     flashinfer   decode attention of one sequence, Heddle interleaved with FlashInfer (90 s)
#     one-gpu      gpu-tests, decode, prefill, startup, operators, accuracy, memcheck; about 9 minutes
#     short        what fits into 230 s, the most important first: demo start, tests, decode of the first MODEL with PyTorch and
#                  of the others without, prefill without, the last MODEL with PyTorch, start of llama-3-8b
#   MODEL: llama-3-8b llama-2-7b llama-3.2-1b (default: these three, in this order).
#   vllm and flashinfer need .peers/vllm and .peers/flashinfer (site.tar.xz, install.sh) and the scripts .peers/vllm_peer.py and
#   .peers/flashinfer_peer.py in the tree; bench/README.md describes those of FlashInfer.
# Each of the two groups has a bundle of its own (gpu_bundle.sh; gpu_bundle.sh --one-gpu), and one call takes steps of one group.
# Ranks are processes except in `threads`. Every run has a time limit, and the whole call one of M minutes (9). Prints a line
# per run; exits with 1 when one failed. After each run $OUT (or build/gpu-results) holds the results so far: a JSON line per
# run, and an archive of the logs, the benchmarks' JSON and the tuned store.
set -uo pipefail

usage() {  # STATUS
  sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//p}' "$0"
  exit "$1"
}

# number_of OPTION VALUE: the value, which must be a whole number.
number_of() {
  [[ ${2-} =~ ^[1-9][0-9]{0,5}$ ]] || { echo "gpu.sh: $1 ${2-}: expected a whole number, 1 or more" >&2; exit 2; }
  echo "$2"
}

steps=()
one_gpu_steps=()
seconds=540
ranks=()  # of one process each time, as threads that share GPUs; none: a process a GPU
gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU') || true
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --gpus) gpus=$(number_of "$@") || exit; shift 2 ;;
    --ranks)
      IFS=, read -r -a ranks <<<"${2-}"
      [ ${#ranks[@]} -gt 0 ] || ranks=("")
      for count in "${ranks[@]}"; do number_of --ranks "$count" >/dev/null || exit; done
      shift 2 ;;
    --minutes) seconds=$(number_of "$@") || exit; seconds=$((60 * seconds)); shift 2 ;;
    --seconds) seconds=$(number_of "$@") || exit; shift 2 ;;
    --help | -h) usage 0 ;;
    smoke | cases | bench | conformance | soak | failure | threads | sanitize | replays) steps+=("$1"); shift ;;
    gpu-tests | decode | plain | prefill | startup | operators | compared | memcheck | short | broken | accuracy | tp | every-gpu | decode-choice | cluster | cluster-figures | token-weave | sequence-attention | fused | fused-soak | load | generate | batches | pages | vllm | flashinfer)
      one_gpu_steps+=("$1"); shift ;;
    mutations) one_gpu_steps+=("$1"); shift ;;
    one-gpu) one_gpu_steps+=(gpu-tests decode prefill startup operators accuracy memcheck); shift ;;
    all | collectives) steps+=(collectives); shift ;;
    *) usage 2 >&2 ;;
  esac
done
[ "${1:-}" = -- ] && shift
bench_args=("$@")
[ $((${#steps[@]} + ${#one_gpu_steps[@]})) -gt 0 ] || usage 2 >&2
[ ${#steps[@]} -eq 0 ] || [ ${#one_gpu_steps[@]} -eq 0 ] || { echo "gpu.sh: steps of one GPU and of several ranks need a call each" >&2; exit 2; }
kind=fabric fewest=2
if [ ${#ranks[@]} -gt 0 ]; then
  fewest=1
  [ ${#one_gpu_steps[@]} -eq 0 ] || { echo "gpu.sh: --ranks is for the steps of several ranks" >&2; exit 2; }
  expanded=()
  for step in "${steps[@]}"; do
    case $step in
      collectives) expanded+=(smoke conformance cases replays soak) ;;
      smoke | cases | conformance | soak | threads | replays) expanded+=("$step") ;;
      *) echo "gpu.sh: $step does not take --ranks" >&2; exit 2 ;;
    esac
  done
  steps=("${expanded[@]}")
else
  expanded=()
  for step in "${steps[@]}"; do
    if [ "$step" = collectives ]; then
      expanded+=(smoke cases bench conformance soak failure threads sanitize replays)
    else
      expanded+=("$step")
    fi
  done
  steps=("${expanded[@]}")
fi
[ ${#one_gpu_steps[@]} -eq 0 ] || { kind=one-gpu fewest=1 steps=("${one_gpu_steps[@]}") gpus=$((gpus < 1 ? gpus : 1)); }
if [[ " ${steps[*]} " = *" mutations "* ]]; then
  [ ${#steps[@]} -eq 1 ] || { echo "gpu.sh: mutations needs a call of its own" >&2; exit 2; }
  kind=mutations
fi
[ "${gpus:-0}" -ge $fewest ] || { echo "gpu.sh: needs $fewest GPU(s), nvidia-smi lists ${gpus:-0}" >&2; exit 1; }
last_second=$((SECONDS + seconds))

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${OUT:-$root/build/gpu-results}
bundle=$root/.gpu/$kind/bundle.tar.xz
[ -f "$bundle" ] || { echo "gpu.sh: $bundle is missing: run scripts/gpu_bundle.sh on a machine with nvcc, and copy .gpu/$kind here" >&2; exit 1; }
home=${TMPDIR:-/tmp}/heddle-gpu-$kind
logs=$home/results-$gpus-${steps[0]}
mkdir -p "$home" "$out"
rm -rf "$logs"
mkdir -p "$logs"
if ! cmp -s "$bundle" "$home/unpacked"; then
  tar -C "$home" -xJf "$bundle" 2>/dev/null ||  # where there is no xz, Python has it
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$bundle" "$home" || exit 1
  cp "$bundle" "$home/unpacked"
fi

# The NCCL that the binaries were built with: PyTorch's, if the system's is another version.
plain_library_path=${LD_LIBRARY_PATH:-}
nvidia=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null) || nvidia=
export LD_LIBRARY_PATH=${nvidia:+$nvidia/nccl/lib:$nvidia/cudnn/lib:}$home/lib:$plain_library_path
# No multicast, whoever asks; kernels loaded before ranks begin to wait for each other.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=32 NCCL_DEBUG=${NCCL_DEBUG:-WARN} HEDDLE_CACHE_DIR=${HEDDLE_CACHE_DIR:-$home/cache}
bin=$home/bin
results=$out/gpu-$gpus-${steps[0]}.jsonl
: >"$results"
failed=0

# Copies the results so far to $out, so that they survive a run that ends this script.
keep() {
  cp "$HEDDLE_CACHE_DIR/tuned.json" "$logs/" 2>/dev/null
  tar -C "$logs" -czf "$home/results.tar.gz" . && cp "$home/results.tar.gz" "$out/gpu-$gpus-${steps[0]}.tar.gz"
}

# record NAME RC SECONDS: a line for people and one of JSON.
record() {
  local verdict=ok
  [ "$2" = 0 ] || { verdict=FAILED; failed=1; }
  printf '%-40s %s (exit %s, %s s)\n' "$1" "$verdict" "$2" "$3"
  printf '{"run": "%s", "gpus": %s, "ok": %s, "exit": %s, "seconds": %s, "commit": "%s"}\n' \
    "$1" "$gpus" "$([ $verdict = ok ] && echo true || echo false)" "$2" "$3" "$(cat "$home/commit")" >>"$results"
  [ $verdict = ok ] || tail -n 12 "$logs/$1.log"
  keep
}

# seconds_for LIMIT: the limit, or the time that is left if that is less; nothing when too little is left to begin.
seconds_for() {
  local left=$((last_second - SECONDS))
  [ $left -ge 20 ] && echo $((left < $1 ? left : $1))
}

skip() {
  printf '%-40s skipped: no time left\n' "$1"
  printf '{"run": "%s", "gpus": %s, "skipped": true}\n' "$1" "$gpus" >>"$results"
}

# run NAME SECONDS COMMAND...
run() {
  local name=$1 limit start=$SECONDS
  limit=$(seconds_for "$2") || { skip "$name"; return; }
  shift 2
  timeout -k 5 "$limit" "$@" >"$logs/$name.log" 2>&1
  record "$name" $? $((SECONDS - start))
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

# run_ranks NAME SECONDS N COMMAND...: a process a rank, or, with --ranks, threads of one, on plain CUDA's memory: NCCL takes no
# two ranks on one GPU.
run_ranks() {
  local name=$1 seconds=$2 n=$3 limit start=$SECONDS command=() word
  shift 3
  if [ ${#ranks[@]} -gt 0 ]; then
    for word in "$@"; do
      [ "$word" != nvlink ] || word=nvlink-ipc
      command+=("$word")
    done
    run "shared-$name" "$seconds" "${command[@]}" --threads "$n"
    return
  fi
  limit=$(seconds_for "$seconds") || { skip "$name"; return; }
  processes "$n" timeout -k 5 "$limit" "$@" >"$logs/$name.log" 2>&1
  record "$name" $? $((SECONDS - start))
}

worlds() {  # numbers of ranks to run with, the largest first
  local n
  [ ${#ranks[@]} -eq 0 ] || { printf '%s\n' "${ranks[@]}"; return; }
  echo "$gpus"
  for n in 4 2; do [ "$gpus" -gt $n ] && echo $n; done
}

odd_worlds() {  # numbers that divide no power of two
  local n
  [ ${#ranks[@]} -eq 0 ] || return 0
  for n in 5 3; do [ "$gpus" -gt $n ] && echo $n; done
}

smoke() {
  local n
  if [ ${#ranks[@]} -gt 0 ]; then
    for n in $(worlds); do
      run_ranks "smoke-fabric-$n" 30 "$n" "$bin/heddle_conformance" --fabric nvlink --case put --rounds 20
    done
    return
  fi
  run_ranks smoke-fabric 60 "$gpus" "$bin/heddle_conformance" --fabric nvlink --case put --rounds 20
  run_ranks smoke-sum 60 "$gpus" "$bin/heddle" bench collective --fabric nvlink --collective all_reduce --dtype bfloat16 \
    --to 64K --repeats 3
}

cases() {
  local n
  for n in $(worlds) $(odd_worlds); do
    run_ranks "cases-$n" 60 "$n" "$bin/heddle_collective_cases" --fabric nvlink --largest 20001
  done
}

# Heddle interleaved with PyTorch. Heddle's JSON grows collective by collective, so a run that is cut short leaves what it
# has measured. PyTorch loads its kernels lazily: it has thousands.
bench() {
  local n pass baseline order
  for n in $(worlds); do
    for order in release relaxed; do
      run_ranks "flag-$n-$order" 60 "$n" "$bin/heddle" bench flag --fabric nvlink --order $order \
        --json "$logs/h200-nvlink-$n-ranks-$order-flag.json"
    done
    for pass in 1 2; do
      local what=(--collective all_reduce)
      [ $pass = 1 ] && what=(--tune)
      run_ranks "bench-$n-pass-$pass" 150 "$n" "$bin/heddle" bench collective --fabric nvlink --dtype bfloat16 \
        --json "$logs/h200-nvlink-$n-ranks-pass-$pass-collective.json" "${what[@]}" "${bench_args[@]}"
      baseline=$logs/h200-torch-$n-ranks-pass-$pass-collective.json
      run "torch-$n-pass-$pass" 90 env -u CUDA_MODULE_LOADING LD_LIBRARY_PATH="$plain_library_path" OMP_NUM_THREADS=4 \
        python3 -m torch.distributed.run --standalone --nproc-per-node "$n" "$root/bench/baselines/torch_symmetric.py" \
        1024 $((256 << 20)) 4 20 "$baseline"
    done
  done
}

conformance() {
  local memory n
  if [ ${#ranks[@]} -gt 0 ]; then
    for n in $(worlds); do
      run_ranks "conformance-$n" 60 "$n" "$bin/heddle_conformance" --fabric nvlink --rounds 40
    done
    return
  fi
  for memory in nvlink nvlink-ipc; do
    run_ranks "conformance-$memory-$gpus" 120 "$gpus" "$bin/heddle_conformance" --fabric $memory --rounds 200
  done
  run_ranks "conformance-nvlink-large-$gpus" 120 "$gpus" "$bin/heddle_conformance" --fabric nvlink --large --rounds 50
  for n in $(worlds) $(odd_worlds); do
    [ "$n" = "$gpus" ] || run_ranks "conformance-nvlink-$n" 60 "$n" "$bin/heddle_conformance" --fabric nvlink --rounds 200
  done
}

soak() {
  local n
  for n in $(worlds); do
    run_ranks "soak-collectives-$n" 90 "$n" "$bin/heddle_collective_cases" --fabric nvlink --soak 10000 --seed 7
    run_ranks "soak-fabric-$n" 120 "$n" "$bin/heddle_conformance" --fabric nvlink --case capabilities --soak 10000
  done
}

replays() {
  local n
  for n in $(worlds); do
    run_ranks "replays-fabric-$n" 60 "$n" "$bin/heddle_conformance" --fabric nvlink --case capabilities --replays 10000
    run_ranks "replays-collectives-$n" 120 "$n" "$bin/heddle_collective_cases" --fabric nvlink --largest 64 --replays 10000
  done
}

used_memory() {  # MiB over all GPUs
  nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | awk '{sum += $1} END {print sum}'
}

# lose SIGNAL: sends it to the last rank in the middle of a soak. The others must end by themselves, and each must name it.
lose() {
  local signal=$1 n=$gpus name=failure-$1 key=gpu-$$-$RANDOM start pids=() rc=0 before victim
  [ $((last_second - SECONDS)) -ge 60 ] || { skip "$name"; return; }
  before=$(used_memory)
  for ((r = 0; r < n; ++r)); do
    (rank "$r" "$n" "$key" timeout -k 5 55 "$bin/heddle_conformance" --fabric nvlink --case capabilities \
      --soak 100000000 --deadline 5) >"$logs/$name-rank$r.log" 2>&1 &
    pids+=($!)
  done
  sleep 15
  victim=$(pgrep -P "${pids[n - 1]}" | head -n 1)
  start=$SECONDS
  kill -"$signal" "$victim" || rc=2
  for ((r = 0; r < n - 1; ++r)); do
    wait "${pids[r]}"
    [ $? = 1 ] || rc=3                                            # an error, not a time-out of this script
    grep -q "rank $((n - 1))" "$logs/$name-rank$r.log" || rc=4    # which names the lost rank
  done
  [ $((SECONDS - start)) -le 20 ] || rc=5
  kill -KILL "$victim" 2>/dev/null
  wait "${pids[n - 1]}"
  sleep 2
  [ "$(used_memory)" -le $((before + 64)) ] || rc=6               # memory is still taken
  cat "$logs/$name"-rank*.log >"$logs/$name.log"
  record "$name" $rc $((SECONDS - start))
}

failure() {
  lose KILL
  lose STOP
}

threads() {
  local memory
  if [ ${#ranks[@]} -gt 0 ]; then  # 2, 4 and 8 ranks, whatever --ranks says
    run shared-test-fabric 120 "$bin/test_fabric" '--gtest_filter=*Nvlink*' "--gtest_output=json:$logs/test_fabric.json"
    run shared-test-collectives 180 "$bin/test_collectives" '--gtest_filter=*OnOneGpu*' "--gtest_output=json:$logs/test_collectives.json"
    return
  fi
  for memory in nvlink nvlink-ipc; do
    run "threads-conformance-$memory" 60 "$bin/heddle_conformance" --fabric $memory --threads "$gpus" --rounds 100
  done
  run threads-collectives 60 "$bin/heddle_collective_cases" --fabric nvlink --threads "$gpus"
  run threads-test-fabric 90 "$bin/test_fabric" '--gtest_filter=*Nvlink*' "--gtest_output=json:$logs/test_fabric.json"
}

# A process a rank, as two ranks of one process may stop each other under the sanitizer; no racecheck, which knows shared
# memory only. NCCL has findings of its own, so plain CUDA gives the memory.
sanitize() {
  local tool
  for tool in memcheck synccheck; do
    run_ranks "sanitize-$tool-fabric" 90 2 compute-sanitizer --tool $tool --error-exitcode 9 \
      "$bin/heddle_conformance" --fabric nvlink-ipc --rounds 5 --deadline 30
    run_ranks "sanitize-$tool-collectives" 90 2 compute-sanitizer --tool $tool --error-exitcode 9 \
      "$bin/heddle_collective_cases" --fabric nvlink-ipc --largest 600 --deadline 30
  done
}

# Tests look for their data where they were built.
source_folder() {
  local built
  built=$(cat "$home/source_folder") || return 1
  [ -e "$built" ] || { mkdir -p "$(dirname "$built")" && ln -s "$root" "$built"; }
}

gpu_tests() {
  local program
  source_folder || return
  for program in test_device test_engine test_weights test_kernels test_models test_base; do
    [ -x "$bin/$program" ] || continue
    run "gpu-tests-$program" 200 "$bin/$program" '--gtest_filter=*Gpu*:*_gpu*:*Cuda*' "--gtest_output=json:$logs/$program.json"
  done
}

# run_with_baselines NAME SECONDS ARGUMENTS...: of `heddle bench`. Python gets the library path of before.
run_with_baselines() {
  local name=$1 limit=$2
  shift 2
  printf '#!/bin/sh\nexport LD_LIBRARY_PATH="%s"\nunset CUDA_MODULE_LOADING\nexec python3 "$@"\n' "$plain_library_path" >"$home/baseline_python"
  chmod +x "$home/baseline_python"
  run "$name" "$limit" env HEDDLE_BASELINES="$root/bench/baselines" HEDDLE_BASELINE_PYTHON="$home/baseline_python" OMP_NUM_THREADS=8 \
    CUDA_MODULE_LOADING=LAZY "$bin/heddle" bench "$@"
}

bench_with_baselines() {  # NAME SECONDS ARGUMENTS...: on the GPU; leaves JSON under the name
  local name=$1
  run_with_baselines "$@" --device cuda --json "$logs/gpu-h200-$name.json"
}

model_bench() {  # NAME SECONDS MODE MODEL ARGUMENTS...
  local name=$1 limit=$2 mode=$3 model=$4
  shift 4
  bench_with_baselines "$name" "$limit" "$mode" --model "synth:$model" "$@"
}

decode_of() {  # MODEL SECONDS ARGUMENTS...: with PyTorch; without it where that fails
  local model=$1 limit=$2 cases=1x1024,1x4096,1x16384
  [ "$model" = llama-3.2-1b ] || cases+=,16x4096
  shift 2
  model_bench "decode-$model" "$limit" decode "$model" --case "$cases" "$@"
  [ -s "$logs/gpu-h200-decode-$model.json" ] || [ $# -eq 0 ] || model_bench "decode-$model-plain" 40 decode "$model" --case "$cases"
}

prefill_of() {  # MODEL SECONDS ARGUMENTS...
  local model=$1 limit=$2
  shift 2
  model_bench "prefill-$model" "$limit" prefill "$model" --tokens 2048,8192 --step-tokens 8192 --repeats 5 "$@"
}

decode() {
  local model
  for model in "${models[@]}"; do decode_of "$model" 120 --compare torch; done
}

plain() {
  local model
  for model in "${models[@]}"; do
    decode_of "$model" 40
    [ "$model" = llama-2-7b ] || prefill_of "$model" 40  # of 4096 positions
  done
}

prefill() {
  local model
  for model in "${models[@]}"; do
    [ "$model" = llama-2-7b ] && continue
    prefill_of "$model" 90 --compare torch
    return
  done
}

short() {
  local last=$((${#models[@]} - 1)) i
  startup_demo
  gpu_tests
  decode_of "${models[0]}" 90 --compare torch
  for ((i = 1; i < last; ++i)); do decode_of "${models[i]}" 40; done
  prefill_of "${models[0]}" 40
  [ $last -gt 0 ] && decode_of "${models[last]}" 60 --compare torch
  startup_folder
}

# seconds_to_first_token NAME COMMAND...: three times, in JSON.
seconds_to_first_token() {
  local name=$1 begin
  shift
  local file=$logs/gpu-h200-startup-$name.json samples=
  for _ in 1 2 3; do
    begin=$(date +%s.%N)
    CUDA_MODULE_LOADING=LAZY "$@" >"$logs/startup-$name.log" 2>&1 || return 1
    samples+=${samples:+, }$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN {printf "%.3f", b - a}')
  done
  printf '{"bench": "startup", "name": "%s", "command": "%s", "seconds": [%s]}\n' "$name" "$*" "$samples" >"$file"
}

startup_demo() {
  local start=$SECONDS
  seconds_to_first_token demo timeout -k 5 20 "$bin/heddle" generate --device cuda --model "$root/assets/demo-llama" \
    --prompt "Once upon a time" --max-tokens 1
  record startup-demo $? $((SECONDS - start))
}

# A folder in the page cache, as after a first run: written to memory, which is no slower than that cache.
startup_folder() {
  local start=$SECONDS shm=/dev/shm/heddle-gpu-startup
  [ -n "$(seconds_for 60)" ] || { skip startup-llama-3-8b; return; }
  timeout -k 5 "$(seconds_for 60)" "$bin/heddle" synth synth:llama-3-8b --out "$shm" >"$logs/startup-llama-3-8b.log" 2>&1 &&
    seconds_to_first_token llama-3-8b timeout -k 5 20 "$bin/heddle" generate --device cuda --model "$shm" \
      --prompt "Once upon a time" --max-tokens 1
  record startup-llama-3-8b $? $((SECONDS - start))
  rm -rf "$shm"
}

startup() {
  startup_demo
  startup_folder
}

operators() {
  local model
  for model in "${models[@]}"; do
    run "operators-$model" 60 "$bin/heddle" bench operator --device cuda --model "$model" --case 1x1023,1x4095,16x4095 \
      --json "$logs/gpu-h200-operators-$model.json"
  done
}

compared() {
  local model
  for model in "${models[@]}"; do
    bench_with_baselines "compared-$model" 120 operator --model "$model" --case 1x1023,1x4095,16x4095 --compare torch
    bench_with_baselines "compared-prefill-$model" 90 operator --model "$model" --tokens 2048 --compare torch
  done
}

sanitize_kernels() {  # TOOL TESTS
  run "$1-kernels" 200 compute-sanitizer --tool "$1" --error-exitcode 9 "$bin/test_kernels" "--gtest_filter=$2" \
    "--gtest_output=json:$logs/$1-kernels.json"
}

# Tests that launch each kernel at small sizes: those left out go over thousands of shapes, which takes minutes here, have
# two kernels run at once, which the sanitizer does not let them, or report a wait that gave up, for the sanitizer takes
# an atomic of system scope on the host's memory for a fault.
memcheck() {
  local filter='*OnGpu*:*Cuda*'
  filter+='-AttentionOnGpu.PrefillMatchesFloat64:AttentionOnGpu.SharesOutManySequences:AttentionOnGpu.DecodeMatchesFloat64'
  filter+=':KvWriteOnGpu.WritesWhatTheCpuWritesAndNothingElse:LinearCuda.IsExactWhereSumsAre:LinearCuda.GivesTheSameBits*'
  filter+=':SampleOnGpu.ThousandsOfRows*:RmsNormOnGpu.MatchesFloat64:AttentionOnGpu.PrefillKeepsToTheWindow'
  filter+=':AttentionOnGpu.EndsWhileOtherKernels*:AttentionOnGpu.DecodesLongSequences:AttentionOnGpu.TakesAsManySms*'
  filter+=':AttentionOnGpu.PrefillTakesManyWorkTiles:AttentionOnGpu.ASplitThatNeverComes*'
  filter+=':LinearCuda.*RealWidths*:AttentionOnGpu.DecodeOfManyHeads*'
  source_folder || return
  sanitize_kernels memcheck "$filter"
  # Much slower: a small test of each kernel that uses shared memory.
  filter='LinearCuda.IsExactForASmallShape*:AttentionOnGpu.CanBeReplayed*:AttentionOnGpu.TakesAnyShape:AttentionOnGpu.OneKey*'
  filter+=':KvWriteOnGpu.FindsTheSequenceAmongMany:RopeKvWriteOnGpu.TakesLongPrompts:RopeOnGpu*:RmsNormOnGpu.BitsDepend*'
  filter+=':SampleOnGpu.AHandfulOfRows*:ArgmaxOnGpu*:LinearSwigluOnGpu.MatchesFloat64:LinearSwigluOnGpu.TilesMatch*'
  sanitize_kernels racecheck "$filter"
  run memcheck-weights 20 compute-sanitizer --tool memcheck --error-exitcode 9 "$bin/test_weights" '--gtest_filter=*OnGpu*:*Cuda*:*Upload*'
}

mutations() {
  source_folder || return
  run mutations 560 python3 "$root/scripts/mutations.py" run "$bin"
  grep '^{' "$logs/mutations.log" | tee "$logs/gpu-h200-mutations.lines"
}

broken() {
  run broken 200 "$root/tests/end_to_end/broken_driver.sh" "$bin/heddle" "$bin/broken_driver" "$root/assets/demo-llama"
}

sums() {  # NAME ARGUMENTS...
  local name=$1 limit start=$SECONDS
  limit=$(seconds_for 60) || { skip "$name"; return; }
  shift
  python3 "$root/tools/demo_llama/sums.py" prompts 1000 >"$home/sums.jsonl" &&
    timeout -k 5 "$limit" "$bin/heddle" generate "$@" --model "${demo:-$root/assets/demo-llama}" --prompts-file "$home/sums.jsonl" \
      --max-tokens 10 --json >"$home/sums-answers.jsonl" 2>"$logs/$name.log" &&
    python3 "$root/tools/demo_llama/sums.py" check 1000 "$home/sums-answers.jsonl" >>"$logs/$name.log"
  record "$name" $? $((SECONDS - start))
  tail -n 1 "$logs/$name.log"
}

accuracy() {
  sums accuracy --device cuda
}

shared_gpu() {  # N: cuda:0 N times
  local names=cuda:0 i
  for ((i = 1; i < $1; ++i)); do names+=,cuda:0; done
  echo "$names"
}

tp() {
  local ranks mode
  source_folder || return
  run tp-test-models 200 "$bin/test_models" '--gtest_filter=*OnOneGpu*:*ranks_on_gpu*' "--gtest_output=json:$logs/tp-test_models.json"
  run tp-test-engine 100 "$bin/test_engine" '--gtest_filter=*RanksThatShare*' "--gtest_output=json:$logs/tp-test_engine.json"
  for ranks in 2 4; do sums "tp-sums-$ranks" --device "$(shared_gpu $ranks)" --tp $ranks; done
  for mode in decode prefill; do
    run "tp-bench-$mode" 60 "$bin/heddle" bench $mode --model "synth:${models[0]}" --device "$(shared_gpu 2)" --tp 2 \
      --json "$logs/gpu-h200-$mode-tp-2-shared-${models[0]}.json"
  done
}

every_gpu() {
  local all devices mode
  all=$(nvidia-smi --list-gpus | grep -c '^GPU')
  devices=$(seq -s, -f 'cuda:%g' 0 $((all - 1)))
  source_folder || return
  sums "every-gpu-sums" --device "$devices" --tp "$all"
  run every-gpu-one 60 "$bin/heddle" bench decode --model synth:llama-3-8b --device cuda:0 --case 1x1024,1x4096 \
    --json "$logs/every-gpu-one-decode-llama-3-8b.json"
  for mode in default fused; do
    run "every-gpu-$mode" 60 "$bin/heddle" bench decode --model synth:llama-3-8b --device "$devices" --tp "$all" --tp-mode $mode \
      --case 1x1024,1x4096 --json "$logs/every-gpu-$mode-decode-llama-3-8b.json"
    run "every-gpu-$mode-70b" 150 "$bin/heddle" bench decode --model synth:llama-3.3-70b --device "$devices" --tp "$all" \
      --tp-mode $mode --case 1x4096 --json "$logs/every-gpu-$mode-decode-llama-3.3-70b.json"
  done
}

# Kernels of fused attention take heads of 64 and 128, so the sums are those of the same model with wider ones.
fused_answers() {  # NAME
  local demo=$home/wide-demo
  source_folder || return
  run "$1-goldens" 120 "$bin/test_models" '--gtest_filter=Gpu/FusedDecodeHeads.*' "--gtest_output=json:$logs/$1-goldens.json"
  python3 "$root/tools/demo_llama/widen_heads.py" "$root/assets/demo-llama" "$demo" || return
  sums "$1-sums" --device cuda --decode fused --max-sequences 16
  sums "$1-sums-alone" --device cuda --decode fused --max-sequences 1
  sums "$1-sums-tp-2" --device "$(shared_gpu 2)" --tp 2 --decode fused --max-sequences 16
}

tune_decode() {  # NAME SECONDS MODEL
  run "$1-tune-$3" $(($2 + 40)) "$bin/heddle" tune decode --model "synth:$3" --device cuda --seconds "$2"
}

decode_choice() {
  local model
  fused_answers decode-choice
  for model in "${models[@]}"; do tune_decode decode-choice 60 "$model"; done
}

# In the order of what is wanted most: what is right, what a sanitizer says, what is fast.
cluster() {
  local model
  run cluster-collectives 90 "$bin/test_device" '--gtest_filter=*ClustersOnGpu*:*AllBlocksOfACluster*:*ClustersOfEverySize*' \
    "--gtest_output=json:$logs/cluster-collectives.json"
  run cluster-block 120 "$bin/test_fused" '--gtest_filter=*DecodeBlockOnGpu*:OnGpu.DecodeBlock*' "--gtest_output=json:$logs/cluster-block.json"
  fused_answers cluster
  sanitize_cluster memcheck
  sanitize_cluster racecheck
  for model in llama-3-8b qwen2.5-7b; do
    model_bench "batches-$model" 40 decode "$model" --context 1024 --repeats 5 --batch 24,32,64
  done
  for model in llama-2-7b llama-3-8b; do block_figure 9 "block-$model" --shape "$model"; done
  block_figure 18 figure-18-llama-2-7b --shape llama-2-7b
  block_figure 18 figure-18-deepseek-v2-lite --shape deepseek-v2-lite
  block_figure 13 figure-13-llama-2-7b --shape llama-2-7b
  block_figure 11 figure-11
  for model in llama-2-7b llama-3-8b; do block_figure 20 "figure-20-$model" --shape "$model"; done
  run cluster-bench 40 "$bin/heddle" bench cluster --repeats 7 --json "$logs/gpu-$(name_of_card)-cluster.json"
  for model in llama-2-7b llama-3-8b llama-3.2-1b; do
    model_bench "fused-$model" 30 decode "$model" --decode fused --case 1x1024,1x4096,1x16384,16x1024 --repeats 5
  done
  HEDDLE_TORCH_MODE=eager model_bench uncaptured-llama-2-7b 60 decode llama-2-7b --case 1x1024,1x4096 --compare torch
  for model in llama-2-7b llama-3-8b llama-3.2-1b; do tune_decode cluster 15 "$model"; done
}

# Small sizes: every way of a few calls, and of the block the two smallest shapes in each form.
sanitize_cluster() {  # TOOL
  run "cluster-$1-collectives" 60 compute-sanitizer --tool "$1" --error-exitcode 9 "$bin/test_device" \
    '--gtest_filter=*ClustersOfEverySize*' "--gtest_output=json:$logs/cluster-$1-collectives.json"
  run "cluster-$1-block" 90 compute-sanitizer --tool "$1" --error-exitcode 9 "$bin/test_fused" \
    '--gtest_filter=*DecodeBlockOnGpu.*/0:*DecodeBlockOnGpu.*/2' "--gtest_output=json:$logs/cluster-$1-block.json"
}

block_figure() {  # NUMBER NAME ARGUMENTS...
  local number=$1 name=$2 file
  file=$logs/gpu-$(name_of_card)-$name
  shift 2
  run "cluster-$name" 25 "$bin/heddle" bench block --figure "$number" "$@" --repeats 3 --json "$file.json" --svg "$file.svg"
}

# A kernel that is wrong need not be fast, so its tests come first.
cluster_figures() {
  local model
  run cluster-figures-tests 20 "$bin/test_fused" '--gtest_filter=*DecodeBlockOnGpu.*SplitHead*' \
    "--gtest_output=json:$logs/cluster-figures-test_fused.json"
  for model in llama-2-7b llama-3-8b; do
    block_figure 20 "figure-20-$model" --shape $model
    block_figure 9 "block-$model" --shape $model
  done
}

name_of_card() {  # h200
  nvidia-smi --query-gpu=name --format=csv,noheader | grep -oE '[A-Z][0-9]+' | head -n 1 | tr '[:upper:]' '[:lower:]'
}

# In the order of what is wanted most: that it is right, what issue 28 has targets for, sanitizers, the other figures. The limits up
# to the soak add up to 535 s, without the sums, which take some seconds; most runs take less, and what does not fit is skipped by
# name. Models of 70B and more have one or two layers. Ranks that share one GPU are 2, and 4 where a run says so.
token_weave() {
  local ranks devices mode card figure name count tool worlds traced
  card=$(name_of_card)
  ranks=$(nvidia-smi --list-gpus | grep -c '^GPU')
  devices=$(seq -s, -f 'cuda:%g' 0 $((ranks - 1)))
  name=modes-$card-$ranks-ranks
  worlds=("$ranks")
  [ "$ranks" -gt 1 ] || { ranks=2; devices=$(shared_gpu 2); name=modes-$card-shared-2-ranks; worlds=(2 4); }
  source_folder || return
  for count in "${worlds[@]}"; do norm_course "token-weave-course-$count" 25 "$count" --calls 60 --late 100000; done
  run token-weave-modes 55 "$bin/test_models" '--gtest_filter=*ModesOnOneGpu*:*LlamaGolden*ranks_*_on_gpu' \
    "--gtest_output=json:$logs/token-weave-test_models.json"
  woven_sums "$ranks" "$devices"
  weave_figure 4 20 "$name" --device "$devices"
  weave_figure 14 45 "$name" --model synth:llama-3.3-70b,layers=1 --tp "$ranks" --device "$devices" --tokens 1024,4096,8192 --repeats 9
  for tool in memcheck racecheck; do
    run "token-weave-$tool" 30 compute-sanitizer --tool $tool --error-exitcode 9 "$bin/heddle_fused_cases" --fabric nvlink-ipc \
      --threads "$ranks" --only all_reduce_norm --calls 6
  done
  weave_figure 9 20 "$name" --model synth:llama-3-8b,layers=4 --tp "$ranks" --device "$devices" --tokens 4096 --repeats 9
  weave_figure 4 5 "modes-$card-1-ranks" --device cuda:0
  step_gaps 8 --tp "$ranks" --device "$devices" --tp-mode fused --tokens 8192 --step-tokens 1024
  step_gaps 8 --tp "$ranks" --device "$devices" --tp-mode weave --split-tokens 2048 --batch 4 --tokens 8192 --step-tokens 8192  # in two parts
  run token-weave-tune 40 "$bin/heddle" tune token-weave --model synth:llama-3-8b,layers=8 --tp "$ranks" --device "$devices" --tokens 2048,8192
  # Seven engines: on one GPU, half of the model's layers.
  traced=synth:llama-3-8b
  [ "${#worlds[@]}" = 1 ] || traced+=,layers=16
  weave_figure 12 35 "$name" --model $traced --tp "$ranks" --device "$devices" --split-tokens 2048 --lengths 2048:64 \
    --num-prompts 8 --repeats 1
  for figure in 3 1; do
    weave_figure $figure 15 "$name" --model synth:llama-3.3-70b,layers=2 --tp "$ranks" --device "$devices" --tokens 1024,4096,8192
  done
  weave_figure 11 20 "$name-qwen2.5-72b" --model synth:qwen2.5-72b,layers=2 --tp "$ranks" --device "$devices" --tokens 2048,8192
  weave_figure 11 25 "$name-mixtral-8x22b" --model synth:mixtral-8x22b,layers=2 --tp "$ranks" --device "$devices" --tokens 2048,8192
  weave_figure 10 15 "$name" --device "$devices"
  if [ "${#worlds[@]}" -gt 1 ]; then weave_figure 4 15 "${name/2-ranks/4-ranks}" --device "$(shared_gpu 4)" --tokens 64,1024,4096; fi
  weave_figure 11 25 "$name" --model synth:llama-3-8b --tp "$ranks" --device "$devices" --tokens 2048,8192
  norm_course token-weave-soak 35 "$ranks" --calls 10000 --late 20000
  for figure in 5 6 7; do weave_figure $figure 10 "$name" --device "$devices"; done
  weave_figure 13 25 "$name" --model synth:llama-3-8b,layers=8 --tp "$ranks" --device "$devices" --split-tokens 1024 --lengths 4096:32 \
    --num-prompts 4 --repeats 1
  for mode in default symmetric fused sequence; do
    sums "token-weave-sums-$mode" --device "$devices" --tp "$ranks" --tp-mode $mode
  done
  for mode in default symmetric fused weave sequence no-comm; do
    run "token-weave-decode-$mode" 20 "$bin/heddle" bench decode --model synth:llama-3-8b --device "$devices" --tp "$ranks" \
      --tp-mode $mode --case 1x1024,16x1024 --repeats 5 --json "$logs/$name-$mode-decode-llama-3-8b.json"
  done
}

norm_course() {  # NAME SECONDS RANKS ARGUMENTS...
  local name=$1 limit=$2 count=$3
  shift 3
  run "$name" "$limit" "$bin/heddle_fused_cases" --fabric nvlink-ipc --threads "$count" --only all_reduce_norm "$@"
}

# The 1000 sums in steps of two parts: 512 tokens are two of the largest tiles of a GEMM. Fails where no step was cut.
woven_sums() {  # RANKS DEVICES
  sums token-weave-sums-weave --device "$2" --tp "$1" --tp-mode weave --split-tokens 512 --max-sequences 256 --verbose
  run token-weave-sums-in-parts 1 grep -E '^heddle: [1-9][0-9]* of [0-9]+ steps were computed in two parts' "$logs/token-weave-sums-weave.log"
}

# Prompts in steps that are launched ahead: between two of them a GPU stands still for less than 1 % of the time. PARTS: of a prompt,
# the last argument is the tokens of a step.
step_gaps() {  # PARTS ARGUMENTS...
  local name=token-weave-gaps-${*: -1} trace=$home/gaps-${*: -1}.json parts=$1
  shift
  run "$name-trace" 15 "$bin/heddle" trace -o "$trace" bench prefill --model synth:llama-3-8b,layers=8 --repeats 3 "$@"
  run "$name" 5 python3 "$root/tools/step_gaps.py" "$trace" --steps "$parts" --runs 2 --most 0.01
}

weave_figure() {  # NUMBER SECONDS NAME ARGUMENTS...
  local figure=$1 limit=$2 name=$3
  shift 3
  run "token-weave-$name-figure-$figure" "$limit" "$bin/heddle" bench token-weave --figure "$figure" "$@" --json "$logs/$name-figure-$figure.json"
}

# In the order of what is wanted most. 37 376 tokens are Flux 3072's, 4 608 Flux 1024's, 167 504 those of 20 s of CogVideoX.
# Figure 12 cuts keys and values into 4 and 8 pieces, in one call and in a call for each, which carries the sums.
sequence_attention() {
  local card all tokens head_dim machines layer tool record rates
  card=$(name_of_card)
  all=$(nvidia-smi --list-gpus | grep -c '^GPU')
  source_folder || return
  run sequence-pieces 90 "$bin/test_fused" '--gtest_filter=*PieceAttention*Gpu*' "--gtest_output=json:$logs/sequence-test_fused.json"
  run sequence-strategies 90 "$bin/test_parallel" '--gtest_filter=*SequenceAttentionGpu*' \
    "--gtest_output=json:$logs/sequence-test_parallel.json"
  sequence_machines
  run_ranks sequence-memcheck-ranks 90 2 compute-sanitizer --tool memcheck --error-exitcode 9 "$bin/heddle_sequence_cases" nvlink-ipc 2x1
  for tokens in 9216 37376 4608 167504; do
    for head_dim in 128 64; do
      run_with_baselines "sequence-figure-12-$tokens-x-$head_dim" 90 sequence-attention --figure 12 --tokens $tokens \
        --head-dim $head_dim --heads 24 --compare torch --device cuda:0 \
        --json "$logs/sequence-figure-12-$tokens-x-$head_dim-$card.json"
    done
  done
  for machines in 4x1 2x2 2x1; do sequence_layer shared nvlink-ipc $machines 4608 128; done
  sequence_layer shared-links nvlink-ipc 4x1 4608 128 --emulate-links --machine-gbps 5
  for machines in 4x1 2x2 2x1; do
    if [ "$all" = 1 ] || [ "$all" -lt $((${machines/x/*})) ]; then continue; fi
    # NVLink is between machines, too, for a name of a machine changes no link: at the rate of the card's records, if it has any.
    links=(--remote-us 5)
    if [ -s "$root/bench/results/sequence-rates-$card.json" ]; then
      links+=(--machine-gbps "$(python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["rates"]["gpu_link_gbps"] * int(sys.argv[2]))' \
        "$root/bench/results/sequence-rates-$card.json" "${machines#*x}")")
    fi
    for layer in 37376x128 167504x64 4608x128; do
      # Links and memory as records have them, and attention as this run has measured it.
      rates=()
      for record in "$root/bench/results/sequence-rates-$card.json" "$logs/sequence-figure-12-${layer/x/-x-}-$card.json"; do
        if [ -s "$record" ]; then rates+=(--rates "$record"); fi
      done
      sequence_layer gpus nvlink $machines "${layer%x*}" "${layer#*x}" "${rates[@]}" "${links[@]}"
      # The paper's transfers beside its computation: 50 GB/s out of 8 A100 at 200 TFLOP/s, here of GPUs at some 600.
      sequence_layer links nvlink $machines "${layer%x*}" "${layer#*x}" "${rates[@]}" --emulate-links \
        --machine-gbps "$(awk "BEGIN { print 18.75 * ${machines#*x} }")"
    done
  done
  for tool in memcheck racecheck; do
    run "sequence-$tool-pieces" 100 compute-sanitizer --tool $tool --error-exitcode 9 "$bin/test_fused" \
      '--gtest_filter=*PieceAttentionOnGpu.Carried*/?:*PieceAttentionOnGpu.AGraph*/1?:PieceAttentionGpu.*' \
      "--gtest_output=json:$logs/sequence-$tool.json"
  done
  run sequence-figure-9 60 "$bin/heddle" bench sequence-attention --figure 9 --fabric nvlink-ipc --machines 2 --gpus 1 \
    --tokens 2304,4608 --head-dim 32,64,128 --batch 1,2 --heads 24 --json "$logs/sequence-figure-9-2x1-$card.json"
}

# sequence_layer NAME FABRIC MACHINESxRANKS TOKENS HEAD_DIM ARGUMENTS...: a layer of each strategy with every degree, and its
# computation alone. Without --emulate-links "machines" are names here: no link between them is slower than inside.
sequence_layer() {
  local name=sequence-$1-$3-$4-x-$5 fabric=$2 machines=$3 tokens=$4 head_dim=$5
  shift 5
  run "$name" 90 "$bin/heddle" bench sequence-attention --figure 8 --compute-alone --fabric "$fabric" --machines "${machines%x*}" \
    --gpus "${machines#*x}" --tokens "$tokens" --heads 24 --head-dim "$head_dim" --json "$logs/$name-$card.json" "$@"
}

# GPU memory between machines, through the host: a rank or two stand for a machine. Processes take turns on the GPU, so a wait in a
# kernel costs time slices.
sequence_machines() {
  HEDDLE_MACHINE_RANKS=1 run_ranks sequence-machines-conformance 60 2 "$bin/heddle_conformance" --fabric hierarchical-nvlink \
    --rounds 5 --deadline 30
  HEDDLE_MACHINE_RANKS=1 run_ranks sequence-machines-2x1 45 2 "$bin/heddle_sequence_cases" hierarchical-nvlink 2x1 --deadline 30
  HEDDLE_MACHINE_RANKS=2 run_ranks sequence-machines-2x2 45 4 "$bin/heddle_sequence_cases" hierarchical-nvlink 2x2 --deadline 30
}

# Issue 27, all of it, in the order of what is wanted most. A rank's part of each matrix is as large as that of 4 ranks in figure 9 of
# "Eliminating Multi-GPU Performance Taxes". Several GPUs: a GPU a rank first, then ranks that share one.
fused() {
  local ranks card operator shared
  card=$(name_of_card)
  ranks=$(nvidia-smi --list-gpus | grep -c '^GPU')
  run fused-course-2 60 "$bin/heddle_fused_cases" --fabric nvlink-ipc --threads 2 --calls 12
  [ "$ranks" -lt 2 ] || fused_on_gpus "$ranks"
  run fused-tests 120 "$bin/test_fused" '--gtest_filter=*OnOneGpu*:FusedOnGpus.*' "--gtest_output=json:$logs/fused-test_fused.json"
  # A rank alone transfers nothing: push is the fused GEMM, beside cuBLASLt or the small-M GEMM.
  fused_bench gemm-alone 1-gpus 1 cuda:0 all-gather-linear --m 1,8,64,128,256,512,1024,4096,8192 --n 7168 --k 8192 --shard m --dtype float16
  for shared in 2 4; do
    for operator in all-gather-linear linear-reduce-scatter linear-all-reduce; do
      fused_bench "" "shared-$shared" $shared "$(shared_gpu $shared)" $operator --m 1,64,256,512,2048 --n 8192 --k 8192 --dtype bfloat16
    done
    fused_decode 8 "shared-$shared" $shared "$(shared_gpu $shared)" 32768,131072
  done
  # Scaling over ranks (figure 11): of this GPU alone, and of as many as there are.
  fused_decode 8 1-gpus 1 cuda:0 32768,131072,524288,1048576
  [ "$ranks" -le 2 ] || fused_decode 8 2-gpus 2 cuda:0,cuda:1 32768,131072,524288,1048576
  fused_sanitizers
  fused_soak 400 120
  fused_traces "$ranks"
  [ "$ranks" -ge 4 ] || fused_decode 8 shared-4-long 4 "$(shared_gpu 4)" 524288,1048576
  fused_decode 96 1-gpus 1 cuda:0 32768,131072
  # Latent attention, whose parts the general kernel computes.
  fused_bench latent shared-2 2 "$(shared_gpu 2)" flash-decode --heads 16 --kv-heads 1 --head-dim 576 --value-dim 512 \
    --context 4096,32768 --dtype bfloat16
}

# A GPU a rank.
fused_on_gpus() {  # RANKS
  local ranks=$1 devices shard
  devices=$(gpus_of "$ranks")
  run fused-gpus-course 60 "$bin/heddle_fused_cases" --fabric nvlink-ipc --threads "$ranks" --calls 18
  for shard in k m; do
    fused_bench $shard "$ranks-gpus" "$ranks" "$devices" all-gather-linear --m 1,8,64,128,256,512,1024,4096,8192 \
      --n $((7168 * ranks)) --k 8192 --shard $shard --dtype float16
  done
  fused_bench "" "$ranks-gpus" "$ranks" "$devices" linear-reduce-scatter --m 1,8,64,128,256,512,1024,4096,8192 --n 8192 \
    --k $((2048 * ranks)) --dtype bfloat16
  fused_bench long-k "$ranks-gpus" "$ranks" "$devices" linear-reduce-scatter --m 512,1024,4096,8192 --n 8192 --k $((7168 * ranks)) \
    --dtype bfloat16
  fused_bench "" "$ranks-gpus" "$ranks" "$devices" linear-all-reduce --m 1,8,64,128,256,512,1024,4096 --n 8192 --k $((2048 * ranks)) \
    --dtype bfloat16
  fused_decode 8 "$ranks-gpus" "$ranks" "$devices" 32768,131072,524288,1048576
  fused_bench host "$ranks-gpus" "$ranks" "$devices" all-gather-linear --m 1,64,512,4096 --n $((7168 * ranks)) --k 8192 --shard k \
    --dtype float16 --launch host
  run fused-gpus-tune 40 "$bin/heddle" tune all-gather-linear --ranks "$ranks" --device "$devices" --model "synth:${models[0]}" \
    --tokens 16,256,1024,4096 --repeats 7 --json "$logs/fused-$card-$ranks-gpus-tune.json"
  fused_decode 96 "$ranks-gpus" "$ranks" "$devices" 32768,131072
}

gpus_of() {  # N: cuda:0 to cuda:N-1
  seq -s, -f 'cuda:%g' 0 $(($1 - 1))
}

# A record that bench/report_fused.py reads; SUFFIX tells records of one operator apart, and may be empty.
fused_bench() {  # SUFFIX PLACE RANKS DEVICES OPERATOR ARGUMENTS...
  local name=$5${1:+-$1} place=$2 ranks=$3 devices=$4 operator=$5
  shift 5
  run "fused-$place-$name" 60 "$bin/heddle" bench "$operator" --ranks "$ranks" --device "$devices" --repeats 15 "$@" \
    --json "$logs/fused-$card-$place-$name.json"
}

fused_decode() {  # KV_HEADS PLACE RANKS DEVICES CONTEXTS
  fused_bench "$1" "$2" "$3" "$4" flash-decode --heads 96 --kv-heads "$1" --head-dim 128 --context "$5" --dtype float16
}

# Small shapes, a process a rank, on one GPU in turns.
fused_sanitizers() {
  local tool limit start
  for tool in memcheck racecheck; do
    start=$SECONDS
    limit=$(seconds_for 90) || { skip "fused-$tool"; continue; }
    processes 2 timeout -k 5 "$limit" compute-sanitizer --tool $tool --error-exitcode 9 "$bin/heddle_fused_cases" --fabric nvlink-ipc \
      --calls 6 --deadline 60 >"$logs/fused-$tool.log" 2>&1
    record "fused-$tool" $? $((SECONDS - start))
  done
}

fused_soak() {  # CALLS of each operator, on ranks that are late at random, SECONDS
  run "fused-soak-$1" "$2" "$bin/heddle_fused_cases" --fabric nvlink-ipc --threads 2 --calls "$1" --late 200000 --seed 7
}

# Perfetto's files, and where the time of each variant went.
fused_traces() {  # GPUS
  local devices operator arguments
  if [ "$1" -ge 2 ]; then devices=$(gpus_of 2); else devices=$(shared_gpu 2); fi
  for operator in all-gather-linear linear-reduce-scatter flash-decode; do
    arguments=(--m "96,2048" --n 8192 --k 8192)
    [ $operator != flash-decode ] || arguments=(--context 32768)
    run "fused-trace-$operator" 60 "$bin/heddle" trace -o "$logs/fused-trace-$operator.trace" --report "$logs/fused-trace-$operator-report.json" \
      bench $operator --ranks 2 --device "$devices" "${arguments[@]}" --dtype bfloat16 --repeats 5
  done
}

# Written to memory, which is no slower than a page cache that holds it.
load() {
  local model
  for model in "${models[@]}"; do
    HEDDLE_CACHE_DIR=/dev/shm/heddle-gpu-load run "load-$model" 90 "$bin/heddle" bench load --device cuda --model "synth:$model" \
      --repeats 3 --json "$logs/gpu-h200-load-$model.json"
    rm -rf /dev/shm/heddle-gpu-load
  done
}

# Tokens a second as a user gets them, and as steps alone give them, after as long a prompt.
generate() {
  local model prompt
  prompt=$(python3 -c 'print("the " * 1000)')
  for model in "${models[@]}"; do
    run "generate-$model" 60 "$bin/heddle" generate --device cuda --model "synth:$model" --prompt "$prompt" --max-tokens 512 \
      --temperature 0.8 --verbose
    sed -nE 's|^heddle: .*; decode [0-9]+ tokens, ([0-9.]+) tok/s.*|{"peer": "generate", "model": "'"$model"'", "tokens_per_second": \1}|p' \
      "$logs/generate-$model.log" | tee "$logs/gpu-h200-generate-$model.lines"
    model_bench "generate-steps-$model" 40 decode "$model" --case 1x1024 --tokens 512 --repeats 3
  done
}

batches() {
  model_bench "batches-${models[0]}" 60 decode "${models[0]}" --context 1024 --repeats 5 \
    --batch 1,2,3,4,5,6,7,8,12,16,24,32,48,64
}

pages() {
  local size
  for size in 16 32 64 128 256; do
    model_bench "pages-$size-${models[0]}" 20 decode "${models[0]}" --case 1x4096,1x16384,16x4096 --repeats 5 --page-size "$size"
  done
}

# packed NAME: unpacks a baseline's packages once; prints the folder for PYTHONPATH.
packed() {
  local site=$home/site-$1
  [ -d "$site" ] || bash "$root/.peers/$1/install.sh" "$site" >&2 || return 1
  echo "$site"
}

# Heddle before and after the baseline: the difference between Heddle's two runs shows how much the machine varies.
vllm() {
  local model=${models[0]} site start=$SECONDS limit
  [ -f "$root/.peers/vllm/site.tar.xz" ] || { echo "vllm: $root/.peers/vllm is missing"; return; }
  decode_of "$model" 40
  [ "$model" = llama-2-7b ] || prefill_of "$model" 40
  site=$(packed vllm) || { record vllm-unpack 1 $((SECONDS - start)); return; }
  limit=$(seconds_for 150) || { skip "vllm-$model"; return; }
  start=$SECONDS
  env -u CUDA_MODULE_LOADING LD_LIBRARY_PATH="$plain_library_path" PYTHONPATH="$site" VLLM_USE_FLASHINFER_SAMPLER=0 \
    timeout -k 5 "$limit" python3 "$root/.peers/vllm_peer.py" --logs "$home/vllm-logs" --budget $((limit - 20)) \
    --only "$model/decode*,$model/prefill*" >"$logs/gpu-h200-vllm-$model.lines" 2>"$logs/vllm-$model.log"
  record "vllm-$model" $? $((SECONDS - start))
  mv "$logs/gpu-h200-decode-$model.json" "$logs/gpu-h200-vllm-before-$model.json" 2>/dev/null
  decode_of "$model" 40
}

# Decode attention of one sequence, 8 and 32 KV heads: Heddle, FlashInfer, Heddle, FlashInfer, Heddle. FlashInfer's first run compiles.
flashinfer() {
  local site start=$SECONDS limit turn model
  [ -f "$root/.peers/flashinfer/site.tar.xz" ] || { echo "flashinfer: $root/.peers/flashinfer is missing"; return; }
  site=$(packed flashinfer) || { record flashinfer-unpack 1 $((SECONDS - start)); return; }
  for turn in 1 2 3; do
    for model in llama-3-8b llama-2-7b; do
      run "flashinfer-heddle-$turn-$model" 30 "$bin/heddle" bench operator --device cuda --operator attention --model $model \
        --dtype bfloat16 --case 1x1023,1x4095,1x16383,1x131071 --json "$logs/gpu-h200-flashinfer-heddle-$turn-$model.json"
    done
    [ $turn = 3 ] && return
    limit=$(seconds_for 120) || { skip "flashinfer-$turn"; return; }
    start=$SECONDS
    env -u CUDA_MODULE_LOADING LD_LIBRARY_PATH="$plain_library_path" PYTHONPATH="$site" timeout -k 5 "$limit" \
      python3 "$root/.peers/flashinfer_peer.py" --only decode >"$logs/gpu-h200-flashinfer-$turn.lines" 2>"$logs/flashinfer-$turn.log"
    record "flashinfer-$turn" $? $((SECONDS - start))
  done
}

nvidia-smi topo -m >"$logs/topology.txt" 2>&1
nvidia-smi -q -d CLOCK >"$logs/clocks.txt" 2>&1
models=("${bench_args[@]}")
[ ${#models[@]} -gt 0 ] || models=(llama-3-8b llama-2-7b llama-3.2-1b)
for step in "${steps[@]}"; do
  case $step in
    smoke) smoke ;;
    cases) cases ;;
    bench) bench ;;
    conformance) conformance ;;
    soak) soak ;;
    failure) failure ;;
    threads) threads ;;
    sanitize) sanitize ;;
    replays) replays ;;
    gpu-tests) gpu_tests ;;
    decode) decode ;;
    plain) plain ;;
    short) short ;;
    prefill) prefill ;;
    startup) startup ;;
    operators) operators ;;
    compared) compared ;;
    memcheck) memcheck ;;
    mutations) mutations ;;
    broken) broken ;;
    accuracy) accuracy ;;
    tp) tp ;;
    every-gpu) every_gpu ;;
    decode-choice) decode_choice ;;
    cluster) cluster ;;
    cluster-figures) cluster_figures ;;
    token-weave) token_weave ;;
    sequence-attention) sequence_attention ;;
    fused) fused ;;
    fused-soak) fused_soak 10000 3600 ;;
    load) load ;;
    generate) generate ;;
    batches) batches ;;
    pages) pages ;;
    vllm) vllm ;;
    flashinfer) flashinfer ;;
  esac
done
keep
exit $failed
