#!/bin/sh
# The image of packaging/Containerfile has every library that the program loads. Usage: container_libraries.sh PROGRAM
# Exit status 77, for ctest to skip, where this is not the Debian that the image is made of.
set -eu
container=$(dirname "$0")/../../packaging/Containerfile
grep -q '^VERSION_ID="12"' /etc/os-release && command -v objdump >/dev/null || exit 77
# Every image has those of the compiler and of C, or what is named brings them.
files=$(objdump -p "$1" | awk '$1 == "NEEDED" { print $2 }' | grep -vE '^(libc|libm|libgcc_s|libstdc\+\+|ld-linux.*)\.so' |
  while read -r library; do realpath "$(ldconfig -p | awk -v name="$library" '$1 == name { print $NF; exit }')"; done)
missing=0
# shellcheck disable=SC2086  # a word a file
for package in $(dpkg -S $files | sed 's/:.*//' | sort -u); do
  grep -qE "[ =]$package( |\$)" "$container" || { echo "$container: $package is missing"; missing=1; }
done
exit $missing
