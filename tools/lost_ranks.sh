#!/usr/bin/env bash
# lost_ranks.sh HEDDLE MODEL: kills and stops each of two process ranks as soon as they start, while they load, compute a
# long prompt, decode, and wait for the user; prints a table of who said what, and how long after. MODEL: one that takes seconds to load, such as
# synth:llama-3.2-1b. The table of docs/notes/ranks.md is its output.
set -uo pipefail
heddle=$1 model=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkfifo "$folder/typed"
exec 3<>"$folder/typed"  # nobody types
python3 -c 'print(" ".join(str(i % 97) for i in range(6000)))' >"$folder/long"

# rank_pid N: the process of rank N, whose environment says so.
rank_pid() {
  local pid
  for pid in $(pgrep -f "^$heddle (generate|chat) --model $model"); do
    tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$pid" && return
  done
}

# command PHASE: how the model is run, and how long to wait before the signal.
run_phase() {
  case $1 in
    start | load) "$heddle" launch -n 2 -- "$heddle" generate --model "$model" --prompt 1 --max-tokens 1 </dev/null ;;
    prefill) "$heddle" launch -n 2 -- "$heddle" generate --model "$model" --prompt "$(cat "$folder/long")" --max-tokens 1 </dev/null ;;
    decode) "$heddle" launch -n 2 -- "$heddle" generate --model "$model" --prompt 1 --max-tokens 4000 --ignore-eos </dev/null ;;
    idle) timeout 150 "$heddle" launch -n 2 -- "$heddle" chat --model "$model" <"$folder/typed" ;;
  esac
}

# wait_for_phase PHASE RANK: until the rank is in that phase.
wait_for_phase() {
  case $1 in
    start) until [ -n "$(rank_pid "$2")" ]; do sleep 0.01; done ;;
    load) sleep "${SECONDS_TO_MEET:-3}" ;;
    *) sleep "${SECONDS_TO_LOAD:-15}" ;;
  esac
}

echo "| phase | signal to | seconds until the run ended | exit status | what was said |"
echo "|---|---|---|---|---|"
for phase in ${PHASES:-start load prefill decode idle}; do
  for signal in KILL STOP; do
    for victim in 0 1; do
      run_phase "$phase" >/dev/null 2>"$folder/out" &
      run=$!
      wait_for_phase "$phase" "$victim"
      pid=$(rank_pid "$victim")
      begin=$(date +%s.%N)
      kill -"$signal" "$pid"
      wait "$run"
      status=$?
      taken=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN {printf "%.1f", b - a}')
      kill -KILL "$pid" 2>/dev/null
      said=$(sed -n 's/^heddle: error: \|^heddle: //p' "$folder/out" | grep -a 'rank [01]' | sort -u | head -n 2 | cut -c1-150 | sed 's/ job [0-9a-f-]*$/ the job/' | paste -sd ';' | tr '|' ' ')
      echo "| $phase | $signal rank $victim | $taken | $status | ${said:-nothing} |"
    done
  done
done
