#!/usr/bin/env bash
# Prints the preset that run.sh builds: $HEDDLE_PRESET where it is set; cuda where CUDA 13's nvcc and a GPU of compute
# capability 9.0 (H100, H200) are here; else release, before whose first build a note on standard error says what of
# these is here and what is missing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [ -n "${HEDDLE_PRESET:-}" ]; then
  echo "$HEDDLE_PRESET"
  exit
fi

on_the_cpu() {  # why
  [ -e "$root/build/release/apps/cli/heddle" ] || echo "heddle: building without CUDA: $1" >&2
  echo release
  exit
}

nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
# Its lines are "NVIDIA H200, 9.0"; a driver that does not answer counts as none.
gpus=$(timeout 30 nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader 2>/dev/null) || gpus=
hopper=$(grep -m 1 ', 9\.0$' <<<"$gpus") || hopper=

if [ ! -x "$nvcc" ]; then
  [ -z "$hopper" ] || on_the_cpu "here is an ${hopper%,*}, but no nvcc; install the CUDA 13 toolkit to use the GPU"
elif [ -z "$hopper" ]; then
  [ -z "$gpus" ] || on_the_cpu "the GPU is an ${gpus%%,*}, and Heddle's kernels are for H100 and H200 alone"
else
  release=$("$nvcc" --version | sed -n 's/.* release \([0-9]*\)\..*/\1/p')
  [ "${release:-0}" -ge 13 ] || on_the_cpu "$nvcc is of CUDA ${release:-?}, and the kernels need CUDA 13"
  echo cuda
  exit
fi
echo release
