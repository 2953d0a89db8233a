#!/usr/bin/env bash
# Runs a test program once for each filter, each run on one core, and as many runs at once as this process may use cores
# (four at most).   tests/one_core.sh PROGRAM REPORT FOLDER FILTER...
# Prints what a run has printed when it ends. Writes to REPORT a line of each suite, as tests/count.awk reads it, and
# GoogleTest's own reports to FOLDER. Exits 1 if a run failed.
set -euo pipefail
program=$1 report=$2 folder=$3
shift 3

cores=()
IFS=, read -ra ranges <<<"$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"
for range in "${ranges[@]}"; do
  for ((core = ${range%-*}; core <= ${range#*-}; ++core)); do cores+=("$core"); done
done

rm -rf "$folder"
mkdir -p "$folder"
# On a core, one after the other, what no other core has taken.
run_on() {  # core, filter...
  local core=$1 number=0 filter failed=0
  for filter in "${@:2}"; do
    number=$((number + 1))
    mkdir "$folder/$number" 2>/dev/null || continue
    taskset -c "$core" "$program" --gtest_filter="$filter" --gtest_output="xml:$folder/$number/report.xml" \
      >"$folder/$number/log" 2>&1 || failed=1
    cat "$folder/$number/log"
  done
  return $failed
}
lanes=()
for core in "${cores[@]:0:4}"; do
  run_on "$core" "$@" &
  lanes+=($!)
done
status=0
for lane in "${lanes[@]}"; do wait "$lane" || status=1; done
[ "$(find "$folder" -name report.xml | wc -l)" = $# ] || status=1  # a run that left none
grep -h '^ *<testsuite ' "$folder"/*/report.xml >"$report" || status=1
exit $status
