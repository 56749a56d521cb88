#!/usr/bin/env python3
"""Writes a GGUF file of SmolLM2-135M's shapes with random weights and no tokenizer, for bench.cpp beside it.

    make_model.py {f32,q8_0,q4_0} FILE        (needs numpy)
"""
import struct
import sys

import numpy as np

VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, FFN = 49152, 576, 30, 9, 3, 1536
TYPES = {"f32": 0, "q4_0": 2, "q8_0": 8}  # ggml_type
BLOCK_BYTES = {"q4_0": 18, "q8_0": 34}  # of 32 values: an f16 scale, then the values
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
    if kind == "f32":
        return (random.random(shape, dtype=np.float32) * 2 - 1).astype("<f4").__mul__(np.float32(scale)).tobytes()
    blocks = random.integers(0, 256, (shape[0] * shape[1] // 32, BLOCK_BYTES[kind]), dtype=np.uint8)
    step = np.array(scale / (7.5 if kind == "q4_0" else 127), "<f2")
    blocks[:, :2] = np.frombuffer(step.tobytes(), np.uint8)
    return blocks.tobytes()


def main():
    kind, path = sys.argv[1:]
    head = [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, "random weights"),
        ("llama.context_length", U32, 8192),
        ("llama.embedding_length", U32, HIDDEN),
        ("llama.block_count", U32, LAYERS),
        ("llama.feed_forward_length", U32, FFN),
        ("llama.attention.head_count", U32, HEADS),
        ("llama.attention.head_count_kv", U32, KV_HEADS),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("llama.rope.dimension_count", U32, HIDDEN // HEADS),
        ("llama.rope.freq_base", F32, 100000.0),
        ("llama.vocab_size", U32, VOCAB),
        ("tokenizer.ggml.model", STRING, "no_vocab"),
    ]
    kv = HIDDEN // HEADS * KV_HEADS
    tensors = [("token_embd.weight", (VOCAB, HIDDEN)), ("output_norm.weight", (HIDDEN,))]
    for i in range(LAYERS):
        tensors += [
            (f"blk.{i}.{name}.weight", shape)
            for name, shape in [
                ("attn_norm", (HIDDEN,)),
                ("attn_q", (HIDDEN, HIDDEN)),
                ("attn_k", (kv, HIDDEN)),
                ("attn_v", (kv, HIDDEN)),
                ("attn_output", (HIDDEN, HIDDEN)),
                ("ffn_norm", (HIDDEN,)),
                ("ffn_gate", (FFN, HIDDEN)),
                ("ffn_up", (FFN, HIDDEN)),
                ("ffn_down", (HIDDEN, FFN)),
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
