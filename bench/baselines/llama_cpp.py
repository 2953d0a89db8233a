#!/usr/bin/env python3
"""llama.cpp as a baseline for `heddle bench`, through the C functions that llama-cpp-python binds.

The model has the same weights, as a GGUF file in the cache folder (gguf_file.py). The settings are those of a careful
user: as many threads as heddle for decoding and prompts, an f16 key-value cache (its default), steps of up to 512 tokens,
a separate cache for each sequence, weights mapped and touched beforehand. HEDDLE_LLAMA_FLASH sets flash attention: auto
(its default), on or off. Logits are computed for the last token of each sequence. Nothing is sampled, and no logits are
copied to Python while the clock runs.
"""
import ctypes
import hashlib
import os
import subprocess
import sys
import time
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gguf_file  # noqa: E402
import protocol  # noqa: E402


def import_llama():
    """llama_cpp.llama_cpp without the package's __init__, which requires NumPy, Jinja and a disk cache."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]  # this file has the same name
    sys.modules.pop("llama_cpp", None)
    try:
        import typing_extensions  # noqa: F401
    except ImportError:  # what llama_cpp uses of it is in typing since 3.10
        import typing
        sys.modules["typing_extensions"] = typing
    for path in sys.path:
        folder = os.path.join(path, "llama_cpp")
        if os.path.isfile(os.path.join(folder, "llama_cpp.py")):
            package = types.ModuleType("llama_cpp")
            package.__path__ = [folder]
            sys.modules["llama_cpp"] = package
            import llama_cpp.llama_cpp as api
            with open(os.path.join(folder, "__init__.py"), encoding="utf-8") as file:
                version = file.read().split("__version__ = ", 1)[1].split('"')[1]
            return api, version
    raise ImportError("there is no llama_cpp on PYTHONPATH or in site-packages: pip install llama-cpp-python")


try:
    api, VERSION = import_llama()
except ImportError as error:
    sys.exit(f"{error}; HEDDLE_BASELINE_PYTHON ({sys.executable} now) names another Python")
FLASH = {"auto": -1, "off": 0, "on": 1}
MAX_STEP = 512


@api.llama_log_callback
def quiet(level, text, _):
    if level >= 3:  # warnings and errors, which heddle shows after a failure
        sys.stderr.write(text.decode(errors="replace"))


def cache_folder():
    base = os.environ.get("HEDDLE_CACHE_DIR")
    if not base:
        base = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "heddle")
    folder = os.path.join(base, "baselines")
    os.makedirs(folder, exist_ok=True)
    return folder


def gguf_of(case):
    """The case's model as a GGUF file; converted if it is not in the cache. The key has everything the file depends on:
    the model's fingerprint (config, tensors' shapes and dtypes, a part of their values), its folder and the times of its
    files, and the converter."""
    model = case["model"]
    with open(gguf_file.__file__, "rb") as file:
        parts = [case["fingerprint"], hashlib.sha256(file.read()).hexdigest()]
    if not model.startswith("synth:"):
        stats = [(name, os.stat(os.path.join(model, name))) for name in sorted(os.listdir(model))]
        parts += [os.path.abspath(model)] + [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    key = repr(parts)
    base = os.path.join(cache_folder(), hashlib.sha256(key.encode()).hexdigest()[:16])
    path = base + ".gguf"
    if os.path.exists(path):
        return path
    folder = model
    if model.startswith("synth:"):
        heddle = os.environ.get("HEDDLE") or os.readlink(f"/proc/{os.getppid()}/exe")
        folder = f"{base}.folder"
        if not os.path.isdir(folder):
            subprocess.run([heddle, "synth", model, "--out", folder], check=True, stdout=subprocess.DEVNULL)
    gguf_file.write_gguf(folder, path)
    if folder != model:
        subprocess.run(["rm", "-r", folder], check=True)
    return path


def load_model(path):
    params = api.llama_model_default_params()
    params.use_mmap = True
    model = api.llama_model_load_from_file(path.encode(), params)
    if not model:
        raise RuntimeError(f"llama.cpp cannot load {path}")
    return model


def make_context(model, case):
    batch = case["batch"]
    length = case["context"] + len(case["input_tokens"][0])
    params = api.llama_context_default_params()
    params.n_ctx = batch * (-(-(length + 1) // 256) * 256)
    params.n_batch = params.n_ubatch = MAX_STEP
    params.n_seq_max = batch
    params.n_threads = params.n_threads_batch = case["threads"]
    params.flash_attn_type = FLASH[os.environ.get("HEDDLE_LLAMA_FLASH", "auto")]
    params.kv_unified = batch == 1
    params.no_perf = True
    context = api.llama_init_from_model(model, params)
    if not context:
        raise RuntimeError("llama.cpp cannot make a context")
    return context


class Batch:
    """One llama_decode: the same number of new tokens for each sequence; logits for the last token of each."""

    def __init__(self, tokens_of_sequences, first_position):
        count = sum(len(tokens) for tokens in tokens_of_sequences)
        self.batch = api.llama_batch_init(count, 0, 1)
        self.rows = []
        self.batch.n_tokens = count
        row = 0
        for sequence, tokens in enumerate(tokens_of_sequences):
            for i, token in enumerate(tokens):
                last = i + 1 == len(tokens)
                self.batch.token[row] = token
                self.batch.pos[row] = first_position + i
                self.batch.n_seq_id[row] = 1
                self.batch.seq_id[row][0] = sequence
                self.batch.logits[row] = last
                if last:
                    self.rows.append(row)
                row += 1

    def run(self, context):
        status = api.llama_decode(context, self.batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")

    def free(self):
        api.llama_batch_free(self.batch)


class Steps:
    def __init__(self, case):
        self.case = case
        self.path = gguf_of(case)
        self.model = load_model(self.path)
        self.context = make_context(self.model, case)
        self.memory = api.llama_get_memory(self.context)
        self.vocab_size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.start = case["context"]
        inputs, step = case["input_tokens"], case["step_tokens"]
        self.batches = [Batch([tokens[i:i + step] for tokens in inputs], self.start + i)
                        for i in range(0, len(inputs[0]), step)]
        for i in range(0, self.start, MAX_STEP):
            batch = Batch([case["context_tokens"][i:i + MAX_STEP]], i)
            batch.run(self.context)
            batch.free()
        for sequence in range(1, case["batch"] if self.start else 1):
            api.llama_memory_seq_cp(self.memory, 0, sequence, -1, -1)
        api.llama_synchronize(self.context)

    def ready(self):
        return {"gguf_bytes": os.path.getsize(self.path), "flash_attention": os.environ.get("HEDDLE_LLAMA_FLASH", "auto")}

    def rewind(self):
        for sequence in range(self.case["batch"]):
            api.llama_memory_seq_rm(self.memory, sequence, self.start, -1)

    def sample(self):
        self.rewind()
        begin = time.perf_counter()
        for batch in self.batches:
            batch.run(self.context)
        api.llama_synchronize(self.context)
        return time.perf_counter() - begin

    def check(self, num_probes):
        self.rewind()
        argmax, probes = [], []
        for batch in self.batches:
            batch.run(self.context)
            for i, row in enumerate(batch.rows):
                pointer = api.llama_get_logits_ith(self.context, row)
                logits = list((ctypes.c_float * self.vocab_size).from_address(
                    ctypes.addressof(pointer.contents)))
                argmax.append(max(range(self.vocab_size), key=logits.__getitem__))
                if i == 0:
                    probes = [logits[index] for index in protocol.probe_indices(self.vocab_size, num_probes)]
        return {"argmax": argmax, "probes": probes}

    def close(self):
        for batch in self.batches:
            batch.free()
        api.llama_free(self.context)
        api.llama_model_free(self.model)


class Load:
    """From opening the file to the first token's logits."""

    def __init__(self, case):
        self.case = case
        self.path = gguf_of(case)

    def ready(self):
        return {"gguf_bytes": os.path.getsize(self.path)}

    def sample(self):
        begin = time.perf_counter()
        model = load_model(self.path)
        context = make_context(model, self.case)
        batch = Batch(self.case["input_tokens"], 0)
        batch.run(context)
        api.llama_synchronize(context)
        seconds = time.perf_counter() - begin
        batch.free()
        api.llama_free(context)
        api.llama_model_free(model)
        return seconds

    def check(self, num_probes):
        raise NotImplementedError("bench load compares times only")


def main():
    api.llama_log_set(quiet, ctypes.c_void_p(0))
    api.llama_backend_init()
    system = api.llama_print_system_info().decode().strip()
    settings = {
        "system": system, "kv_cache": "f16", "n_ubatch": MAX_STEP, "threads": "as heddle's", "mmap": True,
        "flash_attention": os.environ.get("HEDDLE_LLAMA_FLASH", "auto"), "repack": "default",
    }
    protocol.serve({"name": "llama.cpp", "version": f"llama-cpp-python {VERSION}", "settings": settings},
                   lambda case: Load(case) if case["mode"] == "load" else Steps(case))


main()
