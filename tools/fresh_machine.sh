#!/usr/bin/env bash
# Tests the two commands of the README on a bare machine: creates a minimal Debian root (debootstrap's minbase and git),
# clones HEAD of this checkout into it, and runs ./run.sh, ./test.sh and both again there, with their times.
# Usage: tools/fresh_machine.sh [--keep] [--run-only] [--in DIR] [12] [13]     needs root and debootstrap
#   12, 13      the releases of Debian: 12 has GCC 12, 13 has GCC 14; without either, both
#   --run-only  leaves ./test.sh out
#   --in DIR    where the roots are created (build/fresh); DIR/debian-<N>/root is replaced, and removed at the end
#   --keep      keeps each bare root as DIR/debian-<N>/bare.tar, and starts from it the next time
# Exits 1 if a command failed. The logs stay in DIR/debian-<N>.
set -euo pipefail

fail() {
  echo "fresh_machine: error: $*" >&2
  exit 1
}

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
arguments=("$@")
keep=no
commands="run test"
folder=$checkout/build/fresh
releases=()
while [ $# -gt 0 ]; do
  case $1 in
    --keep) keep=yes ;;
    --run-only) commands=run ;;
    --in)
      [ $# -gt 1 ] || fail "--in: expected a folder after it"
      folder=$2
      shift
      ;;
    12 | 13) releases+=("$1") ;;
    *) fail "$1: unknown; usage: tools/fresh_machine.sh [--keep] [--run-only] [--in DIR] [12] [13]" ;;
  esac
  shift
done
[ ${#releases[@]} -gt 0 ] || releases=(12 13)
[ "$(id -u)" = 0 ] || fail "needs root, for debootstrap and chroot"
command -v debootstrap >/dev/null || fail "needs debootstrap: apt-get install debootstrap"
# In a mount namespace of its own, so that no mount outlives this script, however it ends.
if [ -z "${HEDDLE_FRESH_MACHINE:-}" ] && unshare -m true 2>/dev/null; then
  HEDDLE_FRESH_MACHINE=1 exec unshare -m --propagation private "${BASH_SOURCE[0]}" "${arguments[@]}"
fi

mkdir -p "$folder"
top=$(cd "$folder" && pwd)
declare -A codename=([12]=bookworm [13]=trixie)
mounts=(proc sys dev)

unmount_all() {
  local mount
  for mount in "${mounts[@]}"; do
    if mountpoint -q "$root/$mount"; then umount -l "$root/$mount" || return 1; fi
  done
}
remove_root() {
  unmount_all || fail "$root: cannot be unmounted; not removed"
  rm -rf --one-file-system "$root"
}
root=$top/none
trap remove_root EXIT

# The first URI of this machine's package sources, of either form that apt knows.
mirror() {
  { cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null || true; } |
    sed -n -E 's/^deb +(\[[^]]*\] +)?([^ ]+debian\/?) .*/\2/p; s/^URIs: *([^ ]+debian\/?)( .*)?$/\1/p' | head -n 1
}

# The network settings for packages: apt proxies, and name resolution.
copy_network_settings() {
  local file
  for file in /etc/apt/apt.conf /etc/apt/apt.conf.d/*; do
    if [ -f "$file" ] && grep -qiE 'proxy|Check-Valid-Until' "$file"; then cp "$file" "$root/etc/apt/apt.conf.d/"; fi
  done
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
}

make_bare_root() {
  if [ "$keep" = yes ] && [ -e "$folder/bare.tar" ]; then
    mkdir "$root" && tar -C "$root" -xpf "$folder/bare.tar"
    return
  fi
  local from
  from=$(mirror)
  debootstrap --variant=minbase --include=git "${codename[$release]}" "$root" "${from:-http://deb.debian.org/debian}" \
    >"$folder/debootstrap.log" 2>&1 || fail "debootstrap failed: $(tail -n 3 "$folder/debootstrap.log")"
  if [ "$keep" = yes ]; then tar -C "$root" -cf "$folder/bare.tar.new" . && mv "$folder/bare.tar.new" "$folder/bare.tar"; fi
}

inside() {  # with an empty environment
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "$@"
}

status=0
timed() {  # name, command...
  local name=$1 started=$SECONDS result=ok
  shift
  inside "$@" >"$folder/$name.out" 2>"$folder/$name.err" </dev/null || result="FAILED ($?)"
  [ "$result" = ok ] || status=1
  printf '\n== %s: %s, %d s; its last lines on standard error and on standard output:\n' "$name" "$result" $((SECONDS - started))
  tail -n "$([ "$result" = ok ] && echo 3 || echo 30)" "$folder/$name.err" | sed 's/^/  err  /'
  tail -n 5 "$folder/$name.out" | sed 's/^/  out  /'
}

try_release() {
  local mount command
  release=$1
  folder=$top/debian-$release
  root=$folder/root
  mkdir -p "$folder"
  SECONDS=0
  echo "fresh_machine: bare Debian $release in $root, $(nproc) cores, commit $(git -C "$checkout" rev-parse --short HEAD)"
  remove_root
  make_bare_root
  copy_network_settings
  for mount in "${mounts[@]}"; do
    mount --rbind "/$mount" "$root/$mount"
    mount --make-rslave "$root/$mount"  # unmounting here does not unmount outside
  done
  git clone -q --no-hardlinks "$checkout" "$root/root/heddle"
  echo "fresh_machine: ready after $SECONDS s; packages in it: $(inside dpkg-query -W | wc -l)"
  for command in $commands; do timed "$command" "/root/heddle/$command.sh"; done
  for command in $commands; do timed "$command-again" "/root/heddle/$command.sh"; done
  echo "fresh_machine: compiler in it: $(inside g++ --version | head -n 1)"
  remove_root
}

for release in "${releases[@]}"; do try_release "$release"; done
exit "$status"
