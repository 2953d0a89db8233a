#!/usr/bin/env python3
"""PyTorch as a baseline for `heddle bench sequence-attention --figure 12`: attention of one layer, not causal, in bfloat16,
by the fastest kernel of scaled_dot_product_attention for the shape, its calls in a CUDA graph. On the CPU calls are eager,
in float32, on one thread."""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import protocol  # noqa: E402

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as error:
    sys.exit(f"there is no PyTorch: {error}")

KERNELS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}


class Case:
    def __init__(self, case):
        self.on_gpu = case["device"].startswith("cuda")
        device = torch.device(case["device"])
        if not self.on_gpu:
            torch.set_num_threads(1)
        shape = (1, case["heads"], case["tokens"], case["head_dim"])
        dtype = torch.bfloat16 if self.on_gpu else torch.float32
        self.q, self.k, self.v = (torch.randn(shape, device=device, dtype=dtype) for _ in range(3))
        self.calls, self.times, self.best, self.run = case["calls"], {}, None, None
        if not self.on_gpu:
            self.run = lambda: [F.scaled_dot_product_attention(self.q, self.k, self.v) for _ in range(self.calls)]
            return
        self.events = [torch.cuda.Event(enable_timing=True, external=True) for _ in range(2)]
        runs = {}
        for name, backend in KERNELS.items():
            try:
                runs[name] = self.graph(getattr(SDPBackend, backend))
                runs[name]()
                runs[name]()
                self.times[name] = self.seconds()
            except (RuntimeError, AttributeError):  # it does not take the shape, or this PyTorch has none
                torch.cuda.synchronize()
        self.best = min(self.times, key=self.times.get)
        self.run = runs[self.best]

    def graph(self, backend):
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(self.q, self.k, self.v)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.events[0].record()
                for _ in range(self.calls):
                    self.y = F.scaled_dot_product_attention(self.q, self.k, self.v)
                self.events[1].record()
        return graph.replay

    def seconds(self):
        torch.cuda.synchronize()
        return self.events[0].elapsed_time(self.events[1]) / 1e3 / self.calls

    def ready(self):
        return {"kernel": self.best, "microseconds": {name: round(s * 1e6, 2) for name, s in self.times.items()}}

    def sample(self):
        """Seconds per call. The first run is a warm-up, as in heddle."""
        self.run()
        if self.on_gpu:
            self.run()
            return self.seconds()
        begin = time.perf_counter()
        self.run()
        return (time.perf_counter() - begin) / self.calls

    def check(self, _):
        return {}

    def close(self):
        self.run = self.q = self.k = self.v = self.y = None
        if self.on_gpu:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    protocol.serve({"name": "PyTorch", "version": torch.__version__, "settings": {}}, Case)
