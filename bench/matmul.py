#!/usr/bin/env python3
"""The products of bench/matmul.cpp in PyTorch, strict f32: a CUDA graph of dependent products, and eager calls.

Times are per product, medians. NN: B is [K, N]; NT: B is the transpose of an [N, K] tensor, as Linear weights are.
"""
import argparse
import json
import time

import torch

torch.backends.cuda.matmul.allow_tf32 = False
torch.set_float32_matmul_precision("highest")
SHAPES = [
    (512, 512, 512), (1024, 1024, 1024), (4096, 4096, 4096), (128, 3072, 576), (128, 576, 1536), (128, 960, 576),
    (128, 576, 576), (128, 49152, 576), (576, 3072, 128), (50, 4096, 720), (1500, 1536, 384), (1500, 384, 1536),
    (1500, 384, 384), (1, 3072, 576), (1, 576, 1536), (1, 49152, 576), (1000, 1000, 1000), (1023, 1025, 1027),
    (64, 128, 784), (784, 128, 64), (64, 10, 128),
]
SAMPLES, SAMPLE_US = 15, 5000


def median(values):
    return sorted(values)[len(values) // 2]


def event_us(work, count):
    """Median over SAMPLES of the GPU's and the host's time of `work`, divided by `count`."""
    gpu, wall = [], []
    for _ in range(SAMPLES):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start = time.perf_counter()
        first.record()
        work()
        last.record()
        torch.cuda.synchronize()
        wall.append((time.perf_counter() - start) * 1e6 / count)
        gpu.append(first.elapsed_time(last) * 1e3 / count)
    return median(gpu), median(wall)


def measure(m, n, k, transposed):
    a = torch.rand(m, k, device="cuda") - 0.5
    b = (torch.rand(n, k, device="cuda") - 0.5).t() if transposed else torch.rand(k, n, device="cuda") - 0.5
    c = torch.empty(m, n, device="cuda")

    def once():
        torch.mm(a, b, out=c)

    for _ in range(5):
        once()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        once()
    torch.cuda.synchronize()
    count = max(3, min(1000, int(SAMPLE_US / ((time.perf_counter() - start) * 1e5))))
    eager_gpu, eager_wall = event_us(lambda: [once() for _ in range(count)], count)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            once()
    graph.replay()
    graph_gpu, graph_wall = event_us(graph.replay, count)
    return {"m": m, "n": n, "k": k, "layout": "NT" if transposed else "NN", "graph_us": graph_gpu, "graph_wall_us": graph_wall,
            "eager_us": eager_gpu, "eager_wall_us": eager_wall}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="file for the results")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing measured")
        return
    name = torch.cuda.get_device_name()
    print(f"{name}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}, strict f32")
    products = []
    for m, n, k in SHAPES:
        for transposed in (False, True):
            r = measure(m, n, k, transposed)
            products.append(r)
            tflops = 2e-6 * m * n * k / r["graph_us"]
            print(f"{m}x{n}x{k} {r['layout']}".ljust(22),
                  f"{r['graph_us']:9.2f} us graph ({tflops:6.2f} TFLOP/s)  {r['eager_us']:9.2f} us eager (wall {r['eager_wall_us']:9.2f})")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"device": name, "torch": torch.__version__, "cuda": torch.version.cuda, "products": products}, file, indent=1)


if __name__ == "__main__":
    main()
