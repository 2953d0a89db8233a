#!/usr/bin/env bash
# install.sh BUILD: what `cmake --install BUILD --component program` puts under a prefix runs from PATH, without the build
# tree's libraries, and has its man pages and completion scripts.
set -euo pipefail
build=$1
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
fail() { echo "install: $*" >&2; exit 1; }

cmake --install "$build" --component program --prefix "$prefix" >"$prefix/log" 2>&1 || { cat "$prefix/log" >&2; fail "it failed"; }
PATH=$prefix/bin:$PATH
[ "$(command -v heddle)" = "$prefix/bin/heddle" ] || fail "heddle is not on PATH"
heddle --version | grep -q '^heddle [0-9]' || fail "it does not run"
if command -v readelf >/dev/null && readelf -d "$prefix/bin/heddle" | grep -E 'RPATH|RUNPATH'; then fail "it looks for libraries there"; fi

share=$prefix/share
for page in heddle heddle-generate heddle-bench-decode; do
  [ -s "$share/man/man1/$page.1" ] || fail "$page.1 is missing"
done
cmp "$share/bash-completion/completions/heddle" <(heddle completion bash) || fail "bash"
cmp "$share/zsh/site-functions/_heddle" <(heddle completion zsh) || fail "zsh"
cmp "$share/fish/vendor_completions.d/heddle.fish" <(heddle completion fish) || fail "fish"
[ ! -e "$prefix/include" ] || fail "the component program has headers"
echo "installed: $(find "$prefix" -type f | wc -l) files"
