#!/bin/sh
# The image of packaging/Containerfile has every library that the program loads. Usage: container_libraries.sh PROGRAM
# Exit status 77, for ctest to skip, where this is not the Debian that the image is made of.
set -eu
container=$(dirname "$0")/../../packaging/Containerfile
grep -q '^VERSION_ID="12"' /etc/os-release && command -v objdump >/dev/null || exit 77
missing=0
for library in $(objdump -p "$1" | awk '$1 == "NEEDED" { print $2 }'); do
  case $library in
    libc.* | libm.* | ld-linux* | libgcc_s.* | libstdc++.*) continue ;;  # every image has them, or what is named brings them
  esac
  package=$(dpkg -S "$(realpath "$(ldconfig -p | awk -v name="$library" '$1 == name { print $NF; exit }')")" | sed 's/:.*//')
  grep -qE "[ =]$package( |\$)" "$container" || { echo "$container: $package is missing, for $library"; missing=1; }
done
exit $missing
