#!/usr/bin/env bash
# Fuzzes every target, two or more at a time. Usage: tests/fuzz/run.sh [SECONDS a target] [WORKERS in all] [TARGET...]
# Needs no compiler if heddle_fuzz is built: HEDDLE_FUZZ_PROGRAM names it (build/asan/tests/fuzz/heddle_fuzz),
# HEDDLE_FUZZ_DATA tests/data. Under $OUT (build/asan/out): TARGET.log, corpus/TARGET (inputs that reach something new),
# findings/ (failing inputs; HEDDLE_FUZZ_WORKERS, 1, are the processes per target). Prints each finding with its
# base64, ends with one line per target and "N passed, N failed"; exits 1 after a finding.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
seconds=${1:-60} workers=${2:-$(nproc)}
shift $(($# < 2 ? $# : 2))
root=$(cd "$here/../.." && pwd)
program=${HEDDLE_FUZZ_PROGRAM:-$root/build/asan/tests/fuzz/heddle_fuzz}
export HEDDLE_FUZZ_DATA=${HEDDLE_FUZZ_DATA:-$root/tests/data}
out=${OUT:-$root/build/asan/out}
per_target=${HEDDLE_FUZZ_WORKERS:-1}
targets=("$@")
if [ $# -eq 0 ]; then
  for corpus in "$here"/corpus/*/; do targets+=("$(basename "$corpus")"); done
fi
mkdir -p "$out/findings" || exit 1

# Fuzzes one target: replays its committed corpus, then runs libFuzzer. Returns libFuzzer's exit status.
fuzz() {
  local target=$1 options
  options=("--target=$target" -timeout=25 -rss_limit_mb=2048 -malloc_limit_mb=512 -max_len=16384 -report_slow_units=2
    -artifact_prefix="$out/findings/$target-" -print_final_stats=1 -close_fd_mask=1)
  if [ -e "$here/$target.dict" ]; then options+=("-dict=$here/$target.dict"); fi
  mkdir -p "$out/corpus/$target"
  "$program" "${options[@]}" -runs=0 "$here/corpus/$target" || return
  if [ "$seconds" -eq 0 ]; then return; fi
  if [ "$per_target" -gt 1 ]; then options+=("-fork=$per_target" -ignore_crashes=1 -ignore_timeouts=1 -ignore_ooms=1); fi
  "$program" "${options[@]}" -max_total_time="$seconds" "$out/corpus/$target" "$here/corpus/$target"
}

# The last status in the log: with workers "#N: cov: C ft: F ...", else "#N DONE cov: C ft: F ...".
summary() {
  local line new
  line=$(grep -a -E '^#[0-9]+(:|[[:space:]]).*cov: ' "$out/$1.log" | tail -n 1)
  new=("$out/corpus/$1"/*)
  [ -e "${new[0]}" ] || new=()
  echo "$(sed -n 's/^#\([0-9]*\).*/\1/p' <<<"$line") executions, coverage $(sed -n 's/.*cov: \([0-9]*\).*/\1/p' <<<"$line")," \
    "${#new[@]} new corpus entries, $2 findings"
}

cd "$out" || exit 1
declare -A target_of=()
failed=0 passed=0
finish_one() {
  local process status target finding
  wait -n -p process
  status=$?
  target=${target_of[$process]}
  unset "target_of[$process]"
  findings=()
  for finding in "$out/findings/$target"-{crash,timeout,oom,leak}-*; do
    if [ -e "$finding" ]; then findings+=("$finding"); fi
  done
  if [ $status -eq 0 ] && [ ${#findings[@]} -eq 0 ]; then
    passed=$((passed + 1))
    printf '%-14s ok      %s\n' "$target" "$(summary "$target" 0)"
    return
  fi
  failed=$((failed + 1))
  printf '%-14s FAILED  %s; log: %s\n' "$target" "$(summary "$target" ${#findings[@]})" "$out/$target.log"
  grep -a -h -A 1 'terminate called\|^slow: \|ERROR: ' "$target.log" | head -n 6
  for finding in "${findings[@]:0:4}"; do printf '%s\n  base64: %s\n' "$finding" "$(head -c 65536 "$finding" | base64 -w 0)"; done
}

for target in "${targets[@]}"; do
  while [ ${#target_of[@]} -ge $((workers / per_target > 1 ? workers / per_target : 1)) ]; do finish_one; done
  fuzz "$target" >"$target.log" 2>&1 &
  target_of[$!]=$target
done
while [ ${#target_of[@]} -gt 0 ]; do finish_one; done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
