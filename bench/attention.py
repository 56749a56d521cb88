#!/usr/bin/env python3
"""The shapes of bench/attention.cpp in PyTorch, strict f32: scaled_dot_product_attention in a CUDA graph, forward, and forward with
backward. Times are medians per call; which backends are allowed is an argument, the default lets PyTorch choose."""
import argparse
import contextlib
import json
import time

import torch
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = False
torch.set_float32_matmul_precision("highest")
# queries, keys, heads, kv_heads, head_dim, causal
SHAPES = [(1500, 1500, 6, 6, 64, False), (128, 128, 9, 3, 64, True), (50, 50, 15, 5, 64, True), (50, 16, 15, 5, 64, False),
          (256, 256, 4, 4, 32, False), (64, 64, 8, 8, 32, False), (4096, 4096, 16, 16, 64, False), (4096, 4096, 16, 16, 64, True),
          (8192, 8192, 8, 8, 64, True), (2048, 2048, 16, 16, 128, True), (1024, 1024, 8, 8, 80, False), (1, 2048, 9, 3, 64, True),
          (1, 8192, 32, 8, 128, True)]
SAMPLES, SAMPLE_US = 15, 5000


def graph_us(once):
    """Median µs of `once` among the repetitions of a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            once()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(3):
        once()
    torch.cuda.synchronize()
    count = max(3, min(200, int(SAMPLE_US / ((time.perf_counter() - start) * 1e6 / 3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            once()
    graph.replay()
    times = []
    for _ in range(SAMPLES):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        graph.replay()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) * 1e3 / count)
    return sorted(times)[SAMPLES // 2]


def measure(queries, keys, heads, kv_heads, head_dim, causal):
    def tensor(length, count):  # as projections leave it
        return torch.randn(1, length, count, head_dim, device="cuda").transpose(1, 2)

    q, k, v = tensor(queries, heads), tensor(keys, kv_heads), tensor(keys, kv_heads)
    if heads != kv_heads:  # the memory-efficient kernel takes no groups: repeated once, outside of what is timed
        k, v = (x.repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
    is_causal = causal and queries > 1  # one query at the end sees every key
    result = {"shape": f"{queries}/{keys}x{heads}/{kv_heads}x{head_dim}{'c' if causal else ''}"}
    with torch.no_grad():
        result["forward_us"] = graph_us(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal))
    if queries >= 4:
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        upstream = torch.randn_like(q)

        def both():
            out = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
            torch.autograd.grad(out, (q, k, v), upstream)

        result["forward_backward_us"] = graph_us(both)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="file for the results")
    parser.add_argument("--backend", choices=["any", "efficient", "math"], default="any")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing measured")
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backends = {"any": contextlib.nullcontext(), "efficient": sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION]), "math": sdpa_kernel([SDPBackend.MATH])}
    rows = []
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}, strict f32")
    with backends[arguments.backend]:
        for shape in SHAPES:
            rows.append(measure(*shape))
            print(rows[-1], flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "attention": rows}, file, indent=1)


if __name__ == "__main__":
    main()
