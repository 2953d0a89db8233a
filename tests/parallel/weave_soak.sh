#!/usr/bin/env bash
# weave_soak.sh BUILD: 10 000 steps of every way in which ranks add, in two parts, by ranks that meet once, while their lanes are late
# at random: each step must repeat the bits of one that is not late. Then an engine of each mode takes as many. BUILD/tests has test_parallel and test_engine. Takes some minutes; prints what it ran, and fails at the first other bit.
set -euo pipefail
tests=$1/tests log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() { # TIMES PROGRAM FILTER WHAT
  local begin=$SECONDS
  "$tests/$2" --gtest_filter="$3" --gtest_repeat="$1" --gtest_shuffle --gtest_fail_fast --gtest_brief=1 >"$log" 2>&1 ||
    { tail -n 20 "$log"; exit 1; }
  grep -q '^\[  PASSED  \] [1-9]' "$log" || { echo "no test is $3"; exit 1; }
  echo "$4: $1 times, $((SECONDS - begin)) s"
}
# An all-reduce and a norm, and the fused operator in each regime.
for ranks in 2 3 4; do
  HEDDLE_LATE_STEPS=10000 run 1 parallel/test_parallel "TokenWeave.LateLanesChangeNoBit/on_${ranks}_ranks" \
    "one world of $ranks ranks, 10 000 steps of each kind"
done
# An engine of each mode on 3 ranks: chunks beside decoding, preemption, requests that are cancelled.
HEDDLE_LATE_STEPS=10000 run 1 engine/test_engine WovenEngine.LateRanksChangeNoTokenInAnyMode \
  "an engine in each of the modes default, symmetric, fused and weave, 10 000 steps of each"
