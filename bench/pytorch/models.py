"""The five models of docs/benchmark.md in plain PyTorch: the opponent of Aeshna's models, and their judge.

Parameters have the names of the published checkpoints: the keys of state_dict() are exactly those of the data file. A module takes the
inputs of inference in the order of its class's `inputs` and returns the output; `loss(output, target)` is the scalar that is
differentiated. Written for PyTorch's speed: fused attention, norms and losses where it has them, biases handed to the convolutions.
Tensors are contiguous (NCHW); torch.compile chooses another layout of convolutions by itself where it pays.
"""
import re
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


def heads_first(x, heads):
    """[B, length, heads * d] -> [B, heads, length, d]"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def attend(q, k, v, causal=False):
    """[B, heads, length, d], scale 1/sqrt(d) -> [B, length, heads * d]; k and v may have fewer heads, each shared by consecutive ones of q.

    They are repeated: of PyTorch's fused kernels for f32 none takes grouped heads, and the repetition costs less than the unfused way."""
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)


def tree(path, module):
    """The module under a dotted path of plain containers."""
    for name in reversed(path.split(".")):
        module = nn.ModuleDict({name: module})
    return module


# ---- SmolLM2 and SmolVLA: layers of the Llama kind

@dataclass
class LlamaDims:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int = 0               # SmolLM2
    action: int = 0              # SmolVLA, as are the next two
    time: int = 0
    context: int = 0
    theta: float = 100_000.0
    eps: float = 1e-5


class GroupedAttention(nn.Module):
    """The query comes from x, key and value from `source` if given; rotary positions where `rope` = (cos, sin) is given."""

    def __init__(self, dims, source_width):
        super().__init__()
        self.heads, self.kv_heads = dims.heads, dims.kv_heads
        self.q_proj = nn.Linear(dims.hidden, dims.heads * dims.head_dim, bias=False)
        self.k_proj = nn.Linear(source_width, dims.kv_heads * dims.head_dim, bias=False)
        self.v_proj = nn.Linear(source_width, dims.kv_heads * dims.head_dim, bias=False)
        self.o_proj = nn.Linear(dims.heads * dims.head_dim, dims.hidden, bias=False)

    def forward(self, x, source=None, rope=None, causal=False):
        source = x if source is None else source
        q = heads_first(self.q_proj(x), self.heads)
        k, v = heads_first(self.k_proj(source), self.kv_heads), heads_first(self.v_proj(source), self.kv_heads)
        if rope is not None:
            q, k = rotate(q, *rope), rotate(k, *rope)
        return self.o_proj(attend(q, k, v, causal))


class GatedMlp(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.gate_proj = nn.Linear(dims.hidden, dims.ffn, bias=False)
        self.up_proj = nn.Linear(dims.hidden, dims.ffn, bias=False)
        self.down_proj = nn.Linear(dims.ffn, dims.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    def __init__(self, dims, source_width):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(dims.hidden, eps=dims.eps)
        self.self_attn = GroupedAttention(dims, source_width)
        self.post_attention_layernorm = nn.RMSNorm(dims.hidden, eps=dims.eps)
        self.mlp = GatedMlp(dims)

    def forward(self, x, source=None, rope=None, causal=False):
        x = x + self.self_attn(self.input_layernorm(x), source, rope, causal)
        return x + self.mlp(self.post_attention_layernorm(x))


def rotate(x, cos, sin):
    """Rotary positions, half-split: element i is paired with element i + d/2. cos and sin are [length, d], both halves alike."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class SmolLM2(nn.Module):
    inputs, target = ("ids",), "labels"
    full = LlamaDims(vocab=49152, hidden=576, layers=30, heads=9, kv_heads=3, head_dim=64, ffn=1536)

    def __init__(self, dims, length, dtype):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(dims.vocab, dims.hidden)
        self.model.layers = nn.ModuleList(LlamaLayer(dims, dims.hidden) for _ in range(dims.layers))
        self.model.norm = nn.RMSNorm(dims.hidden, eps=dims.eps)
        half = dims.head_dim // 2
        frequency = dims.theta ** (torch.arange(half, dtype=torch.float64, device="cpu") * (-1.0 / half))
        angle = torch.outer(torch.arange(length, dtype=torch.float64, device="cpu"), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos().to(dtype), persistent=False)
        self.register_buffer("sin", angle.sin().to(dtype), persistent=False)

    @staticmethod
    def dims_of(shapes, hints):
        vocab, hidden = shapes["model.embed_tokens.weight"]
        return LlamaDims(vocab=vocab, hidden=hidden, **llama_layers(shapes, "model.layers", hints))

    def forward(self, ids):
        rope = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, rope=rope, causal=True)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)

    def loss(self, output, labels):
        return F.cross_entropy(output.flatten(0, 1), labels.flatten())


class SmolVLA(nn.Module):
    """Even layers: causal self-attention over the action tokens; odd layers: attention to the context. No positions, no final norm."""
    inputs, target = ("noisy_actions", "timestep", "vlm_kv"), None
    full = LlamaDims(action=32, time=1440, context=320, hidden=720, layers=16, heads=15, kv_heads=5, head_dim=64, ffn=2048)

    def __init__(self, dims, length, dtype):
        super().__init__()
        layers = nn.ModuleList(LlamaLayer(dims, dims.context if i % 2 else dims.hidden) for i in range(dims.layers))
        self.model = tree("vlm_with_expert.lm_expert.layers", layers)
        self.model["action_in_proj"] = nn.Linear(dims.action, dims.hidden)
        self.model["action_time_mlp_in"] = nn.Linear(dims.time, dims.hidden)
        self.model["action_time_mlp_out"] = nn.Linear(dims.hidden, dims.hidden)
        self.model["action_out_proj"] = nn.Linear(dims.hidden, dims.action)

    @staticmethod
    def dims_of(shapes, hints):
        hidden, action = shapes["model.action_in_proj.weight"]
        layers = llama_layers(shapes, "model.vlm_with_expert.lm_expert.layers", hints)
        return LlamaDims(action=action, time=shapes["model.action_time_mlp_in.weight"][1], hidden=hidden,
                         context=shapes["model.vlm_with_expert.lm_expert.layers.1.self_attn.k_proj.weight"][1], **layers)

    def forward(self, noisy_actions, timestep, vlm_kv):
        model = self.model
        time = model["action_time_mlp_out"](F.silu(model["action_time_mlp_in"](timestep)))
        x = model["action_in_proj"](noisy_actions) + time
        for i, layer in enumerate(model["vlm_with_expert"]["lm_expert"]["layers"]):
            x = layer(x, source=vlm_kv) if i % 2 else layer(x, causal=True)
        return model["action_out_proj"](x)

    def loss(self, output, _):
        return output.square().mean()


def llama_layers(shapes, prefix, hints):
    q, hidden = shapes[f"{prefix}.0.self_attn.q_proj.weight"]
    d = hints["head_dim"]
    return {"layers": count(shapes, prefix), "heads": q // d, "kv_heads": shapes[f"{prefix}.0.self_attn.k_proj.weight"][0] // d,
            "head_dim": d, "ffn": shapes[f"{prefix}.0.mlp.up_proj.weight"][0]}


def count(shapes, prefix):
    """How many there are of prefix.0, prefix.1, ..."""
    pattern = re.compile(re.escape(prefix) + r"\.(\d+)\.")
    return 1 + max((int(m[1]) for m in map(pattern.match, shapes) if m), default=-1)


# ---- the diffusion U-Net

@dataclass
class UNetDims:
    latent: int = 4
    channels: tuple = (64, 128, 256)
    embedding: int = 64     # what the time MLP takes
    time: int = 256         # what it gives
    context: int = 768
    groups: int = 16
    head_dim: int = 32
    ffn: int = 4
    attention: tuple = (False, True, True)
    eps: float = 1e-5


class TwoLinears(nn.Module):
    def __init__(self, width, inner, out, activation):
        super().__init__()
        self.fc1, self.fc2, self.activation = nn.Linear(width, inner), nn.Linear(inner, out), activation

    def forward(self, x):
        return self.fc2(self.activation(self.fc1(x)))


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def convolution(channels, out, kernel, stride=1):
    return nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)


class ResBlock(nn.Module):
    def __init__(self, dims, channels, out):
        super().__init__()
        self.norm1 = nn.GroupNorm(dims.groups, channels, dims.eps)
        self.conv1 = convolution(channels, out, 3)
        self.time_proj = nn.Linear(dims.time, out)
        self.norm2 = nn.GroupNorm(dims.groups, out, dims.eps)
        self.conv2 = convolution(out, out, 3)
        self.res_conv = convolution(channels, out, 1) if channels != out else None

    def forward(self, x, time):
        h = self.conv1(F.silu(self.norm1(x))) + self.time_proj(time)[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (x if self.res_conv is None else self.res_conv(x))


class PlainAttention(nn.Module):
    def __init__(self, width, source_width, head_dim):
        super().__init__()
        self.heads = width // head_dim
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(source_width, width, bias=False)
        self.v_proj = nn.Linear(source_width, width, bias=False)
        self.out_proj = nn.Linear(width, width, bias=False)

    def forward(self, x, source):
        q, k, v = (heads_first(y, self.heads) for y in (self.q_proj(x), self.k_proj(source), self.v_proj(source)))
        return self.out_proj(attend(q, k, v))


class TransformerBlock(nn.Module):
    def __init__(self, dims, width):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width, dims.eps) for _ in range(3))
        self.self_attn = PlainAttention(width, width, dims.head_dim)
        self.cross_attn = PlainAttention(width, dims.context, dims.head_dim)
        self.ff = TwoLinears(width, dims.ffn * width, width, gelu_tanh)

    def forward(self, x, context):
        h = self.norm1(x)
        x = x + self.self_attn(h, h)
        x = x + self.cross_attn(self.norm2(x), context)
        return x + self.ff(self.norm3(x))


class SpatialTransformer(nn.Module):
    def __init__(self, dims, channels):
        super().__init__()
        self.norm = nn.GroupNorm(dims.groups, channels, dims.eps)
        self.proj_in = convolution(channels, channels, 1)
        self.transformer = TransformerBlock(dims, channels)
        self.proj_out = convolution(channels, channels, 1)

    def forward(self, x, context):
        tokens = self.proj_in(self.norm(x)).flatten(2).transpose(1, 2)  # [B, H*W, C]
        tokens = self.transformer(tokens, context)
        return x + self.proj_out(tokens.transpose(1, 2).unflatten(2, x.shape[2:]))


class Level(nn.Module):
    """A residual block, a transformer at some levels, and on the way down the convolution that halves the picture, if any."""

    def __init__(self, dims, channels, out, attention, downsample=False):
        super().__init__()
        self.resblock = ResBlock(dims, channels, out)
        self.attn = SpatialTransformer(dims, out) if attention else None
        self.downsample = convolution(out, out, 3, 2) if downsample else None

    def forward(self, x, time, context):
        x = self.resblock(x, time)
        return x if self.attn is None else self.attn(x, context)


class OutputConv(nn.Module):
    """A convolution with its group norm: `conv_out.norm.*` and `conv_out.weight`."""

    def __init__(self, dims, channels, out):
        super().__init__()
        self.norm = nn.GroupNorm(dims.groups, channels, dims.eps)
        self.weight = nn.Parameter(torch.empty(out, channels, 3, 3))

    def forward(self, x):
        return F.conv2d(F.silu(self.norm(x)), self.weight, padding=1)


class UNet(nn.Module):
    inputs, target = ("latent", "timestep_embedding", "text_context"), "noise_target"
    full = UNetDims()

    def __init__(self, dims, length, dtype):
        super().__init__()
        widths, last = dims.channels, len(dims.channels) - 1
        self.conv_in = convolution(dims.latent, widths[0], 3)
        self.time_mlp = TwoLinears(dims.embedding, dims.time, dims.time, F.silu)
        self.encoder = nn.ModuleList(Level(dims, widths[max(l - 1, 0)], widths[l], dims.attention[l], l < last) for l in range(last + 1))
        self.middle = Level(dims, widths[last], widths[last], True)
        self.decoder = nn.ModuleList(Level(dims, widths[min(l + 1, last)] + widths[l], widths[l], dims.attention[l]) for l in range(last + 1))
        self.conv_out = OutputConv(dims, widths[0], dims.latent)

    @staticmethod
    def dims_of(shapes, hints):
        levels = range(count(shapes, "encoder"))
        attention = tuple(f"encoder.{l}.attn.norm.weight" in shapes for l in levels)
        time, embedding = shapes["time_mlp.fc1.weight"]
        inner, width = shapes["middle.attn.transformer.ff.fc1.weight"]
        return UNetDims(latent=shapes["conv_in.weight"][1], channels=tuple(shapes[f"encoder.{l}.resblock.conv1.weight"][0] for l in levels),
                        embedding=embedding, time=time, context=shapes["middle.attn.transformer.cross_attn.k_proj.weight"][1],
                        groups=hints["groups"], head_dim=hints["head_dim"], ffn=inner // width, attention=attention)

    def forward(self, latent, timestep_embedding, text_context):
        time = self.time_mlp(timestep_embedding)
        x, skips = self.conv_in(latent), []
        for level in self.encoder:
            x = level(x, time, text_context)
            skips.append(x)
            if level.downsample is not None:
                x = level.downsample(x)
        x = self.middle(x, time, text_context)
        for l in reversed(range(len(skips))):
            if l < len(skips) - 1:
                x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = self.decoder[l](torch.cat((x, skips[l]), 1), time, text_context)
        return self.conv_out(x)

    def loss(self, output, target):
        return F.mse_loss(output, target)


# ---- ResNet-50, its batch norms folded into the weights and a bias

@dataclass
class ResNetDims:
    colours: int = 3
    stem: int = 64
    blocks: tuple = (3, 4, 6, 3)
    widths: tuple = (64, 128, 256, 512)
    expansion: int = 4
    classes: int = 1000


class FusedBias(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.fused_bias = nn.Parameter(torch.empty(channels))


def biased(x, conv, bias):
    return F.conv2d(x, conv.weight, bias.fused_bias, conv.stride, conv.padding)


class Bottleneck(nn.Module):
    def __init__(self, channels, width, out, stride):
        super().__init__()
        self.conv1, self.bn1 = convolution(channels, width, 1), FusedBias(width)
        self.conv2, self.bn2 = convolution(width, width, 3, stride), FusedBias(width)
        self.conv3, self.bn3 = convolution(width, out, 1), FusedBias(out)
        changes = stride != 1 or channels != out
        self.downsample = nn.ModuleList((convolution(channels, out, 1, stride), FusedBias(out))) if changes else None

    def forward(self, x):
        h = F.relu(biased(x, self.conv1, self.bn1))
        h = F.relu(biased(h, self.conv2, self.bn2))
        h = biased(h, self.conv3, self.bn3)
        return F.relu(h + (x if self.downsample is None else biased(x, *self.downsample)))


class ResNet50(nn.Module):
    inputs, target = ("images",), "labels"
    full = ResNetDims()

    def __init__(self, dims, length, dtype):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(dims.colours, dims.stem, 7, 2, 3, bias=False), FusedBias(dims.stem)
        channels, self.stages = dims.stem, len(dims.blocks)
        for stage, (blocks, width) in enumerate(zip(dims.blocks, dims.widths)):
            out = width * dims.expansion
            layer = nn.ModuleList(Bottleneck(channels if b == 0 else out, width, out, 2 if stage and b == 0 else 1) for b in range(blocks))
            setattr(self, f"layer{stage + 1}", layer)
            channels = out
        self.fc = nn.Linear(channels, dims.classes)

    @staticmethod
    def dims_of(shapes, hints):
        stages = [s for s in range(1, 100) if f"layer{s}.0.conv1.weight" in shapes]
        widths = tuple(shapes[f"layer{s}.0.conv1.weight"][0] for s in stages)
        stem, colours = shapes["conv1.weight"][:2]
        return ResNetDims(colours=colours, stem=stem, blocks=tuple(count(shapes, f"layer{s}") for s in stages), widths=widths,
                          expansion=shapes["layer1.0.conv3.weight"][0] // widths[0], classes=shapes["fc.weight"][0])

    def forward(self, images):
        x = F.max_pool2d(F.relu(biased(images, self.conv1, self.bn1)), 3, 2, 1)
        for stage in range(self.stages):
            for block in getattr(self, f"layer{stage + 1}"):
                x = block(x)
        return self.fc(x.mean((2, 3)))

    def loss(self, output, labels):
        return F.cross_entropy(output, labels)


# ---- the encoder of Whisper

@dataclass
class WhisperDims:
    mel: int = 80
    hidden: int = 384
    layers: int = 4
    heads: int = 6
    ffn: int = 1536
    positions: int = 1500
    eps: float = 1e-5


class BiasedConv1d(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.weight, self.fused_bias = nn.Parameter(torch.empty(out, channels, 3)), nn.Parameter(torch.empty(out))
        self.stride = stride

    def forward(self, x):
        return F.conv1d(x, self.weight, self.fused_bias, self.stride, 1)


class WhisperAttention(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.heads = dims.heads
        self.q_proj, self.v_proj, self.out_proj = (nn.Linear(dims.hidden, dims.hidden) for _ in range(3))
        self.k_proj = nn.Linear(dims.hidden, dims.hidden, bias=False)

    def forward(self, x):
        q, k, v = (heads_first(project(x), self.heads) for project in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(attend(q, k, v))


class WhisperLayer(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.self_attn_layer_norm = nn.LayerNorm(dims.hidden, dims.eps)
        self.self_attn = WhisperAttention(dims)
        self.final_layer_norm = nn.LayerNorm(dims.hidden, dims.eps)
        self.fc1, self.fc2 = nn.Linear(dims.hidden, dims.ffn), nn.Linear(dims.ffn, dims.hidden)

    def forward(self, x):
        x = x + self.self_attn(self.self_attn_layer_norm(x))
        return x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))


class Whisper(nn.Module):
    inputs, target = ("mel",), None
    full = WhisperDims()

    def __init__(self, dims, length, dtype):
        super().__init__()
        encoder = nn.Module()
        encoder.conv1 = BiasedConv1d(dims.mel, dims.hidden, 1)
        encoder.conv2 = BiasedConv1d(dims.hidden, dims.hidden, 2)
        encoder.embed_positions = nn.Embedding(dims.positions, dims.hidden)
        encoder.layers = nn.ModuleList(WhisperLayer(dims) for _ in range(dims.layers))
        encoder.layer_norm = nn.LayerNorm(dims.hidden, dims.eps)
        self.model = nn.ModuleDict({"encoder": encoder})
        self.frozen = ("model.encoder.embed_positions.weight",)

    @staticmethod
    def dims_of(shapes, hints):
        hidden, mel = shapes["model.encoder.conv1.weight"][:2]
        return WhisperDims(mel=mel, hidden=hidden, layers=count(shapes, "model.encoder.layers"), heads=hidden // hints["head_dim"],
                           ffn=shapes["model.encoder.layers.0.fc1.weight"][0], positions=shapes["model.encoder.embed_positions.weight"][0])

    def forward(self, mel):
        encoder = self.model["encoder"]
        x = F.gelu(encoder.conv2(F.gelu(encoder.conv1(mel))))
        x = x.transpose(1, 2) + encoder.embed_positions.weight
        for layer in encoder.layers:
            x = layer(x)
        return encoder.layer_norm(x)

    def loss(self, output, _):
        return output.square().mean()


# ---- by name

MODELS = {"smollm2": SmolLM2, "smolvla": SmolVLA, "unet": UNet, "resnet50": ResNet50, "whisper": Whisper}

# What the shapes of small configurations do not say; metadata of the same name in the data file goes before it.
SMALL = {"smollm2": {"head_dim": 16}, "smolvla": {"head_dim": 16}, "unet": {"head_dim": 16, "groups": 8}, "resnet50": {}, "whisper": {"head_dim": 16}}


def build(workload, shapes=None, metadata=None, length=None, dtype=torch.float32):
    """The module without values (on the device "meta"): the published configuration, or with `shapes` (parameter -> shape) the small one
    that has them. `length` is the longest sequence of ids."""
    model = MODELS[workload]
    dims = model.full
    if shapes is not None:
        hints = {key: int((metadata or {}).get(key, value)) for key, value in SMALL[workload].items()}
        dims = model.dims_of(shapes, hints)
    with torch.device("meta"):
        built = model(dims, length or 128, dtype)
    for name, parameter in built.named_parameters():
        parameter.requires_grad_(name not in getattr(built, "frozen", ()))
    return built


def load(workload, tensors, small, metadata=None, dtype=torch.float32, device="cpu"):
    """(module, inputs by name, target or None) from the tensors of a data file; any parameter missing, unknown or misshapen is an error."""
    inputs = {name.removeprefix("input/"): t.to(device) for name, t in tensors.items() if name.startswith("input/")}
    inputs = {name: t.to(dtype) if t.is_floating_point() else t.long() for name, t in inputs.items()}
    weights = {name: t for name, t in tensors.items() if not name.startswith("input/")}
    length = inputs["ids"].shape[1] if "ids" in inputs else None
    module = build(workload, {name: tuple(t.shape) for name, t in weights.items()} if small else None, metadata, length, dtype)
    module.load_state_dict({name: t.to(device, dtype) for name, t in weights.items()}, strict=True, assign=True)
    module.to(device)
    known = {*module.inputs, module.target} - {None}
    if set(inputs) != known:
        raise ValueError(f"{workload} has the inputs {sorted(known)}, the file {sorted(inputs)}")
    return module, tuple(inputs[name] for name in module.inputs), inputs.get(module.target)


def minimal(workload, inputs):
    """The inputs of the minimal phase: of each those elements that come first."""
    if workload == "smollm2":
        return (inputs[0][:1, :1].contiguous(),)
    if workload == "smolvla":
        return (inputs[0][:1, :1].contiguous(), inputs[1][:1], inputs[2][:1])
    return tuple(t[:1] for t in inputs)
