#!/usr/bin/env bash
# weave_soak.sh BUILD: 10 000 steps of every way in which ranks add, in one part and in two, while ranks and lanes are late at
# random: each step must repeat the bits of one that is not late. BUILD/tests has test_parallel and test_engine. Takes
# some minutes; prints what it ran, and fails at the first other bit.
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
# 25 steps of an all-reduce and a norm, and of the fused operator in each regime, on 2, on 3 and on 4 ranks.
run 134 parallel/test_parallel 'TokenWeave.LateLanesChangeNoBit/*-*/on_1_ranks' "strategies in two parts, 75 steps of each kind on 2, 3 and 4 ranks"
# About 30 steps of each mode on 3 ranks: chunks beside decoding, preemption, a request that is cancelled.
run 340 engine/test_engine WovenEngine.LateRanksChangeNoTokenInAnyMode "engines in the modes default, symmetric, fused and weave, about 30 steps of each"
