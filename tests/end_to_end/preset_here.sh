#!/usr/bin/env bash
# Which preset run.sh builds, by what nvcc and nvidia-smi are there: programs of this test play them.
#   tests/end_to_end/preset_here.sh SCRIPTS_FOLDER
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/checkout/scripts"
cp "$1/preset_here.sh" "$place/checkout/scripts"
script=$place/checkout/scripts/preset_here.sh
status=0

# The tools that the script itself needs, and nothing else of this machine's.
for tool in bash dirname env grep sed timeout; do ln -s "$(command -v "$tool")" "$place/$tool"; done

program() {  # name, what it prints or does
  printf '#!%s\n%s\n' "$place/bash" "$2" >"$place/$1"
  chmod +x "$place/$1"
}
nvcc() { program nvcc "echo 'Cuda compilation tools, release $1, V$1.1'"; }
gpus() { program nvidia-smi "printf '%s\n' '$1'"; }
none() { rm -f "$place/nvcc" "$place/nvidia-smi"; }

expect() {  # what it tries, preset, part of the note ("": no note)
  local preset note
  preset=$(env -i PATH="$place" CUDA_HOME="$place/none" ${ASKED:+HEDDLE_PRESET="$ASKED"} "$place/bash" "$script" 2>"$place/note") ||
    preset="exit status $?"
  note=$(cat "$place/note")
  if [ "$preset" != "$2" ] || [[ "$note" != *"$3"* ]] || { [ -z "$3" ] && [ -n "$note" ]; }; then
    echo "FAILED: $1: the preset is \"$preset\", expected \"$2\"; the note is \"$note\", expected \"$3\""
    status=1
  fi
}

none
expect "neither" release ""
nvcc 13.0
expect "nvcc alone" release ""
gpus "NVIDIA H200, 9.0"
expect "both" cuda ""
ASKED=asan expect "a preset that was asked for" asan ""
gpus $'NVIDIA L4, 8.9\nNVIDIA H100 80GB HBM3, 9.0'
expect "a Hopper GPU behind another" cuda ""
gpus "NVIDIA A100-SXM4-80GB, 8.0"
expect "another GPU" release "the GPU is an NVIDIA A100-SXM4-80GB, and Heddle's kernels are for H100 and H200 alone"
mkdir -p "$place/checkout/build/release/apps/cli"
touch "$place/checkout/build/release/apps/cli/heddle"
expect "another GPU, once it is built" release ""
rm -r "$place/checkout/build"
program nvidia-smi "exit 9"
expect "a driver that does not answer" release ""
gpus "NVIDIA H200, 9.0"
nvcc 12.4
expect "an old nvcc" release "is of CUDA 12, and the kernels need CUDA 13"
rm "$place/nvcc"
expect "no nvcc beside a Hopper GPU" release "here is an NVIDIA H200, but no nvcc; install the CUDA 13 toolkit"
mkdir -p "$place/none/bin"
nvcc 13.1
mv "$place/nvcc" "$place/none/bin/nvcc"
expect "nvcc in CUDA's folder" cuda ""
exit "$status"
