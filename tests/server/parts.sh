#!/usr/bin/env bash
# heddle serve --verbose says at its end which steps were computed in two parts, and which had too few tokens for that.
# Usage: parts.sh HEDDLE MODEL. Exit status 77 without curl, for ctest to skip.
set -euo pipefail
if ! command -v curl >/dev/null; then
  echo "skipped: curl is missing"
  exit 77
fi
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT
"$1" serve "$2" --port 0 --device cpu --threads 2 --tp 2 --tp-mode weave --split-tokens 2 --verbose \
  >"$folder/out" 2>"$folder/err" &
server=$!
for _ in $(seq 300); do
  address=$(sed -n 's/.* at //p' "$folder/out")
  if [ -n "$address" ] && curl -sf "$address/ready" >/dev/null; then break; fi
  sleep 0.1
done
complete() {  # PROMPT: one step, of its tokens
  curl -sf "$address/v1/completions" -d "{\"prompt\": \"$1\", \"max_tokens\": 1}" | grep -q text_completion
}
complete "$(printf '12 + 30 = 42, %.0s' $(seq 5))"
complete Once
kill "$server"
wait "$server"
server=
if ! grep -E '^heddle: 1 of 2 steps were computed in two parts; 1 stayed whole because they have fewer than two tiles' "$folder/err"; then
  cat "$folder/err"
  exit 1
fi
