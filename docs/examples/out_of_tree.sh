#!/usr/bin/env bash
# Installs the package of a build, builds three examples against it as a user would (find_package), and runs them:
#   docs/examples/out_of_tree.sh BUILD_FOLDER
# The others use the same headers and libraries, and the build that is installed has compiled them.
set -euo pipefail
build=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
place=$build/out_of_tree
# Installed files keep their times, so that another run compiles only what has changed.
rm -rf "$place/heddle"
mkdir -p "$place"
grep -sqxF "CMAKE_HOME_DIRECTORY:INTERNAL=$here" "$place/build/CMakeCache.txt" || rm -rf "$place/build"
CUDACXX=$(sed -n 's/^HEDDLE_NVCC:FILEPATH=//p' "$build/CMakeCache.txt")  # empty: a build without CUDA
export CUDACXX
cmake --install "$build" --prefix "$place/heddle" >"$place/log" || { cat "$place/log"; exit 1; }
cmake -G Ninja -S "$here" -B "$place/build" -DCMAKE_PREFIX_PATH="$place/heddle" >>"$place/log" || { cat "$place/log"; exit 1; }
cmake --build "$place/build" --target 05_schedule 07_collective 08_generate >>"$place/log" || { cat "$place/log"; exit 1; }
"$place/build/05_schedule" --ranks 3 | grep 'rank 2 has 3 of 3 pieces'
"$place/build/07_collective" --ranks 3 | grep 'rank 2: 1048576 of 1048576 sums are 6'
"$place/build/08_generate" "$here/../../assets/demo-llama" "137 + 254 =" | grep -x '137 + 254 = 391'
