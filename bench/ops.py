#!/usr/bin/env python3
"""The ops of bench/ops.cpp in PyTorch, strict f32 (TF32 off, cuDNN autotuned), from the list in its results; and the comparison.

  ops.py --json DIR/ops.torch.json [--cases DIR/ops.json]                  measures; the list is DIR/ops.json unless given
  ops.py --report OPS.json OPS.torch.json [--markdown FILE] [--svg FILE]   compares; needs no GPU and no PyTorch

Forward: the op's result, without autograd. Backward: autograd.grad with the upstream gradient; the forward pass has run before, as in
bench_ops. Each in a CUDA graph of dependent calls, and eager; where PyTorch has several ways to compute an op, each of them. Inputs are
the numbers of bench_ops, and results are compared with its own.
"""
import argparse
import json
import math
import sys
import time

SAMPLES, SAMPLE_US, WARM_S = 15, 5000, 0.25
# What the goal (at most 1.3 times PyTorch's time overall, no family beyond 2) speaks of.
GOAL = ("convolution", "attention", "layer_norm", "rms_norm", "group_norm", "batch_norm", "softmax", "cross_entropy", "embedding")


# ---- the ops: for each the ways to compute it, by name; `t` holds the inputs by name

def way(f):
    return {"": f}


def attention(a, t):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = (t[name].transpose(1, 2) for name in "qkv")  # [B, length, heads, 64] -> heads first: views
    groups = q.shape[1] // k.shape[1]

    def with_backend(backend, expand):
        def run():
            kk, vv = (x.repeat_interleave(groups, 1) if expand else x for x in (k, v))
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(
                    q, kk, vv, is_causal=a["causal"], enable_gqa=groups > 1 and not expand).transpose(1, 2)
        return run
    ways = {}
    for name, backend in (("efficient", SDPBackend.EFFICIENT_ATTENTION), ("math", SDPBackend.MATH)):
        ways[name] = with_backend(backend, False)
        if groups > 1:
            ways[name + ", heads repeated"] = with_backend(backend, True)
    return ways


def ways_of(op, a, t):
    import torch
    F = torch.nn.functional
    running = None
    if op == "batch_norm_training":  # updated in place, as ours
        channels = t["x"].shape[1]
        running = torch.zeros(channels, device="cuda"), torch.ones(channels, device="cuda")
    table = {
        "matmul": lambda: way(lambda: torch.matmul(t["a"], t["b"])),
        "sum": lambda: way(lambda: torch.sum(t["x"], dim=a["axes"])),
        "softmax": lambda: way(lambda: torch.softmax(t["x"], -1)),
        "cross_entropy": lambda: way(lambda: F.cross_entropy(t["logits"], t["labels"])),
        "conv2d": lambda: way(lambda: F.conv2d(t["x"], t["w"], None, a["stride"], a["padding"])),
        "attention": lambda: attention(a, t),
        "layer_norm": lambda: way(lambda: F.layer_norm(t["x"], t["x"].shape[-1:], t["scale"], t["bias"], a["eps"])),
        "rms_norm": lambda: way(lambda: F.rms_norm(t["x"], t["x"].shape[-1:], t["scale"], a["eps"])),
        "group_norm": lambda: way(lambda: F.group_norm(t["x"], a["groups"], t["scale"], t["bias"], a["eps"])),
        "batch_norm_training": lambda: way(lambda: F.batch_norm(
            t["x"], running[0], running[1], t["scale"], t["bias"], True, a["momentum"], a["eps"])),
        "embedding": lambda: way(lambda: F.embedding(t["ids"], t["table"])),
        "max_pool2d": lambda: way(lambda: F.max_pool2d(t["x"], a["kernel"], a["stride"], a["padding"])),
        "avg_pool2d": lambda: way(lambda: F.avg_pool2d(t["x"], a["kernel"], a["stride"], a["padding"])),
        "global_avg_pool": lambda: way(lambda: t["x"].mean((-2, -1), keepdim=True)),
        "cumsum": lambda: way(lambda: torch.cumsum(t["x"], a["axis"])),
        "sort": lambda: way(lambda: torch.sort(t["x"], stable=True).values),
        "topk": lambda: way(lambda: torch.topk(t["x"], a["k"]).values),
        "resize_nearest": lambda: way(lambda: F.interpolate(t["x"], scale_factor=a["factor"], mode="nearest")),
    }
    if op not in table:
        raise NotImplementedError(f"bench/ops.py knows no op {op}")
    return table[op]()


# ---- inputs and results

def hashed(count, seed):
    """As hashed() of ops.cpp: u32 arithmetic in int64."""
    import torch
    mask = 0xFFFFFFFF

    def times(h, factor):  # two halves: a product of two u32 does not fit int64
        return ((h * (factor & 0xFFFF)) + (((h * (factor >> 16)) & 0xFFFF) << 16)) & mask
    h = (times(torch.arange(count, device="cuda", dtype=torch.int64) & mask, 2654435761) + seed * 374761393) & mask
    h = times(h ^ (h >> 15), 2246822519)
    h = times(h ^ (h >> 13), 3266489917)
    return h ^ (h >> 16)


def make_input(description):
    import torch
    h = hashed(math.prod(description["shape"]), description["seed"])
    if description["below"] > 0:
        values = h % description["below"]
    else:
        values = (h >> 8).to(torch.float32) * 2.0**-23 - 1.0
        if description["scale"] != 1:
            values = values * torch.tensor(description["scale"], dtype=torch.float32, device="cuda")
        if description["shift"] != 0:
            values = values + torch.tensor(description["shift"], dtype=torch.float32, device="cuda")
    return values.reshape(description["shape"])


def differences(value, ours):
    """Why a result is not ours; empty: it is."""
    flat = value.detach().reshape(-1)
    if flat.numel() != ours["elements"]:
        return f"{flat.numel()} elements, not {ours['elements']}"
    if flat.numel() == 0:
        return ""
    if ours["max_abs"] is None or ours["mean_abs"] is None:  # NaN in our results
        return "not finite"
    double = flat.double()
    largest = max(double.abs().max().item(), ours["max_abs"], 1e-30)
    found = []
    for key, mine in (("mean_abs", double.abs().mean().item()), ("max_abs", double.abs().max().item())):
        if not abs(mine - ours[key]) <= 1e-3 * largest:
            found.append(f"{key} {ours[key]:.6g}, PyTorch {mine:.6g}")
    count = len(ours["samples"])
    for i, sample in enumerate(ours["samples"]):
        mine = flat[i * flat.numel() // count].item()
        if sample is None or not abs(mine - sample) <= 2e-4 * largest:
            found.append(f"element {i * flat.numel() // count}: {sample}, PyTorch {mine}")
            break
    return "; ".join(found)


# ---- timing

def keep_busy(work):
    import torch
    start = time.perf_counter()
    while time.perf_counter() - start < WARM_S:
        work()
        torch.cuda.synchronize()


def event_us(work, count):
    """GPU microseconds of each of SAMPLES calls of `work`, divided by `count`."""
    import torch
    keep_busy(work)
    gpu = []
    for _ in range(SAMPLES):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        first.record()
        work()
        last.record()
        torch.cuda.synchronize()
        gpu.append(first.elapsed_time(last) * 1e3 / count)
    return gpu


def time_way(run, row, inputs, upstream):
    """Times of one way to compute the row, and how its results differ from ours."""
    import torch
    wanted = row["gradients"]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # autograd works on the stream of the forward pass
        if wanted:
            y = run()
            leaves = [inputs[name] for name in wanted]

            def once():
                return torch.autograd.grad(y, leaves, upstream, retain_graph=True)
        else:
            def once():
                with torch.no_grad():
                    return (run(),)
        for _ in range(3):
            results = once()
        torch.cuda.synchronize()
        differ = "; ".join(f"{name}: {d}" for name, value in zip(wanted or ["y"], results)
                           if (d := differences(value, row["outputs"][name])))
        del results
        start = time.perf_counter()
        for _ in range(10):
            once()
        torch.cuda.synchronize()
        count = max(3, min(1000, int(SAMPLE_US / ((time.perf_counter() - start) * 1e5))))

        def many():
            for _ in range(count):
                once()
        timed = {"eager_us": event_us(many, count), "differs": differ}
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                many()
            timed["graph_us"] = event_us(graph.replay, count)
            del graph
        except RuntimeError as error:
            timed["graph_error"] = str(error).split("\n")[0]
            torch.cuda.synchronize()
    torch.cuda.current_stream().wait_stream(stream)
    return timed


def median(values):
    return sorted(values)[len(values) // 2]


def measure(row):
    import torch
    result = {key: row[key] for key in ("family", "name", "direction")}
    result["ways"] = {}
    inputs = {d["name"]: make_input(d) for d in row["inputs"]}
    for name in row["gradients"]:
        inputs[name].requires_grad_(True)
    upstream = make_input(row["upstream"]) if "upstream" in row else None
    best = None
    for name, run in ways_of(row["op"], row["attrs"], inputs).items():
        try:
            timed = time_way(run, row, inputs, upstream)
        except (RuntimeError, TypeError) as error:  # a backend that does not take this case
            torch.cuda.synchronize()
            result["ways"][name] = {"error": str(error).split("\n")[0]}
            continue
        result["ways"][name] = timed
        for mode in ("graph_us", "eager_us"):
            if mode in timed and (best is None or median(timed[mode]) < best[0]):
                best = (median(timed[mode]), f"{name} {mode[:-3]}".strip())
    if best is None:
        result["error"] = "; ".join(f"{n}: {w['error']}" for n, w in result["ways"].items())
    else:
        result["best_us"], result["best"] = best
        result["differs"] = "; ".join(w["differs"] for w in result["ways"].values() if w.get("differs"))
    torch.cuda.empty_cache()
    return result


def measure_all(arguments):
    try:
        import torch
    except ImportError:
        print("no PyTorch: nothing measured")
        return 0
    if not torch.cuda.is_available():
        print("no CUDA device: nothing measured")
        return 0
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.benchmark = True
    cases = arguments.cases or arguments.json.replace(".torch.json", ".json")
    with open(cases) as file:
        rows = [row for row in json.load(file)["rows"] if "gpu_us" in row]
    name = torch.cuda.get_device_name()
    print(f"{name}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, strict f32")
    results, wrong = [], 0
    for row in rows:
        r = measure(row)
        results.append(r)
        title = f"{r['family']} {r['name']} {r['direction']}"
        if "error" in r:
            wrong += 1
            print(f"{title:<60} {r['error']}")
        else:
            differs = f"  DIFFERS: {r['differs']}" if r["differs"] else ""
            wrong += bool(r["differs"])
            print(f"{title:<60} {r['best_us']:10.2f} us ({r['best']})  ours / PyTorch {row['gpu_us'] / r['best_us']:.2f}{differs}")
        sys.stdout.flush()
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"device": name, "torch": torch.__version__, "cuda": torch.version.cuda,
                       "cudnn": torch.backends.cudnn.version(), "rows": results}, file, indent=1)
    return 1 if wrong else 0


# ---- the comparison

def geometric_mean(values, weights=None):
    weights = weights or [1] * len(values)
    return math.exp(sum(w * math.log(v) for v, w in zip(values, weights)) / sum(weights))


def compare(ours, torch):
    """Rows of both, and families in order: {family: [row]}."""
    theirs = {(r["family"], r["name"], r["direction"]): r for r in torch["rows"]}
    families, missing = {}, []
    for row in ours["rows"]:
        other = theirs.get((row["family"], row["name"], row["direction"]), {})
        title = f"{row['family']} {row['name']} {row['direction']}"
        if "gpu_us" not in row:
            missing.append(f"{title}: {row.get('error') or row.get('skipped')}")
        elif "best_us" not in other:
            missing.append(f"{title}: PyTorch: {other.get('error', 'not measured')}")
        else:
            family = f"{row['family']} {row['direction']}"
            families.setdefault(family, []).append({**row, **{k: other[k] for k in ("best_us", "best", "differs")},
                                                    "ratio": row["gpu_us"] / other["best_us"]})
    missing += [f"{a['family']}: {a['why']}" for a in ours.get("absent", [])]
    return families, missing


def markdown(ours, torch, families, missing):
    rows = [row for members in families.values() for row in members]
    means = {family: geometric_mean([r["ratio"] for r in members]) for family, members in families.items()}
    worst = max(rows, key=lambda r: r["ratio"])
    goal = [r["ratio"] for r in rows if r["family"] in GOAL]
    goal_means = {family: means[family] for family in families if family.split()[0] in GOAL}
    summary = "nothing of the goal was compared" if not goal else (
        f"Geometric mean over the {len(goal)} rows of {', '.join(GOAL)}: {geometric_mean(goal):.2f}; over their {len(goal_means)} families: "
        f"{geometric_mean(list(goal_means.values())):.2f}. Worst family: {max(goal_means.values()):.2f} ({max(goal_means, key=goal_means.get)})")
    lines = [
        f"{ours['device']}, {ours['driver']}; Aeshna {ours['commit']}; PyTorch {torch['torch']}, CUDA {torch['cuda']}, cuDNN "
        f"{torch.get('cudnn')}. Strict f32 on both sides. GPU time, medians of {SAMPLES}; ratio: ours / the fastest PyTorch way "
        "(CUDA graph or eager); below 1 is faster than PyTorch.",
        "", f"**{summary}.** All {len(rows)} rows: {geometric_mean([r['ratio'] for r in rows]):.2f}; worst row: {worst['ratio']:.2f} "
        f"({worst['family']} {worst['name']} {worst['direction']}).",
        "", "| family | rows | geometric mean | weighted by occurrence | best | worst |", "|---|---|---|---|---|---|"]
    for family, members in families.items():
        ratios = [r["ratio"] for r in members]
        weighted = geometric_mean(ratios, [r["count"] for r in members])
        lines.append(f"| {family} | {len(members)} | {means[family]:.2f} | {weighted:.2f} | {min(ratios):.2f} | {max(ratios):.2f} |")
    if missing:
        lines += ["", "Not compared:", ""] + [f"- {m}" for m in missing]
    wrong = [r for r in rows if r["differs"]]
    lines += ["", f"Results of the {len(rows)} rows were compared with PyTorch's: " +
              ("all agree." if not wrong else f"{len(wrong)} differ:")]
    lines += [f"- {r['family']} {r['name']} {r['direction']}: {r['differs']}" for r in wrong]
    for family, members in families.items():
        lines += ["", f"### {family}", "", "| shape | times | µs | PyTorch µs | way | ratio | kernels |", "|---|---|---|---|---|---|---|"]
        for r in members:
            kernels = "; ".join(r.get("kernels", []))
            lines.append(f"| {r['name']} | {r['count']} | {r['gpu_us']:.1f} | {r['best_us']:.1f} | {r['best']} | {r['ratio']:.2f} | {kernels} |")
    return "\n".join(lines) + "\n"


def svg(families):
    """One dot for each row, one line for each family, on a logarithmic axis."""
    left, width, line = 240, 560, 22
    height = 60 + line * len(families)
    low, high = 0.25, 4.0

    def x(ratio):
        return left + width * (math.log(min(max(ratio, low), high)) - math.log(low)) / (math.log(high) - math.log(low))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 30}" height="{height}" font-family="sans-serif" font-size="12">',
             f'<rect width="100%" height="100%" fill="white"/><text x="{left}" y="16">our time / the fastest PyTorch time, one dot per shape '
             "(left of 1: faster)</text>"]
    for mark in (0.25, 0.5, 1, 1.3, 2, 4):
        parts.append(f'<line x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="26" y2="{height - 24}" stroke="{"black" if mark == 1 else "#ccc"}"/>'
                     f'<text x="{x(mark):.1f}" y="{height - 8}" text-anchor="middle">{mark}</text>')
    for i, (family, members) in enumerate(families.items()):
        y = 42 + line * i
        parts.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{family}</text>')
        parts += [f'<circle cx="{x(r["ratio"]):.1f}" cy="{y}" r="3.5" fill="#3366cc" fill-opacity="0.5"/>' for r in members]
        mean = x(geometric_mean([r["ratio"] for r in members]))
        parts.append(f'<line x1="{mean:.1f}" x2="{mean:.1f}" y1="{y - 8}" y2="{y + 8}" stroke="#cc3333" stroke-width="2"/>')
    return "\n".join(parts + ["</svg>"]) + "\n"


def report(arguments):
    with open(arguments.report[0]) as file:
        ours = json.load(file)
    with open(arguments.report[1]) as file:
        torch = json.load(file)
    families, missing = compare(ours, torch)
    if not families:
        print("nothing to compare:", *missing, sep="\n  ")
        return 1
    text = markdown(ours, torch, families, missing)
    if arguments.markdown:
        with open(arguments.markdown, "w") as file:
            file.write(text)
    else:
        print(text, end="")
    if arguments.svg:
        with open(arguments.svg, "w") as file:
            file.write(svg(families))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file for the results")
    parser.add_argument("--cases", help="results of bench_ops: what to measure")
    parser.add_argument("--report", nargs=2, metavar=("OPS.json", "OPS.torch.json"))
    parser.add_argument("--markdown", help="with --report: file for the tables")
    parser.add_argument("--svg", help="with --report: file for the picture")
    arguments = parser.parse_args()
    if not arguments.report and not (arguments.cases or arguments.json):
        parser.error("--json or --cases is needed")
    return report(arguments) if arguments.report else measure_all(arguments)


if __name__ == "__main__":
    sys.exit(main())
