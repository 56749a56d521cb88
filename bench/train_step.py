#!/usr/bin/env python3
"""The models of bench/train_step.cpp in PyTorch: wall clock of whole training steps, strict f32, AdamW.

Modes: eager (the ordinary loop) and graph (a CUDA graph of forward, backward and a capturable AdamW, inputs copied in).
"""
import argparse
import json
import time

import torch

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
MODELS = [
    ("digits 64-128-64-10 b50", 50, 64, [128, 64], 10),
    ("mnist 784-128-10 b64", 64, 784, [128], 10),
    ("wide 784-2048-2048-10 b256", 256, 784, [2048, 2048], 10),
]
WARM_UP, SAMPLES, STEPS = 50, 20, 100


def build(inputs, hidden, out):
    layers = []
    for width in hidden:
        layers += [torch.nn.Linear(inputs, width), torch.nn.ReLU()]
        inputs = width
    return torch.nn.Sequential(*layers, torch.nn.Linear(inputs, out)).cuda()


def median_us(step, finish):
    samples = []
    for _ in range(SAMPLES):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        finish()
        samples.append((time.perf_counter() - start) * 1e6 / STEPS)
    samples.sort()
    return samples[SAMPLES // 2], samples


def measure(name, batch, inputs, hidden, out):
    data = ((torch.arange(batch * inputs) * 7 % 101).float() / 101).reshape(batch, inputs)
    labels = (torch.arange(batch) % out).long()
    result = {"model": name}

    model = build(inputs, hidden, out)
    optimizer = torch.optim.AdamW(model.parameters())

    def eager():
        x, y = data.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(WARM_UP):
        eager()
    result["eager_read_us"], result["eager_read_samples_us"] = median_us(lambda: eager().item(), torch.cuda.synchronize)
    result["eager_ahead_us"], result["eager_ahead_samples_us"] = median_us(eager, torch.cuda.synchronize)

    model = build(inputs, hidden, out)
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    x, y = data.cuda(), labels.cuda()

    def body():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            body()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_loss = body()

    def replay():
        x.copy_(data, non_blocking=True)
        y.copy_(labels, non_blocking=True)
        graph.replay()
        return static_loss

    for _ in range(WARM_UP):
        replay()
    result["graph_read_us"], result["graph_read_samples_us"] = median_us(lambda: replay().item(), torch.cuda.synchronize)
    result["graph_ahead_us"], result["graph_ahead_samples_us"] = median_us(replay, torch.cuda.synchronize)
    print(f"{name:28} eager: loss read {result['eager_read_us']:8.1f} us, ahead {result['eager_ahead_us']:8.1f} us   "
          f"CUDA graph: loss read {result['graph_read_us']:8.1f} us, ahead {result['graph_ahead_us']:8.1f} us", flush=True)
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    args = parser.parse_args()
    results = [measure(*model) for model in MODELS]
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
