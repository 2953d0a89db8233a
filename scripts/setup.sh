#!/usr/bin/env bash
# Prepares a checkout: installs missing Debian or Ubuntu packages, configures and builds.
# Usage: scripts/setup.sh [ninja target...]      (no target: everything)
# HEDDLE_PRESET picks the preset (release), CMAKE_BUILD_PARALLEL_LEVEL the number of compilers at once.
# Prints to standard error only, and nothing when there is nothing to do.
set -euo pipefail
exec 1>&2

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=${HEDDLE_PRESET:-release}
build=$root/build/$preset
packages=(g++ cmake ninja-build pkgconf libfmt-dev nlohmann-json3-dev libcli11-dev libicu-dev libhwy-dev libhwloc-dev
  libboost-dev libcurl4-openssl-dev libssl-dev
  libedit-dev libpng-dev openmpi-bin libopenmpi-dev libgtest-dev libgmock-dev librapidcheck-dev)

if [ "$preset" = asan ] || [ "$preset" = tsan ]; then packages+=(clang-19 libclang-rt-19-dev llvm-19); fi

say() { echo "heddle: $*"; }
fail() {
  say "error: $*"
  exit 1
}

missing_packages() {
  local installed package
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null || true)
  for package in "${packages[@]}"; do
    grep -qxF "installed $package" <<<"$installed" || echo "$package"
  done
}

# Runs apt-get as root with its output in build/apt.log; shows the end of the log on failure.
as_root=()
apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" \
    </dev/null >>"$root/build/apt.log" 2>&1 || {
    tail -n 15 "$root/build/apt.log"
    return 1
  }
}

install_packages() {
  if [ "$(id -u)" != 0 ]; then
    if sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      say "error: packages are missing, and installing them needs root. Run this, then try again:"
      echo "  apt-get update && apt-get install --no-install-recommends $*"
      exit 1
    fi
  fi
  say "installing with apt (log: build/apt.log): $*"
  apt_get update || say "apt-get update failed; trying with the package lists that are here"
  apt_get install --no-install-recommends "$@" || fail "apt-get could not install: $*"
}

# One compiler per core, but not more than memory allows at 1.5 GB each.
parallel_jobs() {
  local cores memory_kb limit jobs
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
  if [ "$limit" != max ] && [ $((limit / 1024)) -lt "${memory_kb:-0}" ]; then memory_kb=$((limit / 1024)); fi
  jobs=$((${memory_kb:-1500000} / 1500000))
  if [ "$jobs" -lt 1 ]; then jobs=1; fi
  if [ "$jobs" -gt "$cores" ]; then jobs=$cores; fi
  echo "$jobs"
}

configured() {
  [ -e "$build/build.ninja" ] && [ ! "$root/CMakePresets.json" -nt "$build/build.ninja" ] &&
    grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$build/CMakeCache.txt"  # otherwise the checkout was moved or copied
}

configure() {
  local log=$build.configure.log
  say "configuring the preset $preset"
  (cd "$root" && cmake --fresh --preset "$preset") >"$log" 2>&1 || {
    grep -A 8 '^CMake Error' "$log" || tail -n 30 "$log"
    command -v dpkg-query >/dev/null ||
      say "this system has no apt; heddle needs (by their Debian names): ${packages[*]}"
    fail "cmake could not configure the preset $preset (log: build/$preset.configure.log)"
  }
}

mkdir -p "$root/build" || fail "$root/build: cannot be created"
exec 9>"$root/build/setup.lock"  # concurrent calls run one after the other
flock -w 3600 9 || fail "another set-up has held $root/build/setup.lock for an hour"

if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
  mapfile -t missing < <(missing_packages)
  if [ "${#missing[@]}" -gt 0 ]; then install_packages "${missing[@]}"; fi
fi
configured || configure
if ! ninja -C "$build" -n "$@" | grep -q '^ninja: no work to do'; then
  jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(parallel_jobs)}
  say "building the preset $preset with $jobs jobs"
  ninja -C "$build" -j "$jobs" "$@" || fail "the build of the preset $preset failed"
fi
