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
names_a_model() {  # WORD...: whether --model or -m is among them, or a word that is no option and no value of one
  local word option=''  # the option that takes the next word as its value; empty: none does
  for word in "$@"; do
    case $word in
      -m* | --model | --model=*) return ;;
      --verbose | --no-prefix-cache | --log-requests | --*=* | --) option='' ;;  # which take none
      -*) option=$word ;;
      synth:*) return ;;
      *)
        if [ -z "$option" ] || [ -e "$word/config.json" ]; then return; fi
        [ "$option" = --served-model-name ] || option=''  # which takes several
        ;;
    esac
  done
  return 1
}
if [ "$1" = serve ] && ! names_a_model "${@:2}"; then
  set -- "$@" --model "$root/assets/demo-llama"
fi
exec "$root/build/$HEDDLE_PRESET/apps/cli/heddle" "$@"
