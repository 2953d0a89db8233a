#!/bin/sh
# Ten thousand calls of the fused all-reduce and RMSNorm, of random shapes, dtypes and regimes, on ranks that are late at
# random: threads, then processes. CI runs some hundreds of them (fused_test.cpp).
# tests/fused/soak_norm.sh BUILD [CALLS]
set -eu
build=$1
calls=${2:-10000}
cases=$build/tests/fused/heddle_fused_cases
for ranks in 2 3 4; do
  echo "$ranks threads"
  "$cases" --threads "$ranks" --calls "$calls" --late 200000 --seed "$ranks" --only all_reduce_norm
done
echo "3 processes"
"$build/apps/cli/heddle" launch -n 3 -- "$cases" --fabric shm --calls "$calls" --late 200000 --only all_reduce_norm
