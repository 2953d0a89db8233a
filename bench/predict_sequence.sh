#!/usr/bin/env bash
# Usage: bench/predict_sequence.sh HEDDLE
#
# What sequence parallelism is predicted to take, into bench/results/sequence-predicted-*.json: figures 7 to 10 at the paper's rates,
# and layers on two and four H200s at measured ones (bench/sequence_rates.py). Without links to emulate, machines are names, as in
# scripts/gpu.sh sequence-attention: NVLink is between all of their GPUs.
set -euo pipefail
heddle=$(realpath "$1")
cd "$(dirname "$0")/.."
results=bench/results
link=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["rates"]["gpu_link_gbps"])' $results/sequence-rates-h200.json)

for figure in 7 8 9 10; do
  "$heddle" bench sequence-attention --figure $figure --json "$results/sequence-predicted-figure-$figure.json" >/dev/null
done

# predict NAME MACHINESxGPUS TOKENSxHEAD_DIM GBPS_OF_A_GPU ARGUMENTS...: each strategy with its fastest degree.
predict() {
  local name=$1 machines=${2%x*} gpus=${2#*x} tokens=${3%x*} head_dim=${3#*x} gbps=$4
  shift 4
  "$heddle" bench sequence-attention --figure 7 --predict --machines "$machines" --gpus "$gpus" --tokens "$tokens" --heads 24 \
    --head-dim "$head_dim" --rates $results/sequence-rates-h200.json \
    --rates "$results/sequence-figure-12-$tokens-x-$head_dim-h200.json" \
    --machine-gbps "$(awk "BEGIN { print $gbps * $gpus }")" "$@" \
    --json "$results/sequence-predicted-h200-$name-${machines}x$gpus-$tokens-x-$head_dim.json" >/dev/null
}
for machines in 2x1 4x1 2x2; do
  for layer in 4608x128 37376x128 167504x64; do
    predict gpus $machines $layer "$link" --remote-us 5
    predict links $machines $layer 18.75
  done
done
