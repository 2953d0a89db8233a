#!/usr/bin/env bash
# Builds heddle if need be, with CUDA where that is here (scripts/preset_here.sh), then runs it with the given arguments.
# Without arguments: the demo model tells a story. `./run.sh serve [option...]` without a model serves the demo model.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
HEDDLE_PRESET=$("$root/scripts/preset_here.sh")
export HEDDLE_PRESET
"$root/scripts/setup.sh" heddle
if [ $# -eq 0 ]; then
  set -- generate --model "$root/assets/demo-llama" --prompt "Once upon a time" --echo --max-tokens 200 --temperature 0.7 --seed 1
fi
names_a_model() {  # WORD...: whether --model, -m or a folder or synth: name is among them
  local word
  for word in "$@"; do
    [[ $word = -m* || $word = --model || $word = --model=* || $word = synth:* || -e $word/config.json ]] && return
  done
  return 1
}
if [ "$1" = serve ] && [[ ${2:--} = -* ]] && ! names_a_model "${@:2}"; then
  set -- "$@" --model "$root/assets/demo-llama"
fi
exec "$root/build/$HEDDLE_PRESET/apps/cli/heddle" "$@"
