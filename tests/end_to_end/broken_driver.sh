#!/usr/bin/env bash
# Behaviour of heddle when the GPU or its driver fails: no GPU, driver too old, another architecture, too little memory, and a
# GPU that is lost while weights are loaded, while text is generated, in a chat, in a bench. Needs a GPU and
# the real driver, which broken_driver.cpp intercepts; exits with 77 where there is none.
#   tests/end_to_end/broken_driver.sh HEDDLE BROKEN_DRIVER MODEL_FOLDER
set -uo pipefail
heddle=${1:?the program} driver=${2:?the library of broken_driver.cpp} model=${3:?the folder of a small model}
[ -e /dev/nvidiactl ] || { echo "skipped: no GPU here"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0

# attempt NAME=VALUE... COMMAND...: runs under the broken driver; sets out, err and status.
attempt() {
  timeout -k 5 60 env LD_PRELOAD="$driver" "$@" >"$folder/out" 2>"$folder/err"
  status=$?
}

# expect CASE CONDITION...: the results of the last attempt must satisfy the command.
expect() {
  local name=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
    return
  fi
  failed=$((failed + 1))
  printf 'FAILED %s: %s (status %s)\n' "$name" "$*" "$status"
  head -c 2000 "$folder/out" "$folder/err"
}

ended_with() { [ "$status" = "$1" ]; }
says() { grep -qE -- "$1" "$folder/err"; }
said_once() { [ "$(grep -c 'error:' "$folder/err")" = 1 ]; }
wrote() { grep -qF -- "$1" "$folder/out"; }
wrote_a_part_of() { [ -s "$folder/out" ] && [[ $1 == "$(cat "$folder/out")"* ]]; }

generate=("$heddle" generate --model "$model" --prompt "Once upon a time" --max-tokens 40 --temperature 0)
text=$("${generate[@]}" --device cpu 2>/dev/null) || { echo "FAILED: the CPU does not generate"; exit 1; }

# refused CASE PATTERN NAME=VALUE...: --device cuda fails with that error; without it the CPU answers as usual.
refused() {
  local name=$1 pattern=$2
  shift 2
  attempt "$@" "${generate[@]}" --device cuda
  expect "$name" ended_with 1
  expect "$name" said_once
  expect "$name" says "$pattern"
  expect "$name" says "--device cpu"
  attempt "$@" "${generate[@]}"
  expect "$name, device not named" ended_with 0
  expect "$name, device not named" wrote "$text"
}

# lost CASE NAME=VALUE... COMMAND...: fails quickly, with an error that says what to do.
lost() {
  local name=$1
  shift
  attempt "$@"
  expect "$name" ended_with 1
  expect "$name" said_once
  expect "$name" says "can use its GPU no more.*nvidia-smi.*--device cpu"
}

attempt "${generate[@]}" --device cuda
expect "a driver that serves" ended_with 0
refused "no GPU" "no CUDA-capable device" BROKEN_DRIVER_CALL=cuInit:1:100
refused "driver too old" "driver is too old: it knows CUDA 12.2" BROKEN_DRIVER_VERSION=12020
refused "another architecture" "compute capability 8.0" BROKEN_DRIVER_CAPABILITY=8.0
refused "too little memory" "[GM]iB are missing.*would fit" BROKEN_DRIVER_FREE=1048576
expect "too little memory, device not named" says "warning: .*too little memory.*on the CPU"

attempt BROKEN_DRIVER_CALL=cuMemAlloc:2:2:once "${generate[@]}" --device cuda
expect "memory refused" ended_with 1
expect "memory refused" says "cannot allocate [0-9]+ bytes"

for call in cuMemAlloc:2:719 cuMemcpyAsync:2:719 cuGraphLaunch:1:719 cuGraphLaunch:9:719 cuGraphLaunch:9:999 cuEventQuery:9:719 cuStreamQuery:3:46; do
  lost "lost at $call" BROKEN_DRIVER_CALL=$call "${generate[@]}" --device cuda
done
lost "lost in the middle of a text" BROKEN_DRIVER_CALL=cuGraphLaunch:12:719 "${generate[@]}" --device cuda
expect "lost in the middle of a text" wrote_a_part_of "$text"
lost "lost in a chat" BROKEN_DRIVER_CALL=cuGraphLaunch:3:719 "$heddle" chat --model "$model" --device cuda <<<"Once upon a time"
lost "lost in a bench" BROKEN_DRIVER_CALL=cuGraphLaunch:9:719 "$heddle" bench decode --model "$model" --device cuda --json "$folder/bench.json"
expect "lost in a bench" [ ! -e "$folder/bench.json" ]

echo "$passed passed, $failed failed"
[ $failed = 0 ]
