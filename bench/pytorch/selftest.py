#!/usr/bin/env python3
"""Checks the PyTorch side of the benchmark without a GPU: selftest.py [--compile]

Names, shapes and operations of the published configurations against the numbers in the literature; the layers against their formulas;
small configurations through reference.py in float32 and float64; the file format. With --compile also torch.compile (needs a C++
compiler). Where transformers or torchvision are installed, the models are compared with theirs.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

import torch
from torch.utils.flop_counter import FlopCounterMode

import models
import safetensors_file

HERE = os.path.dirname(os.path.abspath(__file__))
COMPILE = False

# Elements, of these trainable, tensors, GFLOP of the full phase.
PUBLISHED = {
    "smollm2": (134_515_008, 134_515_008, 272, 35.56),
    "smolvla": (99_848_592, 99_848_592, 152, 9.82),
    "unet": (10_928_768, 10_928_768, 181, 2.51),
    "resnet50": (25_530_472, 25_530_472, 108, 32.7),
    "whisper": (8_208_384, 7_632_384, 67, 36.94),
}
FULL_INPUTS = {
    "smollm2": {"ids": (1, 128)},
    "smolvla": {"noisy_actions": (1, 50, 32), "timestep": (1, 1, 1440), "vlm_kv": (1, 16, 320)},
    "unet": {"latent": (1, 4, 32, 32), "timestep_embedding": (1, 64), "text_context": (1, 77, 768)},
    "resnet50": {"images": (4, 3, 224, 224)},
    "whisper": {"mel": (1, 80, 3000)},
}
SMALL_DIMS = {
    "smollm2": models.LlamaDims(vocab=67, hidden=48, layers=2, heads=6, kv_heads=2, head_dim=16, ffn=80),
    "smolvla": models.LlamaDims(action=6, time=24, context=32, hidden=48, layers=2, heads=6, kv_heads=2, head_dim=16, ffn=80),
    "unet": models.UNetDims(channels=(8, 16, 24), embedding=8, time=20, context=12, groups=4, head_dim=8),
    "resnet50": models.ResNetDims(stem=8, blocks=(1, 2), widths=(8, 12), classes=10),
    "whisper": models.WhisperDims(mel=10, hidden=32, layers=2, heads=2, ffn=48, positions=20),
}
SMALL_INPUTS = {
    "smollm2": {"ids": (1, 16), "labels": (1, 16)},
    "smolvla": {"noisy_actions": (1, 7, 6), "timestep": (1, 1, 24), "vlm_kv": (1, 5, 32)},
    "unet": {"latent": (1, 4, 8, 8), "timestep_embedding": (1, 8), "text_context": (1, 5, 12), "noise_target": (1, 4, 8, 8)},
    "resnet50": {"images": (2, 3, 32, 32), "labels": (2,)},
    "whisper": {"mel": (1, 10, 40)},
}


def names_of(workload):
    """The parameters that the published checkpoint has, {name: shape}, written out from its description."""
    found = {}

    def add(name, *shape):
        assert name not in found
        found[name] = shape

    def affine(prefix, width):
        add(f"{prefix}.weight", width)
        add(f"{prefix}.bias", width)

    def linear(prefix, width, out, bias=False):
        add(f"{prefix}.weight", out, width)
        if bias:
            add(f"{prefix}.bias", out)

    def llama(prefix, hidden, q, kv, source, ffn):
        add(f"{prefix}.input_layernorm.weight", hidden)
        add(f"{prefix}.post_attention_layernorm.weight", hidden)
        for name, width, out in (("q", hidden, q), ("k", source, kv), ("v", source, kv), ("o", q, hidden)):
            linear(f"{prefix}.self_attn.{name}_proj", width, out)
        for name, width, out in (("gate", hidden, ffn), ("up", hidden, ffn), ("down", ffn, hidden)):
            linear(f"{prefix}.mlp.{name}_proj", width, out)

    if workload == "smollm2":
        add("model.embed_tokens.weight", 49152, 576)
        add("model.norm.weight", 576)
        for i in range(30):
            llama(f"model.layers.{i}", 576, 576, 192, 576, 1536)
    elif workload == "smolvla":
        for name, width, out in (("in_proj", 32, 720), ("time_mlp_in", 1440, 720), ("time_mlp_out", 720, 720), ("out_proj", 720, 32)):
            linear(f"model.action_{name}", width, out, True)
        for i in range(16):
            llama(f"model.vlm_with_expert.lm_expert.layers.{i}", 720, 960, 320, 320 if i % 2 else 720, 2048)
    elif workload == "unet":
        def resblock(prefix, channels, out):
            affine(f"{prefix}.norm1", channels)
            add(f"{prefix}.conv1.weight", out, channels, 3, 3)
            linear(f"{prefix}.time_proj", 256, out, True)
            affine(f"{prefix}.norm2", out)
            add(f"{prefix}.conv2.weight", out, out, 3, 3)
            if channels != out:
                add(f"{prefix}.res_conv.weight", out, channels, 1, 1)

        def transformer(prefix, c):
            affine(f"{prefix}.norm", c)
            add(f"{prefix}.proj_in.weight", c, c, 1, 1)
            add(f"{prefix}.proj_out.weight", c, c, 1, 1)
            for i in (1, 2, 3):
                affine(f"{prefix}.transformer.norm{i}", c)
            for kind, source in (("self_attn", c), ("cross_attn", 768)):
                for name, width in (("q_proj", c), ("k_proj", source), ("v_proj", source), ("out_proj", c)):
                    linear(f"{prefix}.transformer.{kind}.{name}", width, c)
            linear(f"{prefix}.transformer.ff.fc1", c, 4 * c, True)
            linear(f"{prefix}.transformer.ff.fc2", 4 * c, c, True)
        add("conv_in.weight", 64, 4, 3, 3)
        linear("time_mlp.fc1", 64, 256, True)
        linear("time_mlp.fc2", 256, 256, True)
        for prefix, channels, out in (("encoder.0", 64, 64), ("encoder.1", 64, 128), ("encoder.2", 128, 256), ("middle", 256, 256),
                                      ("decoder.2", 512, 256), ("decoder.1", 384, 128), ("decoder.0", 192, 64)):
            resblock(f"{prefix}.resblock", channels, out)
            if out > 64:
                transformer(f"{prefix}.attn", out)
        add("encoder.0.downsample.weight", 64, 64, 3, 3)
        add("encoder.1.downsample.weight", 128, 128, 3, 3)
        affine("conv_out.norm", 64)
        add("conv_out.weight", 4, 64, 3, 3)
    elif workload == "resnet50":
        add("conv1.weight", 64, 3, 7, 7)
        add("bn1.fused_bias", 64)
        channels = 64
        for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 1):
            for b in range(blocks):
                prefix = f"layer{stage}.{b}"
                for k, (i, o, size) in enumerate(((channels, width, 1), (width, width, 3), (width, 4 * width, 1)), 1):
                    add(f"{prefix}.conv{k}.weight", o, i, size, size)
                    add(f"{prefix}.bn{k}.fused_bias", o)
                if b == 0:
                    add(f"{prefix}.downsample.0.weight", 4 * width, channels, 1, 1)
                    add(f"{prefix}.downsample.1.fused_bias", 4 * width)
                channels = 4 * width
        linear("fc", 2048, 1000, True)
    elif workload == "whisper":
        for name, channels in (("conv1", 80), ("conv2", 384)):
            add(f"model.encoder.{name}.weight", 384, channels, 3)
            add(f"model.encoder.{name}.fused_bias", 384)
        add("model.encoder.embed_positions.weight", 1500, 384)
        affine("model.encoder.layer_norm", 384)
        for i in range(4):
            prefix = f"model.encoder.layers.{i}"
            for name in "qkv":
                linear(f"{prefix}.self_attn.{name}_proj", 384, 384, name != "k")
            linear(f"{prefix}.self_attn.out_proj", 384, 384, True)
            affine(f"{prefix}.self_attn_layer_norm", 384)
            affine(f"{prefix}.final_layer_norm", 384)
            linear(f"{prefix}.fc1", 384, 1536, True)
            linear(f"{prefix}.fc2", 1536, 384, True)
    return found


def random_weights(shapes, seed=1):
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in sorted(shapes.items()):
        if len(shape) > 1:
            gain = 2 if name.endswith("q_proj.weight") else 1
            weights[name] = torch.randn(shape, generator=generator) * (gain / math.sqrt(math.prod(shape[1:])))
        elif name.endswith("bias"):
            weights[name] = torch.randn(shape, generator=generator) * 0.02
        else:
            weights[name] = torch.rand(shape, generator=generator) + 0.5
    return weights


def small_file(workload, path):
    with torch.device("meta"):
        model = models.MODELS[workload](SMALL_DIMS[workload], 16, torch.float32)
    tensors = random_weights({name: tuple(t.shape) for name, t in model.state_dict().items()})
    for name, shape in SMALL_INPUTS[workload].items():
        index = torch.arange(math.prod(shape)).reshape(shape)
        whole = name in ("ids", "labels")
        tensors[f"input/{name}"] = (index + (name == "labels" and workload == "smollm2")).to(torch.int32) if whole else torch.sin(0.3 * index)
    hints = {"unet": {"groups": 4, "head_dim": 8}, "resnet50": {}}.get(workload, {"head_dim": 16})
    safetensors_file.write(path, tensors, {"workload": workload, "config": "small", "seed": 1, **hints})


def relative(a, b):
    return (torch.linalg.vector_norm(a.double() - b.double()) / torch.linalg.vector_norm(b.double()).clamp_min(1e-30)).item()


class Published(unittest.TestCase):
    def test_names_and_shapes(self):
        for workload, (elements, trainable, tensors, _) in PUBLISHED.items():
            with self.subTest(workload):
                model = models.build(workload)
                self.assertEqual({name: tuple(t.shape) for name, t in model.state_dict().items()}, names_of(workload))
                self.assertEqual((tensors, elements), (len(model.state_dict()), sum(t.numel() for t in model.state_dict().values())))
                self.assertEqual(trainable, sum(p.numel() for p in model.parameters() if p.requires_grad))

    def test_operations(self):
        for workload, (_, _, _, gflop) in PUBLISHED.items():
            with self.subTest(workload):
                model = models.build(workload).to("meta")
                inputs = [torch.empty(shape, device="meta", dtype=torch.long if name == "ids" else torch.float32)
                          for name, shape in FULL_INPUTS[workload].items()]
                counter = FlopCounterMode(display=False)
                with counter, torch.no_grad(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                    model(*inputs)
                self.assertAlmostEqual(counter.get_total_flops() / 1e9 / gflop, 1, delta=0.002)

    def test_small_dims_from_shapes(self):
        """The published dims again, from the published shapes."""
        hints = {"smollm2": {"head_dim": 64}, "smolvla": {"head_dim": 64}, "unet": {"groups": 16, "head_dim": 32}, "whisper": {"head_dim": 64}}
        for workload, model in models.MODELS.items():
            with self.subTest(workload):
                self.assertEqual(model.full, model.dims_of(names_of(workload), hints.get(workload, {})))


class Layers(unittest.TestCase):
    def test_rotary_positions(self):
        d, length, theta = 8, 5, 100_000.0
        model = models.SmolLM2(models.LlamaDims(vocab=3, hidden=8, layers=0, heads=1, kv_heads=1, head_dim=d, ffn=8), length, torch.float64)
        x = torch.randn(length, d, dtype=torch.float64)
        expected = torch.empty_like(x)
        for position in range(length):
            for i in range(d // 2):
                angle = position * theta ** (-2 * i / d)
                a, b = x[position, i], x[position, i + d // 2]
                expected[position, i] = a * math.cos(angle) - b * math.sin(angle)
                expected[position, i + d // 2] = b * math.cos(angle) + a * math.sin(angle)
        torch.testing.assert_close(models.rotate(x, model.cos, model.sin), expected)

    def test_grouped_attention(self):
        q, k, v = torch.randn(1, 6, 5, 4), torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4)
        got = models.attend(q, k, v, causal=True)
        for head in range(6):
            scores = q[0, head] @ k[0, head // 3].T / 2
            scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
            torch.testing.assert_close(got[0, :, 4 * head:4 * head + 4], scores.softmax(-1) @ v[0, head // 3])

    def test_causality(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "data.safetensors")
            for workload, blind in (("smollm2", True), ("smolvla", True), ("whisper", False)):
                small_file(workload, path)
                model, inputs, _ = models.load(workload, *self.split(safetensors_file.read(path)))
                before = model(*inputs).detach().clone()
                if workload == "smollm2":
                    inputs[0][:, -1] = 5
                elif workload == "smolvla":
                    inputs[0][:, -1] += 1
                else:
                    inputs[0][:, :, -1] += 1
                after = model(*inputs)
                self.assertEqual(blind, bool(torch.equal(before[:, :-1], after[:, :-1])), workload)
                self.assertFalse(torch.equal(before[:, -1], after[:, -1]), workload)

    @staticmethod
    def split(read):
        return read[0], True, read[1]


class Files(unittest.TestCase):
    def test_round_trip_and_refusals(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.safetensors")
            tensors = {"a": torch.randn(3, 5), "b": torch.arange(7, dtype=torch.int32), "c": torch.empty(0, 4), "d": torch.tensor(2.5)}
            safetensors_file.write(path, tensors, {"k": 1})
            back, metadata = safetensors_file.read(path)
            self.assertEqual(metadata, {"k": "1"})
            self.assertEqual(set(back), set(tensors))
            for name, tensor in tensors.items():
                self.assertTrue(torch.equal(tensor, back[name]) and tensor.dtype == back[name].dtype)
            with open(path, "rb") as file:
                content = file.read()
            with open(path, "wb") as file:
                file.write(content[:-4])
            with self.assertRaises(ValueError):
                safetensors_file.read(path)

    def test_wrong_tensors(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.safetensors")
            small_file("whisper", path)
            tensors, metadata = safetensors_file.read(path)
            missing = {name: t for name, t in tensors.items() if not name.endswith("fc1.bias")}
            for wrong in (missing, tensors | {"more": torch.zeros(1)}, tensors | {"model.encoder.layer_norm.bias": torch.zeros(3)}):
                with self.assertRaises(RuntimeError):
                    models.load("whisper", wrong, True, metadata)
            with self.assertRaises(ValueError):
                models.load("whisper", tensors | {"input/more": torch.zeros(1)}, True, metadata)


class Reference(unittest.TestCase):
    def run_reference(self, *arguments, expected=0):
        done = subprocess.run([sys.executable, os.path.join(HERE, "reference.py"), *arguments], capture_output=True, text=True,
                              env=os.environ | {"OMP_NUM_THREADS": "1"})  # on a busy machine two threads wait for each other
        self.assertEqual(expected, done.returncode, done.stdout + done.stderr)

    def test_small(self):
        for workload in models.MODELS:
            with self.subTest(workload), tempfile.TemporaryDirectory() as folder:
                data, tensors = os.path.join(folder, "data.safetensors"), os.path.join(folder, "tensors")
                reference, result = os.path.join(folder, "reference.json"), os.path.join(folder, "result.json")
                small_file(workload, data)
                common = (workload, "--small", "--device", "cpu", "--data", data, "--tensors", tensors)
                self.run_reference(*common, "--json", reference, "--float64")
                modes = () if COMPILE else ("--mode", "eager", "--mode", "graph")
                self.run_reference(*common, "--json", result, "--samples", "2", "--warmups", "1", "--cache", "cold", *modes)
                self.check(workload, folder, reference, result)

    def check(self, workload, folder, reference, result):
        with open(reference) as file:
            reference = json.load(file)
        with open(result) as file:
            result = json.load(file)
        self.assertEqual(reference["data"], result["data"])
        exact = {c["phase"]: c for c in reference["cells"]}
        self.assertEqual({"full", "minimal", "train"}, set(exact))
        with open(os.path.join(folder, "data.safetensors"), "rb") as file:
            names = set(json.loads(file.read()[8:].split(b"}}")[0] + b"}}"))
        trainable = {n for n in names if n != "__metadata__" and not n.startswith("input/") and "embed_positions" not in n}
        self.assertEqual((2 + COMPILE) * 2 * 3, len(result["cells"]))
        for cell in result["cells"]:
            title = f"{workload} {cell['phase']} {cell['contract']} {cell['mode']}"
            if cell["mode"] == "graph":
                self.assertIn("no CUDA device", cell["error"])
                continue
            self.assertIsNone(cell["error"], title)
            self.assertEqual(2, len(cell["samples_ms"]))
            wanted = exact[cell["phase"]]
            self.assertEqual(wanted["output"]["shape"], cell["output"]["shape"], title)
            self.assertAlmostEqual(1, cell["output"]["l2"] / wanted["output"]["l2"], delta=1e-5, msg=title)
            self.assertEqual(set(wanted["gradients"]), set(cell["gradients"]), title)
            self.assertEqual(trainable if cell["phase"] == "train" else set(), set(cell["gradients"]), title)
            self.assertEqual(cell["phase"] == "train", cell["loss"] is not None)
            if cell["loss"] is not None:
                self.assertAlmostEqual(1, cell["loss"] / wanted["loss"], delta=1e-5, msg=title)
            if cell["tensors"]:
                mine, _ = safetensors_file.read(os.path.join(folder, "tensors", cell["tensors"]))
                theirs, metadata = safetensors_file.read(os.path.join(folder, "tensors", wanted["tensors"]))
                self.assertEqual(set(theirs), set(mine))
                self.assertEqual(cell["phase"] == "train", "loss" in mine)
                for name in mine:
                    self.assertLess(relative(mine[name], theirs[name]), 2e-4, f"{title} {name}")
        written = [c for c in result["cells"] if c["tensors"]]
        self.assertEqual(2 * 3, len(written))
        if COMPILE:
            self.assertEqual({"cold"}, {c["cache"] for c in result["compile"].values()})
            self.assertEqual({"strict", "accelerated"}, {c for c, v in result["compile"].items() if v["seconds"] > 0})

    def test_a_bad_cell(self):
        """A label out of range: training fails, inference does not."""
        with tempfile.TemporaryDirectory() as folder:
            data, result = os.path.join(folder, "data.safetensors"), os.path.join(folder, "result.json")
            small_file("resnet50", data)
            tensors, metadata = safetensors_file.read(data)
            safetensors_file.write(data, tensors | {"input/labels": torch.tensor([0, 99], dtype=torch.int32)}, metadata)
            self.run_reference("resnet50", "--small", "--device", "cpu", "--data", data, "--json", result, "--mode", "eager", "--samples", "1",
                               "--contract", "strict", expected=3)
            with open(result) as file:
                errors = {c["phase"]: c["error"] for c in json.load(file)["cells"]}
            self.assertEqual((None, None), (errors["full"], errors["minimal"]))
            self.assertIn("IndexError", errors["train"])


class OtherImplementations(unittest.TestCase):
    """The published configurations against the packages that publish them, where these are installed."""

    def compare(self, workload, theirs, inputs):
        shapes = names_of(workload)
        weights = random_weights(shapes)
        model = models.build(workload)
        model.load_state_dict(weights, assign=True)
        with torch.no_grad():
            self.assertLess(relative(model(*inputs), theirs(weights)), 1e-5)

    def test_smollm2(self):
        try:
            from transformers import LlamaConfig, LlamaForCausalLM
        except ImportError as error:
            self.skipTest(str(error))
        ids = torch.arange(24)[None] * 7

        def theirs(weights):
            options = dict(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
                           num_key_value_heads=3, max_position_embeddings=8192, rms_norm_eps=1e-5, tie_word_embeddings=True)
            try:
                config = LlamaConfig(rope_parameters={"rope_type": "default", "rope_theta": 100_000.0}, **options)
                assert config.rope_parameters["rope_theta"] == 100_000.0
            except (AssertionError, AttributeError, TypeError):
                config = LlamaConfig(rope_theta=100_000.0, **options)
            model = LlamaForCausalLM(config).eval()
            model.load_state_dict(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]})
            return model(ids, use_cache=False).logits
        self.compare("smollm2", theirs, (ids,))

    def test_resnet50(self):
        try:
            from torchvision.models import resnet50
        except ImportError as error:
            self.skipTest(str(error))
        images = torch.sin(torch.arange(2 * 3 * 224 * 224) * 0.001).reshape(2, 3, 224, 224)

        def theirs(weights):
            model = resnet50().eval()
            state = {}
            for name, tensor in model.state_dict().items():
                if name in weights:
                    state[name] = weights[name]
                elif name.endswith("num_batches_tracked"):
                    state[name] = tensor
                else:
                    stem, kind = name.rsplit(".", 1)
                    bias = weights[f"{stem}.fused_bias"]
                    state[name] = {"bias": bias, "weight": torch.ones_like(bias), "running_mean": torch.zeros_like(bias),
                                   "running_var": torch.full_like(bias, 1 - 1e-5)}[kind]
            model.load_state_dict(state)
            return model(images)
        self.compare("resnet50", theirs, (images,))

    def test_whisper(self):
        try:
            from transformers import WhisperConfig
            from transformers.models.whisper.modeling_whisper import WhisperEncoder
        except ImportError as error:
            self.skipTest(str(error))
        mel = torch.sin(torch.arange(80 * 3000) * 0.001).reshape(1, 80, 3000)

        def theirs(weights):
            model = WhisperEncoder(WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536, num_mel_bins=80,
                                                 max_source_positions=1500, dropout=0.0)).eval()
            model.load_state_dict({name.removeprefix("model.encoder.").replace("fused_bias", "bias"): t for name, t in weights.items()})
            return model(mel).last_hidden_state
        self.compare("whisper", theirs, (mel,))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--compile", action="store_true")
    arguments, rest = parser.parse_known_args()
    COMPILE = arguments.compile
    torch.manual_seed(1)
    unittest.main(argv=[sys.argv[0], *rest])
