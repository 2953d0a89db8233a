#!/usr/bin/env bash
# heddle serve with a certificate of its own, asked by curl over TLS. Usage: tls.sh HEDDLE MODEL
# Exit status 77 without curl or openssl, for ctest to skip.
set -euo pipefail
if ! command -v curl >/dev/null || ! command -v openssl >/dev/null; then
  echo "skipped: curl or openssl is missing"
  exit 77
fi
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
  -keyout "$folder/key.pem" -out "$folder/cert.pem" 2>/dev/null
openssl pkey -in "$folder/key.pem" -aes256 -passout pass:secret -out "$folder/locked.pem"
if timeout 60 "$1" serve "$2" --port 0 --threads 1 --tls-cert "$folder/cert.pem" --tls-key "$folder/locked.pem" </dev/null \
  >"$folder/out" 2>"$folder/error" || ! grep -q 'locked.pem: the private key is encrypted' "$folder/error"; then
  cat "$folder/error"
  echo "an encrypted key is no clear error"
  exit 1
fi
"$1" serve "$2" --port 0 --threads 1 --tls-cert "$folder/cert.pem" --tls-key "$folder/key.pem" >"$folder/out" &
server=$!
for _ in $(seq 300); do
  address=$(sed -n 's/.* at //p' "$folder/out")
  if [ -n "$address" ] && curl -sf --cacert "$folder/cert.pem" "$address/ready" >/dev/null; then break; fi
  sleep 0.1
done
[[ $address = https://* ]]
curl -sf --cacert "$folder/cert.pem" "$address/v1/completions" -d '{"prompt": "Once", "max_tokens": 3}' | grep -q text_completion
if curl -sf --max-time 5 "${address/https/http}/health" >/dev/null; then
  echo "answered without TLS"
  exit 1
fi
kill "$server"
wait "$server"
server=
echo "served over TLS"
