#!/usr/bin/env bash
# How .ci/run counts steps, on a machine without nvcc: the CUDA step is skipped, an unknown one fails.
#   tests/end_to_end/ci_run.sh CI_RUN
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
status=0

mkdir -p "$place/bin" "$place/checkout/.ci"
for tool in bash dirname env ls mkdir; do ln -s "$(command -v "$tool")" "$place/bin/$tool"; done
cp "$1" "$place/checkout/.ci/run"

expect() {  # last line, exit status, step...
  local last=$1 code=$2 got=0 output
  output=$(env -i PATH="$place/bin" CUDA_HOME="$place/none" "$place/checkout/.ci/run" "${@:3}" 2>&1) || got=$?
  if [ "${output##*$'\n'}" != "$last" ] || [ "$got" != "$code" ]; then
    printf 'FAILED: .ci/run %s: exit status %s, expected %s; its last line is not "%s":\n%s\n' "${*:3}" "$got" "$code" "$last" "$output"
    status=1
  fi
}

expect "0 passed, 0 failed, 1 skipped" 1 hopper  # 1: nothing has passed
expect "0 passed, 1 failed, 1 skipped" 1 hopper none
exit "$status"
