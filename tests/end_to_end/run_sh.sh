#!/usr/bin/env bash
# Which commands run.sh gives the demo model: its build and the program are played by scripts of this test.
#   tests/end_to_end/run_sh.sh RUN_SH HEDDLE
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/scripts" "$place/build/here/apps/cli" "$place/folder"
cp "$1" "$place/run.sh"
printf '#!/usr/bin/env bash\necho here\n' >"$place/scripts/preset_here.sh"
printf '#!/usr/bin/env bash\n' >"$place/scripts/setup.sh"
printf '#!/usr/bin/env bash\necho "$@"\n' >"$place/build/here/apps/cli/heddle"
chmod +x "$place"/scripts/*.sh "$place/build/here/apps/cli/heddle"
touch "$place/folder/config.json"
status=0

expect() {  # "demo" or "own", WORD...: whether the demo model is added to them
  local words got=own
  words=$("$place/run.sh" "${@:2}")
  [[ $words = *"--model $place/assets/demo-llama" ]] && got=demo
  [ "$got" = "$1" ] && return
  echo "FAILED: ./run.sh ${*:2} became: heddle $words"
  status=1
}

expect demo serve
expect demo serve --port 9000
expect demo serve --port=9000 --verbose
expect demo serve --served-model-name a b --host 0.0.0.0
expect demo serve --tls-cert some/cert.pem --tls-key some/key.pem
expect own serve org/name
expect own serve --port 9000 org/name
expect own serve --port=9000 org/name
expect own serve --port 9000 "$place/folder"
expect own serve --served-model-name a "$place/folder"
expect own serve --port 9000 synth:tiny
expect own serve --port 9000 -m org/name
expect own serve --model=org/name --port 9000
expect own serve -- org/name
expect own generate -p x

# The options of serve without a value: a word after one is a model.
flags=$("$2" serve --help | sed -nE 's/^ +(--[a-z-]+)( {2,}.*)?$/\1/p')
[ -n "$flags" ] || { echo "FAILED: no flags in heddle serve --help"; status=1; }
for flag in $flags; do expect own serve "$flag" org/name; done
exit "$status"
