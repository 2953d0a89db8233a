#!/usr/bin/env python3
"""Runs vLLM's or SGLang's serving benchmark, as they are, on a machine without PyTorch.

Usage: tools/serving_benchmarks.py vllm|sglang FOLDER OPTION... of `vllm bench serve` or `sglang.bench_serving`

FOLDER is the unpacked source of vLLM (pip download --no-deps --no-binary vllm vllm, the folder that holds vllm/) or the
unpacked wheel of SGLang. The benchmark's own files run unchanged; the modules of the engines that they import only by the way
are replaced here. Python needs aiohttp, datasets, numpy, orjson, msgspec, pandas, pillow, pybase64, pyzmq, regex, requests,
tqdm and transformers.
"""
import argparse
import logging
import sys
import types


class Anything:
    """A stand-in for what the benchmark names and does not use."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        return Anything()


def module(name, path=None, **values):
    made = types.ModuleType(name)
    if path is not None:
        made.__path__ = [path]
    made.__dict__.update(values)
    sys.modules[name] = made


def nothing(*_, **__):
    return None


def get_tokenizer(name, **_):
    from transformers import AutoTokenizer
    return AutoTokenizer.from_pretrained(name)


def run_vllm(folder):
    here = folder + "/vllm"
    module("vllm", here)
    module("vllm.utils", here + "/utils")
    module("vllm.utils.argparse_utils", FlexibleArgumentParser=argparse.ArgumentParser)
    module("vllm.utils.mistral", is_mistral_tokenizer=lambda _: False)
    module("vllm.utils.import_utils", PlaceholderModule=Anything)
    module("vllm.utils.gc_utils", freeze_gc_heap=nothing)
    module("vllm.utils.network_utils", join_host_port=lambda host, port: f"{host}:{port}")
    module("vllm.transformers_utils", "")
    module("vllm.transformers_utils.repo_utils", hf_api=Anything)
    module("vllm.tokenizers", TokenizerLike=object, get_tokenizer=get_tokenizer)
    module("vllm.multimodal", "")
    module("vllm.multimodal.utils", encode_image_url=nothing, fetch_image=nothing)
    module("vllm.multimodal.image", convert_image_mode=nothing)
    module("vllm.multimodal.audio", get_audio_duration=nothing)
    module("vllm.lora", "")
    module("vllm.lora.utils", get_adapter_absolute_path=nothing)
    module("vllm.lora.request", LoRARequest=Anything)
    module("vllm.logger", init_logger=logging.getLogger)
    module("vllm.inputs", MultiModalDataDict=dict)
    from vllm.benchmarks.serve import add_cli_args, main
    parser = argparse.ArgumentParser(prog="vllm bench serve")
    add_cli_args(parser)
    main(parser.parse_args())


def run_sglang(folder):
    here = folder + "/sglang"
    module("sglang", here)
    module("sglang.srt", here + "/srt")
    module("sglang.srt.utils", here + "/srt/utils", kill_process_tree=nothing)
    module("sglang.srt.disaggregation", "")
    module("sglang.srt.disaggregation.utils", FAKE_BOOTSTRAP_HOST="2.2.2.2")
    from sglang.benchmark.serving import cli_main
    cli_main()


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("vllm", "sglang"):
        raise SystemExit(__doc__)
    which, folder = sys.argv[1:3]
    sys.argv[:3] = [which]
    {"vllm": run_vllm, "sglang": run_sglang}[which](folder)


if __name__ == "__main__":
    main()
