#!/usr/bin/env bash
# Runs all of `heddle bench` on this machine's CPU; writes one JSON file per benchmark to $OUT.
#   HEDDLE   the program            (build/cpu/apps/cli/heddle)
#   OUT      folder for the JSON    (bench/results)
#   NAME     prefix of the files    (cpu-<host's processor count>)
#   MODEL    a synthetic model      (synth:llama-3.2-1b)
#   FOLDER   the same as a folder, for `load`; written by `heddle synth` if it does not exist
#   BASELINE a baseline, or "none"  (llama.cpp)
#   THREADS  of both                (all)
#   REPEATS  samples per case       (10)
#   RUN      prefix of each run, such as `taskset -c 0-15`
# On a machine without a checkout, set HEDDLE, HEDDLE_BASELINES, and PYTHONPATH to the baseline's package.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
heddle=${HEDDLE:-$root/build/cpu/apps/cli/heddle}
export HEDDLE_BASELINES=${HEDDLE_BASELINES:-$root/bench/baselines}
out=${OUT:-$root/bench/results}
threads=${THREADS:-$(nproc)}
name=${NAME:-cpu-$threads-threads}
model=${MODEL:-synth:llama-3.2-1b}
folder=${FOLDER:-${TMPDIR:-/tmp}/heddle-bench-${model//[:,=]/-}}
baseline=${BASELINE:-llama.cpp}
repeats=${REPEATS:-10}
mkdir -p "$out"
compare=()
[ "$baseline" = none ] || compare=(--compare "$baseline")
read -r -a before <<<"${RUN:-}"

bench() {  # bench FILE ARGUMENTS...: reports a failure and continues with the others
  local file=$1
  shift
  echo "== heddle bench $*"
  "${before[@]}" "$heddle" bench "$@" --repeats "$repeats" --json "$out/$name-$file.json" || { echo "failed: $file" >&2; failed=1; }
}

failed=0
common=(--model "$model" --threads "$threads")
bench decode decode "${common[@]}" --batch 1,8 --context 0 --tokens 16 "${compare[@]}"
bench prefill prefill "${common[@]}" --tokens 512 --context 0 "${compare[@]}"
bench decode-4096 decode "${common[@]}" --batch 1,8 --context 4096 --tokens 16 "${compare[@]}"
bench prefill-4096 prefill "${common[@]}" --tokens 512 --context 4096 "${compare[@]}"
bench decode-float32 decode "${common[@]}" --compute float32 --batch 1 --context 0 --tokens 16
[ -d "$folder" ] || "$heddle" synth "$model" --out "$folder"
bench load load --model "$folder" --threads "$threads" "${compare[@]}"
bench tokenize tokenize --model "$model"
exit "$failed"
