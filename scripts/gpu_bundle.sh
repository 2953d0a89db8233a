#!/usr/bin/env bash
# Builds what scripts/gpu.sh runs and packs it, with the libraries that a bare machine lacks, into .gpu/fabric or, for the
# steps on one GPU, .gpu/one-gpu (git ignores both): one file to copy to a machine with GPUs. Needs nvcc, NCCL's headers,
# and some minutes.
#   scripts/gpu_bundle.sh [--one-gpu | --program | --mutations] [BUILD_FOLDER]
# --program is --one-gpu without tests: for benchmarks, small enough to be sent with a baseline's packages.
# --mutations packs test programs with a fault each (mutations.py) into .gpu/mutations; minutes of nvcc for each.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1:-} in
  --one-gpu | --program | --mutations) ;;
  -*) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
kind=fabric
targets=(heddle_conformance heddle_collective_cases test_fabric test_collectives heddle)
if [ "${1:-}" = --one-gpu ]; then
  kind=one-gpu
  targets=(heddle broken_driver heddle_conformance heddle_fused_cases heddle_sequence_cases test_device test_fused test_parallel test_kernels test_engine test_weights test_models test_base)
  shift
elif [ "${1:-}" = --program ]; then
  kind=one-gpu
  targets=(heddle)
  shift
elif [ "${1:-}" = --mutations ]; then
  kind=mutations
  targets=()
  shift
fi
build=${1:-build/hopper}
# Without Open MPI: ranks on one machine do not need it, and another machine's may differ.
cmake --preset hopper -B "$build" -DHEDDLE_MPI=OFF >/dev/null
compress=(xz -T2 -6)
mapfile -t targets < <(for target in "${targets[@]}"; do
  ninja -C "$build" -t query "$target" >/dev/null 2>&1 && echo "$target"
done)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/bin" "$stage/lib" ".gpu/$kind"
if [ $kind = mutations ]; then
  scripts/mutations.py build "$stage" --build-folder "$build"
  compress=(xz '--lzma2=preset=6,dict=128MiB')  # the programs are nearly the same, so one packs the next
else
  ninja -C "$build" -j "$(nproc)" "${targets[@]}"
fi
for target in "${targets[@]}"; do
  program=$(find "$build" -type f -name "$target" -perm -u+x | head -n 1)
  strip -o "$stage/bin/$target" "$program"
done
# Leaves out libraries that every Linux of the other machine's age has, and those of its driver.
system='^(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcuda|libnvidia.*)\.so'
find "$stage/bin" -type f -perm -u+x -exec ldd {} + | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | while read -r library; do
  [[ $(basename "$library") =~ $system ]] || strip -o "$stage/lib/$(basename "$library")" "$library" 2>/dev/null ||
    cp -L "$library" "$stage/lib/"
done
# ICU's data have 31 MB; Heddle's use of ICU does not need them (icu_without_data.c).
for library in "$stage"/lib/libicudata.so.*; do
  [ -e "$library" ] || continue
  gcc -shared -fPIC -O1 "-Wl,-soname,$(basename "$library")" -o "$library.small" scripts/icu_without_data.c
  mv "$library.small" "$library"
done
pwd >"$stage/source_folder"
git describe --always --dirty --abbrev=12 --exclude='*' >"$stage/commit"
tar -C "$stage" -cf - bin lib source_folder commit | "${compress[@]}" >".gpu/$kind/bundle.tar.xz"
printf 'bundle:       %6.1f MiB (%s)\n' "$(stat -c %s ".gpu/$kind/bundle.tar.xz" | awk '{print $1 / 1048576}')" "${targets[*]}"
printf 'working tree: %6.1f MiB of tracked files\n' \
  "$(git ls-files -z | xargs -0 stat -c %s 2>/dev/null | awk '{sum += $1} END {print sum / 1048576}')"
