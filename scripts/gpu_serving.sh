#!/usr/bin/env bash
# Serving on one GPU, Heddle and vLLM in one run: synth:llama-3-8b in bfloat16 against the same shape with vLLM's dummy weights.
#   scripts/gpu_serving.sh HEDDLE OUT [GPU]      HEDDLE: the program; OUT: a folder for results; GPU: its number, 0
# Needs .peers (../shared/peers/README.md): .peers/vllm, vllm_peer.py. About 5 minutes. Writes into OUT
#   throughput-*.json    256 prompts of 1024 tokens, 128 more each, all given at once; Heddle, vLLM, Heddle
#   serve-NAME-C.json    `vllm bench serve` with C clients (16, 64) against each server, prompts and answers of the same lengths
#   step-decode.json     `heddle bench decode` at those batches: what a step of the server may take
#   prefix.json          TTFT of prompts of 8192 and 16 tokens, of which the first 8192 are known, or are not
# Exits with 1 when a part failed, as one of `vllm bench serve` does with a failed request; the others run all the same.
# shellcheck disable=SC2317  # `part` calls the functions
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
heddle=$1 out=$2 gpu=${3:-0}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
peers=$root/.peers
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
server='' failed=0

# A server is in a session of its own, with the processes that it starts: vLLM's engine is one, and holds the GPU's memory.
stop_server() {
  [ -z "$server" ] || { kill "$server" 2>/dev/null; timeout 30 tail --pid="$server" -f /dev/null; kill -9 -- "-$server" 2>/dev/null; }
  server=''
}
trap 'stop_server; rm -rf "$work"' EXIT

part() {  # NAME COMMAND...
  local start=$SECONDS name=$1 status=0
  shift
  "$@" || status=$?
  [ $status = 0 ] || failed=1
  echo "gpu_serving: $name: $([ $status = 0 ] && echo ok || echo "failed ($status)") in $((SECONDS - start)) s"
}

# A GPU alone, and nothing fetched. Heddle's libraries are not for Python.
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_USE_FLASHINFER_SAMPLER=0 VLLM_HOST_IP=127.0.0.1
export VLLM_CACHE_ROOT=$work/cache
site=${SITE:-/tmp/site-vllm}
vllm=(env -u LD_LIBRARY_PATH -u CUDA_MODULE_LOADING "PYTHONPATH=$site:$peers" "CUDA_VISIBLE_DEVICES=$gpu")
with_vllm() { "${vllm[@]}" "$@"; }

heddle_throughput() {  # FILE
  timeout 120 "$heddle" bench throughput --model synth:llama-3-8b,dtype=bfloat16 --device "cuda:$gpu" --num-prompts 256 \
    --input-len 1024 --output-len 128 --json "$out/$1"
}

vllm_throughput() {
  with_vllm timeout 200 python3 "$peers/vllm_peer.py" --budget 190 --only 'llama-3-8b/throughput*' >"$out/throughput-vllm.json" \
    2>"$out/throughput-vllm.log"
}

wait_for() {  # PORT SECONDS PATH
  for ((i = 0; i < $2; ++i)); do
    kill -0 "$server" 2>/dev/null || return 1
    with_vllm python3 -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$1/$3', timeout=2)" 2>/dev/null && return
    sleep 1
  done
  return 1
}

# The client of vLLM makes texts, so it needs the tokenizer of each server. vLLM's is made up: one word a token.
vllm_folder() {
  with_vllm python3 - "$work/config" <<'PY'
import sys, vllm_peer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
folder = vllm_peer.config_folder("llama-3-8b", sys.argv[1])
words = ["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(3, vllm_peer.MODELS["llama-3-8b"]["vocab_size"])]
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>").save_pretrained(folder)
print(folder)
PY
}

serve_heddle() {  # MODEL PORT OPTION...
  local model=$1 port=$2
  shift 2
  setsid "$heddle" serve --model "$model" --device "cuda:$gpu" --port "$port" "$@" >"$out/serve-heddle.log" 2>&1 &
  server=$!
  wait_for "$port" 90 ready
}

serve_vllm() {  # FOLDER PORT
  setsid "${vllm[@]}" python3 -m vllm.entrypoints.cli.main serve "$1" --served-model-name m --load-format dummy --max-model-len 8192 \
    --no-enable-prefix-caching --port "$2" >"$out/serve-vllm.log" 2>&1 &
  server=$!
  wait_for "$2" 150 health
}

# Figures of a run in which requests failed compare nothing. The count and what was answered are recorded beside them, in
# OUT/failed-requests.txt; the record keeps its figures, without a list for each request.
all_answered() {  # NAME COUNT
  python3 - "$out/serve-$1-$2.json" "$1, $2 clients" <<'PY' | tee -a "$out/failed-requests.txt"
import collections, json, sys
path, name = sys.argv[1:]
run = json.load(open(path))
failed = run["num_prompts"] - run["completed"]
print(f"{name}: {failed} requests failed")
for error, count in collections.Counter(error.strip() for error in run.get("errors", []) if error).most_common(3):
    print(f"  {count} x {error[-400:]}")
json.dump({key: value for key, value in run.items() if not isinstance(value, list)}, open(path, "w"))
sys.exit(failed != 0)
PY
  return "${PIPESTATUS[0]}"
}

clients() {  # NAME PORT MODEL TOKENIZER
  local count status=0
  for count in 16 64; do
    with_vllm timeout 90 python3 -m vllm.entrypoints.cli.main bench serve --backend openai --base-url "http://127.0.0.1:$2" \
      --endpoint /v1/completions --model "$3" --tokenizer "$4" --dataset-name random --random-input-len 1024 --random-output-len 128 \
      --num-prompts 256 --max-concurrency "$count" --ignore-eos --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,99,100 \
      --save-result --save-detailed --result-dir "$out" --result-filename "serve-$1-$count.json" >"$out/clients-$1-$count.log" 2>&1 || return
    grep -E 'Output token throughput|Mean TPOT|P99 TTFT|P100 ITL' "$out/clients-$1-$count.log" | sed "s/^/$1, $count clients: /"
    all_answered "$1" "$count" || status=1
  done
  return "$status"
}

measure_heddle() {
  "$heddle" synth llama-3-8b --layers 1 --dtype bfloat16 --out "$work/tokenizer" >/dev/null &&
    serve_heddle synth:llama-3-8b,dtype=bfloat16 8192 --no-prefix-cache --served-model-name m && clients heddle 8192 m "$work/tokenizer"
}

measure_vllm() {
  local folder
  folder=$(vllm_folder) && serve_vllm "$folder" 8191 && clients vllm 8191 m "$folder"
}

measure_prefix() {
  serve_heddle synth:qwen2.5-7b,dtype=bfloat16 8193 --served-model-name m && python3 - >"$out/prefix.json" <<'PY' && cat "$out/prefix.json"
import json, random, statistics, time, urllib.request
random.seed(1)
tokens = lambda count: [random.randrange(100, 100000) for _ in range(count)]
def ttft(prompt):
    body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": 2, "stream": True, "ignore_eos": True}).encode()
    request = urllib.request.Request("http://127.0.0.1:8193/v1/completions", body, {"Content-Type": "application/json"})
    start = time.perf_counter()
    with urllib.request.urlopen(request, timeout=60) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                return 1e3 * (time.perf_counter() - start)
for _ in range(2):
    ttft(tokens(8208))
without, known = [], []
for _ in range(7):
    prefix = tokens(8192)
    without.append(ttft(prefix + tokens(16)))
    known.append(ttft(prefix + tokens(16)))
print(json.dumps({"bench": "prefix", "model": "synth:qwen2.5-7b", "prefix_tokens": 8192, "more_tokens": 16, "ttft_ms_without": without,
                  "ttft_ms_known": known, "ratio": statistics.median(known) / statistics.median(without)}))
PY
}

[ -d "$site" ] || bash "$peers/vllm/install.sh" "$site" >&2 || exit
part "throughput of Heddle" heddle_throughput throughput-heddle-1.json
part "throughput of vLLM" vllm_throughput
part "throughput of Heddle again" heddle_throughput throughput-heddle-2.json
part "Heddle's server" measure_heddle; stop_server
part "vLLM's server" measure_vllm; stop_server
part "steps alone" timeout 60 "$heddle" bench decode --model synth:llama-3-8b,dtype=bfloat16 --device "cuda:$gpu" --batch 16,64 \
  --context 1088 --repeats 5 --json "$out/step-decode.json"
part "a known prefix" measure_prefix; stop_server
cat "$out/throughput-vllm.json"
exit $failed
