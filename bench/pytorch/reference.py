#!/usr/bin/env python3
"""One workload of docs/benchmark.md in PyTorch: times, memory, compile time and results of every phase, contract and mode.

  reference.py WORKLOAD --data FILE --json OUT             measures; FILE comes from `aeshna bench data`
  reference.py WORKLOAD --data FILE --json OUT --float64 --tensors DIR
                                                           computes the reference of the gates, once, in float64

A cell that fails has its error in the document and leaves the others alone; the exit status is then 3. Modes: `eager`; `compile`,
torch.compile with its defaults; `graph`, a CUDA graph of the compiled step, captured by hand. Inference runs under no_grad; a training
step is forward, loss and autograd.grad for every trainable parameter. Inputs lie on the device, and results stay there.

Environment: TORCHINDUCTOR_CACHE_DIR is where compiled code is kept; each contract has a folder of its own in it, so that neither is
compiled from the other's. BENCH_REVISION (a commit, "-dirty" behind it if so) stands in where there is no git repository.
"""
import argparse
import collections
import contextlib
import datetime
import gc
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

import torch

import models
import safetensors_file

PHASES, CONTRACTS, MODES = ("full", "minimal", "train"), ("strict", "accelerated"), ("eager", "compile", "graph")


def first_line_of(*command):
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, cwd=os.path.dirname(os.path.abspath(__file__)))
        return out.stdout.strip().split("\n")[0]
    except (OSError, subprocess.SubprocessError):
        return None


# ---- what a document says of its origin

def revision():
    commit = first_line_of("git", "rev-parse", "HEAD")
    if commit:
        return commit, first_line_of("git", "status", "--porcelain") == ""
    commit = os.environ.get("BENCH_REVISION")
    return (commit.removesuffix("-dirty"), not commit.endswith("-dirty")) if commit else (None, None)


def file_value(path, key):
    with contextlib.suppress(OSError), open(path) as file:
        for line in file:
            name, _, value = line.partition("=" if "=" in line else ":")
            if name.strip() == key:
                return value.strip().strip('"')
    return None


def environment(device):
    found = {"os": f"{file_value('/etc/os-release', 'PRETTY_NAME') or platform.system()}, {platform.release()}",
             "cpu": f"{file_value('/proc/cpuinfo', 'model name') or platform.processor()}, {os.cpu_count()} threads",
             "toolchain": f"Python {platform.python_version()}", "torch": torch.__version__}
    with contextlib.suppress(ImportError):
        import triton
        found["toolchain"] += f", Triton {triton.__version__}"
    if device == "cuda":
        found |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda or f"HIP {torch.version.hip}",
                  "cudnn": str(torch.backends.cudnn.version()),
                  "driver": first_line_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")}
    else:
        found["gpu"] = "none: PyTorch on the CPU"
    return {key: value for key, value in found.items() if value}


# ---- the device

def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def settle(device):
    """Gives back what no cell holds any more, so that a cell's memory is its own."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def set_contract(contract):
    """The switches of a contract, as read back."""
    fast = contract == "accelerated"
    torch.set_float32_matmul_precision("high" if fast else "highest")
    torch.backends.cuda.matmul.allow_tf32 = fast
    torch.backends.cudnn.allow_tf32 = fast
    torch.backends.cudnn.benchmark = True  # cuDNN tries its algorithms in the first call, which is not timed
    return {"float32_matmul_precision": torch.get_float32_matmul_precision(), "cuda_matmul_allow_tf32": torch.backends.cuda.matmul.allow_tf32,
            "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32, "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "attention": "scaled_dot_product_attention, key and value heads repeated", "layout": "contiguous (NCHW)"}


def process_bytes():
    """(bytes of this process on the GPU, where that is from), or (None, None)."""
    pid, rows, basis = os.getpid(), [], None
    try:
        import pynvml
        pynvml.nvmlInit()
        try:
            gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}")
        except Exception:  # properties of an older torch, bindings of an older NVML
            gpu = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
        rows = [(p.pid, p.usedGpuMemory) for p in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)]
        basis = "NVML, this process"
    except Exception:  # no such package, no such library, no permission: all the same here
        try:
            text = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                                  capture_output=True, text=True, timeout=20, check=True).stdout
            rows = [(int(pid), int(mib) << 20) for pid, mib in (line.split(",") for line in text.strip().splitlines())]
            basis = "nvidia-smi, this process"
        except (OSError, subprocess.SubprocessError, ValueError):
            return None, None
    mine = [used for owner, used in rows if owner == pid and used]
    if mine:
        return sum(mine), basis
    if len(rows) == 1 and rows[0][1]:  # a container has process ids of its own
        return rows[0][1], basis.replace("this process", "the only process on the GPU")
    return None, None


def memory(device):
    if device != "cuda":
        return {}
    used, basis = process_bytes()
    found = {"peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
             "device_bytes": used, "device_bytes_basis": basis}
    return {key: value for key, value in found.items() if value is not None}


# ---- steps

Result = collections.namedtuple("Result", "output loss gradients")


class Step:
    """A phase of a workload; a call computes it once and gives the Result. `compile` changes how."""

    def __init__(self, workload, phase, module, inputs, target):
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad} if phase == "train" else {}
        self.inputs = models.minimal(workload, inputs) if phase == "minimal" else inputs
        if phase == "train":
            self.inputs = (target, *inputs)

            def compute(target, *inputs):
                output = module(*inputs)
                return module.loss(output, target), output.detach()  # detached: no gradient arrives by way of the output
        else:
            def compute(*inputs):
                return module(*inputs)
        self.compute = self.eager = compute

    def compile(self):
        self.compute = torch.compile(self.eager, fullgraph=True)

    def __call__(self):
        if not self.parameters:
            with torch.no_grad():
                return Result(self.compute(*self.inputs), None, ())
        loss, output = self.compute(*self.inputs)
        return Result(output, loss.detach(), torch.autograd.grad(loss, tuple(self.parameters.values())))


class Replay:
    """A step in a CUDA graph: inputs, output, loss and gradients stay where they were at the capture."""

    def __init__(self, step):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        settle("cuda")
        torch.cuda.reset_peak_memory_stats()  # the capture allocates as a step does
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self.result = step()

    def __call__(self):
        self.graph.replay()
        return self.result


# ---- numbers of one cell

def times(samples):
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
    return {"samples_ms": samples, "median_ms": middle, "p25_ms": low, "p75_ms": high, "min_ms": min(samples), "max_ms": max(samples)}


def measure(step, device, warmups, count):
    """Times and memory; the first call and what it sets up are over."""
    begin, made = time.perf_counter(), 0
    # A GPU that had nothing to do has lowered its clocks: warm-ups take half a second at least, if there are to be any.
    while warmups and (made < warmups or time.perf_counter() - begin < 0.5):
        step()  # the result is dropped at once: two sets of gradients would count twice
        synchronize(device)
        made += 1
    samples = []
    gc.disable()
    try:
        for _ in range(count):
            synchronize(device)
            start = time.perf_counter()
            step()
            synchronize(device)
            samples.append((time.perf_counter() - start) * 1e3)
    finally:
        gc.enable()
    return {"warmups": made, **times(samples), "memory": memory(device)}


def norm(tensor):
    return torch.linalg.vector_norm(tensor.detach(), dtype=torch.float64).item()


def fingerprint(result, names):
    output = result.output.detach()
    return {"loss": None if result.loss is None else result.loss.item(),
            "output": {"shape": list(output.shape), "l2": norm(output), "sum": output.sum(dtype=torch.float64).item(),
                       "first": output.flatten()[:8].tolist()},
            "gradients": {name: norm(gradient) for name, gradient in zip(names, result.gradients)}}


def is_finite(value):
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def to_host(result, names):
    tensors = {"output": result.output, **{f"grad/{name}": gradient for name, gradient in zip(names, result.gradients)}}
    if result.loss is not None:
        tensors["loss"] = result.loss.reshape(1)
    return {name: tensor.detach().to("cpu", torch.float32, copy=True) for name, tensor in tensors.items()}


def one_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    return f"{type(error).__name__}: {' '.join(lines[:2]) if lines[0].endswith(':') else lines[0]}"


# ---- the run

class Unavailable(Exception):
    """A mode that this machine does not have: recorded, but no failure."""


class Run:
    def __init__(self, arguments):
        self.a, self.device = arguments, arguments.device
        self.started, self.failures, self.cells, self.compiles = time.perf_counter(), 0, [], {}
        self.cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        tensors, metadata = safetensors_file.read(arguments.data)
        config = "small" if arguments.small else "full"
        for key, wanted in (("workload", arguments.workload), ("config", config)):
            if metadata.get(key, wanted) != wanted:
                raise SystemExit(f"reference.py: {arguments.data} is of {key} {metadata[key]}, not {wanted}")
        dtype = torch.float64 if arguments.float64 else torch.float32
        self.module, self.inputs, self.target = models.load(arguments.workload, tensors, arguments.small, metadata, dtype, self.device)
        commit, clean = revision()
        self.document = {
            "schema": 1, "engine": "pytorch", "workload": arguments.workload, "config": config, "process": arguments.process,
            "revision": commit, "clean": clean,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "environment": environment(self.device),
            "data": {"sha256": safetensors_file.sha256(arguments.data), "seed": int(metadata["seed"]) if "seed" in metadata else None},
            "compile": self.compiles, "cells": self.cells}
        if arguments.float64:  # no measurement
            self.document["kind"] = "reference"
        self.bases = {"engine": "pytorch", "workload": arguments.workload, "config": config, "gpu": self.document["environment"]["gpu"],
                      "data_sha256": self.document["data"]["sha256"]}

    def say(self, text):
        print(f"[{time.perf_counter() - self.started:6.1f} s] {self.a.workload} {text}", flush=True)

    def write(self):
        with open(f"{self.a.json}.part", "w") as file:
            json.dump(self.document, file, indent=1, allow_nan=False)
        os.replace(f"{self.a.json}.part", self.a.json)

    def write_tensors(self, name, tensors, metadata):
        os.makedirs(self.a.tensors, exist_ok=True)
        file = f"pytorch-{name}.safetensors"
        safetensors_file.write(os.path.join(self.a.tensors, file), tensors, self.bases | metadata)
        return file

    def step(self, phase):
        return Step(self.a.workload, phase, self.module, self.inputs, self.target)

    def failed(self, cell, error):
        cell["error"] = str(error) if isinstance(error, Unavailable) else one_line(error)
        if not isinstance(error, Unavailable):
            self.failures += 1
            traceback.print_exception(error, limit=-8)
            sys.stderr.flush()

    # float64: results alone

    def float64(self):
        for phase in self.a.phase:
            step = self.step(phase)
            cell = {"phase": phase, "contract": "float64", "mode": "eager", "error": None, "tensors": None}
            try:
                result = step()
                cell |= self.checked(cell, fingerprint(result, step.parameters))
                if self.a.tensors:
                    scalars = {"phase": phase, "contract": "float64"} | ({} if cell["loss"] is None else {"loss": repr(cell["loss"])})
                    cell["tensors"] = self.write_tensors(f"{phase}-float64", to_host(result, step.parameters), scalars)
                del result
            except Exception as error:  # the others go on
                self.failed(cell, error)
            self.cells.append(cell)
            settle(self.device)
            self.say(f"{phase} float64: {cell['error'] or 'loss ' + repr(cell['loss'])}")

    def checked(self, cell, found):
        """Numbers that JSON has; a cell without them is an error."""
        if is_finite(found):
            return found
        self.failures += 1
        cell["error"] = "the results are not finite"
        return {"loss": None, "output": None, "gradients": {}}

    # float32: everything

    def all_cells(self):
        if {"compile", "graph"} & set(self.a.mode):
            with contextlib.suppress(Exception):  # what is imported here is not compile time
                import torch._dynamo
                import torch._inductor.compile_fx  # noqa: F401
        for contract in self.a.contract:
            precision = set_contract(contract)
            cache = self.open_cache(contract)
            seconds = {}
            for phase in self.a.phase:
                self.cells_of(phase, contract, precision, seconds)
            if {"compile", "graph"} & set(self.a.mode):
                self.compiles[contract] = {"seconds": sum(seconds.values()) if len(seconds) == len(PHASES) else None, "cache": cache,
                                           "by_phase": seconds}

    def open_cache(self, contract):
        """Compiled code of this contract goes to a folder of its own. Returns whether there was none."""
        if not self.cache:
            if self.a.cache != "cold":
                return "warm"
            self.cache = tempfile.mkdtemp(prefix="inductor-")
        folder = os.path.join(self.cache, contract)
        os.makedirs(folder, exist_ok=True)
        empty = not any(os.scandir(folder))
        os.environ["TORCHINDUCTOR_CACHE_DIR"], os.environ["TRITON_CACHE_DIR"] = folder, os.path.join(folder, "triton")
        with contextlib.suppress(Exception):  # code already loaded in this process, by whatever name this torch has for it
            import torch._inductor.utils as utils
            (getattr(utils, "clear_caches", None) or utils.clear_inductor_caches)()
        if self.a.cache == "cold" and not empty:
            self.say(f"{contract}: {folder} is not empty: the compilation is warm")
        return "cold" if empty else "warm"

    def cells_of(self, phase, contract, precision, seconds):
        """The modes of one phase and contract; the fastest one's tensors are written."""
        step, best, host = self.step(phase), None, None
        compiled, compile_error = False, None
        for mode in self.a.mode:
            cell = {"phase": phase, "contract": contract, "mode": mode, "error": None, "precision": precision, "loss": None, "output": None,
                    "gradients": {}, "tensors": None}
            self.cells.append(cell)
            settle(self.device)
            run = None
            try:
                if mode == "graph" and self.device != "cuda":
                    raise Unavailable("no CUDA device: there are no CUDA graphs")
                if mode != "eager" and not compiled and compile_error is None:
                    try:
                        seconds[phase] = self.compile(step)
                        compiled = True
                    except Exception as error:
                        compile_error = one_line(error)
                        raise
                if mode != "eager" and not compiled:
                    raise RuntimeError(f"the compilation failed: {compile_error}")
                run = self.ready(step, mode)
                cell |= measure(run, self.device, self.a.warmups, self.a.samples)
                result = run()
                synchronize(self.device)
                cell |= self.checked(cell, fingerprint(result, step.parameters))
                if self.a.tensors and cell["error"] is None and (best is None or cell["median_ms"] < best["median_ms"]):
                    best, host = cell, to_host(result, step.parameters)
                del result
            except Exception as error:  # one bad cell leaves the others alone
                self.failed(cell, error)
            del run
            result = None
            self.say(f"{phase} {contract} {mode}: {cell['error'] or format(cell['median_ms'], '.3f') + ' ms'}")
        if best is not None:
            metadata = {"phase": phase, "contract": contract, "mode": best["mode"]}
            metadata |= {} if best["loss"] is None else {"loss": repr(best["loss"])}
            best["tensors"] = self.write_tensors(f"{phase}-{contract}-{best['mode']}", host, metadata)
        del step
        settle(self.device)

    def compile(self, step):
        """Seconds from torch.compile to the end of the first call."""
        torch._dynamo.reset()  # each phase anew: no dynamic shapes because another phase had others
        synchronize(self.device)
        start = time.perf_counter()
        step.compile()
        step()
        synchronize(self.device)
        return time.perf_counter() - start

    def ready(self, step, mode):
        """What a sample calls; peaks are counted from here on."""
        if mode == "eager":
            step.compute = step.eager
            step()
        settle(self.device)
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        return Replay(step) if mode == "graph" else step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=models.MODELS)
    parser.add_argument("--data", required=True, help="safetensors file with parameters and inputs")
    parser.add_argument("--json", required=True, help="file for the document")
    parser.add_argument("--small", action="store_true", help="the small configuration")
    for name, choices in (("contract", CONTRACTS), ("phase", PHASES), ("mode", MODES)):
        parser.add_argument(f"--{name}", action="append", choices=choices, help="only this one (may be repeated)")
    parser.add_argument("--float64", action="store_true", help="compute once in float64: the reference of the gates")
    parser.add_argument("--tensors", metavar="DIR", help="folder for outputs, losses and gradients of the fastest mode")
    parser.add_argument("--process", type=int, default=1, help="which of the fresh processes this is")
    parser.add_argument("--cache", choices=("cold", "warm"), default="warm", help="what the caller says of the compile cache; what it is is looked up")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--warmups", type=int, default=5)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    if arguments.samples < 1 or arguments.warmups < 0:
        parser.error("at least one sample and no negative number of warm-ups")
    for name, choices in (("contract", CONTRACTS), ("phase", PHASES), ("mode", MODES)):
        chosen = getattr(arguments, name) or choices
        setattr(arguments, name, [c for c in choices if c in chosen])
    run = Run(arguments)
    if arguments.float64:
        run.float64()
    else:
        run.all_cells()
    run.write()
    run.say(f"done, {run.failures} failed" if run.failures else "done")
    return 3 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
