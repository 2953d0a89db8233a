#!/usr/bin/env bash
# Builds heddle if need be, then runs it with the given arguments. Without arguments: the demo model tells a story.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$root/scripts/setup.sh" heddle
if [ $# -eq 0 ]; then
  set -- generate --model "$root/assets/demo-llama" --prompt "Once upon a time" --echo --max-tokens 200 --temperature 0.7 --seed 1
fi
exec "$root/build/${HEDDLE_PRESET:-release}/apps/cli/heddle" "$@"
