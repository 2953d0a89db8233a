#!/usr/bin/env bash
# Checks the kernels' SASS in objects that the preset hopper has built; prints one line of counts per kernel:
#   scripts/check_sass.sh [BUILD_FOLDER]      (default: build/hopper)
# Small-M GEMM: reads weights 16 bytes at a time, multiplies in tensor cores and uses no local memory.
# Prefill attention, expanded attention and gates of many tokens: multiply with HGMMA, several of them in flight. Decode: the blocks that share an SM in a step find
# registers for all of them. Needs cuobjdump: on PATH, beside nvcc, or in
# Python's triton (its nvdisasm beside it). Exits 1 when a check fails, 3 when there is no cuobjdump.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
build=${1:-build/hopper}

find_cuobjdump() {
  local python folder
  command -v cuobjdump && return
  for folder in /usr/local/cuda/bin /opt/cuda/bin; do
    [ -x "$folder/cuobjdump" ] && echo "$folder/cuobjdump" && return
  done
  for python in "${HEDDLE_ORACLE_PYTHON:-/opt/oracle/bin/python}" python3; do
    folder=$("$python" -c 'import importlib.util as u; print(u.find_spec("triton").submodule_search_locations[0])' 2>/dev/null) || continue
    [ -x "$folder/backends/nvidia/bin/cuobjdump" ] && echo "$folder/backends/nvidia/bin/cuobjdump" && return
  done
  return 1
}

cuobjdump=$(find_cuobjdump) || { echo "check_sass: there is no cuobjdump (CUDA toolkit, or pip install triton)" >&2; exit 3; }
failed=0

# Counts instructions in the kernels whose names contain $2; each must have some that match $3 and none that match $4.
check() {  # object, kernel, wanted, unwanted
  local object=$build/src/kernels/CMakeFiles/heddle_kernels.dir/$1.o
  [ -f "$object" ] || { echo "check_sass: $object is not built" >&2; failed=1; return; }
  "$cuobjdump" --dump-sass "$object" 2>/dev/null | c++filt | awk -v kernel="$2" -v wanted="$3" -v unwanted="$4" '
    function close_kernel(  text, i) {
      if (!inside) return
      kernels++
      text = ""
      for (i = 1; i <= seen; i++) text = text "  " count[words[i]] " " words[i]
      # Where ptxas cannot keep several HGMMAs in flight, of which its output has no more than a line, it waits for each.
      good = hits > 0 && misses == 0 && (hgmmas == 0 || waits < hgmmas)
      if (!good) bad++
      print (good ? "ok   " : "BAD  ") name ":" text
    }
    /Function : / {
      close_kernel()
      name = substr($0, index($0, "Function : ") + 11)
      sub(/^void /, "", name); gsub(/heddle::|[(]anonymous namespace[)]::/, "", name); gsub(/[(][A-Za-z_]+[)]/, "", name); sub(/[(].*$/, "", name)
      inside = index(name, kernel "<") > 0
      hits = misses = seen = waits = hgmmas = 0
      delete count
      next
    }
    inside && /WARPGROUP[.]DEPBAR/ { waits++ }
    inside && match($0, /[ \t](LDGSTS|UBLKCP|UTMALDG|LDG|LDL|STL|HMMA|HGMMA)[.A-Z0-9x_]* /) {
      word = substr($0, RSTART + 1, RLENGTH - 2)
      if (word == "LDGDEPBAR") next
      if (!count[word]++) words[++seen] = word
      if (word ~ /^HGMMA/) hgmmas++
      if (word ~ wanted) hits++
      if (word ~ unwanted) misses++
    }
    END {
      close_kernel()
      if (kernels == 0) print "BAD  no kernel " kernel
      exit kernels == 0 || bad > 0
    }' || failed=1
}

check linear/linear_sm90_stream.cu linear_stream '^(LDGSTS.*[.]128|UBLKCP)' '^(LDL|STL)|^LDGSTS.*E$|^LDGSTS.*[.]64'
check attention/attention_prefill_sm90.cu attention_prefill '^HGMMA' '^HMMA'
check attention/expanded_attention_sm90.cu expanded_attention_kernel '^HGMMA' '^(HMMA|LDL|STL)'
check linear/linear_sm90_batch.cu linear_batch '^HGMMA' '^(HMMA|LDL|STL)'
check linear/linear_swiglu_batch_sm90.cu linear_batch '^HGMMA' '^(HMMA|LDL|STL)'
check linear/linear_swiglu_sm90.cu gated_tiles '^HGMMA' '^(HMMA|LDL|STL)'

# The registers of a block of the kernel whose name matches $2, at most; registers go to a warp in lots of 256.
block_registers() {  # object, kernel, threads
  "$cuobjdump" -res-usage "$build/src/kernels/CMakeFiles/heddle_kernels.dir/$1.o" 2>/dev/null | c++filt |
    awk -v kernel="$2" -v warps=$(($3 / 32)) '
      / Function / { inside = $0 ~ kernel }
      inside && match($0, /REG:[0-9]+/) {
        used = substr($0, RSTART + 4, RLENGTH - 4)
        if (used > most) most = used
      }
      END { print int((most + 7) / 8) * 256 * warps }'
}

# From 9 tokens on the output projection starts beside attention while rope_kv_write is still there. Where one of them does
# not find room, a step of 16 sequences takes 1 % longer (docs/notes/faults.md, "On one H200").
check_registers() {
  local attention projection rope
  attention=$(block_registers attention/attention_decode_sm90.cu 'DecodeShared<128, 1, 5>.*RowsOfY' 160)
  projection=$(block_registers linear/linear_sm90_stream.cu 'StreamConfig<2, 2, 4, ' 288)
  rope=$(block_registers attention/rope_kv_write_sm90.cu 'rope_kv_write_packs<heddle::bfloat16, heddle::bfloat16, .heddle::Passes.0>' 128)
  local verdict=ok
  if [ "$attention" -eq 0 ] || [ "$projection" -eq 0 ] || [ "$rope" -eq 0 ] || [ $((attention + projection + rope)) -gt 65536 ]; then
    verdict=BAD
    failed=1
  fi
  printf '%-4s registers of attention, projection and rope_kv_write: %d + %d + %d, of 65536\n' $verdict "$attention" "$projection" "$rope"
}

check_registers
exit $failed
