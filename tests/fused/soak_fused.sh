#!/bin/sh
# Ten thousand calls of every fused operator in each of its forms, of random shapes and variants, on ranks that are late at
# random: 3 threads, then 3 processes. CI runs some dozens of them (fused_test.cpp).
# tests/fused/soak_fused.sh BUILD [CALLS]
set -eu
build=$1
calls=${2:-10000}
cases=$build/tests/fused/heddle_fused_cases
begin=$(date +%s)
echo "3 threads, $calls calls of each form"
"$cases" --threads 3 --calls "$calls" --late 100000 --seed 3
echo "3 processes, $calls calls of each form"
"$build/apps/cli/heddle" launch -n 3 -- "$cases" --fabric shm --calls "$calls" --late 100000 --seed 5
echo "$(($(date +%s) - begin)) s"
