#!/usr/bin/env bash
# Which steps .ci/run takes and how it counts them, on a machine that has nothing: no nvcc, so the CUDA step is skipped, and
# no tools, so each other step fails. And that the jobs of the hosted workflow have every step, one of them the gate.
#   tests/end_to_end/ci_run.sh CI_RUN WORKFLOW
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
status=0

mkdir -p "$place/bin" "$place/checkout/.ci"
for tool in bash dirname env ls mkdir; do ln -s "$(command -v "$tool")" "$place/bin/$tool"; done
cp "$1" "$place/checkout/.ci/run"

fail() {
  printf 'FAILED: %s\n' "$*"
  status=1
}

run() {  # step...: sets output and got
  got=0
  output=$(env -i PATH="$place/bin" CUDA_HOME="$place/none" "$place/checkout/.ci/run" "$@" 2>&1) || got=$?
}

expect() {  # last line, exit status, step...
  local last=$1 code=$2
  run "${@:3}"
  if [ "${output##*$'\n'}" != "$last" ] || [ "$got" != "$code" ]; then
    fail ".ci/run ${*:3}: exit status $got, expected $code; its last line is not \"$last\":"$'\n'"$output"
  fi
}

expect "0 passed, 0 failed, 1 skipped" 1 hopper  # 1: nothing has passed
expect "0 passed, 1 failed, 1 skipped" 1 hopper none
expect "0 passed, 4 failed, 1 skipped" 1
expect "0 passed, 8 failed, 1 skipped" 1 all
[[ $output != *"not run here"* ]] || fail ".ci/run all leaves out steps: $output"

not_run() {  # step...
  run "$@"
  sed -n 's/^not run here: \(.*\) (\.ci\/run all runs every step)$/\1/p' <<<"$output"
}
every=$(not_run none)
rest=$(not_run)
[ "$rest" = "asan fuzz tidy neon" ] || fail "beside the gate there is: $rest"
[ "$every" = "format shell cpu hopper tsan $rest" ] || fail "the steps are: $every"
jobs=$(sed -nE '/^ *runs-on:/q; s/^ *- ([a-z ]*[a-z])( *#.*)?$/\1/p' "$2")
[ "$(head -n 1 <<<"$jobs")" = "${every% "$rest"}" ] || fail "the first job of $2 is not the gate: $jobs"
[ "$(xargs <<<"$jobs")" = "$every" ] || fail "the jobs of $2 run: $jobs"
exit "$status"
