#!/usr/bin/env python3
"""Writes a GGUF file of a language model's shapes with random weights and no tokenizer, for bench.cpp beside it.

    make_model.py {f32,f16,q8_0,q4_0,q4_K,q6_K} FILE [SHAPE]        (needs numpy)
"""
import struct
import sys

import numpy as np

# vocabulary, hidden, layers, heads, KV heads, head_dim, ffn: as bench/decode.cpp has them
SHAPES = {
    "smollm2-135m": (49152, 576, 30, 9, 3, 64, 1536),
    "llama-1b": (128256, 2048, 16, 32, 8, 64, 8192),
}
TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "q4_K": 12, "q6_K": 14}  # ggml_type
# Values of a block, its bytes, where f16 scales are, and what these are times the scale of the matrix.
BLOCKS = {
    "q4_0": (32, 18, (0,), 1 / 7.5),
    "q8_0": (32, 34, (0,), 1 / 127),
    "q4_K": (256, 144, (0, 2), 1 / (7.5 * 63)),
    "q6_K": (256, 210, (208,), 1 / (32 * 127)),
}
STRING, U32, F32 = 8, 4, 6
ALIGNMENT = 32


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def metadata(key, kind, value):
    packed = {STRING: text, U32: lambda v: struct.pack("<I", v), F32: lambda v: struct.pack("<f", v)}[kind](value)
    return text(key) + struct.pack("<I", kind) + packed


def values(shape, kind, random):
    """Little-endian bytes; matrices have a deviation that keeps activations of one size."""
    if len(shape) == 1:
        return np.ones(shape, "<f4").tobytes()
    scale = (3 / shape[1]) ** 0.5
    if kind in ("f32", "f16"):
        real = (random.random(shape, dtype=np.float32) * 2 - 1) * np.float32(scale)
        return real.astype("<f4" if kind == "f32" else "<f2").tobytes()
    size, length, scales, step = BLOCKS[kind]
    blocks = random.integers(0, 256, (shape[0] * shape[1] // size, length), dtype=np.uint8)
    for at in scales:
        blocks[:, at : at + 2] = np.frombuffer(np.array(scale * step, "<f2").tobytes(), np.uint8)
    return blocks.tobytes()


def main():
    kind, path, *shape = sys.argv[1:]
    vocab, hidden, layers, heads, kv_heads, head_dim, ffn = SHAPES[shape[0] if shape else "smollm2-135m"]
    head = [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, "random weights"),
        ("llama.context_length", U32, 8192),
        ("llama.embedding_length", U32, hidden),
        ("llama.block_count", U32, layers),
        ("llama.feed_forward_length", U32, ffn),
        ("llama.attention.head_count", U32, heads),
        ("llama.attention.head_count_kv", U32, kv_heads),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("llama.rope.dimension_count", U32, head_dim),
        ("llama.rope.freq_base", F32, 100000.0),
        ("llama.vocab_size", U32, vocab),
        ("tokenizer.ggml.model", STRING, "no_vocab"),
    ]
    kv = kv_heads * head_dim
    tensors = [("token_embd.weight", (vocab, hidden)), ("output_norm.weight", (hidden,))]
    for i in range(layers):
        tensors += [
            (f"blk.{i}.{name}.weight", shape)
            for name, shape in [
                ("attn_norm", (hidden,)),
                ("attn_q", (heads * head_dim, hidden)),
                ("attn_k", (kv, hidden)),
                ("attn_v", (kv, hidden)),
                ("attn_output", (hidden, heads * head_dim)),
                ("ffn_norm", (hidden,)),
                ("ffn_gate", (ffn, hidden)),
                ("ffn_up", (ffn, hidden)),
                ("ffn_down", (hidden, ffn)),
            ]
        ]
    random = np.random.default_rng(1)
    table, data = b"", []
    offset = 0
    for name, shape in tensors:
        content = values(shape, kind, random)
        table += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        table += struct.pack("<IQ", TYPES[kind if len(shape) > 1 else "f32"], offset)
        content += bytes(-len(content) % ALIGNMENT)
        data.append(content)
        offset += len(content)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(head)) + b"".join(metadata(*m) for m in head) + table
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % ALIGNMENT))
        for content in data:
            file.write(content)


if __name__ == "__main__":
    main()
